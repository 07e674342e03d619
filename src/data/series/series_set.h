/* Time series in memory: the rows of a table, grouped by series and in the order of time.
 *
 * A set has one series, or one for each value of a column. All have the same columns of numbers
 * (channels). What is learned from the part to train on, the mean and deviation of each channel, is
 * stored as JSON with the weights; values are standardized by it. */
#ifndef BY_DATA_SERIES_SERIES_SET_H
#define BY_DATA_SERIES_SERIES_SET_H

#include "banyan/table.h"
#include "base/base.h"
#include "data/series/stamp.h"

/* Names of columns. */
typedef struct by__series_names {
    char **items;
    size_t count;
} by__series_names;

/* What a table's columns are. */
typedef struct by__series_columns {
    const char *time;          /* column of times; "": the first one of dates or times, if any */
    const char *id;            /* column that tells the series; "": there is one series */
    by__series_names channels; /* columns of numbers; empty: all others of numbers */
    by__series_names ignore;   /* of all others, those that are left out */
} by__series_columns;

/* Scales of the channels. */
typedef struct by__series_scales {
    char *time; /* "": none */
    char *id;   /* "": none */
    by__series_names channels;
    double *mean;      /* [channels] */
    double *deviation; /* [channels] */
} by__series_scales;

/* One series: rows [first, first + count) of the set. */
typedef struct by__series_rows {
    const char *name; /* NULL: the set has one series */
    uint64_t first;
    uint64_t count;
    double last; /* time of the last row */
    double step; /* time from each row to the next one; 0: it varies, or there are no times */
} by__series_rows;

typedef struct by__series_set {
    char *name; /* the table's */
    by__series_names channels;
    by__series_names left_out; /* columns that are neither channels nor times nor tell the series */
    char *time;                /* the column of times; "": none */
    char *doubt;               /* what a column looks like that was not read as one; "": nothing */
    bool stamped;              /* which is text, */
    by__series_stamp style;    /* in this style; false: numbers */
    by__series_rows *series;
    char **names; /* [series_count], of these; NULL: there is one */
    size_t series_count;
    uint64_t rows;
    float *values;    /* [rows][channels]; standardized, missing ones like the last one before */
    uint8_t *present; /* [rows][channels] 0: missing */
    char hash[33];    /* of names, values and what is missing, before they are standardized */
} by__series_set;

/* Which rows of each series are read. */
typedef struct by__series_part {
    uint64_t limit;   /* so many first ones at most; 0: all */
    uint64_t skipped; /* of these, so many last ones are left out */
} by__series_part;

/* Reads a table. part: NULL: all rows. Returns BY_EFORMAT if the times of a series do not ascend
 * (with the row), or a number is beyond f32; BY_ECONFIG if a column is absent or of another
 * kind. */
by_status by__series_set_open(by__series_set **out, const char *path,
                              const by__series_columns *columns, const by__series_part *part,
                              by_error *error);
void by__series_names_free(by__series_names *names);
void by__series_set_close(by__series_set **set);

/* Learns the scales of the first rows of each series, `train` of them: mean and population
 * deviation (1 instead of 0). */
by_status by__series_learn(by__series_scales **out, const by__series_set *set,
                           const by__series_columns *columns, const uint64_t *train,
                           by_error *error);
void by__series_scales_close(by__series_scales **scales);
/* Standardizes the values, and replaces missing ones by the last one before them, or by the
 * mean. */
void by__series_standardize(by__series_set *set, const by__series_scales *scales);
/* Converts scales to JSON, to be freed with free(), and back. Numbers survive bit for bit. */
by_status by__series_scales_print(const by__series_scales *scales, char **out, by_error *error);
by_status by__series_scales_parse(by__series_scales **out, const char *name, const char *text,
                                  by_error *error);

#endif
