/* What the files about tables share: table_columns.c, and csv_table.c and parquet_table.c, which
 * read them. */
#ifndef BY_DATA_TABLE_PARTS_H
#define BY_DATA_TABLE_PARTS_H

#include "banyan/table.h"
#include "base/base.h"
#include "data/damage.h"

/* The distinct values of a column: a hash table of their indices. */
typedef struct by__table_values {
    char **names;
    size_t count;
    size_t capacity;
    int32_t *slots; /* index + 1; 0: free. A power of two, at least twice the values */
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
    by__damage damage; /* rows that were left out */
};

/* The index of a value, which is added when it is new. */
by_status by__table_value(by__table_values *values, const char *text, size_t length, int32_t *out,
                          by_error *error);
/* The kinds that the options ask for. */
by_status by__table_set_types(by_table *table, const by_table_options *options, by_error *error);
/* A finite decimal number, with blanks around it or not. */
bool by__table_number(const char *text, size_t length, double *out);
/* A text that stands for a missing cell, in files of any format: "", "NA", "null", ... */
bool by__table_missing(const char *text, size_t length);
/* Shows what was read in the columns' info. */
void by__table_finish(by_table *table);

/* A Parquet file in memory (parquet_table.c); `name` is the table's already. */
by_status by__table_read_parquet(by_table *table, const uint8_t *data, size_t size,
                                 const by_table_options *options, by_error *error);
/* A directory of Parquet files, in the byte order of their names (table_directory.c). BY_EFORMAT:
 * there is none with rows, or they have other columns, or columns of other types. */
by_status by__table_open_directory(by_table **out, const char *path,
                                   const by_table_options *options, by_error *error);

#endif
