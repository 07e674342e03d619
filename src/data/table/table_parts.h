/* Internal records of tables, shared by table_columns.c, table_kinds.c and the readers:
 * csv_table.c, parquet_table.c, json_table.c and row_table.c. */
#ifndef BY_DATA_TABLE_TABLE_PARTS_H
#define BY_DATA_TABLE_TABLE_PARTS_H

#include "banyan/table.h"
#include "base/base.h"
#include "base/name_table.h"
#include "data/loader/damage.h"
#include "data/table/encoding.h"
#include "data/table/table_cell.h"

/* The distinct values of a column. */
typedef struct by__table_values {
    char **names;
    size_t count;
    size_t capacity;
    by__base_table table;
} by__table_values;

typedef struct by__table_column {
    by_column info;
    bool ignored;          /* its cells are not checked: nobody reads them */
    uint64_t number_cells; /* of a column of unknown kind: cells that are numbers */
    uint64_t near_cells;   /* of such a column: cells that would be but for a sign or a unit */
    const by__table_encoded *own; /* what was learned of it; NULL: nothing */
    double *numbers;
    int32_t *categories;
    by__table_values values;
} by__table_column;

/* Rows from `row` on are at `at`, `at` + 1, ... of a file: lines, or rows of a Parquet file from
 * 1. */
typedef struct by__table_place {
    uint64_t row;
    uint64_t at;
    const char *path; /* of a part, one of the table's paths; NULL: the table's name */
} by__table_place;

struct by_table {
    char *name;
    by__table_column *columns;
    size_t column_count;
    size_t column_capacity;
    by__name_table by_name; /* indices of columns */
    uint64_t rows;
    by__loader_damage damage; /* rows that were skipped */
    by__table_place *places;
    size_t place_count;
    size_t place_capacity;
    char **paths; /* owned names of parts */
    size_t path_count;
    size_t path_capacity;
    bool has_lines; /* places are lines */
    char separator; /* of a CSV file; 0: another format */
};

/* The index of a value; a new value is added. */
by_status by__table_value(by__table_values *values, const char *text, size_t length, int32_t *out,
                          by_error *error);

/* ---- columns (table_columns.c) ---- */

/* Appends a column; the name is taken over, also on failure. BY_EFORMAT: it is taken (the message
 * has no place). */
by_status by__table_add_column(by_table *table, char *name, by_error *error);
/* The index of a column; -1: there is none. */
int32_t by__table_index(const by_table *table, const char *name);
/* Says that there is no column of this name, which there are, and which may be meant. */
by_status by__table_no_column(const by_table *table, const char *name, by_status status,
                              by_error *error);
/* Whether nobody reads a column of this name. */
bool by__table_ignores(const by_table_options *options, const char *name);
/* Applies the column kinds set in the options. */
by_status by__table_set_types(by_table *table, const by_table_options *options, by_error *error);
/* Records where a row is, unless it follows the last one in the same file. `path` NULL: in the file
 * that the table is named after. */
by_status by__table_place_row(by_table *table, uint64_t row, uint64_t at, const char *path,
                              by_error *error);
/* Copies the name of a part, for by__table_place_row. */
by_status by__table_part_name(by_table *table, const char *path, const char **out, by_error *error);
/* Prints where a row is: "FILE:LINE", "FILE: row N", or "row N" of a request. */
#define BY__WHERE 256
const char *by__table_where(char out[BY__WHERE], const by_table *table, uint64_t row);

/* ---- kinds of columns (table_kinds.c) ---- */

typedef enum by__table_cell_class {
    BY__CELL_MISSING,
    BY__CELL_NUMBER,
    BY__CELL_TEXT /* of a column of categories: any that is not missing */
} by__table_cell_class;

/* Reads a cell of a column: with the kind that the column has, or as a number if it can be one. */
by__table_cell_class by__table_cell_read(double *number, const by__table_column *column,
                                         const char *text, size_t length, char decimal);
/* The cells of a column whose kind is unknown: counts one, at line `at` of a file. */
void by__table_kind_count(by__table_column *column, by__table_cell_class class, const char *text,
                          size_t length, const char *path, uint64_t at);
/* Determines the kinds that are unknown. A column in which at most one cell in a thousand is no
 * number is one of numbers: that cell is an error, or with `skip` (*again is then set) a row to be
 * left out when the rows are read once more. */
by_status by__table_kinds_decide(by_table *table, bool skip, bool *again, by_error *error);
/* The error of a cell that is no number in a column of numbers. */
by_status by__table_cell_refuse(const by__table_column *column, const char *where, const char *text,
                                size_t length, by_error *error);
/* Stores a cell of a column whose kind is known; false: it should be a number, and is not. */
by_status by__table_cell_store(by__table_column *column, uint64_t row, const char *text,
                               size_t length, char decimal, bool *fits, by_error *error);
/* Allocates the cells of a column whose kind is known. */
by_status by__table_column_allocate(by__table_column *column, uint64_t rows, by_error *error);

/* Fills the columns' info from what was read. BY_EFORMAT names the first category that is not
 * UTF-8, of a column that is not ignored. */
by_status by__table_finish(by_table *table, by_error *error);

/* Reads a Parquet file in memory (parquet_table.c); table->name is set already. */
by_status by__table_read_parquet(by_table *table, const uint8_t *data, size_t size,
                                 const by_table_options *options, by_error *error);
/* The content of a file; the name is used in messages. */
typedef struct by__table_text {
    const char *name;
    const char *text;
    size_t length;
} by__table_text;

/* Reads the JSON lines of one or more files as one table (json_table.c); table->name is set
 * already. */
by_status by__table_read_json(by_table *table, const by__table_text *parts, size_t count,
                              const by_table_options *options, by_error *error);
/* Reads a directory of Parquet files, or of JSON lines if there are none, in the byte order of
 * their names (table_directory.c). BY_EFORMAT: none has rows, or columns of Parquet files differ in
 * name or type. */
by_status by__table_open_directory(by_table **out, const char *path,
                                   const by_table_options *options, by_error *error);

#endif
