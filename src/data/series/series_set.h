/* Time series in memory: the rows of a table, grouped by series and in the order of time.
 *
 * A set has one series, or one for each value of a column. All have the same columns of numbers
 * (channels). What is learned from the part to train on, the mean and deviation of each channel, is
 * stored as JSON with the weights; values are standardized by it. */
#ifndef BY_DATA_SERIES_SERIES_SET_H
#define BY_DATA_SERIES_SERIES_SET_H

#include "banyan/table.h"
#include "base/base.h"
#include "data/loader/damage.h"
#include "data/series/calendar.h"
#include "data/series/stamp.h"
#include "data/series/zone.h"

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
    by__series_names known;    /* columns of numbers that are known ahead */
} by__series_columns;

/* By what values are standardized. */
typedef struct by__series_scaling {
    bool counts; /* numbers are counts: they are divided by their mean */
    bool each;   /* each series has scales of its own */
} by__series_scaling;

/* Scales of the channels. */
typedef struct by__series_scales {
    char *time;   /* "": none */
    bool numbers; /* times are numbers, not texts */
    char *id;     /* "": none */
    by__series_scaling scaling;
    by__series_names channels;
    double *mean;            /* [channels] of all series */
    double *deviation;       /* [channels] */
    by__series_names series; /* those that have scales of their own, */
    double *means;           /* [series, channels] */
    double *deviations;      /* [series, channels] */
    by__series_names known;  /* columns that are known ahead, */
    double *known_mean;      /* [known] of all series */
    double *known_deviation; /* [known] */
    by__series_calendar calendar;
} by__series_scales;

/* One series: rows [first, first + count) of the set. */
typedef struct by__series_rows {
    const char *name; /* NULL: the set has one series */
    uint64_t first;
    uint64_t count;
    double last;   /* time of the last row, in seconds since 1970, or as its column has it */
    double step;   /* time from each row to the next one; 0: it varies, or there are no times */
    bool by_clock; /* both are what clocks show: days are evenly spaced there alone */
    uint64_t known_first;  /* its rows in the set's known_values, */
    uint64_t known_count;  /* those behind its last one too, if the table has them */
    uint64_t inputs_first; /* its rows in the set's `inputs` */
} by__series_rows;

typedef struct by__series_set {
    char *name; /* the table's */
    by__series_names channels;
    by__series_names left_out; /* columns that are neither channels nor times nor tell the series */
    char *time;                /* the column of times; "": none */
    char *doubt;               /* what a column looks like that was not read as one; "": nothing */
    bool stamped;              /* which is text, */
    by__series_stamp style;    /* in this style; false: numbers */
    double unit;               /* of these, in seconds */
    by__series_zone *zone;     /* of clocks; NULL: UTC */
    double *times;             /* [rows] what clocks show, in seconds since 1970; NULL: no times */
    by__series_rows *series;
    char **names; /* [series_count], of these; NULL: there is one */
    size_t series_count;
    uint64_t rows;
    float *values;    /* [rows][channels]; standardized, missing ones like the last one before */
    uint8_t *present; /* [rows][channels] 0: missing */
    by__series_names known; /* columns that are known ahead */
    float *known_values;    /* [known_rows][known] NaN: missing; NULL: there are none */
    uint64_t known_rows;    /* known_count of all series */
    /* What a model is told of each row and of those that it forecasts, [all count + horizon]
     * [input_width]; NULL: nothing. */
    float *inputs;
    size_t input_width;
    /* [series_count][channels] By what values of each series were standardized; NULL before. */
    double *mean;
    double *deviation;
    by__loader_damage damage; /* rows of the table that were left out */
    char hash[33]; /* of names, values and what is missing, before they are standardized */
} by__series_set;

/* How the rows of a table become those of series. NULL is the first choice of each. */
typedef struct by__series_reading {
    uint64_t limit;   /* so many first rows of each series at most; 0: all */
    uint64_t skipped; /* of these, so many last ones are left out */
    const char *zone; /* of times without one, and of clocks; "": UTC, or as they are written */
    const by__series_zone *clocks; /* the same, open; NULL: it is opened */
    double step;      /* seconds of a step that rows are resampled to; 0: they are not */
    const char *rule; /* what a step is of its rows: "mean", "sum", "first", "last", or "none":
                               the row at its beginning */
    bool zero;        /* a step without rows is 0, not missing */
    const char *duplicates; /* rows of one time: "fail", "first", "last", "mean" or "sum" */
    bool sort;              /* rows may be in any order */
    bool skip;              /* rows that are refused are left out instead */
    bool ahead;             /* rows behind the last number of a channel stay, for what is known of
                               them; else they are left out */
} by__series_reading;

/* Reads a step such as "15min" as seconds: a number, 1 if there is none, and s, min, h, d or w. */
bool by__series_step_parse(double *seconds, const char *text);

/* Reads a table. reading: NULL: the first choices. Returns BY_EFORMAT if the times of a series do
 * not ascend (with the row), or a number is beyond f32; BY_ECONFIG if a column is absent or of
 * another kind, or there is no such zone. */
by_status by__series_set_open(by__series_set **out, const char *path,
                              const by__series_columns *columns, const by__series_reading *reading,
                              by_error *error);
/* The same of a table that is open. */
by_status by__series_set_read(by__series_set **out, const by_table *table,
                              const by__series_columns *columns, const by__series_reading *reading,
                              by_error *error);
void by__series_names_free(by__series_names *names);
void by__series_set_close(by__series_set **set);

/* Learns the scales of the first rows of each series, `train` of them: mean and population
 * deviation (1 instead of 0), or of counts 0 and the mean. Returns BY_EFORMAT if there is no
 * number, or if one that should be a count is negative or no integer, with column and row. */
by_status by__series_learn(by__series_scales **out, const by__series_set *set,
                           const by__series_columns *columns, const by__series_scaling *scaling,
                           const uint64_t *train, by_error *error);
/* Sets the calendar, which the scales then own. */
void by__series_set_calendar(by__series_scales *scales, by__series_calendar *calendar);
void by__series_scales_close(by__series_scales **scales);
/* Standardizes the values, and replaces missing ones by the last one before them, or by what 0
 * stands for. Where each series has scales of its own, one that has none, because it was not there
 * to learn from, is standardized by its own rows. */
by_status by__series_standardize(by__series_set *set, const by__series_scales *scales,
                                 by_error *error);
/* Makes the set's `inputs`, once it is standardized: the calendar's numbers of the time of each
 * row, then the standardized columns that are known ahead, 0 where they are missing. horizon: rows
 * behind each series. Returns BY_ECONFIG if these rows are needed (`ahead`), and the times of a
 * series are not evenly spaced, or a column that is known ahead ends before. */
by_status by__series_make_inputs(by__series_set *set, const by__series_scales *scales,
                                 uint64_t horizon, bool ahead, by_error *error);
/* Converts scales to JSON, to be freed with free(), and back. Numbers survive bit for bit. */
by_status by__series_scales_print(const by__series_scales *scales, char **out, by_error *error);
by_status by__series_scales_parse(by__series_scales **out, const char *name, const char *text,
                                  by_error *error);

#endif
