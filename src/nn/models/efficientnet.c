/* EfficientNet (Tan and Le 2019): inverted residual blocks, which widen the channels, filter each
 * by a depthwise convolution, weight it by what the whole image has in it (squeeze-and-excitation,
 * Hu et al. 2018) and narrow them again, with batch norm after each convolution and swish after all
 * but the last. Names are those of transformers. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

enum { STEM = 32, TOP = 1280, DIVISOR = 8, MOST_BLOCKS = 1024 };

typedef struct efficientnet_keys {
    by_string_list depths;
    by_string_list widths;
    by_string_list strides;
    by_string_list sizes;
    by_string_list ratios;
    by_string_list square;
    double width_factor;
    double depth_factor;
    double squeeze;
    double drop_connect;
    char *pooling;
    double norm_eps;
    double norm_momentum;
} efficientnet_keys;

static const by__config_key keys[] = {
    {"model", "depths", BY__KEY_TEXTS, BY__OWN(efficientnet_keys, depths), "[1, 2, 2, 3, 3, 4, 1]",
     .help = "blocks of each stage, before depth_coefficient"},
    {"model", "widths", BY__KEY_TEXTS, BY__OWN(efficientnet_keys, widths),
     "[16, 24, 40, 80, 112, 192, 320]", .help = "channels of each stage, before width_coefficient"},
    {"model", "strides", BY__KEY_TEXTS, BY__OWN(efficientnet_keys, strides),
     "[1, 2, 2, 2, 1, 2, 1]", .help = "by how much each stage divides the sides: 1 or 2"},
    {"model", "kernel_sizes", BY__KEY_TEXTS, BY__OWN(efficientnet_keys, sizes),
     "[3, 3, 5, 3, 5, 5, 3]", .help = "sides of the depthwise filters of each stage, odd"},
    {"model", "expand_ratios", BY__KEY_TEXTS, BY__OWN(efficientnet_keys, ratios),
     "[1, 6, 6, 6, 6, 6, 6]", .help = "how many times wider the blocks of each stage are inside"},
    {"model", "depthwise_padding", BY__KEY_TEXTS, BY__OWN(efficientnet_keys, square), "[]",
     .help = "blocks with a stride that pad as much before as after"},
    {"model", "width_coefficient", BY__KEY_REAL, BY__OWN(efficientnet_keys, width_factor), "1", 0,
     16, BY__ABOVE_MIN, .help = "factor on the channels of all layers"},
    {"model", "depth_coefficient", BY__KEY_REAL, BY__OWN(efficientnet_keys, depth_factor), "1", 0,
     16, BY__ABOVE_MIN, .help = "factor on the blocks of each stage, rounded up"},
    {"model", "squeeze_ratio", BY__KEY_REAL, BY__OWN(efficientnet_keys, squeeze), "0.25", 0, 1,
     BY__ABOVE_MIN, .help = "channels that weight those of a block, as a share of what enters it"},
    {"model", "drop_connect", BY__KEY_REAL, BY__OWN(efficientnet_keys, drop_connect), "0.2", 0, 1,
     BY__BELOW_MAX, .help = "dropout of what the last block adds; that of earlier ones is less"},
    {"model", "pooling", BY__KEY_TEXT, BY__OWN(efficientnet_keys, pooling), "mean",
     .choices = "mean|max", .help = "what the classifier reads of each channel"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(efficientnet_keys, norm_eps), "1e-3", 0, 1,
     BY__ABOVE_MIN, .help = "epsilon of batch norm"},
    {"model", "norm_momentum", BY__KEY_REAL, BY__OWN(efficientnet_keys, norm_momentum), "0.1", 0, 1,
     BY__ABOVE_MIN, .help = "weight of a step's statistics in the running ones"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_efficientnet;

static efficientnet_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_efficientnet.kind);
}

/* The nearest multiple of eight, at least eight and not below 90 %. */
static int64_t scaled(const efficientnet_keys *e, int64_t channels)
{
    double wanted = (double)channels * e->width_factor;
    int64_t most = (int64_t)(wanted + DIVISOR / 2.0) / DIVISOR * DIVISOR;
    most = most < DIVISOR ? DIVISOR : most;
    return (double)most < 0.9 * wanted ? most + DIVISOR : most;
}

