#include "data/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/pack_write.h"
#include "data/tokenizer/vocabulary.h"
#include "data/unit_run.h"
#include "data/workers.h"

#define UNIT_BYTES   ((uint64_t)1 << 20)
#define SHARD_TOKENS ((uint64_t)1 << 27)
#define MAX_THREADS  1024

/* ---- opening ---- */

static bool report_scan(void *user, uint64_t done)
{
    const by__pack *pack = user;
    by_pack_progress progress = {"reading", done, pack->source.bytes, 0};
    return pack->options.progress == NULL || pack->options.progress(pack->options.user, &progress);
}

by_status by__pack_open(by__pack *pack, const by_pack_options *options, by_error *error)
{
    by__pack p = {.options = *options};
    by_pack_options *o = &p.options;
    if (o->tokenizer == NULL && o->tokenizer_kind == NULL) {
        return by_error_set(error, BY_EARG, "packing needs a tokenizer");
    }
    if (!(o->valid_fraction >= 0.0 && o->valid_fraction < 1.0)) {
        return by_error_set(error, BY_EARG, "valid_fraction %g is not in [0, 1)",
                            o->valid_fraction);
    }
    if (o->threads > MAX_THREADS) {
        return by_error_set(error, BY_EARG, "%zu threads are more than %d", o->threads,
                            MAX_THREADS);
    }
    o->threads = o->threads > 0 ? o->threads : by__workers_default();
    o->shard_tokens = o->shard_tokens > 0 ? o->shard_tokens : SHARD_TOKENS;
    o->field = o->field != NULL ? o->field : "text";
    BY_TRY(by__source_open(&p.source, o->inputs, o->input_count, o->field, error));
    by_status status = by__source_scan(&p.source, o->threads, report_scan, &p, error);
    if (status == BY_OK) {
        status = by__source_hold_out(&p.source, o->valid_fraction, error);
    }
    if (status != BY_OK) {
        by__source_close(&p.source);
        return status;
    }
    *pack = p;
    return BY_OK;
}

void by__pack_close(by__pack *pack)
{
    by__source_close(&pack->source);
}

/* ---- encoding ---- */

/* What a thread has made of its unit. */
typedef struct encoded {
    by_encoder *encoder;
    char *buffer;
    size_t buffer_capacity;
    by_token_buffer ids;
    size_t *ends; /* of the documents, in ids */
    size_t end_count;
    size_t end_capacity;
    uint64_t text_bytes;
} encoded;

typedef struct packing {
    const by__pack *pack;
    int64_t eos; /* -1: documents are not marked */
    encoded *threads;
    by__pack_writer writers[2]; /* train (or all), held out */
    uint64_t done;
} packing;

static by_status add_text(encoded *e, const char *text, size_t length, by_error *error)
{
    e->text_bytes += length;
    return by_encoder_encode(e->encoder, text, length, &e->ids, BY_ENCODE_ORDINARY, error);
}

static by_status end_document(encoded *e, int64_t eos, by_error *error)
{
    if (eos >= 0) {
        BY_TRY(by__reserve((void **)&e->ids.ids, &e->ids.capacity, e->ids.count + 1,
                           sizeof *e->ids.ids, error));
        e->ids.ids[e->ids.count++] = (uint32_t)eos;
    }
    BY_TRY(
        by__reserve((void **)&e->ends, &e->end_capacity, e->end_count + 1, sizeof *e->ends, error));
    e->ends[e->end_count++] = e->ids.count;
    return BY_OK;
}

/* A thread's documents of JSON lines. */
typedef struct line_job {
    encoded *e;
    int64_t eos;
} line_job;

static by_status encode_line(void *context, const by_text *text, by_error *error)
{
    const line_job *job = context;
    if (text->length == 0) {
        return BY_OK;
    }
    BY_TRY(add_text(job->e, text->data, text->length, error));
    return end_document(job->e, job->eos, error);
}

static by_status encode_unit(void *context, size_t thread, const by__unit *unit, by_error *error)
{
    packing *p = context;
    encoded *e = &p->threads[thread];
    e->ids.count = 0;
    e->end_count = 0;
    e->text_bytes = 0;
    BY_TRY(by__unit_read(unit, &e->buffer, &e->buffer_capacity, error));
    if (unit->file->json_lines) {
        line_job job = {e, p->eos};
        return by__unit_texts(unit, e->buffer, encode_line, &job, error);
    }
    by_status status = add_text(e, e->buffer, (size_t)(unit->end - unit->begin), error);
    if (status != BY_OK) {
        return by_error_prefix(error, status, "%s, in the part from byte %" PRIu64 " on",
                               unit->file->path, unit->begin);
    }
    /* What is cut in two has no end in its first part. */
    return unit->ends_document ? end_document(e, unit->is_cut ? -1 : p->eos, error) : BY_OK;
}

