/* Removes attention heads and MLP channels, the same number from every layer. The result is a model
 * of the same family with fewer heads and a narrower MLP, all of whose products are smaller.
 *
 * A channel is an input of the MLP's output matrix and an output of the matrices before it; a head
 * is head_dim inputs of attention's output matrix. With grouped queries, heads that share keys and
 * values are removed together. remove_units.c chooses the units and adjusts the output matrices for
 * them, on calibration data computed with the blocks before already narrowed. The names of a
 * parameter's axes ("heads", "kv_heads", "mlp") tell where it has heads or channels. */
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "nn/nn.h"

#define MULTIPLE 16 /* the number of remaining channels is a multiple of this */

static const by_compress_setting settings[] = {
    {.name = "mlp", .fallback = "0.25", .most = 0.95, .help = "share of an MLP's channels"},
    {.name = "heads",
     .fallback = "0",
     .most = 0.95,
     .help = "share of the heads of keys and values, with the queries that read them"},
    BY__SETTING_DAMP,
    {0}};

typedef enum width_unit { HEADS = 0, CHANNELS, UNITS } width_unit;

typedef struct narrowing {
    by_graph *graph;     /* of the whole model; tells the axes of its parameters */
    int *block;          /* of each parameter; -1: none */
    bool *done;          /* of each value */
    int64_t all[UNITS];  /* in each layer */
    int64_t left[UNITS]; /* remaining in each layer */
    bool *gone[UNITS];   /* [layers, all] */
} narrowing;

/* Computes how many of a layer's units remain. */
static void count_units(const by__compress_state *c, int64_t all[UNITS], int64_t left[UNITS])
{
    const by_model_config *m = &c->config->model;
    all[HEADS] = m->kv_heads;
    all[CHANNELS] = m->mlp_width;
    int64_t heads = (int64_t)(by__compress_setting_number(c, "heads") * (double)all[HEADS] + 0.5);
    left[HEADS] = heads < all[HEADS] ? all[HEADS] - heads : 1;
    double share = by__compress_setting_number(c, "mlp");
    int64_t wide = (int64_t)((1.0 - share) * (double)all[CHANNELS] + 0.5);
    wide = (int64_t)by__round_up((size_t)(wide < 1 ? 1 : wide), MULTIPLE);
    left[CHANNELS] = share == 0.0 || wide > all[CHANNELS] ? all[CHANNELS] : wide;
}

/* Returns true if the model's layers have both kinds; an MLP, for example, has no heads. */
static bool has_units(const int64_t all[UNITS])
{
    return all[HEADS] > 0 && all[CHANNELS] > 0;
}

/* If axis `which` of a parameter has units to remove, sets their kind and returns the elements of
 * one; otherwise returns 0. */
static int64_t unit_axis(width_unit *kind, const by__compress_state *c,
                         const by__graph_value *value, int which)
{
    const by_model_config *m = &c->config->model;
    const char *at = value->axes;
    for (int i = 0; at != NULL && i < which; i++) {
        at = strchr(at, ' ');
        at = at == NULL ? NULL : at + 1;
    }
    size_t length = at == NULL ? 0 : strcspn(at, " ");
    *kind = CHANNELS;
    if (length == 3 && strncmp(at, "mlp", 3) == 0) {
        return 1;
    }
    *kind = HEADS;
    bool heads = (length == 5 && strncmp(at, "heads", 5) == 0) ||
                 (length == 8 && strncmp(at, "kv_heads", 8) == 0);
    return heads ? value->shape.dim[which] / m->kv_heads : 0;
}

/* ---- tensors ---- */

/* Which elements of an axis of a layer's tensor remain; NULL: all. */
typedef struct axis_mask {
    const bool *gone;
    int64_t size; /* elements of a unit */
} axis_mask;

/* Writes the remaining elements of a tensor [rows, columns] and returns how many there are. */
static int64_t cut(float *out, const float *in, const int64_t *shape, const axis_mask *masks)
{
    int64_t count = 0;
    for (int64_t r = 0; r < shape[0]; r++) {
        bool row_gone = masks[0].gone != NULL && masks[0].gone[r / masks[0].size];
        for (int64_t i = 0; i < shape[1] && !row_gone; i++) {
            if (masks[1].gone == NULL || !masks[1].gone[i / masks[1].size]) {
                out[count++] = in[r * shape[1] + i];
            }
        }
    }
    return count;
}

