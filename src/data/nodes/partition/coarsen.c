#include <stdlib.h>
#include <string.h>

#include "data/loader/order.h"
#include "data/nodes/partition/partition.h"

/* ---- the finest level ---- */

static bool has_end(const int64_t *offsets, const int32_t *sources, int32_t node, int32_t end)
{
    int64_t low = offsets[node];
    int64_t high = offsets[node + 1];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sources[middle] < end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < offsets[node + 1] && sources[low] == end;
}

/* Whether each edge is in both rows, and none is a loop. */
static bool is_symmetric(const int64_t *offsets, const int32_t *sources, int64_t nodes)
{
    for (int64_t v = 0; v < nodes; v++) {
        for (int64_t k = offsets[v]; k < offsets[v + 1]; k++) {
            if (sources[k] == v || !has_end(offsets, sources, sources[k], (int32_t)v)) {
                return false;
            }
        }
    }
    return true;
}

/* Adds each edge to both rows; one that leads both ways is there twice, which counts it twice. */
static by_status add_both(by__nodes_level *l, const int64_t *offsets, const int32_t *sources,
                          by_error *error)
{
    int64_t *rows;
    int32_t *ends;
    BY_TRY(by__alloc(&l->owned[0], (size_t)l->nodes + 2, sizeof *rows, "a partition", error));
    rows = l->owned[0];
    for (int64_t v = 0; v < l->nodes; v++) {
        for (int64_t k = offsets[v]; k < offsets[v + 1]; k++) {
            if (sources[k] != v) {
                rows[v + 2]++;
                rows[sources[k] + 2]++;
            }
        }
    }
    for (int64_t v = 0; v < l->nodes; v++) {
        rows[v + 2] += rows[v + 1];
    }
    BY_TRY(by__alloc(&l->owned[1], (size_t)rows[l->nodes + 1] + 1, sizeof *ends, "a partition",
                     error));
    ends = l->owned[1];
    for (int64_t v = 0; v < l->nodes; v++) {
        for (int64_t k = offsets[v]; k < offsets[v + 1]; k++) {
            if (sources[k] != v) {
                ends[rows[v + 1]++] = sources[k];
                ends[rows[sources[k] + 1]++] = (int32_t)v;
            }
        }
    }
    l->offsets = rows;
    l->ends = ends;
    return BY_OK;
}

by_status by__nodes_level_first(by__nodes_level *out, const int64_t *offsets,
                                const int32_t *sources, int64_t nodes, by_error *error)
{
    *out = (by__nodes_level){.nodes = nodes, .offsets = offsets, .ends = sources};
    return is_symmetric(offsets, sources, nodes) ? BY_OK : add_both(out, offsets, sources, error);
}

void by__nodes_level_free(by__nodes_level *l)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(l->owned); i++) {
        free(l->owned[i]);
    }
    free(l->coarse);
    *l = (by__nodes_level){0};
}

/* ---- merging ---- */

typedef struct merged_rows {
    int64_t *offsets;
    int32_t *ends;
    int32_t *weights;
    int32_t *sizes;
    int32_t *place; /* [nodes] of a neighbour in the row that is made; -1: not there */
} merged_rows;

/* Adds the edges of a node to row `row`, those to the same node as one. Returns the number of all
 * edges so far. */
static int64_t add_row(const merged_rows *m, const by__nodes_level *l, int64_t v, int64_t row,
                       int64_t edges)
{
    for (int64_t k = l->offsets[v]; k < l->offsets[v + 1]; k++) {
        int32_t end = l->coarse[l->ends[k]];
        int32_t weight = by__nodes_level_weight(l, k);
        if (end == row) {
            continue;
        }
        int64_t at = m->place[end] < 0 ? -1 : m->offsets[row] + m->place[end];
        if (at < 0) {
            m->place[end] = (int32_t)(edges - m->offsets[row]);
            m->ends[edges] = end;
            m->weights[edges++] = weight;
        } else {
            int64_t sum = (int64_t)m->weights[at] + weight;
            m->weights[at] = sum > INT32_MAX ? INT32_MAX : (int32_t)sum;
        }
    }
    return edges;
}

