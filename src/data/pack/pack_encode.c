/* Encodes texts to token shards: threads encode units, which are written in order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "data/loader/damage.h"
#include "data/pack/duplicates.h"
#include "data/pack/pack.h"
#include "data/pack/pack_pieces.h"
#include "data/pack/shard_writer.h"
#include "data/pack/unit_run.h"
#include "text/tokenizer/vocabulary.h"

#define UNIT_BYTES  ((uint64_t)1 << 20)
#define MOST_PIECES ((uint64_t)1024)
#define MOST_UNITS  ((uint64_t)64) /* of a piece, which a rank has in memory */

/* A thread's result for its unit. */
typedef struct encoded {
    by_encoder *encoder;
    char *buffer;
    size_t buffer_capacity;
    by__data_unit_tokens tokens;
} encoded;

typedef struct pack_encoder {
    const by__data_pack *pack;
    int64_t eos; /* -1: documents are not marked */
    encoded *threads;
    by__data_shard_writer writers[2]; /* train (or all), held out */
    by__data_duplicates seen;
    by_pack_result result; /* only the counts of duplicates and skipped lines */
    uint64_t done;
    uint64_t texts;                   /* lines with a text */
    const by__data_source_file *file; /* whose bytes are hashed as units are taken */
    uint64_t lines;                   /* lines taken so far */
    by__hasher *hasher;
    by__data_piece_writer pieces; /* of this rank's share */
    uint64_t piece_units;         /* units of a piece */
    uint64_t passed;              /* the last piece that was asked for, and one more, */
    bool passes;                  /* and whether it is passed over */
} pack_encoder;

/* Checks that the last encoded file is unchanged since the scan, whose hash names the result. */
static by_status check_file(pack_encoder *p, by_error *error)
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

/* Hashes a unit; units arrive in the order of their bytes. */
static by_status hash_unit(pack_encoder *p, const by__data_format_unit *unit, const char *bytes,
                           by_error *error)
{
    if (p->file != unit->file) {
        BY_TRY(check_file(p, error));
        BY_TRY(by__hasher_open(&p->hasher, error));
        p->file = unit->file;
        p->lines = 0;
        by__hasher_add(p->hasher, BY__BYTE_ORDER_MARK, (size_t)unit->file->mark_bytes);
    }
    by__hasher_add(p->hasher, bytes, (size_t)(unit->end - unit->begin));
    return BY_OK;
}

static by_status add_text(encoded *e, const char *text, size_t length, by_error *error)
{
    e->tokens.text_bytes += length;
    return by_encoder_encode(e->encoder, text, length, &e->tokens.ids, BY_ENCODE_ORDINARY, error);
}

/* Ends a document; `text` is its whole text if duplicates are removed. */
static by_status end_document(const pack_encoder *p, encoded *e, bool is_marked, const char *text,
                              size_t length, by_error *error)
{
    by__data_unit_tokens *t = &e->tokens;
    if (p->eos >= 0 && is_marked) {
        BY_TRY(by__reserve((void **)&t->ids.ids, &t->ids.capacity, t->ids.count + 1,
                           sizeof *t->ids.ids, error));
        t->ids.ids[t->ids.count++] = (uint32_t)p->eos;
    }
    BY_TRY(by__reserve((void **)&t->documents, &t->document_capacity, t->document_count + 1,
                       sizeof *t->documents, error));
    by__data_unit_document *d = &t->documents[t->document_count++];
    *d = (by__data_unit_document){.end = t->ids.count, .text_bytes = t->text_bytes};
    t->text_bytes = 0;
    if (p->pack->options.dedup != BY_PACK_DEDUP_NONE) {
        by__data_signature_make(&d->signature, text, length, p->pack->options.dedup);
    }
    return BY_OK;
}

/* A thread's state for documents of JSON lines. */
typedef struct line_job {
    const pack_encoder *p;
    encoded *e;
    bool is_cut; /* the document has its end in another part */
} line_job;

static by_status encode_line(void *context, const by_text *text, by_error *error)
{
    const line_job *job = context;
    job->e->tokens.texts++;
    if (text->length == 0) {
        return BY_OK;
    }
    BY_TRY(add_text(job->e, text->data, text->length, error));
    return end_document(job->p, job->e, !job->is_cut, text->data, text->length, error);
}