/* Replaces a parameter's tensor by the smaller one. values: the whole tensor, overwritten. */
static by_status put_cut(by__compress_state *c, const narrowing *n, by_value parameter,
                         float *values, by_error *error)
{
    const by__graph_value *value = &n->graph->values[parameter];
    axis_mask masks[2] = {{0}};
    by_tensor_view view = {0};
    char *name = by__compress_file_name(c, value->name);
    by_status status = by__weights_describe(c->weights, name, &view, error);
    int64_t shape[2] = {view.shape[0], view.rank == 2 ? view.shape[1] : 1};
    for (int i = 0; i < view.rank && status == BY_OK; i++) {
        width_unit kind;
        int64_t size = unit_axis(&kind, c, value, i);
        if (size > 0 && n->left[kind] < n->all[kind]) {
            masks[i] = (axis_mask){n->gone[kind] + n->block[parameter] * n->all[kind], size};
            view.shape[i] = n->left[kind] * size;
        }
    }
    if (status == BY_OK) {
        (void)cut(values, values, shape, masks);
        by__compress_drop(c, name);
        status = by__compress_put_f32(c, &view, values, error);
    }
    n->done[parameter] = true;
    free(name);
    return status;
}

static bool is_cut(const by__compress_state *c, const narrowing *n, by_value parameter)
{
    const by__graph_value *value = &n->graph->values[parameter];
    bool any = false;
    for (int i = 0; i < value->shape.rank && value->role == BY_ROLE_PARAMETER; i++) {
        width_unit kind;
        any = any || (unit_axis(&kind, c, value, i) > 0 && n->left[kind] < n->all[kind]);
    }
    return any;
}

/* Returns the elements of a unit of a layer's inputs and sets its kind; 0: no units to remove. */
static int64_t unit_of_inputs(width_unit *kind, by_value *parameter, const by__compress_state *c,
                              const narrowing *n, const by__compress_linear *l)
{
    if (l->stacked) { /* check_parameters refuses to remove these */
        return 0;
    }
    *parameter = by_graph_find(n->graph, l->name);
    int64_t size = unit_axis(kind, c, &n->graph->values[*parameter], l->in_out ? 0 : 1);
    return size > 0 && n->left[*kind] < n->all[*kind] ? size : 0;
}

/* ---- the walk ---- */

/* Narrows the output matrices of attention and MLP by columns, also for the calibration of the
 * following blocks. */
static by_status narrow_layer(by__compress_state *c, by__compress_calibrated *what, void *user,
                              by_error *error)
{
    narrowing *n = user;
    const by__compress_linear *l = what->linears[0];
    width_unit kind;
    by_value parameter;
    double *u;
    float *values;
    int64_t size = unit_of_inputs(&kind, &parameter, c, n, l);
    if (size == 0) {
        return BY_OK;
    }
    if (what->count > 1) {
        return by_error_set(error, BY_EARG,
                            "width: '%s' and '%s' read the same units; only one "
                            "matrix may",
                            l->name, what->linears[1]->name);
    }
    bool *gone = n->gone[kind] + what->block * n->all[kind];
    BY_TRY(by__compress_inverse_factor(&u, what->hessian, what->k,
                                       by__compress_setting_number(c, "damp"), c->threads, error));
    by_status status =
        by__compress_remove_units(what->weights[0], gone, l->n, l->k, size,
                                  n->all[kind] - n->left[kind], u, c->threads, error);
    free(u);
    BY_TRY(status);
    BY_TRY(by__alloc((void **)&values, (size_t)(l->n * l->k), sizeof *values, "a layer", error));
    for (int64_t i = 0; i < l->n * l->k; i++) {
        values[i] = what->weights[0][l->in_out ? i % l->n * l->k + i / l->n : i];
    }
    status = put_cut(c, n, parameter, values, error);
    c->changed++;
    free(values);
    return status;
}

static by_status narrow_parameter(by__compress_state *c, const narrowing *n, by_value parameter,
                                  const char *name, by_error *error)
{
    by_tensor_view view;
    float *values;
    size_t count;
    BY_TRY(by__weights_describe(c->weights, name, &view, error));
    BY_TRY(by_tensor_size(&view, &count, NULL, error));
    BY_TRY(by__alloc((void **)&values, count, sizeof *values, "a tensor", error));
    by_tensor_slice whole = by_tensor_whole(&view);
    by_status status = by_weights_read_f32(c->weights, name, &whole, values, count, error);
    if (status == BY_OK) {
        status = put_cut(c, n, parameter, values, error);
    }
    free(values);
    return status;
}

/* Narrows the matrices that make the units: rows and biases. */
static by_status narrow_rest(by__compress_state *c, const narrowing *n, by_error *error)
{
    by_status status = BY_OK;
    for (size_t v = 0; v < n->graph->value_count && status == BY_OK; v++) {
        if (!n->done[v] && is_cut(c, n, (by_value)v)) {
            char *name = by__compress_file_name(c, n->graph->values[v].name);
            status = narrow_parameter(c, n, (by_value)v, name, error);
            free(name);
        }
    }
    return status;
}

/* ---- the model ---- */

/* Checks that every parameter with units is a matrix or vector of one block that the files
 * contain. */
