/* Runs calibration data through a model and reports what its layers read. The forward pass is cut
 * into blocks (passes/stages.h), which run one after the other over all sequences. A block first
 * computes H = sum of x x^T over the rows x that its layers read; a method then changes their
 * weights; and the block runs again with the weights that inference will use, for the blocks after
 * it. Memory is needed for one block only; values passed between blocks are in mapped files of the
 * temporary directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compress/compress.h"
#include "exec/exec.h"
#include "nn/nn.h"
#include "ops/row.h"
#include "passes/stages.h"

/* Rows of a run, if there are enough samples. */
#define ROWS 512
#define LINE 64

/* A value that one part makes and others read, for all batches. */
typedef struct crossing {
    by_value value; /* in the whole graph */
    size_t stride;
    size_t bytes;
    uint8_t *data; /* NULL: not made yet, or no longer needed */
    int last;      /* the last part that reads it */
} crossing;

typedef struct calibration_walk {
    by__compress_state *c;
    by_graph *graph;
    int *part; /* of each node */
    int parts;
    by__pass_crossing *list;
    size_t list_count;
    crossing *crossings;
    size_t crossing_count;
    by_device *device;
    by__compress_calibration_tokens tokens;
    by__compress_calibrate_fn *fn;   /* NULL: weights stay unchanged */
    by__compress_block_fn *block_fn; /* may be NULL */
    by_value stream[2];              /* in the whole graph: before and after the block */
    void *user;
    size_t done, all; /* counts of layers */
} calibration_walk;

/* A part that is ready to run. */
typedef struct calibration_stage {
    by_graph *graph;
    by_program *program;
    by_memory arena, workspace;
    by_memory *bound; /* of each value: memory owned by the stage */
    /* Of each value that the stage owns: where the host reads and changes it. On a device with
     * memory of its own a copy, which `fetch` and `send` bring up to date. */
    void **host;
    bool copies;
    int number;
} calibration_stage;

/* ---- parts ---- */

static by_status assign_parts(calibration_walk *w, by_error *error)
{
    const by_graph *g = w->graph;
    BY_TRY(by__alloc((void **)&w->part, g->node_count + 1, sizeof *w->part, "parts", error));
    for (size_t n = 0; n < g->node_count; n++) {
        const by__graph_node *node = &g->nodes[n];
        int part = node->block >= 0 ? node->block + 1 : 0;
        for (int i = 0; i < node->input_count; i++) {
            int producer = node->in[i] == BY_NONE ? -1 : g->values[node->in[i]].producer;
            part = producer >= 0 && w->part[producer] > part ? w->part[producer] : part;
        }
        w->part[n] = part;
        w->parts = part >= w->parts ? part + 1 : w->parts;
    }
    return BY_OK;
}

static by_status list_crossings(calibration_walk *w, by_error *error)
{
    BY_TRY(by__pass_list_crossings(&w->list, &w->list_count, w->graph, w->part, error));
    BY_TRY(by__alloc((void **)&w->crossings, w->list_count, sizeof *w->crossings, "states", error));
    for (size_t i = 0; i < w->list_count; i++) {
        const by__pass_crossing *x = &w->list[i];
        bool first = i == 0 || w->list[i - 1].value != x->value;
        crossing *c = &w->crossings[w->crossing_count - !first];
        if (first) {
            size_t bytes = by__graph_value_bytes(&w->graph->values[x->value]);
            *c = (crossing){.value = x->value, .bytes = bytes, .stride = by__round_up(bytes, LINE)};
            w->crossing_count++;
        }
        c->last = x->to > c->last ? x->to : c->last;
    }
    return BY_OK;
}

