/* Edges as rows of a sparse matrix, sorted twice by counting: by where they come from, and then, in
 * that order, by where they end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/nodes/node_set.h"

/* The weight of a loop that is added; it is 1 if no other one is there. */
#define ADDED -1.0f

/* Edge i of the given ones, of those that lead back, and of the loops. */
typedef struct edge_list {
    const int32_t (*pairs)[2];
    const float *weights; /* [count]; NULL: they have none */
    uint64_t count;
    uint64_t both; /* count, or twice that */
    uint64_t all;  /* and the loops */
} edge_list;

/* Arrays in which they are sorted. */
typedef struct edge_sorting {
    int64_t *offsets; /* [nodes + 1] */
    int32_t *ends;    /* [all] by where they come from */
    float *weights;   /* [all]; NULL: they have none */
    int32_t *last;    /* [nodes] of scratch */
} edge_sorting;

/* Returns false for an edge that is left out: loops are there for each node or for none. */
static bool edge_at(const edge_list *e, uint64_t i, int32_t *from, int32_t *to, float *weight)
{
    *weight = ADDED;
    if (i >= e->both) {
        *from = *to = (int32_t)(i - e->both);
        return true;
    }
    const int32_t *pair = e->pairs[i % e->count];
    *from = pair[i >= e->count];
    *to = pair[i < e->count];
    *weight = e->weights == NULL ? 1.0f : e->weights[i % e->count];
    return *from != *to || (e->weights != NULL && e->all > e->both);
}

/* Turns counts at offsets[i + 1] into offsets. */
static void add_up(int64_t *offsets, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        offsets[i + 1] += offsets[i];
    }
}

/* Sorts edges by where they come from: ends[offsets[v]] .. are where those of node v end. */
static void sort_by_source(const edge_list *e, int64_t nodes, const edge_sorting *s)
{
    int32_t from;
    int32_t to;
    float weight;
    memset(s->offsets, 0, (size_t)(nodes + 1) * sizeof *s->offsets);
    for (uint64_t i = 0; i < e->all; i++) {
        if (edge_at(e, i, &from, &to, &weight)) {
            s->offsets[from + 1]++;
        }
    }
    add_up(s->offsets, nodes);
    for (uint64_t i = 0; i < e->all; i++) {
        if (edge_at(e, i, &from, &to, &weight)) {
            int64_t at = s->offsets[from]++;
            s->ends[at] = to;
            if (s->weights != NULL) {
                s->weights[at] = weight;
            }
        }
    }
    memmove(s->offsets + 1, s->offsets, (size_t)nodes * sizeof *s->offsets);
    s->offsets[0] = 0;
}

/* Sorts these by where they end, each once, with the largest weight. Returns their number. */
static int64_t sort_by_end(int64_t *rows, int32_t *sources, float *weights, int64_t nodes,
                           const edge_sorting *s)
{
    for (int pass = 0; pass < 2; pass++) {
        memset(s->last, 0xff, (size_t)nodes * sizeof *s->last);
        for (int64_t from = 0; from < nodes; from++) {
            for (int64_t k = s->offsets[from]; k < s->offsets[from + 1]; k++) {
                int32_t to = s->ends[k];
                bool again = s->last[to] == from;
                s->last[to] = (int32_t)from;
                if (pass == 0) {
                    rows[to + 1] += again ? 0 : 1;
                    continue;
                }
                int64_t at = again ? rows[to] - 1 : rows[to]++;
                sources[at] = (int32_t)from;
                if (weights != NULL) {
                    weights[at] = again ? fmaxf(weights[at], s->weights[k]) : s->weights[k];
                }
            }
        }
        if (pass == 0) {
            add_up(rows, nodes);
        }
    }
    memmove(rows + 1, rows, (size_t)nodes * sizeof *rows);
    rows[0] = 0;
    for (int64_t k = 0; weights != NULL && k < rows[nodes]; k++) {
        weights[k] = weights[k] < 0.0f ? 1.0f : weights[k];
    }
    return rows[nodes];
}

