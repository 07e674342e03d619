/* N-BEATS (Oreshkin et al. 2020): each block, an MLP, explains a part of the window, which the next
 * one no longer reads, and adds a part of the forecast; the same for all channels. Blocks of a
 * generic stack learn what the parts look like; those of a trend stack say polynomials of time, and
 * those of a seasonality stack Fourier series whose longest period is the horizon. Parameters are
 * named as in the authors' program. */
#include <string.h>

#include "nn/series_frame.h"

typedef struct nbeats_keys {
    by__nn_window_keys window;
    int64_t blocks;
    by_string_list stacks;
    int64_t degree;
    int64_t share;
} nbeats_keys;

static const by__config_key keys[] = {
    {"model", "blocks", BY__KEY_INT, BY__OWN(nbeats_keys, blocks), "3", 1, 1000,
     .help = "blocks of each stack, each of model.layers layers"},
    {"model", "stacks", BY__KEY_TEXTS, BY__OWN(nbeats_keys, stacks), "[generic]", .later = true,
     .help = "what the blocks of each stack say: generic, anything; trend, polynomials of time; "
             "seasonality, Fourier series. The paper's interpretable form is [trend, seasonality]"},
    {"model", "degree", BY__KEY_INT, BY__OWN(nbeats_keys, degree), "2", 0, 8, .later = true,
     .help = "degree of the polynomials"},
    {"model", "share", BY__KEY_SWITCH, BY__OWN(nbeats_keys, share), "false", .later = true,
     .help = "the blocks of a stack have the same weights, as in the paper's interpretable form"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_nbeats;

static nbeats_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_nbeats.kind);
}

/* ---- stacks ---- */

typedef enum stack_kind { STACK_GENERIC, STACK_TREND, STACK_SEASONALITY, STACK_KINDS } stack_kind;

static const char *const stack_names[STACK_KINDS] = {"generic", "trend", "seasonality"};

/* STACK_KINDS: there is none of this name. */
static stack_kind stack_named(const char *name)
{
    int kind = 0;
    while (kind < STACK_KINDS && strcmp(name, stack_names[kind]) != 0) {
        kind++;
    }
    return (stack_kind)kind;
}

static by_status check_stacks(const by_string_list *stacks, const char *where, by_status code,
                              by_error *error)
{
    for (size_t i = 0; i < stacks->count; i++) {
        if (stack_named(stacks->items[i]) == STACK_KINDS) {
            return by_error_set(error, code,
                                "%s: there is no stack '%s': name generic, trend or seasonality",
                                where, stacks->items[i]);
        }
    }
    return stacks->count > 0 ? BY_OK
                             : by_error_set(error, code, "%s: there must be a stack", where);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const nbeats_keys *n = own;
    BY_TRY(check_stacks(&n->stacks, by__config_where(config, "model.stacks", "model.kind"),
                        BY_ECONFIG, error));
    return by__nn_series_window_resolve(config, own, error);
}

/* ---- bases ---- */

/* Functions of time that a stack's blocks say: cosines alone of trends, which are powers. */
typedef struct stack_basis {
    stack_kind kind;
    int64_t count;        /* of functions */
    by_value back[2];     /* [count, context] */
    by_value forecast[2]; /* [count, outputs] */
} stack_basis;

/* A parameter that is not trained. */
static by_value basis_part(by__nn_build *b, int64_t block, const char *name, by_shape shape,
                           by_init init)
{
    by_value basis =
        by__nn_weight(b, "", shape, init, "blocks.%lld.basis_function.%s", (long long)block, name);
    by_graph_freeze(b->graph, basis);
    return basis;
}

