/* Llama (Touvron et al. 2023): rotary positions, pre-norm blocks with RMS norm, SwiGLU,
 * grouped-query attention. Weights are [out, in], as in torch.nn.Linear.
 *
 * Mistral (Jiang et al. 2023), Qwen2 (Yang et al. 2024), Qwen3 (Yang et al. 2025) and SmolLM3 are
 * the same model with biases of queries, keys and values, a norm of each of their heads, or layers
 * without positions. Each of these is a config key, so that any combination can be trained; `types`
 * maps the keys to the model types of transformers. */
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

/* As in the key model.layers. */
#define MAX_LAYERS 10000

extern const by__nn_family by__nn_family_llama;

static const by__config_key key_rows[] = {
    {"model", "qkv_bias", BY__KEY_SWITCH, BY__OWN(by__nn_llama_keys, qkv_bias), "false",
     .later = true, .help = "biases of the query, key and value projections (Qwen2)"},
    {"model", "output_bias", BY__KEY_SWITCH, BY__OWN(by__nn_llama_keys, output_bias), "false",
     .later = true, .help = "bias of the output projection of attention"},
    {"model", "mlp_bias", BY__KEY_SWITCH, BY__OWN(by__nn_llama_keys, mlp_bias), "false",
     .later = true, .help = "biases of the projections of the MLP"},
    {"model", "qk_norm", BY__KEY_SWITCH, BY__OWN(by__nn_llama_keys, qk_norm), "false",
     .later = true, .help = "RMS norm of each query and key head (Qwen3)"},
    {"model", "nope_layers", BY__KEY_TEXTS, BY__OWN(by__nn_llama_keys, nope_layers), "[]",
     .later = true, .help = "layers without rotary positions, counted from 0 (SmolLM3)"},
    {"model", "window_layers", BY__KEY_TEXTS, BY__OWN(by__nn_llama_keys, window_layers), "[]",
     .later = true, .help = "layers that use `window`, counted from 0; empty: all"},
    {"model", "hf_type", BY__KEY_TEXT, BY__OWN(by__nn_llama_keys, hf_type), "auto",
     .choices = "auto|llama|mistral|qwen2|qwen3|smollm3", .later = true,
     .help = "model_type of the config.json that is written; auto: the first that supports the "
             "model's features"},
};
static const by__config_key_list key_list = BY__KEY_LIST(key_rows);

static by__nn_llama_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_llama.kind);
}

/* ---- model types of transformers ---- */

typedef enum windows { NONE, ALL_LAYERS, SOME_LAYERS } windows;

typedef struct type {
    bool odd_width; /* width / heads need not be an integer */
    bool qkv_bias;  /* always, and without a bias of the output */
    bool qk_norm;   /* always */
    bool attention_bias;
    bool mlp_bias;
    bool nope;
    windows windows; /* which layers may have a window */
    int64_t window;  /* default of a file without the key */
    /* default first layer with a window; 0: as the layers without positions */
    int64_t windows_from;
    by__nn_llama_defaults defaults;
} type;

/* Both tables have the same order. */
static const by__nn_published published[] = {
    {"llama", "LlamaForCausalLM", false},    {"mistral", "MistralForCausalLM", false},
    {"qwen2", "Qwen2ForCausalLM", false},    {"qwen3", "Qwen3ForCausalLM", false},
    {"smollm3", "SmolLM3ForCausalLM", true}, {0}};
static const type types[] = {
    {.attention_bias = true, .mlp_bias = true, .defaults = {1e4, 1e-6, 0}},
    {.odd_width = true, .windows = ALL_LAYERS, .window = 4096, .defaults = {1e4, 1e-6, 0}},
    {.odd_width = true,
     .qkv_bias = true,
     .windows = SOME_LAYERS,
     .window = 4096,
     .windows_from = 28,
     .defaults = {1e4, 1e-6, 0}},
    {.odd_width = true,
     .qk_norm = true,
     .attention_bias = true,
     .windows = SOME_LAYERS,
     .window = 4096,
     .windows_from = 28,
     .defaults = {1e4, 1e-6, 128}},
    {.odd_width = true,
     .attention_bias = true,
     .mlp_bias = true,
     .nope = true,
     .windows = SOME_LAYERS,
     .defaults = {2e6, 1e-6, 0}},
};

static bool has_window(const by__nn_llama_keys *k, int64_t layer)
{
    return k->window_layers.count == 0 || by__nn_list_has(&k->window_layers, layer);
}

/* The window of a layer, whether the section `attention` or the keys here say so; 0: none. */
static int64_t window_at(const by_model_config *c, const by__nn_llama_keys *k, int64_t layer)
{
    return by__nn_attention_window(c, layer, has_window(k, layer) ? k->window : 0);
}

