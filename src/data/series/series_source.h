/* Samples of series: windows of rows, and the rows behind each, made when they are used. */
#ifndef BY_DATA_SERIES_SERIES_SOURCE_H
#define BY_DATA_SERIES_SERIES_SOURCE_H

#include "banyan/data.h"
#include "data/series/series_set.h"

/* Windows of one series: its first one begins at row `first` of the series. */
typedef struct by__series_windows {
    uint64_t first;
    uint64_t count;
} by__series_windows;

/* What the windows of a set are. */
typedef struct by__series_window_options {
    uint64_t context; /* rows that a model reads */
    uint64_t horizon; /* rows that it forecasts */
    bool shuffle;     /* to train on: endless epochs in random order; false: one pass */
    /* The rows behind a window are not known: all targets are 0 and weigh 1. */
    bool ahead;
    bool scales;                       /* by what the values were standardized are arrays, too */
    bool owns;                         /* the source closes the set */
    const by__series_windows *windows; /* [set->series_count], copied */
} by__series_window_options;

/* Windows whose targets are all in rows [begin, end) of a series; what they read may begin
 * before. */
by__series_windows by__series_windows_in(uint64_t begin, uint64_t end, uint64_t context,
                                         uint64_t horizon);
/* Opens a source of the arrays
 *   "series"   f32 [context, channels]
 *   "targets"  f32 [horizon, channels]
 *   "weight"   f32 [horizon, channels]  1, or 0 where the target is missing
 *   "mean", "deviation"  f32 [channels]  of the series, by which they were standardized; if they
 *                                        are asked for
 *   "known"    f32 [context + horizon, input_width]  the set's inputs, if it has any
 * The set, which is standardized, must outlive it. A sample weighs as many targets as it has. */
by_status by__series_source_open(by_source **out, by__series_set *set,
                                 const by__series_window_options *options, by_error *error);
/* The series of a sample, and the row of the series behind what the model reads. */
void by__series_source_place(const by_source *source, uint64_t sample, size_t *series,
                             uint64_t *row);

#endif
