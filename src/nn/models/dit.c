/* DiT (Peebles and Xie 2023): a transformer over the patches of a noisy image, told the time of the
 * diffusion and a class, for task.kind diffuse. Time and class become one vector, from which each
 * block makes the shift, the scale and the gate of its attention and of its MLP (adaLN-Zero):
 * those weights and the last layer's start at zero, so that a block is the identity at first and
 * the output 0. Positions are the fixed sines and cosines of both axes. A further row of the table
 * of classes stands for no class, for guidance without a classifier (Ho and Salimans 2022).
 *
 * Weights are [out, in] and have the names of the authors' checkpoints; that of the patches is a
 * convolution's, [width, channels, patch, patch]. There is no model of this kind in transformers,
 * and config.json is our own. The output has the channels of the image: no variance is learned. */
#include <math.h>

#include "nn/nn.h"

/* Width of the sines and cosines of a time. */
#define TIME_WIDTH 256

typedef struct dit_keys {
    int64_t patch;
    double norm_eps;
} dit_keys;

static const by__config_key keys[] = {
    {"model", "patch", BY__KEY_INT, BY__OWN(dit_keys, patch), "2", 1, 65536,
     .help = "patch size in pixels; divides the height and width of the image"},
    {"model", "heads", BY__KEY_INT, BY__FIELD(model.heads), "4", 1, 65536,
     .help = "attention heads; divides width"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "4 x width", .help = "hidden width of the MLP"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(dit_keys, norm_eps), "1e-6", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of layer norm"},
    {"model", "init_std", BY__KEY_REAL, BY__FIELD(model.init_std), "-1", 0, 10,
     .derived = "the square root of 2 / (5 x width)",
     .help = "standard deviation of the initial weights that read time and class"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_dit;

static dit_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_dit.kind);
}

static by_status check_side(const by_config *config, const char *key, int64_t side, int64_t patch,
                            by_error *error)
{
    return side < 1 || side % patch == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.patch %lld does not divide %s %lld: choose one that does, "
                              "or data.resize to a multiple of it, such as %lld",
                              by__config_where(config, "model.patch", key), (long long)patch, key,
                              (long long)side, (long long)((side / patch + 1) * patch));
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const dit_keys *d = own;
    by_model_config *c = &config->model;
    c->kv_heads = c->heads;
    c->mlp_width = c->mlp_width == -1 ? 4 * c->width : c->mlp_width;
    if (c->width % 4 != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.width %lld is no multiple of 4: positions are sines and "
                            "cosines of two axes",
                            by__config_where(config, "model.width", "model.kind"),
                            (long long)c->width);
    }
    BY_TRY(check_side(config, "model.image_height", c->image_height, d->patch, error));
    BY_TRY(check_side(config, "model.image_width", c->image_width, d->patch, error));
    return by__nn_transformer_resolve(config, -1, error);
}

/* ---- layers ---- */

/* Glorot and Bengio (2010), normal. */
static by_init glorot(int64_t in, int64_t out)
{
    return (by_init){BY_INIT_NORMAL, (float)sqrt(2.0 / (double)(in + out))};
}

static by_value silu(by__nn_build *b, by_value x)
{
    return by_unary(b->graph, x, BY_FN_SILU);
}

/* Sines and cosines of one axis of the grid of patches, [side, width]: sines first. */
static by_value axis_positions(by__nn_build *b, int64_t side, int64_t width)
{
    by_value x = by__nn_waves(b, 1, side, width, BY_NONE);
    by_value parts[2] = {by_slice(b->graph, x, 2, width / 2, width / 2),
                         by_slice(b->graph, x, 2, 0, width / 2)};
    return by_concat(b->graph, parts, 2, 2);
}

/* Of all patches, [1, patches, width]: those of columns, then those of rows. */
static by_value positions(by__nn_build *b, int64_t rows, int64_t columns)
{
    int64_t half = b->config->width / 2;
    by_graph *g = b->graph;
    by_shape grid = BY_SHAPE(rows, columns, half);
    by_value down = by_reshape(g, axis_positions(b, rows, half), BY_SHAPE(rows, 1, half));
    by_value parts[2] = {by_expand(g, axis_positions(b, columns, half), grid),
                         by_expand(g, down, grid)};
    return by_reshape(g, by_concat(g, parts, 2, 2), BY_SHAPE(1, rows * columns, 2 * half));
}

