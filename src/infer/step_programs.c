#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "infer/scheduler.h"

/* Programs with more rows than this have a variant with FEW wanted rows, because only one row of a
 * prompt is wanted and the head's product is as large as several layers. */
#define FEW 8

/* How estimates of time follow measurements: a longer time enters with weight RISE and counts as at
 * most MAX_RISE times the estimate, and the estimate decays by FADING with each step. ROW_COST is
 * the relative cost assumed for additional rows before they were measured. */
#define RISE     0.5
#define MAX_RISE 1.25
#define FADING   0.998
#define ROW_COST 0.2

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static by_status build_program(by__infer_step_programs *s, by__infer_step_program *p,
                               by_error *error)
{
    by_model model;
    by_model_request request = {.mode = BY_MODEL_STEP,
                                .codes = s->forward->options.codes,
                                .batch = 1,
                                .time = p->rows,
                                .wanted = p->wanted,
                                .sessions = s->sessions,
                                .table = s->table,
                                .pages = s->pages};
    (void)snprintf(p->name, sizeof p->name, "step %lld, %lld", (long long)p->rows,
                   (long long)p->wanted);
    return by__infer_forward_add(s->forward, p->name, &request, &model, &p->program, error);
}

/* Derives the FLOPs and bytes of a row and a key from the largest program. */
static by_status measure(by__infer_step_programs *s, by_error *error)
{
    const by__infer_step_program *p = &s->list[s->count - 1];
    assert(p->program != NULL);
    const by_graph *graph = p->program->graph;
    const by__graph_value *logits = &graph->values[by_graph_find(graph, "logits")];
    int64_t all;
    int64_t products;
    BY_TRY(by_model_count(graph, &all, &products, error));
    double width = 0.0; /* of the hidden state */
    s->carries = by__op_carries(graph, BY_NONE);
    for (size_t n = 0; n < graph->node_count; n++) {
        by__op_attention_cost cost;
        BY_TRY(by__op_node_attention(graph, n, &cost, error));
        bool limited = cost.cached_window > 0.0;
        *(limited ? &s->window_flops : &s->key_flops) += cost.cached_flops / (double)p->rows;
        *(limited ? &s->window_bytes : &s->key_bytes) += cost.cached_bytes / (double)p->rows;
        s->window = fmax(s->window, cost.cached_window);
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role == BY_ROLE_PARAMETER) {
            s->weight_bytes += (double)by__graph_value_bytes(value);
        }
    }
    if (logits->producer >= 0) {
        const by__graph_node *node = &graph->nodes[logits->producer];
        width = (double)by__op_last_dim(&graph->values[node->in[0]].shape);
    }
    s->vocab = by__op_last_dim(&logits->shape);
    s->wanted_flops = 2.0 * width * (double)s->vocab;
    s->row_flops = 2.0 * (double)products - s->wanted_flops;
    return BY_OK;
}

void by__infer_steps_list(by__infer_step_programs *out, const int64_t *sizes, int count,
                          int64_t sessions, int64_t wanted, int64_t table, int64_t pages)
{
    const int64_t variants[] = {smaller(FEW, sessions), sessions, wanted};
    by__infer_step_programs *s = out;
    *s = (by__infer_step_programs){.sessions = sessions, .table = table, .pages = pages};
    for (int i = 0; i < count; i++) {
        int64_t last = 0;
        for (size_t v = 0; v < BY_ARRAY_LENGTH(variants); v++) {
            int64_t most = smaller(sizes[i], variants[v]);
            if (most > last) {
                s->list[s->count++] = (by__infer_step_program){.rows = sizes[i], .wanted = most};
                last = most;
            }
        }
    }
    s->rows = sizes[count - 1];
    s->wanted = smaller(s->rows, wanted);
}

by_status by__infer_steps_compile(by__infer_step_programs *out, by__infer_forward *forward,
                                  const int64_t *sizes, int count, int64_t sessions, int64_t wanted,
                                  int64_t table, int64_t pages, by_error *error)
{
    by__infer_steps_list(out, sizes, count, sessions, wanted, table, pages);
    out->forward = forward;
    for (int i = 0; i < out->count; i++) {
        BY_TRY(build_program(out, &out->list[i], error));
    }
    return measure(out, error);
}

/* Takes the next `count` numbers of a block, aligned as the device asks. */
static size_t carve(const by__infer_step_programs *s, size_t *used, int64_t count)
{
    size_t at = *used;
    *used += by__round_up((size_t)count * sizeof(int32_t), by__device_unit(s->forward->device));
    return at;
}

static void place_inputs(by__infer_step_programs *s)
{
    size_t used = 0;
    s->tokens_at = carve(s, &used, s->rows);
    s->positions_at = carve(s, &used, s->rows);
    s->sessions_at = carve(s, &used, s->rows);
    s->wanted_at = carve(s, &used, s->wanted);
    s->pages_at = carve(s, &used, s->sessions * s->table);
    s->input_bytes = used;
}

static size_t logits_bytes(const by__infer_step_programs *s)
{
    return (size_t)(s->wanted * s->vocab) * sizeof(float);
}

size_t by__infer_steps_bytes(const by__infer_step_programs *steps)
{
    by__infer_step_programs placed = *steps;
    place_inputs(&placed);
    return 2 * (placed.input_bytes + logits_bytes(steps));
}

