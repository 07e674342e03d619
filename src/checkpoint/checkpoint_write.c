#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/storage.h"

/* A weight file. One writer alone streams it through a sink as long as its slices come in order;
 * otherwise slices are written where they belong and the checksum is read back at the end. */
typedef struct weight_file {
    const by__planned_file *plan;
    int fd;              /* of writing in place; -1: not open */
    by__sink *sink;      /* of streaming */
    uint64_t position;   /* bytes given to the sink */
    by__file_list whole; /* its record, once it is whole: streamed or referenced */
} weight_file;

/* A slice that was written: the content of slices-RANK. */
typedef struct written_slice {
    uint64_t tensor;
    by_tensor_slice slice;
} written_slice;

struct by_checkpoint_writer {
    char *root;
    char *final;
    char *temporary;
    int lock;
    uint64_t step;
    int rank; /* 0: the one that began */
    int writers;
    by_tensor_view *tensors; /* names owned; model, then optimizer */
    size_t model_count;
    size_t count;
    by__weights_plan plans[2]; /* model, optimizer */
    weight_file *files;        /* of both, in order */
    size_t file_count;
    by__file_list references; /* of files that hold no tensors */
    pthread_mutex_t mutex;    /* of what follows, and of the files' fields */
    written_slice *slices;
    size_t slice_count;
    size_t slice_capacity;
    bool failed;
};

static by_status not_saved(const by_checkpoint_writer *w, by_status status, by_error *error)
{
    return by_error_prefix(
        error, status, "step %" PRIu64 " was not saved, earlier checkpoints are intact", w->step);
}

static by_status file_error(by_error *error, const char *verb, const char *directory,
                            const char *name)
{
    return by_error_set(error, BY_EIO, "cannot %s %s/%s: %s", verb, directory, name,
                        strerror(errno));
}

/* ---- opening ---- */

static by_status copy_tensors(by_checkpoint_writer *w, const by_checkpoint_layout *layout,
                              by_error *error)
{
    w->model_count = layout->model_count;
    BY_TRY(by__alloc((void **)&w->tensors, layout->model_count + layout->optimizer_count,
                     sizeof *w->tensors, "checkpoint", error));
    for (size_t i = 0; i < layout->model_count + layout->optimizer_count; i++) {
        by_tensor_view *t = &w->tensors[w->count];
        *t =
            i < layout->model_count ? layout->model[i] : layout->optimizer[i - layout->model_count];
        t->data = NULL;
        t->name = by__strdup(t->name == NULL ? "" : t->name);
        if (t->name == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: tensor names");
        }
        w->count++;
    }
    return BY_OK;
}

static by_status plan(by_checkpoint_writer *w, const by_checkpoint_layout *layout, by_error *error)
{
    size_t count = 0;
    BY_TRY(by__weights_plan_make(&w->plans[0], "model", w->tensors, w->model_count,
                                 layout->shard_bytes, error));
    if (w->count > w->model_count) {
        BY_TRY(by__weights_plan_make(&w->plans[1], "optimizer", w->tensors + w->model_count,
                                     w->count - w->model_count, layout->shard_bytes, error));
    }
    count = w->plans[0].file_count + w->plans[1].file_count;
    BY_TRY(by__alloc((void **)&w->files, count, sizeof *w->files, "checkpoint", error));
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < w->plans[k].file_count; i++) {
            w->files[w->file_count++] = (weight_file){.plan = &w->plans[k].files[i], .fd = -1};
        }
    }
    return BY_OK;
}

