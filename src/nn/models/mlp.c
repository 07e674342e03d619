/* A multilayer perceptron on the rows of a table: numbers, and a learned embedding for each value
 * of each category column (Guo & Berkhahn 2016), concatenated, then linear layers with an
 * activation. Weights are [out, in], as in torch.nn.Linear; their initial standard deviation is
 * that of He et al. (2015). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

typedef struct mlp_keys {
    by_string_list hidden;
    char *activation;
    int64_t norm;
    int64_t embedding;
} mlp_keys;

static const by__config_key keys[] = {
    {"model", "hidden", BY__KEY_TEXTS, BY__OWN(mlp_keys, hidden), "[]",
     .help = "widths of the hidden layers; empty: model.layers of them, each of model.width"},
    {"model", "activation", BY__KEY_TEXT, BY__OWN(mlp_keys, activation), "relu",
     .choices = "relu|gelu|silu|tanh", .help = "activation function of the hidden layers"},
    {"model", "norm", BY__KEY_SWITCH, BY__OWN(mlp_keys, norm), "false",
     .help = "a norm before each activation, of the kind of section norm"},
    {"model", "norm_eps", BY__KEY_REAL, BY__FIELD(model.norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of the norm"},
    {"model", "embedding", BY__KEY_INT, BY__OWN(mlp_keys, embedding), "-1", 1, BY__MI20,
     .derived = "half of a column's ids, at most 50",
     .help = "width of the embeddings of categories"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_mlp;

static mlp_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_mlp.kind);
}

/* Sets layers and width from a list of widths, which are the same after config.json was read. */
static void set_widths(by_model_config *c, const by_string_list *hidden)
{
    if (hidden->count > 0) {
        c->layers = (int64_t)hidden->count;
        c->width = by__nn_size_at(hidden, 0);
    }
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const mlp_keys *m = own;
    BY_TRY(by__nn_sizes_check(config, "model.hidden", &m->hidden, error));
    set_widths(&config->model, &m->hidden);
    return by__nn_sizes_check(config, "model.categories", &config->model.categories, error);
}

static int64_t hidden_layers(const by_model_config *c)
{
    const by_string_list *hidden = &own_keys(c)->hidden;
    return hidden->count > 0 ? (int64_t)hidden->count : c->layers;
}

static int64_t hidden_width(const by_model_config *c, int64_t layer)
{
    const by_string_list *hidden = &own_keys(c)->hidden;
    return hidden->count > 0 ? by__nn_size_at(hidden, layer) : c->width;
}

/* Makes the input row [B, total width]: the numbers, then the embeddings of all columns. */
static by_value read_row(by__nn_build *b, int64_t *width)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t columns = (int64_t)c->categories.count;
    by_value x = BY_NONE;
    by_value ids = BY_NONE;
    *width = c->numbers;
    if (c->numbers > 0) {
        x = by__nn_input(b, "numbers", BY_F32, BY_SHAPE(batch, c->numbers));
    }
    if (columns > 0) {
        ids = by__nn_input(b, "categories", BY_I32, BY_SHAPE(batch, columns));
    }
    for (int64_t k = 0; k < columns; k++) {
        int64_t size = by__nn_size_at(&c->categories, k);
        int64_t wanted = own_keys(c)->embedding;
        int64_t derived = (size + 1) / 2 < 50 ? (size + 1) / 2 : 50;
        int64_t vector = wanted == -1 ? derived : wanted;
        by_value table = by__nn_weight(b, "vocab embed", BY_SHAPE(size, vector),
                                       (by_init){BY_INIT_NORMAL, 1.0f / sqrtf((float)vector)},
                                       "embeddings.%lld.weight", (long long)k);
        by_value column = by_slice(g, ids, 1, k, 1);
        by_value parts[2] = {
            x, by_reshape(g, by_embedding(g, column, table), BY_SHAPE(batch, vector))};
        x = x == BY_NONE ? parts[1] : by_concat(g, parts, 2, 1);
        *width += vector;
    }
    return x;
}

static by_value linear(by__nn_build *b, by_value x, int64_t in, int64_t out, double gain,
                       const char *prefix)
{
    by_init init = {BY_INIT_NORMAL, (float)sqrt(gain / (double)in)};
    by_value w = by__nn_weight(b, "mlp embed", BY_SHAPE(out, in), init, "%s.weight", prefix);
    by_value bias = by__nn_weight(b, "mlp", BY_SHAPE(out), (by_init){0}, "%s.bias", prefix);
    return by_linear(b->graph, x, w, bias, true);
}

