/* Runs calibration data through a model and reports what its layers read. The forward pass is cut
 * into blocks (passes/stages.h), which run one after the other over all sequences. A block first
 * computes H = sum of x x^T over the rows x that its layers read; a method then changes their
 * weights; and the block runs again with the weights that inference will use, for the blocks after
 * it. Memory is needed for one block only; values passed between blocks are in mapped files of the
 * temporary directory. */
#include <stdlib.h>

#include "compress/calibrate.h"
#include "nn/nn.h"

/* Rows of a run, if there are enough samples. */
#define ROWS 512
#define LINE 64

/* ---- parts ---- */

static by_status assign_parts(by__compress_walk *w, by_error *error)
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

static by_status list_crossings(by__compress_walk *w, by_error *error)
{
    BY_TRY(by__pass_list_crossings(&w->list, &w->list_count, w->graph, w->part, error));
    BY_TRY(by__alloc((void **)&w->crossings, w->list_count, sizeof *w->crossings, "states", error));
    for (size_t i = 0; i < w->list_count; i++) {
        const by__pass_crossing *x = &w->list[i];
        bool first = i == 0 || w->list[i - 1].value != x->value;
        by__compress_crossing *c = &w->crossings[w->crossing_count - !first];
        if (first) {
            size_t bytes = by__graph_value_bytes(&w->graph->values[x->value]);
            *c = (by__compress_crossing){
                .value = x->value, .bytes = bytes, .stride = by__round_up(bytes, LINE)};
            w->crossing_count++;
        }
        c->last = x->to > c->last ? x->to : c->last;
    }
    return BY_OK;
}

/* Allocates the values that a part makes for others. */
static by_status make_results(by__compress_walk *w, int part, by_error *error)
{
    for (size_t i = 0; i < w->crossing_count; i++) {
        by__compress_crossing *x = &w->crossings[i];
        if (w->part[w->graph->values[x->value].producer] == part && x->data == NULL) {
            BY_TRY(by__compress_state_map(w, x, error));
        }
    }
    return BY_OK;
}

static void drop_states(by__compress_walk *w, int part)
{
    for (size_t i = 0; i < w->crossing_count; i++) {
        if (w->crossings[i].last <= part) {
            by__compress_state_unmap(w, &w->crossings[i]);
        }
    }
}

/* ---- the residual stream ---- */

#define LAST_STREAM "calibration.stream"

/* Returns the value for a batch; it crosses to the next part or is a result of this one. */
static const float *stream_of(const by__compress_walk *w, const by__compress_stage *s,
                              by_value value, size_t batch)
{
    char buffer[32];
    const char *name = by__pass_crossing_name(buffer, w->graph, value);
    const by__compress_crossing *x = by__compress_crossing_find(w, name);
    if (x != NULL) {
        return (const float *)(x->data + batch * x->stride);
    }
    by_value own = by_graph_find(s->graph, name);
    return own == BY_NONE ? NULL : (const float *)s->host[own];
}

/* Finds the residual stream after a part: the last crossing value of its shape, or the model's last
 * value. */
static void find_stream(by__compress_walk *w, int part)
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

static by_status show_block(const by__compress_walk *w, const by__compress_stage *s, size_t batch,
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
static by_status run_batches(const by__compress_walk *w, by__compress_stage *s, by_error *error)
{
    bool needed = s->number + 1 < w->parts || w->block_fn != NULL;
    for (size_t b = 0; b < w->tokens.batches && needed; b++) {
        if (s->graph->node_count > 0) {
            BY_TRY(by__compress_stage_run(w, s, b, error));
        }
        if (w->block_fn != NULL && s->number > 0) {
            BY_TRY(show_block(w, s, b, error));
        }
    }
    return BY_OK;
}

static by_status run_part(by__compress_walk *w, int part, by_error *error)
{
    by__compress_stage s = {.number = part};
    by__compress_layer_group *groups = NULL;
    size_t count = 0;
    by_status status =
        by__pass_cut_part(&s.graph, w->graph, w->part, part, w->list, w->list_count, error);
    if (w->block_fn != NULL) {
        find_stream(w, part);
    }
    if (status == BY_OK && part > 0 && w->fn != NULL) {
        status = by__compress_layers_find(w, &s, &groups, &count, error);
    }
    if (status == BY_OK) {
        status = make_results(w, part, error);
    }
    if (status == BY_OK && s.graph->node_count > 0) {
        status = by__compress_stage_open(w, &s, error);
    }
    if (status == BY_OK && count > 0) {
        status = by__compress_layers_measure(w, &s, groups, count, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by__compress_report(w->c, groups[i].what.linears[0]->name, w->done, w->all, error);
        if (status == BY_OK) {
            status = by__compress_layers_change(w, &s, &groups[i], error);
        }
        w->done += groups[i].what.count;
    }
    if (status == BY_OK) {
        status = run_batches(w, &s, error);
    }
    drop_states(w, part);
    by__compress_layers_close(groups, count);
    by__compress_stage_close(&s);
    return status;
}

static by_status open_walk(by__compress_walk *w, by_error *error)
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

static by_status run_walk(by__compress_walk *w, by_error *error)
{
    by_status status = open_walk(w, error);
    for (int part = 0; part < w->parts && status == BY_OK; part++) {
        status = run_part(w, part, error);
    }
    for (size_t i = 0; i < w->crossing_count; i++) {
        by__compress_state_unmap(w, &w->crossings[i]);
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
    by__compress_walk w = {.c = c, .tokens = *tokens, .fn = fn, .user = user};
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
    by__compress_walk w = {.c = c, .block_fn = fn, .stream = {BY_NONE, BY_NONE}, .user = user};
    BY_TRY(by__compress_calibration_read(&w.tokens, c, ROWS, error));
    by_status status = run_walk(&w, error);
    by__compress_calibration_free(&w.tokens);
    return status;
}
