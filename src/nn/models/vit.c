/* ViT (Dosovitskiy et al. 2021): square patches of an image as tokens, preceded by a class token,
 * learned positions, pre-norm blocks with layer norm, attention over all tokens and GELU (the exact
 * form). A linear classifier reads the class token. Weights are [out, in], as in torch.nn.Linear;
 * that of the patches is a convolution's, [width, channels, patch, patch]. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

#define POSITIONS "vit.embeddings.position_embeddings"

typedef struct vit_keys {
    int64_t patch;
    int64_t qkv_bias;
    double norm_eps;
} vit_keys;

static const by__config_key keys[] = {
    {"model", "patch", BY__KEY_INT, BY__OWN(vit_keys, patch), "16", 1, 65536,
     .help = "patch size in pixels; divides the height and width of the image"},
    {"model", "heads", BY__KEY_INT, BY__FIELD(model.heads), "4", 1, 65536,
     .help = "attention heads; divides width"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "4 x width", .help = "hidden width of the MLP"},
    {"model", "qkv_bias", BY__KEY_SWITCH, BY__OWN(vit_keys, qkv_bias), "true",
     .help = "biases of the query, key and value projections"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(vit_keys, norm_eps), "1e-12", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of layer norm"},
    {"model", "init_std", BY__KEY_REAL, BY__FIELD(model.init_std), "-1", 0, 10,
     .derived = "the square root of 2 / (5 x width)",
     .help = "standard deviation of the initial weights"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_vit;

static vit_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_vit.kind);
}

/* Refuses a size: "vit.yaml:3: patch 4 does not divide image_height 30". */
static by_status check_side(const by_config *config, const char *name, int64_t side, int64_t patch,
                            by_error *error)
{
    char path[64];
    if (side == -1 || side % patch == 0) {
        return BY_OK;
    }
    (void)snprintf(path, sizeof path, "model.%s", name);
    return by_error_set(
        error, BY_ECONFIG,
        "%s: patch %lld does not divide %s %lld: choose a model.patch that does, or "
        "data.resize to a multiple of it, such as %lld",
        by__config_where(config, "model.patch", path), (long long)patch, name, (long long)side,
        (long long)((side / patch + 1) * patch));
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const vit_keys *v = own;
    by_model_config *c = &config->model;
    c->kv_heads = c->heads;
    c->mlp_width = c->mlp_width == -1 ? 4 * c->width : c->mlp_width;
    BY_TRY(check_side(config, "image_height", c->image_height, v->patch, error));
    BY_TRY(check_side(config, "image_width", c->image_width, v->patch, error));
    return by__nn_transformer_resolve(config, -1, error);
}

static by_value norm(by__nn_build *b, by_value x, const char *prefix)
{
    return by__nn_encoder_norm(b, x, own_keys(b->config)->norm_eps, prefix);
}

/* The class token and the patches, with their positions: [B, 1 + patches, width]. */
static by_value embed(by__nn_build *b)
{
    const by_model_config *c = b->config;
    int64_t size = own_keys(c)->patch;
    int64_t batch = b->request->batch;
    by_init init = by__nn_init_normal(b);
    by_graph *g = b->graph;
    by_value images = by__nn_input(b, "images", BY_F32,
                                   BY_SHAPE(batch, c->channels, c->image_height, c->image_width));
    by_value class_token = by__nn_weight(b, "token token embed", BY_SHAPE(1, 1, c->width), init,
                                         "vit.embeddings.cls_token");
    int64_t tokens = 1 + c->image_height / size * (c->image_width / size);
    by_value w =
        by__nn_weight(b, "embed channel pixel pixel", BY_SHAPE(c->width, c->channels, size, size),
                      init, "vit.embeddings.patch_embeddings.projection.weight");
    by_value bias = by__nn_weight(b, "embed", BY_SHAPE(c->width), (by_init){0},
                                  "vit.embeddings.patch_embeddings.projection.bias");
    w = by_reshape(g, w, BY_SHAPE(c->width, c->channels * size * size));
    by_value parts[2] = {by_expand(g, class_token, BY_SHAPE(batch, 1, c->width)),
                         by_linear(g, by_patches(g, images, size), w, bias, true)};
    by_value x =
        by__nn_place(b, by_concat(g, parts, 2, 1),
                     &(by__nn_position_table){.name = POSITIONS, .rows = tokens, .leading = true});
    return by__nn_drop(b, x);
}

