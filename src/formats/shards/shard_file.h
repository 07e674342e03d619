/* Files that hold many pictures with their labels, for training: a table of formats, each in a file
 * of its own. A picture is a range of bytes of its file, which is read in place.
 *
 * Adding one: its file, its line in shards.c, and its fuzzer in tests/fuzz/formats. */
#ifndef BY_FORMATS_SHARDS_SHARD_FILE_H
#define BY_FORMATS_SHARDS_SHARD_FILE_H

#include "banyan/formats.h"
#include "base/base.h"

/* Bytes of a field's name, for messages. */
#define BY__SHARD_FIELD 48

/* A sample of a file. */
typedef struct by__format_shard_sample {
    const char *key; /* names it in messages; not terminated */
    size_t key_size;
    uint64_t begin;     /* of the picture in the file */
    uint64_t size;      /* 0: there is none */
    by_image_page page; /* in which it is compressed with others; {0}: it lies there as it is */
    const char *label;  /* its text, not terminated; NULL: none, or a number */
    size_t label_size;
    int64_t number;
    bool has_number;
    const char *problem; /* what is wrong with it; NULL: nothing */
    /* ---- of shards.c ---- */
    char image_field[BY__SHARD_FIELD]; /* which the picture is; "": none yet */
    char label_field[BY__SHARD_FIELD];
    size_t label_rank;
    char text[320]; /* of `problem`, if it names fields */
} by__format_shard_sample;

/* A file in memory, and who takes its samples, in their order. */
typedef struct by__format_shard {
    const char *path;
    const uint8_t *data;
    size_t size;
    /* Names of the fields; "": the usual ones. */
    const char *image_field;
    const char *label_field;
    by_status (*take)(void *user, const by__format_shard_sample *sample, by_error *error);
    /* Called at most once, before the samples, with the names of the classes, each ended by NUL, if
     * the file has them; NULL: they are not asked for. */
    by_status (*classes)(void *user, const char *names, size_t size, by_error *error);
    void *user;
} by__format_shard;

/* A row of the table. */
typedef struct by__format_shard_row {
    const char *name;   /* for messages */
    const char *labels; /* likewise: what has the label of a sample */
    /* Whether a file of this name begins as one of the format. */
    bool (*is)(const char *path, const uint8_t *data, size_t size);
    /* Gives all samples. BY_EFORMAT: what is damaged cannot be told from what follows it. */
    by_status (*read)(const by__format_shard *shard, by_error *error);
} by__format_shard_row;

/* The format of a file, or NULL. */
const by__format_shard_row *by__format_shard_find(const char *path, const uint8_t *data,
                                                  size_t size);
/* Bytes of a file that by__format_shard_find looks at. */
#define BY__SHARD_HEAD 4096

/* ---- for formats ---- */

/* Whether a field is the one that is asked for, or if none is, one of `usual`, ended by NULL.
 * Returns its rank, the lower the better, or SIZE_MAX. */
size_t by__format_shard_rank(const char *asked, const char *const *usual, const char *name,
                             size_t length);
/* Sets a sample's picture, which the field is. A second one is a problem: which of them is meant
 * cannot be told. */
void by__format_shard_set_image(by__format_shard_sample *sample, const char *field, size_t length,
                                uint64_t begin, uint64_t size);
/* Sets its label, unless a field of a better rank has set it; one that says another class is a
 * problem. From a text: a number, or what is between blanks, if there is anything. */
void by__format_shard_set_number(by__format_shard_sample *sample, const char *field, size_t length,
                                 size_t rank, int64_t number);
void by__format_shard_set_label(by__format_shard_sample *sample, const char *field, size_t length,
                                size_t rank, const char *text, size_t size);
/* Why a sample that is complete has no picture to read; NULL: it has one. */
const char *by__format_shard_lacks_image(by__format_shard_sample *sample, const char *what);

#endif
