#include <stdlib.h>

#include "passes/stages.h"

const char *by__pass_crossing_name(char buffer[32], const by_graph *graph, by_value value)
{
    if (graph->values[value].name != NULL) {
        return graph->values[value].name;
    }
    (void)snprintf(buffer, 32, "cut.%d", (int)value);
    return buffer;
}

/* Marks the nodes of a part, the views of other parts that they read, and all values that these
 * read. A wait node goes with its collective. */
static void mark_part(bool *included, bool *read, const by_graph *graph, const int *part,
                      int wanted)
{
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        bool view = row->view && !row->waits && node->out[0] != BY_NONE && read[node->out[0]];
        included[n] = part[n] == wanted || view;
        for (int i = 0; i < node->input_count && included[n]; i++) {
            if (node->in[i] != BY_NONE) {
                read[node->in[i]] = true;
            }
        }
    }
}

typedef struct marks {
    bool *included; /* nodes */
    bool *read;     /* values */
} marks;

static by_status open_marks(marks *m, const by_graph *graph, by_error *error)
{
    *m = (marks){0};
    BY_TRY(by__alloc((void **)&m->included, graph->node_count + 1, 1, "cut", error));
    by_status status = by__alloc((void **)&m->read, graph->value_count + 1, 1, "cut", error);
    if (status != BY_OK) {
        free(m->included);
    }
    return status;
}

static void close_marks(marks *m)
{
    free(m->included);
    free(m->read);
}

typedef struct crossing_list {
    by__pass_crossing *items;
    size_t count;
    size_t capacity;
} crossing_list;

/* Appends what a part reads from other parts. */
static by_status list_part(crossing_list *list, const by_graph *graph, const int *part, int wanted,
                           by_error *error)
{
    marks m;
    BY_TRY(open_marks(&m, graph, error));
    mark_part(m.included, m.read, graph, part, wanted);
    by_status status = BY_OK;
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        int producer = graph->values[v].producer;
        if (!m.read[v] || producer < 0 || m.included[producer]) {
            continue;
        }
        status = by__reserve((void **)&list->items, &list->capacity, list->count + 1,
                             sizeof *list->items, error);
        if (status == BY_OK) {
            list->items[list->count++] = (by__pass_crossing){(by_value)v, part[producer], wanted};
        }
    }
    close_marks(&m);
    return status;
}

static int by_value_then_part(const void *a, const void *b)
{
    const by__pass_crossing *x = a;
    const by__pass_crossing *y = b;
    if (x->value != y->value) {
        return x->value < y->value ? -1 : 1;
    }
    return x->to < y->to ? -1 : x->to > y->to;
}

by_status by__pass_list_crossings(by__pass_crossing **out, size_t *count, const by_graph *graph,
                                  const int *part, by_error *error)
{
    crossing_list list = {0};
    int parts = 0;
    by_status status = BY_OK;
    for (size_t n = 0; n < graph->node_count; n++) {
        parts = part[n] >= parts ? part[n] + 1 : parts;
    }
    for (int k = 0; k < parts && status == BY_OK; k++) {
        status = list_part(&list, graph, part, k, error);
    }
    if (status != BY_OK) {
        free(list.items);
        return status;
    }
    if (list.count > 0) {
        qsort(list.items, list.count, sizeof *list.items, by_value_then_part);
    }
    *out = list.items;
    *count = list.count;
    return BY_OK;
}

/* ---- the graph of a part ---- */

typedef struct graph_cut {
    const by_graph *source;
    by_graph *graph;
    by_value *copy; /* of each value of the source; BY_NONE: not copied yet */
} graph_cut;

/* Returns the copy of an operand that no node of the part makes: it is external or made by another
 * part. */
static by_value outer_value(graph_cut *c, by_value value)
{
    char name[32];
    const by__graph_value *v = &c->source->values[value];
    bool crosses = v->producer >= 0;
    by_value made =
        by__graph_add_value(c->graph, crosses ? BY_ROLE_INPUT : v->role,
                            crosses ? by__pass_crossing_name(name, c->source, value) : v->name,
                            v->axes, (by__graph_type){v->dtype, v->shape});
    if (made != BY_NONE && !crosses) {
        c->graph->values[made].init = v->init;
        c->graph->values[made].frozen = v->frozen;
        c->graph->values[made].statistic = v->statistic;
        c->graph->values[made].constant = v->constant;
        c->graph->values[made].transposed = v->transposed;
    }
    return made;
}

