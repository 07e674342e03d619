/* The U-Net of DDPM (Ho et al. 2020): it removes noise from images, told the time and a class, for
 * task.kind diffuse. Levels of residual blocks (group norm, SiLU, convolutions of 3 x 3) halve the
 * sides on the way down and double them on the way up, where each block also reads what the one of
 * its size had made on the way down; some levels, and the middle, attend over all pixels. Time and
 * class become one vector, which a linear layer adds to the channels of each block. A further row
 * of the table of classes stands for no class, for guidance without a classifier (Ho and Salimans
 * 2022). The second convolution of a block, the projection of attention and the last convolution
 * start at zero.
 *
 * Parameters have the names and shapes of diffusers' UNet2DModel with a class embedding. */
#include <math.h>

#include "nn/nn.h"

#define LEVELS 8
/* Outputs of blocks that are read again on the way up, at most. */
#define MOST_DEPTH 7
#define MOST_KEPT  (LEVELS * (MOST_DEPTH + 1))

typedef struct unet2d_keys {
    by_string_list multipliers;
    by_string_list attended;
    int64_t depth;
    int64_t head_width;
    int64_t groups;
    double norm_eps;
} unet2d_keys;

static const by__config_key keys[] = {
    {"model", "multipliers", BY__KEY_TEXTS, BY__OWN(unet2d_keys, multipliers), "[1, 2, 2]",
     .help = "channels of each level, in multiples of model.width; between two levels the sides "
             "are halved"},
    {"model", "attended", BY__KEY_TEXTS, BY__OWN(unet2d_keys, attended), "[3]",
     .help = "levels, from 1 on, whose blocks attention follows; that in the middle is always "
             "there"},
    {"model", "depth", BY__KEY_INT, BY__OWN(unet2d_keys, depth), "2", 1, MOST_DEPTH,
     .help = "residual blocks of a level on the way down; on the way up there is one more"},
    {"model", "head_width", BY__KEY_INT, BY__OWN(unet2d_keys, head_width), "8", 1, 65536,
     .help = "channels of an attention head"},
    {"model", "norm_groups", BY__KEY_INT, BY__OWN(unet2d_keys, groups), "8", 1, 65536,
     .help = "groups of group norm, which divide model.width"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(unet2d_keys, norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of the norm"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_unet2d;

static unet2d_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_unet2d.kind);
}

static int64_t level_count(const by_model_config *c)
{
    return (int64_t)own_keys(c)->multipliers.count;
}

static int64_t level_width(const by_model_config *c, int64_t level)
{
    return c->width * by__nn_size_at(&own_keys(c)->multipliers, level);
}

/* Whether attention follows the blocks of a level, from 0 on. */
static bool is_attended(const by_model_config *c, int64_t level)
{
    const by_string_list *list = &own_keys(c)->attended;
    bool found = false;
    for (size_t i = 0; i < list->count; i++) {
        found = found || by__nn_size_at(list, (int64_t)i) == level + 1;
    }
    return found;
}

/* ---- what is possible ---- */

static by_status check_side(const by_config *config, const char *key, int64_t side, by_error *error)
{
    int64_t unit = (int64_t)1 << (level_count(&config->model) - 1);
    return side < 1 || side % unit == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: %s is %lld, but the levels of model.multipliers halve it so "
                              "often that it must be a multiple of %lld; resize with data.resize",
                              by__config_where(config, key, key), key, (long long)side,
                              (long long)unit);
}

static by_status check_widths(const by_config *config, const unet2d_keys *u, by_error *error)
{
    const by_model_config *m = &config->model;
    int64_t levels = level_count(m);
    if (m->width % u->groups != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.width %lld is no multiple of model.norm_groups %lld",
                            by__config_where(config, "model.norm_groups", "model.kind"),
                            (long long)m->width, (long long)u->groups);
    }
    for (int64_t i = 0; i < levels; i++) {
        bool attends = is_attended(m, i) || i == levels - 1;
        if (attends && level_width(m, i) % u->head_width != 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: level %lld attends with %lld channels, which are no multiple "
                                "of model.head_width %lld",
                                by__config_where(config, "model.head_width", "model.kind"),
                                (long long)i + 1, (long long)level_width(m, i),
                                (long long)u->head_width);
        }
    }
    return BY_OK;
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const unet2d_keys *u = own;
    by_model_config *m = &config->model;
    BY_TRY(by__nn_sizes_check(config, "model.multipliers", &u->multipliers, error));
    BY_TRY(by__nn_sizes_check(config, "model.attended", &u->attended, error));
    if (u->multipliers.count < 1 || u->multipliers.count > LEVELS) {
        return by_error_set(error, BY_ECONFIG, "%s: model.multipliers: there are 1 to %d levels",
                            by__config_where(config, "model.multipliers", "model.kind"), LEVELS);
    }
    for (size_t i = 0; i < u->attended.count; i++) {
        if (by__nn_size_at(&u->attended, (int64_t)i) > level_count(m)) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: model.attended: there is no level %s of %zu",
                                by__config_where(config, "model.attended", "model.kind"),
                                u->attended.items[i], u->multipliers.count);
        }
    }
    m->layers = 2 * level_count(m) + 1;
    BY_TRY(check_widths(config, u, error));
    BY_TRY(check_side(config, "model.image_height", m->image_height, error));
    return check_side(config, "model.image_width", m->image_width, error);
}

