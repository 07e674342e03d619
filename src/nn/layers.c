/* Layers shared by the families: inputs, parameters, dropout, and attention in each mode. */
#include <math.h>
#include <stdarg.h>

#include "nn/nn.h"

by_value by__nn_input(by__nn_build *b, const char *name, by_dtype dtype, by_shape shape)
{
    by_value found = by_graph_find(b->graph, name);
    return found == BY_NONE ? by_graph_input(b->graph, name, dtype, shape) : found;
}

by_value by__nn_weight(by__nn_build *b, const char *axes, by_shape shape, by_init init,
                       const char *format, ...)
{
    char name[160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return by_graph_parameter(b->graph, name, axes, shape, init);
}

by_init by__nn_init_normal(const by__nn_build *b)
{
    return (by_init){BY_INIT_NORMAL, (float)b->config->init_std};
}

by_init by__nn_init_residual(const by__nn_build *b)
{
    return (by_init){BY_INIT_NORMAL,
                     (float)(b->config->init_std / sqrt(2.0 * (double)b->config->layers))};
}

by_value by__nn_drop(by__nn_build *b, by_value x)
{
    float p = (float)b->config->dropout;
    if (b->request->mode != BY_MODEL_TRAIN || p == 0.0f) {
        return x;
    }
    return by_dropout(b->graph, x, b->model.rng, p, b->streams++);
}

bool by__nn_is_cached(const by__nn_build *b)
{
    return b->request->mode == BY_MODEL_PREFILL || b->request->mode == BY_MODEL_DECODE;
}

/* Attention through pages, which all sequences share. */
static by_value attend_pages(by__nn_build *b, int layer, by_value q, by_value k, by_value v,
                             int64_t window)
{
    const by_model_config *c = b->config;
    char name[64];
    bool codes = b->request->codes;
    by_dtype dtype = codes ? BY_U8 : BY_F32;
    by_shape shape = BY_SHAPE(b->request->pages, c->kv_heads, BY_PAGE_TOKENS,
                              c->head_dim + (codes ? BY_PAGE_SCALE : 0));
    (void)snprintf(name, sizeof name, "pool.%d.k", layer);
    by_value k_pool = by_graph_state(b->graph, name, dtype, shape);
    (void)snprintf(name, sizeof name, "pool.%d.v", layer);
    by_value v_pool = by_graph_state(b->graph, name, dtype, shape);
    by_paged_rows rows = {b->model.positions, b->model.sessions, b->model.pages};
    return by_attention_paged(b->graph, q, k, v, k_pool, v_pool, &rows, c->heads, c->kv_heads,
                              window);
}

by_value by__nn_attend(by__nn_build *b, int layer, by_value q, by_value k, by_value v,
                       int64_t window)
{
    const by_model_config *c = b->config;
    if (b->request->mode == BY_MODEL_STEP) {
        return attend_pages(b, layer, q, k, v, window);
    }
    if (!by__nn_is_cached(b)) {
        by_attention_mask mask = BY_ATTENTION_CAUSAL;
        /* A window that no token exceeds is dropped, because it would hide that nothing is
         * limited. */
        mask.window = window < b->request->time ? window : 0;
        mask.starts = b->model.starts;
        return by_attention_masked(b->graph, q, k, v, c->heads, c->kv_heads, &mask);
    }
    char name[64];
    by_shape shape = BY_SHAPE(b->request->batch, c->kv_heads, b->request->cache, c->head_dim);
    (void)snprintf(name, sizeof name, "cache.%d.k", layer);
    by_value k_cache = by_graph_state(b->graph, name, BY_F32, shape);
    (void)snprintf(name, sizeof name, "cache.%d.v", layer);
    by_value v_cache = by_graph_state(b->graph, name, BY_F32, shape);
    return by_attention_cached(b->graph, q, k, v, k_cache, v_cache, b->model.start, c->heads,
                               c->kv_heads, window < b->request->cache ? window : 0);
}