/* Which layers have a window, and which, as far as config.json can say so. */
static windows find_windows(const by_model_config *c, const by__nn_llama_keys *k, int64_t *window)
{
    int64_t count = 0;
    int64_t layers = by__nn_attention_is_windows(c) ? c->layers : 0;
    *window = 0;
    for (int64_t i = 0; i < layers; i++) {
        int64_t at = window_at(c, k, i);
        *window = at > 0 ? at : *window;
        count += at > 0;
    }
    return count == 0                                          ? NONE
           : count == c->layers && k->window_layers.count == 0 ? ALL_LAYERS
                                                               : SOME_LAYERS;
}

static bool has_features(const type *t, const by_model_config *c, const by__nn_llama_keys *k)
{
    int64_t window;
    windows which = find_windows(c, k, &window);
    bool qkv = k->qkv_bias == 1;
    bool output = k->output_bias == 1;
    bool biases = t->qkv_bias ? qkv && !output : qkv == output && (t->attention_bias || !qkv);
    return biases && (t->odd_width || c->width % c->heads == 0) &&
           t->qk_norm == (k->qk_norm == 1) && (t->mlp_bias || k->mlp_bias != 1) &&
           (t->nope || k->nope_layers.count == 0) &&
           (which == NONE || t->windows == SOME_LAYERS || t->windows == which);
}

/* The row selected by hf_type; -1: there is none. */
static int type_of(const by_model_config *c, const by__nn_llama_keys *k)
{
    bool any = strcmp(k->hf_type, "auto") == 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if ((any || strcmp(k->hf_type, published[i].model_type) == 0) &&
            has_features(&types[i], c, k)) {
            return (int)i;
        }
    }
    return -1;
}

static const by__nn_published *publish(const by_model_config *c)
{
    int i = type_of(c, own_keys(c));
    return &published[i < 0 ? 0 : i];
}

static by_status check_type(const by_config *config, const by__nn_llama_keys *k, by_error *error)
{
    if (type_of(&config->model, k) >= 0) {
        return BY_OK;
    }
    const char *where = by__config_where(config, "model.hf_type", "model.qkv_bias");
    if (strcmp(k->hf_type, "auto") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: no %s of transformers has these features (model.qkv_bias, "
                            "output_bias, mlp_bias, qk_norm, nope_layers, window, "
                            "window_layers and head_dim); leave "
                            "model.hf_type out for one that has",
                            where, k->hf_type);
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s: no model of transformers has these together: model.qkv_bias %s, "
                        "output_bias %s, mlp_bias %s, qk_norm %s, %zu nope_layers, window %lld, "
                        "head_dim %lld. llama and smollm3 have all biases or none, qwen2 qkv_bias "
                        "alone, qwen3 qk_norm, smollm3 alone nope_layers, llama no window",
                        where, k->qkv_bias ? "true" : "false", k->output_bias ? "true" : "false",
                        k->mlp_bias ? "true" : "false", k->qk_norm ? "true" : "false",
                        k->nope_layers.count, (long long)k->window,
                        (long long)config->model.head_dim);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const by__nn_llama_keys *k = own;
    BY_TRY(by__nn_llama_resolve(config, k, error));
    BY_TRY(by__nn_layers_check(config, "model.nope_layers", &k->nope_layers, error));
    BY_TRY(by__nn_layers_check(config, "model.window_layers", &k->window_layers, error));
    return check_type(config, k, error);
}

/* ---- the graph ---- */

static by_value mlp_linear(by__nn_build *b, by_value x, int layer, by__nn_mlp_part part)
{
    static const char *const names[] = {"mlp.up_proj", "mlp.gate_proj", "mlp.down_proj"};
    const by_model_config *c = b->config;
    bool bias = own_keys(c)->mlp_bias == 1;
    return part == BY__NN_MLP_DOWN
               ? by__nn_llama_linear(b, x, c->mlp_width, c->width, "embed mlp",
                                     by__nn_init_residual(b), bias, layer, names[part])
               : by__nn_llama_linear(b, x, c->width, c->mlp_width, "mlp embed",
                                     by__nn_init_normal(b), bias, layer, names[part]);
}

static by_value mlp(by__nn_build *b, by_value x, int layer)
{
    static const by__nn_mlp_layers layers = {
        .linear = mlp_linear, .activation = BY_FN_SILU, .gated = true};
    return by__nn_mlp(b, x, layer, &layers);
}

static void body(by__nn_build *b)
{
    by__nn_llama_body(b, own_keys(b->config), mlp);
}

