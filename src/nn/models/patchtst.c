/* PatchTST (Nie et al. 2023): each channel of a window is a sequence of patches that overlap, read
 * by a transformer encoder that all channels share; a linear layer forecasts from all patches.
 * Channels are standardized over the window. Parameters and config.json are those of transformers'
 * PatchTSTForPrediction, and with a head for windows as a whole of PatchTSTForClassification. */
#include <math.h>
#include <string.h>

#include "nn/series.h"

typedef struct patchtst_keys {
    by__nn_series_forecast forecast;
    int64_t patch;
    int64_t stride;
} patchtst_keys;

static const by__config_key keys[] = {
    {"model", "patch", BY__KEY_INT, BY__OWN(patchtst_keys, patch), "16", 1, BY__MI20,
     .help = "rows of a patch"},
    {"model", "stride", BY__KEY_INT, BY__OWN(patchtst_keys, stride), "8", 1, BY__MI20,
     .help = "rows between the beginnings of patches; the first rows that fill no patch are left "
             "out"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "4 x width", .help = "hidden width of the MLP"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_patchtst;

static patchtst_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_patchtst.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    patchtst_keys *p = own;
    by_model_config *c = &config->model;
    BY_TRY(by__nn_series_choose_head(config, &p->forecast, error));
    BY_TRY(by__nn_series_forecast_resolve(config, &p->forecast, error));
    c->kv_heads = c->heads;
    c->mlp_width = c->mlp_width == -1 ? 4 * c->width : c->mlp_width;
    if (p->patch > c->context) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.patch %lld is more than model.context %lld",
                            by__config_where(config, "model.patch", "model.context"),
                            (long long)p->patch, (long long)c->context);
    }
    return by__nn_transformer_resolve(config, -1, error);
}

static int64_t patch_count(const by_model_config *c)
{
    const patchtst_keys *p = own_keys(c);
    return (c->context - p->patch) / p->stride + 1;
}

/* The patches of all channels of x [B, T, C] with their positions: [B C, patches, width]. */
static by_value embed(by__nn_build *b, by_value x)
{
    const by_model_config *c = b->config;
    const patchtst_keys *p = own_keys(c);
    by_graph *g = b->graph;
    int64_t rows = b->request->batch * c->channels;
    int64_t count = patch_count(c);
    int64_t used = p->patch + p->stride * (count - 1);
    by_window window = {.size = {1, p->patch}, .stride = {1, p->stride}, .dilation = {1, 1}};
    by_value w =
        by__nn_weight(b, "embed pixel", BY_SHAPE(c->width, p->patch), by__nn_init_normal(b),
                      "model.encoder.embedder.input_embedding.weight");
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(c->width), (by_init){0},
                                  "model.encoder.embedder.input_embedding.bias");
    x = by_transpose(g, by_slice(g, x, 1, c->context - used, used), 1, 2);
    x = by_reshape(g, x, BY_SHAPE(rows, 1, used, 1));
    w = by_reshape(g, w, BY_SHAPE(c->width, 1, 1, p->patch));
    x = by_reshape(g, by_conv(g, x, w, bias, &window, 1), BY_SHAPE(rows, count, c->width));
    x = by__nn_place(b, x,
                     &(by__nn_position_table){
                         .name = "model.encoder.positional_encoder.position_enc", .rows = count});
    return by__nn_drop(b, x);
}

static by_value norm(by__nn_build *b, by_value x, int layer, int which)
{
    char prefix[96];
    const by_model_config *c = b->config;
    const by__nn_norm_place place = {
        .prefix = prefix, .axes = "embed", .width = c->width, .eps = c->norm_eps, .usual = "layer"};
    int64_t rows = b->request->batch * c->channels;
    int64_t count = patch_count(c);
    (void)snprintf(prefix, sizeof prefix, "model.encoder.layers.%d.norm_sublayer%d%s", layer, which,
                   strcmp(c->norm.kind, "batch") == 0 ? ".batchnorm" : "");
    x = by_reshape(b->graph, x, BY_SHAPE(rows * count, c->width));
    x = by__nn_norm(b, x, &place);
    return by_reshape(b->graph, x, BY_SHAPE(rows, count, c->width));
}

/* Attention of each patch to those of its channel. */
static by_value attend(by__nn_build *b, by_value x, int layer)
{
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    const by_model_config *c = b->config;
    by_value qkv;
    char prefix[96];
    (void)snprintf(prefix, sizeof prefix, "model.encoder.layers.%d.self_attn", layer);
    x = by__nn_encoder_attention(b, x, layer, true, prefix, names, &qkv);
    (void)snprintf(prefix, sizeof prefix, "model.encoder.layers.%d.self_attn.out_proj", layer);
    return by__nn_encoder_linear(b, x, c->width, c->width, "embed heads", "embed",
                                 by__nn_init_residual(b), prefix);
}

