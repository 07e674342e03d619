#include <stdlib.h>

#include "data/nodes/partition/partition.h"

by_status by__nodes_edge_counts_open(by__nodes_edge_counts *out, int64_t labels, by_error *error)
{
    by__nodes_edge_counts made = {0};
    size_t n = (size_t)labels;
    by_status status = by__alloc((void **)&made.edges, n, sizeof *made.edges, "a partition", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&made.met, n, sizeof *made.met, "a partition", error);
    }
    if (status != BY_OK) {
        by__nodes_edge_counts_free(&made);
        return status;
    }
    *out = made;
    return BY_OK;
}

void by__nodes_edge_counts_free(by__nodes_edge_counts *counts)
{
    free(counts->edges);
    free(counts->met);
    *counts = (by__nodes_edge_counts){0};
}

void by__nodes_edge_counts_of(by__nodes_edge_counts *c, const by__nodes_level *level,
                              const int32_t *labels, int64_t v)
{
    for (int64_t i = 0; i < c->met_count; i++) {
        c->edges[c->met[i]] = 0;
    }
    c->met_count = 0;
    for (int64_t k = level->offsets[v]; k < level->offsets[v + 1]; k++) {
        int32_t label = labels[level->ends[k]];
        if (c->edges[label] == 0) {
            c->met[c->met_count++] = label;
        }
        c->edges[label] += by__nodes_level_weight(level, k);
    }
}
