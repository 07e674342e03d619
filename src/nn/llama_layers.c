/* The layers of Llama (Touvron et al. 2023), shared with the families that differ from it only in
 * the second half of a block: rotary positions, pre-norm blocks with RMS norm, grouped-query
 * attention. Weights are [out, in], as in torch.nn.Linear. */
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

static const by__config_key key_rows[] = {
    {"model", "kv_heads", BY__KEY_INT, BY__FIELD(model.kv_heads), "-1", 1, 65536,
     .derived = "equal to heads",
     .help = "key and value heads (grouped-query attention); divides heads"},
    {"model", "head_dim", BY__KEY_INT, BY__OWN(by__nn_llama_keys, head_dim), "-1", 2, 65536,
     .derived = "width / heads", .later = true, .help = "width of a head; must be even"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "8/3 x width rounded up to a multiple of 64", .help = "hidden width of the MLP"},
    {"model", "tied", BY__KEY_SWITCH, BY__FIELD(model.tied), "-1", .derived = "false",
     .help = "tie the output head to the token embedding"},
    {"model", "window", BY__KEY_INT, BY__OWN(by__nn_llama_keys, window), "0", 0, BY__MI24,
     .later = true,
     .help = "sliding-window attention: tokens that a token attends to, including itself; 0: all "
             "previous tokens"},
};
const by__config_key_list by__nn_llama_key_list = BY__KEY_LIST(key_rows);

/* Ranks that share a sequence pass keys around in a ring, which does not support windows. */
static by_status check_window(const by_config *config, const by__nn_llama_keys *keys,
                              by_error *error)
{
    if (keys->window == 0 || keys->window >= config->model.context ||
        config->parallel.sequence <= 1) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_ECONFIG,
        "%s: model.window %lld is less than the context, and parallel.sequence %lld does not "
        "support sliding windows; use parallel.tensor or parallel.shard instead, or window 0",
        by__config_where(config, "model.window", "parallel.sequence"), (long long)keys->window,
        (long long)config->parallel.sequence);
}

by_status by__nn_llama_resolve(by_config *config, const by__nn_llama_keys *keys, by_error *error)
{
    by_model_config *c = &config->model;
    c->kv_heads = c->kv_heads == -1 ? c->heads : c->kv_heads;
    c->tied = c->tied == -1 ? 0 : c->tied;
    /* Two thirds of GPT-2's factor four, because SwiGLU has three matrices instead of two. */
    c->mlp_width = c->mlp_width == -1 ? ((8 * c->width + 2) / 3 + 63) / 64 * 64 : c->mlp_width;
    BY_TRY(by__nn_sequence_resolve(config, error));
    BY_TRY(by__nn_token_resolve(config, error));
    BY_TRY(by__nn_transformer_resolve(config, keys->head_dim, error));
    BY_TRY(by__config_divides(config, "model.kv_heads", "model.heads", error));
    BY_TRY(by__config_divides(config, "parallel.tensor", "model.kv_heads", error));
    if (keys->head_dim > 0 && keys->head_dim % 2 != 0) {
        return by_error_set(
            error, BY_ECONFIG, "%s: head_dim is %lld; rotary embeddings need an even width",
            by__config_where(config, "model.head_dim", "model.heads"), (long long)keys->head_dim);
    }
    if (c->head_dim % 2 != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: heads %lld gives heads of width %lld (width %lld / heads); rotary "
                            "embeddings need an even one",
                            by__config_where(config, "model.heads", "model.width"),
                            (long long)c->heads, (long long)c->head_dim, (long long)c->width);
    }
    if (keys->window > 0 && strcmp(c->attention.kind, "full") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.window %lld belongs to attention.kind full, not %s: leave "
                            "it out, or set attention.window",
                            by__config_where(config, "model.window", "attention.kind"),
                            (long long)keys->window, c->attention.kind);
    }
    BY_TRY(check_window(config, keys, error));
    BY_TRY(by__nn_mup_resolve(config, error));
    return by__nn_rope_resolve(config, &keys->rope, error);
}