static by_status skip_line(void *context, size_t line, const by_error *why, by_error *error)
{
    by__data_unit_tokens *t = &((const line_job *)context)->e->tokens;
    BY_TRY(by__reserve((void **)&t->skipped, &t->skipped_capacity, t->skipped_count + 1,
                       sizeof *t->skipped, error));
    by__data_unit_skip *skipped = &t->skipped[t->skipped_count++];
    *skipped = (by__data_unit_skip){.line = line};
    (void)snprintf(skipped->reason, sizeof skipped->reason, "%.127s", why->message);
    return BY_OK;
}

static uint64_t count_lines(const char *at, size_t length)
{
    uint64_t lines = 0;
    for (const char *end = at + length; at < end; at++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at == NULL) {
            break;
        }
        lines++;
    }
    return lines;
}

static by_status encode_unit(void *context, size_t thread, const by__data_format_unit *unit,
                             by_error *error)
{
    pack_encoder *p = context;
    encoded *e = &p->threads[thread];
    by__data_unit_tokens *t = &e->tokens;
    t->ids.count = 0;
    t->document_count = 0;
    t->text_bytes = 0;
    t->texts = 0;
    t->lines = 0;
    t->skipped_count = 0;
    BY_TRY(by__data_unit_read(unit, &e->buffer, &e->buffer_capacity, error));
    if (unit->file->json_lines) {
        t->lines = count_lines(e->buffer, (size_t)(unit->end - unit->begin));
        line_job job = {p, e, unit->part == BY__UNIT_KEPT};
        const by__data_line_takers to = {.take = encode_line,
                                         .skip = p->pack->options.skip_corrupt ? skip_line : NULL,
                                         .context = &job};
        return by__data_unit_texts(unit, e->buffer, &to, error);
    }
    size_t length = (size_t)(unit->end - unit->begin);
    by_status status = add_text(e, e->buffer, length, error);
    if (status != BY_OK) {
        return by_error_prefix(error, status, "%s, in the part from byte %" PRIu64 " on",
                               unit->file->path, unit->begin);
    }
    /* A document cut by the held-out part has no end in its first part. */
    return unit->ends_document ? end_document(p, e, !unit->is_cut, e->buffer, length, error)
                               : BY_OK;
}

/* Decides whether a document is kept, and counts removed ones. */
static by_status is_new(pack_encoder *p, const by__data_unit_document *d, bool *out,
                        by_error *error)
{
    by_pack_dedup kind = BY_PACK_DEDUP_NONE;
    if (p->pack->options.dedup != BY_PACK_DEDUP_NONE) {
        BY_TRY(by__data_duplicates_add(&p->seen, &d->signature, &kind, error));
    }
    p->result.exact_duplicates += kind == BY_PACK_DEDUP_EXACT;
    p->result.near_duplicates += kind == BY_PACK_DEDUP_NEAR;
    p->result.duplicate_bytes += kind == BY_PACK_DEDUP_NONE ? 0 : d->text_bytes;
    *out = kind == BY_PACK_DEDUP_NONE;
    return BY_OK;
}

/* Writes a unit's documents, and its unfinished rest. */
static by_status write_unit(pack_encoder *p, by__data_shard_writer *w,
                            const by__data_unit_tokens *t, by_error *error)
{
    size_t begin = 0;
    for (size_t i = 0; i < t->document_count; i++) {
        const by__data_unit_document *d = &t->documents[i];
        bool stays;
        BY_TRY(is_new(p, d, &stays, error));
        if (stays) {
            BY_TRY(by__data_shard_writer_add(w, t->ids.ids + begin, d->end - begin, error));
            BY_TRY(by__data_shard_writer_end_document(w, error));
            w->manifest.text_bytes += d->text_bytes;
        }
        begin = d->end;
    }
    w->manifest.text_bytes += t->text_bytes;
    return by__data_shard_writer_add(w, t->ids.ids + begin, t->ids.count - begin, error);
}

static by_status refuse_lines(const pack_encoder *p, by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%" PRIu64 " of %" PRIu64
                        " lines of JSON so far hold no text, and a budget of %g was given for "
                        "them (data.corrupt_budget): mend them, or raise it; below 1 it is a "
                        "share, from 1 on their number",
                        p->result.corrupt_lines, p->texts + p->result.corrupt_lines,
                        p->pack->options.corrupt_budget);
}