static by_status take_unit(void *context, size_t thread, const by__unit *unit, by_error *error)
{
    packing *p = context;
    const encoded *e = &p->threads[thread];
    by__pack_writer *w = &p->writers[unit->held_out ? 1 : 0];
    BY_TRY(by__pack_writer_add(w, e->ids.ids, e->ids.count, error));
    for (size_t i = 0; i < e->end_count; i++) {
        BY_TRY(by__pack_writer_end_document(w, e->ids.count - e->ends[i], error));
    }
    w->manifest.text_bytes += e->text_bytes;
    p->done += unit->end - unit->begin;
    const by_pack_options *o = &p->pack->options;
    by_pack_progress progress = {"packing", p->done, p->pack->source.bytes,
                                 p->writers[0].manifest.tokens + p->writers[1].manifest.tokens};
    if (o->progress != NULL && !o->progress(o->user, &progress)) {
        return by_error_set(error, BY_ESTOPPED, "stopped while packing");
    }
    return BY_OK;
}

static by_status run_threads(packing *p, const by_tokenizer *tokenizer, by_error *error)
{
    size_t threads = p->pack->options.threads;
    by__unit_job job = {.context = p,
                        .work = encode_unit,
                        .take = take_unit,
                        .threads = threads,
                        .wanted = UNIT_BYTES,
                        /* An added token may lie across a place to cut. */
                        .whole = by__added_any(tokenizer, BY_ENCODE_ORDINARY)};
    by_status status =
        by__alloc((void **)&p->threads, threads, sizeof *p->threads, "threads", error);
    for (size_t i = 0; i < threads && status == BY_OK; i++) {
        status = by_encoder_open(&p->threads[i].encoder, tokenizer, error);
    }
    if (status == BY_OK) {
        status = by__unit_run(&p->pack->source, &job, error);
    }
    for (size_t i = 0; i < threads && p->threads != NULL; i++) {
        encoded *e = &p->threads[i];
        by_encoder_close(&e->encoder);
        by_token_buffer_free(&e->ids);
        free(e->ends);
        free(e->buffer);
    }
    free(p->threads);
    return status;
}

/* ---- writing ---- */

