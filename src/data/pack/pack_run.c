/* by_pack: checks the options, and runs the steps of packing. */
#include "data/pack/pack.h"

#include <string.h>

#include "base/paths.h"
#include "base/threads.h"

#define SHARD_TOKENS ((uint64_t)1 << 27)
#define MAX_THREADS  1024

static bool report_scan(void *user, uint64_t done)
{
    const by__data_pack *pack = user;
    by_pack_progress progress = {"reading", done, pack->source.bytes, 0};
    return pack->options.progress == NULL || pack->options.progress(pack->options.user, &progress);
}

static bool report_fetch(void *user, uint64_t done, uint64_t total)
{
    const by__data_pack *pack = user;
    by_pack_progress progress = {"downloading", done, total, 0};
    return pack->options.progress(pack->options.user, &progress);
}

/* Files whose names say that they hold more than text, which a model learns, too. */
static void note_markup(const by__data_pack *pack)
{
    static const char *const forms[][2] = {{".json", "brackets and names of fields"},
                                           {".csv", "row of names and separators"},
                                           {".tsv", "row of names and separators"},
                                           {".html", "tags"},
                                           {".xml", "tags"}};
    const by__data_source *s = &pack->source;
    for (size_t i = 0; i < s->count; i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(forms); k++) {
            if (by__ends_with(s->files[i].path, forms[k][0])) {
                by__data_pack_note(pack,
                                   "%s is packed as it stands, with its %s; of JSON lines (.jsonl) "
                                   "and Parquet files one field is the text (data.field)",
                                   s->files[i].path, forms[k][1]);
                return;
            }
        }
    }
}

/* A tokenizer cannot be made of nothing. */
static by_status check_empty(const by__data_pack *pack, by_error *error)
{
    const by__data_source *s = &pack->source;
    uint64_t characters = 0;
    for (size_t i = 0; i < s->count; i++) {
        characters += s->files[i].characters;
    }
    return characters > 0 || pack->options.tokenizer != NULL
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s holds no text: it is empty%s",
                              s->files[0].path, s->count > 1 ? ", and so are the others" : "");
}

/* Skipped inputs are always reported. */
static void note_omissions(const by__data_pack *pack)
{
    const by__data_source *s = &pack->source;
    const by__data_source_file *first = NULL;
    size_t marked = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->files[i].mark_bytes > 0) {
            first = first == NULL ? &s->files[i] : first;
            marked++;
        }
    }
    if (marked > 0) {
        by__data_pack_note(pack, "%s begins with a byte-order mark, which is left out%s",
                           first->path, marked > 1 ? " (other files too)" : "");
    }
    if (s->loop != NULL) {
        by__data_pack_note(pack, "%s leads back to a directory that it is in: not followed%s",
                           s->loop, s->loops > 1 ? " (other links too)" : "");
    }
}

/* What conversations cannot be packed with. */
static by_status check_chat(const by_pack_options *o, by_error *error)
{
    const char *kind = o->tokenizer_kind;
    if (o->chat == NULL) {
        return BY_OK;
    }
    if (o->tokenizer == NULL && (strcmp(kind, "bpe") == 0 || strcmp(kind, "char") == 0)) {
        return by_error_set(error, BY_EARG,
                            "conversations are packed for a model that exists: name its tokenizer, "
                            "not %s",
                            kind);
    }
    if (o->dedup != BY_PACK_DEDUP_NONE || o->ranks > 1) {
        return by_error_set(error, BY_EARG, "conversations are packed %s",
                            o->ranks > 1 ? "by one rank" : "without removing duplicates");
    }
    return BY_OK;
}

by_status by__data_pack_open(by__data_pack *pack, const by_pack_options *options, by_error *error)
{
    by__data_pack p = {.options = *options};
    by_pack_options *o = &p.options;
    if (o->tokenizer == NULL && o->tokenizer_kind == NULL) {
        return by_error_set(error, BY_EARG, "packing needs a tokenizer");
    }
    BY_TRY(check_chat(o, error));
    if (!(o->valid_fraction >= 0.0 && o->valid_fraction < 1.0)) {
        return by_error_set(error, BY_EARG, "valid_fraction %g is not in [0, 1)",
                            o->valid_fraction);
    }
    if (o->skip_corrupt && !(o->corrupt_budget >= 0.0)) {
        return by_error_set(error, BY_EARG, "corrupt_budget %g is not a number from 0 on",
                            o->corrupt_budget);
    }
    if (o->threads > MAX_THREADS) {
        return by_error_set(error, BY_EARG, "%zu threads are more than %d", o->threads,
                            MAX_THREADS);
    }
    o->threads = o->threads > 0 ? o->threads : (size_t)by__thread_count(-1);
    o->shard_tokens = o->shard_tokens > 0 ? o->shard_tokens : SHARD_TOKENS;
    o->field = o->chat != NULL ? NULL : o->field != NULL ? o->field : "text";
    const by_remote_options remote = {.cache = o->remote.cache,
                                      .bytes = o->remote.bytes,
                                      .progress = o->progress == NULL ? NULL : report_fetch,
                                      .user = &p};
    BY_TRY(by__data_source_open(&p.source, o->inputs, o->input_count, o->field, &remote, error));
    if (p.source.remote != NULL) {
        by__remote_quiet(p.source.remote);
    }
    by_status status = by__data_source_scan(&p.source, o->threads, report_scan, &p, error);
    if (status == BY_OK) {
        status = check_empty(&p, error);
    }
    if (status == BY_OK && o->chat == NULL) {
        status = by__data_source_hold_out(&p.source, o->valid_fraction, error);
    }
    if (status != BY_OK) {
        by__data_source_close(&p.source);
        return status;
    }
    *pack = p;
    note_omissions(pack);
    if (o->chat == NULL) {
        note_markup(pack);
    }
    return BY_OK;
}

void by__data_pack_close(by__data_pack *pack)
{
    by__data_source_close(&pack->source);
}

by_status by_pack(const by_pack_options *options, by_pack_result *result, by_error *error)
{
    by__data_pack pack;
    by_pack_result made = {0};
    by_tokenizer *own = NULL;
    if (options->output == NULL || options->output[0] == '\0') {
        return by_error_set(error, BY_EARG, "packing needs an output directory");
    }
    if (options->ranks > 0 && options->rank >= options->ranks) {
        return by_error_set(error, BY_EARG, "rank %zu is not below %zu", options->rank,
                            options->ranks);
    }
    bool alone = options->ranks < 2;
    if (alone && by__path_exists(options->output)) {
        return by_error_set(error, BY_EARG,
                            "%s already exists: remove it or name another output directory",
                            options->output);
    }
    BY_TRY(by__data_pack_open(&pack, options, error));
    by_status status = BY_OK;
    if (!alone) {
        status = by__data_pack_ranks(&pack, &made, error);
    } else if (options->tokenizer == NULL) {
        double began = by__now();
        status = by__data_pack_make_tokenizer(&pack, &own, error);
        made.learn_seconds = by__now() - began;
    }
    if (status == BY_OK && alone) {
        made.complete = true;
        status = by__data_pack_write(&pack, own != NULL ? own : options->tokenizer, options->output,
                                     false, &made, error);
    }
    by_tokenizer_close(&own);
    by__data_pack_close(&pack);
    if (status == BY_OK && result != NULL) {
        *result = made;
    }
    return status;
}
