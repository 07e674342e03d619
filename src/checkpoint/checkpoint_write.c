/* Writes the files of a checkpoint: tensors and slices, streamed if they arrive in the order of the
 * files, else in place. checkpoint_commit.c has the rest. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/paths.h"
#include "checkpoint/checkpoint_writer.h"

by_status by__checkpoint_writer_not_saved(const by_checkpoint_writer *w, by_status status,
                                          by_error *error)
{
    return by_error_prefix(
        error, status, "step %" PRIu64 " was not saved, earlier checkpoints are intact", w->step);
}

by_status by__checkpoint_writer_error(by_error *error, const char *verb, const char *directory,
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
    if (layout->frozen != NULL) {
        BY_TRY(by__alloc((void **)&w->frozen, layout->model_count, sizeof *w->frozen, "checkpoint",
                         error));
        memcpy(w->frozen, layout->frozen, layout->model_count * sizeof *w->frozen);
    }
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

/* Common to begin and join. `token`: with several writers, identifies the directory. */
static by_status open_writer(by_checkpoint_writer **out, const char *root, uint64_t step,
                             const by_checkpoint_layout *layout, int rank, uint64_t token,
                             by_error *error)
{
    by_checkpoint_writer *w;
    by_string temporary = {0};
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
    *w = (by_checkpoint_writer){
        .lock = -1, .step = step, .token = token, .rank = rank, .writers = writers};
    (void)pthread_mutex_init(&w->mutex, NULL);
    *out = w;
    w->root = by__strdup(root);
    if (w->root == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    BY_TRY(by__checkpoint_step_path(&w->final, root, step, error));
    by_string_format(&temporary, "%s.tmp", w->final);
    if (writers > 1) {
        by_string_format(&temporary, "-%016" PRIx64, token);
    }
    BY_TRY(by__string_release(&temporary, &w->temporary, error));
    BY_TRY(copy_tensors(w, layout, error));
    return by__checkpoint_writer_plan(w, layout, error);
}

static void close_writer(by_checkpoint_writer **writer)
{
    by_checkpoint_writer *w = *writer;
    for (size_t i = 0; i < w->file_count; i++) {
        by__checkpoint_sink_discard(&w->files[i].sink);
        by__checkpoint_file_list_free(&w->files[i].whole);
        by__map_close(&w->files[i].same);
        if (w->files[i].fd >= 0) {
            (void)close(w->files[i].fd);
        }
    }
    if (w->lock >= 0) {
        /* Explicitly, because a child forked in the meantime has the descriptor as well. */
        (void)flock(w->lock, LOCK_UN);
        (void)close(w->lock);
    }
    for (size_t i = 0; i < w->count; i++) {
        free((void *)(uintptr_t)w->tensors[i].name);
    }
    for (size_t i = 0; i < w->part_count; i++) {
        free((void *)(uintptr_t)w->views[i].name);
    }
    for (int k = 0; k < BY__WEIGHT_GROUPS; k++) {
        by__weights_plan_free(&w->plans[k]);
    }
    by__checkpoint_manifest_free(&w->earlier);
    by__checkpoint_file_list_free(&w->references);
    (void)pthread_mutex_destroy(&w->mutex);
    free(w->slices);
    free(w->files);
    free(w->order);
    free(w->index_of);
    free(w->views);
    free(w->parts);
    free(w->tensors);
    free(w->frozen);
    free(w->previous);
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
            return by__checkpoint_writer_error(error, "write", directory, name);
        }
        bytes += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return BY_OK;
}

/* Creates a weight file of its full length, with its header. */
static by_status create_file(const by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                             by_error *error)
{
    char *path;
    BY_TRY(by__path_make(&path, w->temporary, f->plan->name, error));
    by_status status = BY_OK;
    f->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0) {
        status = by__checkpoint_writer_error(error, "create", w->temporary, f->plan->name);
    }
    if (status == BY_OK) {
        status = by__checkpoint_reserve_space(f->fd, path, f->plan->size, error);
    }
    if (status == BY_OK && ftruncate(f->fd, (off_t)f->plan->size) != 0) {
        status = by__checkpoint_writer_error(error, "write", w->temporary, f->plan->name);
    }
    if (status == BY_OK) {
        status = write_at(f->fd, w->temporary, f->plan->name, f->plan->header.data,
                          f->plan->header.length, 0, error);
    }
    free(path);
    return status;
}

/* Writes what was found equal to an earlier file so far, after a difference. The mutex must be
 * held. */
static by_status write_equal(const by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                             by_error *error)
{
    by_status status =
        by__checkpoint_sink_open(&f->sink, w->temporary, f->plan->name, f->plan->size, error);
    if (status == BY_OK) {
        status = by__checkpoint_sink_add(f->sink, f->same.data, (size_t)f->position, error);
    }
    by__map_close(&f->same);
    return status;
}

