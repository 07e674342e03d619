/* The columns of a table that make its series, and the rows that these become. */
#ifndef BY_DATA_SERIES_SERIES_COLUMNS_H
#define BY_DATA_SERIES_SERIES_COLUMNS_H

#include "data/series/series_set.h"

/* Columns of a table, which must outlive it. */
typedef struct by__series_found {
    const by_column *time; /* NULL: none */
    double *stamps;        /* of each of its values, if these are texts; NaN: it is no time */
    by__series_stamp style;
    const by_column *id; /* NULL: none */
    const by_column **channels;
    size_t count;
    const by_column **known;
    size_t known_count;
} by__series_found;

/* Finds them. skip: the column of times that is named may have texts that are none. `stamps`,
 * `channels` and `known` are to be freed, whatever it returns. */
by_status by__series_find_columns(by__series_found *f, const by_table *table,
                                  const by__series_columns *columns, bool skip, by_error *error);
/* Seconds that 1 stands for in a column of times. */
double by__series_time_unit(const by_column *time);
/* Copies their names to the set, and tells what else looks like times. BY_EFORMAT: a column is
 * times but for a few rows, and is not in columns->ignore. */
by_status by__series_copy_names(by__series_set *set, const by__series_found *f,
                                const by_table *table, const by__series_columns *columns,
                                by_error *error);
/* Makes the rows of the set's series of those of the table (series_rows.c). */
by_status by__series_take_rows(by__series_set *set, const by__series_found *f,
                               const by_table *table, const by__series_reading *reading,
                               by_error *error);

#endif
