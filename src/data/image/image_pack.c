#include "data/image/image_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/paths.h"
#include "base/threads.h"
#include "data/image/image_stream.h"
#include "data/image/picture_use.h"
#include "formats/image/image_file.h"
#include "formats/shards/tar_write.h"

#define DESCRIPTION   "pack.json"
#define STREAMS       "streams"
#define CLASSES       "__classes.json"
#define MOST_TEXT     ((size_t)1 << 30)
#define WRITE_AT_ONCE ((size_t)1 << 20)

typedef struct image_packer {
    const by_image_pack_options *options;
    by__image_plan plan;
    char *partial;
    by__image_pages *pages;
    size_t ranks;
    atomic_size_t next; /* shard of this rank */
    atomic_size_t written;
    atomic_bool failed;
    pthread_mutex_t lock; /* protects what follows, and calls of options->progress */
    uint64_t done;
    uint64_t total;
} image_packer;

/* ---- a shard ---- */

typedef struct shard_file {
    int file;
    char *path;
    by_string text; /* to be written */
    uint64_t at;    /* bytes before it */
} shard_file;

static by_status flush(shard_file *f, by_error *error)
{
    size_t at = 0;
    if (f->text.failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a shard");
    }
    while (at < f->text.length) {
        ssize_t n = write(f->file, f->text.data + at, f->text.length - at);
        if (n < 0 && errno != EINTR) {
            return by__io_error(error, "write", f->path);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    f->at += f->text.length;
    f->text.length = 0;
    return BY_OK;
}

static const char *ending_of(const uint8_t *data)
{
    return data[0] == 0x89 ? "png" : data[0] == 'R' ? "webp" : "jpg";
}

static by_status add_picture(shard_file *f, const image_packer *p, size_t i, by_error *error)
{
    const by__image_picture_file *from = &p->plan.folder.files[i];
    uint8_t *data;
    size_t size;
    BY_TRY(by__image_picture_bytes(&data, &size, p->plan.remote, p->pages, from->path, &from->range,
                                   error));
    by_error why = {.status = BY_EFORMAT};
    by_status status = BY_OK;
    if (size != p->plan.sizes[i]) {
        (void)snprintf(why.message, sizeof why.message, "it has changed since it was listed");
        status = by__image_picture_refuse(from->path, &from->range, &why, "", error);
    } else if (!p->options->skip_corrupt && !by__format_image_is_file(data, size)) {
        (void)snprintf(why.message, sizeof why.message, "it is no JPEG, PNG or WebP");
        status = by__image_picture_refuse(from->path, &from->range, &why,
                                          " (--corrupt skip packs it as it is, for data.corrupt "
                                          "to decide)",
                                          error);
    }
    if (status == BY_OK) {
        (void)by__image_plan_place(&f->text, f->at + f->text.length, i, from->label,
                                   ending_of(data), size);
        by_string_add(&f->text, (const char *)data, size);
        by__format_tar_fill(&f->text, size);
        status = f->text.length >= WRITE_AT_ONCE ? flush(f, error) : BY_OK;
    }
    free(data);
    return status;
}

static by_status report(image_packer *p, uint64_t bytes, by_error *error)
{
    const by_image_pack_options *o = p->options;
    (void)pthread_mutex_lock(&p->lock);
    p->done += bytes;
    bool go_on = o->progress == NULL || o->progress(o->user, p->done, p->total);
    (void)pthread_mutex_unlock(&p->lock);
    return go_on ? BY_OK
                 : by_error_set(error, BY_ESTOPPED,
                                "stopped: the shards that are whole stay in %s, and the same "
                                "command goes on from there",
                                p->partial);
}

static by_status fill_shard(shard_file *f, image_packer *p, const by__image_plan_shard *s,
                            by_error *error)
{
    static const char zeros[BY__TAR_BLOCK];
    const by__image_plan *plan = &p->plan;
    if (plan->classes.length > 0) {
        by__format_tar_member(&f->text, CLASSES, plan->classes.data, plan->classes.length);
    }
    for (size_t i = s->first; i < s->first + s->count; i++) {
        BY_TRY(add_picture(f, p, i, error));
        BY_TRY(report(p, plan->sizes[i], error));
    }
    for (uint64_t end = f->at + f->text.length; end < s->bytes; end += sizeof zeros) {
        by_string_add(&f->text, zeros, sizeof zeros);
    }
    return flush(f, error);
}

/* Writes a shard under a name of this process's own, and renames it when it is whole. */
static by_status write_shard(image_packer *p, size_t shard, const char *path, by_error *error)
{
    const by__image_plan_shard *s = &p->plan.shards[shard];
    shard_file f = {.file = -1};
    by_string own = {0};
    by_string_format(&own, "%s.%ld.tmp", path, (long)getpid());
    BY_TRY(by__string_release(&own, &f.path, error));
    f.file = open(f.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    by_status status =
        f.file < 0 ? by__io_error(error, "create", f.path) : fill_shard(&f, p, s, error);
    if (status == BY_OK && fsync(f.file) != 0) {
        status = by__io_error(error, "write", f.path);
    }
    if (f.file >= 0 && close(f.file) != 0 && status == BY_OK) {
        status = by__io_error(error, "write", f.path);
    }
    if (status == BY_OK && rename(f.path, path) != 0) {
        status = by__io_error(error, "rename", f.path);
    }
    if (status != BY_OK) {
        (void)unlink(f.path);
    }
    by_string_free(&f.text);
    free(f.path);
    return status;
}

static bool is_there(const char *path, uint64_t bytes)
{
    struct stat info;
    return stat(path, &info) == 0 && (uint64_t)info.st_size == bytes;
}

static by_status shard_path(char **out, const image_packer *p, size_t shard, by_error *error)
{
    char name[BY__IMAGE_PLAN_NAME];
    return by__path_make(out, p->partial, by__image_plan_name(name, shard), error);
}

static by_status write_shards(void *context, size_t thread, by_error *error)
{
    image_packer *p = context;
    BY_UNUSED(thread);
    while (!atomic_load(&p->failed)) {
        size_t shard = p->options->rank + p->ranks * atomic_fetch_add(&p->next, 1);
        if (shard >= p->plan.count) {
            break;
        }
        char *path;
        by_status status = shard_path(&path, p, shard, error);
        if (status == BY_OK && !is_there(path, p->plan.shards[shard].bytes)) {
            status = write_shard(p, shard, path, error);
            (void)atomic_fetch_add(&p->written, status == BY_OK);
        }
        if (status == BY_OK) {
            free(path);
            continue;
        }
        free(path);
        atomic_store(&p->failed, true);
        return status;
    }
    return BY_OK;
}

/* ---- the output ---- */

/* Whether a directory has pack.json, and if so whether it is that of the plan. */
static by_status compare(bool *there, bool *same, const char *directory, const by_string *text,
                         by_error *error)
{
    char *path;
    char *have;
    size_t size;
    *same = false;
    BY_TRY(by__path_make(&path, directory, DESCRIPTION, error));
    *there = by__path_exists(path);
    by_status status = *there ? by__file_read(&have, &size, path, MOST_TEXT, error) : BY_OK;
    if (*there && status == BY_OK) {
        *same = size == text->length && memcmp(have, text->data, size) == 0;
        free(have);
    }
    free(path);
    return status;
}

/* Ranks may write the same text at once: each under a name of its own. */
static by_status write_description(const image_packer *p, by_error *error)
{
    char *path;
    char *own = NULL;
    by_string name = {0};
    by_string_format(&name, "%s.%zu.%ld", DESCRIPTION, p->options->rank, (long)getpid());
    BY_TRY(by__path_make(&path, p->partial, DESCRIPTION, error));
    by_status status = name.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a name")
                                   : by__path_make(&own, p->partial, name.data, error);
    if (status == BY_OK) {
        status = by__file_write(own, p->plan.text.data, p->plan.text.length, error);
    }
    if (status == BY_OK && rename(own, path) != 0) {
        status = by__io_error(error, "rename", own);
    }
    by_string_free(&name);
    free(own);
    free(path);
    return status;
}

static by_status refuse_other(const char *directory, by_error *error)
{
    return by_error_set(error, BY_EARG,
                        "%s is of other pictures or options: remove it or name another output "
                        "directory",
                        directory);
}

/* *done: OUTPUT is there, of the same pictures. */
static by_status find_output(const image_packer *p, bool *done, by_error *error)
{
    bool there;
    bool same;
    const char *output = p->options->output;
    *done = by__path_exists(output);
    if (!*done) {
        return BY_OK;
    }
    BY_TRY(compare(&there, &same, output, &p->plan.text, error));
    return same ? BY_OK : refuse_other(output, error);
}

/* Begins or goes on with OUTPUT.partial; *done: OUTPUT is there. */
static by_status begin(image_packer *p, bool *done, by_error *error)
{
    bool there;
    bool same;
    BY_TRY(find_output(p, done, error));
    if (*done) {
        return BY_OK;
    }
    BY_TRY(by__make_dirs(p->partial, error));
    BY_TRY(find_output(p, done, error)); /* which another rank may have renamed just before */
    if (*done) {
        return BY_OK;
    }
    BY_TRY(compare(&there, &same, p->partial, &p->plan.text, error));
    if (there) {
        return same ? BY_OK : refuse_other(p->partial, error);
    }
    return write_description(p, error);
}

/* Removes what killed processes left, which no shard is named like. */
static by_status remove_rests(const image_packer *p, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, p->partial, error));
    for (size_t i = 0; i < count; i++) {
        char *path = NULL;
        bool rest = strcmp(names[i], DESCRIPTION) != 0 && !by__ends_with(names[i], ".tar");
        if (rest && by__path_make(&path, p->partial, names[i], NULL) == BY_OK) {
            (void)by__remove_tree(path, NULL);
        }
        free(path);
    }
    by__names_free(names, count);
    return BY_OK;
}

/* Removes what was decompressed for an output that is there already. Another rank that does so
 * too, or still decompresses, may keep this from it: the output is whole all the same. */
static by_status remove_streams(const image_packer *p, by_error *error)
{
    char *path;
    BY_TRY(by__path_make(&path, p->partial, STREAMS, error));
    (void)by__remove_tree(path, NULL);
    free(path);
    (void)rmdir(p->partial);
    return BY_OK;
}

/* Renames the output if all shards are there: the rank that is last sees them. */
static by_status finish(const image_packer *p, bool *complete, by_error *error)
{
    *complete = true;
    for (size_t i = 0; i < p->plan.count && *complete; i++) {
        char *path;
        BY_TRY(shard_path(&path, p, i, error));
        *complete = is_there(path, p->plan.shards[i].bytes);
        free(path);
    }
    if (!*complete) {
        *complete = by__path_exists(p->options->output); /* another rank has renamed it */
        return BY_OK;
    }
    by_status status = remove_rests(p, error);
    if (status == BY_OK) {
        status = by__sync_dir(p->partial, error);
    }
    if (status == BY_OK && rename(p->partial, p->options->output) != 0) {
        status = by__io_error(error, "rename", p->partial);
    }
    /* Another rank that saw all shards may have renamed them at any time. */
    return by__path_exists(p->options->output) ? BY_OK : status;
}

/* ---- packing ---- */

static by_status check(const by_image_pack_options *o, by_error *error)
{
    if (o->output == NULL || o->output[0] == '\0' || o->input_count == 0) {
        return by_error_set(error, BY_EARG, "packing needs inputs and an output directory");
    }
    if (o->ranks > 0 && o->rank >= o->ranks) {
        return by_error_set(error, BY_EARG, "rank %zu is not below %zu", o->rank, o->ranks);
    }
    return BY_OK;
}

static by_status pack(image_packer *p, char **streams, by_image_pack_result *result,
                      by_error *error)
{
    const by_image_pack_options *o = p->options;
    bool done;
    BY_TRY(by__image_streams_open(streams, o->inputs, o->input_count, p->partial, error));
    BY_TRY(by__image_plan_make(&p->plan, o, (const char *const *)streams, error));
    BY_TRY(begin(p, &done, error));
    *result = (by_image_pack_result){.pictures = p->plan.folder.count,
                                     .skipped = p->plan.skipped,
                                     .shards = p->plan.count,
                                     .bytes = p->plan.bytes,
                                     .complete = done};
    if (done) {
        return remove_streams(p, error);
    }
    size_t own = 0;
    for (size_t i = o->rank; i < p->plan.count; i += p->ranks) {
        own++;
        for (size_t k = 0; k < p->plan.shards[i].count; k++) {
            p->total += p->plan.sizes[p->plan.shards[i].first + k];
        }
    }
    size_t threads = o->threads > 0 ? o->threads : (size_t)by__thread_count(0);
    threads = threads < own ? threads : own;
    if (threads > 0) {
        BY_TRY(by__threads_run(threads, write_shards, p, error));
    }
    result->written = atomic_load(&p->written);
    return finish(p, &result->complete, error);
}

/* Packs into `partial`, OUTPUT.partial. */
static by_status run(const by_image_pack_options *o, char *partial, by_image_pack_result *result,
                     by_error *error)
{
    image_packer p = {.options = o,
                      .partial = partial,
                      .ranks = o->ranks > 0 ? o->ranks : 1,
                      .lock = PTHREAD_MUTEX_INITIALIZER};
    char **streams = NULL;
    atomic_init(&p.next, 0);
    atomic_init(&p.written, 0);
    atomic_init(&p.failed, false);
    by_status status =
        by__alloc((void **)&streams, o->input_count, sizeof *streams, "inputs", error);
    if (status == BY_OK) {
        status = by__image_pages_open(&p.pages, error);
    }
    if (status == BY_OK) {
        status = pack(&p, streams, result, error);
    }
    by__image_plan_close(&p.plan);
    by__image_pages_close(&p.pages);
    by__names_free(streams, streams == NULL ? 0 : o->input_count);
    return status;
}

by_status by_image_pack(const by_image_pack_options *o, by_image_pack_result *result,
                        by_error *error)
{
    by_string name = {0};
    char *partial;
    by_image_pack_result made = {0};
    BY_TRY(check(o, error));
    by_string_format(&name, "%s.partial", o->output);
    BY_TRY(by__string_release(&name, &partial, error));
    by_status status = run(o, partial, &made, error);
    bool refused = status == BY_EARG || status == BY_ESTOPPED;
    if (status != BY_OK && !refused && by__path_exists(o->output)) {
        /* Another rank may have finished the output, and renamed the directory under this one,
         * which then finds that the output is of the same pictures. */
        status = run(o, partial, &made, error);
    }
    free(partial);
    if (status == BY_OK && result != NULL) {
        *result = made;
    }
    return status;
}