static by_value embed(by__nn_build *b)
{
    const by_model_config *c = b->config;
    int64_t size = own_keys(c)->patch;
    int64_t elements = c->channels * size * size;
    by_value images =
        by__nn_input(b, "images", BY_F32,
                     BY_SHAPE(b->request->batch, c->channels, c->image_height, c->image_width));
    by_value w =
        by__nn_weight(b, "embed channel pixel pixel", BY_SHAPE(c->width, c->channels, size, size),
                      glorot(elements, c->width), "x_embedder.proj.weight");
    by_value bias =
        by__nn_weight(b, "embed", BY_SHAPE(c->width), (by_init){0}, "x_embedder.proj.bias");
    w = by_reshape(b->graph, w, BY_SHAPE(c->width, elements));
    by_value x = by_linear(b->graph, by_patches(b->graph, images, size), w, bias, true);
    by_value places = positions(b, c->image_height / size, c->image_width / size);
    return by__nn_drop(b, by_add(b->graph, x, places));
}

/* The vector of time and class, [batch, width]. */
static by_value condition(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const by_init init = by__nn_init_normal(b);
    int64_t batch = b->request->batch;
    by_value times = by__nn_input(b, "timesteps", BY_I32, BY_SHAPE(batch));
    by_value classes = by__nn_input(b, "classes", BY_I32, BY_SHAPE(batch));
    by_value x = by__nn_waves(b, batch, 1, TIME_WIDTH, times);
    x = by_reshape(b->graph, x, BY_SHAPE(batch, TIME_WIDTH));
    x = by__nn_encoder_linear(b, x, TIME_WIDTH, c->width, "embed time", "embed", init,
                              "t_embedder.mlp.0");
    x = by__nn_encoder_linear(b, silu(b, x), c->width, c->width, "embed time", "embed", init,
                              "t_embedder.mlp.2");
    by_value table = by__nn_weight(b, "class embed", BY_SHAPE(c->outputs + 1, c->width), init,
                                   "y_embedder.embedding_table.weight");
    return by_add(b->graph, x, by_embedding(b->graph, classes, table));
}

/* `count` vectors of each sample that shift, scale and gate, [batch, count, width]. */
static by_value modulation(by__nn_build *b, by_value activated, int64_t count, const char *prefix)
{
    int64_t width = b->config->width;
    by_value x = by__nn_encoder_linear(b, activated, width, count * width, "modulation embed",
                                       "modulation", (by_init){0}, prefix);
    return by_reshape(b->graph, x, BY_SHAPE(b->request->batch, count, width));
}

static by_value one_of(by__nn_build *b, by_value modulations, int64_t i)
{
    return by_slice(b->graph, modulations, 1, i, 1);
}

/* Layer norm without weights of its own, then x (1 + scale) + shift with vectors `first` and
 * `first` + 1 of the sample. */
static by_value modulated(by__nn_build *b, by_value x, by_value modulations, int64_t first)
{
    by_graph *g = b->graph;
    by_shape shape = BY_SHAPE(b->config->width);
    by_value one = by_fill(g, BY_F32, shape, 1.0f);
    x = by_layer_norm(g, x, one, by_fill(g, BY_F32, shape, 0.0f),
                      (float)own_keys(b->config)->norm_eps);
    by_value scale = by_add(g, one_of(b, modulations, first + 1), one);
    return by_add(g, by_mul(g, x, scale), one_of(b, modulations, first));
}

