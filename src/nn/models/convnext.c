/* ConvNeXt (Liu et al. 2022): a stem of patches, and stages of residual blocks: a depthwise
 * convolution of 7 x 7, layer norm over the channels, an MLP on each pixel with GELU, and a factor
 * for each channel. Layer norm and a convolution of 2 x 2 halve the sides between the stages; the
 * mean over the image is normalized before the linear classifier. */
#include <string.h>

#include "nn/nn.h"

#define BLOCK_EPS 1e-6f /* of all layer norms but the last */

typedef struct convnext_keys {
    by_string_list depths;
    by_string_list widths;
    int64_t patch;
    int64_t scales;
    double norm_eps;
} convnext_keys;

static const by__config_key keys[] = {
    {"model", "depths", BY__KEY_TEXTS, BY__OWN(convnext_keys, depths), "[3, 3, 9, 3]",
     .help = "blocks of each stage; their sum is model.layers"},
    {"model", "widths", BY__KEY_TEXTS, BY__OWN(convnext_keys, widths), "[]",
     .help = "channels of each stage; empty: model.width, twice that and so on"},
    {"model", "patch", BY__KEY_INT, BY__OWN(convnext_keys, patch), "4", 1, 256,
     .help = "patch size of the stem in pixels"},
    {"model", "layer_scale", BY__KEY_SWITCH, BY__OWN(convnext_keys, scales), "true",
     .help = "a factor for each channel of what a block adds, which begins at zero"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(convnext_keys, norm_eps), "1e-12", 0, 1,
     BY__ABOVE_MIN, .help = "epsilon of the last layer norm; that of the others is 1e-6"},
    {"model", "init_std", BY__KEY_REAL, BY__FIELD(model.init_std), "-1", 0, 10, .derived = "0.02",
     .help = "standard deviation of the initial weights"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_convnext;

static convnext_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_convnext.kind);
}

static int64_t width_of(const by_model_config *c, int64_t stage)
{
    const by_string_list *widths = &own_keys(c)->widths;
    return widths->count > 0 ? by__nn_size_at(widths, stage) : c->width << stage;
}

static int64_t stage_count(const by_model_config *c)
{
    return (int64_t)own_keys(c)->depths.count;
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const convnext_keys *n = own;
    by_model_config *c = &config->model;
    BY_TRY(by__nn_sizes_check(config, "model.depths", &n->depths, error));
    BY_TRY(by__nn_sizes_check(config, "model.widths", &n->widths, error));
    BY_TRY(by__nn_stages_check(config, &n->depths, &n->widths, error));
    c->layers = by__nn_sizes_sum(&n->depths);
    c->init_std = c->init_std == -1.0 ? 0.02 : c->init_std;
    return BY_OK;
}

static by_value norm(by__nn_build *b, by_value x, int64_t width, float eps, const char *prefix)
{
    by_value w = by__nn_weight(b, "embed", BY_SHAPE(width), (by_init){.kind = BY_INIT_ONE},
                               "%s.weight", prefix);
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(width), (by_init){0}, "%s.bias", prefix);
    return by_layer_norm(b->graph, x, w, bias, eps);
}

