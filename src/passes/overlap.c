/* Overlaps collectives with computation: each collective starts as early, and is waited for as
 * late, as operands, results and memory allow.
 *
 * A list schedule over the present order of nodes. At each step it runs, of the nodes that can run,
 *
 *   1. the next collective, unless too many gathered bytes are waiting for their use already;
 *   2. else a node that computes: the one that a coming collective needs soonest, so that work
 *      that no collective needs is left to fill the time of a collective;
 *   3. else a node that waits for a collective, the one whose result is read first.
 *
 * Nodes that compute are taken from a window of the present order, because that order was chosen
 * for memory and none should run much earlier. Of several window sizes, the largest one is used
 * whose peak does not exceed that of the present order plus the bytes allowed for prefetching.
 * Collectives keep their order, which is the same on every rank.
 */
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

typedef struct overlap_pass {
    const by_graph *graph;
    /* Values that share memory are in one group: a view and its base, a collective's result and the
     * operand that it replaces. BY_NONE: not in the arena. */
    by_value *group;
    int *reads; /* of a group: reads to come */
    bool *born; /* of a group: its memory is in use */
    size_t alive;
    size_t prefetch; /* most bytes gathered ahead of their use */
    size_t limit;    /* upper bound of the peak */
    size_t window;
    size_t *deadline; /* of each node: the first collective that depends on it */
    size_t *needed;   /* of a wait node: the first reader of its result */
    int *waits;       /* of each node: operands not made yet */
    size_t *first;    /* readers of value v are reader[first[v]] .. reader[first[v + 1] - 1] */
    size_t *reader;
    bool *done;
    size_t *order;
    size_t count;    /* nodes in `order` */
    size_t front;    /* first node that computes and has not run */
    size_t next;     /* the next collective; node_count: none is left */
    size_t *pending; /* wait nodes that have not run */
    size_t pending_count;
    size_t ahead;
    size_t peak;
} overlap_pass;

static const by__op_row *row_at(const overlap_pass *o, size_t n)
{
    return by__op_row_of(o->graph->nodes[n].op);
}

static bool computes(const overlap_pass *o, size_t n)
{
    return !row_at(o, n)->communicates && !row_at(o, n)->waits;
}

/* Returns the first node from n on that has not run and computes (communicates: is a collective),
 * or node_count. */
static size_t following(const overlap_pass *o, size_t n, bool communicates)
{
    while (n < o->graph->node_count &&
           (o->done[n] || row_at(o, n)->communicates != communicates || row_at(o, n)->waits)) {
        n++;
    }
    return n;
}

/* Returns the bytes of a collective's result if it could start at any time, as the gathering of a
 * parameter can: no node makes its operands, and the result is larger than they are. Otherwise
 * returns 0. */
static size_t gathered(const overlap_pass *o, size_t n)
{
    const by__graph_node *node = &o->graph->nodes[n];
    size_t made = by__graph_value_bytes(&o->graph->values[node->out[0]]);
    size_t read = 0;
    for (int i = 0; i < node->input_count; i++) {
        const by__graph_value *value =
            node->in[i] == BY_NONE ? NULL : &o->graph->values[node->in[i]];
        if (value != NULL && value->producer >= 0) {
            return 0;
        }
        read += value == NULL ? 0 : by__graph_value_bytes(value);
    }
    return made > read ? made : 0;
}

/* ---- memory ---- */

/* Returns true if collective n may overwrite its operand with its result: nothing else reads it. */
static bool may_overwrite_operand(const overlap_pass *o, size_t n, const int *uses)
{
    const by__graph_node *node = &o->graph->nodes[n];
    bool may = row_at(o, n)->communicates && by__mask_has(row_at(o, n)->overlay[0], 0);
    return may && o->group[node->in[0]] == node->in[0] &&
           uses[node->in[0]] == 2; /* together with the wait node */
}

static by_status find_groups(overlap_pass *o, by_error *error)
{
    const by_graph *graph = o->graph;
    int *uses;
    BY_TRY(by__graph_uses(graph, &uses, error));
    for (size_t v = 0; v < graph->value_count; v++) {
        bool in_arena = graph->values[v].role == BY_ROLE_ACTIVATION;
        o->group[v] = in_arena ? (by_value)v : BY_NONE;
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (row_at(o, n)->view || may_overwrite_operand(o, n, uses)) {
            o->group[node->out[0]] = o->group[node->in[0]];
        }
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        if (o->group[v] != BY_NONE) {
            o->reads[o->group[v]] += uses[v];
        }
    }
    free(uses);
    return BY_OK;
}

static size_t group_bytes(const overlap_pass *o, by_value group)
{
    return by__graph_value_bytes(&o->graph->values[group]);
}

/* Returns the bytes that a node adds while it runs. */
static size_t new_bytes(const overlap_pass *o, size_t n)
{
    const by__graph_node *node = &o->graph->nodes[n];
    size_t bytes = 0;
    for (int i = 0; i < node->output_count; i++) {
        by_value group = node->out[i] == BY_NONE ? BY_NONE : o->group[node->out[i]];
        bytes += group == BY_NONE || o->born[group] ? 0 : group_bytes(o, group);
    }
    return bytes;
}

