/* GPT-2 (Radford et al. 2019): learned positions, pre-norm blocks with layer norm, GELU (tanh
 * form), a head tied to the token embedding. Weights of linear layers are [in, out], as in GPT-2's
 * Conv1D. */
#include "nn/nn.h"

static const by__config_key keys[] = {
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "4 x width", .help = "hidden width of the MLP"},
    {"model", "tied", BY__KEY_SWITCH, BY__FIELD(model.tied), "-1", .derived = "true",
     .help = "tie the output head to the token embedding"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    by_model_config *c = &config->model;
    c->kv_heads = c->heads;
    c->mlp_width = c->mlp_width == -1 ? 4 * c->width : c->mlp_width;
    c->tied = c->tied == -1 ? 1 : c->tied;
    BY_TRY(by__nn_token_resolve(config, error));
    return by__nn_transformer_resolve(config, -1, error);
}

static by_value norm(by__nn_build *b, by_value x, const char *prefix)
{
    int64_t c = b->config->width;
    by_value w =
        by__nn_weight(b, "embed", BY_SHAPE(c), (by_init){.kind = BY_INIT_ONE}, "%s.weight", prefix);
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(c), (by_init){0}, "%s.bias", prefix);
    return by_layer_norm(b->graph, x, w, bias, (float)b->config->norm_eps);
}

static by_value linear(by__nn_build *b, by_value x, int64_t in, int64_t out, const char *axes,
                       const char *bias_axes, by_init init, const char *prefix)
{
    by_value w = by__nn_weight(b, axes, BY_SHAPE(in, out), init, "%s.weight", prefix);
    by_value bias = by__nn_weight(b, bias_axes, BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
    return by_linear(b->graph, x, w, bias, false);
}

static by_value block(by__nn_build *b, by_value x, int layer)
{
    const by_model_config *c = b->config;
    int64_t kv_width = c->kv_heads * (c->width / c->heads);
    char name[64];
    by_graph_set_block(b->graph, layer);
    (void)snprintf(name, sizeof name, "h.%d.ln_1", layer);
    by_value y = norm(b, x, name);
    (void)snprintf(name, sizeof name, "h.%d.attn.c_attn", layer);
    y = linear(b, y, c->width, c->width + 2 * kv_width, "embed qkv", "qkv", by__nn_init_normal(b),
               name);
    y = by__nn_attend(b, layer, y, BY_NONE, BY_NONE, 0);
    (void)snprintf(name, sizeof name, "h.%d.attn.c_proj", layer);
    y = linear(b, y, c->width, c->width, "heads embed", "embed", by__nn_init_residual(b), name);
    x = by_add(b->graph, x, by__nn_drop(b, y));
    (void)snprintf(name, sizeof name, "h.%d.ln_2", layer);
    y = norm(b, x, name);
    (void)snprintf(name, sizeof name, "h.%d.mlp.c_fc", layer);
    y = linear(b, y, c->width, c->mlp_width, "embed mlp", "mlp", by__nn_init_normal(b), name);
    y = by_unary(b->graph, y, BY_FN_GELU);
    (void)snprintf(name, sizeof name, "h.%d.mlp.c_proj", layer);
    y = linear(b, y, c->mlp_width, c->width, "mlp embed", "embed", by__nn_init_residual(b), name);
    x = by_add(b->graph, x, by__nn_drop(b, y));
    by_graph_set_block(b->graph, -1);
    return x;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    by_value wte = by__nn_weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                 by__nn_init_normal(b), "wte.weight");
    by_value wpe = by__nn_weight(b, "position embed", BY_SHAPE(c->context, c->width),
                                 by__nn_init_normal(b), "wpe.weight");
    by_value x = by_embedding(b->graph, b->model.tokens, wte);
    if (by__nn_is_cached(b) || b->request->mode == BY_MODEL_STEP) {
        b->model.positions =
            by__nn_input(b, "positions", BY_I32, BY_SHAPE(b->request->batch, b->request->time));
        x = by_add(b->graph, x, by_embedding(b->graph, b->model.positions, wpe));
    } else {
        x = by_position(b->graph, x, wpe);
    }
    x = by__nn_drop(b, x);
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer);
    }
    b->model.head = c->tied ? wte
                            : by__nn_weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                            by__nn_init_normal(b), "lm_head.weight");
    b->model.hidden = norm(b, x, "ln_f");
}

static void write_config(json_t *out, const by_model_config *c)
{
    (void)json_object_set_new(out, "n_embd", json_integer(c->width));
    (void)json_object_set_new(out, "n_layer", json_integer(c->layers));
    (void)json_object_set_new(out, "n_head", json_integer(c->heads));
    (void)json_object_set_new(out, "n_inner", json_integer(c->mlp_width));
    (void)json_object_set_new(out, "n_positions", json_integer(c->context));
    (void)json_object_set_new(out, "n_ctx", json_integer(c->context));
    (void)json_object_set_new(out, "activation_function", json_string("gelu_new"));
    (void)json_object_set_new(out, "layer_norm_epsilon", json_real(c->norm_eps));
    (void)json_object_set_new(out, "resid_pdrop", json_real(c->dropout));
    (void)json_object_set_new(out, "embd_pdrop", json_real(c->dropout));
    (void)json_object_set_new(out, "attn_pdrop", json_real(0.0));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    BY_TRY(by__nn_json_integer(&c->width, name, in, "n_embd", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "n_layer", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "n_head", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->context, name, in, "n_positions", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->mlp_width, name, in, "n_inner", 4 * c->width, error));
    BY_TRY(by__nn_json_number(&c->norm_eps, name, in, "layer_norm_epsilon", 1e-5, error));
    c->kv_heads = c->heads;
    BY_TRY(by__nn_json_expect_bool(name, in, "scale_attn_weights", true, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "scale_attn_by_inverse_layer_idx", false, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "add_cross_attention", false, error));
    return by__nn_json_expect(name, in, "activation_function", "gelu_new", error);
}

const by__nn_family by__nn_family_gpt2 = {
    .kind = {.name = "gpt2",
             .help = "GPT-2: learned positions, layer norm, GELU.",
             .keys = {&by__nn_transformer_keys, &by__nn_token_keys, &key_list},
             .resolve = resolve},
    .prefix = "transformer.",
    .embedding = "wte.weight",
    .reads = "tokens",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"gpt2", "GPT2LMHeadModel", true}, {0}},
    .adapted = "c_attn",
};