static int64_t repeats(const efficientnet_keys *e, int64_t stage)
{
    return (int64_t)ceil(e->depth_factor * (double)by__nn_size_at(&e->depths, stage));
}

static int64_t stage_count(const efficientnet_keys *e)
{
    return (int64_t)e->depths.count;
}

/* Blocks of all stages; more than MOST_BLOCKS: too many. */
static int64_t block_count(const efficientnet_keys *e)
{
    int64_t count = 0;
    for (int64_t stage = 0; stage < stage_count(e) && count <= MOST_BLOCKS; stage++) {
        count += repeats(e, stage);
    }
    return count;
}

/* NULL, or what is wrong with the lists of a model, of which each entry is a size. */
static const char *wrong_stages(const efficientnet_keys *e)
{
    size_t count = e->depths.count;
    if (count < 1 || count > 16 || e->widths.count != count || e->strides.count != count ||
        e->sizes.count != count || e->ratios.count != count) {
        return "there are 1 to 16 stages, each with its depth, width, stride, kernel size and "
               "expand ratio";
    }
    for (int64_t stage = 0; stage < (int64_t)count; stage++) {
        if (by__nn_size_at(&e->strides, stage) > 2 || by__nn_size_at(&e->sizes, stage) % 2 == 0) {
            return "strides are 1 or 2, and kernel sizes odd";
        }
    }
    return block_count(e) > MOST_BLOCKS ? "there are more than 1024 blocks" : NULL;
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const efficientnet_keys *e = own;
    BY_TRY(by__nn_sizes_check(config, "model.depths", &e->depths, error));
    BY_TRY(by__nn_sizes_check(config, "model.widths", &e->widths, error));
    BY_TRY(by__nn_sizes_check(config, "model.strides", &e->strides, error));
    BY_TRY(by__nn_sizes_check(config, "model.kernel_sizes", &e->sizes, error));
    BY_TRY(by__nn_sizes_check(config, "model.expand_ratios", &e->ratios, error));
    const char *wrong = wrong_stages(e);
    if (wrong != NULL) {
        return by_error_set(error, BY_ECONFIG, "%s: %s",
                            by__config_where(config, "model.depths", "model.depths"), wrong);
    }
    config->model.layers = block_count(e);
    config->model.width = scaled(e, STEM);
    return by__nn_layers_check(config, "model.depthwise_padding", &e->square, error);
}

/* A convolution, without bias, and PREFIX.NORM; PREFIX.CONV is its weight. One with stride 2 pads
 * less before than after, unless it is `square`. */
typedef struct named_conv {
    by__nn_conv conv;
    bool square;
    const char *prefix;
    const char *name; /* of the convolution */
    const char *norm;
} named_conv;

static by_value convolve(by__nn_build *b, by_value x, const by__nn_conv *conv, bool square,
                         const char *name)
{
    int64_t half = conv->size / 2;
    if (conv->stride == 1) {
        by__nn_conv padded = *conv;
        padded.padding = half;
        return by__nn_convolve(b, x, &padded, false, name);
    }
    by_window window = by_window_square(conv->size, conv->stride, half);
    double fan = (double)(conv->size * conv->size) * (double)conv->out / (double)conv->groups;
    window.before[0] = window.before[1] = square ? half : half - 1;
    by_value w =
        by__nn_weight(b, "embed channel pixel pixel",
                      BY_SHAPE(conv->out, conv->in / conv->groups, conv->size, conv->size),
                      (by_init){BY_INIT_NORMAL, (float)sqrt(2.0 / fan)}, "%s.weight", name);
    return by_conv(b->graph, x, w, BY_NONE, &window, conv->groups);
}

static by_value add_conv_norm(by__nn_build *b, by_value x, const named_conv *o,
                              const by_norm_end *end)
{
    const efficientnet_keys *e = own_keys(b->config);
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", o->prefix, o->name);
    x = convolve(b, x, &o->conv, o->square, name);
    (void)snprintf(name, sizeof name, "%s.%s", o->prefix, o->norm);
    const by__nn_batch_norm norm = {.prefix = name,
                                    .axes = "embed",
                                    .width = o->conv.out,
                                    .eps = (float)e->norm_eps,
                                    .momentum = (float)e->norm_momentum,
                                    .end = *end};
    return by__nn_batch_normalize(b, x, &norm);
}

static by_value add_activated(by__nn_build *b, by_value x, const named_conv *o)
{
    return by_unary(b->graph, add_conv_norm(b, x, o, &BY_NORM_END_NONE), BY_FN_SILU);
}