/* Allocates memory for a crossing value of all batches, backed by an unnamed file. */
static by_status map_state(calibration_walk *w, crossing *x, by_error *error)
{
    size_t bytes;
    char *path = by__path_join(w->c->temporary, "state");
    by_status status =
        path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
    if (status == BY_OK && !by__size_mul(x->stride, w->tokens.batches, &bytes)) {
        status = by_error_set(error, BY_EMEMORY, "the calibration data is too large");
    }
    int fd = status == BY_OK ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    /* Allocates the blocks of the file now, because a write through the map cannot report an
     * error. */
    int failed = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (status == BY_OK && failed != 0) {
        errno = failed;
        status = by__io_error(error, "write", path);
    }
    if (status == BY_OK) {
        void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        status = data == MAP_FAILED ? by__io_error(error, "map", path) : BY_OK;
        x->data = data == MAP_FAILED ? NULL : data;
    }
    if (fd >= 0) {
        (void)unlink(path);
        (void)close(fd);
    }
    free(path);
    return status;
}

static void unmap_state(const calibration_walk *w, crossing *x)
{
    if (x->data != NULL) {
        (void)munmap(x->data, x->stride * w->tokens.batches);
        x->data = NULL;
    }
}

static crossing *find_crossing(const calibration_walk *w, const char *name)
{
    char buffer[32];
    for (size_t i = 0; i < w->crossing_count; i++) {
        if (strcmp(by__pass_crossing_name(buffer, w->graph, w->crossings[i].value), name) == 0) {
            return &w->crossings[i];
        }
    }
    return NULL;
}

/* ---- a stage ---- */

static void close_stage(calibration_stage *s)
{
    by_program_close(&s->program);
    by_device_free(&s->arena);
    by_device_free(&s->workspace);
    for (size_t v = 0; s->host != NULL && v < s->graph->value_count; v++) {
        if (s->copies) {
            free(s->host[v]);
        }
        by_device_free(&s->bound[v]);
    }
    free(s->host);
    free(s->bound);
    by_graph_close(&s->graph);
}

static by_status read_parameter(const calibration_walk *w, const by__graph_value *value, float *out,
                                by_error *error)
{
    by_tensor_view view;
    char *name = by__compress_file_name(w->c, value->name);
    if (name == NULL && by__checkpoint_name_is_stacked(value->name)) {
        by_tensor_slice whole = {0};
        memcpy(whole.shape, value->shape.dim, (size_t)value->shape.rank * sizeof *whole.shape);
        return by__checkpoint_stacked_read(out, w->c->weights, value->name, &value->shape, &whole,
                                           error);
    }
    if (name == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: no tensor '%s'", by_weights_path(w->c->weights),
                            value->name);
    }
    size_t count;
    by_status status = by__weights_describe(w->c->weights, name, &view, error);
    if (status == BY_OK) {
        status = by_tensor_size(&view, &count, NULL, error);
    }
    if (status == BY_OK && count * sizeof *out > by__graph_value_bytes(value)) {
        status = by_error_set(error, BY_EFORMAT, "%s: tensor '%s' is larger than the model's",
                              by_weights_path(w->c->weights), name);
    }
    if (status == BY_OK) {
        by_tensor_slice whole = by_tensor_whole(&view);
        status = by_weights_read_f32(w->c->weights, name, &whole, out, count, error);
    }
    free(name);
    return status;
}

/* Copies a value that the stage owns to the device. */
static by_status send(const calibration_stage *s, by_value value, by_error *error)
{
    return s->copies ? by_device_write(s->bound[value], s->host[value], error) : BY_OK;
}

static by_status fetch(const calibration_stage *s, by_value value, by_error *error)
{
    return s->copies ? by_device_read(s->host[value], s->bound[value], error) : BY_OK;
}

/* Allocates memory of the stage's own for a value, and binds it. */
static by_status own_value(const calibration_walk *w, calibration_stage *s, by_value v,
                           by_error *error)
{
    const by__graph_value *value = &s->graph->values[v];
    size_t bytes = by__graph_value_bytes(value);
    BY_TRY(by_device_alloc(&s->bound[v], w->device, bytes, value->name, error));
    BY_TRY(by_program_bind(s->program, v, s->bound[v], error));
    if (s->copies) {
        return by__alloc(&s->host[v], bytes, 1, value->name, error);
    }
    s->host[v] = (void *)s->bound[v].address;
    return BY_OK;
}

