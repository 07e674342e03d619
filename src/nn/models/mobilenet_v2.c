/* MobileNetV2 (Sandler et al. 2018): inverted residual blocks, which widen the channels by a
 * convolution of 1 x 1, filter each by one of 3 x 3 and narrow them again, with batch norm after
 * each convolution and ReLU6 after all but the last. Names are those of transformers, whose padding
 * is TensorFlow's unless tf_padding is false. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

enum { BLOCKS = 16, DIVISOR = 8 };

typedef struct mobilenet_keys {
    double multiplier;
    double expand;
    int64_t output_stride;
    int64_t tf_padding;
    int64_t first_is_expansion;
    int64_t finegrained;
    double norm_eps;
    double norm_momentum;
} mobilenet_keys;

static const by__config_key keys[] = {
    {"model", "depth_multiplier", BY__KEY_REAL, BY__OWN(mobilenet_keys, multiplier), "1", 0, 16,
     BY__ABOVE_MIN, .help = "factor on the channels of all layers"},
    {"model", "expand_ratio", BY__KEY_REAL, BY__OWN(mobilenet_keys, expand), "6", 0, 64,
     BY__ABOVE_MIN, .help = "how many times wider a block is inside"},
    {"model", "output_stride", BY__KEY_INT, BY__OWN(mobilenet_keys, output_stride), "32", 2, 32,
     .help = "by how much the sides are divided; below 32 later blocks are dilated instead"},
    {"model", "tf_padding", BY__KEY_SWITCH, BY__OWN(mobilenet_keys, tf_padding), "true",
     .help = "pad as TensorFlow does: more after than before, where a stride needs it"},
    {"model", "first_layer_is_expansion", BY__KEY_SWITCH,
     BY__OWN(mobilenet_keys, first_is_expansion), "true",
     .help = "the first block has no convolution that widens"},
    {"model", "finegrained_output", BY__KEY_SWITCH, BY__OWN(mobilenet_keys, finegrained), "true",
     .help = "depth_multiplier does not narrow the last convolution"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(mobilenet_keys, norm_eps), "1e-3", 0, 1,
     BY__ABOVE_MIN, .help = "epsilon of batch norm"},
    {"model", "norm_momentum", BY__KEY_REAL, BY__OWN(mobilenet_keys, norm_momentum), "0.1", 0, 1,
     BY__ABOVE_MIN, .help = "weight of a step's statistics in the running ones"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_mobilenet_v2;

static mobilenet_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_mobilenet_v2.kind);
}

/* The nearest multiple of eight, at least eight and not below 90 %. */
static int64_t divisible(double channels)
{
    int64_t most = (int64_t)(channels + DIVISOR / 2.0) / DIVISOR * DIVISOR;
    most = most < DIVISOR ? DIVISOR : most;
    return (double)most < 0.9 * channels ? most + DIVISOR : most;
}

static int64_t scaled(const by_model_config *c, int64_t channels)
{
    return divisible(nearbyint((double)channels * own_keys(c)->multiplier));
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    int64_t stride = ((const mobilenet_keys *)own)->output_stride;
    config->model.layers = BLOCKS + 1;
    config->model.width = scaled(&config->model, 32);
    if ((stride & (stride - 1)) != 0) {
        return by_error_set(error, BY_ECONFIG, "%s: output_stride %lld is not a power of two",
                            by__config_where(config, "model.output_stride", "model.output_stride"),
                            (long long)stride);
    }
    return BY_OK;
}