/* Reports the skipped lines of a unit, and checks that there are not too many. */
static by_status note_lines(pack_encoder *p, const by__data_format_unit *unit,
                            const by__data_unit_tokens *t, by_error *error)
{
    double budget = p->pack->options.corrupt_budget;
    for (size_t i = 0; i < t->skipped_count; i++) {
        p->result.corrupt_lines++;
        by__data_pack_note(p->pack, "%s:%" PRIu64 ": left out: %s", unit->file->path,
                           p->lines + t->skipped[i].line, t->skipped[i].reason);
        if (budget >= 1.0 && (double)p->result.corrupt_lines > budget) {
            return refuse_lines(p, error);
        }
    }
    p->texts += t->texts;
    p->lines += t->lines;
    return BY_OK;
}

/* Checks the share of skipped lines. */
static by_status check_share(const pack_encoder *p, by_error *error)
{
    const by_pack_options *o = &p->pack->options;
    uint64_t all = p->texts + p->result.corrupt_lines;
    bool fits = !o->skip_corrupt || (double)p->result.corrupt_lines <=
                                        by__loader_damage_allowed(o->corrupt_budget, all);
    return fits ? BY_OK : refuse_lines(p, error);
}

static by_status report(const pack_encoder *p, uint64_t total, by_error *error)
{
    const by_pack_options *o = &p->pack->options;
    by_pack_progress progress = {"packing", p->done, total,
                                 p->writers[0].manifest.tokens + p->writers[1].manifest.tokens};
    return o->progress == NULL || o->progress(o->user, &progress)
               ? BY_OK
               : by_error_set(error, BY_ESTOPPED, "stopped while packing");
}

/* Takes the tokens of the next unit. */
static by_status append_tokens(pack_encoder *p, const by__data_format_unit *unit,
                               const by__data_unit_tokens *tokens, by_error *error)
{
    if (unit->part != BY__UNIT_REST) { /* whose bytes were taken with the other part */
        BY_TRY(note_lines(p, unit, tokens, error));
        p->done += unit->end - unit->begin;
    }
    BY_TRY(write_unit(p, &p->writers[unit->held_out ? 1 : 0], tokens, error));
    return report(p, p->pack->source.bytes, error);
}

static by_status append_unit(void *context, size_t thread, const by__data_format_unit *unit,
                             by_error *error)
{
    pack_encoder *p = context;
    const encoded *e = &p->threads[thread];
    if (unit->part != BY__UNIT_REST) {
        BY_TRY(hash_unit(p, unit, e->buffer, error));
    }
    return append_tokens(p, unit, &e->tokens, error);
}

/* Texts must be whole if an added token may span a cut, or to find copies. */
static bool needs_whole(const pack_encoder *p, const by_tokenizer *tokenizer)
{
    return by__tokenizer_added_any(tokenizer, 0, BY_ENCODE_ORDINARY) ||
           by__tokenizer_added_any(tokenizer, 1, BY_ENCODE_ORDINARY) ||
           !by__tokenizer_cuts(tokenizer) || p->pack->options.dedup != BY_PACK_DEDUP_NONE;
}

/* Runs a job over units on threads with an encoder each. */
static by_status run_job(pack_encoder *p, const by__data_unit_job *job,
                         const by_tokenizer *tokenizer, by_error *error)
{
    size_t threads = job->threads;
    by_status status =
        by__alloc((void **)&p->threads, threads, sizeof *p->threads, "threads", error);
    for (size_t i = 0; i < threads && status == BY_OK; i++) {
        status = by_encoder_open(&p->threads[i].encoder, tokenizer, error);
    }
    if (status == BY_OK) {
        status = by__data_unit_run(&p->pack->source, job, error);
    }
    for (size_t i = 0; i < threads && p->threads != NULL; i++) {
        encoded *e = &p->threads[i];
        by_encoder_close(&e->encoder);
        by__data_unit_tokens_free(&e->tokens);
        free(e->buffer);
    }
    free(p->threads);
    return status;
}

static by_status run_threads(pack_encoder *p, const by_tokenizer *tokenizer, by_error *error)
{
    const by__data_unit_job job = {.context = p,
                                   .work = encode_unit,
                                   .take = append_unit,
                                   .threads = p->pack->options.threads,
                                   .wanted = UNIT_BYTES,
                                   .whole = needs_whole(p, tokenizer)};
    by_status status = run_job(p, &job, tokenizer, error);
    if (status == BY_OK) {
        status = check_file(p, error);
    }
    by__hasher_close(&p->hasher);
    return status;
}

/* ---- shares of ranks ---- */

static unsigned token_width(const by_tokenizer *tokenizer)
{
    return by__data_token_width(by_tokenizer_vocab(tokenizer));
}

/* Units of a piece: one for small inputs, so that ranks have as much to do as each other, and more
 * where there would be too many files. */
