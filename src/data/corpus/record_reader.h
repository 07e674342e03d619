/* Reads the records of a file one after another: the lines of JSON lines, or the elements of a JSON
 * list. What a record holds is not checked. */
#ifndef BY_DATA_CORPUS_RECORD_READER_H
#define BY_DATA_CORPUS_RECORD_READER_H

#include "data/corpus/text_source.h"

typedef struct by__data_record {
    const char *path;
    uint64_t line; /* where it begins, from 1 */
    uint64_t at;   /* byte behind it */
    const char *text;
    size_t length;
} by__data_record;

typedef struct by__data_record_reader {
    const char *path;
    by__map map;
    const char *data; /* behind a byte-order mark */
    size_t length;
    size_t at;
    uint64_t line; /* of `at` */
    bool list;     /* the elements of a list are records; else the lines */
    bool ended;    /* the list has ended */
    bool begun;    /* an element was read */
} by__data_record_reader;

/* Opens a file, whose bytes must be those of the scan. A list is a file that begins with "[" and is
 * not named as JSON lines. */
by_status by__data_record_reader_open(by__data_record_reader *out, const by__data_source_file *file,
                                      by_error *error);
void by__data_record_reader_close(by__data_record_reader *reader);
/* The same for text in memory; not to be closed. */
by__data_record_reader by__data_record_reader_of(const char *path, const char *data, size_t length,
                                                 bool lines);
/* Finds the next record, which is not blank; *found is false after the last. BY_EFORMAT: the list
 * is not one, with file and line. */
by_status by__data_record_next(by__data_record_reader *reader, by__data_record *record, bool *found,
                               by_error *error);

#endif