static by_value mlp_linear(by__nn_build *b, by_value x, int layer, by__nn_mlp_part part)
{
    static const char *const names[] = {"ff.0", "ff.gate", "ff.3"};
    const by_model_config *c = b->config;
    char name[96];
    (void)snprintf(name, sizeof name, "model.encoder.layers.%d.%s", layer, names[part]);
    return part == BY__NN_MLP_DOWN
               ? by__nn_encoder_linear(b, by__nn_drop(b, x), c->mlp_width, c->width, "embed mlp",
                                       "embed", by__nn_init_residual(b), name)
               : by__nn_encoder_linear(b, x, c->width, c->mlp_width, "mlp embed", "mlp",
                                       by__nn_init_normal(b), name);
}

static by_value block(by__nn_build *b, by_value x, int layer)
{
    static const by__nn_mlp_layers mlp = {.linear = mlp_linear, .activation = BY_FN_GELU_ERF};
    by_graph *g = b->graph;
    by_graph_set_block(g, layer);
    if (by__nn_attends(b->config, layer)) {
        x = by_add(g, x, by__nn_drop(b, attend(b, norm(b, x, layer, 1), layer)));
    }
    by_value y = by__nn_mlp(b, norm(b, x, layer, 3), layer, &mlp);
    x = by_add(g, x, by__nn_drop(b, y));
    by_graph_set_block(g, -1);
    return x;
}

/* x [B C, features] to [B, C, P outputs]: a layer for each of the P numbers. */
static by_value head(by__nn_build *b, by_value x)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    char name[64] = "head.projection";
    int64_t rows = b->request->batch * c->channels;
    int64_t features = patch_count(c) * c->width;
    int64_t outputs = by__nn_series_outputs(c);
    by_init init = {BY_INIT_NORMAL, 1.0f / sqrtf(3.0f * (float)features)};
    by_value all = BY_NONE;
    x = by__nn_drop(b, x);
    for (int64_t i = 0; i < outputs; i++) {
        if (outputs > 1) {
            (void)snprintf(name, sizeof name, "head.projection.proj.%lld", (long long)i);
        }
        by_value parts[2] = {all, by__nn_encoder_linear(b, x, features, c->outputs, "class embed",
                                                        "class", init, name)};
        all = i == 0 ? parts[1] : by_concat(g, parts, 2, 1);
    }
    return by_reshape(g, all, BY_SHAPE(rows / c->channels, c->channels, outputs * c->outputs));
}

/* Outputs for the window, of the mean of each channel's patches x [B C, patches, width]. */
static void add_whole(by__nn_build *b, by_value x)
{
    static const int patches[1] = {1};
    const by_model_config *c = b->config;
    int64_t features = c->channels * c->width;
    by_init init = {BY_INIT_NORMAL, 1.0f / sqrtf(3.0f * (float)features)};
    x = by_reshape(b->graph, by_mean(b->graph, x, patches, 1, false),
                   BY_SHAPE(b->request->batch, features));
    by_model_register(&b->model, b->graph, "features", x);
    b->model.output = by__nn_encoder_linear(b, by__nn_drop(b, x), features, c->outputs,
                                            "class embed", "class", init, "head.linear");
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t features = patch_count(c) * c->width;
    by__nn_window_scales scales;
    bool affine = own_keys(c)->forecast.affine != 0;
    by_value x = embed(b, by__nn_series_standardize(b, by__nn_series(b), affine, &scales));
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer);
    }
    if (by__nn_series_is_whole(c)) {
        add_whole(b, x);
        return;
    }
    by__nn_series_end(b, head(b, by_reshape(g, x, BY_SHAPE(batch * c->channels, features))),
                      &scales);
}

static void write_config(json_t *out, const by_model_config *c)
{
    bool batch = strcmp(c->norm.kind, "batch") == 0;
    (void)json_object_set_new(out, "context_length", json_integer(c->context));
    (void)json_object_set_new(out, "num_input_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "patch_length", json_integer(own_keys(c)->patch));
    (void)json_object_set_new(out, "patch_stride", json_integer(own_keys(c)->stride));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "d_model", json_integer(c->width));
    (void)json_object_set_new(out, "num_attention_heads", json_integer(c->heads));
    (void)json_object_set_new(out, "ffn_dim", json_integer(c->mlp_width));
    (void)json_object_set_new(out, "norm_type", json_string(batch ? "batchnorm" : "layernorm"));
    (void)json_object_set_new(out, "norm_eps", json_real(c->norm_eps));
    by__nn_activation_write(out, "activation_function", c, BY_FN_GELU_ERF);
    (void)json_object_set_new(out, "positional_encoding_type", json_string("random"));
    (void)json_object_set_new(out, "pooling_type",
                              by__nn_series_is_whole(c) ? json_string("mean") : json_null());
    (void)json_object_set_new(out, "scaling", json_string("std"));
    if (own_keys(c)->forecast.affine != 0) {
        (void)json_object_set_new(out, "affine", json_true());
    }
    by__nn_series_write_forecast(out, c);
    (void)json_object_set_new(out, "do_mask_input", json_false());
    (void)json_object_set_new(out, "ff_dropout", json_real(c->dropout));
    (void)json_object_set_new(out, "path_dropout", json_real(c->dropout));
    (void)json_object_set_new(out, "head_dropout", json_real(c->dropout));
    (void)json_object_set_new(out, "positional_dropout", json_real(c->dropout));
}

