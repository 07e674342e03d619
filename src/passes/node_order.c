/* Greedy order: of the nodes that can run, always take the one that leaves the least memory alive.
 *
 * A node grows memory by the size of its results less that of the operands that die with it, which
 * no other node still has to read. This changes only when the second-last reader of a value runs:
 * the value will then die with the last reader, whose growth falls by the value's size. `last` of a
 * value is the exclusive or of all nodes that still have to read it, so it is the last reader as
 * soon as only one is left. Nodes that can run wait in a binary heap. A node whose growth falls
 * while it waits is pushed again, and its older entry is skipped when it is popped. A graph with n
 * reads takes O(n log n).
 */
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "passes/passes.h"

/* The number of nodes that still have to read each value, and the bytes alive. A node that reads a
 * value several times counts once. */
typedef struct liveness {
    const by_graph *graph;
    int *readers;
    size_t *seen; /* of each value: 1 + the node that used it last */
    size_t alive;
} liveness;

static bool counts(const by_graph *graph, by_value value)
{
    return value != BY_NONE && graph->values[value].role == BY_ROLE_ACTIVATION;
}

/* Returns true if operand i of node n does not repeat an earlier operand. To be called once for
 * each operand of a node, in order. */
static bool first_read(size_t *seen, const by_graph *graph, size_t n, int i)
{
    by_value value = graph->nodes[n].in[i];
    if (value == BY_NONE || seen[value] == n + 1) {
        return false;
    }
    seen[value] = n + 1;
    return true;
}

/* Returns the bytes of a node's results; `unread`: only of those that nothing reads. */
static size_t result_bytes(const liveness *l, size_t n, bool unread)
{
    const by__graph_node *node = &l->graph->nodes[n];
    size_t bytes = 0;
    for (int i = 0; i < node->output_count; i++) {
        if (counts(l->graph, node->out[i]) && (!unread || l->readers[node->out[i]] == 0)) {
            bytes += by__graph_value_bytes(&l->graph->values[node->out[i]]);
        }
    }
    return bytes;
}

static by_status liveness_open(liveness *l, const by_graph *graph, by_error *error)
{
    *l = (liveness){.graph = graph};
    by_status status =
        by__alloc((void **)&l->readers, graph->value_count, sizeof *l->readers, "order", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&l->seen, graph->value_count, sizeof *l->seen, "order", error);
    }
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            if (first_read(l->seen, graph, n, i)) {
                l->readers[graph->nodes[n].in[i]]++;
            }
        }
    }
    if (status == BY_OK) {
        memset(l->seen, 0, graph->value_count * sizeof *l->seen);
    }
    return status;
}

static void liveness_close(liveness *l)
{
    free(l->readers);
    free(l->seen);
}

/* Makes the results of node n. Returns the bytes alive while it runs. */
static size_t make_results(liveness *l, size_t n)
{
    size_t during = l->alive + result_bytes(l, n, false);
    l->alive = during - result_bytes(l, n, true);
    return during;
}

/* Counts off one reader of a value and returns how many are left. With none, the value dies. */
static int finish_read(liveness *l, by_value value)
{
    int left = --l->readers[value];
    if (left == 0 && counts(l->graph, value)) {
        l->alive -= by__graph_value_bytes(&l->graph->values[value]);
    }
    return left;
}

by_status by__pass_peak_bytes(size_t *out, const by_graph *graph, by_error *error)
{
    liveness l;
    size_t peak = 0;
    by_status status = liveness_open(&l, graph, error);
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        size_t during = make_results(&l, n);
        peak = during > peak ? during : peak;
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            if (first_read(l.seen, graph, n, i)) {
                (void)finish_read(&l, graph->nodes[n].in[i]);
            }
        }
    }
    liveness_close(&l);
    if (status == BY_OK) {
        *out = peak;
    }
    return status;
}

/* A node that can run, and by how many bytes it grows memory. */
typedef struct ready_node {
    int64_t growth;
    size_t node;
} ready_node;

