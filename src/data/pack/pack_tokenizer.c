/* The tokenizer of a pack: opened, or made from the packed texts. The characters are those of all
 * texts (one that only the held-out part has would have no id); a BPE is trained without the
 * held-out part. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/pack/pack.h"
#include "data/pack/unit_run.h"
#include "text/tokenizer/characters.h"
#include "text/tokenizer/word_counts.h"

#define UNIT_BYTES ((uint64_t)1 << 20)

/* A thread's statistics. */
typedef struct seen {
    char *buffer;
    size_t capacity;
    by__tokenizer_characters *characters; /* for a character vocabulary */
    by__tokenizer_word_counts words;      /* for a BPE */
} seen;

typedef struct learning {
    const by__data_pack *pack;
    seen *threads;
    uint64_t done;
} learning;

static bool report(const learning *l, double share)
{
    const by_pack_options *o = &l->pack->options;
    uint64_t total = l->pack->source.bytes;
    by_pack_progress progress = {"tokenizer", (uint64_t)(share * (double)total), total, 0};
    return o->progress == NULL || o->progress(o->user, &progress);
}

static by_status add_text(seen *s, const char *text, size_t length, const char *name,
                          by_error *error)
{
    return s->characters != NULL
               ? by__tokenizer_characters_add(s->characters, text, length, name, error)
               : by__tokenizer_word_counts_add(&s->words, text, length, error);
}

static by_status add_line(void *context, const by_text *text, by_error *error)
{
    return add_text(context, text->data, text->length, "the text", error);
}

/* Skipped lines are reported when they are encoded. */
static by_status ignore_line(void *context, size_t line, const by_error *why, by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(line);
    BY_UNUSED(why);
    BY_UNUSED(error);
    return BY_OK;
}

static by_status add_unit(void *context, size_t thread, const by__data_format_unit *unit,
                          by_error *error)
{
    learning *l = context;
    seen *s = &l->threads[thread];
    if (unit->held_out && s->characters == NULL) {
        return BY_OK;
    }
    BY_TRY(by__data_unit_read(unit, &s->buffer, &s->capacity, error));
    if (unit->file->json_lines) {
        const by__data_line_takers to = {.take = add_line,
                                         .skip = l->pack->options.skip_corrupt ? ignore_line : NULL,
                                         .context = s};
        return by__data_unit_texts(unit, s->buffer, &to, error);
    }
    char name[300];
    (void)snprintf(name, sizeof name, "%.200s, in the part from byte %" PRIu64 " on",
                   unit->file->path, unit->begin);
    return add_text(s, s->buffer, (size_t)(unit->end - unit->begin), name, error);
}

static by_status count_unit(void *context, size_t thread, const by__data_format_unit *unit,
                            by_error *error)
{
    learning *l = context;
    BY_UNUSED(thread);
    l->done += unit->part != BY__UNIT_REST ? unit->end - unit->begin : 0;
    return report(l, 0.5 * (double)l->done / (double)l->pack->source.bytes)
               ? BY_OK
               : by_error_set(error, BY_ESTOPPED, "stopped while reading the texts");
}

static bool report_learning(void *user, double done)
{
    return report(user, done);
}

static by_status learn(learning *l, bool characters, by_tokenizer **out, by_error *error)
{
    const by_pack_options *o = &l->pack->options;
    by__data_unit_job job = {.context = l,
                             .work = add_unit,
                             .take = count_unit,
                             .threads = o->threads,
                             .wanted = UNIT_BYTES};
    BY_TRY(by__alloc((void **)&l->threads, o->threads, sizeof *l->threads, "threads", error));
    for (size_t i = 0; i < o->threads && characters; i++) {
        BY_TRY(by__alloc((void **)&l->threads[i].characters, 1, sizeof *l->threads[i].characters,
                         "characters", error));
    }
    BY_TRY(by__data_unit_run(&l->pack->source, &job, error));
    for (size_t i = 1; i < o->threads; i++) {
        if (characters) {
            by__tokenizer_characters_merge(l->threads[0].characters, l->threads[i].characters);
        } else {
            BY_TRY(
                by__tokenizer_word_counts_merge(&l->threads[0].words, &l->threads[i].words, error));
        }
    }
    by_bpe_options bpe = {.vocab = o->tokenizer_vocab, .progress = report_learning, .user = l};
    return characters ? by__tokenizer_characters_finish(out, l->threads[0].characters, error)
                      : by__tokenizer_bpe_learn(out, &l->threads[0].words, &bpe, error);
}

by_status by__data_pack_make_tokenizer(const by__data_pack *pack, by_tokenizer **out,
                                       by_error *error)
{
    const by_pack_options *o = &pack->options;
    bool characters = strcmp(o->tokenizer_kind, "char") == 0;
    if (!characters && strcmp(o->tokenizer_kind, "bpe") != 0) {
        return by_tokenizer_open(out, o->tokenizer_kind, error);
    }
    learning l = {.pack = pack};
    by_status status = learn(&l, characters, out, error);
    for (size_t i = 0; i < o->threads && l.threads != NULL; i++) {
        free(l.threads[i].buffer);
        free(l.threads[i].characters);
        by__tokenizer_word_counts_free(&l.threads[i].words);
    }
    free(l.threads);
    return status;
}
