#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/placement.h"

typedef struct memory_planner {
    const by_graph *graph;
    size_t unit;    /* offsets are multiples of it */
    by_value *root; /* the value whose memory this one uses; may be itself */
    size_t *first;  /* node that makes the value */
    size_t *last;   /* last node that reads the value or keeps its memory */
    size_t *read;   /* last node that reads its elements */
    size_t *kept;   /* 1 + the collective that keeps it; 0: none, SIZE_MAX: several */
    by_value *base; /* the value that this one is a view of, or itself */
    size_t *viewed; /* last node that reads a view of it */
    size_t *slot;   /* index of a root's interval */
    by__pass_interval *intervals;
    size_t count;
    size_t in_place;
} memory_planner;

static bool is_activation(const by_graph *graph, by_value value)
{
    return value != BY_NONE && graph->values[value].role == BY_ROLE_ACTIVATION &&
           graph->values[value].producer >= 0;
}

/* Keeps the value's memory until the collective that makes `result` has been waited for. */
static void keep(memory_planner *p, by_value value, by_value result)
{
    size_t collective = (size_t)p->graph->values[result].producer + 1;
    bool several = p->kept[value] != 0 && p->kept[value] != collective;
    p->kept[value] = several ? SIZE_MAX : collective;
}

static void find_lifetimes(memory_planner *p)
{
    const by_graph *graph = p->graph;
    for (size_t v = 0; v < graph->value_count; v++) {
        p->root[v] = (by_value)v;
        p->base[v] = (by_value)v;
        p->first[v] = SIZE_MAX;
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            if (node->out[i] != BY_NONE) {
                p->first[node->out[i]] = n;
                p->last[node->out[i]] = n;
                p->read[node->out[i]] = n;
            }
        }
        uint32_t keeps = by__op_row_of(node->op)->keeps;
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] == BY_NONE) {
                continue;
            }
            p->last[node->in[i]] = n;
            if (by__mask_has(keeps, i)) {
                keep(p, node->in[i], node->in[0]);
            } else {
                p->read[node->in[i]] = n;
            }
        }
    }
}

static int reads_of(const by__graph_node *node, by_value value)
{
    int reads = 0;
    for (int i = 0; i < node->input_count; i++) {
        reads += node->in[i] == value;
    }
    return reads;
}

/* Equal bytes are not enough for sharing: a broadcast f32 vector may have as many as the bf16
 * matrix that it is added to, and would be overwritten before it is read completely. */
static bool same_type(const by_graph *graph, by_value a, by_value b)
{
    return graph->values[a].dtype == graph->values[b].dtype &&
           by_shape_equal(&graph->values[a].shape, &graph->values[b].shape);
}

/* Finds views that share the memory of their base, which lives longer or is external, and which
 * nobody overwrites while they live. (If the base dies at the view's node, join_in_place passes its
 * memory on like that of any other operand.) */
static void find_views(memory_planner *p)
{
    const by_graph *graph = p->graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (!by__op_row_of(node->op)->view || !is_activation(graph, node->out[0])) {
            continue;
        }
        by_value in = node->in[0];
        if (is_activation(graph, in) && p->base[in] == in && p->last[in] == n) {
            continue;
        }
        by_value base = p->base[in];
        p->base[node->out[0]] = base;
        p->viewed[base] =
            p->last[node->out[0]] > p->viewed[base] ? p->last[node->out[0]] : p->viewed[base];
        p->in_place++;
    }
}

/* Returns true if node n may overwrite operand `in`: nothing else reads it, or a view of it, at n
 * or later. A collective may overwrite an operand that is kept for it alone. */
static bool dies_at(const memory_planner *p, by_value in, size_t n)
{
    bool free_behind = p->last[in] == n || (p->read[in] == n && p->kept[in] == n + 1);
    return is_activation(p->graph, in) && free_behind && p->root[in] == in && p->base[in] == in &&
           p->viewed[in] < n && reads_of(&p->graph->nodes[n], in) == 1;
}

/* Lets outputs take over the memory of operands that die at the node. Walks backward, so that the
 * memory of an output is known when its operand joins it: a chain of in-place nodes that ends in a
 * gradient or an output uses that value's own buffer from its start. */
static void join_in_place(memory_planner *p)
{
    const by_graph *graph = p->graph;
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        uint32_t taken = 0;
        for (int o = 0; o < node->output_count; o++) {
            for (int i = 0; i < node->input_count && node->out[o] != BY_NONE; i++) {
                by_value in = node->in[i];
                bool may = by__mask_has(row->overlay[o], i) && !by__mask_has(taken, i);
                bool viewed = row->view && i == 0;
                if ((may || viewed) && dies_at(p, in, n) && p->base[node->out[o]] == node->out[o] &&
                    (viewed || same_type(graph, in, node->out[o]))) {
                    p->root[in] = p->root[node->out[o]];
                    taken |= 1u << i;
                    p->in_place++;
                    break;
                }
            }
        }
    }
}

/* Gives views the places of their bases. */
static void place_views(memory_planner *p)
{
    for (size_t v = 0; v < p->graph->value_count; v++) {
        if (p->base[v] != (by_value)v) {
            p->root[v] = p->root[p->base[v]];
        }
    }
}

/* Makes one interval for each root that is an activation, covering the lifetimes of all its
 * values. */