/* ---- config.json ---- */

/* transformers before 4.53 reads max_window_layers: the first layer with a window, after which all
 * have one. */
static void write_windows(json_t *out, const by_model_config *c, const by__nn_llama_keys *k,
                          const type *t)
{
    int64_t window;
    windows which = find_windows(c, k, &window);
    if (t->windows == ALL_LAYERS) {
        (void)json_object_set_new(out, "sliding_window",
                                  which == NONE ? json_null() : json_integer(window));
    }
    if (t->windows != SOME_LAYERS || which == NONE) {
        return;
    }
    json_t *layers = json_array();
    int64_t first = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        bool limited = window_at(c, k, i) > 0;
        first += !limited;
        (void)json_array_append_new(layers,
                                    json_string(limited ? "sliding_attention" : "full_attention"));
    }
    (void)json_object_set_new(out, "use_sliding_window", json_true());
    (void)json_object_set_new(out, "sliding_window", json_integer(window));
    (void)json_object_set_new(out, "layer_types", layers);
    (void)json_object_set_new(out, "max_window_layers", json_integer(first));
}

static void write_config(json_t *out, const by_model_config *c)
{
    const by__nn_llama_keys *k = own_keys(c);
    const type *t = &types[publish(c) - published];
    by__nn_llama_write_config(out, c, k);
    if (t->attention_bias) {
        (void)json_object_set_new(out, "attention_bias", json_boolean(k->qkv_bias));
    }
    if (t->mlp_bias) {
        (void)json_object_set_new(out, "mlp_bias", json_boolean(k->mlp_bias));
    }
    if (t->nope) {
        json_t *rotated = json_array();
        for (int64_t i = 0; i < c->layers; i++) {
            (void)json_array_append_new(rotated,
                                        json_integer(!by__nn_list_has(&k->nope_layers, i)));
        }
        (void)json_object_set_new(out, "no_rope_layers", rotated);
        /* transformers' default is an id of SmolLM3's own vocabulary. */
        (void)json_object_set_new(out, "pad_token_id", json_null());
    }
    write_windows(out, c, k, t);
}

static by_status check_layers(const by_model_config *c, const char *name, by_error *error)
{
    return c->layers <= MAX_LAYERS
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: \"num_hidden_layers\" %lld is more than %d",
                              name, (long long)c->layers, MAX_LAYERS);
}

/* no_rope_layers has a 1 for each layer with positions; without the key, every n-th layer has
 * none. */
static by_status read_nope(by__nn_llama_keys *k, const by_model_config *c, const char *name,
                           const json_t *in, by_error *error)
{
    const json_t *list = json_object_get(in, "no_rope_layers");
    int64_t interval;
    bool *without;
    BY_TRY(by__nn_json_integer(&interval, name, in, "no_rope_layer_interval", 4, error));
    if (json_is_array(list) && json_array_size(list) < (size_t)c->layers) {
        return by_error_set(error, BY_EFORMAT, "%s: \"no_rope_layers\" has %zu of %lld layers",
                            name, json_array_size(list), (long long)c->layers);
    }
    BY_TRY(check_layers(c, name, error));
    BY_TRY(by__alloc((void **)&without, (size_t)c->layers, sizeof *without, "layers", error));
    for (size_t i = 0; i < (size_t)c->layers; i++) {
        without[i] = json_is_array(list) ? json_integer_value(json_array_get(list, i)) == 0
                                         : (i + 1) % (size_t)interval == 0;
    }
    by_status status = by__nn_list_fill(&k->nope_layers, without, (size_t)c->layers, error);
    free(without);
    return status;
}

/* Reads whether layer i has a window. */
static by_status read_layer_type(bool *limited, size_t i, const by__nn_llama_keys *k, const type *t,
                                 int64_t from, const char *name, const json_t *in, by_error *error)
{
    const json_t *list = json_object_get(in, "layer_types");
    const char *said = json_string_value(json_array_get(list, i));
    if (!json_is_array(list)) {
        *limited =
            t->windows_from > 0 ? (int64_t)i >= from : by__nn_list_has(&k->nope_layers, (int64_t)i);
        return BY_OK;
    }
    *limited = said != NULL && strcmp(said, "sliding_attention") == 0;
    if (!*limited && (said == NULL || strcmp(said, "full_attention") != 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"layer_types\" [%zu] is \"%.40s\"; supported: full_attention, "
                            "sliding_attention",
                            name, i, said == NULL ? "(missing)" : said);
    }
    return BY_OK;
}

