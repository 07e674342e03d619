/* A source of samples of packed tokens: windows of `context` tokens and the following tokens as
 * targets. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/corpus/best_fit.h"
#include "data/corpus/dataset.h"
#include "data/corpus/logit_store.h"
#include "data/corpus/pair_source.h"
#include "data/corpus/token_weights.h"
#include "data/loader/order.h"

#define CONTEXT_LIMIT ((size_t)1 << 30)
/* Offsets read at a time. */
#define OFFSET_BLOCK ((size_t)1024)
/* How often another position is drawn for a damaged sample: if half of the data is damaged, the
 * last draw is damaged too, and the sample left without targets, once in 10^19 times. */
#define DRAWS         64
#define PURPOSE_DRAWS 0x64616d67u /* "damg" in ASCII */

typedef struct token_source {
    by_source base;
    by_array arrays[6];
    const by_dataset *dataset;       /* borrowed */
    const by_logit_store *logits;    /* borrowed; NULL: none */
    const by_token_weights *weights; /* borrowed; NULL: 1 */
    size_t weight;                   /* index of the array of weights; 0: there is none */
    size_t context;
    bool documents;     /* are kept apart */
    uint64_t phases;    /* positions where the first window of an epoch may start */
    by__data_bins bins; /* for best-fit packing instead of windows */
} token_source;

/* ---- weights ---- */

/* Sets the weights of `count` targets of a sample from `at` on, of which the first is token `first`
 * of the data. Call it when the targets are known. */
static void fill_weights(const token_source *s, uint64_t first, size_t at, size_t count,
                         void *const *rows)
{
    const int32_t *targets = rows[1];
    for (size_t i = 0; s->weight > 0 && i < count; i++) {
        float weight = s->weights == NULL ? 1.0f : by__data_token_weight(s->weights, first + i);
        ((float *)rows[s->weight])[at + i] = targets[at + i] >= 0 ? weight : 0.0f;
    }
}

/* Adds the weights of tokens [begin, end). */
static void add_weights(const token_source *s, uint64_t begin, uint64_t end, double *sum)
{
    for (uint64_t i = begin; i < end; i++) {
        *sum += s->weights == NULL ? 1.0 : (double)by__data_token_weight(s->weights, i);
    }
}

/* ---- samples ---- */

/* Pads a sample with `valid` targets: tokens, targets, weights and the starts of documents. */
static void fill_up(const token_source *s, size_t tokens, size_t targets, void *const *rows)
{
    int32_t *of[2] = {rows[0], rows[1]};
    for (size_t i = tokens; i < s->context; i++) {
        of[0][i] = 0;
    }
    for (size_t i = targets; i < s->context; i++) {
        of[1][i] = -1;
    }
    for (size_t i = tokens; i < s->context && s->documents; i++) {
        ((int32_t *)rows[2])[i] = (int32_t)tokens;
    }
    for (size_t i = targets; i < s->context && s->weight > 0; i++) {
        ((float *)rows[s->weight])[i] = 0.0f;
    }
}

/* ---- windows in the data ---- */

/* Number of targets of a window, including those that documents exclude: `context`, fewer at the
 * end of a pass, 0 after it. */
static size_t targets_of(const token_source *s, uint64_t place)
{
    if (s->base.shuffle) {
        return s->context;
    }
    if (place >= s->base.samples) {
        return 0;
    }
    uint64_t left = s->base.targets - place * s->context;
    return left < s->context ? (size_t)left : s->context;
}

static uint64_t start_of(const token_source *s, const by_source_sample *sample)
{
    return sample->place * s->context +
           (s->base.shuffle ? by__loader_order_phase(s->phases, sample->seed, sample->epoch) : 0);
}

/* ---- damage ---- */

static bool is_damaged(const token_source *s, const by_source_sample *sample)
{
    const by__data_bins *b = &s->bins;
    if (b->count == 0) {
        size_t valid = targets_of(s, sample->place);
        uint64_t start = start_of(s, sample);
        return valid > 0 && by__data_is_damaged(s->dataset, start, start + valid + 1);
    }
    bool damaged = false;
    for (uint32_t i = b->first[sample->place]; i < b->first[sample->place + 1]; i++) {
        uint64_t begin = b->pieces[i].begin;
        damaged = damaged || by__data_is_damaged(s->dataset, begin, begin + b->pieces[i].length);
    }
    return damaged;
}