static void collect(memory_planner *p)
{
    const by_graph *graph = p->graph;
    for (size_t v = 0; v < graph->value_count; v++) {
        p->slot[v] = SIZE_MAX;
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        by_value root = p->root[v];
        if (!is_activation(graph, (by_value)v) || !is_activation(graph, root)) {
            continue;
        }
        if (p->slot[root] == SIZE_MAX) {
            p->slot[root] = p->count;
            p->intervals[p->count++] = (by__pass_interval){
                .root = root,
                .first = p->first[v],
                .last = p->last[v],
                .bytes = by__round_up(by__graph_value_bytes(&graph->values[root]), p->unit)};
        }
        by__pass_interval *it = &p->intervals[p->slot[root]];
        it->first = p->first[v] < it->first ? p->first[v] : it->first;
        it->last = p->last[v] > it->last ? p->last[v] : it->last;
    }
}

/* Finds the most bytes alive at once, and the first node at which they are alive. */
static by_status find_lower_bound(const memory_planner *p, by__pass_memory_plan *plan,
                                  by_error *error)
{
    size_t alive = 0;
    size_t *change; /* bytes born at each node less those that died before it, modulo 2^64 */
    BY_TRY(by__alloc((void **)&change, p->graph->node_count + 1, sizeof *change, "memory plan",
                     error));
    for (size_t k = 0; k < p->count; k++) {
        change[p->intervals[k].first] += p->intervals[k].bytes;
        change[p->intervals[k].last + 1] -= p->intervals[k].bytes;
    }
    for (size_t n = 0; n < p->graph->node_count; n++) {
        alive += change[n];
        if (alive > plan->lower_bound) {
            plan->lower_bound = alive;
            plan->peak_node = n;
        }
    }
    free(change);
    return BY_OK;
}

static by_status assign(memory_planner *p, by__pass_memory_plan *plan, by_error *error)
{
    BY_TRY(by__pass_place_intervals(&plan->bytes, p->intervals, p->count, error));
    for (size_t k = 0; k < p->count; k++) {
        plan->offset[p->intervals[k].root] = p->intervals[k].offset;
    }
    for (size_t v = 0; v < p->graph->value_count; v++) {
        bool in_arena = is_activation(p->graph, (by_value)v) && is_activation(p->graph, p->root[v]);
        plan->offset[v] = in_arena ? plan->offset[p->root[v]] : SIZE_MAX;
        plan->owner[v] = p->root[v];
    }
    return BY_OK;
}

static void planner_close(memory_planner *p)
{
    free(p->root);
    free(p->first);
    free(p->last);
    free(p->base);
    free(p->viewed);
    free(p->read);
    free(p->kept);
    free(p->slot);
    free(p->intervals);
}

/* Finds the intervals of a graph, and the least memory for them. */
static by_status planner_open(memory_planner *p, const by_graph *graph, size_t unit,
                              by__pass_memory_plan *plan, by_error *error)
{
    *p = (memory_planner){.graph = graph, .unit = unit};
    void **arrays[] = {(void **)&p->root, (void **)&p->first,  (void **)&p->last,
                       (void **)&p->base, (void **)&p->viewed, (void **)&p->slot,
                       (void **)&p->read, (void **)&p->kept,   (void **)&p->intervals};
    size_t sizes[] = {sizeof *p->root, sizeof *p->first,  sizeof *p->last,
                      sizeof *p->base, sizeof *p->viewed, sizeof *p->slot,
                      sizeof *p->read, sizeof *p->kept,   sizeof *p->intervals};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__alloc(arrays[i], graph->value_count, sizes[i], "memory plan", error));
    }
    find_lifetimes(p);
    find_views(p);
    join_in_place(p);
    place_views(p);
    collect(p);
    plan->in_place = p->in_place;
    return find_lower_bound(p, plan, error);
}

by_status by__pass_memory_plan_make(by__pass_memory_plan *out, const by_graph *graph, size_t unit,
                                    by_error *error)
{
    memory_planner p = {0};
    by__pass_memory_plan plan = {0};
    size_t values = graph->value_count;
    BY_TRY(by_graph_verify(graph, error));
    by_status status = planner_open(&p, graph, unit, &plan, error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&plan.offset, values, sizeof *plan.offset, "memory plan", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&plan.owner, values, sizeof *plan.owner, "memory plan", error);
    }
    if (status == BY_OK) {
        for (size_t v = 0; v < values; v++) {
            plan.offset[v] = SIZE_MAX;
        }
        status = assign(&p, &plan, error);
    }
    planner_close(&p);
    if (status != BY_OK) {
        by__pass_memory_plan_free(&plan);
        return status;
    }
    *out = plan;
    return BY_OK;
}

by_status by__passes_arena_fits(bool *fits, size_t *bytes, const by_graph *graph, size_t unit,
                                size_t limit, by_error *error)
{
    memory_planner p = {0};
    by__pass_memory_plan plan = {0};
    by_status status = planner_open(&p, graph, unit, &plan, error);
    plan.bytes = plan.lower_bound;
    if (status == BY_OK && (bytes != NULL || plan.lower_bound <= limit)) {
        status = by__passes_measure_intervals(&plan.bytes, p.intervals, p.count,
                                              bytes != NULL ? 0 : limit, error);
    }
    planner_close(&p);
    if (status == BY_OK) {
        *fits = plan.bytes <= limit;
        if (bytes != NULL) {
            *bytes = plan.bytes;
        }
    }
    return status;
}

void by__pass_memory_plan_free(by__pass_memory_plan *plan)
{
    free(plan->offset);
    free(plan->owner);
    *plan = (by__pass_memory_plan){0};
}
