/* A file that grows by whole records and survives a full disk: records that cannot be written are
 * kept in memory and written before the next one. */
#ifndef BY_TRACK_APPEND_FILE_H
#define BY_TRACK_APPEND_FILE_H

#include "base/base.h"

typedef struct by__track_append_file {
    int fd;
    char *path;
    by_string kept; /* whole records not written yet, at most 16 MiB */
    uint64_t lost;  /* number of records dropped beyond that limit */
} by__track_append_file;

/* Opens the file for appending, creating it if it is missing. */
by_status by__track_append_open(by__track_append_file *out, const char *path, by_error *error);
/* Writes a record in one call. On an error the file holds no part of the record, which is kept for
 * later; the caller may go on. A record that could not be built (BY_EMEMORY) is lost and freed. */
by_status by__track_append(by__track_append_file *file, by_string *record, by_error *error);
/* Tries again to write the kept records. BY_OK means that none is left and none was lost. */
by_status by__track_append_flush(by__track_append_file *file, by_error *error);
/* Accepts {-1} and a file that could not be opened. */
void by__track_append_close(by__track_append_file *file);

#endif
