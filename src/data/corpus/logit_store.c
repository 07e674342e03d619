#include "data/corpus/logit_store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/npy.h"

/* Approximate size at which a new shard begins. */
#define SHARD_BYTES ((uint64_t)256 << 20)

typedef struct logit_shard {
    by__map maps[2]; /* ids, logarithms */
    const int32_t *ids;
    const float *logarithms;
    uint64_t first; /* first row */
} logit_shard;

struct by_logit_store {
    by__data_logit_manifest manifest;
    logit_shard *shards;
    char *directory;
};

static by_status file_of(char **out, const char *directory, const char *what, size_t shard,
                         by_error *error)
{
    char name[48];
    (void)snprintf(name, sizeof name, "%s-%05zu.npy", what, shard);
    *out = by__path_join(directory, name);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
}

/* ---- reading ---- */

static by_status map_array(const uint8_t **out, by__map *map, const char *path, const char *hash,
                           by__format_element element, uint64_t rows, uint64_t columns,
                           by_error *error)
{
    by__format_array_view view;
    char found[33];
    BY_TRY(by__map_open(map, path, error));
    BY_TRY(by__format_npy_parse_array(&view, path, (const uint8_t *)map->data, map->size, error));
    if (view.element != element || view.big_endian || view.shape.rank != 2 ||
        view.shape.dim[0] != (int64_t)rows || view.shape.dim[1] != (int64_t)columns ||
        (uintptr_t)view.data % 4 != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: there must be %s [%" PRIu64 ", %" PRIu64 "] in it", path,
                            element == BY__ELEMENT_F32 ? "'<f4'" : "'<i4'", rows, columns);
    }
    by__hash128_hex(found, map->data, map->size);
    if (strcmp(found, hash) != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: its hash is %.8s, not the manifest's %.8s: it is damaged; write "
                            "the logits again",
                            path, found, hash);
    }
    *out = view.data;
    return BY_OK;
}

static by_status open_shard(by_logit_store *s, size_t i, by_error *error)
{
    const by__data_logit_manifest *m = &s->manifest;
    const by__data_logit_shard *shard = &m->shards[i];
    logit_shard *map = &s->shards[i];
    char *path;
    const uint8_t *data;
    BY_TRY(file_of(&path, s->directory, "ids", i, error));
    by_status status = map_array(&data, &map->maps[0], path, shard->ids, BY__ELEMENT_I32,
                                 shard->rows, m->top, error);
    free(path);
    BY_TRY(status);
    map->ids = (const int32_t *)(const void *)data;
    BY_TRY(file_of(&path, s->directory, "logarithms", i, error));
    status = map_array(&data, &map->maps[1], path, shard->logarithms, BY__ELEMENT_F32, shard->rows,
                       m->top + 1, error);
    free(path);
    BY_TRY(status);
    map->logarithms = (const float *)(const void *)data;
    return BY_OK;
}

by_status by_logit_store_open(by_logit_store **out, const char *directory, by_error *error)
{
    by_logit_store *s;
    uint64_t first = 0;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "stored logits", error));
    by_status status = by__data_logit_manifest_read(&s->manifest, directory, error);
    s->directory = by__strdup(directory);
    if (status == BY_OK && s->directory == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s->shards, s->manifest.shard_count + 1, sizeof *s->shards,
                           "stored logits", error);
    }
    for (size_t i = 0; i < s->manifest.shard_count && status == BY_OK; i++) {
        s->shards[i].first = first;
        first += s->manifest.shards[i].rows;
        status = open_shard(s, i, error);
    }
    if (status != BY_OK) {
        by_logit_store_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by_logit_store_close(by_logit_store **store)
{
    by_logit_store *s = *store;
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->manifest.shard_count && s->shards != NULL; i++) {
        by__map_close(&s->shards[i].maps[0]);
        by__map_close(&s->shards[i].maps[1]);
    }
    free(s->shards);
    free(s->directory);
    by__data_logit_manifest_free(&s->manifest);
    free(s);
    *store = NULL;
}

int64_t by_logit_store_top(const by_logit_store *store)
{
    return (int64_t)store->manifest.top;
}

void by_logit_store_hash(const by_logit_store *store, char out[33])
{
    const by__data_logit_manifest *m = &store->manifest;
    by__hash128_hex(out, m->shards, m->shard_count * sizeof *m->shards);
}

