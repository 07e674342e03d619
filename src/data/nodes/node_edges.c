/* Edges as rows of a sparse matrix, sorted twice by counting: by where they come from, and then, in
 * that order, by where they end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/nodes/node_set.h"

/* Edge i of the given ones, of those that lead back, and of the loops. */
typedef struct edge_list {
    const int32_t (*pairs)[2];
    uint64_t count;
    uint64_t both; /* count, or twice that */
    uint64_t all;  /* and the loops */
} edge_list;

/* Returns false for an edge that is left out: loops are there for each node or for none. */
static bool edge_at(const edge_list *e, uint64_t i, int32_t *from, int32_t *to)
{
    if (i >= e->both) {
        *from = *to = (int32_t)(i - e->both);
        return true;
    }
    const int32_t *pair = e->pairs[i % e->count];
    *from = pair[i >= e->count];
    *to = pair[i < e->count];
    return *from != *to;
}

/* Turns counts at offsets[i + 1] into offsets. */
static void add_up(int32_t *offsets, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        offsets[i + 1] += offsets[i];
    }
}

/* Sorts edges by where they come from: ends[offsets[v]] .. are where those of node v end. */
static void sort_by_source(const edge_list *e, int64_t nodes, int32_t *offsets, int32_t *ends)
{
    int32_t from;
    int32_t to;
    memset(offsets, 0, (size_t)(nodes + 1) * sizeof *offsets);
    for (uint64_t i = 0; i < e->all; i++) {
        if (edge_at(e, i, &from, &to)) {
            offsets[from + 1]++;
        }
    }
    add_up(offsets, nodes);
    for (uint64_t i = 0; i < e->all; i++) {
        if (edge_at(e, i, &from, &to)) {
            ends[offsets[from]++] = to;
        }
    }
    memmove(offsets + 1, offsets, (size_t)nodes * sizeof *offsets);
    offsets[0] = 0;
}

/* Sorts these by where they end, each once; `last` are nodes of scratch. Returns their number. */
static int64_t sort_by_end(by__nodes_set *set, const int32_t *offsets, const int32_t *ends,
                           int32_t *last)
{
    int32_t *rows = set->offsets;
    for (int pass = 0; pass < 2; pass++) {
        memset(last, 0xff, (size_t)set->nodes * sizeof *last);
        for (int64_t from = 0; from < set->nodes; from++) {
            for (int64_t k = offsets[from]; k < offsets[from + 1]; k++) {
                int32_t to = ends[k];
                if (last[to] == from) {
                    continue;
                }
                last[to] = (int32_t)from;
                if (pass == 0) {
                    rows[to + 1]++;
                } else {
                    set->sources[rows[to]++] = (int32_t)from;
                }
            }
        }
        if (pass == 0) {
            add_up(rows, set->nodes);
        }
    }
    memmove(rows + 1, rows, (size_t)set->nodes * sizeof *rows);
    rows[0] = 0;
    return rows[set->nodes];
}

static void transpose(by__nodes_set *set)
{
    int32_t *rows = set->back_offsets;
    for (int64_t k = 0; k < set->edges; k++) {
        rows[set->sources[k] + 1]++;
    }
    add_up(rows, set->nodes);
    for (int64_t to = 0; to < set->nodes; to++) {
        for (int32_t k = set->offsets[to]; k < set->offsets[to + 1]; k++) {
            int32_t at = rows[set->sources[k]]++;
            set->back_sources[at] = (int32_t)to;
            set->back_edges[at] = k;
        }
    }
    memmove(rows + 1, rows, (size_t)set->nodes * sizeof *rows);
    rows[0] = 0;
}

static void take_degrees(by__nodes_set *set)
{
    for (int64_t i = 0; i < set->nodes; i++) {
        double degree = (double)(set->offsets[i + 1] - set->offsets[i]);
        set->inverse_root[i] = degree > 0.0 ? (float)(1.0 / sqrt(degree)) : 0.0f;
        set->inverse_degree[i] = degree > 0.0 ? (float)(1.0 / degree) : 0.0f;
    }
}

static by_status allocate(by__nodes_set *set, uint64_t edges, by_error *error)
{
    size_t nodes = (size_t)set->nodes;
    struct {
        void *out;
        size_t count;
        size_t size;
    } arrays[] = {
        {&set->offsets, nodes + 1, sizeof(int32_t)},
        {&set->sources, edges, sizeof(int32_t)},
        {&set->back_offsets, nodes + 1, sizeof(int32_t)},
        {&set->back_sources, edges, sizeof(int32_t)},
        {&set->back_edges, edges, sizeof(int32_t)},
        {&set->inverse_root, nodes, sizeof(float)},
        {&set->inverse_degree, nodes, sizeof(float)},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__alloc(arrays[i].out, arrays[i].count, arrays[i].size, "a graph", error));
        set->bytes += arrays[i].count * arrays[i].size;
    }
    return BY_OK;
}

by_status by__nodes_set_edges(by__nodes_set *set, const int32_t (*pairs)[2], uint64_t count,
                              const by__nodes_options *options, by_error *error)
{
    edge_list e = {.pairs = pairs, .count = count};
    e.both = options->symmetric ? 2 * count : count;
    e.all = e.both + (options->self_loops ? (uint64_t)set->nodes : 0);
    if (count > INT32_MAX || e.all > INT32_MAX) {
        return by_error_set(error, BY_EFORMAT, "%s: %llu edges are more than 2^31 - 1", set->name,
                            (unsigned long long)e.all);
    }
    int32_t *offsets = NULL;
    int32_t *ends = NULL;
    int32_t *last = NULL;
    size_t nodes = (size_t)set->nodes;
    by_status status = allocate(set, e.all, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&offsets, nodes + 1, sizeof *offsets, "a graph", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&ends, (size_t)e.all + 1, sizeof *ends, "a graph", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&last, nodes, sizeof *last, "a graph", error);
    }
    if (status == BY_OK) {
        sort_by_source(&e, set->nodes, offsets, ends);
        set->edges = sort_by_end(set, offsets, ends, last);
        transpose(set);
        take_degrees(set);
        if (set->edges == 0) {
            status = by_error_set(error, BY_EFORMAT, "%s: the graph has no edges", set->name);
        }
    }
    free(offsets);
    free(ends);
    free(last);
    return status;
}
