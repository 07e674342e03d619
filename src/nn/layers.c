/* Layers shared by the families: inputs, parameters, dropout. */
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
    int length = snprintf(name, sizeof name, "%s", b->prefix);
    va_start(args, format);
    (void)vsnprintf(name + length, sizeof name - (size_t)length, format, args);
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
