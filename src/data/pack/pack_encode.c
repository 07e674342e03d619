/* Texts to token shards: threads encode units, which are written in order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/pack/pack.h"
#include "data/pack/shard_writer.h"
#include "data/pack/unit_run.h"
#include "data/tokenizer/vocabulary.h"

#define UNIT_BYTES ((uint64_t)1 << 20)

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
    by__shard_writer writers[2]; /* train (or all), held out */
    uint64_t done;
    const by__source_file *file; /* whose bytes are hashed as they are taken */
    by__hasher *hasher;
} packing;

/* The file that was encoded last must be the one that was scanned: what is packed is named after
 * the hash of the scan. */
static by_status check_file(packing *p, by_error *error)
{
    char hash[33];
    if (p->file == NULL) {
        return BY_OK;
    }
    by__hasher_hex(p->hasher, hash);
    by__hasher_close(&p->hasher);
    if (strcmp(hash, p->file->hash) != 0) {
        return by_error_set(error, BY_EFORMAT, "%s changed while it was packed; pack it again",
                            p->file->path);
    }
    p->file = NULL;
    return BY_OK;
}

/* Hashes a unit; units come in the order of their bytes. */
static by_status hash_unit(packing *p, const by__unit *unit, const char *bytes, by_error *error)
{
    if (p->file != unit->file) {
        BY_TRY(check_file(p, error));
        BY_TRY(by__hasher_open(&p->hasher, error));
        p->file = unit->file;
        by__hasher_add(p->hasher, BY__BYTE_ORDER_MARK, (size_t)unit->file->mark_bytes);
    }
    by__hasher_add(p->hasher, bytes, (size_t)(unit->end - unit->begin));
    return BY_OK;
}

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
    by__shard_writer *w = &p->writers[unit->held_out ? 1 : 0];
    BY_TRY(hash_unit(p, unit, e->buffer, error));
    BY_TRY(by__shard_writer_add(w, e->ids.ids, e->ids.count, error));
    for (size_t i = 0; i < e->end_count; i++) {
        BY_TRY(by__shard_writer_end_document(w, e->ids.count - e->ends[i], error));
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
                        /* An added token may span a place to cut. */
                        .whole = by__added_any(tokenizer, BY_ENCODE_ORDINARY)};
    by_status status =
        by__alloc((void **)&p->threads, threads, sizeof *p->threads, "threads", error);
    for (size_t i = 0; i < threads && status == BY_OK; i++) {
        status = by_encoder_open(&p->threads[i].encoder, tokenizer, error);
    }
    if (status == BY_OK) {
        status = by__unit_run(&p->pack->source, &job, error);
    }
    if (status == BY_OK) {
        status = check_file(p, error);
    }
    by__hasher_close(&p->hasher);
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
    by__shard_writer *w = &p->writers[part];
    char *path = by__path_join(directory, name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = by__shard_writer_open(w, path, tokenizer, p->eos >= 0,
                                             p->pack->options.shard_tokens, error);
    for (size_t i = 0; i < s->count && status == BY_OK; i++) {
        status = by__shard_writer_add_source(w, s->files[i].path, s->files[i].bytes,
                                             s->files[i].hash, error);
    }
    free(path);
    return status;
}

by_status by__pack_encode(const by__pack *pack, const by_tokenizer *tokenizer,
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
        status = by__shard_writer_finish(&p.writers[i], error);
        result->tokens += p.writers[i].manifest.tokens;
        result->documents += p.writers[i].manifest.documents;
        result->text_bytes += p.writers[i].manifest.text_bytes;
    }
    result->valid_tokens = p.writers[1].manifest.tokens;
    result->vocab = by_tokenizer_vocab(tokenizer);
    by__shard_writer_close(&p.writers[0]);
    by__shard_writer_close(&p.writers[1]);
    return status;
}
