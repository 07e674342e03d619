/* Llama (Touvron et al. 2023): rotary positions, pre-norm blocks with RMS norm, SwiGLU,
 * grouped-query attention, no biases. Weights are [out, in], as torch.nn.Linear keeps them. */
#include "nn/nn.h"

typedef struct llama_keys {
    double rope_theta;
} llama_keys;

static const by__key keys[] = {
    {"model", "kv_heads", BY__KEY_INT, BY__FIELD(model.kv_heads), "-1", 1, 65536,
     .derived = "equal to heads",
     .help = "key and value heads (grouped-query attention); divides heads"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "8/3 x width rounded up to a multiple of 64", .help = "hidden width of the MLP"},
    {"model", "tied", BY__KEY_SWITCH, BY__FIELD(model.tied), "-1", .derived = "false",
     .help = "the output head shares the token embedding"},
    {"model", "rope_theta", BY__KEY_REAL, BY__OWN(llama_keys, rope_theta), "10000", 1, 1e12,
     .help = "base of the rotary frequencies"},
};
static const by__key_list key_list = BY__KEY_LIST(keys);

extern const by__family by__family_llama;

static llama_keys *own_keys(const by_model_config *c)
{
    return by__kind_own(c->own, &by__family_llama.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    by_model_config *c = &config->model;
    c->kv_heads = c->kv_heads == -1 ? c->heads : c->kv_heads;
    c->tied = c->tied == -1 ? 0 : c->tied;
    /* Two thirds of GPT-2's four, because SwiGLU has three matrices and not two. */
    c->mlp_width = c->mlp_width == -1 ? ((8 * c->width + 2) / 3 + 63) / 64 * 64 : c->mlp_width;
    BY_TRY(by__token_resolve(config, error));
    BY_TRY(by__transformer_resolve(config, error));
    BY_TRY(by__config_divides(config, "model.kv_heads", "model.heads", error));
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

static by_value linear(by__build *b, by_value x, int64_t in, int64_t out, const char *axes,
                       by_init init, int layer, const char *name)
{
    by_value w =
        by__weight(b, axes, BY_SHAPE(out, in), init, "model.layers.%d.%s.weight", layer, name);
    return by_linear(b->graph, x, w, BY_NONE, true);
}

static by_value attention(by__build *b, by_value x, int layer)
{
    const by_model_config *c = b->config;
    int64_t kv_width = c->kv_heads * (c->width / c->heads);
    float theta = (float)own_keys(c)->rope_theta;
    by_init init = by__init_normal(b);
    by_value q = linear(b, x, c->width, c->width, "heads embed", init, layer, "self_attn.q_proj");
    by_value k =
        linear(b, x, c->width, kv_width, "kv_heads embed", init, layer, "self_attn.k_proj");
    by_value v =
        linear(b, x, c->width, kv_width, "kv_heads embed", init, layer, "self_attn.v_proj");
    q = by_rope(b->graph, q, b->model.start, c->heads, theta);
    k = by_rope(b->graph, k, b->model.start, c->kv_heads, theta);
    by_value y = by__attend(b, layer, q, k, v);
    return linear(b, y, c->width, c->width, "embed heads", by__init_residual(b), layer,
                  "self_attn.o_proj");
}

static by_value mlp(by__build *b, by_value x, int layer)
{
    const by_model_config *c = b->config;
    by_init init = by__init_normal(b);
    by_value gate = linear(b, x, c->width, c->mlp_width, "mlp embed", init, layer, "mlp.gate_proj");
    by_value up = linear(b, x, c->width, c->mlp_width, "mlp embed", init, layer, "mlp.up_proj");
    by_value y = by_swiglu(b->graph, gate, up);
    return linear(b, y, c->mlp_width, c->width, "embed mlp", by__init_residual(b), layer,
                  "mlp.down_proj");
}

static by_value block(by__build *b, by_value x, int layer)
{
    char name[64];
    by_graph_set_block(b->graph, layer);
    (void)snprintf(name, sizeof name, "model.layers.%d.input_layernorm", layer);
    by_value y = attention(b, norm(b, x, name), layer);
    x = by_add(b->graph, x, by__drop(b, y));
    (void)snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm", layer);
    y = mlp(b, norm(b, x, name), layer);
    x = by_add(b->graph, x, by__drop(b, y));
    by_graph_set_block(b->graph, -1);
    return x;
}

static void body(by__build *b)
{
    const by_model_config *c = b->config;
    by_value table = by__weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width), by__init_normal(b),
                                "model.embed_tokens.weight");
    by_value x = by__drop(b, by_embedding(b->graph, b->model.tokens, table));
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer);
    }
    b->model.head = c->tied ? table
                            : by__weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                         by__init_normal(b), "lm_head.weight");
    b->model.hidden = norm(b, x, "model.norm");
}

static void write_config(json_t *out, const by_model_config *c)
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
    (void)json_object_set_new(out, "rope_theta", json_real(own_keys(c)->rope_theta));
    (void)json_object_set_new(out, "attention_bias", json_false());
    (void)json_object_set_new(out, "mlp_bias", json_false());
}

/* rope_theta stands at the top, or (transformers 5) in "rope_parameters". */
static by_status read_rope(by_model_config *c, const char *name, const json_t *in, by_error *error)
{
    const json_t *parameters = json_object_get(in, "rope_parameters");
    const json_t *scaling = json_object_get(in, "rope_scaling");
    if (json_is_object(scaling)) {
        parameters = scaling;
    }
    if (!json_is_object(parameters)) {
        return by__json_number(&own_keys(c)->rope_theta, name, in, "rope_theta", 10000.0, error);
    }
    BY_TRY(by__json_expect(name, parameters, "rope_type", "default", error));
    BY_TRY(by__json_expect(name, parameters, "type", "default", error)); /* its older name */
    double outer;
    BY_TRY(by__json_number(&outer, name, in, "rope_theta", 10000.0, error));
    return by__json_number(&own_keys(c)->rope_theta, name, parameters, "rope_theta", outer, error);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
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
    return read_rope(c, name, in, error);
}

const by__family by__family_llama = {
    .kind = {.name = "llama",
             .help = "Llama: rotary positions, RMS norm, SwiGLU, grouped-query attention.",
             .keys = {&by__transformer_keys, &by__token_keys, &key_list},
             .size = sizeof(llama_keys),
             .resolve = resolve},
    .reads = "tokens",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .rotary = true,
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
};