/* Allocates memory for the stage's parameters and results, and where the device has memory of its
 * own, for what passes between stages. */
static by_status bind_own(const calibration_walk *w, calibration_stage *s, by_error *error)
{
    s->copies = !w->device->host_memory;
    BY_TRY(
        by__alloc((void **)&s->bound, s->graph->value_count, sizeof *s->bound, "a block", error));
    BY_TRY(by__alloc((void **)&s->host, s->graph->value_count, sizeof *s->host, "a block", error));
    for (size_t v = 0; v < s->graph->value_count; v++) {
        const by__graph_value *value = &s->graph->values[v];
        bool passes = value->role == BY_ROLE_INPUT || value->role == BY_ROLE_OUTPUT;
        bool owned = value->role == BY_ROLE_PARAMETER || (passes && s->copies) ||
                     (value->role == BY_ROLE_OUTPUT && find_crossing(w, value->name) == NULL);
        if (!owned) {
            continue;
        }
        BY_TRY(own_value(w, s, (by_value)v, error));
        if (value->role == BY_ROLE_PARAMETER) {
            BY_TRY(read_parameter(w, value, s->host[v], error));
            BY_TRY(send(s, (by_value)v, error));
        }
    }
    return BY_OK;
}

/* What a value that passes between stages has for a batch; NULL: it is not one. */
static void *passed(const calibration_walk *w, const by__graph_value *value, size_t batch)
{
    if (value->role != BY_ROLE_INPUT && value->role != BY_ROLE_OUTPUT) {
        return NULL;
    }
    const crossing *x = find_crossing(w, value->name);
    return x != NULL                            ? x->data + batch * x->stride
           : strcmp(value->name, "tokens") == 0 ? w->tokens.data + batch * w->tokens.stride
                                                : NULL;
}

/* Runs the stage for a batch. */
static by_status run_batch(const calibration_walk *w, calibration_stage *s, size_t batch,
                           by_error *error)
{
    for (size_t v = 0; v < s->graph->value_count; v++) {
        const by__graph_value *value = &s->graph->values[v];
        void *data = passed(w, value, batch);
        if (data != NULL && !s->copies) {
            by_memory memory = by_host_memory(data, by__graph_value_bytes(value));
            BY_TRY(by_program_bind(s->program, (by_value)v, memory, error));
        } else if (data != NULL && value->role == BY_ROLE_INPUT) {
            BY_TRY(by_device_write(s->bound[v], data, error));
        }
    }
    BY_TRY(by_program_run(s->program, error));
    for (size_t v = 0; v < s->graph->value_count && s->copies; v++) {
        const by__graph_value *value = &s->graph->values[v];
        void *data = passed(w, value, batch);
        if (value->role == BY_ROLE_OUTPUT && data != NULL) {
            BY_TRY(by_device_read(data, s->bound[v], error));
        } else if (value->role == BY_ROLE_OUTPUT) {
            BY_TRY(fetch(s, (by_value)v, error));
        }
    }
    return BY_OK;
}

static by_status compile_stage(const calibration_walk *w, calibration_stage *s, by_error *error)
{
    BY_TRY(by_program_compile(&s->program, s->graph, w->device, "calibration", error));
    BY_TRY(by_device_alloc(&s->arena, w->device, by_program_arena_bytes(s->program),
                           "the activations", error));
    BY_TRY(by_device_alloc(&s->workspace, w->device, by_program_workspace_bytes(s->program),
                           "the workspace", error));
    by_program_set_memory(s->program, s->arena, s->workspace);
    return bind_own(w, s, error);
}