static by_value linear(by__nn_build *b, by_value x, int64_t in, int64_t out, const char *axes,
                       const char *bias_axes, const char *prefix)
{
    by_value w =
        by__nn_weight(b, axes, BY_SHAPE(out, in), by__nn_init_normal(b), "%s.weight", prefix);
    by_value bias = by__nn_weight(b, bias_axes, BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
    return by_linear(b->graph, x, w, bias, true);
}

/* A convolution of patches that do not overlap. */
static by_value patches(by__nn_build *b, by_value x, int64_t in, int64_t out, int64_t size,
                        const char *prefix)
{
    const by__nn_conv conv = {.in = in,
                              .out = out,
                              .size = size,
                              .stride = size,
                              .groups = 1,
                              .std = (float)b->config->init_std};
    return by__nn_convolve(b, x, &conv, true, prefix);
}

static by_value block(by__nn_build *b, by_value x, int64_t width, const char *prefix)
{
    const by__nn_conv conv = {.in = width,
                              .out = width,
                              .size = 7,
                              .stride = 1,
                              .padding = 3,
                              .groups = width,
                              .std = (float)b->config->init_std};
    char name[160];
    (void)snprintf(name, sizeof name, "%s.dwconv", prefix);
    by_value y = by__nn_convolve(b, x, &conv, true, name);
    (void)snprintf(name, sizeof name, "%s.layernorm", prefix);
    y = norm(b, y, width, BLOCK_EPS, name);
    (void)snprintf(name, sizeof name, "%s.pwconv1", prefix);
    y = linear(b, y, width, 4 * width, "mlp embed", "mlp", name);
    y = by_unary(b->graph, y, BY_FN_GELU_ERF);
    (void)snprintf(name, sizeof name, "%s.pwconv2", prefix);
    y = linear(b, y, 4 * width, width, "embed mlp", "embed", name);
    if (!own_keys(b->config)->scales) {
        return by_add(b->graph, x, y);
    }
    by_value scale = by__nn_weight(b, "embed", BY_SHAPE(width), (by_init){0},
                                   "%s.layer_scale_parameter", prefix);
    by_value shift = by_fill(b->graph, BY_F32, BY_SHAPE(width), 0.0f);
    const by_norm_end end = {x, false, 0.0f};
    return by_affine(b->graph, y, scale, shift, &end);
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    int blocks = 0;
    int64_t width = width_of(c, 0);
    by_value x = patches(b, by__nn_images(b), c->channels, width, own_keys(c)->patch,
                         "convnext.embeddings.patch_embeddings");
    x = norm(b, x, width, BLOCK_EPS, "convnext.embeddings.layernorm");
    for (int64_t stage = 0; stage < stage_count(c); stage++) {
        char name[96];
        if (stage > 0) {
            (void)snprintf(name, sizeof name, "convnext.encoder.stages.%lld.downsampling_layer.0",
                           (long long)stage);
            x = norm(b, x, width, BLOCK_EPS, name);
            name[strlen(name) - 1] = '1';
            x = patches(b, x, width, width_of(c, stage), 2, name);
            width = width_of(c, stage);
        }
        for (int64_t layer = 0; layer < by__nn_size_at(&own_keys(c)->depths, stage); layer++) {
            (void)snprintf(name, sizeof name, "convnext.encoder.stages.%lld.layers.%lld",
                           (long long)stage, (long long)layer);
            by_graph_set_block(b->graph, blocks++);
            x = block(b, x, width, name);
        }
        by_graph_set_block(b->graph, -1);
    }
    x = norm(b, by__nn_global_average(b, x), width, (float)own_keys(c)->norm_eps,
             "convnext.layernorm");
    b->model.output = by__nn_classifier(b, x, width, (float)c->init_std, "classifier");
}

static void write_config(json_t *out, const by_model_config *c)
{
    const convnext_keys *n = own_keys(c);
    json_t *widths = json_array();
    for (int64_t stage = 0; stage < stage_count(c); stage++) {
        (void)json_array_append_new(widths, json_integer(width_of(c, stage)));
    }
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "num_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "num_stages", json_integer(stage_count(c)));
    (void)json_object_set_new(out, "hidden_sizes", widths);
    (void)json_object_set_new(out, "depths", by__nn_sizes_json(&n->depths));
    (void)json_object_set_new(out, "patch_size", json_integer(n->patch));
    (void)json_object_set_new(out, "hidden_act", json_string("gelu"));
    (void)json_object_set_new(out, "layer_norm_eps", json_real(n->norm_eps));
    (void)json_object_set_new(out, "layer_scale_init_value", json_real(n->scales ? 1e-6 : 0.0));
    (void)json_object_set_new(out, "drop_path_rate", json_real(0.0));
    by__nn_json_write_image_size(out, c);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    convnext_keys *n = own_keys(c);
    const json_t *scale = json_object_get(in, "layer_scale_init_value");
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", 3, error));
    BY_TRY(by__nn_json_sizes(&n->widths, name, in, "hidden_sizes", error));
    BY_TRY(by__nn_json_sizes(&n->depths, name, in, "depths", error));
    BY_TRY(by__nn_json_integer(&n->patch, name, in, "patch_size", 4, error));
    BY_TRY(by__nn_json_number(&n->norm_eps, name, in, "layer_norm_eps", 1e-12, error));
    BY_TRY(by__nn_json_expect(name, in, "hidden_act", "gelu", error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    if (n->depths.count == 0 || n->depths.count != n->widths.count) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"hidden_sizes\" and \"depths\" do not make a ConvNeXt", name);
    }
    n->scales = scale == NULL || json_number_value(scale) > 0.0;
    c->width = width_of(c, 0);
    c->layers = by__nn_sizes_sum(&n->depths);
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

const by__nn_family by__nn_family_convnext = {
    .kind = {.name = "convnext",
             .help = "ConvNeXt: depthwise convolutions, layer norm and an MLP on each pixel.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(convnext_keys),
             .resolve = resolve},
    .base = "convnext.",
    .reads = "images",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published =
        (const by__nn_published[]){{"convnext", "ConvNextForImageClassification", false}, {0}},
};
