/* Units of text over threads, with their results taken in order. */
#ifndef BY_DATA_PACK_UNIT_RUN_H
#define BY_DATA_PACK_UNIT_RUN_H

#include "data/formats/text_source.h"

typedef struct by__unit_job {
    void *context;
    /* Works on a unit; several threads (< threads) at the same time. */
    by_status (*work)(void *context, size_t thread, const by__unit *unit, by_error *error);
    /* Takes what `work` of this thread and unit has made: one at a time, in the order of the units,
     * before the thread works on its next. May be NULL. */
    by_status (*take)(void *context, size_t thread, const by__unit *unit, by_error *error);
    size_t threads;
    uint64_t wanted; /* see by__units */
    bool whole;
} by__unit_job;

/* Runs the job over all units of a source. The error is that of the first unit that failed. */
by_status by__unit_run(const by__source *source, const by__unit_job *job, by_error *error);

#endif
