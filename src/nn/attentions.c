/* The section `attention`: which keys a token attends to, and how, by layer. A kind is a function
 * that says so of a layer and a row with its keys, from which the config has its choices and
 * docs/config.md its tables; families call by__nn_attend and know no kind. */
#include <string.h>

#include "nn/nn.h"

/* Keys of all kinds; each declares those that it has. */
typedef struct attention_keys {
    int64_t window;
    int64_t every;
    by_string_list pattern;
} attention_keys;

/* The attention of one layer. */
typedef struct layer_attention {
    bool none;
    int64_t window; /* 0: all keys */
    bool slopes;    /* ALiBi's */
    bool linear;
} layer_attention;

/* A kind. */
typedef struct attention_row {
    by__config_kind kind;
    /* The attention of a layer, whose family's own window is `window`. */
    layer_attention (*at)(const attention_keys *k, int64_t layer, int64_t window);
    bool by_layer; /* it depends on the number of the layer; a pattern cannot name the kind */
} attention_row;

#define WINDOW                                                                                     \
    {                                                                                              \
        "attention", "window", BY__KEY_INT, BY__OWN(attention_keys, window), "256", 1, BY__MI24,   \
            .later = true,                                                                         \
            .help = "tokens that a token attends to in such a layer, including itself; encoders: " \
                    "on either side"                                                               \
    }
static const by__config_key window_rows[] = {WINDOW};
static const by__config_key local_global_rows[] = {
    WINDOW,
    {"attention", "every", BY__KEY_INT, BY__OWN(attention_keys, every), "2", 1, BY__MI20,
     .later = true,
     .help = "every layer whose number, from 1, is a multiple of this attends to all"},
};
static const by__config_key mixed_rows[] = {
    WINDOW,
    {"attention", "pattern", BY__KEY_TEXTS, BY__OWN(attention_keys, pattern), "[window, full]",
     .later = true,
     .help = "kinds of the layers in order, repeated: of full, window, alibi, linear and none"},
};
static const by__config_key_list window_list = BY__KEY_LIST(window_rows);
static const by__config_key_list local_global_list = BY__KEY_LIST(local_global_rows);
static const by__config_key_list mixed_list = BY__KEY_LIST(mixed_rows);

static layer_attention at_full(const attention_keys *k, int64_t layer, int64_t window)
{
    BY_UNUSED(k);
    BY_UNUSED(layer);
    return (layer_attention){.window = window};
}

static layer_attention at_window(const attention_keys *k, int64_t layer, int64_t window)
{
    BY_UNUSED(layer);
    BY_UNUSED(window);
    return (layer_attention){.window = k->window};
}

static layer_attention at_local_global(const attention_keys *k, int64_t layer, int64_t window)
{
    BY_UNUSED(window);
    return (layer_attention){.window = (layer + 1) % k->every == 0 ? 0 : k->window};
}

static layer_attention at_alibi(const attention_keys *k, int64_t layer, int64_t window)
{
    BY_UNUSED(k);
    BY_UNUSED(layer);
    BY_UNUSED(window);
    return (layer_attention){.slopes = true};
}

static layer_attention at_linear(const attention_keys *k, int64_t layer, int64_t window)
{
    BY_UNUSED(k);
    BY_UNUSED(layer);
    BY_UNUSED(window);
    return (layer_attention){.linear = true};
}

static layer_attention at_none(const attention_keys *k, int64_t layer, int64_t window)
{
    BY_UNUSED(k);
    BY_UNUSED(layer);
    BY_UNUSED(window);
    return (layer_attention){.none = true};
}

static layer_attention at_mixed(const attention_keys *k, int64_t layer, int64_t window);
static by_status resolve(by_config *config, void *own, by_error *error);
static by_status resolve_mixed(by_config *config, void *own, by_error *error);

