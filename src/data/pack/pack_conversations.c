/* Packs conversations: their tokens, and a mask of those that are learned. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "data/corpus/record_reader.h"
#include "data/loader/damage.h"
#include "data/pack/pack.h"
#include "data/pack/shard_writer.h"

/* Records between two reports. */
#define REPORTED 64

/* The samples of a conversation, one behind the other. */
typedef struct kept_conversation {
    uint32_t *ids;
    uint8_t *learned;
    size_t id_capacity;
    size_t learned_capacity;
    by_conversation_sample *samples;
    size_t sample_capacity;
    by_conversation_result result; /* no samples: none is kept */
} kept_conversation;

typedef struct chat_packer {
    const by__data_pack *pack;
    bool split;
    by_conversation_encoder *encoder;
    by__data_shard_writer writers[2]; /* train (or all), held out */
    uint64_t records;
    uint64_t done; /* bytes of earlier files */
    by__data_chat_manifest counts;
    /* The last conversation as long as none is held out: it is, if no other one is by the end. */
    kept_conversation kept;
} chat_packer;

static by_status open_writer(chat_packer *p, const by_tokenizer *tokenizer, unsigned part,
                             const char *directory, const char *name, by_error *error)
{
    const by__data_source *s = &p->pack->source;
    by__data_shard_writer *w = &p->writers[part];
    char *path;
    BY_TRY(by__path_make(&path, directory, name, error));
    by_status status =
        by__data_shard_writer_open(w, path, tokenizer, false, p->pack->options.shard_tokens, error);
    if (status == BY_OK) {
        status = by__data_shard_writer_open_mask(w, p->pack->options.chat->chat, error);
        w->manifest.chat.pairs = p->pack->options.chat->options.form == BY_CONVERSATION_PREFERENCE;
    }
    for (size_t i = 0; i < s->count && status == BY_OK; i++) {
        status = by__data_shard_writer_add_source(w, s->files[i].path, s->files[i].bytes,
                                                  s->files[i].hash, error);
    }
    free(path);
    return status;
}

/* Whether record n is held out: so many of each 1 / fraction, from the last on. */
static bool is_held_out(const chat_packer *p, uint64_t n)
{
    double fraction = p->pack->options.valid_fraction;
    return floor((double)(n + 1) * fraction) > floor((double)n * fraction);
}

static by_status write_sample(by__data_shard_writer *w, const by_conversation_sample *s,
                              by_error *error)
{
    BY_TRY(by__data_shard_writer_add(w, s->ids, s->count, error));
    BY_TRY(by__data_shard_writer_add_mask(w, s->learned, s->count, error));
    BY_TRY(by__data_shard_writer_end_document(w, error));
    w->manifest.chat.targets += s->targets;
    return BY_OK;
}

static by_status write_kept(chat_packer *p, unsigned part, by_error *error)
{
    const uint32_t *ids = p->kept.ids;
    const uint8_t *learned = p->kept.learned;
    for (size_t i = 0; i < p->kept.result.samples; i++) {
        by_conversation_sample s = p->kept.samples[i];
        s.ids = ids;
        s.learned = learned;
        BY_TRY(write_sample(&p->writers[part], &s, error));
        ids += s.count;
        learned += s.count;
    }
    p->writers[part].manifest.text_bytes += p->kept.result.text_bytes;
    p->kept.result = (by_conversation_result){0};
    return BY_OK;
}

static by_status keep(chat_packer *p, const by_conversation_result *r, by_error *error)
{
    kept_conversation *k = &p->kept;
    size_t count = 0;
    BY_TRY(by__reserve((void **)&k->samples, &k->sample_capacity, r->samples, sizeof *k->samples,
                       error));
    for (size_t i = 0; i < r->samples; i++) {
        by_conversation_sample s = by_conversation_encoder_sample(p->encoder, i);
        size_t total = count + s.count;
        BY_TRY(by__reserve((void **)&k->ids, &k->id_capacity, total, sizeof *k->ids, error));
        BY_TRY(by__reserve((void **)&k->learned, &k->learned_capacity, total, 1, error));
        memcpy(k->ids + count, s.ids, s.count * sizeof *k->ids);
        memcpy(k->learned + count, s.learned, s.count);
        k->samples[i] = s;
        count = total;
    }
    k->result = *r;
    return BY_OK;
}