/* Runs node n: updates what is alive. */
static void account(overlap_pass *o, size_t n)
{
    const by__graph_node *node = &o->graph->nodes[n];
    size_t during = o->alive + new_bytes(o, n);
    o->peak = during > o->peak ? during : o->peak;
    o->alive = during;
    for (int i = 0; i < node->output_count; i++) {
        by_value group = node->out[i] == BY_NONE ? BY_NONE : o->group[node->out[i]];
        if (group != BY_NONE && !o->born[group]) {
            o->born[group] = true;
            o->alive -= o->reads[group] == 0 ? group_bytes(o, group) : 0;
        }
    }
    for (int i = 0; i < node->input_count; i++) {
        by_value group = node->in[i] == BY_NONE ? BY_NONE : o->group[node->in[i]];
        if (group != BY_NONE && --o->reads[group] == 0) {
            o->alive -= group_bytes(o, group);
        }
    }
}

/* ---- dependencies ---- */

/* Finds deadlines, from the last node to the first, since readers come after what they read. */
static void find_deadlines(overlap_pass *o)
{
    const by_graph *graph = o->graph;
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        o->deadline[n] = row_at(o, n)->communicates ? n : SIZE_MAX;
        o->needed[n] = SIZE_MAX;
        for (int k = 0; k < node->output_count; k++) {
            size_t end = node->out[k] == BY_NONE ? 0 : o->first[node->out[k] + 1];
            for (size_t r = end == 0 ? 0 : o->first[node->out[k]]; r < end; r++) {
                size_t reader = o->reader[r];
                o->needed[n] = reader < o->needed[n] ? reader : o->needed[n];
                o->deadline[n] =
                    o->deadline[reader] < o->deadline[n] ? o->deadline[reader] : o->deadline[n];
            }
        }
    }
}

static by_status overlap_open(overlap_pass *o, const by_graph *graph, by_error *error)
{
    size_t reads = 0;
    *o = (overlap_pass){.graph = graph};
    for (size_t n = 0; n < graph->node_count; n++) {
        reads += (size_t)graph->nodes[n].input_count;
    }
    struct {
        void **array;
        size_t count;
        size_t size;
    } arrays[] = {
        {(void **)&o->group, graph->value_count, sizeof *o->group},
        {(void **)&o->reads, graph->value_count, sizeof *o->reads},
        {(void **)&o->born, graph->value_count, sizeof *o->born},
        {(void **)&o->deadline, graph->node_count, sizeof *o->deadline},
        {(void **)&o->needed, graph->node_count, sizeof *o->needed},
        {(void **)&o->waits, graph->node_count, sizeof *o->waits},
        {(void **)&o->first, graph->value_count + 1, sizeof *o->first},
        {(void **)&o->reader, reads, sizeof *o->reader},
        {(void **)&o->done, graph->node_count, sizeof *o->done},
        {(void **)&o->order, graph->node_count, sizeof *o->order},
        {(void **)&o->pending, graph->node_count, sizeof *o->pending},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__alloc(arrays[i].array, arrays[i].count, arrays[i].size, "overlap", error));
    }
    BY_TRY(find_groups(o, error));
    by__graph_readers(o->graph, o->first, o->reader, o->waits);
    find_deadlines(o);
    o->front = following(o, 0, false);
    o->next = following(o, 0, true);
    for (size_t n = 0; n < graph->node_count; n++) {
        if (row_at(o, n)->waits) {
            o->pending[o->pending_count++] = n;
        }
    }
    return BY_OK;
}

static void overlap_close(overlap_pass *o)
{
    free(o->group);
    free(o->reads);
    free(o->born);
    free(o->deadline);
    free(o->needed);
    free(o->waits);
    free(o->first);
    free(o->reader);
    free(o->done);
    free(o->order);
    free(o->pending);
}

static void schedule_node(overlap_pass *o, size_t n)
{
    const by_graph *graph = o->graph;
    const by__graph_node *node = &graph->nodes[n];
    const by__op_row *row = row_at(o, n);
    account(o, n);
    o->done[n] = true;
    o->order[o->count++] = n;
    for (int k = 0; k < node->output_count; k++) {
        size_t end = node->out[k] == BY_NONE ? 0 : o->first[node->out[k] + 1];
        for (size_t r = end == 0 ? 0 : o->first[node->out[k]]; r < end; r++) {
            o->waits[o->reader[r]]--;
        }
    }
    if (row->communicates) {
        o->ahead += gathered(o, n);
        o->next = following(o, o->next, true);
    } else if (row->waits) {
        o->ahead -= gathered(o, (size_t)graph->values[node->in[0]].producer);
        size_t k = 0;
        while (o->pending[k] != n) {
            k++;
        }
        o->pending_count--;
        memmove(&o->pending[k], &o->pending[k + 1], (o->pending_count - k) * sizeof *o->pending);
    } else {
        o->front = following(o, o->front, false);
    }
}

