/* The texts to pack: files, divided into units of work for threads.
 *
 * A source is a list of files. Its units cover all bytes of all files in order, except byte-order
 * marks: a large text is cut where its parts can be encoded independently (text/tokenizer/split.h),
 * JSON lines between lines. The units are a function of the files, the split and the two settings
 * of by__data_units, so that the result does not depend on which thread takes which. A Parquet file
 * is read as JSON lines (parquet_text.h). */
#ifndef BY_DATA_CORPUS_TEXT_SOURCE_H
#define BY_DATA_CORPUS_TEXT_SOURCE_H

#include "banyan/tokenizer.h"
#include "base/base.h"
#include "base/host/file_stamp.h"
#include "remote/remote.h"

/* U+FEFF in UTF-8, which some editors write first. */
#define BY__BYTE_ORDER_MARK "\xef\xbb\xbf"

typedef struct by__data_source_file {
    char *path;
    char *content;    /* NULL: the file itself is read, else the lines of a Parquet file, */
    int content_file; /* which are open here, or a local copy of a remote file (-1) */
    bool json_lines;  /* it is read as JSON lines */
    uint64_t bytes;
    /* bytes of a byte-order mark at its beginning, which no unit includes: 3 or 0 */
    uint64_t mark_bytes;
    /* number of characters after it: bytes that do not continue a UTF-8 sequence */
    uint64_t characters;
    char hash[33]; /* XXH3-128 */
    /* of its content before it was scanned; empty: it had just changed, and may have changed since
     * with an equal stamp */
    char stamp[BY__FILE_STAMP_SIZE];
} by__data_source_file;

typedef struct by__data_source {
    by__data_source_file *files;
    size_t count;
    size_t capacity;
    uint64_t bytes;
    const char *field;  /* field of JSON lines; borrowed */
    by__remote *remote; /* keeps local copies of remote files; NULL: there are none */
    char *loop;   /* the first link to a directory above it, which is not followed; NULL: none */
    size_t loops; /* number of such links */
    size_t split_file;     /* the held-out part begins in this file, at split_offset; */
    uint64_t split_offset; /* split_file = count: nothing is held out */
    /* JSON lines are held out as a whole, unless too little would be left before: then the line
     * from split_offset up to split_end is cut, and this share of its text is kept. 0: none is. */
    uint64_t split_end;
    double split_share;
} by__data_source;

/* Lists the files of the inputs (see banyan/pack.h), and fetches those that are remote. BY_EARG:
 * there are none; BY_EIO. */
by_status by__data_source_open(by__data_source *out, const char *const *inputs, size_t count,
                               const char *field, const by_remote_options *remote, by_error *error);
void by__data_source_close(by__data_source *source);
/* Opens the content of a file for reading, close-on-exec. */
by_status by__data_source_open_file(int *fd, const by__data_source_file *file, by_error *error);
/* Reads all files once and sets sizes, characters and hashes. `progress` (may be NULL) is called
 * with the bytes done, by one thread at a time, and returns false to stop. */
by_status by__data_source_scan(by__data_source *source, size_t threads,
                               bool (*progress)(void *user, uint64_t done), void *user,
                               by_error *error);
/* Checks that no file has changed since it was scanned, on `threads` threads: by its stamp, else by
 * reading it. BY_EFORMAT: "FILE changed while it was packed; " and `way_out`. */
by_status by__data_source_check(const by__data_source *source, size_t threads, const char *way_out,
                                by_error *error);
/* Holds out everything after the first floor(n * (1 - fraction)) of n characters. Called after a
 * scan. Documents of JSON lines are held out as a whole; that at the border is cut if not even half
 * of what should be kept is in front of it. */
by_status by__data_source_hold_out(by__data_source *source, double fraction, by_error *error);

typedef enum by__data_unit_part {
    BY__UNIT_WHOLE = 0,
    BY__UNIT_KEPT, /* the beginning of the text, which is trained on */
    BY__UNIT_REST  /* and what is held out */
} by__data_unit_part;

/* A unit of work: bytes [begin, end) of a file. */
typedef struct by__data_format_unit {
    const by__data_source_file *file;
    uint64_t number; /* of it among the units of the source, from 0 */
    const char *field;
    uint64_t begin;
    uint64_t end;
    bool held_out;
    bool ends_document; /* the document has no further unit (text) */
    bool is_cut;        /* ... because the rest of it is held out */
    /* Of JSON lines: part of the text of its only line. Both parts have the same bytes. */
    by__data_unit_part part;
    double share; /* of the text's characters, in the first part */
} by__data_format_unit;

/* Iterator over units. Initialized as {.source = ..., .wanted = ...}. */
typedef struct by__data_units {
    const by__data_source *source;
    uint64_t wanted; /* approximate bytes of a unit; one without a place to cut is longer */
    bool whole;      /* texts are not cut */
    size_t file;
    uint64_t offset;
    bool is_kept;  /* the first part of the line that is cut was returned */
    uint64_t next; /* number of the next unit */
} by__data_units;

/* The next unit; *found is false after the last. */
by_status by__data_units_next(by__data_units *units, by__data_format_unit *unit, bool *found,
                              by_error *error);
/* Reads a unit's bytes into *buffer, which grows. BY_EFORMAT: the file has become shorter. */
by_status by__data_unit_read(const by__data_format_unit *unit, char **buffer, size_t *capacity,
                             by_error *error);
/* Callbacks for the lines of a unit of JSON lines. */
typedef struct by__data_line_takers {
    by_status (*take)(void *context, const by_text *text, by_error *error);
    /* A line without a text is skipped: line `line` of the unit, from 1. NULL: it is an error. */
    by_status (*skip)(void *context, size_t line, const by_error *why, by_error *error);
    void *context;
} by__data_line_takers;

/* Passes the texts of a unit of JSON lines, which was read into `buffer`, to the callbacks in
 * order. Errors, including those of `take`, begin with "FILE:LINE". */
by_status by__data_unit_texts(const by__data_format_unit *unit, char *buffer,
                              const by__data_line_takers *to, by_error *error);

#endif
