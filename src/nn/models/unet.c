/* U-Net (Ronneberger et al. 2015), for an output at each pixel: levels of two convolutions of 3 x
 * 3, each followed by a norm and ReLU, with pools that halve the sides between them; then back up,
 * each level beside what the one of its size had made on the way down. Convolutions keep the sides,
 * as most implementations have it. There is no model of this kind in transformers: names and
 * config.json are our own. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

typedef struct unet_keys {
    int64_t depth;
    char *up;
    char *norm;
    int64_t groups;
    double norm_eps;
    double norm_momentum;
} unet_keys;

static const by__config_key keys[] = {
    {"model", "depth", BY__KEY_INT, BY__OWN(unet_keys, depth), "4", 1, 8,
     .help = "how often the sides are halved, which doubles the channels; the sides are multiples "
             "of 2^depth"},
    {"model", "up", BY__KEY_TEXT, BY__OWN(unet_keys, up), "transposed",
     .choices = "transposed|bilinear|nearest",
     .help = "how sides are doubled: a transposed convolution of 2 x 2 with stride 2, or a "
             "convolution of 1 x 1 after interpolation"},
    {"model", "channel_norm", BY__KEY_TEXT, BY__OWN(unet_keys, norm), "batch",
     .choices = "batch|group",
     .help = "norm of channels: batch, or group norm, which does not depend on the micro-batch"},
    {"model", "norm_groups", BY__KEY_INT, BY__OWN(unet_keys, groups), "8", 1, 65536,
     .help = "groups of group norm, which divide model.width"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(unet_keys, norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of the norm"},
    {"model", "norm_momentum", BY__KEY_REAL, BY__OWN(unet_keys, norm_momentum), "0.1", 0, 1,
     BY__ABOVE_MIN, .help = "weight of a step's statistics in the running ones of batch norm"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_unet;

static unet_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_unet.kind);
}

static bool has_groups(const unet_keys *u)
{
    return strcmp(u->norm, "group") == 0;
}

static by_status check_side(const by_config *config, const unet_keys *u, const char *key,
                            int64_t side, by_error *error)
{
    int64_t unit = (int64_t)1 << u->depth;
    return side < 1 || side % unit == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: %s is %lld, but model.depth %lld halves it so often: it must be "
                              "a multiple of %lld; resize with data.resize",
                              by__config_where(config, key, key), key, (long long)side,
                              (long long)u->depth, (long long)unit);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const unet_keys *u = own;
    by_model_config *m = &config->model;
    if (has_groups(u) && m->width % u->groups != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.width %lld is no multiple of model.norm_groups %lld",
                            by__config_where(config, "model.norm_groups", "model.norm_groups"),
                            (long long)m->width, (long long)u->groups);
    }
    m->layers = 2 * u->depth + 1;
    BY_TRY(check_side(config, u, "model.image_height", m->image_height, error));
    return check_side(config, u, "model.image_width", m->image_width, error);
}

static by_value normalize(by__nn_build *b, by_value x, int64_t width, const char *prefix)
{
    const unet_keys *u = own_keys(b->config);
    if (!has_groups(u)) {
        const by__nn_batch_norm norm = {.prefix = prefix,
                                        .axes = "embed",
                                        .width = width,
                                        .eps = (float)u->norm_eps,
                                        .momentum = (float)u->norm_momentum,
                                        .end = {BY_NONE, true, 0.0f}};
        return by__nn_batch_normalize(b, x, &norm);
    }
    by_value weight = by__nn_weight(b, "embed", BY_SHAPE(width), (by_init){.kind = BY_INIT_ONE},
                                    "%s.weight", prefix);
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(width), (by_init){0}, "%s.bias", prefix);
    x = by_group_norm(b->graph, x, weight, bias, u->groups, (float)u->norm_eps);
    return by_unary(b->graph, x, BY_FN_RELU);
}

/* The two convolutions of a level. */
static by_value level(by__nn_build *b, by_value x, int64_t in, int64_t out, const char *prefix)
{
    char name[96];
    for (int i = 0; i < 2; i++) {
        const by__nn_conv conv = {
            .in = i == 0 ? in : out, .out = out, .size = 3, .stride = 1, .padding = 1, .groups = 1};
        (void)snprintf(name, sizeof name, "%s.%d.convolution", prefix, i);
        x = by__nn_convolve(b, x, &conv, false, name);
        (void)snprintf(name, sizeof name, "%s.%d.normalization", prefix, i);
        x = normalize(b, x, out, name);
    }
    return x;
}

