#include "trainer/probes/node_watch.h"

#include <stdlib.h>
#include <string.h>

#include "ops/row.h"
#include "trainer/probes/probes.h"

typedef struct watched {
    const by__trainer_node_watch *watch;
    const by__exec_program_row *row;
} watched;

struct by__trainer_node_watch {
    struct {
        by__trainer_node_watcher *call;
        void *user;
    } slots[BY__WATCH_SLOTS];
    size_t count;
    watched rows[]; /* one per program */
};

static void look(void *user, int node, double begin, double end)
{
    const watched *w = user;
    BY_UNUSED(begin);
    BY_UNUSED(end);
    if (by__op_row_of(w->row->graph->nodes[node].op)->communicates) {
        return;
    }
    const by__device_call *call = by__exec_program_call(w->row->program, (size_t)node);
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
    t->probes.watch->slots[slot].call = call;
    t->probes.watch->slots[slot].user = user;
    for (int i = 0; i < BY__WATCH_SLOTS; i++) {
        any = any || t->probes.watch->slots[i].call != NULL;
    }
    for (size_t i = 0; i < t->probes.watch->count; i++) {
        by_program_set_hook(t->programs.rows[i]->program, any ? look : NULL,
                            &t->probes.watch->rows[i]);
    }
    return BY_OK;
}

void by__trainer_node_watch_close(by_trainer *t)
{
    free(t->probes.watch);
    t->probes.watch = NULL;
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
