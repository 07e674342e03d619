/* Internal records of tables, shared by table_columns.c and the readers, csv_table.c,
 * parquet_table.c and json_table.c. */
#ifndef BY_DATA_TABLE_PARTS_H
#define BY_DATA_TABLE_PARTS_H

#include "banyan/table.h"
#include "base/base.h"
#include "data/damage.h"

/* The distinct values of a column, in a hash table of their indices. */
typedef struct by__table_values {
    char **names;
    size_t count;
    size_t capacity;
    /* index + 1; 0: free. The number of slots is a power of two, at least twice the values */
    int32_t *slots;
    size_t slot_count;
} by__table_values;

typedef struct by__table_column {
    by_column info;
    bool is_text; /* a cell is neither missing nor a number */
    double *numbers;
    int32_t *categories;
    by__table_values values;
} by__table_column;

struct by_table {
    char *name;
    by__table_column *columns;
    size_t column_count;
    size_t column_capacity;
    uint64_t rows;
    by__damage damage; /* rows that were skipped */
};

/* The index of a value; a new value is added. */
by_status by__table_value(by__table_values *values, const char *text, size_t length, int32_t *out,
                          by_error *error);
/* Applies the column kinds set in the options. */
by_status by__table_set_types(by_table *table, const by_table_options *options, by_error *error);
/* Parses a finite decimal number, ignoring surrounding blanks. */
bool by__table_number(const char *text, size_t length, double *out);
/* Returns true for a text that denotes a missing cell, in any file format: "", "NA", "null", ... */
bool by__table_missing(const char *text, size_t length);
/* Fills the columns' info from what was read. */
void by__table_finish(by_table *table);

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