static by_status check_parameters(const by__compress_state *c, const narrowing *n, by_error *error)
{
    for (size_t v = 0; v < n->graph->value_count; v++) {
        const by__graph_value *value = &n->graph->values[v];
        if (!is_cut(c, n, (by_value)v)) {
            continue;
        }
        char *name = by__compress_file_name(c, value->name);
        bool fits = name != NULL && value->shape.rank <= 2 && n->block[v] >= 0;
        free(name);
        if (!fits) {
            return by_error_set(error, BY_EARG,
                                "width: '%s' of model.kind %s is not a matrix of one layer, so its "
                                "channels cannot be pruned; set mlp=0 to prune heads only",
                                value->name, c->config->model.kind);
        }
    }
    return BY_OK;
}

static by_status open_narrowing(narrowing *n, const by__compress_state *c, by_error *error)
{
    BY_TRY(by__compress_graph(&n->graph, c, error));
    BY_TRY(by__alloc((void **)&n->block, n->graph->value_count, sizeof *n->block, "layers", error));
    BY_TRY(by__alloc((void **)&n->done, n->graph->value_count, sizeof *n->done, "layers", error));
    for (size_t v = 0; v < n->graph->value_count; v++) {
        n->block[v] = -1;
    }
    for (size_t i = 0; i < n->graph->node_count; i++) {
        const by__graph_node *node = &n->graph->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            if (node->in[k] != BY_NONE && node->block >= 0) {
                n->block[node->in[k]] = node->block;
            }
        }
    }
    count_units(c, n->all, n->left);
    if (!has_units(n->all)) {
        return by_error_set(
            error, BY_EARG,
            "width: model.kind %s has no heads and channels to prune; use a quantization method",
            c->config->model.kind);
    }
    for (int kind = 0; kind < UNITS; kind++) {
        size_t count = (size_t)(c->config->model.layers * n->all[kind]);
        BY_TRY(by__alloc((void **)&n->gone[kind], count, sizeof(bool), "units", error));
    }
    if (n->left[HEADS] == n->all[HEADS] && n->left[CHANNELS] == n->all[CHANNELS]) {
        return by_error_set(
            error, BY_EARG,
            "width: mlp=%s and heads=%s of %lld channels and %lld key heads prune nothing",
            by__compress_setting_text(c, "mlp"), by__compress_setting_text(c, "heads"),
            (long long)n->all[CHANNELS], (long long)n->all[HEADS]);
    }
    return check_parameters(c, n, error);
}

static void close_narrowing(narrowing *n)
{
    for (int kind = 0; kind < UNITS; kind++) {
        free(n->gone[kind]);
    }
    free(n->done);
    free(n->block);
    by_graph_close(&n->graph);
}

static by_status resize_model(by__compress_state *c, const narrowing *n, by_error *error)
{
    by_config *to;
    const by_model_config *m = &c->config->model;
    const by__nn_reduction left = {.heads = n->left[HEADS] * (m->heads / m->kv_heads),
                                   .kv_heads = n->left[HEADS],
                                   .mlp_width = n->left[CHANNELS]};
    BY_TRY(by_config_copy(&to, c->config, error));
    by_status status = by__nn_model_reduce(to, &left, error);
    if (status == BY_OK) {
        status = by__compress_resize(c, &to->model, error);
    }
    by_config_close(&to);
    return status;
}

static by_status prune_widths(by__compress_state *c, by_error *error)
{
    narrowing n = {0};
    by_status status = open_narrowing(&n, c, error);
    if (status == BY_OK) {
        status = resize_model(c, &n, error); /* first, because it may be refused */
    }
    if (status == BY_OK) {
        status = by__compress_calibrate(c, narrow_layer, &n, error);
    }
    if (status == BY_OK) {
        status = narrow_rest(c, &n, error);
    }
    close_narrowing(&n);
    return status;
}

/* Checks that the remaining sizes form a valid model. config.json is updated when the method
 * runs. */
static by_status check(by__compress_state *c, by_error *error)
{
    narrowing n = {0};
    by_status status = open_narrowing(&n, c, error);
    if (status == BY_OK) {
        status = resize_model(c, &n, error);
    }
    close_narrowing(&n);
    return status;
}

static void resize(const by__compress_state *c, by_tensor_view *tensor)
{
    int64_t all[UNITS];
    int64_t left[UNITS];
    by_graph *graph;
    count_units(c, all, left);
    if (!has_units(all) || by__compress_graph(&graph, c, NULL) != BY_OK) {
        return;
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        char *name =
            value->role == BY_ROLE_PARAMETER ? by__compress_file_name(c, value->name) : NULL;
        for (int i = 0; name != NULL && strcmp(name, tensor->name) == 0 && i < tensor->rank; i++) {
            width_unit kind;
            int64_t size = unit_axis(&kind, c, value, i);
            tensor->shape[i] = size > 0 ? left[kind] * size : tensor->shape[i];
        }
        free(name);
    }
    by_graph_close(&graph);
}

const by__compress_method by__compress_method_width = {
    .shown = {.name = "width",
              .summary = "heads and channels go, and the others make up for them",
              .settings = settings,
              .calibrates = true},
    .run = prune_widths,
    .takes = check,
    .resize = resize};
