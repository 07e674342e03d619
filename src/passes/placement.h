/* Assigns offsets in one arena to blocks of memory with known lifetimes: offline dynamic storage
 * allocation, by best fit in a fixed order. */
#ifndef BY_PASSES_PLACEMENT_H
#define BY_PASSES_PLACEMENT_H

#include "graph/graph.h"

/* Memory used from node `first` to node `last`, both included, by one value or by several that
 * share it. */
typedef struct by__pass_interval {
    by_value root;
    size_t bytes; /* at least 1 */
    size_t first;
    size_t last;
    size_t offset;
} by__pass_interval;

/* Sets all offsets so that no two intervals with a common node share a byte, and *total, the bytes
 * of the arena. Each interval goes into the tightest gap (the lowest of equals) between those
 * already placed that live at the same time, or after all of them if it fits into no gap. Intervals
 * are taken largest first or earliest first, whichever needs less memory, and are left in that
 * order. */
by_status by__pass_place_intervals(size_t *total, by__pass_interval *intervals, size_t count,
                                   by_error *error);
/* Sets only *total, in less time: it is that of by__pass_place_intervals, or another one that is at
 * most `enough`. The offsets afterwards mean nothing. */
by_status by__passes_measure_intervals(size_t *total, by__pass_interval *intervals, size_t count,
                                       size_t enough, by_error *error);

#endif