static by_status read_layer_types(by__nn_llama_keys *k, const by_model_config *c, const type *t,
                                  const char *name, const json_t *in, by_error *error)
{
    size_t count = (size_t)c->layers;
    size_t limited = 0;
    bool *has;
    const json_t *first = json_object_get(in, "max_window_layers");
    int64_t from = json_is_integer(first) ? json_integer_value(first) : t->windows_from;
    BY_TRY(check_layers(c, name, error));
    BY_TRY(by__alloc((void **)&has, count, sizeof *has, "layers", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = read_layer_type(&has[i], i, k, t, from, name, in, error);
        limited += has[i];
    }
    k->window = limited == 0 ? 0 : k->window;
    if (status == BY_OK) {
        status = by__nn_list_fill(&k->window_layers, has, limited == count ? 0 : count, error);
    }
    free(has);
    return status;
}

static by_status read_windows(by__nn_llama_keys *k, const by_model_config *c, const type *t,
                              const char *name, const json_t *in, by_error *error)
{
    const json_t *window = json_object_get(in, "sliding_window");
    int64_t used = 0;
    if (t->windows == SOME_LAYERS) {
        BY_TRY(by__nn_json_switch(&used, name, in, "use_sliding_window", false, error));
    }
    k->window = 0;
    BY_TRY(by__nn_list_fill(&k->window_layers, NULL, 0, error));
    if ((t->windows != ALL_LAYERS && used == 0) || json_is_null(window)) {
        return BY_OK;
    }
    BY_TRY(by__nn_json_integer(&k->window, name, in, "sliding_window", t->window, error));
    return t->windows == SOME_LAYERS && k->window > 0 ? read_layer_types(k, c, t, name, in, error)
                                                      : BY_OK;
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    by__nn_llama_keys *k = own_keys(c);
    const char *hf_type = by__nn_json_model_type(in);
    size_t i = 0;
    while (strcmp(published[i].model_type, hf_type) != 0) { /* it is in the table */
        i++;
    }
    const type *t = &types[i];
    int64_t attention;
    int64_t mlp;
    BY_TRY(by__nn_json_switch(&attention, name, in, "attention_bias", false, error));
    BY_TRY(by__nn_json_switch(&mlp, name, in, "mlp_bias", false, error));
    BY_TRY(by__nn_llama_read_config(c, k, &t->defaults, name, in, error));
    BY_TRY(by__nn_set_string(&k->hf_type, hf_type, error));
    k->qkv_bias = t->qkv_bias || (t->attention_bias && attention != 0);
    k->output_bias = t->attention_bias && attention != 0;
    k->mlp_bias = t->mlp_bias && mlp != 0;
    k->qk_norm = t->qk_norm;
    BY_TRY(t->nope ? read_nope(k, c, name, in, error)
                   : by__nn_list_fill(&k->nope_layers, NULL, 0, error));
    return read_windows(k, c, t, name, in, error);
}

/* After pruning, a model_type that requires heads to divide the width may not apply any more. */
static by_status reduce(by_model_config *c, const by__nn_reduction *to, by_error *error)
{
    by__nn_llama_keys *k = own_keys(c);
    BY_TRY(by__nn_llama_reduce(c, k, to, error));
    return type_of(c, k) >= 0 ? BY_OK : by__nn_set_string(&k->hf_type, "auto", error);
}

static const char *bounded(const by_model_config *c)
{
    return by__nn_rope_bounded(&own_keys(c)->rope);
}

/* Windows are in config.json, but other kinds of attention are not. */
static bool expresses(const by_model_config *c, const char *section)
{
    return strcmp(section, "attention") == 0 && by__nn_attention_is_windows(c);
}

const by__nn_family by__nn_family_llama = {
    .kind = {.name = "llama",
             .help = "Llama, Mistral, Qwen2, Qwen3, SmolLM: rotary positions, RMS norm, SwiGLU, "
                     "grouped-query attention.",
             .keys = {&by__nn_transformer_keys, &by__nn_token_keys, &by__nn_llama_key_list,
                      &by__nn_rope_key_list, &key_list, &by__nn_part_keys, &by__nn_norm_keys,
                      &by__nn_mlp_keys, &by__nn_stream_keys, &by__nn_mup_keys,
                      &by__nn_sequence_keys},
             .size = sizeof(by__nn_llama_keys),
             .resolve = resolve},
    .base = "model.",
    .embedding = "model.embed_tokens.weight",
    .reads = "tokens",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .reduce = reduce,
    .rotary = true,
    .queries = by__nn_llama_queries,
    .expresses = expresses,
    .bounded = bounded,
    .published = published,
    .publish = publish,
    .adapted = "q_proj v_proj",
};
