/* Texts of lines, read by several threads: each takes a piece of whole lines at a time, and the
 * results are taken in the order of the text. */
#ifndef BY_DATA_NODES_PACK_TEXT_CHUNKS_H
#define BY_DATA_NODES_PACK_TEXT_CHUNKS_H

#include "base/base.h"

/* Opens a text; of gzip, what it decompresses to, in a file without a name in `directory`. Closed
 * with by__map_close. */
by_status by__nodes_text_open(by__map *out, const char *path, const char *directory,
                              by_error *error);

typedef struct by__nodes_text_job {
    void *context;
    size_t threads;
    /* Reads whole lines, in a thread of the number `slot`. */
    by_status (*read)(void *context, size_t slot, const char *text, size_t size, by_error *error);
    /* Takes what was read in the slot, of lines from `line` on (the first of a text is 1), of which
     * there are *lines after it. One at a time, in the order of the text. */
    by_status (*take)(void *context, size_t slot, uint64_t line, uint64_t *lines, by_error *error);
    bool (*progress)(void *user, const char *phase, uint64_t done, uint64_t total);
    void *user;
} by__nodes_text_job;

/* Runs a job over a text from byte `begin` on, which is in line `line`. */
by_status by__nodes_text_run(const by__nodes_text_job *job, const by__map *text, size_t begin,
                             uint64_t line, by_error *error);

/* Finds the end of the line at `at`: of its newline, or of the text. */
size_t by__nodes_line_end(const char *text, size_t size, size_t at);

#endif