by_status by__nn_layers_check(const by_config *config, const char *key, const by_string_list *list,
                              by_error *error)
{
    for (size_t i = 0; i < list->count; i++) {
        char *end;
        const char *text = list->items[i];
        long long layer = strtoll(text, &end, 10);
        if (end == text || *end != '\0' || layer < 0 || layer >= config->model.layers) {
            return by_error_set(error, BY_ECONFIG, "%s: %s: '%s' is not a layer from 0 to %lld",
                                by__config_where(config, key, "model.layers"), key, text,
                                (long long)config->model.layers - 1);
        }
    }
    return BY_OK;
}

bool by__nn_list_has(const by_string_list *list, int64_t number)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strtoll(list->items[i], NULL, 10) == number) {
            return true;
        }
    }
    return false;
}

by_status by__nn_list_fill(by_string_list *list, const bool *has, size_t count, by_error *error)
{
    char **items;
    BY_TRY(by__alloc((void **)&items, count, sizeof *items, "a list of layers", error));
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (by_string_list){items, 0};
    for (size_t i = 0; i < count; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "%zu", i);
        if (has[i]) {
            BY_TRY(by__nn_set_string(&items[list->count++], text, error));
        }
    }
    return BY_OK;
}

/* Where queries have a norm, its weights scale them, and the factor on q_proj keeps the size of its
 * updates beside that of its values. */
const by__nn_query_scale by__nn_llama_queries[] = {
    {"*.self_attn.q_proj.*", 1.0}, {"*.self_attn.q_norm.weight", 1.0}, {0}};

/* Keeps the entries of the layers that stay, renumbered. */
static by_status reduce_list(by_string_list *list, const by_model_config *c, const bool *stays,
                             by_error *error)
{
    bool *has;
    BY_TRY(by__alloc((void **)&has, (size_t)c->layers + 1, sizeof *has, "layers", error));
    for (size_t i = 0; i < list->count; i++) {
        int64_t layer = strtoll(list->items[i], NULL, 10);
        int64_t number = 0;
        for (int64_t before = 0; before < layer; before++) {
            number += stays[before];
        }
        if (stays[layer]) {
            has[number] = true;
        }
    }
    by_status status = by__nn_list_fill(list, has, (size_t)c->layers, error);
    free(has);
    return status;
}

by_status by__nn_llama_reduce(by_model_config *c, by__nn_llama_keys *keys,
                              const by__nn_reduction *to, by_error *error)
{
    bool divided = c->width % c->heads == 0 && c->width / c->heads == c->head_dim;
    keys->head_dim = divided ? -1 : c->head_dim;
    if (to->layers == NULL) {
        return BY_OK;
    }
    bool some = keys->window_layers.count > 0;
    BY_TRY(reduce_list(&keys->nope_layers, c, to->layers, error));
    BY_TRY(reduce_list(&keys->window_layers, c, to->layers, error));
    keys->window = some && keys->window_layers.count == 0 ? 0 : keys->window; /* empty means all */
    return BY_OK;
}

/* RMS norm over `width` neighbouring values. */
static by_value norm_of(by__nn_build *b, by_value x, int64_t width, const char *axis,
                        const char *prefix)
{
    by_value w = by__nn_weight(b, axis, BY_SHAPE(width), (by_init){.kind = BY_INIT_ONE},
                               "%s.weight", prefix);
    return by_rms_norm(b->graph, x, w, (float)b->config->norm_eps);
}

static by__nn_norm_place norm_place(const by__nn_build *b, const char *prefix)
{
    return (by__nn_norm_place){.prefix = prefix,
                               .axes = "embed",
                               .width = b->config->width,
                               .eps = b->config->norm_eps,
                               .usual = "rms"};
}

static by_value norm(by__nn_build *b, by_value x, const char *prefix)
{
    by__nn_norm_place place = norm_place(b, prefix);
    return by__nn_norm(b, x, &place);
}

by_value by__nn_llama_linear(by__nn_build *b, by_value x, int64_t in, int64_t out, const char *axes,
                             by_init init, bool bias, int layer, const char *name)
{
    char axis[32];
    by_value w =
        by__nn_weight(b, axes, BY_SHAPE(out, in), init, "model.layers.%d.%s.weight", layer, name);
    (void)snprintf(axis, sizeof axis, "%.*s", (int)strcspn(axes, " "), axes);
    by_value v = bias ? by__nn_weight(b, axis, BY_SHAPE(out), (by_init){0},
                                      "model.layers.%d.%s.bias", layer, name)
                      : BY_NONE;
    return by_linear(b->graph, x, w, v, true);
}