/* How much the class token attends to each token, by each head: [B, heads, tokens]. Attention
 * itself does not keep its probabilities, so they are computed again, only where they are asked
 * for. */
static by_value attention_map(by__nn_build *b, by_value qkv)
{
    static const int heads_first[] = {0, 2, 1};
    by_graph *g = b->graph;
    const by_model_config *c = b->config;
    int64_t batch = b->request->batch;
    int64_t size = own_keys(c)->patch;
    int64_t tokens = 1 + c->image_height / size * (c->image_width / size);
    int64_t head = c->width / c->heads;
    by_value query = by_slice(g, by_slice(g, qkv, 2, 0, c->width), 1, 0, 1);
    by_value key = by_slice(g, qkv, 2, c->width, c->width);
    query = by_reshape(g, query, BY_SHAPE(batch, 1, c->heads, head));
    key = by_reshape(g, key, BY_SHAPE(batch, tokens, c->heads, head));
    by_value scores = by_sum(g, by_mul(g, key, query), (int[]){3}, 1, false);
    by_value factor = by_fill(g, BY_F32, BY_SHAPE(1), 1.0f / sqrtf((float)head));
    return by_softmax(g, by_permute(g, by_scale(g, scores, factor), heads_first));
}

static bool wants_attention(const by_model_config *c)
{
    return c->output != NULL && strcmp(c->output, "attention") == 0;
}

/* The map is computed from queries and keys alone. */
static void add_attention_map(by__nn_build *b, by_value qkv)
{
    const by_model_config *c = b->config;
    by_rotation rotation;
    if (strcmp(c->attention.kind, "full") != 0 || by__nn_rotation(&rotation, c, NULL) != NULL) {
        by__graph_fail(b->graph, BY_EARG,
                       "model.output attention needs attention.kind full, not %s, and positions "
                       "that are not rotary",
                       c->attention.kind);
        return;
    }
    by_model_register(&b->model, b->graph, "attention", attention_map(b, qkv));
}

/* What attention adds to x; of the last layer for the class token alone. */
static by_value attend(by__nn_build *b, by_value x, int layer)
{
    by_value qkv;
    const by_model_config *c = b->config;
    char name[96];
    (void)snprintf(name, sizeof name, "vit.encoder.layer.%d.layernorm_before", layer);
    by_value y = norm(b, x, name);
    (void)snprintf(name, sizeof name, "vit.encoder.layer.%d.attention.attention", layer);
    y = by__nn_encoder_attention(b, y, layer, own_keys(c)->qkv_bias != 0, name, BY__NN_QKV_NAMES,
                                 &qkv);
    if (layer == c->layers - 1 && wants_attention(c)) {
        add_attention_map(b, qkv);
    }
    if (layer == c->layers - 1) {
        x = by_slice(b->graph, x, 1, 0, 1);
        y = by_slice(b->graph, y, 1, 0, 1);
    }
    (void)snprintf(name, sizeof name, "vit.encoder.layer.%d.attention.output.dense", layer);
    y = by__nn_encoder_linear(b, y, c->width, c->width, "embed heads", "embed",
                              by__nn_init_residual(b), name);
    return by_add(b->graph, x, by__nn_drop(b, y));
}

static by_value mlp_linear(by__nn_build *b, by_value x, int layer, by__nn_mlp_part part)
{
    static const char *const names[] = {"intermediate.dense", "intermediate.gate", "output.dense"};
    const by_model_config *c = b->config;
    char name[96];
    (void)snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", layer, names[part]);
    return part == BY__NN_MLP_DOWN
               ? by__nn_encoder_linear(b, x, c->mlp_width, c->width, "embed mlp", "embed",
                                       by__nn_init_residual(b), name)
               : by__nn_encoder_linear(b, x, c->width, c->mlp_width, "mlp embed", "mlp",
                                       by__nn_init_normal(b), name);
}