static by_status open_writer(packing *p, const by_tokenizer *tokenizer, unsigned part,
                             const char *directory, const char *name, by_error *error)
{
    const by__source *s = &p->pack->source;
    by__pack_writer *w = &p->writers[part];
    char *path = by__path_join(directory, name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status =
        by__pack_writer_open(w, path, tokenizer, p->eos >= 0, p->pack->options.shard_tokens, error);
    for (size_t i = 0; i < s->count && status == BY_OK; i++) {
        status = by__pack_writer_add_source(w, s->files[i].path, s->files[i].bytes,
                                            s->files[i].hash, error);
    }
    free(path);
    return status;
}

static by_status pack_into(const by__pack *pack, const by_tokenizer *tokenizer,
                           const char *directory, by_pack_result *result, by_error *error)
{
    packing p = {.pack = pack, .eos = pack->options.no_eos ? -1 : by_tokenizer_eos(tokenizer)};
    bool split = pack->options.valid_fraction > 0.0;
    by_status status = open_writer(&p, tokenizer, 0, directory, split ? "train" : "", error);
    if (status == BY_OK && split) {
        status = open_writer(&p, tokenizer, 1, directory, "valid", error);
    }
    double start = by__now();
    if (status == BY_OK) {
        status = run_threads(&p, tokenizer, error);
    }
    result->encode_seconds = by__now() - start;
    if (status == BY_OK && p.writers[0].manifest.tokens + p.writers[1].manifest.tokens == 0) {
        status = by_error_set(error, BY_EFORMAT, "the inputs hold no text");
    }
    for (unsigned i = 0; i < (split ? 2u : 1u) && status == BY_OK; i++) {
        status = by__pack_writer_finish(&p.writers[i], error);
        result->tokens += p.writers[i].manifest.tokens;
        result->documents += p.writers[i].manifest.documents;
        result->text_bytes += p.writers[i].manifest.text_bytes;
    }
    result->valid_tokens = p.writers[1].manifest.tokens;
    result->vocab = by_tokenizer_vocab(tokenizer);
    by__pack_writer_close(&p.writers[0]);
    by__pack_writer_close(&p.writers[1]);
    return status;
}

static by_status system_error(by_error *error, const char *verb, const char *path)
{
    return by_error_set(error, BY_EIO, "cannot %s %s: %s", verb, path, strerror(errno));
}

/* Makes and locks the directory that will become `output`. The lock is on the directory itself, so
 * it ends with the process and leaves nothing behind. *fd is -1 when output is there. */
static by_status lock_partial(const char *partial, const char *output, bool wait, int *fd,
                              by_error *error)
{
    for (;;) {
        struct stat held;
        struct stat named;
        if (by__path_exists(output)) {
            *fd = -1;
            return BY_OK;
        }
        BY_TRY(by__make_dirs(partial, error));
        int lock = open(partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (lock < 0 && errno == ENOENT) {
            continue; /* renamed just now */
        }
        if (lock < 0) {
            return system_error(error, "open", partial);
        }
        while (flock(lock, wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) {
            if (errno != EINTR) {
                by_status status =
                    errno == EWOULDBLOCK
                        ? by_error_set(error, BY_EARG, "another process is packing into %s", output)
                        : system_error(error, "lock", partial);
                (void)close(lock);
                return status;
            }
        }
        if (fstat(lock, &held) == 0 && stat(partial, &named) == 0 && held.st_ino == named.st_ino &&
            held.st_dev == named.st_dev) {
            *fd = lock;
            return BY_OK;
        }
        (void)close(lock); /* the one that had it has renamed or removed it */
    }
}

/* Removes what a killed process left in a directory, but not the directory, which is locked. */
static by_status empty(const char *directory, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, directory, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *path = by__path_join(directory, names[i]);
        status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                              : by__remove_tree(path, error);
        free(path);
    }
    by__names_free(names, count);
    return status;
}

static by_status sync_parent(const char *path, by_error *error)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? by__strdup(".")
                                 : by__strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (parent == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = by__sync_dir(parent, error);
    free(parent);
    return status;
}

static by_status write_locked(const by__pack *pack, const by_tokenizer *tokenizer,
                              const char *partial, const char *output, by_pack_result *result,
                              by_error *error)
{
    BY_TRY(empty(partial, error));
    by_status status = pack_into(pack, tokenizer, partial, result, error);
    if (status == BY_OK && rename(partial, output) != 0) {
        status = system_error(error, "rename to", output);
    }
    if (status == BY_OK) {
        return sync_parent(output, error);
    }
    (void)by__remove_tree(partial, NULL);
    return status;
}

by_status by__pack_write(const by__pack *pack, const by_tokenizer *tokenizer, const char *output,
                         bool wait, by_pack_result *result, by_error *error)
{
    int fd = -1;
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/') {
        n--;
    }
    by__text name = {0};
    char *partial = NULL;
    char *clean = by__strndup(output, n);
    by__text_add_bytes(&name, output, n);
    by__text_add(&name, ".partial");
    by_status status = by__text_take(&name, &partial, error);
    if (status == BY_OK && clean == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK) {
        status = lock_partial(partial, clean, wait, &fd, error);
    }
    if (status == BY_OK && fd < 0 && !wait) {
        status = by_error_set(error, BY_EARG,
                              "%s exists: remove it or name another output directory", clean);
    } else if (status == BY_OK && fd >= 0) {
        status = write_locked(pack, tokenizer, partial, clean, result, error);
        (void)close(fd);
    }
    free(partial);
    free(clean);
    return status;
}

by_status by_pack(const by_pack_options *options, by_pack_result *result, by_error *error)
{
    by__pack pack;
    by_pack_result made = {0};
    by_tokenizer *own = NULL;
    if (options->output == NULL || options->output[0] == '\0') {
        return by_error_set(error, BY_EARG, "packing needs an output directory");
    }
    if (by__path_exists(options->output)) {
        return by_error_set(error, BY_EARG, "%s exists: remove it or name another output directory",
                            options->output);
    }
    BY_TRY(by__pack_open(&pack, options, error));
    by_status status = BY_OK;
    if (options->tokenizer == NULL) {
        double began = by__now();
        status = by__pack_make_tokenizer(&pack, &own, error);
        made.learn_seconds = by__now() - began;
    }
    if (status == BY_OK) {
        status = by__pack_write(&pack, own != NULL ? own : options->tokenizer, options->output,
                                false, &made, error);
    }
    by_tokenizer_close(&own);
    by__pack_close(&pack);
    if (status == BY_OK && result != NULL) {
        *result = made;
    }
    return status;
}