/* Norm of each head, as for queries and keys of Qwen3. x [batch, time, heads x head_dim]. */
static by_value norm_heads(by__nn_build *b, by_value x, int64_t heads, int layer, const char *name)
{
    char prefix[64];
    const by_model_request *r = b->request;
    int64_t width = b->config->head_dim;
    (void)snprintf(prefix, sizeof prefix, "model.layers.%d.self_attn.%s", layer, name);
    x = by_reshape(b->graph, x, BY_SHAPE(r->batch, r->time, heads, width));
    x = norm_of(b, x, width, "head", prefix);
    return by_reshape(b->graph, x, BY_SHAPE(r->batch, r->time, heads * width));
}

static by_value attention(by__nn_build *b, by_value x, int layer, const by__nn_llama_keys *keys)
{
    const by_model_config *c = b->config;
    int64_t q_width = c->heads * c->head_dim;
    int64_t kv_width = c->kv_heads * c->head_dim;
    by_rotation rotation = by__nn_rope_rotation(&keys->rope, c);
    by_init init = by__nn_init_normal(b);
    by_value q = by__nn_llama_linear(b, x, c->width, q_width, "heads embed", init, keys->qkv_bias,
                                     layer, "self_attn.q_proj");
    by_value k = by__nn_llama_linear(b, x, c->width, kv_width, "kv_heads embed", init,
                                     keys->qkv_bias, layer, "self_attn.k_proj");
    by_value v = by__nn_llama_linear(b, x, c->width, kv_width, "kv_heads embed", init,
                                     keys->qkv_bias, layer, "self_attn.v_proj");
    v = by__nn_values(b, v, x, layer, "model.layers");
    if (keys->qk_norm) {
        q = norm_heads(b, q, c->heads, layer, "q_norm");
        k = norm_heads(b, k, c->kv_heads, layer, "k_norm");
    }
    bool limited = keys->window_layers.count == 0 || by__nn_list_has(&keys->window_layers, layer);
    by_value y = by__nn_attend(b, layer,
                               &(by__nn_heads){.q = q,
                                               .k = k,
                                               .v = v,
                                               .still = by__nn_list_has(&keys->nope_layers, layer),
                                               .window = limited ? keys->window : 0,
                                               .rotation = &rotation});
    return by__nn_llama_linear(b, y, q_width, c->width, "embed heads", by__nn_init_residual(b),
                               keys->output_bias, layer, "self_attn.o_proj");
}

/* first: what the first block reads. */
static by_value block(by__nn_build *b, by_value x, by_value first, int layer,
                      const by__nn_llama_keys *keys, by__nn_block_half *mlp)
{
    char name[64];
    by_graph_set_block(b->graph, layer);
    x = by__nn_residual(b, x, first, layer, "model.layers");
    if (by__nn_attends(b->config, layer)) {
        (void)snprintf(name, sizeof name, "model.layers.%d.input_layernorm", layer);
        by_value y = attention(b, norm(b, x, name), layer, keys);
        x = by_add(b->graph, x, by__nn_drop(b, y));
    }
    (void)snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm", layer);
    by_value y = mlp(b, norm(b, x, name), layer);
    x = by_add(b->graph, x, by__nn_drop(b, y));
    by_graph_set_block(b->graph, -1);
    return x;
}

void by__nn_llama_body(by__nn_build *b, const by__nn_llama_keys *keys, by__nn_block_half *mlp)
{
    const by_model_config *c = b->config;
    by_value table = by__nn_weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                   by__nn_init_normal(b), "model.embed_tokens.weight");
    by_value x = by_embedding(b->graph, b->model.tokens, table);
    x = by__nn_place(b, x,
                     &(by__nn_position_table){.name = "model.embed_positions.weight",
                                              .rows = c->context,
                                              .rotary = true});
    x = by__nn_drop(b, x);
    by__nn_norm_place place = norm_place(b, "model.embed_norm");
    x = by__nn_residual_begin(b, x, &place);
    by_value first = x;
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, first, layer, keys, mlp);
    }
    b->model.head = by__nn_language_head(b, table);
    b->model.hidden = norm(b, x, "model.norm");
}