static by_value block(by__nn_build *b, by_value x, int layer)
{
    static const by__nn_mlp_layers mlp = {.linear = mlp_linear, .activation = BY_FN_GELU_ERF};
    by_graph *g = b->graph;
    char name[96];
    by_graph_set_block(g, layer);
    /* The classifier reads the class token: the last block computes only that. */
    if (by__nn_attends(b->config, layer)) {
        x = attend(b, x, layer);
    } else if (layer == b->config->layers - 1) {
        x = by_slice(g, x, 1, 0, 1);
    }
    (void)snprintf(name, sizeof name, "vit.encoder.layer.%d.layernorm_after", layer);
    by_value y = by__nn_mlp(b, norm(b, x, name), layer, &mlp);
    x = by_add(g, x, by__nn_drop(b, y));
    by_graph_set_block(g, -1);
    return x;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    by_value x = embed(b);
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer);
    }
    x = norm(b, by_reshape(b->graph, x, BY_SHAPE(b->request->batch, c->width)), "vit.layernorm");
    by_model_register(&b->model, b->graph, "features", x);
    x = by__nn_encoder_linear(b, x, c->width, c->outputs, "class embed", "class",
                              by__nn_init_normal(b), "classifier");
    b->model.output = x;
}

static by__nn_grid grid(const by_model_config *c)
{
    int64_t patch = own_keys(c)->patch;
    return (by__nn_grid){
        .name = POSITIONS, .before = 1, .sides = {c->image_height / patch, c->image_width / patch}};
}

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
    (void)json_object_set_new(out, "qkv_bias", json_boolean(own_keys(c)->qkv_bias));
    by__nn_activation_write(out, "hidden_act", c, BY_FN_GELU_ERF);
    (void)json_object_set_new(out, "layer_norm_eps", json_real(own_keys(c)->norm_eps));
    (void)json_object_set_new(out, "hidden_dropout_prob", json_real(c->dropout));
    (void)json_object_set_new(out, "attention_probs_dropout_prob", json_real(0.0));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    vit_keys *v = own_keys(c);
    const json_t *bias = json_object_get(in, "qkv_bias");
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_size", 768, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", 12, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "num_attention_heads", 12, error));
    BY_TRY(by__nn_json_integer(&c->mlp_width, name, in, "intermediate_size", 3072, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_channels", 3, error));
    BY_TRY(by__nn_json_integer(&v->patch, name, in, "patch_size", 16, error));
    BY_TRY(by__nn_json_number(&v->norm_eps, name, in, "layer_norm_eps", 1e-12, error));
    BY_TRY(by__nn_activation_read(c, name, in, "hidden_act", BY_FN_GELU_ERF, error));
    BY_TRY(by__nn_json_image_size(c, name, in, error));
    if (bias != NULL && !json_is_boolean(bias)) {
        return by_error_set(error, BY_EFORMAT, "%s: \"qkv_bias\" is not true or false", name);
    }
    v->qkv_bias = !json_is_false(bias);
    c->kv_heads = c->heads;
    c->outputs = by__nn_json_labels(in);
    return BY_OK;
}

const by__nn_family by__nn_family_vit = {
    .kind = {.name = "vit",
             .help = "ViT on image patches: class token, learned positions, GELU.",
             .keys = {&by__nn_output_keys, &by__nn_image_keys, &key_list, &by__nn_part_keys,
                      &by__nn_norm_keys, &by__nn_mlp_keys},
             .size = sizeof(vit_keys),
             .resolve = resolve},
    .base = "vit.",
    .reads = "images",
    .adapted = "query value",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .grid = grid,
    .published = (const by__nn_published[]){{"vit", "ViTForImageClassification", false}, {0}},
};
