/* Tables with typed columns, and their encoding as arrays for a model.
 *
 * Columns are numbers or categories. Everything needed to turn rows into arrays (means and
 * deviations of numbers, ids of categories, scale or classes of the target) is learned from the
 * training part only, applied to any other table with the same columns, and stored as JSON with the
 * weights.
 */
#ifndef BANYAN_TABLE_H
#define BANYAN_TABLE_H

#include "banyan/array_set.h"
#include "banyan/formats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables ---- */

typedef struct by_table by_table;

/* Type of a column. */
typedef enum by_column_kind {
    BY_COLUMN_AUTO = 0, /* numbers if all cells that are not missing are numbers, otherwise
                           categories */
    BY_COLUMN_NUMBER,
    BY_COLUMN_CATEGORY
} by_column_kind;

typedef struct by_column {
    const char *name;
    by_column_kind kind;       /* never BY_COLUMN_AUTO */
    const double *numbers;     /* [rows], NaN if missing; NULL for categories */
    const int32_t *categories; /* [rows] index into `values`, -1 if missing; NULL for numbers */
    const char *const *values; /* distinct categories in order of first appearance */
    size_t value_count;
    uint64_t missing; /* number of missing cells */
    /* Of a column whose kind was found: cells that are not numbers, beside others that are, and the
     * first of them: its text, cut, and its place. 0: none, or none is a number and less than nine
     * in ten resemble one. */
    uint64_t odd_cells;
    uint64_t near_cells; /* of these, cells that are numbers but for signs, separators or a unit */
    char odd[64];
    const char *odd_path;
    uint64_t odd_line;
    by_time time;  /* of numbers that are times */
    bool is_truth; /* numbers that are truth values: 1 and 0 */
} by_column;

/* Declares the type of a column. */
typedef struct by_column_type {
    const char *name;
    by_column_kind kind;
} by_column_type;

typedef struct by_encoding by_encoding;

typedef struct by_table_options {
    /* Between cells of a CSV file. 0: a comma, semicolon, tab or bar, as the first rows show. */
    char separator;
    /* Mark in front of the fraction of a number in a CSV file, '.' or ','. 0: a comma if the
     * separator is another one and the numbers show it ("0,5", and none like "0.5"). */
    char decimal;
    const by_column_type *types; /* columns whose type is given; all others are BY_COLUMN_AUTO */
    size_t type_count;
    /* Columns are read as they were learned, and cells of others are not checked. NULL: none. */
    const by_encoding *learned;
    /* With `learned`: kinds are found anew, and all columns checked. What it has as a value of a
     * category is not taken for the mark of a missing cell. */
    bool relearn;
    const char *const *ignore; /* columns whose cells are not checked */
    size_t ignore_count;
    /* Leave out damaged rows of CSV files and JSON lines: malformed ones, ones with more or fewer
     * cells than the header, with text in a column of numbers, or without a value in one of the
     * columns `required`. */
    bool skip;
    const char *const *required; /* only with `skip` */
    size_t required_count;
} by_table_options;

/* Reads a table; `options` may be NULL. Accepts
 *
 * - a CSV file (RFC 4180, optionally gzip-compressed) whose first row names the columns. Cells that
 *   are empty or a mark of pandas (NA, N/A, #N/A, NaN, None, null, <NA>, ...) or ? are missing.
 * - a Parquet file (src/formats/parquet.h describes the subset): integers, floats and
 *   timestamps are numbers, strings are categories; nulls, NaN and the texts above are missing.
 *   `skip` does not apply.
 * - a file of JSON lines (.jsonl, .ndjson): a row is an object of texts, numbers, truth values and
 *   nulls, or the object `row` of a line, as in a payload log. Absent cells and the texts above are
 *   missing;
 *   columns are in order of first appearance.
 * - a directory of Parquet files, the parts of one table as written by Spark and Dask: all files
 *   ending in .parquet, in byte order of their names; or of JSON lines if it has none.
 *
 * A column is one of numbers if all its cells are, and otherwise of categories; if at most one cell
 * in a thousand is not a number, that is an error, or with `skip` a damaged row.
 *
 * Returns BY_EFORMAT with line and column of the problem, BY_EARG if a column in `types` is absent,
 * or all of `learned` are. */
BY_API by_status by_table_open(by_table **out, const char *path, const by_table_options *options,
                               by_error *error);
/* Like by_table_open for the content of a file in memory. `name` is used in messages, and tells
 * JSON lines from CSV. */
BY_API by_status by_table_parse(by_table **out, const char *name, const char *text, size_t length,
                                const by_table_options *options, by_error *error);
BY_API void by_table_close(by_table **table);
/* Returns the rows that were left out, in order, and sets *count to their number. `place` is the
 * line in the file; `begin` is the index of the row, counting rows left out. */
BY_API const by_damage *by_table_damage(const by_table *table, size_t *count);
/* Returns the path or name that the table was opened with. */
BY_API const char *by_table_name(const by_table *table);
/* Returns the number of rows. */
BY_API uint64_t by_table_rows(const by_table *table);
/* Returns the number of columns; by_table_column returns the i-th. */
BY_API size_t by_table_column_count(const by_table *table);
BY_API const by_column *by_table_column(const by_table *table, size_t index);
/* Returns the column with this name, or NULL. */
BY_API const by_column *by_table_find(const by_table *table, const char *name);