static by_status write_samples(chat_packer *p, const by_conversation_result *r, by_error *error)
{
    bool held_out = is_held_out(p, p->records);
    by__data_shard_writer *w = &p->writers[held_out ? 1 : 0];
    p->counts.too_long += r->long_ones;
    p->counts.cut += r->cut;
    p->counts.lost += r->lost;
    if (r->samples > 0) {
        BY_TRY(write_kept(p, 0, error));
        if (p->split && !held_out && p->writers[1].manifest.documents == 0) {
            return keep(p, r, error);
        }
    }
    for (size_t i = 0; i < r->samples; i++) {
        by_conversation_sample s = by_conversation_encoder_sample(p->encoder, i);
        BY_TRY(write_sample(w, &s, error));
    }
    w->manifest.text_bytes += r->text_bytes;
    return BY_OK;
}

/* One of two conversations is held out, however small the share is. */
static by_status place_kept(chat_packer *p, by_error *error)
{
    bool holds_out = p->writers[0].manifest.documents > 0;
    if (p->kept.result.samples > 0 && holds_out) {
        by__data_pack_note(p->pack,
                           "valid_fraction %g would hold out none of %" PRIu64
                           " conversations: the last one is held out",
                           p->pack->options.valid_fraction, p->records);
    }
    return write_kept(p, holds_out ? 1 : 0, error);
}

static by_status refuse_records(const chat_packer *p, by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%" PRIu64 " of %" PRIu64 " records are no conversations that can be "
                        "learned, more than corrupt_budget %g allows",
                        p->counts.corrupt, p->records, p->pack->options.corrupt_budget);
}

/* A record that cannot be learned. */
static by_status skip_record(chat_packer *p, const by__data_record *record, by_status status,
                             by_error *error)
{
    const by_pack_options *o = &p->pack->options;
    if (status != BY_EFORMAT && status != BY_EARG) {
        return status;
    }
    if (!o->skip_corrupt) {
        return by_error_prefix(error, BY_EFORMAT, "%s:%" PRIu64, record->path, record->line);
    }
    by__data_pack_note(p->pack, "%s:%" PRIu64 ": left out: %s", record->path, record->line,
                       error->message);
    p->counts.corrupt++;
    return o->corrupt_budget >= 1.0 && (double)p->counts.corrupt > o->corrupt_budget
               ? refuse_records(p, error)
               : BY_OK;
}

static by_status report(const chat_packer *p, uint64_t at, by_error *error)
{
    const by_pack_options *o = &p->pack->options;
    by_pack_progress progress = {"packing", p->done + at, p->pack->source.bytes,
                                 p->writers[0].manifest.tokens + p->writers[1].manifest.tokens};
    return o->progress == NULL || o->progress(o->user, &progress)
               ? BY_OK
               : by_error_set(error, BY_ESTOPPED, "stopped while packing");
}

static by_status pack_record(chat_packer *p, const by__data_record *record, by_error *error)
{
    by_conversation_result r;
    by_error why = {0};
    by_status status = by_conversation_encode(p->encoder, record->text, record->length, &r, &why);
    if (status == BY_OK) {
        BY_TRY(write_samples(p, &r, error));
    } else {
        *error = why;
        BY_TRY(skip_record(p, record, status, error));
    }
    p->records++;
    return p->records % REPORTED == 0 ? report(p, record->at, error) : BY_OK;
}

static by_status pack_file(chat_packer *p, const by__data_source_file *file, by_error *error)
{
    by__data_record_reader reader;
    by__data_record record;
    bool found = true;
    BY_TRY(by__data_record_reader_open(&reader, file, error));
    by_status status = BY_OK;
    while (status == BY_OK) {
        status = by__data_record_next(&reader, &record, &found, error);
        if (status != BY_OK || !found) {
            break;
        }
        status = pack_record(p, &record, error);
    }
    by__data_record_reader_close(&reader);
    p->done += file->bytes;
    return status;
}

static by_status pack_files(chat_packer *p, by_error *error)
{
    const by__data_source *s = &p->pack->source;
    const by_pack_options *o = &p->pack->options;
    for (size_t i = 0; i < s->count; i++) {
        const char *path = s->files[i].path;
        if (by__ends_with(path, ".txt") || by__ends_with(path, ".md") ||
            by__ends_with(path, ".text")) {
            by__data_pack_note(p->pack, "%s is passed over: it holds no conversations", path);
        } else {
            BY_TRY(pack_file(p, &s->files[i], error));
        }
    }
    if (o->skip_corrupt &&
        (double)p->counts.corrupt > by__loader_damage_allowed(o->corrupt_budget, p->records)) {
        return refuse_records(p, error);
    }
    return BY_OK;
}

