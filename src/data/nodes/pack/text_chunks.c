#include "data/nodes/pack/text_chunks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/threads.h"
#include "formats/gzip.h"

/* Bytes that a thread reads at a time. */
#define CHUNK ((size_t)4 << 20)

static by_status map_file(by__map *out, int file, const char *path, by_error *error)
{
    struct stat info;
    *out = (by__map){0};
    if (fstat(file, &info) != 0) {
        return by__io_error(error, "stat", path);
    }
    if (info.st_size == 0) {
        return BY_OK;
    }
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) {
        return by__io_error(error, "map", path);
    }
    *out = (by__map){data, (size_t)info.st_size};
    return BY_OK;
}

by_status by__nodes_text_open(by__map *out, const char *path, const char *directory,
                              by_error *error)
{
    by__map map;
    int file;
    BY_TRY(by__map_open(&map, path, error));
    if (!by__format_gzip_is(map.data, map.size)) {
        *out = map;
        return BY_OK;
    }
    by_status status = by__open_nameless(&file, directory, "text", error);
    if (status == BY_OK) {
        status = by__format_gzip_to_file(file, path, path, map.data, map.size, error);
        if (status == BY_OK) {
            status = map_file(out, file, path, error);
        }
        (void)close(file);
    }
    by__map_close(&map);
    return status;
}

size_t by__nodes_line_end(const char *text, size_t size, size_t at)
{
    const char *newline = at < size ? memchr(text + at, '\n', size - at) : NULL;
    return newline == NULL ? size : (size_t)(newline - text);
}

typedef struct text_wave {
    const by__nodes_text_job *job;
    const char *text;
    size_t bounds[BY__MAX_CPUS + 1]; /* piece i is [bounds[i], bounds[i + 1]) */
} text_wave;

static by_status read_piece(void *context, size_t i, by_error *error)
{
    const text_wave *w = context;
    return w->job->read(w->job->context, i, w->text + w->bounds[i], w->bounds[i + 1] - w->bounds[i],
                        error);
}

by_status by__nodes_text_run(const by__nodes_text_job *job, const by__map *text, size_t begin,
                             uint64_t line, by_error *error)
{
    text_wave w = {.job = job, .text = (const char *)text->data};
    for (size_t at = begin; at < text->size;) {
        size_t pieces = 0;
        w.bounds[0] = at;
        while (pieces < job->threads && at < text->size) {
            size_t end = text->size - at < CHUNK ? text->size : at + CHUNK;
            end = by__nodes_line_end(w.text, text->size, end);
            at = end < text->size ? end + 1 : end;
            w.bounds[++pieces] = at;
        }
        BY_TRY(by__threads_run(pieces, read_piece, &w, error));
        for (size_t i = 0; i < pieces; i++) {
            uint64_t lines = 0;
            BY_TRY(job->take(job->context, i, line, &lines, error));
            line += lines;
        }
        if (job->progress != NULL && !job->progress(job->user, "reading", at, text->size)) {
            return by_error_set(error, BY_ESTOPPED, "stopped: nothing was packed");
        }
    }
    return BY_OK;
}