/* Returns true if a sample would consist of damaged tokens. */
static bool replaces(const by_source *source, const by_source_sample *sample)
{
    return is_damaged((const token_source *)source, sample);
}

/* The replacement of a damaged sample: in the same epoch, at a position that is a function of the
 * seed and the sample's index alone, so that every rank finds the same one. *whole: there is one; a
 * pass replaces none. */
static by_source_sample stand_in(const token_source *s, const by_source_sample *sample, bool *whole)
{
    by_source_sample own = *sample;
    *whole = s->base.replaces == NULL || !is_damaged(s, &own);
    for (uint64_t i = 0; i < DRAWS && !*whole && s->base.shuffle; i++) {
        uint32_t random[4];
        by_source_random(sample, PURPOSE_DRAWS + i, random);
        uint64_t wide = (uint64_t)random[0] << 32 | random[1];
        own.place = wide % s->base.samples;
        *whole = !is_damaged(s, &own);
    }
    return own;
}

/* ---- windows ---- */

/* Marks the documents of the window that begins at token `start`. */
static by_status part_documents(const token_source *s, uint64_t start, size_t valid,
                                void *const *rows, by_error *error)
{
    by__data_borders borders;
    uint64_t begin;
    bool found;
    int32_t *targets = rows[1];
    int32_t *starts = rows[2];
    size_t at = 0;
    int32_t first = 0; /* the document may begin before the window */
    BY_TRY(by__data_borders_open(&borders, s->dataset, start, valid, &begin, error));
    do {
        BY_TRY(by__data_borders_next(&borders, &found, &begin, error));
        size_t end = found ? (size_t)(begin - start) : valid;
        while (at < end && at < valid) {
            starts[at++] = first;
        }
        if (found) {
            targets[end - 1] = -1;
            first = (int32_t)end;
        }
    } while (found);
    return BY_OK;
}

/* Reads the teacher's predictions for a window; zeros for a sample without targets. */
static by_status fill_logits(const token_source *s, uint64_t start, size_t valid, void *const *rows,
                             by_error *error)
{
    size_t at = s->documents ? 3 : 2;
    size_t top = (size_t)by_logit_store_top(s->logits);
    if (valid == 0) {
        memset(rows[at], 0, s->context * top * sizeof(int32_t));
        memset(rows[at + 1], 0, s->context * (top + 1) * sizeof(float));
        return BY_OK;
    }
    return by__data_logit_store_rows(s->logits, start, valid, rows[at], rows[at + 1], error);
}

static by_status fill_window(const by_source *source, const by_source_sample *sample,
                             void *const *rows, by_error *error)
{
    const token_source *s = (const token_source *)source;
    int32_t *tokens = rows[0];
    int32_t *targets = rows[1];
    bool whole;
    const by_source_sample own = stand_in(s, sample, &whole);
    size_t valid = whole ? targets_of(s, own.place) : 0;
    if (valid > 0) {
        uint64_t start = start_of(s, &own);
        BY_TRY(by_dataset_read(s->dataset, start, valid, tokens, error));
        memcpy(targets, tokens + 1, (valid - 1) * sizeof *targets);
        BY_TRY(by_dataset_read(s->dataset, start + valid, 1, targets + valid - 1, error));
        if (s->documents) {
            BY_TRY(part_documents(s, start, valid, rows, error));
        }
        fill_weights(s, start + 1, 0, valid, rows);
    }
    fill_up(s, valid, valid, rows);
    return s->logits == NULL
               ? BY_OK
               : fill_logits(s, valid > 0 ? start_of(s, &own) : 0, valid, rows, error);
}

/* Counts all targets or, if documents are kept apart, all except their first tokens. */
static by_status count_window(const by_source *source, const by_source_sample *sample,
                              uint64_t *targets, by_error *error)
{
    const token_source *s = (const token_source *)source;
    by__data_borders borders;
    uint64_t begin;
    bool found;
    bool whole;
    const by_source_sample own = stand_in(s, sample, &whole);
    size_t valid = whole ? targets_of(s, own.place) : 0;
    *targets = valid;
    if (valid == 0 || !s->documents) {
        return BY_OK;
    }
    BY_TRY(by__data_borders_open(&borders, s->dataset, start_of(s, &own), valid, &begin, error));
    do {
        BY_TRY(by__data_borders_next(&borders, &found, &begin, error));
        *targets -= found;
    } while (found);
    return BY_OK;
}