static bool fits(const overlap_pass *o, size_t n)
{
    return o->alive + new_bytes(o, n) <= o->limit;
}

/* Returns true if the next collective can start and has memory for it. */
static bool may_start(const overlap_pass *o)
{
    size_t more = o->next < o->graph->node_count ? gathered(o, o->next) : 0;
    return o->next < o->graph->node_count && o->waits[o->next] == 0 && fits(o, o->next) &&
           (more == 0 || (more <= o->prefetch && o->ahead <= o->prefetch - more));
}

/* Returns the node of the window to compute next: the earliest deadline, then the earliest
 * place. */
static size_t find_work(const overlap_pass *o)
{
    size_t best = SIZE_MAX;
    for (size_t n = o->front; n < o->graph->node_count && n - o->front <= o->window; n++) {
        if (!o->done[n] && o->waits[n] == 0 && computes(o, n) && (n == o->front || fits(o, n)) &&
            (best == SIZE_MAX || o->deadline[n] < o->deadline[best])) {
            best = n;
        }
    }
    return best;
}

/* Returns the wait node of a running collective whose result is read first. */
static size_t find_wait(const overlap_pass *o)
{
    size_t best = SIZE_MAX;
    for (size_t k = 0; k < o->pending_count; k++) {
        size_t n = o->pending[k];
        if (o->waits[n] == 0 && (best == SIZE_MAX || o->needed[n] < o->needed[best])) {
            best = n;
        }
    }
    return best;
}

/* Computes the order for a window in o->order, and its peak. */
static by_status schedule(overlap_pass *o, by_error *error)
{
    while (o->count < o->graph->node_count) {
        size_t n = may_start(o) ? o->next : find_work(o);
        if (n == SIZE_MAX || !fits(o, n)) {
            size_t wait = find_wait(o); /* may free operands that it keeps */
            n = wait == SIZE_MAX ? n : wait;
        }
        if (n == SIZE_MAX && o->next < o->graph->node_count && o->waits[o->next] == 0) {
            n = o->next; /* nothing else is left to run */
        }
        if (n == SIZE_MAX) {
            return by_error_set(error, BY_ESTATE, "overlap: a node depends on itself");
        }
        schedule_node(o, n);
    }
    return BY_OK;
}

static by_status reorder_nodes(by_graph *graph, const size_t *order, by_error *error)
{
    by__graph_node *nodes;
    BY_TRY(by__alloc((void **)&nodes, graph->node_count, sizeof *nodes, "overlap", error));
    for (size_t k = 0; k < graph->node_count; k++) {
        nodes[k] = graph->nodes[order[k]];
    }
    memcpy(graph->nodes, nodes, graph->node_count * sizeof *nodes);
    free(nodes);
    by__graph_compact(graph);
    return BY_OK;
}

/* Computes the peak of the present order. */
static by_status find_peak(size_t *out, const by_graph *graph, by_error *error)
{
    overlap_pass o;
    by_status status = overlap_open(&o, graph, error);
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        account(&o, n);
    }
    *out = o.peak;
    overlap_close(&o);
    return status;
}

static bool has_collectives(const by_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            return true;
        }
    }
    return false;
}

by_status by_pass_overlap(by_graph *graph, size_t prefetch_bytes, by_error *error)
{
    static const size_t windows[] = {32, 8, 0};
    size_t peak;
    BY_TRY(by_graph_check(graph, error));
    if (!has_collectives(graph)) {
        return BY_OK;
    }
    BY_TRY(find_peak(&peak, graph, error));
    bool taken = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(windows) && !taken; i++) {
        overlap_pass o;
        by_status status = overlap_open(&o, graph, error);
        o.prefetch = prefetch_bytes;
        o.limit = prefetch_bytes < SIZE_MAX - peak ? peak + prefetch_bytes : SIZE_MAX;
        o.window = windows[i];
        if (status == BY_OK) {
            status = schedule(&o, error);
        }
        taken = status == BY_OK && o.peak <= o.limit;
        if (taken) {
            status = reorder_nodes(graph, o.order, error);
        }
        overlap_close(&o);
        BY_TRY(status);
    }
    return BY_OK;
}

/* Returns the largest result of a collective: room for one in flight. */
static size_t largest_result(const by_graph *graph)
{
    size_t most = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            size_t bytes = by__graph_value_bytes(&graph->values[graph->nodes[n].out[0]]);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    bool given = options != NULL && options->prefetch_bytes != 0;
    return by_pass_overlap(graph, given ? options->prefetch_bytes : largest_result(graph), error);
}

const by__pass by__pass_overlap = {.name = "overlap",
                                   .summary = "collectives during computation",
                                   .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS |
                                               BY_PURPOSE_UPDATE | BY_PURPOSE_INFER,
                                   .apply = apply};
