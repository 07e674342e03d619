/* Samples of packed tokens: windows of `context` tokens and the tokens behind them. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "data/dataset.h"
#include "data/order.h"

#define CONTEXT_LIMIT ((size_t)1 << 30)

typedef struct token_source {
    by_source base;
    by_array arrays[2];
    const by_dataset *dataset; /* borrowed */
    size_t context;
    uint64_t phases; /* places where the first window of an epoch may start */
} token_source;

/* Targets of a sample: `context`, fewer at the end of a pass, 0 behind it. */
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

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const token_source *s = (const token_source *)source;
    int32_t *tokens = rows[0];
    int32_t *targets = rows[1];
    size_t valid = targets_of(s, sample->place);
    if (valid > 0) {
        uint64_t start = sample->place * s->context;
        if (source->shuffle) {
            start += by__order_phase(s->phases, sample->seed, sample->epoch);
        }
        BY_TRY(by_dataset_read(s->dataset, start, valid, tokens, error));
        memcpy(targets, tokens + 1, (valid - 1) * sizeof *targets);
        BY_TRY(by_dataset_read(s->dataset, start + valid, 1, targets + valid - 1, error));
    }
    for (size_t i = valid; i < s->context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return BY_OK;
}

/* How many windows an epoch or a pass has, and where the first may start. */
static by_status cut_windows(token_source *s, by_error *error)
{
    uint64_t total = by_dataset_tokens(s->dataset);
    uint64_t context = s->context;
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
    if (total <= context) {
        return by_error_set(error, BY_EARG,
                            "%s: %llu tokens are too few for a context of %llu, which needs %llu; "
                            "give more text or lower model.context to %llu",
                            s->base.name, (unsigned long long)total, (unsigned long long)context,
                            (unsigned long long)context + 1,
                            (unsigned long long)(total > 1 ? total - 1 : 1));
    }
    /* As many as fit behind every phase of [0, context), so that all epochs have the same number;
     * for data shorter than that one window, with the phases that leave room for it. */
    s->base.samples = (total - context) / context;
    if (s->base.samples == 0) {
        s->base.samples = 1;
    }
    uint64_t slack = total - 1 - s->base.samples * context;
    s->phases = (slack < context - 1 ? slack : context - 1) + 1;
    s->base.targets = s->base.samples * context;
    return BY_OK;
}

static void close_source(by_source *source)
{
    free(source);
}

void by_token_arrays(by_array arrays[2], size_t context)
{
    arrays[0] = (by_array){"tokens", BY_I32, BY_SHAPE((int64_t)context), NULL};
    arrays[1] = (by_array){"targets", BY_I32, BY_SHAPE((int64_t)context), NULL};
}

by_status by_token_source_open(by_source **out, const by_dataset *dataset, size_t context,
                               bool shuffle, by_error *error)
{
    token_source *s;
    if (context == 0 || context > CONTEXT_LIMIT) {
        return by_error_set(error, BY_EARG, "context %zu must be from 1 to 2^30", context);
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of tokens", error));
    by_token_arrays(s->arrays, context);
    s->dataset = dataset;
    s->context = context;
    s->base = (by_source){.name = by__dataset_name(dataset),
                          .arrays = s->arrays,
                          .array_count = 2,
                          .shuffle = shuffle,
                          .sample_targets = context,
                          .fill = fill,
                          .close = close_source};
    by_status status = cut_windows(s, error);
    if (status != BY_OK) {
        free(s);
        return status;
    }
    by__dataset_advise(dataset, shuffle);
    *out = &s->base;
    return BY_OK;
}