static const attention_row rows[] = {
    {.kind = {.name = "full",
              .help = "To all tokens (Vaswani et al. 2017), in a decoder to all before it; with "
                      "`model.window`, as that says."},
     .at = at_full},
    {.kind = {.name = "window",
              .help = "To the nearest tokens (Beltagy et al. 2020).",
              .keys = {&window_list},
              .size = sizeof(attention_keys),
              .resolve = resolve},
     .at = at_window},
    {.kind = {.name = "local_global",
              .help = "Layers with a window alternate with layers without one (Gemma 2: Riviere et "
                      "al. 2024).",
              .keys = {&local_global_list},
              .size = sizeof(attention_keys),
              .resolve = resolve},
     .at = at_local_global,
     .by_layer = true},
    {.kind = {.name = "alibi",
              .help = "To all tokens, the less the farther they are, by slopes of the heads (Press "
                      "et al. 2022). `position.kind: auto` then adds no positions.",
              .resolve = resolve},
     .at = at_alibi},
    {.kind = {.name = "linear",
              .help = "To all tokens by products of features instead of exponentials, in time that "
                      "grows with the tokens alone (Katharopoulos et al. 2020).",
              .resolve = resolve},
     .at = at_linear},
    {.kind = {.name = "none", .help = "The layers have no attention.", .resolve = resolve},
     .at = at_none},
    {.kind = {.name = "mixed",
              .help = "A kind for each layer.",
              .keys = {&mixed_list},
              .size = sizeof(attention_keys),
              .resolve = resolve_mixed},
     .at = at_mixed,
     .by_layer = true},
};

const by__config_kind *by__nn_attention_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index].kind : NULL;
}

static const attention_row *find_row(const char *kind)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows) && kind != NULL; i++) {
        if (strcmp(rows[i].kind.name, kind) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

static layer_attention at_mixed(const attention_keys *k, int64_t layer, int64_t window)
{
    const attention_row *row =
        k->pattern.count == 0 ? NULL : find_row(k->pattern.items[(size_t)layer % k->pattern.count]);
    return row == NULL || row->by_layer ? at_full(k, layer, window) : row->at(k, layer, window);
}

/* The attention of a layer; of an unknown kind, full. */
static layer_attention attention_at(const by_model_config *c, int64_t layer, int64_t window)
{
    const attention_row *row = find_row(c->attention.kind);
    return row == NULL ? at_full(NULL, layer, window)
                       : row->at(by__config_kind_own(c->attention.own, &row->kind), layer, window);
}

/* Ranks that share a sequence pass keys around in a ring, which knows only full attention. */
static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    return config->parallel.sequence <= 1
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: parallel.sequence %lld supports only attention.kind full, not "
                              "%s; use parallel.tensor or parallel.shard instead",
                              by__config_where(config, "attention.kind", "parallel.sequence"),
                              (long long)config->parallel.sequence, config->model.attention.kind);
}

static by_status resolve_mixed(by_config *config, void *own, by_error *error)
{
    const attention_keys *k = own;
    for (size_t i = 0; i < k->pattern.count; i++) {
        const attention_row *row = find_row(k->pattern.items[i]);
        if (row == NULL || row->by_layer) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: attention.pattern names '%.40s'; it may name full, window, "
                                "alibi, linear and none",
                                by__config_where(config, "attention.pattern", "attention.kind"),
                                k->pattern.items[i]);
        }
    }
    if (k->pattern.count == 0) {
        return by_error_set(error, BY_ECONFIG, "%s: attention.pattern is empty",
                            by__config_where(config, "attention.pattern", "attention.kind"));
    }
    return resolve(config, own, error);
}

bool by__nn_attends(const by_model_config *config, int64_t layer)
{
    return !attention_at(config, layer, 0).none;
}

bool by__nn_attention_is_windows(const by_model_config *config)
{
    for (int64_t i = 0; i < config->layers; i++) {
        layer_attention a = attention_at(config, i, 0);
        if (a.none || a.slopes || a.linear) {
            return false;
        }
    }
    return true;
}

int64_t by__nn_attention_window(const by_model_config *config, int64_t layer, int64_t window)
{
    return attention_at(config, layer, window).window;
}

bool by__nn_attention_differs(const by_model_config *config)
{
    const attention_row *row = find_row(config->attention.kind);
    return row != NULL && row->by_layer;
}

/* ---- the graph ---- */

/* Attention through pages, which all sequences share. */
static by_value attend_pages(by__nn_build *b, int layer, const by__nn_heads *h,
                             const by_attention_mask *mask)
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
    by_paged_rows paged = {b->model.positions, b->model.sessions, b->model.pages};
    return by_attention_paged(b->graph, h->q, h->k, h->v, k_pool, v_pool, &paged, c->heads,
                              c->kv_heads, mask);
}