static by_status make_results(calibration_walk *w, int part, by_error *error)
{
    for (size_t i = 0; i < w->crossing_count; i++) {
        crossing *x = &w->crossings[i];
        if (w->part[w->graph->values[x->value].producer] == part && x->data == NULL) {
            BY_TRY(map_state(w, x, error));
        }
    }
    return BY_OK;
}

static void drop_states(calibration_walk *w, int part)
{
    for (size_t i = 0; i < w->crossing_count; i++) {
        if (w->crossings[i].last <= part) {
            unmap_state(w, &w->crossings[i]);
        }
    }
}

/* ---- layers of a stage ---- */

/* Layers that read one value, or the same rows of it, and the norm weights that scale its
 * columns. */
typedef struct layer_group {
    by_value x;
    int64_t part;     /* matrix of a stack, which multiplies the rows of its group; else -1 */
    by_value product; /* an output: H, of a stack those of all its matrices */
    by__compress_calibrated what;
    by_value weights[BY__GROUP_LAYERS];
} layer_group;

static by__compress_linear *linear_of(const calibration_walk *w, const char *name)
{
    for (size_t i = 0; i < w->c->linear_count; i++) {
        if (strcmp(w->c->linears[i].name, name) == 0 && !w->c->linears[i].head) {
            return &w->c->linears[i];
        }
    }
    return NULL;
}

/* Finds the norm weights that scale the columns of x, if only the group's layers read x. */
static by_status find_gains(const calibration_walk *w, const calibration_stage *s, layer_group *g,
                            by_error *error)
{
    int *uses;
    int producer = s->graph->values[g->x].producer;
    const by__graph_node *node = producer < 0 ? NULL : &s->graph->nodes[producer];
    uint32_t gains = node == NULL || node->out[0] != g->x ? 0 : by__op_row_of(node->op)->gains;
    BY_TRY(by__graph_uses(s->graph, &uses, error));
    bool alone = uses[g->x] == (int)g->what.count + 2 && /* H reads it twice */
                 s->graph->values[g->x].role != BY_ROLE_OUTPUT;
    free(uses);
    for (int i = 0; node != NULL && i < node->input_count && alone; i++) {
        const by__graph_value *value =
            node->in[i] == BY_NONE ? NULL : &s->graph->values[node->in[i]];
        if (by__mask_has(gains, i) && value != NULL && value->role == BY_ROLE_PARAMETER) {
            char *name = by__compress_file_name(w->c, value->name);
            if (name == NULL || g->what.gain_count == BY__GROUP_GAINS) {
                free(name);
                continue;
            }
            g->what.gains[g->what.gain_count++] = name;
        }
    }
    return BY_OK;
}

static by_status add_layer(calibration_stage *s, layer_group *groups, size_t *count,
                           const by__graph_node *node, int64_t part, by__compress_linear *linear,
                           by_error *error)
{
    by_value product = BY_NONE;
    size_t at = 0;
    for (; at < *count && (groups[at].x != node->in[0] || groups[at].part != part); at++) {
        bool other_part = groups[at].x == node->in[0] && groups[at].part >= 0 && part >= 0;
        product = other_part ? groups[at].product : product;
    }
    layer_group *g = &groups[at];
    if (at == *count) {
        if (product == BY_NONE) {
            char name[32];
            (void)snprintf(name, sizeof name, "calibration.%zu", at);
            product = by__op_row_of(node->op)->gram(s->graph, node);
            by_graph_output(s->graph, product, name);
        }
        *g = (layer_group){.x = node->in[0],
                           .part = part,
                           .product = product,
                           .what = {.k = linear->k, .block = s->number - 1}};
        BY_TRY(by_graph_check(s->graph, error));
        *count += 1;
    }
    if (g->what.count == BY__GROUP_LAYERS) {
        return by_error_set(error, BY_ESTATE, "more than %d layers read what '%s' reads",
                            BY__GROUP_LAYERS, linear->name);
    }
    g->weights[g->what.count] = node->in[1];
    g->what.linears[g->what.count++] = linear;
    return BY_OK;
}

