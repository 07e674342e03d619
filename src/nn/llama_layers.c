/* The layers of Llama (Touvron et al. 2023), for it and the families that differ from it in the
 * second half of a block alone: rotary positions, pre-norm blocks with RMS norm, grouped-query
 * attention, no biases. Weights are [out, in], as torch.nn.Linear keeps them. */
#include "nn/nn.h"

static const by__key key_rows[] = {
    {"model", "kv_heads", BY__KEY_INT, BY__FIELD(model.kv_heads), "-1", 1, 65536,
     .derived = "equal to heads",
     .help = "key and value heads (grouped-query attention); divides heads"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "8/3 x width rounded up to a multiple of 64", .help = "hidden width of the MLP"},
    {"model", "tied", BY__KEY_SWITCH, BY__FIELD(model.tied), "-1", .derived = "false",
     .help = "the output head shares the token embedding"},
    {"model", "rope_theta", BY__KEY_REAL, BY__OWN(by__llama_keys, rope_theta), "10000", 1, 1e12,
     .help = "base of the rotary frequencies"},
};
const by__key_list by__llama_key_list = BY__KEY_LIST(key_rows);

by_status by__llama_resolve(by_config *config, by_error *error)
{
    by_model_config *c = &config->model;
    c->kv_heads = c->kv_heads == -1 ? c->heads : c->kv_heads;
    c->tied = c->tied == -1 ? 0 : c->tied;
    /* Two thirds of GPT-2's four, because SwiGLU has three matrices and not two. */
    c->mlp_width = c->mlp_width == -1 ? ((8 * c->width + 2) / 3 + 63) / 64 * 64 : c->mlp_width;
    BY_TRY(by__token_resolve(config, error));
    BY_TRY(by__transformer_resolve(config, error));
    BY_TRY(by__config_divides(config, "model.kv_heads", "model.heads", error));
    BY_TRY(by__config_divides(config, "parallel.tensor", "model.kv_heads", error));
    if (c->width / c->heads % 2 != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: heads %lld gives heads of width %lld (width %lld / heads); rotary "
                            "embeddings need an even one",
                            by__config_where(config, "model.heads", "model.width"),
                            (long long)c->heads, (long long)(c->width / c->heads),
                            (long long)c->width);
    }
    return BY_OK;
}

static by_value norm(by__build *b, by_value x, const char *prefix)
{
    by_value w = by__weight(b, "embed", BY_SHAPE(b->config->width), (by_init){.kind = BY_INIT_ONE},
                            "%s.weight", prefix);
    return by_rms_norm(b->graph, x, w, (float)b->config->norm_eps);
}

by_value by__llama_linear(by__build *b, by_value x, int64_t in, int64_t out, const char *axes,
                          by_init init, int layer, const char *name)
{
    by_value w =
        by__weight(b, axes, BY_SHAPE(out, in), init, "model.layers.%d.%s.weight", layer, name);
    return by_linear(b->graph, x, w, BY_NONE, true);
}

static by_value attention(by__build *b, by_value x, int layer, double rope_theta)
{
    const by_model_config *c = b->config;
    int64_t kv_width = c->kv_heads * (c->width / c->heads);
    by_rotation rotation = {.theta = (float)rope_theta};
    by_init init = by__init_normal(b);
    by_value q =
        by__llama_linear(b, x, c->width, c->width, "heads embed", init, layer, "self_attn.q_proj");
    by_value k = by__llama_linear(b, x, c->width, kv_width, "kv_heads embed", init, layer,
                                  "self_attn.k_proj");
    by_value v = by__llama_linear(b, x, c->width, kv_width, "kv_heads embed", init, layer,
                                  "self_attn.v_proj");
    q = by_rope(b->graph, q, b->model.start, c->heads, &rotation);
    k = by_rope(b->graph, k, b->model.start, c->kv_heads, &rotation);
    by_value y = by__attend(b, layer, q, k, v);
    return by__llama_linear(b, y, c->width, c->width, "embed heads", by__init_residual(b), layer,
                            "self_attn.o_proj");
}