static void make_basis(stack_basis *out, by__nn_build *b, stack_kind kind, int64_t block)
{
    const by_model_config *c = b->config;
    float period = (float)c->outputs;
    *out = (stack_basis){.kind = kind};
    if (kind == STACK_TREND) {
        by_init powers = {.kind = BY_INIT_POWERS};
        out->count = own_keys(c)->degree + 1;
        out->back[0] =
            basis_part(b, block, "backcast_time", BY_SHAPE(out->count, c->context), powers);
        out->forecast[0] =
            basis_part(b, block, "forecast_time", BY_SHAPE(out->count, c->outputs), powers);
    } else if (kind == STACK_SEASONALITY) {
        out->count = (c->outputs + 1) / 2;
        by_shape back = BY_SHAPE(out->count, c->context);
        by_shape ahead = BY_SHAPE(out->count, c->outputs);
        by_init cosines = {BY_INIT_COSINES, period};
        /* Time runs backward in the window. */
        out->back[0] = basis_part(b, block, "backcast_cos_template", back, cosines);
        out->back[1] =
            basis_part(b, block, "backcast_sin_template", back, (by_init){BY_INIT_SINES, -period});
        out->forecast[0] = basis_part(b, block, "forecast_cos_template", ahead, cosines);
        out->forecast[1] =
            basis_part(b, block, "forecast_sin_template", ahead, (by_init){BY_INIT_SINES, period});
    }
}

/* Parameters of each number that is forecast, and of the window. */
static int64_t theta_size(const by_model_config *c, const stack_basis *basis)
{
    int64_t numbers = by__nn_series_outputs(c);
    int64_t parts = basis->kind == STACK_SEASONALITY ? 2 : 1;
    return basis->kind == STACK_GENERIC ? c->context + numbers * c->outputs
                                        : parts * basis->count * (numbers + 1);
}

/* A basis weighted by theta [rows, each * count], from column `begin` on: [rows, each * extent]. */
static by_value weigh(by__nn_build *b, by_value theta, int64_t begin, int64_t each,
                      const stack_basis *basis, by_value functions, int64_t extent)
{
    by_graph *g = b->graph;
    int64_t rows = b->request->batch * b->config->channels;
    by_value part = by_slice(g, theta, 1, begin, each * basis->count);
    part = by_reshape(g, part, BY_SHAPE(rows * each, basis->count));
    return by_reshape(g, by_matmul(g, part, functions, false, false),
                      BY_SHAPE(rows, each * extent));
}

/* What theta says of the window, [rows, context], and of the forecast, [rows, P outputs]. As in the
 * authors' program the parameters of the forecast come first, but in generic blocks. unread: theta
 * lacks so many parameters of the window, and *back is BY_NONE. */
static void expand(by__nn_build *b, by_value theta, const stack_basis *basis, int64_t unread,
                   by_value *back, by_value *forecast)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t numbers = by__nn_series_outputs(c);
    int64_t ahead = numbers * basis->count;
    if (unread > 0) {
        *back = BY_NONE;
        *forecast = theta;
        return;
    }
    if (basis->kind == STACK_GENERIC) {
        *back = by_slice(g, theta, 1, 0, c->context);
        *forecast = by_slice(g, theta, 1, c->context, numbers * c->outputs);
        return;
    }
    int64_t parts = basis->kind == STACK_SEASONALITY ? 2 : 1;
    for (int64_t i = 0; i < parts; i++) {
        by_value f = weigh(b, theta, i * ahead, numbers, basis, basis->forecast[i], c->outputs);
        by_value w =
            weigh(b, theta, parts * ahead + i * basis->count, 1, basis, basis->back[i], c->context);
        *forecast = i == 0 ? f : by_add(g, *forecast, f);
        *back = i == 0 ? w : by_add(g, *back, w);
    }
}

/* ---- blocks ---- */

/* A linear layer whose weights another block of the stack may have made. first: outputs in front of
 * it are not computed. */
static by_value linear(by__nn_build *b, by_value x, int64_t in, int64_t out, int64_t first,
                       bool last, const char *name)
{
    char text[96];
    by_graph *g = b->graph;
    (void)snprintf(text, sizeof text, "%s.weight", name);
    by_value weight = by_graph_find(g, text);
    (void)snprintf(text, sizeof text, "%s.bias", name);
    by_value bias = by_graph_find(g, text);
    if (weight == BY_NONE) {
        weight = by__nn_weight(b, last ? "class embed" : "mlp embed", BY_SHAPE(out, in),
                               by__nn_init_fan(last ? 1.0 / 3.0 : 2.0, in), "%s.weight", name);
        bias =
            by__nn_weight(b, last ? "class" : "mlp", BY_SHAPE(out), (by_init){0}, "%s.bias", name);
    }
    if (first > 0) {
        weight = by_slice(g, weight, 0, first, out - first);
        bias = by_slice(g, bias, 0, first, out - first);
    }
    return by_linear(g, x, weight, bias, true);
}