/* Multiplies each channel by a function of the means of all. */
static by_value squeeze_and_excite(by__nn_build *b, by_value x, int64_t in, int64_t width,
                                   const char *prefix)
{
    static const int sides[] = {1, 2};
    const efficientnet_keys *e = own_keys(b->config);
    char name[128];
    int64_t narrow = (int64_t)((double)in * e->squeeze);
    narrow = narrow < 1 ? 1 : narrow;
    const by__nn_conv reduce = {.in = width, .out = narrow, .size = 1, .stride = 1, .groups = 1};
    const by__nn_conv expand = {.in = narrow, .out = width, .size = 1, .stride = 1, .groups = 1};
    by_value weight = by_mean(b->graph, x, sides, 2, true);
    (void)snprintf(name, sizeof name, "%s.squeeze_excite.reduce", prefix);
    weight = by_unary(b->graph, by__nn_convolve(b, weight, &reduce, true, name), BY_FN_SILU);
    (void)snprintf(name, sizeof name, "%s.squeeze_excite.expand", prefix);
    weight = by_unary(b->graph, by__nn_convolve(b, weight, &expand, true, name), BY_FN_SIGMOID);
    return by_mul(b->graph, x, weight);
}

typedef struct block_sizes {
    int64_t number;
    int64_t in, out;
    int64_t ratio;
    int64_t size;
    int64_t stride;
    bool adds; /* its operand to its result */
} block_sizes;

static by_value block(by__nn_build *b, by_value x, const block_sizes *s)
{
    const efficientnet_keys *e = own_keys(b->config);
    char prefix[64];
    char name[96];
    int64_t width = s->in * s->ratio;
    float drop = (float)(e->drop_connect * (double)s->number / (double)b->config->layers);
    bool drops = s->adds && drop > 0.0f && b->request->mode == BY_MODEL_TRAIN;
    by_norm_end end = {s->adds && !drops ? x : BY_NONE, false, 0.0f};
    by_value y = x;
    (void)snprintf(prefix, sizeof prefix, "efficientnet.encoder.blocks.%lld", (long long)s->number);
    if (s->ratio != 1) {
        (void)snprintf(name, sizeof name, "%s.expansion", prefix);
        y = add_activated(
            b, y,
            &(named_conv){.conv = {.in = s->in, .out = width, .size = 1, .stride = 1, .groups = 1},
                          .prefix = name,
                          .name = "expand_conv",
                          .norm = "expand_bn"});
    }
    (void)snprintf(name, sizeof name, "%s.depthwise_conv", prefix);
    y = add_activated(b, y,
                      &(named_conv){.conv = {.in = width,
                                             .out = width,
                                             .size = s->size,
                                             .stride = s->stride,
                                             .groups = width},
                                    .square = by__nn_list_has(&e->square, s->number),
                                    .prefix = name,
                                    .name = "depthwise_conv",
                                    .norm = "depthwise_norm"});
    y = squeeze_and_excite(b, y, s->in, width, prefix);
    (void)snprintf(name, sizeof name, "%s.projection", prefix);
    y = add_conv_norm(
        b, y,
        &(named_conv){.conv = {.in = width, .out = s->out, .size = 1, .stride = 1, .groups = 1},
                      .prefix = name,
                      .name = "project_conv",
                      .norm = "project_bn"},
        &end);
    if (drops) {
        by_value rng = by__nn_input(b, "rng", BY_I32, BY_SHAPE(4));
        y = by_add(b->graph, by_dropout(b->graph, y, rng, drop, b->streams++), x);
    }
    return y;
}