/* ---- layers ---- */

/* Images at one level, and the vector that blocks are told. */
typedef struct unet2d_state {
    by_value x; /* [B, height, width, channels] */
    int64_t height, width, channels;
    by_value told; /* SiLU of the vector, [B, 4 width of the model] */
} unet2d_state;

/* What blocks on the way down have made, last in, first out. */
typedef struct unet2d_kept {
    by_value x[MOST_KEPT + 1];
    int64_t channels[MOST_KEPT + 1];
    int count;
} unet2d_kept;

static by_value silu(by__nn_build *b, by_value x)
{
    return by_unary(b->graph, x, BY_FN_SILU);
}

static by_value normalize(by__nn_build *b, by_value x, int64_t channels, const char *prefix,
                          const char *part)
{
    const unet2d_keys *u = own_keys(b->config);
    by_value weight = by__nn_weight(b, "embed", BY_SHAPE(channels), (by_init){.kind = BY_INIT_ONE},
                                    "%s%s.weight", prefix, part);
    by_value bias =
        by__nn_weight(b, "embed", BY_SHAPE(channels), (by_init){0}, "%s%s.bias", prefix, part);
    return by_group_norm(b->graph, x, weight, bias, u->groups, (float)u->norm_eps);
}

/* A convolution of 3 x 3 that keeps the sides, or of 1 x 1. */
static by_value convolve(by__nn_build *b, by_value x, int64_t in, int64_t out, int64_t size,
                         int64_t stride, bool zero, const char *name)
{
    const by_window window = by_window_square(size, stride, size / 2);
    by_init init = {.kind = BY_INIT_ZERO};
    if (!zero) {
        init = (by_init){BY_INIT_NORMAL, sqrtf(1.0f / (float)(in * size * size))};
    }
    by_value weight = by__nn_weight(b, "embed channel pixel pixel", BY_SHAPE(out, in, size, size),
                                    init, "%s.weight", name);
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(out), (by_init){0}, "%s.bias", name);
    return by_conv(b->graph, x, weight, bias, &window, 1);
}

static by_value linear(by__nn_build *b, by_value x, int64_t in, int64_t out, bool zero,
                       const char *name)
{
    by_init init = {.kind = BY_INIT_ZERO};
    if (!zero) {
        init = (by_init){BY_INIT_NORMAL, sqrtf(1.0f / (float)in)};
    }
    return by__nn_encoder_linear(b, x, in, out, "embed channel", "embed", init, name);
}

/* A residual block; the channels become `out`. */
static void add_block(by__nn_build *b, unet2d_state *s, int64_t out, const char *prefix)
{
    by_graph *g = b->graph;
    char name[96];
    by_value x = silu(b, normalize(b, s->x, s->channels, prefix, ".norm1"));
    (void)snprintf(name, sizeof name, "%s.conv1", prefix);
    x = convolve(b, x, s->channels, out, 3, 1, false, name);
    (void)snprintf(name, sizeof name, "%s.time_emb_proj", prefix);
    by_value told = linear(b, s->told, 4 * b->config->width, out, false, name);
    x = by_add(g, x, by_reshape(g, told, BY_SHAPE(b->request->batch, 1, 1, out)));
    x = by__nn_drop(b, silu(b, normalize(b, x, out, prefix, ".norm2")));
    (void)snprintf(name, sizeof name, "%s.conv2", prefix);
    x = convolve(b, x, out, out, 3, 1, true, name);
    if (s->channels != out) {
        (void)snprintf(name, sizeof name, "%s.conv_shortcut", prefix);
        s->x = convolve(b, s->x, s->channels, out, 1, 1, false, name);
    }
    s->x = by_add(g, s->x, x);
    s->channels = out;
}

