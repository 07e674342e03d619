/* Processes units of text on several threads, and delivers the results in order. */
#ifndef BY_DATA_PACK_UNIT_RUN_H
#define BY_DATA_PACK_UNIT_RUN_H

#include "data/corpus/text_source.h"

typedef struct by__data_unit_job {
    void *context;
    /* Processes a unit; called by several threads (numbers < threads) concurrently. */
    by_status (*work)(void *context, size_t thread, const by__data_format_unit *unit,
                      by_error *error);
    /* Consumes the result of `work` for this thread and unit: one at a time, in the order of units,
     * before the thread starts its next unit. May be NULL. */
    by_status (*take)(void *context, size_t thread, const by__data_format_unit *unit,
                      by_error *error);
    /* Whether to pass a unit over: asked once for each, in their order, by one thread at a time.
     * NULL: none is. */
    by_status (*skips)(void *context, const by__data_format_unit *unit, bool *out, by_error *error);
    size_t threads;
    uint64_t wanted; /* see by__data_units */
    bool whole;
} by__data_unit_job;

/* Runs the job over all units of a source. The error is that of the first unit that failed. */
by_status by__data_unit_run(const by__data_source *source, const by__data_unit_job *job,
                            by_error *error);

#endif