/* Fills the row of each cluster from its nodes, which are members[begins[cluster]] on. */
static int64_t merge(const merged_rows *m, const by__nodes_level *l, const int32_t *members,
                     const int64_t *begins, int64_t count)
{
    int64_t edges = 0;
    memset(m->place, 0xff, (size_t)count * sizeof *m->place);
    for (int64_t row = 0; row < count; row++) {
        m->offsets[row] = edges;
        m->sizes[row] = 0;
        for (int64_t i = begins[row]; i < begins[row + 1]; i++) {
            edges = add_row(m, l, members[i], row, edges);
            m->sizes[row] += by__nodes_level_size(l, members[i]);
        }
        for (int64_t k = m->offsets[row]; k < edges; k++) {
            m->place[m->ends[k]] = -1;
        }
    }
    m->offsets[count] = edges;
    return edges;
}

/* Sorts nodes by cluster: members [nodes], begins [count + 1]. */
static void sort_members(const by__nodes_level *l, int32_t *members, int64_t *begins, int64_t count)
{
    memset(begins, 0, (size_t)(count + 1) * sizeof *begins);
    for (int64_t v = 0; v < l->nodes; v++) {
        begins[l->coarse[v] + 1]++;
    }
    for (int64_t i = 0; i < count; i++) {
        begins[i + 1] += begins[i];
    }
    for (int64_t v = 0; v < l->nodes; v++) {
        members[begins[l->coarse[v]]++] = (int32_t)v;
    }
    memmove(begins + 1, begins, (size_t)count * sizeof *begins);
    begins[0] = 0;
}

/* Gives back the memory behind the last edge. */
static void shrink(void **array, int64_t edges)
{
    void *smaller = realloc(*array, (size_t)(edges + 1) * sizeof(int32_t));
    *array = smaller == NULL ? *array : smaller;
}

static by_status merge_level(by__nodes_level *out, const by__nodes_level *fine, int64_t count,
                             by_error *error)
{
    size_t edges = (size_t)fine->offsets[fine->nodes];
    int32_t *members = NULL;
    int32_t *place = NULL;
    int64_t *begins = NULL;
    *out = (by__nodes_level){.nodes = count};
    const struct {
        void **out;
        size_t count;
        size_t size;
    } arrays[] = {{&out->owned[0], (size_t)count + 1, sizeof(int64_t)},
                  {&out->owned[1], edges + 1, sizeof(int32_t)},
                  {&out->owned[2], edges + 1, sizeof(int32_t)},
                  {&out->owned[3], (size_t)count, sizeof(int32_t)},
                  {(void **)&members, (size_t)fine->nodes, sizeof *members},
                  {(void **)&place, (size_t)count, sizeof *place},
                  {(void **)&begins, (size_t)count + 1, sizeof *begins}};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays) && status == BY_OK; i++) {
        status = by__alloc(arrays[i].out, arrays[i].count, arrays[i].size, "a partition", error);
    }
    if (status == BY_OK) {
        const merged_rows m = {out->owned[0], out->owned[1], out->owned[2], out->owned[3], place};
        sort_members(fine, members, begins, count);
        int64_t left = merge(&m, fine, members, begins, count);
        shrink(&out->owned[1], left);
        shrink(&out->owned[2], left);
        out->offsets = out->owned[0];
        out->ends = out->owned[1];
        out->weights = out->owned[2];
        out->sizes = out->owned[3];
    }
    free(members);
    free(place);
    free(begins);
    return status;
}

by_status by__nodes_level_coarsen(by__nodes_level *out, by__nodes_level *fine, int64_t most,
                                  uint64_t seed, by_error *error)
{
    int64_t count;
    BY_TRY(by__alloc((void **)&fine->coarse, (size_t)fine->nodes, sizeof *fine->coarse,
                     "a partition", error));
    BY_TRY(by__nodes_cluster(fine->coarse, &count, fine, most, seed, error));
    by_status status = merge_level(out, fine, count, error);
    if (status != BY_OK) {
        by__nodes_level_free(out);
    }
    return status;
}