/* Attention of each pixel over all. */
static void add_attention(by__nn_build *b, unet2d_state *s, const char *prefix)
{
    static const char *const parts[3] = {"to_q", "to_k", "to_v"};
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t heads = s->channels / own_keys(b->config)->head_width;
    by_value qkv[3];
    char name[96];
    by_attention_mask all = BY_ATTENTION_CAUSAL;
    all.bidirectional = true;
    by_value x = normalize(b, s->x, s->channels, prefix, ".group_norm");
    x = by_reshape(g, x, BY_SHAPE(batch, s->height * s->width, s->channels));
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "%s.%s", prefix, parts[i]);
        qkv[i] = linear(b, x, s->channels, s->channels, false, name);
    }
    x = by_attention_masked(g, qkv[0], qkv[1], qkv[2], heads, heads, &all);
    (void)snprintf(name, sizeof name, "%s.to_out.0", prefix);
    x = linear(b, x, s->channels, s->channels, true, name);
    s->x = by_add(g, s->x, by_reshape(g, x, BY_SHAPE(batch, s->height, s->width, s->channels)));
}

static void keep(unet2d_kept *k, const unet2d_state *s)
{
    k->x[k->count] = s->x;
    k->channels[k->count++] = s->channels;
}

/* Block i of a level, and its attention. */
static void add_layer(by__nn_build *b, unet2d_state *s, int64_t level, int64_t i,
                      const char *prefix)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s.resnets.%lld", prefix, (long long)i);
    add_block(b, s, level_width(b->config, level), name);
    if (is_attended(b->config, level)) {
        (void)snprintf(name, sizeof name, "%s.attentions.%lld", prefix, (long long)i);
        add_attention(b, s, name);
    }
}

static void descend(by__nn_build *b, unet2d_state *s, unet2d_kept *kept, int64_t level)
{
    char prefix[48];
    char name[80];
    (void)snprintf(prefix, sizeof prefix, "down_blocks.%lld", (long long)level);
    for (int64_t i = 0; i < own_keys(b->config)->depth; i++) {
        add_layer(b, s, level, i, prefix);
        keep(kept, s);
    }
    if (level + 1 < level_count(b->config)) {
        (void)snprintf(name, sizeof name, "%s.downsamplers.0.conv", prefix);
        s->x = convolve(b, s->x, s->channels, s->channels, 3, 2, false, name);
        s->height /= 2;
        s->width /= 2;
        keep(kept, s);
    }
}

/* Levels are numbered from the coarsest on the way up. */
static void ascend(by__nn_build *b, unet2d_state *s, unet2d_kept *kept, int64_t level)
{
    char prefix[48];
    char name[80];
    int64_t number = level_count(b->config) - 1 - level;
    (void)snprintf(prefix, sizeof prefix, "up_blocks.%lld", (long long)number);
    for (int64_t i = 0; i <= own_keys(b->config)->depth; i++) {
        kept->count--;
        by_value parts[2] = {s->x, kept->x[kept->count]};
        s->x = by_concat(b->graph, parts, 2, 3);
        s->channels += kept->channels[kept->count];
        add_layer(b, s, level, i, prefix);
    }
    if (level > 0) {
        s->height *= 2;
        s->width *= 2;
        (void)snprintf(name, sizeof name, "%s.upsamplers.0.conv", prefix);
        s->x = by_upsample(b->graph, s->x, s->height, s->width, false);
        s->x = convolve(b, s->x, s->channels, s->channels, 3, 1, false, name);
    }
}

/* The vector of time and class. */
static by_value told_of(by__nn_build *b)
{
    const by_model_config *c = b->config;
    int64_t batch = b->request->batch;
    by_value times = by__nn_input(b, "timesteps", BY_I32, BY_SHAPE(batch));
    by_value classes = by__nn_input(b, "classes", BY_I32, BY_SHAPE(batch));
    by_value x =
        by_reshape(b->graph, by__nn_waves(b, batch, 1, c->width, times), BY_SHAPE(batch, c->width));
    x = linear(b, x, c->width, 4 * c->width, false, "time_embedding.linear_1");
    x = linear(b, silu(b, x), 4 * c->width, 4 * c->width, false, "time_embedding.linear_2");
    by_value table = by__nn_weight(b, "class embed", BY_SHAPE(c->outputs + 1, 4 * c->width),
                                   (by_init){BY_INIT_NORMAL, 1.0f}, "class_embedding.weight");
    return silu(b, by_add(b->graph, x, by_embedding(b->graph, classes, table)));
}