static by_function activation(const by_model_config *c)
{
    const char *name = own_keys(c)->activation;
    return strcmp(name, "gelu") == 0   ? BY_FN_GELU_ERF
           : strcmp(name, "silu") == 0 ? BY_FN_SILU
           : strcmp(name, "tanh") == 0 ? BY_FN_TANH
                                       : BY_FN_RELU;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    char name[64];
    int64_t width;
    by_value x = read_row(b, &width);
    for (int64_t layer = 0; layer < hidden_layers(c); layer++) {
        int64_t out = hidden_width(c, layer);
        by_graph_set_block(b->graph, (int)layer);
        (void)snprintf(name, sizeof name, "layers.%lld", (long long)layer);
        x = linear(b, x, width, out, 2.0, name);
        if (own_keys(c)->norm) {
            (void)snprintf(name, sizeof name, "norms.%lld", (long long)layer);
            x = by__nn_norm(b, x,
                            &(by__nn_norm_place){.prefix = name,
                                                 .axes = "mlp",
                                                 .width = out,
                                                 .eps = b->config->norm_eps,
                                                 .usual = "layer"});
        }
        x = by__nn_drop(b, by_unary(b->graph, x, activation(c)));
        width = out;
    }
    by_graph_set_block(b->graph, -1);
    by_model_register(&b->model, b->graph, "features", x);
    x = linear(b, x, width, c->outputs, 1.0, "output");
    b->model.output = x;
}

static void write_config(json_t *out, const by_model_config *c)
{
    const mlp_keys *m = own_keys(c);
    json_t *hidden = json_array();
    for (int64_t layer = 0; layer < hidden_layers(c); layer++) {
        (void)json_array_append_new(hidden, json_integer(hidden_width(c, layer)));
    }
    (void)json_object_set_new(out, "hidden_sizes", hidden);
    (void)json_object_set_new(out, "hidden_act", json_string(m->activation));
    const char *norm = by__nn_norm_name(c, "layer");
    (void)json_object_set_new(out, "layer_norm",
                              json_boolean(m->norm == 1 && strcmp(norm, "layer") == 0));
    if (m->norm == 1 && strcmp(norm, "layer") != 0) {
        (void)json_object_set_new(out, "norm_kind", json_string(norm));
    }
    (void)json_object_set_new(out, "layer_norm_eps", json_real(c->norm_eps));
    (void)json_object_set_new(out, "num_numbers", json_integer(c->numbers));
    (void)json_object_set_new(out, "category_sizes", by__nn_sizes_json(&c->categories));
    (void)json_object_set_new(out, "embedding_size",
                              m->embedding == -1 ? json_null() : json_integer(m->embedding));
    (void)json_object_set_new(out, "num_outputs", json_integer(c->outputs));
    (void)json_object_set_new(out, "hidden_dropout_prob", json_real(c->dropout));
}

static by_status read_norm(by_model_config *c, const char *name, const json_t *in, by_error *error)
{
    mlp_keys *m = own_keys(c);
    const json_t *kind = json_object_get(in, "norm_kind");
    BY_TRY(by__nn_json_switch(&m->norm, name, in, "layer_norm", false, error));
    m->norm = kind == NULL ? m->norm : 1;
    return by__nn_norm_set(c,
                           kind == NULL            ? "auto"
                           : !json_is_string(kind) ? ""
                                                   : json_string_value(kind),
                           name, error);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    mlp_keys *m = own_keys(c);
    const json_t *act = json_object_get(in, "hidden_act");
    const json_t *numbers = json_object_get(in, "num_numbers");
    BY_TRY(by__nn_json_sizes(&m->hidden, name, in, "hidden_sizes", error));
    set_widths(c, &m->hidden);
    BY_TRY(by__nn_json_sizes(&c->categories, name, in, "category_sizes", error));
    BY_TRY(by__nn_json_integer(&c->outputs, name, in, "num_outputs", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&m->embedding, name, in, "embedding_size", -1, error));
    BY_TRY(by__nn_json_number(&c->norm_eps, name, in, "layer_norm_eps", 1e-5, error));
    BY_TRY(read_norm(c, name, in, error));
    c->numbers = json_integer_value(numbers);
    if (!json_is_integer(numbers) || c->numbers < 0 || c->numbers > BY__MI20 ||
        m->hidden.count == 0 || (c->numbers == 0 && c->categories.count == 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"num_numbers\", \"category_sizes\" and \"hidden_sizes\" do not "
                            "make a model",
                            name);
    }
    static const char *const known[] = {"relu", "gelu", "silu", "tanh"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(known); i++) {
        if (json_is_string(act) && strcmp(json_string_value(act), known[i]) == 0) {
            return by__nn_set_string(&m->activation, known[i], error);
        }
    }
    return by_error_set(error, BY_EFORMAT, "%s: \"hidden_act\" is none of relu, gelu, silu, tanh",
                        name);
}

/* "norm_kind" has all norms. */
static bool expresses(const by_model_config *c, const char *section)
{
    BY_UNUSED(c);
    return strcmp(section, "norm") == 0;
}

const by__nn_family by__nn_family_mlp = {
    .kind = {.name = "mlp",
             .help = "MLP on table rows: numbers and embedded categories.",
             .keys = {&by__nn_output_keys, &by__nn_table_keys, &key_list, &by__nn_norm_keys},
             .size = sizeof(mlp_keys),
             .resolve = resolve},
    .reads = "table",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .expresses = expresses,
    .published = (const by__nn_published[]){{"banyan_mlp", "MLP", false}, {0}},
};