by_status by_logit_store_check(const by_logit_store *s, const by_dataset *dataset, size_t context,
                               double temperature, by_error *error)
{
    const by__data_logit_manifest *m = &s->manifest;
    char hash[33];
    by_dataset_hash(dataset, hash);
    if (strcmp(hash, m->data) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was made from other data (%.8s) than the training data (%.8s): "
                            "make the logits of that with banyan logits",
                            s->directory, m->data, hash);
    }
    if (m->context != context) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is of windows of %" PRIu64 " tokens, and model.context is %zu",
                            s->directory, m->context, context);
    }
    if (m->temperature != temperature) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was made with a temperature of %g, but distill.temperature is %g",
                            s->directory, m->temperature, temperature);
    }
    uint64_t rows = (by_dataset_tokens(dataset) - 1) / context * context;
    return m->rows >= rows
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "%s has %" PRIu64 " of %" PRIu64 " rows",
                              s->directory, m->rows, rows);
}

/* Copies rows of one shard. */
static by_status copy_rows(const by_logit_store *s, size_t shard, uint64_t row, size_t count,
                           int32_t *ids, float *logarithms, by_error *error)
{
    size_t top = (size_t)s->manifest.top;
    const int32_t *from = s->shards[shard].ids + row * top;
    for (size_t i = 0; i < count * top; i++) {
        if (from[i] < 0 || (uint64_t)from[i] >= s->manifest.vocab) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: ids-%05zu.npy has %ld, which is no token of %" PRIu64,
                                s->directory, shard, (long)from[i], s->manifest.vocab);
        }
    }
    memcpy(ids, from, count * top * sizeof *ids);
    memcpy(logarithms, s->shards[shard].logarithms + row * (top + 1),
           count * (top + 1) * sizeof *logarithms);
    return BY_OK;
}

by_status by__data_logit_store_rows(const by_logit_store *s, uint64_t first, size_t count,
                                    int32_t *ids, float *logarithms, by_error *error)
{
    size_t top = (size_t)s->manifest.top;
    for (size_t i = 0; i < s->manifest.shard_count && count > 0; i++) {
        uint64_t end = s->shards[i].first + s->manifest.shards[i].rows;
        if (first >= end) {
            continue;
        }
        size_t here = end - first < count ? (size_t)(end - first) : count;
        BY_TRY(copy_rows(s, i, first - s->shards[i].first, here, ids, logarithms, error));
        ids += here * top;
        logarithms += here * (top + 1);
        first += here;
        count -= here;
    }
    return count == 0 ? BY_OK
                      : by_error_set(error, BY_EARG,
                                     "%s: it has %" PRIu64 " rows, and one behind "
                                     "them was asked for",
                                     s->directory, s->manifest.rows);
}

/* ---- writing ---- */

struct by_logit_writer {
    by__data_logit_manifest manifest;
    size_t capacity;
    char *directory; /* NULL once it is finished */
    char *paths[2];
    FILE *files[2]; /* of the current shard; NULL: none */
    uint64_t most;  /* rows per shard */
};

/* Writes an npy header of version 1.0, 128 bytes for any shape. */
static by_status write_header(FILE *file, const char *path, const char *type, uint64_t rows,
                              uint64_t columns, by_error *error)
{
    static const unsigned char magic[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    char header[128];
    char text[118];
    int used =
        snprintf(text, sizeof text,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu64 "), }",
                 type, rows, columns);
    memset(header, ' ', sizeof header);
    memcpy(header, magic, sizeof magic);
    memcpy(header + sizeof magic, text, (size_t)used);
    header[sizeof header - 1] = '\n';
    return fseek(file, 0, SEEK_SET) == 0 && fwrite(header, sizeof header, 1, file) == 1
               ? BY_OK
               : by__io_error(error, "write", path);
}

static const char *const names[2] = {"ids", "logarithms"};
static const char *const types[2] = {"<i4", "<f4"};

static by_status begin_shard(by_logit_writer *w, by_error *error)
{
    by__data_logit_manifest *m = &w->manifest;
    BY_TRY(by__reserve((void **)&m->shards, &w->capacity, m->shard_count + 1, sizeof *m->shards,
                       error));
    for (int i = 0; i < 2; i++) {
        BY_TRY(file_of(&w->paths[i], w->directory, names[i], m->shard_count, error));
        w->files[i] = fopen(w->paths[i], "wb");
        if (w->files[i] == NULL) {
            return by__io_error(error, "create", w->paths[i]);
        }
        BY_TRY(write_header(w->files[i], w->paths[i], types[i], 0, 0, error));
    }
    m->shards[m->shard_count++] = (by__data_logit_shard){0};
    return BY_OK;
}

static void drop_files(by_logit_writer *w)
{
    for (int i = 0; i < 2; i++) {
        if (w->files[i] != NULL) {
            (void)fclose(w->files[i]);
        }
        free(w->paths[i]);
        w->files[i] = NULL;
        w->paths[i] = NULL;
    }
}

static by_status end_shard(by_logit_writer *w, by_error *error)
{
    by__data_logit_manifest *m = &w->manifest;
    by__data_logit_shard *shard = &m->shards[m->shard_count - 1];
    by_status status = BY_OK;
    for (int i = 0; i < 2 && status == BY_OK; i++) {
        FILE *file = w->files[i];
        status =
            write_header(file, w->paths[i], types[i], shard->rows, m->top + (uint64_t)i, error);
        if (status == BY_OK && (fflush(file) != 0 || fsync(fileno(file)) != 0)) {
            status = by__io_error(error, "write", w->paths[i]);
        }
        if (status == BY_OK) {
            status = by__hash_file_hex(i == 0 ? shard->ids : shard->logarithms, w->paths[i], error);
        }
    }
    drop_files(w);
    return status;
}

by_status by__data_logit_writer_open(by_logit_writer **out, const char *directory,
                                     const by__data_logit_manifest *what, by_error *error)
{
    by_logit_writer *w;
    if (by__path_exists(directory)) {
        return by_error_set(error, BY_EARG, "%s already exists; name a new directory", directory);
    }
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "stored logits", error));
    w->manifest = *what;
    w->manifest.rows = 0;
    w->manifest.shards = NULL;
    w->manifest.shard_count = 0;
    w->most = SHARD_BYTES / (8 * (what->top + 1)) + 1;
    by_status status = by__make_dirs(directory, error);
    if (status == BY_OK) {
        w->directory = by__strdup(directory);
        status =
            w->directory == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
    }
    if (status != BY_OK) {
        by__data_logit_writer_close(&w);
        return status;
    }
    *out = w;
    return BY_OK;
}