static void body(by__nn_build *b)
{
    static const int first[] = {0, 3, 1, 2};
    const by_model_config *c = b->config;
    int64_t levels = level_count(c);
    unet2d_kept kept = {.count = 0};
    unet2d_state s = {.height = c->image_height,
                      .width = c->image_width,
                      .channels = c->width,
                      .told = told_of(b)};
    s.x = convolve(b, by__nn_images(b), c->channels, c->width, 3, 1, false, "conv_in");
    keep(&kept, &s);
    for (int64_t level = 0; level < levels; level++) {
        by_graph_set_block(b->graph, (int)level);
        descend(b, &s, &kept, level);
    }
    by_graph_set_block(b->graph, (int)levels);
    add_block(b, &s, s.channels, "mid_block.resnets.0");
    add_attention(b, &s, "mid_block.attentions.0");
    add_block(b, &s, s.channels, "mid_block.resnets.1");
    for (int64_t level = levels; level-- > 0;) {
        by_graph_set_block(b->graph, (int)(2 * levels - level));
        ascend(b, &s, &kept, level);
    }
    by_graph_set_block(b->graph, -1);
    s.x = silu(b, normalize(b, s.x, s.channels, "conv_norm_out", ""));
    s.x = convolve(b, s.x, s.channels, c->channels, 3, 1, true, "conv_out");
    b->model.output = by_permute(b->graph, s.x, first);
}

/* ---- config.json ---- */

static void write_config(json_t *out, const by_model_config *c)
{
    const unet2d_keys *u = own_keys(c);
    json_t *widths = json_array();
    for (int64_t i = 0; i < level_count(c); i++) {
        (void)json_array_append_new(widths, json_integer(level_width(c, i)));
    }
    (void)json_object_del(out, "initializer_range"); /* of no part of the model */
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "in_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "out_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "block_out_channels", widths);
    (void)json_object_set_new(out, "attended_levels", by__nn_sizes_json(&u->attended));
    (void)json_object_set_new(out, "layers_per_block", json_integer(u->depth));
    (void)json_object_set_new(out, "attention_head_dim", json_integer(u->head_width));
    (void)json_object_set_new(out, "norm_num_groups", json_integer(u->groups));
    (void)json_object_set_new(out, "norm_eps", json_real(u->norm_eps));
    (void)json_object_set_new(out, "num_class_embeds", json_integer(c->outputs + 1));
    (void)json_object_set_new(out, "dropout", json_real(c->dropout));
    by__nn_json_write_image_size(out, c);
}

/* Turns channels of levels into multiples of those of the first one. */
static by_status divide_widths(by_model_config *c, const char *name, by_error *error)
{
    by_string_list *list = &own_keys(c)->multipliers;
    c->width = list->count > 0 ? by__nn_size_at(list, 0) : 0;
    for (size_t i = 0; i < list->count; i++) {
        char text[32];
        int64_t width = by__nn_size_at(list, (int64_t)i);
        if (width % c->width != 0) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: \"block_out_channels\" has %lld, which is no multiple of the "
                                "first one, %lld",
                                name, (long long)width, (long long)c->width);
        }
        (void)snprintf(text, sizeof text, "%lld", (long long)(width / c->width));
        BY_TRY(by__nn_set_string(&list->items[i], text, error));
    }
    return list->count >= 1 && list->count <= LEVELS
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s: \"block_out_channels\" has not 1 to %d levels", name, LEVELS);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    unet2d_keys *u = own_keys(c);
    BY_TRY(by__nn_json_sizes(&u->multipliers, name, in, "block_out_channels", error));
    BY_TRY(divide_widths(c, name, error));
    BY_TRY(by__nn_json_sizes(&u->attended, name, in, "attended_levels", error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "in_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&u->depth, name, in, "layers_per_block", BY__REQUIRED, error));
    BY_TRY(
        by__nn_json_integer(&u->head_width, name, in, "attention_head_dim", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&u->groups, name, in, "norm_num_groups", BY__REQUIRED, error));
    BY_TRY(by__nn_json_number(&u->norm_eps, name, in, "norm_eps", 1e-5, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    if (u->depth < 1 || u->depth > MOST_DEPTH || u->groups < 1 || u->head_width < 1) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"layers_per_block\" is not from 1 to %d, or \"norm_num_groups\" "
                            "or \"attention_head_dim\" is not positive",
                            name, MOST_DEPTH);
    }
    c->layers = 2 * level_count(c) + 1;
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

static const char *usual_task(const by_model_config *c)
{
    BY_UNUSED(c);
    return "diffuse";
}

const by__nn_family by__nn_family_unet2d = {
    .kind = {.name = "unet2d",
             .help = "The U-Net of DDPM: removes noise from images, told the time and a class, for "
                     "task.kind diffuse.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(unet2d_keys),
             .resolve = resolve},
    .usual_task = usual_task,
    .reads = "images",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"unet2d", "UNet2DModel", false}, {0}},
};