static by_status sort_edges(by__nodes_set *set, const edge_list *e, const edge_sorting *s,
                            by_error *error)
{
    int64_t *rows = NULL;
    int32_t *sources = NULL;
    float *weights = NULL;
    size_t nodes = (size_t)set->nodes;
    BY_TRY(by__nodes_set_alloc(set, (void **)&rows, nodes + 1, sizeof *rows, error));
    BY_TRY(by__nodes_set_alloc(set, (void **)&sources, (size_t)e->all, sizeof *sources, error));
    if (e->weights != NULL) {
        BY_TRY(by__nodes_set_alloc(set, (void **)&weights, (size_t)e->all, sizeof *weights, error));
    }
    sort_by_source(e, set->nodes, s);
    set->edges = sort_by_end(rows, sources, weights, set->nodes, s);
    set->offsets = rows;
    set->sources = sources;
    set->weights = weights;
    return set->edges == 0
               ? by_error_set(error, BY_EFORMAT, "%s: the graph has no edges", set->name)
               : by__nodes_set_add_degrees(set, error);
}

by_status by__nodes_set_weighted_edges(by__nodes_set *set, const int32_t (*pairs)[2],
                                       const float *weights, uint64_t count,
                                       const by__nodes_options *options, by_error *error)
{
    edge_list e = {.pairs = pairs, .weights = weights, .count = count};
    edge_sorting s = {0};
    e.both = options->symmetric ? 2 * count : count;
    e.all = e.both + (options->self_loops ? (uint64_t)set->nodes : 0);
    if (count > INT32_MAX || e.all > INT32_MAX) {
        return by_error_set(error, BY_EFORMAT, "%s: %llu edges are more than 2^31 - 1", set->name,
                            (unsigned long long)e.all);
    }
    const struct {
        void **out;
        size_t count;
        size_t size;
    } arrays[] = {{(void **)&s.offsets, (size_t)set->nodes + 1, sizeof *s.offsets},
                  {(void **)&s.ends, (size_t)e.all + 1, sizeof *s.ends},
                  {(void **)&s.last, (size_t)set->nodes, sizeof *s.last},
                  {(void **)&s.weights, (size_t)e.all + 1, sizeof *s.weights}};
    by_status status = BY_OK;
    for (size_t i = 0; i < (weights == NULL ? 3 : 4) && status == BY_OK; i++) {
        status = by__alloc(arrays[i].out, arrays[i].count, arrays[i].size, "a graph", error);
    }
    if (status == BY_OK) {
        status = sort_edges(set, &e, &s, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        free(*arrays[i].out);
    }
    return status;
}

by_status by__nodes_set_edges(by__nodes_set *set, const int32_t (*pairs)[2], uint64_t count,
                              const by__nodes_options *options, by_error *error)
{
    return by__nodes_set_weighted_edges(set, pairs, NULL, count, options, error);
}

by_status by__nodes_set_add_degrees(by__nodes_set *set, by_error *error)
{
    float *degrees;
    if (set->weights == NULL) {
        return BY_OK;
    }
    BY_TRY(by__nodes_set_alloc(set, (void **)&degrees, (size_t)set->nodes, sizeof *degrees, error));
    for (int64_t v = 0; v < set->nodes; v++) {
        double sum = 0.0;
        for (int64_t k = set->offsets[v]; k < set->offsets[v + 1]; k++) {
            sum += (double)set->weights[k];
        }
        degrees[v] = (float)sum;
    }
    set->degrees = degrees;
    return BY_OK;
}

by_status by__nodes_check_weights(const float *weights, uint64_t count, const char *file,
                                  by_error *error)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0.0f && isfinite(weights[i]))) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: edge %llu has weight %g; weights are finite numbers from 0 on",
                                file, (unsigned long long)i, (double)weights[i]);
        }
    }
    return BY_OK;
}