/* Doubles the sides and halves the channels. */
static by_value ascend(by__nn_build *b, by_value x, int64_t in, const char *prefix)
{
    const unet_keys *u = own_keys(b->config);
    int64_t out = in / 2;
    if (strcmp(u->up, "transposed") == 0) {
        const by_window window = by_window_square(2, 2, 0);
        by_value w =
            by__nn_weight(b, "embed channel pixel pixel", BY_SHAPE(in, out, 2, 2),
                          (by_init){BY_INIT_NORMAL, 1.0f / sqrtf((float)in)}, "%s.weight", prefix);
        by_value bias = by__nn_weight(b, "embed", BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
        return by_conv_transposed(b->graph, x, w, bias, &window, 1);
    }
    const by__nn_conv narrow = {
        .in = in, .out = out, .size = 1, .stride = 1, .groups = 1, .std = 1.0f / sqrtf((float)in)};
    if (!by__graph_has(b->graph, x)) {
        return x;
    }
    /* Narrower before than after: the two commute, and there is a quarter of the pixels. */
    x = by__nn_convolve(b, x, &narrow, true, prefix);
    by_shape shape = by__graph_has(b->graph, x) ? b->graph->values[x].shape : (by_shape){0};
    return by_upsample(b->graph, x, 2 * shape.dim[1], 2 * shape.dim[2],
                       strcmp(u->up, "bilinear") == 0);
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const by_window pool = by_window_square(2, 2, 0);
    int64_t depth = own_keys(c)->depth;
    int64_t width = c->width;
    by_value kept[8];
    char name[48];
    by_value x = by__nn_images(b);
    for (int64_t i = 0; i < depth; i++, width *= 2) {
        by_graph_set_block(b->graph, (int)i);
        (void)snprintf(name, sizeof name, "encoder.%lld", (long long)i);
        kept[i] = level(b, x, i == 0 ? c->channels : width / 2, width, name);
        x = by_max_pool(b->graph, kept[i], &pool);
    }
    by_graph_set_block(b->graph, (int)depth);
    x = by__nn_drop(b, level(b, x, width / 2, width, "middle"));
    for (int64_t i = depth; i-- > 0; width /= 2) {
        by_graph_set_block(b->graph, (int)(2 * depth - i));
        (void)snprintf(name, sizeof name, "decoder.%lld.up", (long long)i);
        by_value parts[2] = {kept[i], ascend(b, x, width, name)};
        x = by_concat(b->graph, parts, 2, 3);
        (void)snprintf(name, sizeof name, "decoder.%lld", (long long)i);
        x = level(b, x, width, width / 2, name);
    }
    by_graph_set_block(b->graph, -1);
    const by__nn_conv head = {.in = width,
                              .out = c->outputs,
                              .size = 1,
                              .stride = 1,
                              .groups = 1,
                              .std = 1.0f / sqrtf((float)width)};
    b->model.output = by__nn_convolve(b, x, &head, true, "classifier");
}

static void write_config(json_t *out, const by_model_config *c)
{
    const unet_keys *u = own_keys(c);
    (void)json_object_del(out, "initializer_range"); /* of no part of the model */
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "num_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "width", json_integer(c->width));
    (void)json_object_set_new(out, "depth", json_integer(u->depth));
    (void)json_object_set_new(out, "up", json_string(u->up));
    (void)json_object_set_new(out, "channel_norm", json_string(u->norm));
    (void)json_object_set_new(out, "norm_groups", json_integer(u->groups));
    (void)json_object_set_new(out, "norm_eps", json_real(u->norm_eps));
    by__nn_json_write_image_size(out, c);
}

/* Reads a choice of the keys. */
static by_status read_choice(char **out, const char *name, const json_t *in, const char *key,
                             const char *const *choices, by_error *error)
{
    const char *text = json_string_value(json_object_get(in, key));
    for (size_t i = 0; choices[i] != NULL && text != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            return by__nn_set_string(out, text, error);
        }
    }
    return by_error_set(error, BY_EFORMAT, "%s: \"%s\" is \"%s\", none of what a U-Net may have",
                        name, key, text == NULL ? "(missing)" : text);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    static const char *const ups[] = {"transposed", "bilinear", "nearest", NULL};
    static const char *const norms[] = {"batch", "group", NULL};
    unet_keys *u = own_keys(c);
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "width", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&u->depth, name, in, "depth", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&u->groups, name, in, "norm_groups", BY__REQUIRED, error));
    BY_TRY(by__nn_json_number(&u->norm_eps, name, in, "norm_eps", 1e-5, error));
    BY_TRY(read_choice(&u->up, name, in, "up", ups, error));
    BY_TRY(read_choice(&u->norm, name, in, "channel_norm", norms, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    if (u->depth < 1 || u->depth > 8 || u->groups < 1) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"depth\" is not from 1 to 8, or there are no "
                            "groups",
                            name);
    }
    c->layers = 2 * u->depth + 1;
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

static const char *usual_task(const by_model_config *c)
{
    BY_UNUSED(c);
    return "segment";
}

const by__nn_family by__nn_family_unet = {
    .kind = {.name = "unet",
             .help = "U-Net: an output at each pixel of an image, for task.kind segment.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(unet_keys),
             .resolve = resolve},
    .usual_task = usual_task,
    .reads = "images",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"unet", "UNetForSemanticSegmentation", false}, {0}},
};