static by_status bind(by__infer_step_programs *s, const by__infer_step_program *p, by_error *error)
{
    const struct {
        const char *name;
        size_t at;
        int64_t count;
    } inputs[] = {{"tokens", s->tokens_at, p->rows},
                  {"positions", s->positions_at, p->rows},
                  {"sessions", s->sessions_at, p->rows},
                  {"wanted", s->wanted_at, p->wanted},
                  {"pages", s->pages_at, s->sessions * s->table}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(inputs); i++) {
        by_memory memory =
            by_memory_at(s->inputs, inputs[i].at, (size_t)inputs[i].count * sizeof(int32_t));
        BY_TRY(by__exec_row_bind(p->program, inputs[i].name, memory, error));
    }
    return by__exec_row_bind(p->program, "logits", s->logits_memory, error);
}

by_status by__infer_steps_allocate(by__infer_step_programs *steps, by_error *error)
{
    by__infer_step_programs *s = steps;
    by_device *device = s->forward->device;
    place_inputs(s);
    BY_TRY(by_device_alloc(&s->inputs, device, s->input_bytes, "the inputs", error));
    BY_TRY(by_device_alloc(&s->logits_memory, device, logits_bytes(s), "the logits", error));
    BY_TRY(by_device_pin(&s->host, device, s->input_bytes + logits_bytes(s), "tokens and logits",
                         error));
    char *block = s->host.data;
    s->tokens = (int32_t *)(void *)(block + s->tokens_at);
    s->positions = (int32_t *)(void *)(block + s->positions_at);
    s->row_sessions = (int32_t *)(void *)(block + s->sessions_at);
    s->wanted_rows = (int32_t *)(void *)(block + s->wanted_at);
    s->page_table = (int32_t *)(void *)(block + s->pages_at);
    s->logits = (float *)(void *)(block + s->input_bytes);
    for (int i = 0; i < s->count; i++) {
        BY_TRY(bind(s, &s->list[i], error));
    }
    return BY_OK;
}

void by__infer_steps_close(by__infer_step_programs *steps)
{
    by_device_unpin(&steps->host);
    by_device_free(&steps->inputs);
    by_device_free(&steps->logits_memory);
}

by__infer_step_program *by__infer_steps_choose(by__infer_step_programs *steps, int64_t rows,
                                               int64_t wanted)
{
    int i = 0;
    while (i + 1 < steps->count && (steps->list[i].rows < rows || steps->list[i].wanted < wanted)) {
        i++;
    }
    return &steps->list[i];
}

void by__infer_learn_seconds(double *known, double seconds)
{
    if (*known == 0.0 || seconds < *known) {
        *known = seconds;
    } else {
        *known += RISE * (fmin(seconds, MAX_RISE * *known) - *known);
    }
}

void by__infer_forget_seconds(double *known)
{
    *known *= FADING;
}

static void record_time(by__infer_step_programs *s, by__infer_step_program *program, double seconds)
{
    for (int i = 0; i < s->count; i++) {
        by__infer_forget_seconds(&s->list[i].seconds);
    }
    by__infer_learn_seconds(&program->seconds, seconds);
}

double by__infer_steps_seconds(const by__infer_step_programs *steps,
                               const by__infer_step_program *program)
{
    const by__infer_step_program *known = NULL;
    if (program->seconds > 0.0) {
        return program->seconds;
    }
    for (const by__infer_step_program *p = steps->list; p < program; p++) {
        known = p->seconds > 0.0 ? p : known;
    }
    return known == NULL
               ? 1.0
               : known->seconds *
                     (1.0 + ROW_COST * (double)(program->rows - known->rows) / (double)known->rows);
}

by_status by__infer_steps_run(by__infer_step_programs *steps, by__infer_step_program *program,
                              int64_t rows, int64_t wanted, by_error *error)
{
    by__infer_step_programs *s = steps;
    double began = by__now();
    for (int64_t i = rows; i < program->rows; i++) {
        s->tokens[i] = 0;
        s->positions[i] = -1;
        s->row_sessions[i] = 0;
    }
    for (int64_t i = wanted; i < program->wanted; i++) {
        s->wanted_rows[i] = -1;
    }
    size_t bytes = (size_t)(wanted * s->vocab) * sizeof(float);
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, s->inputs, s->host.data, error));
    BY_TRY(by_program_submit(program->program->program, error));
    if (wanted > 0) {
        BY_TRY(by__device_copy_out(BY__QUEUE_COMPUTE, s->logits,
                                   by_memory_at(s->logits_memory, 0, bytes), error));
    }
    BY_TRY(by__device_queue_finish(s->forward->device, BY__QUEUE_COMPUTE, error));
    record_time(s, program, by__now() - began);
    return BY_OK;
}

by_status by__infer_steps_copy_page(by__infer_step_programs *steps, by__infer_page_copy copy,
                                    by_error *error)
{
    by__store *store = steps->forward->store;
    for (size_t i = 0; i < by__store_count(store); i++) {
        by_memory pool = by__store_buffer(store, steps->forward->caches, (by__store_handle)i);
        if (pool.bytes == 0) {
            continue; /* a weight */
        }
        by_shape shape = by__store_entry(store, (by__store_handle)i)->shape;
        size_t page = (size_t)(by_shape_count(&shape) / shape.dim[0]) *
                      by_dtype_size(by__store_entry(store, (by__store_handle)i)->format);
        BY_TRY(by__device_copy(BY__QUEUE_COMPUTE, by_memory_at(pool, (size_t)copy.to * page, page),
                               by_memory_at(pool, (size_t)copy.from * page, page), error));
    }
    return BY_OK;
}
