/* What models read of a whole graph: its features, what they scale nodes by, and its edges in rows
 * with the transposed rows, by which gradients go back. */
#include <math.h>
#include <string.h>

#include "data/nodes/node_set.h"

float by__nodes_inverse_root(double degree)
{
    return degree > 0.0 ? (float)(1.0 / sqrt(degree)) : 0.0f;
}

float by__nodes_inverse_degree(double degree)
{
    return degree > 0.0 ? (float)(1.0 / degree) : 0.0f;
}

static void transpose(const by__nodes_set *set, const by__nodes_whole *w)
{
    int32_t *rows = w->back_offsets;
    for (int64_t k = 0; k < set->edges; k++) {
        rows[set->sources[k] + 1]++;
    }
    for (int64_t i = 0; i < set->nodes; i++) {
        rows[i + 1] += rows[i];
    }
    for (int64_t to = 0; to < set->nodes; to++) {
        for (int64_t k = set->offsets[to]; k < set->offsets[to + 1]; k++) {
            int32_t at = rows[set->sources[k]]++;
            w->back_sources[at] = (int32_t)to;
            w->back_edges[at] = (int32_t)k;
        }
    }
    memmove(rows + 1, rows, (size_t)set->nodes * sizeof *rows);
    rows[0] = 0;
}

static by_status make_edges(by__nodes_set *set, by_error *error)
{
    by__nodes_whole *w = &set->whole;
    size_t nodes = (size_t)set->nodes;
    size_t edges = (size_t)set->edges;
    if (set->edges > INT32_MAX) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %lld edges are too many to read the whole graph: set "
                            "data.fan_outs to read samples of it",
                            set->name, (long long)set->edges);
    }
    struct {
        int32_t **out;
        size_t count;
    } arrays[] = {{&w->offsets, nodes + 1},
                  {&w->back_offsets, nodes + 1},
                  {&w->back_sources, edges},
                  {&w->back_edges, edges}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__nodes_set_alloc(set, (void **)arrays[i].out, arrays[i].count, sizeof(int32_t),
                                   error));
    }
    for (size_t i = 0; i <= nodes; i++) {
        w->offsets[i] = (int32_t)set->offsets[i];
    }
    transpose(set, w);
    return BY_OK;
}

by_status by__nodes_set_whole(by__nodes_set *set, by_error *error)
{
    by__nodes_whole *w = &set->whole;
    size_t nodes = (size_t)set->nodes;
    BY_TRY(by__nodes_set_alloc(set, (void **)&w->inverse_root, nodes, sizeof(float), error));
    BY_TRY(by__nodes_set_alloc(set, (void **)&w->inverse_degree, nodes, sizeof(float), error));
    for (int64_t i = 0; i < set->nodes; i++) {
        w->inverse_root[i] = by__nodes_inverse_root(by__nodes_set_weights(set, i));
        w->inverse_degree[i] = by__nodes_inverse_degree(by__nodes_set_weights(set, i));
    }
    w->x = set->x;
    if (w->x == NULL) {
        float *x;
        size_t width = (size_t)set->features;
        BY_TRY(by__nodes_set_alloc(set, (void **)&x, nodes, width * sizeof *x, error));
        for (size_t i = 0; i < nodes; i++) {
            by__nodes_set_row(set, (int64_t)i, x + i * width);
        }
        w->x = x;
    }
    return make_edges(set, error);
}
