/* Reader of Parquet files, column by column: the flat columns that Spark, Dask, pandas and Feast
 * write.
 *
 * https://github.com/apache/parquet-format: a file ends with its metadata (schema, row groups, and
 * the place of each column chunk), encoded in Thrift. A chunk is an optional dictionary page and
 * data pages. Supported are data pages of version 1 and 2; the encodings PLAIN, RLE and dictionary;
 * pages that are uncompressed, or compressed with snappy, gzip or zstd (if the libraries are
 * available); nullable values, also within structs. Repeated columns (lists, maps) and other
 * encodings are refused by name. Page checksums are verified if a file has them. */
#ifndef BY_FORMATS_PARQUET_H
#define BY_FORMATS_PARQUET_H

#include "banyan/formats.h"
#include "base/base.h"

typedef enum by__format_parquet_kind {
    BY__PARQUET_INTEGER, /* also booleans, dates and times: days, or units since 1970 */
    BY__PARQUET_REAL,
    BY__PARQUET_TEXT,
    BY__PARQUET_OTHER /* not supported */
} by__format_parquet_kind;

typedef struct by__format_parquet_column {
    char *name; /* of a field of a struct: "struct.field" */
    by__format_parquet_kind kind;
    const char *problem; /* why the kind is OTHER */
    size_t list_length;  /* of a list or map: bytes of `name` that name it; 0: neither */
    by_time time;        /* what integers count, if that is time */
    int physical;        /* Parquet's physical type */
    int width;           /* length of FIXED_LEN_BYTE_ARRAY */
    int scale;           /* of decimals: value = integer / 10^scale */
    bool is_decimal;
    bool is_unsigned;
    bool is_truth;   /* integers 1 and 0 */
    unsigned levels; /* definition level of a value that is not null */
} by__format_parquet_column;

/* A column chunk. */
typedef struct by__format_parquet_chunk {
    uint64_t begin; /* byte offset in the file */
    uint64_t size;
    uint64_t values;
    int codec;
} by__format_parquet_chunk;

typedef struct by__format_parquet {
    const char *name; /* borrowed, like the file's data */
    const uint8_t *data;
    size_t size;
    uint64_t rows;
    by__format_parquet_column *columns;
    size_t column_count;
    size_t column_capacity;
    by__format_parquet_chunk *chunks; /* [groups][column_count] */
    size_t groups;
    const char *features; /* JSON in which Hugging Face's datasets describe the columns, in `data`;
                             NULL: there is none */
    size_t features_size;
} by__format_parquet;

typedef struct by__format_parquet_value {
    union {
        int64_t integer;
        double real;
        uint64_t offset; /* of a string, in `bytes` */
    } as;
    int64_t length; /* of a string; -1: null */
} by__format_parquet_value;

typedef struct by__format_parquet_values {
    by__format_parquet_value *items;
    size_t count;
    size_t capacity;
    char *bytes;
    size_t byte_count;
    size_t byte_capacity;
} by__format_parquet_values;

/* A page of the file, or of one with levels in front what follows these. */
typedef struct by__format_parquet_page_place {
    uint64_t begin; /* byte offset in the file */
    uint64_t stored;
    uint64_t size; /* when it is decompressed */
    int codec;     /* 0: it is as it is stored */
} by__format_parquet_page_place;

/* Where the bytes of a column lie. {0} is empty. */
typedef struct by__format_parquet_places {
    by__format_parquet_page_place *pages;
    size_t count;
    size_t capacity;
    /* Their lengths; as.offset is the number of the page and, in the lower BY__PARQUET_PLACE_BITS
     * bits, the byte in it when it is decompressed. */
    by__format_parquet_values values;
} by__format_parquet_places;
#define BY__PARQUET_PLACE_BITS 32

/* Whether data begins as a Parquet file does, encrypted ones included. */
bool by__format_parquet_is(const uint8_t *data, size_t size);
/* Reads the metadata of a file in memory. BY_EFORMAT: it is damaged, or has more than `most` rows;
 * must be closed in any case. */
by_status by__format_parquet_open(by__format_parquet *out, const char *name, const uint8_t *data,
                                  size_t size, uint64_t most, by_error *error);
void by__format_parquet_close(by__format_parquet *file);
/* Most rows accepted for a file of this size: files of any writer have fewer, even with runs of
 * nulls. */
uint64_t by__format_parquet_max_rows(size_t size);
/* Reads all values of a column. BY_EFORMAT names the column. */
by_status by__format_parquet_read(const by__format_parquet *file, size_t column,
                                  by__format_parquet_values *out, by_error *error);
/* The same for one row group; appends to `out`. */
by_status by__format_parquet_read_group(const by__format_parquet *file, size_t column, size_t group,
                                        by__format_parquet_values *out, by_error *error);
void by__format_parquet_values_free(by__format_parquet_values *values);
/* Reads where the values of a column of BYTE_ARRAY lie, of one row group; appends to `out`. */
by_status by__format_parquet_read_places(const by__format_parquet *file, size_t column,
                                         size_t group, by__format_parquet_places *out,
                                         by_error *error);
void by__format_parquet_places_free(by__format_parquet_places *places);

/* ---- parquet_codec.c ---- */

/* Decompresses a page of exactly `out_size` bytes. */
by_status by__format_parquet_decompress(int codec, uint8_t *out, size_t out_size,
                                        const uint8_t *data, size_t size, const char *name,
                                        by_error *error);

/* ---- parquet_values.c: encodings ---- */

/* Decoder of the RLE/bit-packing hybrid, for numbers of `width` bits (at most 32). */
typedef struct by__format_parquet_hybrid {
    const uint8_t *at;
    const uint8_t *end;
    unsigned width;
    bool is_packed;
    uint64_t left; /* values left in the run */
    uint32_t value;
    const uint8_t *packed;
    uint64_t bit;
} by__format_parquet_hybrid;

/* Reads the next number. Returns false if there is none. */
bool by__format_parquet_hybrid_next(by__format_parquet_hybrid *hybrid, uint32_t *out);
/* Appends `count` PLAIN values from [data, data + size). */
by_status by__format_parquet_plain(const by__format_parquet *file,
                                   const by__format_parquet_column *column, const uint8_t *data,
                                   size_t size, size_t count, by__format_parquet_values *out,
                                   by_error *error);
/* Appends the places of `count` PLAIN values of BYTE_ARRAY; `offset` is that of data[0]. */
by_status by__format_parquet_plain_places(const by__format_parquet *file,
                                          const by__format_parquet_column *column, uint64_t offset,
                                          const uint8_t *data, size_t size, size_t count,
                                          by__format_parquet_values *out, by_error *error);
/* Refuses a column of kind OTHER, naming what it is. */
by_status by__format_parquet_refuse(const by__format_parquet *file,
                                    const by__format_parquet_column *column, by_error *error);
by_status by__format_parquet_damaged(const by__format_parquet *file,
                                     const by__format_parquet_column *column, const char *what,
                                     by_error *error);

#endif