/* Adds the weights of the targets that are counted. */
static by_status weigh_window(const by_source *source, const by_source_sample *sample,
                              double *weight, by_error *error)
{
    const token_source *s = (const token_source *)source;
    by__data_borders borders;
    uint64_t begin;
    bool whole;
    const by_source_sample own = stand_in(s, sample, &whole);
    size_t valid = whole ? targets_of(s, own.place) : 0;
    uint64_t at = start_of(s, &own) + 1;
    uint64_t end = at + valid;
    bool found = valid > 0 && s->documents;
    *weight = 0.0;
    if (found) {
        BY_TRY(by__data_borders_open(&borders, s->dataset, at - 1, valid, &begin, error));
    }
    while (found) {
        BY_TRY(by__data_borders_next(&borders, &found, &begin, error));
        if (found) { /* the first token of a document is no target */
            add_weights(s, at, begin, weight);
            at = begin + 1;
        }
    }
    add_weights(s, at, end, weight);
    return BY_OK;
}

/* Computes the number of windows of an epoch or a pass, and where the first may start. */
static by_status cut_windows(token_source *s, by_error *error)
{
    uint64_t total = by_dataset_tokens(s->dataset);
    uint64_t context = s->context;
    s->base.fill = fill_window;
    s->base.count = s->documents || s->base.replaces != NULL ? count_window : NULL;
    s->base.weigh = s->weight > 0 ? weigh_window : NULL;
    if (!s->base.shuffle) {
        if (total < 2) {
            return by_error_set(
                error, BY_EARG,
                "%s: %llu tokens are too few to evaluate on: a target needs a token "
                "before it; hold out more text (data.valid_fraction)",
                s->base.name, (unsigned long long)total);
        }
        s->base.samples = (total - 1 + context - 1) / context;
        s->base.targets = total - 1;
        return BY_OK;
    }
    if (total < 2) {
        return by_error_set(error, BY_EARG,
                            "%s: %llu tokens are too few to train on: a target needs a token "
                            "before it; give more text",
                            s->base.name, (unsigned long long)total);
    }
    if (total <= context) {
        return by_error_set(error, BY_EARG,
                            "%s: %llu tokens are too few for a context of %llu, which needs %llu; "
                            "give more text or lower model.context to %llu",
                            s->base.name, (unsigned long long)total, (unsigned long long)context,
                            (unsigned long long)context + 1, (unsigned long long)total - 1);
    }
    if (s->logits != NULL) {
        s->base.samples = (total - 1) / context;
        s->phases = 1;
        s->base.targets = s->base.samples * context;
        return BY_OK;
    }
    /* As many as fit after every phase of [0, context), so that all epochs have the same number;
     * for data too short for that, one window, with the phases that leave room for it. */
    s->base.samples = (total - context) / context;
    if (s->base.samples == 0) {
        s->base.samples = 1;
    }
    uint64_t slack = total - 1 - s->base.samples * context;
    s->phases = (slack < context - 1 ? slack : context - 1) + 1;
    s->base.targets = s->base.samples * context;
    return BY_OK;
}

/* ---- bins ---- */

/* Fills a piece at position `at` of a sample: all its tokens except the first are targets. */
static by_status fill_piece(const token_source *s, const by__data_piece *piece, size_t at,
                            void *const *rows, by_error *error)
{
    int32_t *tokens = (int32_t *)rows[0] + at;
    int32_t *targets = (int32_t *)rows[1] + at;
    size_t room = s->context - at;
    size_t count = piece->length < room ? piece->length : room;
    BY_TRY(by_dataset_read(s->dataset, piece->begin, count, tokens, error));
    if (count > 0) {
        memcpy(targets, tokens + 1, (count - 1) * sizeof *targets);
        targets[count - 1] = -1;
        if (count < piece->length) { /* the bin has one more token than the sample */
            BY_TRY(
                by_dataset_read(s->dataset, piece->begin + count, 1, targets + count - 1, error));
        }
    }
    for (size_t i = 0; i < count && s->documents; i++) {
        ((int32_t *)rows[2])[at + i] = (int32_t)at;
    }
    /* The last token of a piece has no next one in it. */
    size_t targeted = count < piece->length ? count : count - (count > 0);
    fill_weights(s, piece->begin + 1, at, targeted, rows);
    if (targeted < count && s->weight > 0) {
        ((float *)rows[s->weight])[at + targeted] = 0.0f;
    }
    return BY_OK;
}

