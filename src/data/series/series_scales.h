/* What learns scales and what reads them as JSON have in common. */
#ifndef BY_DATA_SERIES_SERIES_SCALES_H
#define BY_DATA_SERIES_SERIES_SCALES_H

#include "data/series/series_set.h"

/* How many scales there are. */
typedef struct by__series_scales_size {
    size_t channels;
    size_t series; /* that have scales of their own */
    size_t known;
} by__series_scales_size;

/* Makes scales without names and numbers, but with room for them. */
by_status by__series_scales_make(by__series_scales **out, const by__series_scales_size *size,
                                 const char *time, const char *id, by_error *error);
/* Two lists of `count` numbers. */
by_status by__series_scales_rows(double **mean, double **deviation, size_t count, by_error *error);
/* Adds a name to a list that has room for it. */
by_status by__series_names_add(by__series_names *names, const char *name, by_error *error);

#endif