typedef struct by_encoding_options {
    const char *const *targets; /* columns to predict; several must be numbers */
    size_t target_count;
    const char *const *ignore; /* columns that are not features */
    size_t ignore_count;
    const char *text; /* the column of texts that are read instead of features; NULL: none */
    const char *pair; /* the column of second texts, read behind those; NULL: none */
    bool tags;        /* the target has a class for each word of the text, divided by spaces */
} by_encoding_options;

/* Describes the columns in a line: "8 numbers: longitude, ... (207 missing); 1 category:
 * ocean_proximity (5 values); target price, a number". Free it with free(). */
BY_API by_status by_table_summary(const by_table *table, const by_encoding_options *options,
                                  char **out, by_error *error);
/* Names columns from which little can be learned, and why, one a line; "" if there are none: ones
 * of categories though some of their cells are numbers, with the first cell that is not; those
 * without any value; those in which nearly every row has a category of its own; a target that is
 * the same number in all rows. Free it with free(). */
BY_API by_status by_table_doubts(const by_table *table, const by_encoding_options *options,
                                 char **out, by_error *error);

/* ---- encodings ---- */

/* A by_encoding is what is learned from the training part of a table. Immutable; threads may share
 * one. */

/* Learns an encoding from the rows of a part: for numbers, mean and standard deviation of the cells
 * that are not missing (deviation 1 instead of 0); for categories, the sorted distinct values; for
 * each target likewise. Values that are the same number ("1.0" and "1") or truth value ("True" and
 * "true") are one, here and when the encoding is applied. Returns BY_EARG if a named column is
 * absent, no feature is left, the part is empty or of another table, or there are several targets
 * and one is a category or named twice; BY_EFORMAT if a value is not UTF-8, a number is beyond f32,
 * or all targets are missing. */
BY_API by_status by_encoding_learn(by_encoding **out, const by_table *table, const by_part *part,
                                   const by_encoding_options *options, by_error *error);
BY_API void by_encoding_close(by_encoding **encoding);
/* Converts an encoding to JSON; free the text with free(). Numbers survive bit for bit. */
BY_API by_status by_encoding_print(const by_encoding *encoding, char **out, by_error *error);
/* Parses text written by by_encoding_print; `name` is used in messages. Returns BY_EFORMAT if it is
 * anything else. */
BY_API by_status by_encoding_parse(by_encoding **out, const char *name, const char *text,
                                   size_t length, by_error *error);

/* Returns the number of numeric features, F. */
BY_API size_t by_encoding_numbers(const by_encoding *encoding);
/* Returns the number of categorical features, K. */
BY_API size_t by_encoding_categories(const by_encoding *encoding);
/* Returns the name of the column of texts, which tokens are made of; NULL: none, as usual. */
BY_API const char *by_encoding_text(const by_encoding *encoding);
/* Returns the name of the column of second texts, which are read behind those; NULL: none. */
BY_API const char *by_encoding_pair(const by_encoding *encoding);
/* Returns the name of feature `index`, numeric ones before categorical ones, and sets *kind; NULL
 * if there are no more. Texts are one of categories. */
BY_API const char *by_encoding_feature(const by_encoding *encoding, size_t index,
                                       by_column_kind *kind);
/* Returns the number of ids of categorical feature `index`: its known values plus id 0. */
BY_API size_t by_encoding_category_size(const by_encoding *encoding, size_t index);
/* Gets the scale of numeric feature `index`, which is encoded as (number - mean) / deviation. */
BY_API void by_encoding_number_scale(const by_encoding *encoding, size_t index, double *mean,
                                     double *deviation);
/* Returns the number of target columns. */
BY_API size_t by_encoding_targets(const by_encoding *encoding);
/* Returns the name of target column `index`, in the order of by_encoding_options.targets; NULL if
 * there are no more. */
BY_API const char *by_encoding_target(const by_encoding *encoding, size_t index);
/* Returns the number of classes of the target; 0 if there are none, or numbers. */
BY_API size_t by_encoding_classes(const by_encoding *encoding);
/* Returns the name of class `index`. */
BY_API const char *by_encoding_class(const by_encoding *encoding, size_t index);
/* Gets the scale of numeric target `index`, which is encoded as (number - mean) / deviation. */
BY_API void by_encoding_target_scale(const by_encoding *encoding, size_t index, double *mean,
                                     double *deviation);

/* Encodes all rows of a table as arrays:
 *   "numbers"     f32 [N, F]  (number - mean) / deviation, 0 if missing; only if F > 0
 *   "categories"  i32 [N, K]  ids from 1, 0 for missing and unknown values; only if K > 0
 *   "targets"     f32 [N]     numeric target, scaled like numbers; of D targets f32 [N, D]; or
 *   "labels"      i32 [N]     class of the target
 * With `targets` false, the last two are omitted and the target columns may be absent. Texts are
 * left out: whoever has a tokenizer makes arrays of them. Returns
 * BY_EFORMAT if a column is absent or of the other type, or a target is missing or of an unknown
 * class (with the row, counted from 1); BY_EARG if `targets` is set and the encoding has none. */
BY_API by_status by_encoding_apply(const by_encoding *encoding, const by_table *table, bool targets,
                                   by_array_set **out, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