/* What begin and join share. */
static by_status open_writer(by_checkpoint_writer **out, const char *root, uint64_t step,
                             const by_checkpoint_layout *layout, int rank, by_error *error)
{
    by_checkpoint_writer *w;
    by__text temporary = {0};
    int writers = layout->writers == 0 ? 1 : layout->writers;
    if (step > INT64_MAX) {
        return by_error_set(error, BY_EARG, "step %" PRIu64 " is too large", step);
    }
    if (layout->model_count == 0) {
        return by_error_set(error, BY_EARG, "the checkpoint has no model tensors");
    }
    if (writers < 1 || rank < 0 || rank >= writers) {
        return by_error_set(error, BY_EARG, "checkpoint writer %d of %d", rank, writers);
    }
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "checkpoint", error));
    *w = (by_checkpoint_writer){.lock = -1, .step = step, .rank = rank, .writers = writers};
    (void)pthread_mutex_init(&w->mutex, NULL);
    *out = w;
    w->root = by__strdup(root);
    if (w->root == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    BY_TRY(by__step_path(&w->final, root, step, error));
    by__text_format(&temporary, "%s.tmp", w->final);
    BY_TRY(by__text_take(&temporary, &w->temporary, error));
    BY_TRY(copy_tensors(w, layout, error));
    return plan(w, layout, error);
}

static void close_writer(by_checkpoint_writer **writer)
{
    by_checkpoint_writer *w = *writer;
    for (size_t i = 0; i < w->file_count; i++) {
        by__sink_discard(&w->files[i].sink);
        by__file_list_free(&w->files[i].whole);
        if (w->files[i].fd >= 0) {
            (void)close(w->files[i].fd);
        }
    }
    if (w->lock >= 0) {
        /* Explicitly: a child that was forked meanwhile has the descriptor as well. */
        (void)flock(w->lock, LOCK_UN);
        (void)close(w->lock);
    }
    for (size_t i = 0; i < w->count; i++) {
        free((void *)(uintptr_t)w->tensors[i].name);
    }
    by__weights_plan_free(&w->plans[0]);
    by__weights_plan_free(&w->plans[1]);
    by__file_list_free(&w->references);
    (void)pthread_mutex_destroy(&w->mutex);
    free(w->slices);
    free(w->files);
    free(w->tensors);
    free(w->temporary);
    free(w->final);
    free(w->root);
    free(w);
    *writer = NULL;
}

void by_checkpoint_abandon(by_checkpoint_writer **writer)
{
    if (writer != NULL && *writer != NULL) {
        by_checkpoint_writer *w = *writer;
        if (w->rank == 0) {
            (void)by__remove_tree(w->temporary, NULL);
        }
        close_writer(writer);
    }
}

/* ---- writing in place ---- */

static by_status write_at(int fd, const char *directory, const char *name, const void *data,
                          size_t n, uint64_t offset, by_error *error)
{
    const uint8_t *bytes = data;
    while (n > 0) {
        ssize_t done = pwrite(fd, bytes, n, (off_t)offset);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? ENOSPC : errno;
            return file_error(error, "write", directory, name);
        }
        bytes += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return BY_OK;
}

/* Makes a weight file of its full length, with its header. */
static by_status create_file(const by_checkpoint_writer *w, weight_file *f, by_error *error)
{
    char *path = by__path_join(w->temporary, f->plan->name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = BY_OK;
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0) {
        status = file_error(error, "create", w->temporary, f->plan->name);
    }
    if (status == BY_OK) {
        status = by__reserve_space(f->fd, path, f->plan->size, error);
    }
    if (status == BY_OK && ftruncate(f->fd, (off_t)f->plan->size) != 0) {
        status = file_error(error, "write", w->temporary, f->plan->name);
    }
    if (status == BY_OK) {
        status = write_at(f->fd, w->temporary, f->plan->name, f->plan->header.data,
                          f->plan->header.length, 0, error);
    }
    free(path);
    return status;
}

/* Opens a file for writing in place: one that another process has made, one that was streamed so
 * far, or a new one. The mutex is held. */