static by_value block(by__nn_build *b, by_value x, by_value activated, int layer)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    char name[64];
    by_graph_set_block(g, layer);
    (void)snprintf(name, sizeof name, "blocks.%d.adaLN_modulation.1", layer);
    by_value m = modulation(b, activated, 6, name);
    by_value y = modulated(b, x, m, 0);
    (void)snprintf(name, sizeof name, "blocks.%d.attn.qkv", layer);
    y = by__nn_encoder_linear(b, y, c->width, 3 * c->width, "qkv embed", "qkv",
                              glorot(c->width, 3 * c->width), name);
    by_attention_mask all = BY_ATTENTION_CAUSAL;
    all.bidirectional = true;
    y = by_attention_masked(g, y, BY_NONE, BY_NONE, c->heads, c->heads, &all);
    (void)snprintf(name, sizeof name, "blocks.%d.attn.proj", layer);
    y = by__nn_encoder_linear(b, y, c->width, c->width, "embed heads", "embed",
                              glorot(c->width, c->width), name);
    x = by_add(g, x, by_mul(g, by__nn_drop(b, y), one_of(b, m, 2)));
    y = modulated(b, x, m, 3);
    (void)snprintf(name, sizeof name, "blocks.%d.mlp.fc1", layer);
    y = by__nn_encoder_linear(b, y, c->width, c->mlp_width, "mlp embed", "mlp",
                              glorot(c->width, c->mlp_width), name);
    y = by_unary(g, y, BY_FN_GELU);
    (void)snprintf(name, sizeof name, "blocks.%d.mlp.fc2", layer);
    y = by__nn_encoder_linear(b, y, c->mlp_width, c->width, "embed mlp", "embed",
                              glorot(c->mlp_width, c->width), name);
    x = by_add(g, x, by_mul(g, by__nn_drop(b, y), one_of(b, m, 5)));
    by_graph_set_block(g, -1);
    return x;
}

/* Patches [batch, patches, patch patch channels] as images [batch, channels, height, width]. */
static by_value unpatchify(by__nn_build *b, by_value x)
{
    static const int order[] = {0, 5, 1, 3, 2, 4};
    const by_model_config *c = b->config;
    int64_t size = own_keys(c)->patch;
    int64_t batch = b->request->batch;
    by_shape parts =
        BY_SHAPE(batch, c->image_height / size, c->image_width / size, size, size, c->channels);
    x = by_permute(b->graph, by_reshape(b->graph, x, parts), order);
    return by_reshape(b->graph, x, BY_SHAPE(batch, c->channels, c->image_height, c->image_width));
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    int64_t size = own_keys(c)->patch;
    by_value x = embed(b);
    by_value activated = silu(b, condition(b));
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, activated, layer);
    }
    by_value m = modulation(b, activated, 2, "final_layer.adaLN_modulation.1");
    x = by__nn_encoder_linear(b, modulated(b, x, m, 0), c->width, size * size * c->channels,
                              "pixel embed", "pixel", (by_init){0}, "final_layer.linear");
    b->model.output = unpatchify(b, x);
}

/* ---- config.json ---- */

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_json_write_labels(out, c->outputs);
    (void)json_object_set_new(out, "hidden_size", json_integer(c->width));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "num_attention_heads", json_integer(c->heads));
    (void)json_object_set_new(out, "intermediate_size", json_integer(c->mlp_width));
    by__nn_json_write_image_size(out, c);
    (void)json_object_set_new(out, "patch_size", json_integer(own_keys(c)->patch));
    (void)json_object_set_new(out, "num_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "layer_norm_eps", json_real(own_keys(c)->norm_eps));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    dit_keys *d = own_keys(c);
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_size", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "num_attention_heads", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->mlp_width, name, in, "intermediate_size", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&d->patch, name, in, "patch_size", BY__REQUIRED, error));
    BY_TRY(by__nn_json_number(&d->norm_eps, name, in, "layer_norm_eps", 1e-6, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    c->kv_heads = c->heads;
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

static const char *usual_task(const by_model_config *c)
{
    BY_UNUSED(c);
    return "diffuse";
}

const by__nn_family by__nn_family_dit = {
    .kind = {.name = "dit",
             .help = "DiT: removes noise from images, told the time and a class, for task.kind "
                     "diffuse.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list},
             .size = sizeof(dit_keys),
             .resolve = resolve},
    .usual_task = usual_task,
    .reads = "images",
    .adapted = "qkv",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"dit", "DiT", false}, {0}},
};