/* Adds the layers whose weights are operand 1 of a product. */
static by_status add_layers(const calibration_walk *w, calibration_stage *s, layer_group *groups,
                            size_t *count, const by__graph_node *node, by_error *error)
{
    const by__graph_value weight = s->graph->values[node->in[1]]; /* adding nodes moves the array */
    bool stacked = weight.role == BY_ROLE_PARAMETER && by__checkpoint_name_is_stacked(weight.name);
    by__compress_linear *linear =
        stacked || weight.role != BY_ROLE_PARAMETER ? NULL : linear_of(w, weight.name);
    if (linear != NULL) {
        return add_layer(s, groups, count, node, -1, linear, error);
    }
    for (int64_t part = 0; stacked && part < weight.shape.dim[0]; part++) {
        char name[512];
        by__checkpoint_stacked_name(name, sizeof name, weight.name, part);
        linear = linear_of(w, name);
        if (linear != NULL) {
            BY_TRY(add_layer(s, groups, count, node, part, linear, error));
        }
    }
    return BY_OK;
}

/* Finds the layers of a stage, and adds nodes that compute their H. */
static by_status find_groups(const calibration_walk *w, calibration_stage *s, layer_group **out,
                             size_t *count, by_error *error)
{
    size_t nodes = s->graph->node_count;
    layer_group *groups;
    BY_TRY(by__alloc((void **)&groups, w->c->linear_count + 1, sizeof *groups, "layers", error));
    *out = groups;
    for (size_t n = 0; n < nodes; n++) {
        const by__graph_node node = s->graph->nodes[n];
        const by__op_row *row = by__op_row_of(node.op);
        if (row->gram != NULL && !node.attrs.trans_a) {
            BY_TRY(add_layers(w, s, groups, count, &node, error));
        }
    }
    for (size_t i = 0; i < *count; i++) {
        BY_TRY(find_gains(w, s, &groups[i], error));
    }
    return BY_OK;
}

static void close_groups(layer_group *groups, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(groups[i].what.hessian);
        for (size_t k = 0; k < groups[i].what.gain_count; k++) {
            free(groups[i].what.gains[k]);
        }
        for (size_t k = 0; k < groups[i].what.count; k++) {
            free(groups[i].what.weights[k]);
        }
    }
    free(groups);
}

/* Adds the product of a run to H. */
static void accumulate(const calibration_stage *s, layer_group *g)
{
    size_t count = (size_t)(g->what.k * g->what.k);
    size_t before = g->part > 0 ? (size_t)g->part * count : 0;
    const float *product = (const float *)s->host[g->product] + before;
    for (size_t i = 0; i < count; i++) {
        g->what.hessian[i] += (double)product[i];
    }
}

static by_status measure(calibration_walk *w, calibration_stage *s, layer_group *groups,
                         size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        size_t elements = (size_t)(groups[i].what.k * groups[i].what.k);
        BY_TRY(by__alloc((void **)&groups[i].what.hessian, elements, sizeof(double),
                         "what a layer reads", error));
        groups[i].what.rows = w->tokens.rows * (int64_t)w->tokens.batches;
    }
    for (size_t b = 0; b < w->tokens.batches; b++) {
        BY_TRY(run_batch(w, s, b, error));
        for (size_t i = 0; i < count; i++) {
            accumulate(s, &groups[i]);
        }
        BY_TRY(by__compress_report(w->c, "reading", w->done, w->all, error));
    }
    return BY_OK;
}

/* Copies a layer's weight [n, k] to matrix `part` of the stage's parameter, in its order. */
static void put_weight(const calibration_stage *s, by_value parameter, int64_t part,
                       const by__compress_linear *l, const float *weight)
{
    float *to = (float *)s->host[parameter] + (part > 0 ? part * l->n * l->k : 0);
    for (int64_t j = 0; j < l->n; j++) {
        for (int64_t i = 0; i < l->k; i++) {
            to[l->in_out ? i * l->n + j : j * l->k + i] = weight[j * l->k + i];
        }
    }
}

