#include "train/guards/node_watch.h"

#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "ops/row.h"

struct by__watched {
    const by__watch *watch;
    const by__program_row *row;
};

static void look(void *user, int node, double begin, double end)
{
    const by__watched *w = user;
    BY_UNUSED(begin);
    BY_UNUSED(end);
    if (!by__op_row_of(w->row->graph->nodes[node].op)->communicates) {
        w->watch->call(w->watch->user, w->row, (size_t)node,
                       by__program_call(w->row->program, (size_t)node));
    }
}

by_status by__watch_begin(by__watch *watch, by_trainer *t, by__watcher *call, void *user,
                          by_error *error)
{
    size_t count = t->programs.count;
    *watch = (by__watch){.call = call, .user = user};
    BY_TRY(by__alloc((void **)&watch->rows, count, sizeof *watch->rows, "guards", error));
    watch->count = count;
    for (size_t i = 0; i < count; i++) {
        by__program_row *row = &t->programs.rows[i];
        watch->rows[i] = (by__watched){watch, row};
        by_program_set_hook(row->program, look, &watch->rows[i]);
    }
    return BY_OK;
}

void by__watch_end(by__watch *watch)
{
    for (size_t i = 0; i < watch->count; i++) {
        by_program_set_hook(watch->rows[i].row->program, NULL, NULL);
    }
    free(watch->rows);
    *watch = (by__watch){0};
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

void by__watch_describe(const by__program_row *row, size_t node, char *text, size_t size)
{
    const by__node *n = &row->graph->nodes[node];
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