static uint64_t units_of_piece(const by__data_pack *pack)
{
    uint64_t units = pack->source.bytes / UNIT_BYTES / MOST_PIECES;
    return units < 1 ? 1 : units < MOST_UNITS ? units : MOST_UNITS;
}

/* Passes over what other ranks encode, and pieces that are there from an earlier try. */
static by_status skip_unit(void *context, const by__data_format_unit *unit, bool *out,
                           by_error *error)
{
    pack_encoder *p = context;
    const by_pack_options *o = &p->pack->options;
    uint64_t piece = unit->number / p->piece_units;
    if (p->passed != piece + 1) {
        p->passes = by__data_piece_owner(piece, o->ranks) != o->rank;
        if (!p->passes) {
            BY_TRY(by__data_piece_is_whole(&p->passes, p->pack->pieces, piece, error));
        }
        p->passed = piece + 1;
    }
    *out = p->passes;
    return BY_OK;
}

static by_status keep_unit(void *context, size_t thread, const by__data_format_unit *unit,
                           by_error *error)
{
    pack_encoder *p = context;
    p->done += unit->part != BY__UNIT_REST ? unit->end - unit->begin : 0;
    BY_TRY(by__data_piece_add(&p->pieces, unit->number / p->piece_units, unit->number,
                              &p->threads[thread].tokens, error));
    const by_pack_options *o = &p->pack->options;
    uint64_t share = by__data_piece_share(o->rank, o->ranks);
    return report(p, p->pack->source.bytes * share / 1000, error);
}

by_status by__data_pack_encode_share(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                     by_error *error)
{
    pack_encoder p = {.pack = pack,
                      .eos = pack->options.no_eos ? -1 : by_tokenizer_eos(tokenizer),
                      .pieces = {.directory = pack->pieces, .width = token_width(tokenizer)},
                      .piece_units = units_of_piece(pack)};
    const by__data_unit_job job = {.context = &p,
                                   .work = encode_unit,
                                   .take = keep_unit,
                                   .skips = skip_unit,
                                   .threads = pack->options.threads,
                                   .wanted = UNIT_BYTES,
                                   .whole = needs_whole(&p, tokenizer)};
    by_status status = run_job(&p, &job, tokenizer, error);
    if (status == BY_OK) {
        status = by__data_piece_finish(&p.pieces, error);
    }
    by__data_piece_writer_free(&p.pieces);
    return status;
}

by_status by__data_pack_has_pieces(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                   bool *out, by_error *error)
{
    pack_encoder p = {.pack = pack};
    uint64_t units_per_piece = units_of_piece(pack);
    by__data_units units = {
        .source = &pack->source, .wanted = UNIT_BYTES, .whole = needs_whole(&p, tokenizer)};
    by__data_format_unit unit;
    bool found = true;
    *out = true;
    while (*out && found) {
        BY_TRY(by__data_units_next(&units, &unit, &found, error));
        if (found && unit.number % units_per_piece == 0) {
            BY_TRY(
                by__data_piece_is_whole(out, pack->pieces, unit.number / units_per_piece, error));
        }
    }
    return BY_OK;
}

/* Checks that no file has changed since the scan of this rank: others encoded parts of it. */
static by_status check_files(const by__data_pack *pack, by_error *error)
{
    char way_out[1024];
    (void)snprintf(way_out, sizeof way_out, "remove %s, and pack it again", pack->pieces);
    return by__data_source_check(&pack->source, pack->options.threads, way_out, error);
}

static by_status need_piece(const by__data_pack *pack, uint64_t piece, by_error *error)
{
    bool comes = pack->await_piece == NULL || pack->await_piece(pack->await_context, piece);
    return comes ? BY_OK
                 : by_error_set(error, BY_ESTOPPED, "no rank encodes piece %" PRIu64, piece);
}