typedef struct scheduler {
    liveness l;
    size_t *first;   /* readers of value v are reader[first[v]] .. reader[first[v + 1] - 1] */
    size_t *reader;  /* nodes, one entry a read */
    size_t *last;    /* of each value: exclusive or of the nodes that still read it */
    int64_t *growth; /* of each node, at present */
    int *waits;      /* of each node: operands not made yet */
    size_t *next;    /* of a collective: the following one; SIZE_MAX for other nodes */
    bool *done;
    ready_node *heap; /* least growth first, then the earlier node */
    size_t heap_count;
    size_t heap_capacity;
} scheduler;

static bool before(const void *user, const void *first, const void *second)
{
    const ready_node *a = first;
    const ready_node *b = second;
    BY_UNUSED(user);
    return a->growth != b->growth ? a->growth < b->growth : a->node < b->node;
}

static by_status push(scheduler *s, size_t node, by_error *error)
{
    BY_TRY(by__reserve((void **)&s->heap, &s->heap_capacity, s->heap_count + 1, sizeof *s->heap,
                       error));
    ready_node added = {s->growth[node], node};
    by__heap_push(s->heap, s->heap_count++, sizeof added, &added, before, NULL);
    return BY_OK;
}

static ready_node pop(scheduler *s)
{
    ready_node least;
    by__heap_pop(s->heap, s->heap_count--, sizeof least, &least, before, NULL);
    return least;
}

/* Collectives keep their order, because it must be the same on every rank. */
static void chain_collectives(scheduler *s)
{
    const by_graph *graph = s->l.graph;
    size_t following = SIZE_MAX;
    for (size_t n = graph->node_count; n-- > 0;) {
        s->next[n] = SIZE_MAX;
        if (by__op_row_of(graph->nodes[n].op)->communicates) {
            s->next[n] = following;
            s->waits[n]++;
            following = n;
        }
    }
    if (following != SIZE_MAX) {
        s->waits[following]--;
    }
}

/* Lowers the growth of the only remaining reader of a value by the value's size. */
static by_status has_one_reader(scheduler *s, by_value value, by_error *error)
{
    size_t node = s->last[value];
    if (!counts(s->l.graph, value)) {
        return BY_OK;
    }
    s->growth[node] -= (int64_t)by__graph_value_bytes(&s->l.graph->values[value]);
    return s->waits[node] == 0 ? push(s, node, error) : BY_OK;
}

static by_status scheduler_open(scheduler *s, const by_graph *graph, by_error *error)
{
    *s = (scheduler){0};
    BY_TRY(liveness_open(&s->l, graph, error));
    size_t reads = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        reads += (size_t)graph->nodes[n].input_count;
    }
    struct {
        void **array;
        size_t count;
        size_t size;
    } arrays[] = {
        {(void **)&s->first, graph->value_count + 1, sizeof *s->first},
        {(void **)&s->reader, reads, sizeof *s->reader},
        {(void **)&s->last, graph->value_count, sizeof *s->last},
        {(void **)&s->growth, graph->node_count, sizeof *s->growth},
        {(void **)&s->waits, graph->node_count, sizeof *s->waits},
        {(void **)&s->next, graph->node_count, sizeof *s->next},
        {(void **)&s->done, graph->node_count, sizeof *s->done},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__alloc(arrays[i].array, arrays[i].count, arrays[i].size, "order", error));
    }
    by__graph_readers(s->l.graph, s->first, s->reader, s->waits);
    chain_collectives(s);
    return BY_OK;
}

static void scheduler_close(scheduler *s)
{
    liveness_close(&s->l);
    free(s->first);
    free(s->reader);
    free(s->last);
    free(s->growth);
    free(s->waits);
    free(s->next);
    free(s->done);
    free(s->heap);
}

