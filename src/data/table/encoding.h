/* Internal record of an encoding of a table's rows (encoding.c, which applies it), shared with what
 * learns it (encoding_learn.c) and with its JSON printer and parser (encoding_json.c). */
#ifndef BY_DATA_TABLE_ENCODING_H
#define BY_DATA_TABLE_ENCODING_H

#include "banyan/table.h"
#include "base/base.h"
#include "base/same_value.h"
#include "data/table/time_unit.h"

/* Statistics of one column. */
typedef struct by__table_encoded {
    char *name;
    bool is_category;
    double mean;
    double deviation;
    by_time time;  /* of a column of times; none: not known */
    bool is_truth; /* true and false are 1 and 0 in this column of numbers */
    char **values; /* values of a category, sorted bytewise */
    size_t count;
    by__aliases aliases; /* of these */
} by__table_encoded;

struct by_encoding {
    by__table_encoded *numbers;
    size_t number_count;
    by__table_encoded *categories;
    size_t category_count;
    by__table_encoded *targets; /* several are numbers */
    size_t target_count;
    char *text; /* column of texts, which has no features beside it; NULL: none */
    char *pair; /* column of second texts, which are read behind them; NULL: none */
};

/* Allocates an empty encoding with room for so many columns. Closed with by_encoding_close. */
by_status by__table_encoding_allocate(by_encoding **out, size_t numbers, size_t categories,
                                      size_t targets, by_error *error);
/* The place of a column among the targets; target_count: it is none of them. */
size_t by__table_target_of(const by_encoding_options *options, const char *column);
/* Prepares the search for the values of a category, which are complete. */
by_status by__table_encoded_index(by__table_encoded *feature, by_error *error);
/* The error of a number that no model reads, since inputs are f32. */
by_status by__table_refuse_large(const by_table *table, uint64_t row, const char *column,
                                 double value, by_error *error);
/* Whether two encodings are the same: names, means and deviations, and categories by value. */
bool by__table_encoding_same(const by_encoding *a, const by_encoding *b);
/* Arrays of the rows of a table that an encoding does not make, at most; their names and elements
 * are from malloc. */
typedef struct by__table_more {
    by_array arrays[4];
    size_t count;
} by__table_more;

/* by_encoding_apply with one more array, "weight" f32 [N], from this column of numbers (NULL:
 * none), and those of `more`, whose ownership it takes, also on failure (NULL: none). BY_EFORMAT
 * names a row without a number of at least 0 there. */
by_status by__table_encoding_apply(const by_encoding *encoding, const by_table *table, bool targets,
                                   const char *weight, by__table_more *more, by_array_set **out,
                                   by_error *error);
void by__table_more_free(by__table_more *more);
/* Copies a name or a value; freed with free(). */
by_status by__table_encoding_copy(char **out, const char *text, by_error *error);

#endif
