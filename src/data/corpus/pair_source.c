/* A source of preferences: the documents 2 i and 2 i + 1 of packed conversations, each in a row of
 * its own, padded at the end. */
#include "data/corpus/pair_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/corpus/dataset.h"
#include "data/corpus/token_weights.h"

typedef struct pair_source {
    by_source base;
    by_array arrays[BY_PAIR_ARRAYS];
    const by_dataset *dataset;    /* borrowed */
    const by_token_weights *mask; /* borrowed */
    const float *reference;       /* [pairs, 2], borrowed; NULL: zeros */
    uint64_t *offsets;            /* [documents + 1] of their first tokens */
    size_t context;
    bool last;
    bool referenced;
} pair_source;

/* Indices of the arrays of a sample. */
enum { TOKENS, WEIGHT, TARGETS, SHARE, LAST = TARGETS };

size_t by_pair_arrays(by_array arrays[BY_PAIR_ARRAYS], size_t context, bool last)
{
    by_shape rows = BY_SHAPE(2, (int64_t)context);
    arrays[TOKENS] = (by_array){"tokens", BY_I32, rows, NULL};
    arrays[WEIGHT] = (by_array){"weight", BY_F32, {0}, NULL};
    if (last) {
        arrays[LAST] = (by_array){"last", BY_F32, rows, NULL};
        return LAST + 1;
    }
    arrays[TARGETS] = (by_array){"targets", BY_I32, rows, NULL};
    arrays[SHARE] = (by_array){"share.chosen", BY_F32, {0}, NULL};
    arrays[SHARE + 1] = (by_array){"share.rejected", BY_F32, {0}, NULL};
    return SHARE + 2;
}

/* Fills one row of a sample with a document; none: it stays padding. */
static by_status fill_row(const pair_source *s, const uint64_t *range, size_t side,
                          void *const *rows, by_error *error)
{
    size_t row = side * s->context;
    int32_t *tokens = (int32_t *)rows[TOKENS] + row;
    size_t length = (size_t)(range[1] - range[0]);
    size_t count = length < s->context ? length : s->context;
    BY_TRY(by_dataset_read(s->dataset, range[0], count, tokens, error));
    if (s->last) {
        ((float *)rows[LAST])[row + count - 1] = 1.0f;
        return BY_OK;
    }
    int32_t *targets = (int32_t *)rows[TARGETS] + row;
    size_t learned = 0;
    memcpy(targets, tokens + 1, (count - 1) * sizeof *targets);
    if (length > count) { /* the document has one more token than the row */
        BY_TRY(by_dataset_read(s->dataset, range[0] + count, 1, targets + count - 1, error));
    }
    for (size_t i = 0; i + 1 < length && i < count; i++) {
        bool is_learned = by__data_token_weight(s->mask, range[0] + i + 1) != 0.0f;
        targets[i] = is_learned ? targets[i] : -1;
        learned += is_learned;
    }
    *(float *)rows[SHARE + side] = 1.0f / (float)learned;
    return BY_OK;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const pair_source *s = (const pair_source *)source;
    bool there = sample->place < s->base.samples;
    size_t places = 2 * s->context;
    memset(rows[TOKENS], 0, places * sizeof(int32_t));
    *(float *)rows[WEIGHT] = there ? 1.0f : 0.0f;
    if (s->last) {
        memset(rows[LAST], 0, places * sizeof(float));
    } else {
        memset(rows[TARGETS], 0xff, places * sizeof(int32_t));
        *(float *)rows[SHARE] = 0.0f;
        *(float *)rows[SHARE + 1] = 0.0f;
    }
    for (size_t i = 0; i < 2 && s->referenced; i++) {
        bool known = there && s->reference != NULL;
        *(float *)rows[s->base.array_count - 2 + i] =
            known ? s->reference[2 * sample->place + i] : 0.0f;
    }
    for (size_t i = 0; i < 2 && there; i++) {
        BY_TRY(fill_row(s, s->offsets + 2 * sample->place + i, i, rows, error));
    }
    return BY_OK;
}

static void close_source(by_source *source)
{
    pair_source *s = (pair_source *)source;
    free(s->offsets);
    free(s);
}

uint64_t by__data_pair_source_bytes(const by_dataset *dataset)
{
    return (by_dataset_documents(dataset) + 1) * sizeof(uint64_t);
}

/* Whether a token of a document that has a token before it is learned. */
static bool learns(const pair_source *s, uint64_t begin, uint64_t end)
{
    uint64_t i = begin + 1;
    while (i < end && by__data_token_weight(s->mask, i) == 0.0f) {
        i++;
    }
    return i < end;
}

static by_status check_documents(const pair_source *s, by_error *error)
{
    const char *name = by__data_directory_name(s->dataset);
    uint64_t most = s->context + (s->last ? 0 : 1);
    for (uint64_t i = 0; i < by_dataset_documents(s->dataset); i++) {
        uint64_t length = s->offsets[i + 1] - s->offsets[i];
        if (length > most) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: a conversation has %" PRIu64 " tokens, more than the %" PRIu64
                                " of a row: raise model.context, or pack the preferences with "
                                "--context %" PRIu64,
                                name, length, most, most - 1);
        }
        if (length < 2 || !learns(s, s->offsets[i], s->offsets[i + 1])) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: nothing of conversation %" PRIu64 " is learned: pack it again",
                                name, i);
        }
    }
    return BY_OK;
}

static by_status open_index(pair_source *s, by_error *error)
{
    by_dataset_chat chat = {0};
    const char *name = by__data_directory_name(s->dataset);
    uint64_t documents = by_dataset_documents(s->dataset);
    if (!by_dataset_is_chat(s->dataset, &chat) || !chat.pairs || s->mask == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s holds no preferences: `banyan pack --chat --form preference` makes "
                            "such data",
                            name);
    }
    if (by__data_damaged(s->dataset) > 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tokens of preferences are damaged: pack them "
                            "again",
                            name);
    }
    BY_TRY(by__alloc((void **)&s->offsets, (size_t)documents + 1, sizeof *s->offsets, "preferences",
                     error));
    BY_TRY(by__data_offsets(s->dataset, 0, (size_t)documents + 1, s->offsets, error));
    return check_documents(s, error);
}

by_status by__data_pair_source_open(by_source **out, const by_dataset *dataset,
                                    const by_token_options *options, by_error *error)
{
    pair_source *s;
    uint64_t pairs = by_dataset_documents(dataset) / 2;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of preferences", error));
    *s = (pair_source){.dataset = dataset,
                       .mask = options->weights,
                       .reference = options->reference,
                       .context = options->context,
                       .last = options->last,
                       .referenced = options->referenced};
    s->base = (by_source){.name = by__data_directory_name(dataset),
                          .arrays = s->arrays,
                          .array_count = by_pair_arrays(s->arrays, s->context, s->last),
                          .shuffle = options->shuffle,
                          .samples = pairs,
                          .sample_targets = 1,
                          .targets = pairs,
                          .fill = fill,
                          .close = close_source};
    if (s->referenced) {
        s->arrays[s->base.array_count++] = (by_array){"reference.chosen", BY_F32, {0}, NULL};
        s->arrays[s->base.array_count++] = (by_array){"reference.rejected", BY_F32, {0}, NULL};
    }
    by_status status = open_index(s, error);
    if (status != BY_OK) {
        close_source(&s->base);
        return status;
    }
    by__data_advise(dataset, options->shuffle);
    *out = &s->base;
    return BY_OK;
}
