/* Writes an array of a packed graph from front to back. */
#ifndef BY_DATA_NODES_PACK_ARRAY_WRITER_H
#define BY_DATA_NODES_PACK_ARRAY_WRITER_H

#include "data/nodes/packed_arrays.h"

typedef struct by__nodes_writer {
    int file;
    char *path;
    by__hasher *hasher;
    by__nodes_array which;
} by__nodes_writer;

/* Begins an array in a directory; must be closed in any case. */
by_status by__nodes_writer_open(by__nodes_writer *out, const char *directory, by__nodes_array which,
                                by_error *error);
by_status by__nodes_writer_add(by__nodes_writer *writer, const void *data, size_t bytes,
                               by_error *error);
/* Writes the first page, whose sizes the manifest has by now, and sets its hash. */
by_status by__nodes_writer_finish(by__nodes_writer *writer, by__nodes_manifest *manifest,
                                  by_error *error);
void by__nodes_writer_close(by__nodes_writer *writer);
/* Writes a whole array. */
by_status by__nodes_array_write(by__nodes_manifest *manifest, const char *directory,
                                by__nodes_array which, const void *data, size_t bytes,
                                by_error *error);

#endif