static by_status change(const calibration_walk *w, calibration_stage *s, layer_group *g,
                        by_error *error)
{
    for (size_t k = 0; k < g->what.count; k++) {
        const by__compress_linear *l = g->what.linears[k];
        BY_TRY(by__alloc((void **)&g->what.weights[k], (size_t)(l->n * l->k), sizeof(float),
                         "a layer", error));
        BY_TRY(by__compress_linear_read(w->c, l, g->what.weights[k], error));
    }
    BY_TRY(w->fn(w->c, &g->what, w->user, error));
    for (size_t k = 0; k < g->what.count; k++) {
        put_weight(s, g->weights[k], g->part, g->what.linears[k], g->what.weights[k]);
        BY_TRY(send(s, g->weights[k], error));
        free(g->what.weights[k]);
        g->what.weights[k] = NULL;
    }
    free(g->what.hessian);
    g->what.hessian = NULL;
    return BY_OK;
}

/* ---- the residual stream ---- */

#define LAST_STREAM "calibration.stream"

/* Returns the value for a batch; it crosses to the next part or is a result of this one. */
static const float *stream_of(const calibration_walk *w, const calibration_stage *s, by_value value,
                              size_t batch)
{
    char buffer[32];
    const char *name = by__pass_crossing_name(buffer, w->graph, value);
    const crossing *x = find_crossing(w, name);
    if (x != NULL) {
        return (const float *)(x->data + batch * x->stride);
    }
    by_value own = by_graph_find(s->graph, name);
    return own == BY_NONE ? NULL : (const float *)s->host[own];
}

/* Finds the residual stream after a part: the last crossing value of its shape, or the model's last
 * value. */
static void find_stream(calibration_walk *w, int part)
{
    by_value last = by_graph_find(w->graph, LAST_STREAM);
    const by_shape *shape = &w->graph->values[last].shape;
    w->stream[0] = w->stream[1];
    w->stream[1] = BY_NONE;
    for (size_t i = 0; i < w->crossing_count; i++) {
        const by__graph_value *value = &w->graph->values[w->crossings[i].value];
        if (w->part[value->producer] == part && by_shape_equal(&value->shape, shape)) {
            w->stream[1] = w->crossings[i].value;
        }
    }
    if (w->part[w->graph->values[last].producer] == part) {
        w->stream[1] = last;
    }
}

static by_status show_block(const calibration_walk *w, const calibration_stage *s, size_t batch,
                            by_error *error)
{
    const float *before = stream_of(w, s, w->stream[0], batch);
    const float *behind = stream_of(w, s, w->stream[1], batch);
    if (before == NULL || behind == NULL) {
        return by_error_set(error, BY_EARG, "block %d of the model has no residual stream",
                            s->number - 1);
    }
    return w->block_fn(w->c, s->number - 1, before, behind, w->tokens.rows,
                       w->c->config->model.width, w->user, error);
}

/* Runs the part again with its changed weights, for the parts after it. */
static by_status run_batches(const calibration_walk *w, calibration_stage *s, by_error *error)
{
    bool needed = s->number + 1 < w->parts || w->block_fn != NULL;
    for (size_t b = 0; b < w->tokens.batches && needed; b++) {
        if (s->graph->node_count > 0) {
            BY_TRY(run_batch(w, s, b, error));
        }
        if (w->block_fn != NULL && s->number > 0) {
            BY_TRY(show_block(w, s, b, error));
        }
    }
    return BY_OK;
}

