/* A file that grows by whole records, which a full disk does not lose: what could not be written is
 * kept in memory and written in front of the next record. */
#ifndef BY_TRACK_APPEND_FILE_H
#define BY_TRACK_APPEND_FILE_H

#include "base/base.h"

typedef struct by__append_file {
    int fd;
    char *path;
    by__text kept; /* whole records that could not be written yet, at most 16 MiB */
    uint64_t lost; /* records that were too many to be kept */
} by__append_file;

/* Opens the file for appending and makes it if missing. */
by_status by__append_open(by__append_file *out, const char *path, by_error *error);
/* Hands a record to the kernel in one write. On an error the file holds no part of it and the
 * record is kept; the caller may go on. A record that failed to be built (BY_EMEMORY) is lost and
 * freed. */
by_status by__append(by__append_file *file, by__text *record, by_error *error);
/* Tries once more to write what is kept. BY_OK: nothing is kept any longer and nothing was lost. */
by_status by__append_flush(by__append_file *file, by_error *error);
/* {-1} and a file that could not be opened are accepted. */
void by__append_close(by__append_file *file);

#endif
