/* ResNet (He et al. 2016): a stem that divides both sides by four, stages of residual blocks of
 * convolutions, each followed by batch norm, that halve the sides, a mean over the image and a
 * linear classifier. A basic block has two convolutions of 3 x 3; a bottleneck has one between two
 * of 1 x 1, and a stride is that of the middle one. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

#define BOTTLENECK 4    /* the width of a bottleneck is that of its result divided by this */
#define USUAL_EPS  1e-5 /* of batch norms in transformers, whose config.json does not name it */

typedef struct resnet_keys {
    by_string_list depths;
    by_string_list widths;
    char *block;
    char *stem;
    int64_t first_stride;
    int64_t reduce_stride;
    double norm_eps;
    double norm_momentum;
} resnet_keys;

static const by__config_key keys[] = {
    {"model", "depths", BY__KEY_TEXTS, BY__OWN(resnet_keys, depths), "[2, 2, 2, 2]",
     .help = "blocks of each stage; their sum is model.layers"},
    {"model", "widths", BY__KEY_TEXTS, BY__OWN(resnet_keys, widths), "[]",
     .help = "channels of each stage; empty: model.width, twice that and so on, and for "
             "bottlenecks four times as many"},
    {"model", "block", BY__KEY_TEXT, BY__OWN(resnet_keys, block), "basic",
     .choices = "basic|bottleneck", .help = "what the stages consist of"},
    {"model", "stem", BY__KEY_TEXT, BY__OWN(resnet_keys, stem), "pool", .choices = "pool|small",
     .help = "pool: a convolution of 7 x 7 and a pool, both with stride 2; small: one of 3 x 3 "
             "that keeps the size, for small images, which transformers does not have"},
    {"model", "downsample_in_first_stage", BY__KEY_SWITCH, BY__OWN(resnet_keys, first_stride),
     "false", .help = "the first stage halves the sides, too"},
    {"model", "downsample_in_bottleneck", BY__KEY_SWITCH, BY__OWN(resnet_keys, reduce_stride),
     "false", .help = "the first convolution of a bottleneck has the stride, not the middle one"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(resnet_keys, norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of batch norm"},
    {"model", "norm_momentum", BY__KEY_REAL, BY__OWN(resnet_keys, norm_momentum), "0.1", 0, 1,
     BY__ABOVE_MIN, .help = "weight of a step's statistics in the running ones"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_resnet;

static resnet_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_resnet.kind);
}

static bool has_bottlenecks(const resnet_keys *r)
{
    return strcmp(r->block, "bottleneck") == 0;
}

static int64_t width_of(const by_model_config *c, int64_t stage)
{
    const resnet_keys *r = own_keys(c);
    int64_t first = c->width * (has_bottlenecks(r) ? BOTTLENECK : 1);
    return r->widths.count > 0 ? by__nn_size_at(&r->widths, stage) : first << stage;
}

static int64_t depth_of(const by_model_config *c, int64_t stage)
{
    return by__nn_size_at(&own_keys(c)->depths, stage);
}

static int64_t stage_count(const by_model_config *c)
{
    return (int64_t)own_keys(c)->depths.count;
}

static by_status check_widths(const by_config *config, const resnet_keys *r, by_error *error)
{
    for (size_t i = 0; has_bottlenecks(r) && i < r->widths.count; i++) {
        if (by__nn_size_at(&r->widths, (int64_t)i) % BOTTLENECK != 0) {
            return by_error_set(
                error, BY_ECONFIG, "%s: the widths of bottlenecks are multiples of %d",
                by__config_where(config, "model.widths", "model.widths"), BOTTLENECK);
        }
    }
    return BY_OK;
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const resnet_keys *r = own;
    BY_TRY(by__nn_sizes_check(config, "model.depths", &r->depths, error));
    BY_TRY(by__nn_sizes_check(config, "model.widths", &r->widths, error));
    BY_TRY(by__nn_stages_check(config, &r->depths, &r->widths, error));
    BY_TRY(check_widths(config, r, error));
    config->model.layers = by__nn_sizes_sum(&r->depths);
    return BY_OK;
}

/* PREFIX.convolution and PREFIX.normalization. */
static by_value conv_norm(by__nn_build *b, by_value x, const by__nn_conv *conv,
                          const by_norm_end *end, const char *prefix)
{
    const resnet_keys *r = own_keys(b->config);
    char name[160];
    (void)snprintf(name, sizeof name, "%s.convolution", prefix);
    x = by__nn_convolve(b, x, conv, false, name);
    (void)snprintf(name, sizeof name, "%s.normalization", prefix);
    const by__nn_batch_norm norm = {.prefix = name,
                                    .axes = "embed",
                                    .width = conv->out,
                                    .eps = (float)r->norm_eps,
                                    .momentum = (float)r->norm_momentum,
                                    .end = *end};
    return by__nn_batch_normalize(b, x, &norm);
}

static const by_norm_end rectified = {BY_NONE, true, 0.0f};

static by_value stem(by__nn_build *b)
{
    const by_model_config *c = b->config;
    bool pools = strcmp(own_keys(c)->stem, "pool") == 0;
    int64_t size = pools ? 7 : 3;
    const by__nn_conv conv = {.in = c->channels,
                              .out = c->width,
                              .size = size,
                              .stride = pools ? 2 : 1,
                              .padding = size / 2,
                              .groups = 1};
    by_value x = conv_norm(b, by__nn_images(b), &conv, &rectified, "resnet.embedder.embedder");
    by_window window = by_window_square(3, 2, 1);
    return pools ? by_max_pool(b->graph, x, &window) : x;
}

static by_value block(by__nn_build *b, by_value x, int64_t in, int64_t out, int64_t stride,
                      const char *prefix)
{
    const resnet_keys *r = own_keys(b->config);
    bool bottleneck = has_bottlenecks(r);
    int64_t inner = bottleneck ? out / BOTTLENECK : out;
    int count = bottleneck ? 3 : 2;
    int strided = bottleneck && !r->reduce_stride ? 1 : 0; /* the convolution with the stride */
    by_norm_end end = {x, true, 0.0f};
    char name[128];
    if (in != out || stride != 1) {
        const by__nn_conv conv = {.in = in, .out = out, .size = 1, .stride = stride, .groups = 1};
        (void)snprintf(name, sizeof name, "%s.shortcut", prefix);
        end.add = conv_norm(b, x, &conv, &BY_NORM_END_NONE, name);
    }
    for (int i = 0; i < count; i++) {
        int64_t size = bottleneck && i != 1 ? 1 : 3;
        const by__nn_conv conv = {.in = i == 0 ? in : inner,
                                  .out = i == count - 1 ? out : inner,
                                  .size = size,
                                  .stride = i == strided ? stride : 1,
                                  .padding = size / 2,
                                  .groups = 1};
        (void)snprintf(name, sizeof name, "%s.layer.%d", prefix, i);
        x = conv_norm(b, x, &conv, i == count - 1 ? &end : &rectified, name);
    }
    return x;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    int blocks = 0;
    int64_t width = c->width;
    by_value x = stem(b);
    for (int64_t stage = 0; stage < stage_count(c); stage++) {
        for (int64_t layer = 0; layer < depth_of(c, stage); layer++) {
            char name[96];
            bool halves = layer == 0 && (stage > 0 || own_keys(c)->first_stride);
            (void)snprintf(name, sizeof name, "resnet.encoder.stages.%lld.layers.%lld",
                           (long long)stage, (long long)layer);
            by_graph_set_block(b->graph, blocks++);
            x = block(b, x, width, width_of(c, stage), halves ? 2 : 1, name);
            width = width_of(c, stage);
        }
    }
    by_graph_set_block(b->graph, -1);
    b->model.output = by__nn_classifier(b, by__nn_global_average(b, x), width,
                                        1.0f / sqrtf(3.0f * (float)width), "classifier.1");
}

static void write_config(json_t *out, const by_model_config *c)
{
    const resnet_keys *r = own_keys(c);
    json_t *widths = json_array();
    for (int64_t stage = 0; stage < stage_count(c); stage++) {
        (void)json_array_append_new(widths, json_integer(width_of(c, stage)));
    }
    (void)json_object_del(out, "initializer_range"); /* of no part of the model */
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "num_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "embedding_size", json_integer(c->width));
    (void)json_object_set_new(out, "hidden_sizes", widths);
    (void)json_object_set_new(out, "depths", by__nn_sizes_json(&r->depths));
    (void)json_object_set_new(out, "layer_type", json_string(r->block));
    (void)json_object_set_new(out, "hidden_act", json_string("relu"));
    (void)json_object_set_new(out, "downsample_in_first_stage", json_boolean(r->first_stride));
    (void)json_object_set_new(out, "downsample_in_bottleneck", json_boolean(r->reduce_stride));
    if (strcmp(r->stem, "pool") != 0) {
        (void)json_object_set_new(out, "stem", json_string(r->stem));
    }
    if (r->norm_eps != USUAL_EPS) {
        (void)json_object_set_new(out, "batch_norm_eps", json_real(r->norm_eps));
    }
    by__nn_json_write_image_size(out, c);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    resnet_keys *r = own_keys(c);
    const char *block = json_string_value(json_object_get(in, "layer_type"));
    const json_t *stem = json_object_get(in, "stem");
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", 3, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "embedding_size", 64, error));
    BY_TRY(by__nn_json_sizes(&r->widths, name, in, "hidden_sizes", error));
    BY_TRY(by__nn_json_sizes(&r->depths, name, in, "depths", error));
    BY_TRY(
        by__nn_json_switch(&r->first_stride, name, in, "downsample_in_first_stage", false, error));
    BY_TRY(
        by__nn_json_switch(&r->reduce_stride, name, in, "downsample_in_bottleneck", false, error));
    BY_TRY(by__nn_json_expect(name, in, "hidden_act", "relu", error));
    BY_TRY(by__nn_json_number(&r->norm_eps, name, in, "batch_norm_eps", USUAL_EPS, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    block = block == NULL ? "bottleneck" : block;
    if (r->depths.count == 0 || r->depths.count != r->widths.count ||
        (strcmp(block, "basic") != 0 && strcmp(block, "bottleneck") != 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"hidden_sizes\", \"depths\" and \"layer_type\" do not make a "
                            "ResNet",
                            name);
    }
    if (stem != NULL) {
        BY_TRY(by__nn_json_expect(name, in, "stem", "small", error));
    }
    BY_TRY(by__nn_set_string(&r->stem, stem == NULL ? "pool" : "small", error));
    BY_TRY(by__nn_set_string(&r->block, block, error));
    c->layers = by__nn_sizes_sum(&r->depths);
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

const by__nn_family by__nn_family_resnet = {
    .kind = {.name = "resnet",
             .help = "ResNet: residual blocks of convolutions with batch norm.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(resnet_keys),
             .resolve = resolve},
    .base = "resnet.",
    .reads = "images",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"resnet", "ResNetForImageClassification", false}, {0}},
};