/* PREFIX.convolution and PREFIX.normalization. */
static by_value conv_layer(by__nn_build *b, by_value x, by__nn_conv conv, const by_norm_end *end,
                           const char *prefix)
{
    const mobilenet_keys *m = own_keys(b->config);
    char name[96];
    conv.groups = conv.groups == 0 ? 1 : conv.groups;
    conv.same = m->tf_padding == 1;
    conv.padding = (conv.size - 1) / 2 * (conv.dilation == 0 ? 1 : conv.dilation);
    (void)snprintf(name, sizeof name, "%s.convolution", prefix);
    x = by__nn_convolve(b, x, &conv, false, name);
    (void)snprintf(name, sizeof name, "%s.normalization", prefix);
    const by__nn_batch_norm norm = {.prefix = name,
                                    .axes = "embed",
                                    .width = conv.out,
                                    .eps = (float)m->norm_eps,
                                    .momentum = (float)m->norm_momentum,
                                    .end = *end};
    return by__nn_batch_normalize(b, x, &norm);
}

static const by_norm_end relu6 = {BY_NONE, true, 6.0f};

static by_value stem(by__nn_build *b, int64_t out)
{
    const by_model_config *c = b->config;
    int64_t width = scaled(c, 32);
    const by__nn_conv first = {.in = c->channels, .out = width, .size = 3, .stride = 2};
    const by__nn_conv expand = {.in = width, .out = width, .size = 1, .stride = 1};
    const by__nn_conv filter = {.in = width, .out = width, .size = 3, .stride = 1, .groups = width};
    const by__nn_conv reduce = {.in = width, .out = out, .size = 1, .stride = 1};
    by_value x =
        conv_layer(b, by__nn_images(b), first, &relu6, "mobilenet_v2.conv_stem.first_conv");
    if (!own_keys(c)->first_is_expansion) {
        x = conv_layer(b, x, expand, &relu6, "mobilenet_v2.conv_stem.expand_1x1");
    }
    x = conv_layer(b, x, filter, &relu6, "mobilenet_v2.conv_stem.conv_3x3");
    return conv_layer(b, x, reduce, &BY_NORM_END_NONE, "mobilenet_v2.conv_stem.reduce_1x1");
}

static by_value block(by__nn_build *b, by_value x, int64_t in, int64_t out, int64_t stride,
                      int64_t dilation, int number)
{
    char name[64];
    int64_t width = divisible(nearbyint((double)in * own_keys(b->config)->expand));
    const by__nn_conv expand = {.in = in, .out = width, .size = 1, .stride = 1};
    const by__nn_conv filter = {.in = width,
                                .out = width,
                                .size = 3,
                                .stride = stride,
                                .groups = width,
                                .dilation = dilation};
    const by__nn_conv reduce = {.in = width, .out = out, .size = 1, .stride = 1};
    const by_norm_end end = {stride == 1 && in == out ? x : BY_NONE, false, 0.0f};
    (void)snprintf(name, sizeof name, "mobilenet_v2.layer.%d.expand_1x1", number);
    x = conv_layer(b, x, expand, &relu6, name);
    (void)snprintf(name, sizeof name, "mobilenet_v2.layer.%d.conv_3x3", number);
    x = conv_layer(b, x, filter, &relu6, name);
    (void)snprintf(name, sizeof name, "mobilenet_v2.layer.%d.reduce_1x1", number);
    return conv_layer(b, x, reduce, &end, name);
}

static void body(by__nn_build *b)
{
    static const int64_t widths[BLOCKS + 1] = {16, 24, 24, 32, 32,  32,  64,  64, 64,
                                               64, 96, 96, 96, 160, 160, 160, 320};
    static const int64_t strides[BLOCKS] = {2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1};
    const by_model_config *c = b->config;
    const mobilenet_keys *m = own_keys(c);
    int64_t so_far = 2;
    int64_t dilation = 1;
    by_graph_set_block(b->graph, 0);
    by_value x = stem(b, scaled(c, widths[0]));
    for (int i = 0; i < BLOCKS; i++) {
        bool dilates = so_far == m->output_stride;
        int64_t stride = dilates ? 1 : strides[i];
        by_graph_set_block(b->graph, i + 1);
        x = block(b, x, scaled(c, widths[i]), scaled(c, widths[i + 1]), stride,
                  dilates ? dilation : 1, i);
        so_far *= stride;
        dilation *= dilates ? strides[i] : 1; /* from the next block on */
    }
    by_graph_set_block(b->graph, -1);
    int64_t last = m->finegrained && m->multiplier < 1.0 ? 1280 : scaled(c, 1280);
    const by__nn_conv head = {.in = scaled(c, widths[BLOCKS]), .out = last, .size = 1, .stride = 1};
    x = conv_layer(b, x, head, &relu6, "mobilenet_v2.conv_1x1");
    x = by__nn_drop(b, by__nn_global_average(b, x));
    b->model.output = by__nn_classifier(b, x, last, 0.02f, "classifier");
}

