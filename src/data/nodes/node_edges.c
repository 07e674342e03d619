/* Edges as rows of a sparse matrix, sorted twice by counting: by where they come from, and then, in
 * that order, by where they end. */
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
static void add_up(int64_t *offsets, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        offsets[i + 1] += offsets[i];
    }
}

/* Sorts edges by where they come from: ends[offsets[v]] .. are where those of node v end. */
static void sort_by_source(const edge_list *e, int64_t nodes, int64_t *offsets, int32_t *ends)
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
static int64_t sort_by_end(int64_t *rows, int32_t *sources, int64_t nodes, const int64_t *offsets,
                           const int32_t *ends, int32_t *last)
{
    for (int pass = 0; pass < 2; pass++) {
        memset(last, 0xff, (size_t)nodes * sizeof *last);
        for (int64_t from = 0; from < nodes; from++) {
            for (int64_t k = offsets[from]; k < offsets[from + 1]; k++) {
                int32_t to = ends[k];
                if (last[to] == from) {
                    continue;
                }
                last[to] = (int32_t)from;
                if (pass == 0) {
                    rows[to + 1]++;
                } else {
                    sources[rows[to]++] = (int32_t)from;
                }
            }
        }
        if (pass == 0) {
            add_up(rows, nodes);
        }
    }
    memmove(rows + 1, rows, (size_t)nodes * sizeof *rows);
    rows[0] = 0;
    return rows[nodes];
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
    int64_t *rows = NULL;
    int32_t *sources = NULL;
    int64_t *offsets = NULL;
    int32_t *ends = NULL;
    int32_t *last = NULL;
    size_t nodes = (size_t)set->nodes;
    by_status status = by__nodes_set_alloc(set, (void **)&rows, nodes + 1, sizeof *rows, error);
    if (status == BY_OK) {
        status = by__nodes_set_alloc(set, (void **)&sources, (size_t)e.all, sizeof *sources, error);
    }
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
        set->edges = sort_by_end(rows, sources, set->nodes, offsets, ends, last);
        set->offsets = rows;
        set->sources = sources;
        if (set->edges == 0) {
            status = by_error_set(error, BY_EFORMAT, "%s: the graph has no edges", set->name);
        }
    }
    free(offsets);
    free(ends);
    free(last);
    return status;
}