/* One number for each channel: [B, C]. */
static by_value pooled(by__nn_build *b, by_value x)
{
    if (strcmp(own_keys(b->config)->pooling, "mean") == 0 || !by__graph_has(b->graph, x)) {
        return by__nn_global_average(b, x);
    }
    by_shape shape = b->graph->values[x].shape;
    by_window window = by_window_square(1, 1, 0);
    window.size[0] = shape.dim[1];
    window.size[1] = shape.dim[2];
    return by_reshape(b->graph, by_max_pool(b->graph, x, &window),
                      BY_SHAPE(shape.dim[0], shape.dim[3]));
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const efficientnet_keys *e = own_keys(c);
    int64_t number = 0;
    int64_t width = scaled(e, STEM);
    by_graph_set_block(b->graph, 0);
    by_value x = add_activated(
        b, by__nn_images(b),
        &(named_conv){
            .conv = {.in = c->channels, .out = width, .size = 3, .stride = 2, .groups = 1},
            .prefix = "efficientnet.embeddings",
            .name = "convolution",
            .norm = "batchnorm"});
    for (int64_t stage = 0; stage < stage_count(e); stage++) {
        int64_t out = scaled(e, by__nn_size_at(&e->widths, stage));
        for (int64_t i = 0; i < repeats(e, stage); i++, number++) {
            int64_t stride = i == 0 ? by__nn_size_at(&e->strides, stage) : 1;
            by_graph_set_block(b->graph, (int)number + 1);
            x = block(b, x,
                      &(block_sizes){.number = number,
                                     .in = width,
                                     .out = out,
                                     .ratio = by__nn_size_at(&e->ratios, stage),
                                     .size = by__nn_size_at(&e->sizes, stage),
                                     .stride = stride,
                                     .adds = i > 0});
            width = out;
        }
    }
    by_graph_set_block(b->graph, -1);
    x = add_activated(
        b, x,
        &(named_conv){
            .conv = {.in = width, .out = scaled(e, TOP), .size = 1, .stride = 1, .groups = 1},
            .prefix = "efficientnet.encoder",
            .name = "top_conv",
            .norm = "top_bn"});
    x = by__nn_drop(b, pooled(b, x));
    b->model.output = by__nn_classifier(b, x, scaled(e, TOP), 0.02f, "classifier");
}

/* ---- config.json ---- */

static void write_config(json_t *out, const by_model_config *c)
{
    const efficientnet_keys *e = own_keys(c);
    json_t *entering = json_array();
    json_t *square = json_array();
    for (int64_t stage = 0; stage < stage_count(e); stage++) {
        int64_t in = stage == 0 ? STEM : by__nn_size_at(&e->widths, stage - 1);
        (void)json_array_append_new(entering, json_integer(in));
    }
    for (int64_t i = 0; i < c->layers; i++) {
        if (by__nn_list_has(&e->square, i)) {
            (void)json_array_append_new(square, json_integer(i));
        }
    }
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "initializer_range", json_real(0.02));
    (void)json_object_set_new(out, "num_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "width_coefficient", json_real(e->width_factor));
    (void)json_object_set_new(out, "depth_coefficient", json_real(e->depth_factor));
    (void)json_object_set_new(out, "depth_divisor", json_integer(DIVISOR));
    (void)json_object_set_new(out, "kernel_sizes", by__nn_sizes_json(&e->sizes));
    (void)json_object_set_new(out, "in_channels", entering);
    (void)json_object_set_new(out, "out_channels", by__nn_sizes_json(&e->widths));
    (void)json_object_set_new(out, "depthwise_padding", square);
    (void)json_object_set_new(out, "strides", by__nn_sizes_json(&e->strides));
    (void)json_object_set_new(out, "num_block_repeats", by__nn_sizes_json(&e->depths));
    (void)json_object_set_new(out, "expand_ratios", by__nn_sizes_json(&e->ratios));
    (void)json_object_set_new(out, "squeeze_expansion_ratio", json_real(e->squeeze));
    (void)json_object_set_new(out, "hidden_act", json_string("swish"));
    (void)json_object_set_new(out, "hidden_dim", json_integer(scaled(e, TOP)));
    (void)json_object_set_new(out, "pooling_type", json_string(e->pooling));
    (void)json_object_set_new(out, "batch_norm_eps", json_real(e->norm_eps));
    (void)json_object_set_new(out, "batch_norm_momentum", json_real(e->norm_momentum));
    (void)json_object_set_new(out, "dropout_rate", json_real(c->dropout));
    (void)json_object_set_new(out, "drop_connect_rate", json_real(e->drop_connect));
    by__nn_json_write_image_size(out, c);
}

/* Reads a list of sizes that transformers would take from its defaults, those of our keys. */
static by_status read_sizes(by_string_list *list, const char *name, const json_t *in,
                            const char *key, by_error *error)
{
    return json_object_get(in, key) == NULL ? BY_OK : by__nn_json_sizes(list, name, in, key, error);
}