/* The parameters that a block says of window x, from `first` on; `index` is in the names of its
 * weights. */
static by_value block(by__nn_build *b, by_value x, int64_t index, int64_t size, int64_t first)
{
    const by_model_config *c = b->config;
    char name[80];
    int64_t width = c->context;
    for (int layer = 0; layer < c->layers; layer++) {
        (void)snprintf(name, sizeof name, "blocks.%lld.layers.%d", (long long)index, layer);
        x = linear(b, x, width, c->width, 0, false, name);
        x = by__nn_drop(b, by_unary(b->graph, x, BY_FN_RELU));
        width = c->width;
    }
    (void)snprintf(name, sizeof name, "blocks.%lld.basis_parameters", (long long)index);
    return linear(b, x, width, size, first, true, name);
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const nbeats_keys *n = own_keys(c);
    by_graph *g = b->graph;
    by__nn_window_scales scales;
    by_value forecast = BY_NONE;
    by_value x = by__nn_series_channels(b, by__nn_series_read(b, &n->window, &scales));
    for (size_t s = 0; s < n->stacks.count; s++) {
        stack_basis basis;
        int64_t first = (int64_t)s * n->blocks;
        make_basis(&basis, b, stack_named(n->stacks.items[s]), first);
        for (int64_t i = 0; i < n->blocks; i++) {
            by_value back;
            by_value part;
            /* What the last block leaves of the window is read by none. */
            bool last = s + 1 == n->stacks.count && i + 1 == n->blocks;
            int64_t unread = last && basis.kind == STACK_GENERIC ? c->context : 0;
            by_graph_set_block(g, (int)(first + i));
            by_value theta =
                block(b, x, n->share != 0 ? first : first + i, theta_size(c, &basis), unread);
            expand(b, theta, &basis, unread, &back, &part);
            forecast = forecast == BY_NONE ? part : by_add(g, forecast, part);
            x = back == BY_NONE ? x : by_sub(g, x, back);
        }
    }
    by_graph_set_block(g, -1);
    by__nn_series_deliver(b, forecast, &n->window, &scales);
}

static void write_config(json_t *out, const by_model_config *c)
{
    const nbeats_keys *n = own_keys(c);
    by__nn_series_write_config(out, c, &n->window);
    (void)json_object_set_new(out, "num_blocks", json_integer(n->blocks));
    json_t *stacks = json_array();
    for (size_t i = 0; i < n->stacks.count; i++) {
        (void)json_array_append_new(stacks, json_string(n->stacks.items[i]));
    }
    (void)json_object_set_new(out, "stack_types", stacks);
    (void)json_object_set_new(out, "degree_of_polynomial", json_integer(n->degree));
    (void)json_object_set_new(out, "share_weights_in_stack", json_boolean(n->share));
}

/* Without a list there is one generic stack. */
static by_status read_stacks(by_string_list *list, const char *name, const json_t *in,
                             by_error *error)
{
    const json_t *stacks = json_object_get(in, "stack_types");
    by_string_list read;
    if (stacks == NULL) {
        return BY_OK;
    }
    BY_TRY(by__nn_json_texts(&read, name, stacks, error));
    by_status status = check_stacks(&read, name, BY_EFORMAT, error);
    if (status != BY_OK) {
        by__nn_free_texts(&read);
        return status;
    }
    by__nn_free_texts(list);
    *list = read;
    return BY_OK;
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    nbeats_keys *n = own_keys(c);
    BY_TRY(by__nn_series_read_config(c, &n->window, name, in, error));
    BY_TRY(by__nn_json_integer(&n->blocks, name, in, "num_blocks", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&n->degree, name, in, "degree_of_polynomial", 2, error));
    BY_TRY(by__nn_json_switch(&n->share, name, in, "share_weights_in_stack", false, error));
    return read_stacks(&n->stacks, name, in, error);
}

const by__nn_family by__nn_family_nbeats = {
    .kind = {.name = "nbeats",
             .help = "N-BEATS on windows of series: blocks that explain what those before left, "
                     "the same for all channels.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &by__nn_window_key_list,
                      &key_list},
             .size = sizeof(nbeats_keys),
             .resolve = resolve},
    .reads = "series",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"banyan_nbeats", "NBeats", false}, {0}},
};