static by_status open_in_place(const by_checkpoint_writer *w, weight_file *f, by_error *error)
{
    if (f->fd >= 0) {
        return BY_OK;
    }
    if (f->sink != NULL) {
        BY_TRY(by__sink_release(&f->sink, &f->fd, error));
        return ftruncate(f->fd, (off_t)f->plan->size) == 0
                   ? BY_OK
                   : file_error(error, "write", w->temporary, f->plan->name);
    }
    if (w->rank == 0) {
        return create_file(w, f, error);
    }
    char *path = by__path_join(w->temporary, f->plan->name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    /* Not through a link: a file that is referenced belongs to an older checkpoint. */
    f->fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    free(path);
    return f->fd >= 0 ? BY_OK : file_error(error, "open", w->temporary, f->plan->name);
}

/* ---- begin and join ---- */

static by_status begin(by_checkpoint_writer *w, by_error *error)
{
    BY_TRY(by__make_dirs(w->root, error));
    BY_TRY(by__root_lock(&w->lock, w->root, error));
    BY_TRY(by__root_clean(w->root, error));
    if (mkdir(w->temporary, 0777) != 0) {
        return by_error_set(error, BY_EIO, "cannot create directory %s: %s", w->temporary,
                            strerror(errno));
    }
    for (size_t i = 0; i < w->file_count && w->writers > 1; i++) {
        BY_TRY(create_file(w, &w->files[i], error));
    }
    return BY_OK;
}

by_status by_checkpoint_begin(by_checkpoint_writer **out, const char *root, uint64_t step,
                              const by_checkpoint_layout *layout, by_error *error)
{
    by_checkpoint_writer *w = NULL;
    by_status status = open_writer(&w, root, step, layout, 0, error);
    bool is_locked = false;
    if (status == BY_OK) {
        status = begin(w, error);
        is_locked = status == BY_OK || w->lock >= 0;
    }
    if (status == BY_OK) {
        *out = w;
        return BY_OK;
    }
    status = by_error_prefix(
        error, status, "step %" PRIu64 " was not saved, earlier checkpoints are intact", step);
    /* Without the lock the directory of that name is another process's. */
    if (is_locked) {
        by_checkpoint_abandon(&w);
    } else if (w != NULL) {
        close_writer(&w);
    }
    return status;
}

by_status by_checkpoint_join(by_checkpoint_writer **out, const char *root, uint64_t step,
                             const by_checkpoint_layout *layout, int rank, by_error *error)
{
    by_checkpoint_writer *w = NULL;
    by_status status =
        rank == 0 ? by_error_set(error, BY_EARG, "checkpoint writer 0 begins and does not join")
                  : open_writer(&w, root, step, layout, rank, error);
    if (status == BY_OK && !by__path_is_dir(w->temporary)) {
        status = by_error_set(error, BY_ESTATE, "%s: no process has begun this checkpoint",
                              w->temporary);
    }
    if (status != BY_OK) {
        if (w != NULL) {
            close_writer(&w);
        }
        return status;
    }
    *out = w;
    return BY_OK;
}

size_t by_checkpoint_order(const by_checkpoint_writer *writer, size_t i)
{
    return i < writer->model_count
               ? writer->plans[0].order[i]
               : writer->model_count + writer->plans[1].order[i - writer->model_count];
}

/* ---- slices ---- */

/* Where tensor `tensor` is: its file, and its place in it. */
static weight_file *file_of(const by_checkpoint_writer *w, size_t tensor, by__planned_tensor *place)
{
    if (tensor < w->model_count) {
        *place = w->plans[0].tensors[tensor];
        return &w->files[place->file];
    }
    *place = w->plans[1].tensors[tensor - w->model_count];
    return &w->files[w->plans[0].file_count + place->file];
}

/* Gives bytes that come next in a file to its sink; *taken is false when they do not. The mutex is
 * held. */
static by_status stream(by_checkpoint_writer *w, weight_file *f, uint64_t offset, const void *data,
                        size_t n, bool *taken, by_error *error)
{
    bool fresh = f->sink == NULL && f->fd < 0 && offset == f->plan->header.length;
    *taken = w->writers == 1 && n > 0 && (fresh || (f->sink != NULL && offset == f->position));
    if (!*taken) {
        return BY_OK;
    }
    if (fresh) {
        BY_TRY(by__sink_open(&f->sink, w->temporary, f->plan->name, f->plan->size, error));
        BY_TRY(by__sink_add(f->sink, f->plan->header.data, f->plan->header.length, error));
        f->position = f->plan->header.length;
    }
    BY_TRY(by__sink_add(f->sink, data, n, error));
    f->position += n;
    return f->position < f->plan->size ? BY_OK : by__sink_commit(&f->sink, &f->whole, error);
}

static by_status write_slice(by_checkpoint_writer *w, size_t tensor, const by_tensor_slice *slice,
                             const void *data, size_t elements, by_error *error)
{
    by__planned_tensor place;
    by__runs runs;
    uint64_t first;
    size_t count;
    bool taken = false;
    const uint8_t *bytes = data;
    size_t size = by_dtype_size(w->tensors[tensor].dtype);
    weight_file *f = file_of(w, tensor, &place);
    by__runs_begin(&runs, &w->tensors[tensor], slice, elements);
    (void)pthread_mutex_lock(&w->mutex);
    by_status status = BY_OK;
    if (f->whole.count > 0) {
        status = by_error_set(error, BY_ESTATE, "tensor '%.200s': %s is whole already",
                              w->tensors[tensor].name, f->plan->name);
    } else if (runs.length == elements) {
        by__runs one = runs;
        (void)by__runs_next(&one, &first, &count);
        status = stream(w, f, place.begin + first * size, bytes, count * size, &taken, error);
    }
    if (status == BY_OK && !taken) {
        status = open_in_place(w, f, error);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    while (status == BY_OK && !taken && by__runs_next(&runs, &first, &count)) {
        status = write_at(f->fd, w->temporary, f->plan->name, bytes, count * size,
                          place.begin + first * size, error);
        bytes += count * size;
    }
    return status;
}

by_status by_checkpoint_add(by_checkpoint_writer *w, size_t tensor, const by_tensor_slice *slice,
                            const void *data, by_error *error)
{
    size_t elements = 0;
    by_status status = BY_OK;
    if (tensor >= w->count) {
        status = by_error_set(error, BY_EARG, "tensor %zu of %zu", tensor, w->count);
    } else {
        status = by__slice_check(&w->tensors[tensor], slice, &elements, error);
    }
    if (status == BY_OK && elements == 0) {
        return BY_OK;
    }
    if (status == BY_OK && data == NULL) {
        status =
            by_error_set(error, BY_EARG, "tensor '%.200s' has no data", w->tensors[tensor].name);
    }
    if (status == BY_OK) {
        status = write_slice(w, tensor, slice, data, elements, error);
    }
    (void)pthread_mutex_lock(&w->mutex);
    if (status == BY_OK) {
        status = by__reserve((void **)&w->slices, &w->slice_capacity, w->slice_count + 1,
                             sizeof *w->slices, error);
    }
    if (status == BY_OK) {
        w->slices[w->slice_count++] = (written_slice){.tensor = tensor, .slice = *slice};
    }
    w->failed = w->failed || status != BY_OK;
    (void)pthread_mutex_unlock(&w->mutex);
    return status == BY_OK ? BY_OK : not_saved(w, status, error);
}

/* ---- references ---- */

/* A weight file that is referenced must begin with the very header that this one would have. */
static by_status check_alike(const weight_file *f, const char *path, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    bool alike = map.size == f->plan->size && map.size >= f->plan->header.length &&
                 memcmp(map.data, f->plan->header.data, f->plan->header.length) == 0;
    by__map_close(&map);
    return alike
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s holds other tensors than this checkpoint's %s",
                              path, f->plan->name);
}

static by_status link_file(by_checkpoint_writer *w, weight_file *f, const by__file_record *record,
                           const char *in, by_error *error)
{
    by__text target = {0};
    char *to = NULL;
    char *path = by__path_join(w->temporary, record->name);
    by__text_format(&target, "../%s/%s", in, record->name);
    by_status status = by__text_take(&target, &to, error);
    if (status == BY_OK && path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK && f != NULL && f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
        (void)unlink(path);
    }
    if (status == BY_OK && symlink(to, path) != 0) {
        status = file_error(error, "link", w->temporary, record->name);
    }
    if (status == BY_OK) {
        status = by__file_list_add(f != NULL ? &f->whole : &w->references, record->name,
                                   record->size, record->hash, in, error);
    }
    free(to);
    free(path);
    return status;
}

static bool is_listed(const by__file_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Refers to a file that the manifest of the directory lists. */
static by_status refer(by_checkpoint_writer *w, weight_file *f, const char *directory,
                       const by__manifest *manifest, const char *name, by_error *error)
{
    const char *slash = strrchr(directory, '/');
    for (size_t i = 0; i < manifest->files.count; i++) {
        const by__file_record *record = &manifest->files.items[i];
        if (strcmp(record->name, name) == 0) {
            char *path = by__path_join(directory, name);
            by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                               : f == NULL  ? BY_OK
                                            : check_alike(f, path, error);
            free(path);
            BY_TRY(status);
            /* Where that one is a reference itself, to what holds the bytes. */
            return link_file(w, f, record, record->in != NULL ? record->in : slash + 1, error);
        }
    }
    return by_error_set(error, BY_EFORMAT, "%s has no file '%.200s' to refer to", directory, name);
}

by_status by_checkpoint_reference(by_checkpoint_writer *w, const char *name, uint64_t from,
                                  by_error *error)
{
    by__manifest manifest = {0};
    char *directory;
    weight_file *f = NULL;
    for (size_t i = 0; i < w->file_count; i++) {
        f = strcmp(w->files[i].plan->name, name) == 0 ? &w->files[i] : f;
    }
    if (w->rank != 0 || from == w->step || w->slice_count > 0 || is_listed(&w->references, name) ||
        (f != NULL && f->whole.count > 0) || (f == NULL && by__checkpoint_reserved(name))) {
        return by_error_set(error, BY_EARG, "'%.200s' of step %" PRIu64 " cannot be referred to",
                            name, from);
    }
    BY_TRY(by__step_path(&directory, w->root, from, error));
    by_status status = by__manifest_check(&manifest, directory, false, error);
    if (status == BY_OK) {
        status = refer(w, f, directory, &manifest, name, error);
        by__manifest_free(&manifest);
    }
    free(directory);
    return status;
}

/* ---- the end of a writer's part ---- */

static void slices_name(char out[32], int rank)
{
    (void)snprintf(out, 32, "slices-%d", rank);
}

by_status by_checkpoint_finish(by_checkpoint_writer **writer, by_error *error)
{
    by_checkpoint_writer *w = *writer;
    char name[32];
    by_status status = w->rank > 0 && !w->failed
                           ? BY_OK
                           : by_error_set(error, BY_ESTATE,
                                          w->rank == 0 ? "writer 0 commits, it does not finish"
                                                       : "a slice was not written");
    for (size_t i = 0; i < w->file_count && status == BY_OK; i++) {
        if (w->files[i].fd >= 0 && fsync(w->files[i].fd) != 0) {
            status = file_error(error, "sync", w->temporary, w->files[i].plan->name);
        }
    }
    slices_name(name, w->rank);
    if (status == BY_OK) {
        status = by__sink_put(w->temporary, name, w->slice_count == 0 ? (void *)name : w->slices,
                              w->slice_count * sizeof *w->slices, NULL, error);
    }
    if (status != BY_OK) {
        status = not_saved(w, status, error);
    }
    close_writer(writer);
    return status;
}

/* ---- commit ---- */

bool by__checkpoint_reserved(const char *name)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json", ".tmp"};
    size_t n = strlen(name);
    if (!by__plain_name(name) || n > 200 || strcmp(name, "manifest.json") == 0 ||
        strcmp(name, "state.json") == 0 || strncmp(name, "slices-", 7) == 0) {
        return true;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(endings); i++) {
        size_t m = strlen(endings[i]);
        if (n >= m && strcmp(name + n - m, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

static by_status check_files(const by_checkpoint_writer *w, const by_checkpoint_file *files,
                             size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const by_checkpoint_file *file = &files[i];
        if (file->name == NULL || by__checkpoint_reserved(file->name)) {
            return by_error_set(error, BY_EARG,
                                "file %zu: '%.100s' is not a plain file name, or is reserved", i,
                                file->name == NULL ? "" : file->name);
        }
        bool twice = is_listed(&w->references, file->name);
        for (size_t k = 0; k < i; k++) {
            twice = twice || strcmp(files[k].name, file->name) == 0;
        }
        if (twice) {
            return by_error_set(error, BY_EARG, "two files are called '%.200s'", file->name);
        }
        if (file->data == NULL && file->path == NULL) {
            return by_error_set(error, BY_EARG, "file '%.200s' has neither data nor a path",
                                file->name);
        }
    }
    return BY_OK;
}

/* Takes the list that writer `rank` has left, and removes it. */
static by_status take_slices(by_checkpoint_writer *w, int rank, by_error *error)
{
    char name[32];
    char *bytes = NULL;
    size_t length = 0;
    slices_name(name, rank);
    char *path = by__path_join(w->temporary, name);
    by_status status = BY_OK;
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (!by__path_exists(path)) {
        status = by_error_set(error, BY_ESTATE, "writer %d of %d did not finish its part", rank,
                              w->writers);
    } else {
        status = by__file_read(&bytes, &length, path, SIZE_MAX / 2, error);
    }
    size_t count = length / sizeof *w->slices;
    if (status == BY_OK && length % sizeof *w->slices != 0) {
        status =
            by_error_set(error, BY_EFORMAT, "%s: %zu bytes are no list of slices", path, length);
    }
    if (status == BY_OK) {
        status = by__reserve((void **)&w->slices, &w->slice_capacity, w->slice_count + count,
                             sizeof *w->slices, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        written_slice *s = &w->slices[w->slice_count];
        memcpy(s, bytes + i * sizeof *s, sizeof *s);
        if (s->tensor >= w->count) {
            status = by_error_set(error, BY_EFORMAT, "%s: tensor %" PRIu64 " of %zu", path,
                                  s->tensor, w->count);
        }
        w->slice_count++;
    }
    if (status == BY_OK && unlink(path) != 0) {
        status = file_error(error, "remove", w->temporary, name);
    }
    free(bytes);
    free(path);
    return status;
}

static int by_tensor(const void *a, const void *b)
{
    const written_slice *x = a;
    const written_slice *y = b;
    return x->tensor < y->tensor ? -1 : x->tensor > y->tensor ? 1 : 0;
}

static by_status check_tensor(const by_checkpoint_writer *w, size_t tensor,
                              const by_tensor_slice *const *slices, size_t count, by_error *error)
{
    by__planned_tensor place;
    const weight_file *f = file_of(w, tensor, &place);
    if (f->whole.count > 0 && f->whole.items[0].in != NULL) {
        return count == 0
                   ? BY_OK
                   : by_error_set(error, BY_EARG, "tensor '%.200s' was added, but %s is referenced",
                                  w->tensors[tensor].name, f->plan->name);
    }
    return by__slices_cover(&w->tensors[tensor], slices, count, error);
}

/* Each element of each tensor was written once, whoever wrote it. */
static by_status check_whole(by_checkpoint_writer *w, by_error *error)
{
    const by_tensor_slice **slices;
    size_t next = 0;
    for (int rank = 1; rank < w->writers; rank++) {
        BY_TRY(take_slices(w, rank, error));
    }
    if (w->slice_count > 1) {
        qsort(w->slices, w->slice_count, sizeof *w->slices, by_tensor);
    }
    BY_TRY(by__alloc((void **)&slices, w->slice_count, sizeof *slices, "slices", error));
    by_status status = BY_OK;
    for (size_t tensor = 0; tensor < w->count && status == BY_OK; tensor++) {
        size_t n = 0;
        for (; next + n < w->slice_count && w->slices[next + n].tensor == tensor; n++) {
            slices[n] = &w->slices[next + n].slice;
        }
        status = check_tensor(w, tensor, slices, n, error);
        next += n;
    }
    free(slices);
    return status;
}

/* Adds a weight file to the manifest: the record of its stream or reference, or its checksum as it
 * is read back. */
static by_status record_file(by_checkpoint_writer *w, weight_file *f, by__file_list *files,
                             by_error *error)
{
    char hash[33];
    if (f->whole.count > 0) {
        const by__file_record *r = &f->whole.items[0];
        return by__file_list_add(files, r->name, r->size, r->hash, r->in, error);
    }
    BY_TRY(open_in_place(w, f, error)); /* no slice was in it: all its tensors are empty */
    if (fsync(f->fd) != 0) {
        return file_error(error, "sync", w->temporary, f->plan->name);
    }
    char *path = by__path_join(w->temporary, f->plan->name);
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                    : by__hash_file_hex(hash, path, error);
    free(path);
    BY_TRY(status);
    return by__file_list_add(files, f->plan->name, f->plan->size, hash, NULL, error);
}

static by_status record_weights(by_checkpoint_writer *w, by__file_list *files, by_error *error)
{
    size_t next = 0;
    for (int k = 0; k < 2; k++) {
        const by__weights_plan *p = &w->plans[k];
        for (size_t i = 0; i < p->file_count; i++) {
            BY_TRY(record_file(w, &w->files[next++], files, error));
        }
        if (p->index != NULL) {
            BY_TRY(
                by__sink_put(w->temporary, p->index_name, p->index, p->index_length, files, error));
        }
    }
    return BY_OK;
}

static by_status put_state(const by_checkpoint_writer *w, const by_checkpoint_value *values,
                           size_t count, by__file_list *files, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__state_print(w->step, values, count, &text, &length, error));
    by_status status = by__sink_put(w->temporary, "state.json", text, length, files, error);
    free(text);
    return status;
}

static by_status put_manifest(const by_checkpoint_writer *w, const by__manifest *manifest,
                              by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__manifest_print(manifest, &text, &length, error));
    by_status status = by__sink_put(w->temporary, "manifest.json", text, length, NULL, error);
    free(text);
    return status;
}

static by_status put_files(const by_checkpoint_writer *w, const by_checkpoint_file *files,
                           size_t count, by__file_list *written, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const by_checkpoint_file *file = &files[i];
        BY_TRY(file->data != NULL
                   ? by__sink_put(w->temporary, file->name, file->data, file->size, written, error)
                   : by__sink_copy(w->temporary, file->name, file->path, written, error));
    }
    for (size_t i = 0; i < w->references.count; i++) {
        const by__file_record *r = &w->references.items[i];
        BY_TRY(by__file_list_add(written, r->name, r->size, r->hash, r->in, error));
    }
    return BY_OK;
}

/* Gives the finished directory its name. Where the name is taken the two change places in one
 * step, so that a crash finds the old one or the new one; the old one is then called `temporary`,
 * and is removed. */
static by_status publish(const char *temporary, const char *final, by_error *error)
{
    if (rename(temporary, final) == 0) {
        return BY_OK;
    }
    if ((errno == EEXIST || errno == ENOTEMPTY) &&
        renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        return BY_OK;
    }
    return by_error_set(error, BY_EIO, "cannot rename %s to %s: %s", temporary, final,
                        strerror(errno));
}

by_status by_checkpoint_commit(by_checkpoint_writer **writer, const by_checkpoint_value *values,
                               size_t value_count, const by_checkpoint_file *files,
                               size_t file_count, by_error *error)
{
    by_checkpoint_writer *w = *writer;
    by__manifest manifest = {.step = w->step};
    by_status status = w->rank == 0 && !w->failed
                           ? check_files(w, files, file_count, error)
                           : by_error_set(error, BY_ESTATE,
                                          w->rank != 0 ? "only the writer that began commits"
                                                       : "a slice was not written");
    if (status == BY_OK) {
        status = check_whole(w, error);
    }
    if (status == BY_OK) {
        status = record_weights(w, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = put_state(w, values, value_count, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = put_files(w, files, file_count, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = put_manifest(w, &manifest, error);
    }
    by__manifest_free(&manifest);
    if (status == BY_OK) {
        status = by__sync_dir(w->temporary, error);
    }
    if (status == BY_OK) {
        status = publish(w->temporary, w->final, error);
    }
    if (status == BY_OK) {
        status = by__sync_dir(w->root, error);
    }
    if (status != BY_OK) {
        status = not_saved(w, status, error);
    }
    /* Either the failed attempt or the checkpoint that was replaced. A failure here leaves a
     * directory that no reader looks at and that the next save removes. */
    by_checkpoint_abandon(writer);
    return status;
}