/* Opens a file for writing in place: one that was streamed so far, or a new one. The mutex must be
 * held. */
static by_status open_file(const by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                           by_error *error)
{
    if (f->fd >= 0) {
        return BY_OK;
    }
    BY_TRY(f->same.data != NULL ? write_equal(w, f, error) : BY_OK);
    if (f->sink != NULL) {
        BY_TRY(by__checkpoint_sink_release(&f->sink, &f->fd, error));
        return ftruncate(f->fd, (off_t)f->plan->size) == 0
                   ? BY_OK
                   : by__checkpoint_writer_error(error, "write", w->temporary, f->plan->name);
    }
    return create_file(w, f, error);
}

/* ---- begin and join ---- */

static by_status begin(by_checkpoint_writer *w, by_error *error)
{
    BY_TRY(by__make_dirs(w->root, error));
    BY_TRY(by__checkpoint_root_lock(&w->lock, w->root, error));
    BY_TRY(by__checkpoint_root_clean(w->root, error));
    BY_TRY(by__checkpoint_share_find(w, error));
    if (mkdir(w->temporary, 0777) != 0) {
        return by_error_set(error, BY_EIO, "cannot create directory %s: %s", w->temporary,
                            strerror(errno));
    }
    return BY_OK;
}

/* A number that identifies this attempt. */
static uint64_t make_token(void)
{
    uint64_t token;
    struct timespec now;
    if (getrandom(&token, sizeof token, 0) == (ssize_t)sizeof token) {
        return token;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

by_status by_checkpoint_begin(by_checkpoint_writer **out, const char *root, uint64_t step,
                              const by_checkpoint_layout *layout, by_error *error)
{
    by_checkpoint_writer *w = NULL;
    by_status status = open_writer(&w, root, step, layout, 0, make_token(), error);
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
    /* Without the lock the directory of that name belongs to another process. */
    if (is_locked) {
        by_checkpoint_abandon(&w);
    } else if (w != NULL) {
        close_writer(&w);
    }
    return status;
}

by_status by_checkpoint_join(by_checkpoint_writer **out, const char *root, uint64_t step,
                             const by_checkpoint_layout *layout, int rank, uint64_t token,
                             by_error *error)
{
    by_checkpoint_writer *w = NULL;
    by_status status =
        rank == 0 ? by_error_set(error, BY_EARG, "checkpoint writer 0 begins and does not join")
                  : open_writer(&w, root, step, layout, rank, token, error);
    if (status == BY_OK && !by__path_is_dir(w->temporary)) {
        status = by_error_set(error, BY_ESTATE, "%s: no process has begun this checkpoint",
                              w->temporary);
    }
    if (status == BY_OK) {
        status = by__checkpoint_share_find(w, error);
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

uint64_t by_checkpoint_token(const by_checkpoint_writer *writer)
{
    return writer->token;
}

size_t by_checkpoint_order(const by_checkpoint_writer *writer, size_t i)
{
    return writer->order[i];
}

/* ---- slices ---- */

by__checkpoint_weight_file *by__checkpoint_writer_file(const by_checkpoint_writer *w, size_t part,
                                                       by__checkpoint_planned_tensor *place)
{
    by__checkpoint_weight_file *files = w->files;
    size_t first = 0;
    int k = 0;
    for (; part >= w->group_end[k]; k++) {
        files += w->plans[k].file_count;
        first = w->group_end[k];
    }
    *place = w->plans[k].tensors[part - first];
    return &files[place->file];
}

/* Compares the next bytes of a file with those of an earlier one; *taken is false if they differ.
 * The mutex must be held. */
static by_status share(by_checkpoint_writer *w, by__checkpoint_weight_file *f, uint64_t offset,
                       const void *data, size_t n, bool *taken, by_error *error)
{
    bool linked = false;
    if (f->sink == NULL && f->fd < 0 && f->same.data == NULL && offset == f->plan->header.length) {
        by__checkpoint_share_begin(w, f);
    }
    *taken =
        f->same.data != NULL && offset == f->position && by__checkpoint_share_matches(f, data, n);
    if (f->same.data == NULL || (*taken && f->position < f->plan->size)) {
        return BY_OK;
    }
    if (*taken) {
        BY_TRY(by__checkpoint_share_end(w, f, &linked, error));
    }
    if (linked) {
        return BY_OK;
    }
    BY_TRY(write_equal(w, f, error));
    return *taken ? by__checkpoint_sink_commit(&f->sink, &f->whole, error) : BY_OK;
}

/* Appends bytes to a file's sink if they are the next ones; else *taken is false. The mutex must be
 * held. */
static by_status stream(by_checkpoint_writer *w, by__checkpoint_weight_file *f, uint64_t offset,
                        const void *data, size_t n, bool *taken, by_error *error)
{
    BY_TRY(share(w, f, offset, data, n, taken, error));
    if (*taken) {
        return BY_OK;
    }
    bool fresh = f->sink == NULL && f->fd < 0 && offset == f->plan->header.length;
    *taken = n > 0 && (fresh || (f->sink != NULL && offset == f->position));
    if (!*taken) {
        return BY_OK;
    }
    if (fresh) {
        BY_TRY(
            by__checkpoint_sink_open(&f->sink, w->temporary, f->plan->name, f->plan->size, error));
        BY_TRY(
            by__checkpoint_sink_add(f->sink, f->plan->header.data, f->plan->header.length, error));
        f->position = f->plan->header.length;
    }
    BY_TRY(by__checkpoint_sink_add(f->sink, data, n, error));
    f->position += n;
    return f->position < f->plan->size ? BY_OK
                                       : by__checkpoint_sink_commit(&f->sink, &f->whole, error);
}

/* Writes bytes at an offset of a file: through its sink if they are the next ones. */
static by_status write_run(by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                           const char *tensor, uint64_t offset, const void *data, size_t n,
                           by_error *error)
{
    bool taken = false;
    (void)pthread_mutex_lock(&w->mutex);
    by_status status = f->whole.count > 0
                           ? by_error_set(error, BY_ESTATE, "tensor '%.200s': %s is whole already",
                                          tensor, f->plan->name)
                           : stream(w, f, offset, data, n, &taken, error);
    if (status == BY_OK && !taken) {
        status = open_file(w, f, error);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return status != BY_OK || taken
               ? status
               : write_at(f->fd, w->temporary, f->plan->name, data, n, offset, error);
}

/* A range of a slice's elements, in its own row-major order. */
typedef struct slice_range {
    size_t first;
    size_t count;
} slice_range;

/* Writes a range of a slice of a part, laid out as in its file. */
static by_status write_range(by_checkpoint_writer *w, size_t part, const by_tensor_slice *slice,
                             slice_range r, const void *data, by_error *error)
{
    by__checkpoint_planned_tensor place;
    by__slice_runs runs;
    uint64_t at;
    size_t length;
    const uint8_t *bytes = data;
    const by_tensor_view *view = &w->views[part];
    size_t size = by_dtype_size(view->dtype);
    by__checkpoint_weight_file *f = by__checkpoint_writer_file(w, part, &place);
    by__slice_runs_begin(&runs, view->rank, view->shape, slice);
    while (r.count > 0 && by__slice_runs_next(&runs, &at, &length)) {
        if (r.first >= length) {
            r.first -= length;
            continue;
        }
        size_t n = length - r.first < r.count ? length - r.first : r.count;
        BY_TRY(write_run(w, f, view->name, place.begin + (at + r.first) * size, bytes, n * size,
                         error));
        bytes += n * size;
        r.first = 0;
        r.count -= n;
    }
    return BY_OK;
}

by_status by__checkpoint_writer_note(by_checkpoint_writer *w, size_t tensor,
                                     const by_tensor_slice *slice, by_error *error)
{
    BY_TRY(by__reserve((void **)&w->slices, &w->slice_capacity, w->slice_count + 1,
                       sizeof *w->slices, error));
    /* The whole struct is written to disk: padding and unused axes must be zero. */
    by__checkpoint_written_slice *s = &w->slices[w->slice_count++];
    memset(s, 0, sizeof *s);
    s->tensor = tensor;
    s->writer = (uint64_t)w->rank;
    s->slice.flat = slice->flat;
    for (int i = 0; i < (slice->flat ? 1 : w->tensors[tensor].rank); i++) {
        s->slice.offset[i] = slice->offset[i];
        s->slice.shape[i] = slice->shape[i];
    }
    return BY_OK;
}

/* Writes a range of a slice of a part, which is the slice `whole` of its tensor, unless `status` is
 * an error. */
static by_status add(by_checkpoint_writer *w, by_status status, size_t part,
                     const by_tensor_slice *slice, const by_tensor_slice *whole,
                     const slice_range *only, const void *data, by_error *error)
{
    size_t elements = 0;
    if (status == BY_OK) {
        status = by__checkpoint_slice_check(&w->views[part], slice, &elements, error);
    }
    if (status == BY_OK && elements == 0) {
        return BY_OK;
    }
    const slice_range r = only != NULL ? *only : (slice_range){0, elements};
    if (status == BY_OK && (r.first > elements || r.count > elements - r.first)) {
        status = by_error_set(error, BY_EARG, "tensor '%.200s': elements %zu to %zu of %zu",
                              w->views[part].name, r.first, r.first + r.count, elements);
    }
    if (status == BY_OK && data == NULL) {
        status = by_error_set(error, BY_EARG, "tensor '%.200s' has no data", w->views[part].name);
    }
    if (status == BY_OK) {
        status = write_range(w, part, slice, r, data, error);
    }
    (void)pthread_mutex_lock(&w->mutex);
    if (status == BY_OK && r.first + r.count == elements) {
        status = by__checkpoint_writer_note(w, w->parts[part].tensor, whole, error);
    }
    w->started = true;
    w->failed = w->failed || status != BY_OK;
    (void)pthread_mutex_unlock(&w->mutex);
    return status == BY_OK ? BY_OK : by__checkpoint_writer_not_saved(w, status, error);
}

static by_status add_part(by_checkpoint_writer *w, size_t part, const slice_range *only,
                          const void *data, by_error *error)
{
    if (part >= w->order_count) {
        return add(w, by_error_set(error, BY_EARG, "part %zu of %zu", part, w->order_count), 0,
                   NULL, NULL, NULL, NULL, error);
    }
    size_t index = w->index_of[part];
    by_tensor_slice whole = by_tensor_whole(&w->views[index]);
    return add(w, BY_OK, index, &whole, &w->parts[index].slice, only, data, error);
}

by_status by_checkpoint_add_part(by_checkpoint_writer *w, size_t part, const void *data,
                                 by_error *error)
{
    return add_part(w, part, NULL, data, error);
}

static by_status add_slice(by_checkpoint_writer *w, size_t tensor, const by_tensor_slice *slice,
                           const slice_range *only, const void *data, by_error *error)
{
    by_status status = BY_OK;
    if (w->writers > 1) {
        status = by_error_set(error, BY_EARG, "one of %d writers adds its parts, not slices",
                              w->writers);
    } else if (tensor >= w->count) {
        status = by_error_set(error, BY_EARG, "tensor %zu of %zu", tensor, w->count);
    }
    return add(w, status, status == BY_OK ? w->index_of[tensor] : 0, slice, slice, only, data,
               error);
}

by_status by_checkpoint_add(by_checkpoint_writer *w, size_t tensor, const by_tensor_slice *slice,
                            const void *data, by_error *error)
{
    return add_slice(w, tensor, slice, NULL, data, error);
}

by_status by__checkpoint_writer_add_range(by_checkpoint_writer *w, size_t number,
                                          const by_tensor_slice *slice, size_t first, size_t count,
                                          const void *data, by_error *error)
{
    const slice_range r = {first, count};
    return w->writers > 1 ? add_part(w, number, &r, data, error)
                          : add_slice(w, number, slice, &r, data, error);
}

/* ---- end of a writer's part ---- */

/* The record of a weight file: of its stream or reference, or with a checksum read back from it. */
static by_status record_file(const by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                             by__checkpoint_file_list *files, by_error *error)
{
    char hash[33];
    if (f->whole.count > 0) {
        const by__checkpoint_file_record *r = &f->whole.items[0];
        return by__checkpoint_file_list_add(files, r->name, r->size, r->hash, r->in, error);
    }
    BY_TRY(open_file(w, f, error)); /* it has no slices: all its tensors are empty */
    if (fsync(f->fd) != 0) {
        return by__checkpoint_writer_error(error, "sync", w->temporary, f->plan->name);
    }
    char *path;
    BY_TRY(by__path_make(&path, w->temporary, f->plan->name, error));
    by_status status = by__hash_file_hex(hash, path, error);
    free(path);
    BY_TRY(status);
    return by__checkpoint_file_list_add(files, f->plan->name, f->plan->size, hash, NULL, error);
}

by_status by__checkpoint_writer_record(by_checkpoint_writer *w, by__checkpoint_file_list *files,
                                       by_error *error)
{
    for (size_t i = 0; i < w->file_count; i++) {
        BY_TRY(record_file(w, &w->files[i], files, error));
    }
    return BY_OK;
}

by_status by_checkpoint_finish(by_checkpoint_writer **writer, by_error *error)
{
    by_checkpoint_writer *w = *writer;
    by_status status = w->rank > 0 && !w->failed
                           ? by__checkpoint_writer_finish_part(w, error)
                           : by_error_set(error, BY_ESTATE,
                                          w->rank == 0 ? "writer 0 commits, it does not finish"
                                                       : "a slice was not written");
    if (status != BY_OK) {
        status = by__checkpoint_writer_not_saved(w, status, error);
    }
    close_writer(writer);
    return status;
}
