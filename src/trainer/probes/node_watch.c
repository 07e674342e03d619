#include "trainer/probes/node_watch.h"

#include <stdlib.h>
#include <string.h>

#include "ops/row.h"
#include "trainer/probes/probes.h"

typedef struct watched {
    by__trainer_node_watch *watch;
    const by__exec_program_row *row;
} watched;

struct by__trainer_node_watch {
    struct {
        by__trainer_node_watcher *call;
        void *user;
    } slots[BY__WATCH_SLOTS];
    by_device *device;
    by_error failure; /* of a copy */
    /* Copies of what a node reads and writes; on a device with the host's memory, none. */
    void **copies;
    size_t *capacities;
    size_t copy_count;
    by__device_tensor *in;
    size_t in_capacity;
    size_t count;
    watched rows[]; /* one per program */
};

/* Replaces a tensor's address by that of a copy on the host, number *used. */
static by_status fetch(by__trainer_node_watch *w, by__device_tensor *x, size_t *used,
                       by_error *error)
{
    size_t bytes;
    if (x->shape.rank < 0 || x->data == NULL) {
        return BY_OK;
    }
    bytes = (size_t)by_shape_count(&x->shape) * by_dtype_size(x->dtype);
    if (*used == w->copy_count) {
        size_t copies = w->copy_count;
        size_t capacities = w->copy_count;
        BY_TRY(by__reserve((void **)&w->copies, &copies, *used + 1, sizeof *w->copies, error));
        BY_TRY(by__reserve((void **)&w->capacities, &capacities, *used + 1, sizeof *w->capacities,
                           error));
        w->copies[*used] = NULL;
        w->capacities[*used] = 0;
        w->copy_count = *used + 1;
    }
    BY_TRY(by__reserve(&w->copies[*used], &w->capacities[*used], bytes, 1, error));
    by_memory from = {w->device, (uintptr_t)x->data, bytes};
    x->data = w->copies[(*used)++];
    return bytes == 0 ? BY_OK : by_device_read(x->data, from, error);
}

/* A call whose tensors are on the host, valid until the next one. */
static by_status fetch_call(by__trainer_node_watch *w, by__device_call *out,
                            const by__device_call *call, by_error *error)
{
    size_t slots =
        (size_t)(call->input_count > BY__MAX_INPUTS ? call->input_count : BY__MAX_INPUTS);
    size_t used = 0;
    BY_TRY(by__reserve((void **)&w->in, &w->in_capacity, slots, sizeof *w->in, error));
    memcpy(w->in, call->in, slots * sizeof *w->in);
    *out = *call;
    for (int i = 0; i < call->input_count; i++) {
        BY_TRY(fetch(w, &w->in[i], &used, error));
    }
    for (int o = 0; o < call->output_count; o++) {
        int shared = -1;
        for (int i = 0; i < call->input_count; i++) {
            shared = call->in[i].data == call->out[o].data ? i : shared;
        }
        if (shared >= 0 && call->out[o].data != NULL) {
            out->out[o].data = w->in[shared].data;
        } else {
            BY_TRY(fetch(w, &out->out[o], &used, error));
        }
    }
    out->in = w->in;
    return BY_OK;
}

static void report_node(void *user, int node, double begin, double end)
{
    const watched *w = user;
    by__device_call copied;
    BY_UNUSED(begin);
    BY_UNUSED(end);
    if (by__op_row_of(w->row->graph->nodes[node].op)->communicates) {
        return;
    }
    const by__device_call *call = by__exec_program_call(w->row->program, (size_t)node);
    if (!w->watch->device->host_memory) {
        by_error *failure = &w->watch->failure;
        if (failure->status != BY_OK || fetch_call(w->watch, &copied, call, failure) != BY_OK) {
            return;
        }
        call = &copied;
    }
    for (int i = 0; i < BY__WATCH_SLOTS; i++) {
        if (w->watch->slots[i].call != NULL) {
            w->watch->slots[i].call(w->watch->slots[i].user, w->row, (size_t)node, call);
        }
    }
}

static by_status open_watch(by_trainer *t, by_error *error)
{
    size_t count = t->programs.count;
    BY_TRY(by__alloc((void **)&t->probes.watch, 1,
                     sizeof *t->probes.watch + count * sizeof *t->probes.watch->rows, "guards",
                     error));
    t->probes.watch->count = count;
    t->probes.watch->device = t->device;
    for (size_t i = 0; i < count; i++) {
        t->probes.watch->rows[i] = (watched){t->probes.watch, t->programs.rows[i]};
    }
    return BY_OK;
}

by_status by__trainer_node_watch_set(by_trainer *t, by__trainer_node_watch_slot slot,
                                     by__trainer_node_watcher *call, void *user, by_error *error)
{
    bool any = false;
    BY_TRY(t->probes.watch == NULL ? open_watch(t, error) : BY_OK);
    t->probes.watch->failure = call == NULL ? t->probes.watch->failure : (by_error){0};
    t->probes.watch->slots[slot].call = call;
    t->probes.watch->slots[slot].user = user;
    for (int i = 0; i < BY__WATCH_SLOTS; i++) {
        any = any || t->probes.watch->slots[i].call != NULL;
    }
    BY_TRY(t->device->host_memory ? BY_OK : by_device_finish(t->device, error));
    by__device_set_stepwise(t->device, any && !t->device->host_memory);
    for (size_t i = 0; i < t->probes.watch->count; i++) {
        by_program_set_hook(t->programs.rows[i]->program, any ? report_node : NULL,
                            &t->probes.watch->rows[i]);
    }
    return BY_OK;
}

void by__trainer_node_watch_close(by_trainer *t)
{
    by__trainer_node_watch *w = t->probes.watch;
    for (size_t i = 0; w != NULL && i < w->copy_count; i++) {
        free(w->copies[i]);
    }
    if (w != NULL) {
        free(w->copies);
        free(w->capacities);
        free(w->in);
    }
    free(w);
    t->probes.watch = NULL;
}

by_status by__trainer_node_watch_failure(const by_trainer *t, by_error *error)
{
    return t->probes.watch == NULL || t->probes.watch->failure.status == BY_OK
               ? BY_OK
               : by_error_set(error, t->probes.watch->failure.status, "guards: %s",
                              t->probes.watch->failure.message);
}

static const char *name_of(const by_graph *graph, const by_value *values, int count)
{
    for (int i = 0; i < count; i++) {
        if (values[i] != BY_NONE && graph->values[values[i]].name != NULL) {
            return graph->values[values[i]].name;
        }
    }
    return NULL;
}

void by__trainer_node_watch_describe(const by__exec_program_row *row, size_t node, char *text,
                                     size_t size)
{
    const by__graph_node *n = &row->graph->nodes[node];
    const char *name = name_of(row->graph, n->out, n->output_count);
    char block[32] = "";
    if (name == NULL) {
        name = name_of(row->graph, n->in, n->input_count);
    }
    if (n->block >= 0) {
        (void)snprintf(block, sizeof block, " of block %d", n->block);
    }
    (void)snprintf(text, size, "%s%s in the %s pass, node %zu%s%s%s", by_op_name(n->op), block,
                   n->phase == BY__BACKWARD ? "backward" : "forward", node,
                   name == NULL ? "" : " (", name == NULL ? "" : name, name == NULL ? "" : ")");
}