by_status by__data_logit_writer_add(by_logit_writer *w, const int32_t *ids, const float *logarithms,
                                    size_t rows, by_error *error)
{
    by__data_logit_manifest *m = &w->manifest;
    size_t top = (size_t)m->top;
    if (w->files[0] == NULL) {
        BY_TRY(begin_shard(w, error));
    }
    for (int i = 0; i < 2 && rows > 0; i++) {
        const void *data = i == 0 ? (const void *)ids : (const void *)logarithms;
        if (fwrite(data, (top + (size_t)i) * 4, rows, w->files[i]) != rows) {
            return by__io_error(error, "write", w->paths[i]);
        }
    }
    m->shards[m->shard_count - 1].rows += rows;
    m->rows += rows;
    return m->shards[m->shard_count - 1].rows >= w->most ? end_shard(w, error) : BY_OK;
}

static by_status write_manifest(const by_logit_writer *w, by_error *error)
{
    const by__data_logit_manifest *m = &w->manifest;
    by_string text = {0};
    char *printed;
    by_string_format(&text,
                     "{\n  \"format\": \"banyan-logits\",\n  \"version\": 1,\n  \"rows\": %" PRIu64
                     ",\n  \"context\": %" PRIu64 ",\n  \"vocab\": %" PRIu64
                     ",\n  \"top\": %" PRIu64
                     ",\n  \"temperature\": %.17g,\n  \"data\": \"%s\",\n  \"teacher\": \"%s\",\n"
                     "  \"shards\": [",
                     m->rows, m->context, m->vocab, m->top, m->temperature, m->data, m->teacher);
    for (size_t i = 0; i < m->shard_count; i++) {
        by_string_format(
            &text, "%s\n    {\"rows\": %" PRIu64 ", \"ids\": \"%s\", \"logarithms\": \"%s\"}",
            i == 0 ? "" : ",", m->shards[i].rows, m->shards[i].ids, m->shards[i].logarithms);
    }
    by__string_append(&text, "\n  ]\n}\n");
    size_t length = text.length;
    BY_TRY(by__string_release(&text, &printed, error));
    char *path = by__path_join(w->directory, "manifest.json");
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                    : by__file_write(path, printed, length, error);
    free(path);
    free(printed);
    return status;
}

by_status by__data_logit_writer_finish(by_logit_writer *w, by_error *error)
{
    if (w->files[0] != NULL) {
        BY_TRY(end_shard(w, error));
    }
    BY_TRY(write_manifest(w, error));
    free(w->directory);
    w->directory = NULL;
    return BY_OK;
}

void by__data_logit_writer_close(by_logit_writer **writer)
{
    by_logit_writer *w = *writer;
    if (w == NULL) {
        return;
    }
    drop_files(w);
    if (w->directory != NULL) {
        (void)by__remove_tree(w->directory, NULL);
    }
    free(w->directory);
    by__data_logit_manifest_free(&w->manifest);
    free(w);
    *writer = NULL;
}