/* The bin of a sample; *whole is false for one that only pads the last batch of a pass, and for a
 * damaged one of a pass. */
static by_source_sample bin_of(const token_source *s, const by_source_sample *sample, bool *whole)
{
    if (sample->place >= s->base.samples) {
        *whole = false;
        by_source_sample none = *sample;
        none.place = 0;
        return none;
    }
    return stand_in(s, sample, whole);
}

static by_status fill_bin(const by_source *source, const by_source_sample *sample,
                          void *const *rows, by_error *error)
{
    const token_source *s = (const token_source *)source;
    const by__data_bins *b = &s->bins;
    bool whole;
    const by_source_sample own = bin_of(s, sample, &whole);
    size_t at = 0;
    for (uint32_t i = b->first[own.place]; whole && i < b->first[own.place + 1]; i++) {
        BY_TRY(fill_piece(s, &b->pieces[i], at, rows, error));
        at += b->pieces[i].length;
    }
    at = at < s->context ? at : s->context;
    fill_up(s, at, at, rows);
    return BY_OK;
}

static by_status count_bin(const by_source *source, const by_source_sample *sample,
                           uint64_t *targets, by_error *error)
{
    const token_source *s = (const token_source *)source;
    const by__data_bins *b = &s->bins;
    bool whole;
    const by_source_sample own = bin_of(s, sample, &whole);
    uint32_t bin = (uint32_t)own.place;
    BY_UNUSED(error);
    *targets = whole ? by__data_bins_used(b, bin) - (b->first[bin + 1] - b->first[bin]) : 0;
    return BY_OK;
}

static by_status weigh_bin(const by_source *source, const by_source_sample *sample, double *weight,
                           by_error *error)
{
    const token_source *s = (const token_source *)source;
    const by__data_bins *b = &s->bins;
    bool whole;
    const by_source_sample own = bin_of(s, sample, &whole);
    BY_UNUSED(error);
    *weight = 0.0;
    for (uint32_t i = b->first[own.place]; whole && i < b->first[own.place + 1]; i++) {
        const by__data_piece *piece = &b->pieces[i];
        add_weights(s, piece->begin + 1, piece->begin + piece->length, weight);
    }
    return BY_OK;
}

static by_status plan_bins(uint64_t *bytes, uint64_t *opening, const by_dataset *dataset,
                           size_t context, by_error *error)
{
    uint64_t offsets[OFFSET_BLOCK + 1];
    uint64_t documents = by_dataset_documents(dataset);
    uint64_t pieces = 0;
    for (uint64_t at = 0; at < documents;) {
        uint64_t left = documents - at;
        size_t n = left < OFFSET_BLOCK ? (size_t)left : OFFSET_BLOCK;
        BY_TRY(by__data_offsets(dataset, at, n + 1, offsets, error));
        pieces += by__data_bins_pieces(offsets, n, (uint32_t)context + 1);
        at += n;
    }
    *bytes = by__data_bins_bytes(pieces, documents, (uint32_t)context + 1, opening);
    return BY_OK;
}

by_status by__data_bins_of(by__data_bins *out, const by_dataset *dataset, size_t context,
                           bool apart, by_error *error)
{
    uint64_t *offsets;
    uint64_t documents = by_dataset_documents(dataset);
    size_t count;
    if (!by__size_add((size_t)documents, 1, &count)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: %llu documents",
                            (unsigned long long)documents);
    }
    BY_TRY(by__alloc((void **)&offsets, count, sizeof *offsets, "documents", error));
    by_status status = by__data_offsets(dataset, 0, count, offsets, error);
    if (status == BY_OK) {
        status = by__data_bins_open(out, offsets, documents, (uint32_t)context + 1, apart, error);
    }
    free(offsets);
    return status;
}