static by_status run_part(calibration_walk *w, int part, by_error *error)
{
    calibration_stage s = {.number = part};
    layer_group *groups = NULL;
    size_t count = 0;
    by_status status =
        by__pass_cut_part(&s.graph, w->graph, w->part, part, w->list, w->list_count, error);
    if (w->block_fn != NULL) {
        find_stream(w, part);
    }
    if (status == BY_OK && part > 0 && w->fn != NULL) {
        status = find_groups(w, &s, &groups, &count, error);
    }
    if (status == BY_OK) {
        status = make_results(w, part, error);
    }
    if (status == BY_OK && s.graph->node_count > 0) {
        status = compile_stage(w, &s, error);
    }
    if (status == BY_OK && count > 0) {
        status = measure(w, &s, groups, count, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by__compress_report(w->c, groups[i].what.linears[0]->name, w->done, w->all, error);
        if (status == BY_OK) {
            status = change(w, &s, &groups[i], error);
        }
        w->done += groups[i].what.count;
    }
    if (status == BY_OK) {
        status = run_batches(w, &s, error);
    }
    drop_states(w, part);
    close_groups(groups, count);
    close_stage(&s);
    return status;
}

static by_status open_walk(calibration_walk *w, by_error *error)
{
    by_model model = BY_MODEL_NONE;
    const by_model_config *config = &w->c->config->model;
    const by_model_request request = {
        .mode = BY_MODEL_LOSS, .batch = w->tokens.batch, .time = w->tokens.time};
    BY_TRY(by_graph_open(&w->graph, error));
    BY_TRY(by_model_build(&model, w->graph, config, &request, error));
    by_graph_output(w->graph, model.hidden, "calibration.hidden"); /* so that it is read */
    if (w->block_fn != NULL) {
        int norm = w->graph->values[model.hidden].producer;
        by_graph_output(w->graph, w->graph->nodes[norm].in[0], LAST_STREAM);
    }
    BY_TRY(by_graph_check(w->graph, error));
    BY_TRY(assign_parts(w, error));
    BY_TRY(list_crossings(w, error));
    for (size_t i = 0; i < w->c->linear_count; i++) {
        w->all += !w->c->linears[i].head;
    }
    w->device = w->c->options->device;
    return w->device != NULL
               ? BY_OK
               : by_device_open(&w->device, w->c->config->device, w->c->threads, error);
}

static by_status run_walk(calibration_walk *w, by_error *error)
{
    by_status status = open_walk(w, error);
    for (int part = 0; part < w->parts && status == BY_OK; part++) {
        status = run_part(w, part, error);
    }
    for (size_t i = 0; i < w->crossing_count; i++) {
        unmap_state(w, &w->crossings[i]);
    }
    if (w->c->options->device == NULL) {
        by_device_close(&w->device);
    }
    free(w->crossings);
    free(w->list);
    free(w->part);
    by_graph_close(&w->graph);
    return status;
}

by_status by__compress_calibrate_on(by__compress_state *c,
                                    const by__compress_calibration_tokens *tokens,
                                    by__compress_calibrate_fn *fn, void *user, by_error *error)
{
    calibration_walk w = {.c = c, .tokens = *tokens, .fn = fn, .user = user};
    return run_walk(&w, error);
}

by_status by__compress_calibrate(by__compress_state *c, by__compress_calibrate_fn *fn, void *user,
                                 by_error *error)
{
    by__compress_calibration_tokens tokens;
    BY_TRY(by__compress_calibration_read(&tokens, c, ROWS, error));
    by_status status = by__compress_calibrate_on(c, &tokens, fn, user, error);
    by__compress_calibration_free(&tokens);
    return status;
}

by_status by__compress_calibrate_blocks(by__compress_state *c, by__compress_block_fn *fn,
                                        void *user, by_error *error)
{
    calibration_walk w = {.c = c, .block_fn = fn, .stream = {BY_NONE, BY_NONE}, .user = user};
    BY_TRY(by__compress_calibration_read(&w.tokens, c, ROWS, error));
    by_status status = run_walk(&w, error);
    by__compress_calibration_free(&w.tokens);
    return status;
}