/* Heads as transformers calls models with them. */
static const by__nn_published forecaster = {"patchtst", "PatchTSTForPrediction", false};
static const by__nn_published classifier = {"patchtst", "PatchTSTForClassification", false};
/* transformers has no learned gain and shift. */
static const by__nn_published affine[2] = {{"banyan_patchtst", "PatchTSTForPrediction", false},
                                           {"banyan_patchtst", "PatchTSTForClassification", false}};

static const by__nn_published *publish(const by_model_config *c)
{
    bool whole = by__nn_series_is_whole(c);
    return own_keys(c)->forecast.affine != 0 ? &affine[whole] : whole ? &classifier : &forecaster;
}

static bool is_whole(const json_t *in)
{
    const char *name = json_string_value(json_array_get(json_object_get(in, "architectures"), 0));
    return name != NULL && strcmp(name, classifier.architecture) == 0;
}

/* Refuses what the graph does not have. */
static by_status check_config(const char *name, const json_t *in, by_error *error)
{
    const json_t *pooling = json_object_get(in, "pooling_type");
    bool mean = json_is_string(pooling) && strcmp(json_string_value(pooling), "mean") == 0;
    bool whole = is_whole(in);
    BY_TRY(by__nn_json_expect(name, in, "scaling", "std", error));
    BY_TRY(by__nn_json_expect_bool(name, in, "share_embedding", true, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "share_projection", true, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "channel_attention", false, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "use_cls_token", false, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "pre_norm", true, error));
    return (whole ? mean : json_is_null(pooling))
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: \"pooling_type\" is not %s: %s", name,
                              whole ? "\"mean\"" : "null",
                              whole ? "classifiers read the mean of the patches"
                                    : "forecasts from a pool of the patches are not known");
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    patchtst_keys *p = own_keys(c);
    const json_t *type = json_object_get(in, "norm_type");
    bool layer = json_is_string(type) && strcmp(json_string_value(type), "layernorm") == 0;
    BY_TRY(check_config(name, in, error));
    BY_TRY(by__nn_activation_read(c, name, in, "activation_function", BY_FN_GELU_ERF, error));
    BY_TRY(by__nn_json_integer(&c->context, name, in, "context_length", 32, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_input_channels", 1, error));
    BY_TRY(by__nn_series_read_forecast(c, name, in, 24, error));
    if (is_whole(in)) {
        c->outputs = by__nn_json_labels(in);
        BY_TRY(by__nn_set_string(&p->forecast.head, "window", error));
    }
    BY_TRY(by__nn_json_switch(&p->forecast.affine, name, in, "affine", false, error));
    BY_TRY(by__nn_json_integer(&p->patch, name, in, "patch_length", 1, error));
    BY_TRY(by__nn_json_integer(&p->stride, name, in, "patch_stride", 1, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", 3, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "d_model", 128, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "num_attention_heads", 4, error));
    BY_TRY(by__nn_json_integer(&c->mlp_width, name, in, "ffn_dim", 512, error));
    BY_TRY(by__nn_json_number(&c->norm_eps, name, in, "norm_eps", 1e-5, error));
    c->kv_heads = c->heads;
    return by__nn_norm_set(c, layer ? "auto" : "batch", name, error);
}

/* "norm_type" knows two norms. */
static bool expresses(const by_model_config *c, const char *section)
{
    return strcmp(section, "norm") == 0 && strcmp(c->norm.kind, "rms") != 0;
}

const by__nn_family by__nn_family_patchtst = {
    .kind = {.name = "patchtst",
             .help = "PatchTST on windows of series: an encoder of patches, the same for all "
                     "channels.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &by__nn_series_head_keys,
                      &by__nn_transformer_keys, &key_list, &by__nn_part_keys, &by__nn_norm_keys,
                      &by__nn_mlp_keys},
             .size = sizeof(patchtst_keys),
             .resolve = resolve},
    .reads = "series",
    .expresses = expresses,
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"patchtst", "PatchTSTForPrediction", false},
                                            {"banyan_patchtst", "PatchTSTForPrediction", false},
                                            {0}},
    .publish = publish,
    .other_heads = "head.",
};