static by_status copy_node(graph_cut *c, const by__graph_node *node, by_error *error)
{
    by_value *in;
    by_value outs[BY_MAX_OUTPUTS];
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count + 1, sizeof *in, "cut", error));
    for (int i = 0; i < node->input_count; i++) {
        in[i] = BY_NONE;
        if (node->in[i] != BY_NONE) {
            by_value *copy = &c->copy[node->in[i]];
            *copy = *copy == BY_NONE ? outer_value(c, node->in[i]) : *copy;
            in[i] = *copy;
        }
    }
    c->graph->phase = node->phase;
    by_graph_set_block(c->graph, node->block);
    (void)by__op_add_node(c->graph, node->op, &node->attrs, in, node->input_count, outs);
    free(in);
    BY_TRY(by_graph_check(c->graph, error));
    by__graph_node *made = &c->graph->nodes[c->graph->node_count - 1];
    for (int i = 0; i < node->output_count; i++) {
        if (node->out[i] == BY_NONE) {
            made->out[i] = BY_NONE; /* an optional result that nothing reads */
            continue;
        }
        c->copy[node->out[i]] = made->out[i];
        c->graph->values[made->out[i]].dtype = c->source->values[node->out[i]].dtype;
    }
    return BY_OK;
}

/* Names results and sets their roles: those of the source graph, and those that cross. */
static by_status name_results(graph_cut *c, int wanted, const int *part,
                              const by__pass_crossing *crossings, size_t count, by_error *error)
{
    const by_graph *source = c->source;
    for (size_t v = 0; v < source->value_count; v++) {
        const by__graph_value *value = &source->values[v];
        if (value->producer >= 0 && part[value->producer] == wanted &&
            by__role_is_external(value->role)) {
            by_graph_output(c->graph, c->copy[v], value->name);
            BY_TRY(by_graph_check(c->graph, error));
            c->graph->values[c->copy[v]].role = value->role;
        }
    }
    for (size_t i = 0; i < count; i++) {
        by_value value = crossings[i].value;
        bool first = i == 0 || crossings[i - 1].value != value;
        if (crossings[i].from == wanted && first &&
            !by__role_is_external(source->values[value].role)) {
            char name[32];
            by_graph_output(c->graph, c->copy[value], by__pass_crossing_name(name, source, value));
        }
    }
    return by_graph_check(c->graph, error);
}

static by_status build(graph_cut *c, int wanted, const int *part,
                       const by__pass_crossing *crossings, size_t count, by_error *error)
{
    marks m;
    BY_TRY(open_marks(&m, c->source, error));
    mark_part(m.included, m.read, c->source, part, wanted);
    by_status status = BY_OK;
    for (size_t n = 0; n < c->source->node_count && status == BY_OK; n++) {
        if (m.included[n]) {
            status = copy_node(c, &c->source->nodes[n], error);
        }
    }
    close_marks(&m);
    BY_TRY(status);
    BY_TRY(name_results(c, wanted, part, crossings, count, error));
    /* Drops views that only other parts read. */
    BY_TRY(by__pass_graph_prune(c->graph, error));
    return by_graph_verify(c->graph, error);
}

by_status by__pass_cut_part(by_graph **out, const by_graph *graph, const int *part, int wanted,
                            const by__pass_crossing *crossings, size_t count, by_error *error)
{
    graph_cut c = {.source = graph};
    BY_TRY(by__alloc((void **)&c.copy, graph->value_count + 1, sizeof *c.copy, "cut", error));
    for (size_t v = 0; v < graph->value_count; v++) {
        c.copy[v] = BY_NONE;
    }
    by_status status = by_graph_open(&c.graph, error);
    if (status == BY_OK) {
        status = build(&c, wanted, part, crossings, count, error);
    }
    free(c.copy);
    if (status != BY_OK) {
        by_graph_close(&c.graph);
        return status;
    }
    *out = c.graph;
    return BY_OK;
}