static by_value block(by__build *b, by_value x, int layer, double rope_theta, by__block_half *mlp)
{
    char name[64];
    by_graph_set_block(b->graph, layer);
    (void)snprintf(name, sizeof name, "model.layers.%d.input_layernorm", layer);
    by_value y = attention(b, norm(b, x, name), layer, rope_theta);
    x = by_add(b->graph, x, by__drop(b, y));
    (void)snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm", layer);
    y = mlp(b, norm(b, x, name), layer);
    x = by_add(b->graph, x, by__drop(b, y));
    by_graph_set_block(b->graph, -1);
    return x;
}

void by__llama_body(by__build *b, const by__llama_keys *keys, by__block_half *mlp)
{
    const by_model_config *c = b->config;
    by_value table = by__weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width), by__init_normal(b),
                                "model.embed_tokens.weight");
    by_value x = by__drop(b, by_embedding(b->graph, b->model.tokens, table));
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer, keys->rope_theta, mlp);
    }
    b->model.head = c->tied ? table
                            : by__weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                         by__init_normal(b), "lm_head.weight");
    b->model.hidden = norm(b, x, "model.norm");
}

void by__llama_write_config(json_t *out, const by_model_config *c, const by__llama_keys *keys)
{
    (void)json_object_set_new(out, "hidden_size", json_integer(c->width));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "num_attention_heads", json_integer(c->heads));
    (void)json_object_set_new(out, "num_key_value_heads", json_integer(c->kv_heads));
    (void)json_object_set_new(out, "head_dim", json_integer(c->width / c->heads));
    (void)json_object_set_new(out, "intermediate_size", json_integer(c->mlp_width));
    (void)json_object_set_new(out, "max_position_embeddings", json_integer(c->context));
    (void)json_object_set_new(out, "hidden_act", json_string("silu"));
    (void)json_object_set_new(out, "rms_norm_eps", json_real(c->norm_eps));
    (void)json_object_set_new(out, "rope_theta", json_real(keys->rope_theta));
}

/* rope_theta stands at the top, or (transformers 5) in "rope_parameters". */
static by_status read_rope(by__llama_keys *keys, double fallback, const char *name,
                           const json_t *in, by_error *error)
{
    const json_t *parameters = json_object_get(in, "rope_parameters");
    const json_t *scaling = json_object_get(in, "rope_scaling");
    if (json_is_object(scaling)) {
        parameters = scaling;
    }
    if (!json_is_object(parameters)) {
        return by__json_number(&keys->rope_theta, name, in, "rope_theta", fallback, error);
    }
    BY_TRY(by__json_expect(name, parameters, "rope_type", "default", error));
    BY_TRY(by__json_expect(name, parameters, "type", "default", error)); /* its older name */
    double outer;
    BY_TRY(by__json_number(&outer, name, in, "rope_theta", fallback, error));
    return by__json_number(&keys->rope_theta, name, parameters, "rope_theta", outer, error);
}

by_status by__llama_read_config(by_model_config *c, by__llama_keys *keys, double rope_theta,
                                const char *name, const json_t *in, by_error *error)
{
    BY_TRY(by__json_integer(&c->width, name, in, "hidden_size", BY__REQUIRED, error));
    BY_TRY(by__json_integer(&c->layers, name, in, "num_hidden_layers", BY__REQUIRED, error));
    BY_TRY(by__json_integer(&c->heads, name, in, "num_attention_heads", BY__REQUIRED, error));
    BY_TRY(by__json_integer(&c->kv_heads, name, in, "num_key_value_heads", c->heads, error));
    BY_TRY(by__json_integer(&c->mlp_width, name, in, "intermediate_size", BY__REQUIRED, error));
    BY_TRY(by__json_integer(&c->context, name, in, "max_position_embeddings", 2048, error));
    BY_TRY(by__json_number(&c->norm_eps, name, in, "rms_norm_eps", 1e-6, error));
    BY_TRY(by__json_expect(name, in, "hidden_act", "silu", error));
    BY_TRY(by__json_expect_bool(name, in, "attention_bias", false, error));
    BY_TRY(by__json_expect_bool(name, in, "mlp_bias", false, error));
    int64_t width;
    BY_TRY(by__json_integer(&width, name, in, "head_dim", c->heads > 0 ? c->width / c->heads : 0,
                            error));
    if (c->heads < 1 || width != c->width / c->heads) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: head_dim %lld is not hidden_size / num_attention_heads", name,
                            (long long)width);
    }
    return read_rope(keys, rope_theta, name, in, error);
}