static by_status begin(scheduler *s, by_error *error)
{
    const by_graph *graph = s->l.graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        s->growth[n] =
            (int64_t)result_bytes(&s->l, n, false) - (int64_t)result_bytes(&s->l, n, true);
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            by_value value = graph->nodes[n].in[i];
            if (first_read(s->l.seen, graph, n, i)) {
                s->last[value] ^= n;
                if (s->l.readers[value] == 1 && counts(graph, value)) {
                    s->growth[n] -= (int64_t)by__graph_value_bytes(&graph->values[value]);
                }
            }
        }
    }
    memset(s->l.seen, 0, graph->value_count * sizeof *s->l.seen);
    for (size_t n = 0; n < graph->node_count; n++) {
        if (s->waits[n] == 0) {
            BY_TRY(push(s, n, error));
        }
    }
    return BY_OK;
}

/* Runs node n and updates the nodes that this affects. */
static by_status schedule_node(scheduler *s, size_t n, size_t *peak, by_error *error)
{
    const by_graph *graph = s->l.graph;
    const by__graph_node *node = &graph->nodes[n];
    size_t during = make_results(&s->l, n);
    *peak = during > *peak ? during : *peak;
    s->done[n] = true;
    for (int i = 0; i < node->input_count; i++) {
        by_value value = node->in[i];
        if (first_read(s->l.seen, graph, n, i)) {
            s->last[value] ^= n;
            if (finish_read(&s->l, value) == 1) {
                BY_TRY(has_one_reader(s, value, error));
            }
        }
    }
    for (int o = 0; o < node->output_count; o++) {
        by_value made = node->out[o];
        size_t end = made == BY_NONE ? 0 : s->first[made + 1];
        for (size_t k = made == BY_NONE ? 0 : s->first[made]; k < end; k++) {
            if (--s->waits[s->reader[k]] == 0) {
                BY_TRY(push(s, s->reader[k], error));
            }
        }
    }
    if (s->next[n] != SIZE_MAX && --s->waits[s->next[n]] == 0) {
        BY_TRY(push(s, s->next[n], error));
    }
    return BY_OK;
}

/* Computes the greedy order and its peak. */
static by_status schedule(const by_graph *graph, size_t *order, size_t *peak, by_error *error)
{
    scheduler s;
    *peak = 0;
    by_status status = scheduler_open(&s, graph, error);
    if (status == BY_OK) {
        status = begin(&s, error);
    }
    for (size_t k = 0; k < graph->node_count && status == BY_OK;) {
        if (s.heap_count == 0) {
            status = by_error_set(error, BY_ESTATE, "order: a node depends on itself");
            break;
        }
        ready_node next = pop(&s);
        if (!s.done[next.node] && next.growth == s.growth[next.node]) {
            order[k++] = next.node;
            status = schedule_node(&s, next.node, peak, error);
        }
    }
    scheduler_close(&s);
    return status;
}

by_status by_pass_order(by_graph *graph, by_error *error)
{
    size_t *order;
    size_t present;
    size_t greedy;
    BY_TRY(by_graph_check(graph, error));
    if (graph->node_count == 0) {
        return BY_OK;
    }
    BY_TRY(by__pass_peak_bytes(&present, graph, error));
    BY_TRY(by__alloc((void **)&order, graph->node_count, sizeof *order, "order", error));
    by_status status = schedule(graph, order, &greedy, error);
    if (status == BY_OK && greedy < present) {
        by__graph_node *nodes;
        status = by__alloc((void **)&nodes, graph->node_count, sizeof *nodes, "order", error);
        if (status == BY_OK) {
            for (size_t k = 0; k < graph->node_count; k++) {
                nodes[k] = graph->nodes[order[k]];
            }
            memcpy(graph->nodes, nodes, graph->node_count * sizeof *nodes);
            free(nodes);
            by__graph_compact(graph);
        }
    }
    free(order);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by_pass_order(graph, error);
}

const by__pass by__pass_order = {.name = "order",
                                 .summary = "a sequence with a low peak of memory",
                                 .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS |
                                             BY_PURPOSE_UPDATE | BY_PURPOSE_INFER,
                                 .apply = apply};