/* Joins the pieces of all ranks, in the order of units. */
static by_status run_pieces(pack_encoder *p, const by_tokenizer *tokenizer, by_error *error)
{
    by__data_units units = {
        .source = &p->pack->source, .wanted = UNIT_BYTES, .whole = needs_whole(p, tokenizer)};
    by__data_piece_reader reader = {.directory = p->pack->pieces, .width = token_width(tokenizer)};
    by__data_unit_tokens tokens = {0};
    by__data_format_unit unit;
    uint64_t units_per_piece = units_of_piece(p->pack);
    bool found = true;
    by_status status = BY_OK;
    while (status == BY_OK && found) {
        status = by__data_units_next(&units, &unit, &found, error);
        if (status == BY_OK && found && unit.number % units_per_piece == 0) {
            status = need_piece(p->pack, unit.number / units_per_piece, error);
        }
        if (status != BY_OK || !found) {
            break;
        }
        if (p->file != unit.file) {
            p->file = unit.file;
            p->lines = 0;
        }
        status = by__data_piece_read(&reader, unit.number / units_per_piece, unit.number, &tokens,
                                     error);
        if (status == BY_OK) {
            status = append_tokens(p, &unit, &tokens, error);
        }
    }
    by__data_unit_tokens_free(&tokens);
    by__data_piece_reader_free(&reader);
    return status == BY_OK ? check_files(p->pack, error) : status;
}

/* ---- writing ---- */

static by_status open_writer(pack_encoder *p, const by_tokenizer *tokenizer, unsigned part,
                             const char *directory, const char *name, by_error *error)
{
    const by__data_source *s = &p->pack->source;
    by__data_shard_writer *w = &p->writers[part];
    char *path;
    BY_TRY(by__path_make(&path, directory, name, error));
    by_status status = by__data_shard_writer_open(w, path, tokenizer, p->eos >= 0,
                                                  p->pack->options.shard_tokens, error);
    for (size_t i = 0; i < s->count && status == BY_OK; i++) {
        status = by__data_shard_writer_add_source(w, s->files[i].path, s->files[i].bytes,
                                                  s->files[i].hash, error);
    }
    free(path);
    return status;
}

/* Removed documents are always reported. */
static void note_duplicates(const pack_encoder *p)
{
    uint64_t exact = p->result.exact_duplicates;
    uint64_t near = p->result.near_duplicates;
    if (exact + near > 0) {
        by__data_pack_note(p->pack,
                           "left out %" PRIu64 " exact and %" PRIu64 " near duplicates, %" PRIu64
                           " bytes of text",
                           exact, near, p->result.duplicate_bytes);
    }
}

by_status by__data_pack_encode(const by__data_pack *pack, const by_tokenizer *tokenizer,
                               const char *directory, by_pack_result *result, by_error *error)
{
    if (pack->options.chat != NULL) {
        return by__data_pack_encode_chat(pack, tokenizer, directory, result, error);
    }
    pack_encoder p = {.pack = pack, .eos = pack->options.no_eos ? -1 : by_tokenizer_eos(tokenizer)};
    bool split = pack->options.valid_fraction > 0.0;
    by_status status = open_writer(&p, tokenizer, 0, directory, split ? "train" : "", error);
    if (status == BY_OK && split) {
        status = open_writer(&p, tokenizer, 1, directory, "valid", error);
    }
    double start = by__now();
    if (status == BY_OK) {
        status = pack->pieces != NULL ? run_pieces(&p, tokenizer, error)
                                      : run_threads(&p, tokenizer, error);
    }
    if (status == BY_OK) {
        status = check_share(&p, error);
    }
    result->encode_seconds = by__now() - start;
    if (status == BY_OK && p.writers[0].manifest.tokens + p.writers[1].manifest.tokens == 0) {
        status = by_error_set(error, BY_EFORMAT, "the inputs hold no text");
    }
    if (status == BY_OK && split && p.writers[1].manifest.tokens == 0 &&
        p.result.exact_duplicates + p.result.near_duplicates > 0) {
        status = by_error_set(error, BY_EFORMAT,
                              "all held-out documents are duplicates of training documents; hold "
                              "out more, or keep duplicates");
    }
    for (unsigned i = 0; i < (split ? 2u : 1u) && status == BY_OK; i++) {
        status = by__data_shard_writer_finish(&p.writers[i], error);
        result->tokens += p.writers[i].manifest.tokens;
        result->documents += p.writers[i].manifest.documents;
        result->text_bytes += p.writers[i].manifest.text_bytes;
    }
    result->valid_tokens = p.writers[1].manifest.tokens;
    result->vocab = by_tokenizer_vocab(tokenizer);
    note_duplicates(&p);
    result->exact_duplicates = p.result.exact_duplicates;
    result->near_duplicates = p.result.near_duplicates;
    result->duplicate_bytes = p.result.duplicate_bytes;
    result->corrupt_lines = p.result.corrupt_lines;
    by__data_duplicates_free(&p.seen);
    by__data_shard_writer_close(&p.writers[0]);
    by__data_shard_writer_close(&p.writers[1]);
    return status;
}