static by_status fill_bins(token_source *s, by_token_packing packing, by_error *error)
{
    BY_TRY(by__data_bins_of(&s->bins, s->dataset, s->context, packing == BY_TOKENS_PADDED, error));
    s->base.fill = fill_bin;
    s->base.count = count_bin;
    s->base.weigh = s->weight > 0 ? weigh_bin : NULL;
    s->base.samples = s->bins.count;
    s->base.targets = s->bins.tokens - s->bins.piece_count;
    if (s->base.targets == 0) {
        return by_error_set(error, BY_EARG,
                            "%s: no document has two tokens, so that none can be predicted from "
                            "another; use data.packing=stream",
                            s->base.name);
    }
    return BY_OK;
}

/* ---- opening ---- */

static void close_source(by_source *source)
{
    token_source *s = (token_source *)source;
    by__data_bins_close(&s->bins);
    free(s);
}

size_t by_token_arrays(by_array arrays[3], size_t context, bool documents)
{
    arrays[0] = (by_array){"tokens", BY_I32, BY_SHAPE((int64_t)context), NULL};
    arrays[1] = (by_array){"targets", BY_I32, BY_SHAPE((int64_t)context), NULL};
    arrays[2] = (by_array){"starts", BY_I32, BY_SHAPE((int64_t)context), NULL};
    return documents ? 3 : 2;
}

void by_logit_arrays(by_array arrays[2], size_t context, int64_t top)
{
    arrays[0] = (by_array){"teacher.ids", BY_I32, BY_SHAPE((int64_t)context, top), NULL};
    arrays[1] = (by_array){"teacher.logarithms", BY_F32, BY_SHAPE((int64_t)context, top + 1), NULL};
}

static by_status check_context(size_t context, by_error *error)
{
    return context > 0 && context <= CONTEXT_LIMIT
               ? BY_OK
               : by_error_set(error, BY_EARG, "context %zu must be from 1 to 2^30", context);
}

/* Whether samples are whole documents instead of windows. */
static bool in_bins(const by_token_options *options)
{
    return (options->shuffle || options->whole) && options->packing != BY_TOKENS_STREAM;
}

by_status by_token_source_bytes(uint64_t *bytes, uint64_t *opening, const by_dataset *dataset,
                                const by_token_options *options, by_error *error)
{
    BY_TRY(check_context(options->context, error));
    *bytes = options->pairs ? by__data_pair_source_bytes(dataset) : 0;
    *opening = 0;
    if (options->pairs) {
        return BY_OK;
    }
    return in_bins(options) ? plan_bins(bytes, opening, dataset, options->context, error) : BY_OK;
}

by_status by_token_source_open(by_source **out, const by_dataset *dataset,
                               const by_token_options *options, by_error *error)
{
    token_source *s;
    size_t context = options->context;
    BY_TRY(check_context(context, error));
    if (options->pairs) {
        return by__data_pair_source_open(out, dataset, options, error);
    }
    if (by__data_damaged(dataset) == by_dataset_tokens(dataset) && by_dataset_tokens(dataset) > 0) {
        return by_error_set(error, BY_EFORMAT, "%s: all of its %llu tokens are damaged",
                            by__data_directory_name(dataset),
                            (unsigned long long)by_dataset_tokens(dataset));
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of tokens", error));
    s->dataset = dataset;
    s->context = context;
    s->documents = options->documents;
    s->base = (by_source){.name = by__data_directory_name(dataset),
                          .arrays = s->arrays,
                          .array_count = by_token_arrays(s->arrays, context, options->documents),
                          .shuffle = options->shuffle,
                          .sample_targets = context,
                          .close = close_source,
                          .replaces = by__data_damaged(dataset) > 0 ? replaces : NULL};
    if (options->shuffle && options->packing == BY_TOKENS_STREAM && options->logits != NULL) {
        s->logits = options->logits;
        by_logit_arrays(s->arrays + s->base.array_count, context, by_logit_store_top(s->logits));
        s->base.array_count += 2;
    }
    if (options->weighted) {
        s->weights = options->weights;
        s->weight = s->base.array_count++;
        s->arrays[s->weight] = (by_array){"weight", BY_F32, BY_SHAPE((int64_t)context), NULL};
    }
    by_status status =
        in_bins(options) ? fill_bins(s, options->packing, error) : cut_windows(s, error);
    if (status != BY_OK) {
        close_source(&s->base);
        return status;
    }
    by__data_advise(dataset, options->shuffle);
    *out = &s->base;
    return BY_OK;
}
