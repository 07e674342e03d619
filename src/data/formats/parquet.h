/* Parquet files, column by column: the flat columns that Spark, Dask, pandas and Feast write.
 *
 * https://github.com/apache/parquet-format: a file ends with its metadata (schema, row groups,
 * where the chunk of each column of each group is), which is Thrift. A chunk is a dictionary page,
 * if any, and data pages. Read are data pages of version 1 and 2; the encodings PLAIN, RLE and
 * dictionary; pages that are not compressed, or by snappy, gzip or zstd (where the libraries are
 * there); values that may be null, also within structs. Repeated columns (lists, maps) and other
 * encodings are refused by name. Checksums of pages are compared where a file has them. */
#ifndef BY_DATA_FORMATS_PARQUET_H
#define BY_DATA_FORMATS_PARQUET_H

#include "base/base.h"

typedef enum by__parquet_kind {
    BY__PARQUET_INTEGER, /* booleans, dates and times, too: days, or units since 1970 */
    BY__PARQUET_REAL,
    BY__PARQUET_TEXT,
    BY__PARQUET_OTHER /* cannot be read */
} by__parquet_kind;

typedef struct by__parquet_column {
    char *name; /* of a field of a struct: "struct.field" */
    by__parquet_kind kind;
    const char *problem; /* why it is OTHER */
    int physical;        /* the type in the file */
    int width;           /* bytes of FIXED_LEN_BYTE_ARRAY */
    int scale;           /* of decimals: value = whole number / 10^scale */
    bool is_decimal;
    bool is_unsigned;
    unsigned levels; /* the definition level of a value that is not null */
} by__parquet_column;

/* A column in a row group. */
typedef struct by__parquet_chunk {
    uint64_t begin; /* bytes of the file */
    uint64_t size;
    uint64_t values;
    int codec;
} by__parquet_chunk;

typedef struct by__parquet {
    const char *name; /* borrowed, as is the file's content */
    const uint8_t *data;
    size_t size;
    uint64_t rows;
    by__parquet_column *columns;
    size_t column_count;
    size_t column_capacity;
    by__parquet_chunk *chunks; /* [groups][column_count] */
    size_t groups;
} by__parquet;

typedef struct by__parquet_value {
    union {
        int64_t integer;
        double real;
        uint64_t offset; /* of text, in `bytes` */
    } as;
    int64_t length; /* of text; -1: null */
} by__parquet_value;

typedef struct by__parquet_values {
    by__parquet_value *items;
    size_t count;
    size_t capacity;
    char *bytes;
    size_t byte_count;
    size_t byte_capacity;
} by__parquet_values;

bool by__parquet_is(const uint8_t *data, size_t size);
/* Reads the metadata of a file in memory. BY_EFORMAT: it is damaged, or has more than `most` rows;
 * closed in any case. */
by_status by__parquet_open(by__parquet *out, const char *name, const uint8_t *data, size_t size,
                           uint64_t most, by_error *error);
void by__parquet_close(by__parquet *file);
/* Rows that a file of so many bytes may have: runs of nulls in groups of any writer have less. */
uint64_t by__parquet_most(size_t size);
/* All values of a column. BY_EFORMAT names the column. */
by_status by__parquet_read(const by__parquet *file, size_t column, by__parquet_values *out,
                           by_error *error);
/* The same of one row group; adds to what `out` holds. */
by_status by__parquet_read_group(const by__parquet *file, size_t column, size_t group,
                                 by__parquet_values *out, by_error *error);
void by__parquet_values_free(by__parquet_values *values);

/* ---- parquet_codec.c ---- */

/* Decompresses a page of exactly `out_size` bytes. */
by_status by__parquet_decompress(int codec, uint8_t *out, size_t out_size, const uint8_t *data,
                                 size_t size, const char *name, by_error *error);

/* ---- parquet_values.c: encodings ---- */

/* The hybrid of runs and bit-packed numbers, of `width` bits (at most 32) each. */
typedef struct by__parquet_hybrid {
    const uint8_t *at;
    const uint8_t *end;
    unsigned width;
    bool is_packed;
    uint64_t left; /* of the run */
    uint32_t value;
    const uint8_t *packed;
    uint64_t bit;
} by__parquet_hybrid;

/* False: there is no further number. */
bool by__parquet_hybrid_next(by__parquet_hybrid *hybrid, uint32_t *out);
/* Adds `count` values that are PLAIN in [data, data + size). */
by_status by__parquet_plain(const by__parquet *file, const by__parquet_column *column,
                            const uint8_t *data, size_t size, size_t count, by__parquet_values *out,
                            by_error *error);
by_status by__parquet_damaged(const by__parquet *file, const by__parquet_column *column,
                              const char *what, by_error *error);

#endif