static by_status read_stages(efficientnet_keys *e, const char *name, const json_t *in,
                             by_error *error)
{
    const json_t *entering = json_object_get(in, "in_channels");
    BY_TRY(read_sizes(&e->depths, name, in, "num_block_repeats", error));
    BY_TRY(read_sizes(&e->widths, name, in, "out_channels", error));
    BY_TRY(read_sizes(&e->strides, name, in, "strides", error));
    BY_TRY(read_sizes(&e->sizes, name, in, "kernel_sizes", error));
    BY_TRY(read_sizes(&e->ratios, name, in, "expand_ratios", error));
    const char *wrong = wrong_stages(e);
    for (int64_t stage = 0; stage < stage_count(e) && wrong == NULL && entering != NULL; stage++) {
        int64_t before = stage == 0 ? STEM : by__nn_size_at(&e->widths, stage - 1);
        bool follows = json_integer_value(json_array_get(entering, (size_t)stage)) == before;
        wrong = follows ? NULL : "\"in_channels\" is not 32 and what the stages before give";
    }
    return wrong == NULL ? BY_OK : by_error_set(error, BY_EFORMAT, "%s: %s", name, wrong);
}

static by_status read_square(efficientnet_keys *e, const char *name, const json_t *in,
                             by_error *error)
{
    const json_t *list = json_object_get(in, "depthwise_padding");
    bool has[MOST_BLOCKS] = {false};
    size_t count = (size_t)block_count(e);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        json_int_t block = json_is_integer(entry) ? json_integer_value(entry) : -1;
        if (block < 0) {
            return by_error_set(error, BY_EFORMAT, "%s: \"depthwise_padding\" is no list of blocks",
                                name);
        }
        if ((size_t)block < count) { /* published files name blocks that are not there */
            has[block] = true;
        }
    }
    return by__nn_list_fill(&e->square, has, count, error);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    efficientnet_keys *e = own_keys(c);
    const char *pooling = json_string_value(json_object_get(in, "pooling_type"));
    int64_t divisor;
    int64_t top;
    /* batch_norm_momentum is not read: published files have TensorFlow's 0.99, the share of the old
     * statistics, where PyTorch and our key mean that of the new ones. */
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", 3, error));
    BY_TRY(by__nn_json_number(&e->width_factor, name, in, "width_coefficient", 2.0, error));
    BY_TRY(by__nn_json_number(&e->depth_factor, name, in, "depth_coefficient", 3.1, error));
    BY_TRY(by__nn_json_number(&e->squeeze, name, in, "squeeze_expansion_ratio", 0.25, error));
    BY_TRY(by__nn_json_number(&e->drop_connect, name, in, "drop_connect_rate", 0.2, error));
    BY_TRY(by__nn_json_number(&e->norm_eps, name, in, "batch_norm_eps", 1e-3, error));
    BY_TRY(by__nn_json_expect(name, in, "hidden_act", "swish", error));
    BY_TRY(by__nn_json_integer(&divisor, name, in, "depth_divisor", DIVISOR, error));
    BY_TRY(by__nn_json_integer(&top, name, in, "hidden_dim", 2560, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    pooling = pooling == NULL ? "mean" : pooling;
    if (divisor != DIVISOR || !(e->width_factor > 0.0 && e->width_factor <= 16.0) ||
        !(e->depth_factor > 0.0 && e->depth_factor <= 16.0) || top != scaled(e, TOP) ||
        (strcmp(pooling, "mean") != 0 && strcmp(pooling, "max") != 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"width_coefficient\", \"depth_coefficient\", \"depth_divisor\" "
                            "(%d), \"hidden_dim\" and \"pooling_type\" do not make an EfficientNet",
                            name, DIVISOR);
    }
    BY_TRY(by__nn_set_string(&e->pooling, pooling, error));
    BY_TRY(read_stages(e, name, in, error));
    BY_TRY(read_square(e, name, in, error));
    c->layers = block_count(e);
    c->width = scaled(e, STEM);
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

const by__nn_family by__nn_family_efficientnet = {
    .kind = {.name = "efficientnet",
             .help = "EfficientNet: inverted residual blocks with squeeze-and-excitation.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(efficientnet_keys),
             .resolve = resolve},
    .base = "efficientnet.",
    .reads = "images",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published =
        (const by__nn_published[]){{"efficientnet", "EfficientNetForImageClassification", false},
                                   {0}},
};