static void write_config(json_t *out, const by_model_config *c)
{
    const mobilenet_keys *m = own_keys(c);
    (void)json_object_del(out, "initializer_range"); /* of no part of the model */
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "num_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "depth_multiplier", json_real(m->multiplier));
    (void)json_object_set_new(out, "depth_divisible_by", json_integer(DIVISOR));
    (void)json_object_set_new(out, "min_depth", json_integer(DIVISOR));
    (void)json_object_set_new(out, "expand_ratio", json_real(m->expand));
    (void)json_object_set_new(out, "output_stride", json_integer(m->output_stride));
    (void)json_object_set_new(out, "first_layer_is_expansion", json_boolean(m->first_is_expansion));
    (void)json_object_set_new(out, "finegrained_output", json_boolean(m->finegrained));
    (void)json_object_set_new(out, "hidden_act", json_string("relu6"));
    (void)json_object_set_new(out, "tf_padding", json_boolean(m->tf_padding));
    (void)json_object_set_new(out, "classifier_dropout_prob", json_real(c->dropout));
    (void)json_object_set_new(out, "layer_norm_eps", json_real(m->norm_eps));
    by__nn_json_write_image_size(out, c);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    mobilenet_keys *m = own_keys(c);
    int64_t divisor;
    int64_t least;
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", 3, error));
    BY_TRY(by__nn_json_number(&m->multiplier, name, in, "depth_multiplier", 1.0, error));
    BY_TRY(by__nn_json_number(&m->expand, name, in, "expand_ratio", 6.0, error));
    BY_TRY(by__nn_json_integer(&m->output_stride, name, in, "output_stride", 32, error));
    BY_TRY(by__nn_json_switch(&m->first_is_expansion, name, in, "first_layer_is_expansion", true,
                              error));
    BY_TRY(by__nn_json_switch(&m->finegrained, name, in, "finegrained_output", true, error));
    BY_TRY(by__nn_json_switch(&m->tf_padding, name, in, "tf_padding", true, error));
    BY_TRY(by__nn_json_number(&m->norm_eps, name, in, "layer_norm_eps", 1e-3, error));
    BY_TRY(by__nn_json_expect(name, in, "hidden_act", "relu6", error));
    BY_TRY(by__nn_json_integer(&divisor, name, in, "depth_divisible_by", DIVISOR, error));
    BY_TRY(by__nn_json_integer(&least, name, in, "min_depth", DIVISOR, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    if (divisor != DIVISOR || least != DIVISOR) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"depth_divisible_by\" and \"min_depth\" other than %d are not "
                            "supported",
                            name, DIVISOR);
    }
    c->layers = BLOCKS + 1;
    c->width = scaled(c, 32);
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

const by__nn_family by__nn_family_mobilenet_v2 = {
    .kind = {.name = "mobilenet_v2",
             .help = "MobileNetV2: inverted residual blocks with depthwise convolutions.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(mobilenet_keys),
             .resolve = resolve},
    .base = "mobilenet_v2.",
    .reads = "images",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published =
        (const by__nn_published[]){{"mobilenet_v2", "MobileNetV2ForImageClassification", false},
                                   {0}},
};