/* What was left out is always reported. */
static void note_long(const chat_packer *p)
{
    const by__data_chat_manifest *c = &p->counts;
    if (c->too_long + c->cut > 0) {
        by__data_pack_note(p->pack,
                           "%" PRIu64 " samples are longer than the context of %zu tokens: "
                           "%" PRIu64 " left out, %" PRIu64 " cut behind an answer; %" PRIu64
                           " learned tokens are lost",
                           c->too_long + c->cut, p->pack->options.chat->options.context,
                           c->too_long, c->cut, c->lost);
    }
}

static by_status check_parts(const chat_packer *p, by_error *error)
{
    for (unsigned i = 0; i < (p->split ? 2u : 1u); i++) {
        if (p->writers[i].manifest.documents == 0) {
            bool cuts = p->pack->options.chat->options.longer == BY_LONG_CUT;
            const by__data_source *s = &p->pack->source;
            if (p->records == 0) {
                return by_error_set(error, BY_EFORMAT,
                                    "%s%s no records: give conversations as JSON "
                                    "lines, as a .json file with a list, or as Parquet",
                                    s->files[0].path,
                                    s->count == 1 ? " has" : " and the rest have");
            }
            return by_error_set(error, BY_EFORMAT,
                                "%s: of %" PRIu64 " records, %" PRIu64
                                " are left out as no conversations and "
                                "%" PRIu64 " as longer than the context%s",
                                i == 0 ? "the inputs hold no conversation that can be learned"
                                       : "there is one conversation, and evaluation needs another: "
                                         "give more, or set data.valid_fraction to 0 to train "
                                         "without evaluation",
                                p->records, p->counts.corrupt, p->counts.too_long,
                                p->counts.too_long == 0 ? ""
                                : cuts ? " up to the end of the first answer (raise model.context)"
                                       : " (raise model.context, or set chat.long to cut)");
        }
    }
    return BY_OK;
}

static by_status finish(chat_packer *p, by_pack_result *result, by_error *error)
{
    for (unsigned i = 0; i < (p->split ? 2u : 1u); i++) {
        by__data_token_manifest *m = &p->writers[i].manifest;
        by__data_chat_manifest *c = &m->chat;
        c->records = p->records;
        c->corrupt = p->counts.corrupt;
        c->too_long = p->counts.too_long;
        c->cut = p->counts.cut;
        c->lost = p->counts.lost;
        BY_TRY(by__data_shard_writer_finish(&p->writers[i], error));
        result->tokens += m->tokens;
        result->documents += m->documents;
        result->text_bytes += m->text_bytes;
        result->targets += c->targets;
    }
    result->valid_tokens = p->writers[1].manifest.tokens;
    result->vocab = p->writers[0].manifest.vocab;
    result->corrupt_lines = p->counts.corrupt;
    result->too_long = p->counts.too_long;
    result->cut = p->counts.cut;
    return BY_OK;
}

by_status by__data_pack_encode_chat(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                    const char *directory, by_pack_result *result, by_error *error)
{
    const by_pack_chat *chat = pack->options.chat;
    chat_packer p = {.pack = pack, .split = pack->options.valid_fraction > 0.0};
    by_status status = open_writer(&p, tokenizer, 0, directory, p.split ? "train" : "", error);
    if (status == BY_OK && p.split) {
        status = open_writer(&p, tokenizer, 1, directory, "valid", error);
    }
    if (status == BY_OK) {
        status =
            by_conversation_encoder_open(&p.encoder, chat->chat, tokenizer, &chat->options, error);
    }
    double start = by__now();
    if (status == BY_OK) {
        status = pack_files(&p, error);
    }
    status = status == BY_OK ? place_kept(&p, error) : status;
    result->encode_seconds = by__now() - start;
    if (status == BY_OK) {
        note_long(&p);
        status = check_parts(&p, error);
    }
    if (status == BY_OK) {
        status = finish(&p, result, error);
    }
    by_conversation_encoder_close(&p.encoder);
    free(p.kept.ids);
    free(p.kept.learned);
    free(p.kept.samples);
    by__data_shard_writer_close(&p.writers[0]);
    by__data_shard_writer_close(&p.writers[1]);
    return status;
}
