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
    BY_TRY(by__nn_sequence_resolve(config, error));
    BY_TRY(by__nn_token_resolve(config, error));
    BY_TRY(by__nn_transformer_resolve(config, -1, error));
    return by__nn_mup_resolve(config, error);
}

static by_value norm(by__nn_build *b, by_value x, const char *prefix)
{
    return by__nn_norm(b, x,
                       &(by__nn_norm_place){.prefix = prefix,
                                            .axes = "embed",
                                            .width = b->config->width,
                                            .eps = b->config->norm_eps,
                                            .usual = "layer"});
}

static by_value linear(by__nn_build *b, by_value x, int64_t in, int64_t out, const char *axes,
                       const char *bias_axes, by_init init, const char *prefix)
{
    by_value w = by__nn_weight(b, axes, BY_SHAPE(in, out), init, "%s.weight", prefix);
    by_value bias = by__nn_weight(b, bias_axes, BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
    return by_linear(b->graph, x, w, bias, false);
}

static by_value attend(by__nn_build *b, by_value x, int layer)
{
    const by_model_config *c = b->config;
    int64_t kv_width = c->kv_heads * (c->width / c->heads);
    char name[64];
    (void)snprintf(name, sizeof name, "h.%d.ln_1", layer);
    by_value y = norm(b, x, name);
    (void)snprintf(name, sizeof name, "h.%d.attn.c_attn", layer);
    y = linear(b, y, c->width, c->width + 2 * kv_width, "embed qkv", "qkv", by__nn_init_normal(b),
               name);
    y = by__nn_attend(b, layer, &(by__nn_heads){.q = y, .k = BY_NONE, .v = BY_NONE});
    (void)snprintf(name, sizeof name, "h.%d.attn.c_proj", layer);
    y = linear(b, y, c->width, c->width, "heads embed", "embed", by__nn_init_residual(b), name);
    return by_add(b->graph, x, by__nn_drop(b, y));
}

static by_value mlp_linear(by__nn_build *b, by_value x, int layer, by__nn_mlp_part part)
{
    static const char *const names[] = {"c_fc", "c_gate", "c_proj"};
    const by_model_config *c = b->config;
    char name[64];
    (void)snprintf(name, sizeof name, "h.%d.mlp.%s", layer, names[part]);
    return part == BY__NN_MLP_DOWN ? linear(b, x, c->mlp_width, c->width, "mlp embed", "embed",
                                            by__nn_init_residual(b), name)
                                   : linear(b, x, c->width, c->mlp_width, "embed mlp", "mlp",
                                            by__nn_init_normal(b), name);
}

static by_value block(by__nn_build *b, by_value x, int layer)
{
    static const by__nn_mlp_layers mlp = {.linear = mlp_linear, .activation = BY_FN_GELU};
    char name[64];
    by_graph_set_block(b->graph, layer);
    if (by__nn_attends(b->config, layer)) {
        x = attend(b, x, layer);
    }
    (void)snprintf(name, sizeof name, "h.%d.ln_2", layer);
    by_value y = by__nn_mlp(b, norm(b, x, name), layer, &mlp);
    x = by_add(b->graph, x, by__nn_drop(b, y));
    by_graph_set_block(b->graph, -1);
    return x;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    by_value wte = by__nn_weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                 by__nn_init_normal(b), "wte.weight");
    by_value x = by_embedding(b->graph, b->model.tokens, wte);
    x = by__nn_place(b, x, &(by__nn_position_table){.name = "wpe.weight", .rows = c->context});
    x = by__nn_drop(b, x);
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer);
    }
    b->model.head = by__nn_language_head(b, wte);
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
    by__nn_activation_write(out, "activation_function", c, BY_FN_GELU);
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
    return by__nn_activation_read(c, name, in, "activation_function", BY_FN_GELU, error);
}

/* Queries, keys and values are one parameter: its factor is on queries and keys, and the next
 * product takes it back from the values. */
static const by__nn_query_scale queries[] = {
    {"h.*.attn.c_attn.*", 0.5}, {"h.*.attn.c_proj.weight", -0.5}, {0}};

const by__nn_family by__nn_family_gpt2 = {
    .kind = {.name = "gpt2",
             .help = "GPT-2: learned positions, layer norm, GELU.",
             .keys = {&by__nn_transformer_keys, &by__nn_token_keys, &key_list, &by__nn_part_keys,
                      &by__nn_norm_keys, &by__nn_mlp_keys, &by__nn_mup_keys, &by__nn_sequence_keys},
             .resolve = resolve},
    .queries = queries,
    .prefix = "transformer.",
    .embedding = "wte.weight",
    .reads = "tokens",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"gpt2", "GPT2LMHeadModel", true}, {0}},
    .adapted = "c_attn",
};
