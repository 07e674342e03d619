/* Tables from CSV files, and the numbers that a model takes from them.
 *
 * A table has typed columns: numbers, or categories. What makes its rows into arrays (scales of
 * numbers, ids of categories, the scale or the classes of the target) is learned from the training
 * part alone, applied to every other table of the same columns, and kept as JSON with the weights.
 */
#ifndef BANYAN_TABLE_H
#define BANYAN_TABLE_H

#include "banyan/array_set.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ---- */

typedef struct by_table by_table;

typedef enum by_column_kind {
    BY_COLUMN_AUTO = 0, /* numbers if all cells that are not missing are numbers, else categories */
    BY_COLUMN_NUMBER,
    BY_COLUMN_CATEGORY
} by_column_kind;

typedef struct by_column {
    const char *name;
    by_column_kind kind;   /* never BY_COLUMN_AUTO */
    const double *numbers; /* of each row; NaN: missing. NULL for categories */
    const int32_t
        *categories; /* of each row, an index of `values`; -1: missing. NULL for numbers */
    const char *const *values; /* of the categories, as they first appear */
    size_t value_count;
    uint64_t missing; /* cells */
} by_column;

typedef struct by_column_type {
    const char *name;
    by_column_kind kind;
} by_column_type;

typedef struct by_table_options {
    char separator;              /* 0: a comma */
    const by_column_type *types; /* of columns that are not to be AUTO */
    size_t type_count;
    /* Rows that are damaged are left out: those that do not parse, have more or fewer cells than
     * the header, text in a column of numbers, or no value in the column `required`. */
    bool skip;
    const char *required; /* with `skip`; NULL: none */
} by_table_options;

/* Reads a CSV file (RFC 4180; gzip may have compressed it) whose first row names the columns.
 * Missing cells: empty, NA, N/A, NaN, nan, null, NULL or ?. Or a Parquet file
 * (src/data/formats/parquet.h says which): integers, reals and times are numbers, text is
 * categories; nulls, NaN and the texts above are missing; `skip` leaves none of its rows out.
 * Or a directory of such files, the parts of one table as Spark and Dask write them: all that end
 * in .parquet, in the byte order of their names. `options` may be NULL. BY_EFORMAT: names the line
 * and column of what is wrong; BY_EARG: a typed column is not there. */
BY_API by_status by_table_open(by_table **out, const char *path, const by_table_options *options,
                               by_error *error);
/* The same from memory; `name` is for messages. */
BY_API by_status by_table_parse(by_table **out, const char *name, const char *text, size_t length,
                                const by_table_options *options, by_error *error);
BY_API void by_table_close(by_table **table);
/* The rows that were left out, in their order: `place` is the line, `begin` the row, counted with
 * them. They live as long as the table. */
BY_API const by_damage *by_table_damage(const by_table *table, size_t *count);
BY_API const char *by_table_name(const by_table *table);
BY_API uint64_t by_table_rows(const by_table *table);
BY_API size_t by_table_column_count(const by_table *table);
BY_API const by_column *by_table_column(const by_table *table, size_t index);
/* The column of this name; NULL when there is none. */
BY_API const by_column *by_table_find(const by_table *table, const char *name);

/* ---- encodings ---- */

typedef struct by_encoding by_encoding;

typedef struct by_encoding_options {
    const char *target;        /* the column to predict; NULL: none */
    const char *const *ignore; /* columns that are no features */
    size_t ignore_count;
} by_encoding_options;

/* Learns from the rows of a part: of each number, mean and standard deviation over the cells that
 * are not missing (deviation 1 where it would be 0); of each category, which values there are,
 * sorted; of the target the same. BY_EARG: a column is not there, nothing is left as a feature, or
 * the part is of another table. BY_EFORMAT: a value is not UTF-8, or no target is there. */
BY_API by_status by_encoding_learn(by_encoding **out, const by_table *table, const by_part *part,
                                   const by_encoding_options *options, by_error *error);
BY_API void by_encoding_close(by_encoding **encoding);
/* As JSON text, freed with free(), and back; `name` is for messages. The numbers come back with the
 * same bits. BY_EFORMAT: the text is not what by_encoding_print writes. */
BY_API by_status by_encoding_print(const by_encoding *encoding, char **out, by_error *error);
BY_API by_status by_encoding_parse(by_encoding **out, const char *name, const char *text,
                                   size_t length, by_error *error);

/* How many numbers a row has, and how many categories. */
BY_API size_t by_encoding_numbers(const by_encoding *encoding);
BY_API size_t by_encoding_categories(const by_encoding *encoding);
/* Name of feature `index`: numbers, then categories; NULL: there are no more. */
BY_API const char *by_encoding_feature(const by_encoding *encoding, size_t index,
                                       by_column_kind *kind);
/* Ids of category column `index`: its known values and id 0. */
BY_API size_t by_encoding_category_size(const by_encoding *encoding, size_t index);
/* Number column `index` is read as (number - mean) / deviation. */
BY_API void by_encoding_number_scale(const by_encoding *encoding, size_t index, double *mean,
                                     double *deviation);
/* Name of the target's column; NULL: there is none. */
BY_API const char *by_encoding_target(const by_encoding *encoding);
/* Classes of the target; 0: it is a number. */
BY_API size_t by_encoding_classes(const by_encoding *encoding);
/* Name of class `index`. */
BY_API const char *by_encoding_class(const by_encoding *encoding, size_t index);
/* A target that is a number is learned as (number - mean) / deviation. */
BY_API void by_encoding_target_scale(const by_encoding *encoding, double *mean, double *deviation);

/* The rows as arrays:
 *   "numbers"     f32 [N, F]  (number - mean) / deviation; 0 where it is missing; only when F > 0
 *   "categories"  i32 [N, K]  ids from 1 on; 0 for missing and unknown values; only when K > 0
 *   "targets"     f32 [N]     scaled like numbers; or
 *   "labels"      i32 [N]     class of the target
 * With `targets` false, the target's column need not be there. BY_EFORMAT: a column is not there or
 * of the other kind; a target is missing or of an unknown class (names the row, from 1). */
BY_API by_status by_encoding_apply(const by_encoding *encoding, const by_table *table, bool targets,
                                   by_array_set **out, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
