/* Offsets in one arena for stretches of memory whose lifetimes are known: offline dynamic storage
 * allocation, by best fit in a fixed order. */
#ifndef BY_PASSES_PLACEMENT_H
#define BY_PASSES_PLACEMENT_H

#include "graph/graph.h"

/* Memory that one value, or several in place of each other, hold from node `first` to node `last`,
 * both included. */
typedef struct by__interval {
    by_value root;
    size_t bytes; /* at least 1 */
    size_t first;
    size_t last;
    size_t offset;
} by__interval;

/* Sets all offsets, so that no two intervals that share a node share a byte, and *total, the bytes
 * of the arena. Each gets the tightest gap among those placed before it that live at the same time,
 * the lowest of equal gaps, and comes behind all of them when it fits into none. The intervals are
 * taken largest first or earliest first, whichever needs less, and are left in that order. */
by_status by__place_intervals(size_t *total, by__interval *intervals, size_t count,
                              by_error *error);

#endif
