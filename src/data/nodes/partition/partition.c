#include <math.h>
#include <stdlib.h>

#include "data/loader/order.h"
#include "data/nodes/partition/partition.h"

#define LEVELS 48
/* The coarsest level has about so many nodes for each part, and at least so many. */
#define PER_PART ((int64_t)4)
#define LEAST    ((int64_t)128)
/* How much larger parts may be than in the end, while nodes are merged: what is moved then moves
 * many nodes at once, and would often not fit. */
#define COARSE_SLACK 1.03

/* Merges nodes until few are left, or few can be merged. *count: the levels that there are. */
static by_status coarsen(by__nodes_level *levels, int *count, int64_t parts, uint64_t seed,
                         by_error *error)
{
    int64_t nodes = levels[0].nodes;
    int64_t few = PER_PART * parts > LEAST ? PER_PART * parts : LEAST;
    int64_t most = nodes * 3 / (2 * few) + 1; /* no node of the coarsest level is a part alone */
    for (*count = 1; *count < LEVELS && levels[*count - 1].nodes > few;) {
        by__nodes_level *fine = &levels[*count - 1];
        BY_TRY(by__nodes_level_coarsen(&levels[*count], fine, most,
                                       by__loader_order_seed(seed, (uint64_t)*count), error));
        ++*count;
        if (levels[*count - 1].nodes > fine->nodes / 20 * 19) {
            return BY_OK;
        }
    }
    return BY_OK;
}

static by_status cut(int32_t **parts_of, by__nodes_level *levels, int count, int64_t parts,
                     uint64_t seed, by_error *error)
{
    double mean = (double)levels[0].nodes / (double)parts;
    int64_t most = (int64_t)ceil(BY__NODES_IMBALANCE * mean);
    int last = count - 1;
    BY_TRY(by__nodes_bisect(parts_of[last & 1], &levels[last], parts, seed, error));
    for (int i = last; i >= 0; i--) {
        int32_t *now = parts_of[i & 1];
        const int32_t *coarse = parts_of[1 - (i & 1)];
        for (int64_t v = 0; i < last && v < levels[i].nodes; v++) {
            now[v] = coarse[levels[i].coarse[v]];
        }
        if (i < last) {
            by__nodes_level_free(&levels[i + 1]);
        }
        BY_TRY(by__nodes_refine(now, &levels[i], parts,
                                i > 0 ? (int64_t)(COARSE_SLACK * (double)most) : most,
                                by__loader_order_seed(seed, (uint64_t)(LEVELS + i)), error));
    }
    return BY_OK;
}

by_status by__nodes_partition(int32_t *out, const int64_t *offsets, const int32_t *sources,
                              int64_t nodes, int64_t parts, uint64_t seed, by_error *error)
{
    by__nodes_level levels[LEVELS] = {{0}};
    int count = 1;
    int32_t *parts_of[2] = {out, NULL};
    by_status status =
        by__alloc((void **)&parts_of[1], (size_t)nodes, sizeof *out, "a partition", error);
    if (status == BY_OK) {
        status = by__nodes_level_first(&levels[0], offsets, sources, nodes, error);
    }
    if (status == BY_OK) {
        status = coarsen(levels, &count, parts, seed, error);
    }
    if (status == BY_OK) {
        status = cut(parts_of, levels, count, parts, seed, error);
    }
    for (int i = 0; i < LEVELS; i++) {
        by__nodes_level_free(&levels[i]);
    }
    free(parts_of[1]);
    return status;
}