static by_value attend_cache(by__nn_build *b, int layer, const by__nn_heads *h,
                             const by_attention_mask *mask)
{
    const by_model_config *c = b->config;
    char name[64];
    by_shape shape = BY_SHAPE(b->request->batch, c->kv_heads, b->request->cache, c->head_dim);
    (void)snprintf(name, sizeof name, "cache.%d.k", layer);
    by_value k_cache = by_graph_state(b->graph, name, BY_F32, shape);
    (void)snprintf(name, sizeof name, "cache.%d.v", layer);
    by_value v_cache = by_graph_state(b->graph, name, BY_F32, shape);
    return by_attention_cached(b->graph, h->q, h->k, h->v, k_cache, v_cache, b->model.start,
                               c->heads, c->kv_heads, mask);
}

/* The tokens of a sample. */
static int64_t time_of(const by__nn_build *b, by_value q)
{
    return q == BY_NONE ? 0 : b->graph->values[q].shape.dim[1];
}

/* Rotates queries and keys, which are then no longer packed. */
static void rotate(by__nn_build *b, by__nn_heads *h)
{
    const by_model_config *c = b->config;
    by_rotation buffer;
    const by_rotation *rotation = by__nn_rotation(&buffer, c, h->rotation);
    int64_t q_width = c->heads * c->head_dim;
    int64_t kv_width = c->kv_heads * c->head_dim;
    if (rotation == NULL) {
        return;
    }
    if (h->k == BY_NONE) {
        by_value qkv = h->q;
        h->q = by_slice(b->graph, qkv, 2, 0, q_width);
        h->k = by_slice(b->graph, qkv, 2, q_width, kv_width);
        h->v = by_slice(b->graph, qkv, 2, q_width + kv_width, kv_width);
    }
    h->q = by_rope(b->graph, h->q, b->model.start, c->heads, rotation);
    h->k = by_rope(b->graph, h->k, b->model.start, c->kv_heads, rotation);
}

/* Sums over the keys of each text take the place of caches and pages. */
static by_value attend_sums(by__nn_build *b, int layer, const by__nn_heads *h)
{
    const by_model_config *c = b->config;
    const by_model_request *r = b->request;
    char name[64];
    bool step = r->mode == BY_MODEL_STEP;
    by_shape shape = BY_SHAPE(step ? r->sessions : r->batch, c->kv_heads, c->head_dim,
                              BY_SUM_COLUMNS(c->head_dim));
    by_carried_rows at = {step ? b->model.positions : b->model.start,
                          step ? b->model.sessions : BY_NONE};
    (void)snprintf(name, sizeof name, "sums.%d", layer);
    by_value sums = by_graph_state(b->graph, name, BY_F32, shape);
    return by_linear_attention_carried(b->graph, h->q, h->k, h->v, sums, &at, c->heads,
                                       c->kv_heads);
}

static by_value attend_linear(by__nn_build *b, int layer, const by__nn_heads *h)
{
    const by_model_config *c = b->config;
    if (b->request->mode >= BY_MODEL_PREFILL) {
        return attend_sums(b, layer, h);
    }
    if (b->model.starts != BY_NONE && !h->bidirectional) {
        by__graph_fail(b->graph, BY_EARG,
                       "attention.kind linear does not stay within documents: set data.documents: "
                       "join");
        return BY_NONE;
    }
    return by_linear_attention(b->graph, h->q, h->k, h->v, c->heads, c->kv_heads, h->bidirectional,
                               b->model.lengths);
}

by_value by__nn_attend(by__nn_build *b, int layer, const by__nn_heads *heads)
{
    const by_model_config *c = b->config;
    layer_attention a = attention_at(c, layer, heads->window);
    by_attention_mask mask = {.bidirectional = heads->bidirectional,
                              .window = a.window,
                              .slopes = a.slopes,
                              .starts = BY_NONE,
                              .lengths = BY_NONE};
    by__nn_heads h = *heads;
    if (!h.still) {
        rotate(b, &h);
    }
    if (a.linear) {
        return attend_linear(b, layer, &h);
    }
    if (b->request->mode == BY_MODEL_STEP) {
        return attend_pages(b, layer, &h, &mask);
    }
    /* A window that no token exceeds is dropped, because it would hide that nothing is limited. */
    if (by__nn_is_cached(b)) {
        mask.window = a.window < b->request->cache ? a.window : 0;
        return attend_cache(b, layer, &h, &mask);
    }
    mask.window = a.window < time_of(b, h.q) ? a.window : 0;
    mask.starts = heads->bidirectional ? BY_NONE : b->model.starts;
    mask.lengths = b->model.lengths;
    return by_attention_masked(b->graph, h.q, h.k, h.v, c->heads, c->kv_heads, &mask);
}
