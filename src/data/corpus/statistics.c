/* Statistics of a packed directory: lengths of documents, frequencies of tokens, and how well the
 * order of an epoch mixes. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "data/corpus/dataset.h"
#include "data/loader/order.h"

#define BLOCK         ((size_t)1 << 16) /* tokens that are read at once */
#define ORDER_SAMPLES ((uint64_t)1 << 20)
#define MIN_ORDER     ((uint64_t)4096)
#define STRETCHES     16

/* ---- documents ---- */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static by_status measure_documents(by_dataset_statistics *s, const by_dataset *dataset,
                                   by_error *error)
{
    static const double shares[BY_LENGTH_QUANTILES] = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 1};
    uint64_t *lengths; /* of documents; initially their offsets */
    size_t count = (size_t)s->documents;
    BY_TRY(by__alloc((void **)&lengths, count + 1, sizeof *lengths, "documents", error));
    by_status status = by__data_offsets(dataset, 0, count + 1, lengths, error);
    if (status == BY_OK && count > 0) {
        for (size_t i = 0; i < count; i++) {
            lengths[i] = lengths[i + 1] - lengths[i];
            s->empty_documents += lengths[i] == 0;
        }
        qsort(lengths, count, sizeof *lengths, compare);
        for (size_t i = 0; i < BY_LENGTH_QUANTILES; i++) {
            s->lengths[i] = lengths[(size_t)(shares[i] * (double)(count - 1))];
        }
    }
    free(lengths);
    return status;
}

/* ---- tokens ---- */

static by_status count_tokens(by_dataset_statistics *s, const by_dataset *dataset,
                              const by_dataset_statistics_options *o, by_error *error)
{
    int32_t *block;
    BY_TRY(by__alloc((void **)&block, BLOCK, sizeof *block, "tokens", error));
    by_status status = BY_OK;
    for (uint64_t at = 0; at < s->tokens && status == BY_OK;) {
        size_t n = s->tokens - at < BLOCK ? (size_t)(s->tokens - at) : BLOCK;
        status = by_dataset_read(dataset, at, n, block, error);
        for (size_t i = 0; i < n && status == BY_OK; i++) {
            s->counts[block[i]]++; /* below the vocabulary: by_dataset_read has checked it */
        }
        at += n;
        if (status == BY_OK && o->progress != NULL && !o->progress(o->user, at, s->tokens)) {
            status = by_error_set(error, BY_ESTOPPED, "stopped while reading %s",
                                  by__data_directory_name(dataset));
        }
    }
    free(block);
    for (uint32_t i = 0; i < s->vocab && status == BY_OK; i++) {
        double share = (double)s->counts[i] / (double)s->tokens;
        s->used += s->counts[i] > 0;
        s->entropy -= s->counts[i] > 0 ? share * log(share) : 0.0;
    }
    return status;
}

/* ---- the order ---- */

/* Correlation of the positions of consecutive windows, and uniformity: whether each stretch of time
 * visits all stretches of the data equally. */
static void measure_order(by_dataset_statistics *s, uint64_t seed)
{
    by__loader_order order;
    uint64_t cells[STRETCHES][STRETCHES] = {{0}};
    uint64_t n = s->windows < ORDER_SAMPLES ? s->windows : ORDER_SAMPLES;
    double mean = ((double)s->windows - 1.0) / 2.0;
    double covariance = 0.0;
    double variance = 0.0;
    double last = 0.0;
    s->order_correlation = NAN;
    s->order_chi_squared = NAN;
    if (n < MIN_ORDER) {
        return;
    }
    by__loader_order_init(&order, s->windows, seed, 0);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t place = by__loader_order_at(&order, i);
        double away = (double)place - mean;
        covariance += i > 0 ? away * last : 0.0;
        variance += away * away;
        last = away;
        /* Neither index reaches 2^60: samples are at most tokens. */
        cells[i * STRETCHES / n][place / (s->windows / STRETCHES + 1)]++;
    }
    s->order_correlation = covariance / variance;
    s->order_chi_squared = 0.0;
    for (size_t t = 0; t < STRETCHES; t++) {
        double row = 0.0;
        for (size_t d = 0; d < STRETCHES; d++) {
            row += (double)cells[t][d];
        }
        for (size_t d = 0; d < STRETCHES; d++) {
            uint64_t width = s->windows / STRETCHES + 1;
            uint64_t begin = d * width < s->windows ? d * width : s->windows;
            uint64_t end = (d + 1) * width < s->windows ? (d + 1) * width : s->windows;
            double expected = row * (double)(end - begin) / (double)s->windows;
            double away = (double)cells[t][d] - expected;
            s->order_chi_squared += expected > 0.0 ? away * away / expected : 0.0;
        }
    }
    /* When all windows are drawn, the column sums are fixed as well as the row sums. */
    s->order_chi_squared /= (STRETCHES - 1) * (n == s->windows ? STRETCHES - 1 : STRETCHES);
}

static by_status measure_windows(by_dataset_statistics *s, const by_dataset *dataset,
                                 const by_dataset_statistics_options *o, by_error *error)
{
    by_source *source;
    by__data_bins bins;
    BY_TRY(by_token_source_open(
        &source, dataset, &(by_token_options){.context = o->context, .shuffle = true}, error));
    s->windows = source->samples;
    by_source_close(&source);
    BY_TRY(by__data_bins_of(&bins, dataset, o->context, false, error));
    s->bins = bins.count;
    s->bins_filled = (double)bins.tokens / ((double)bins.count * (double)bins.capacity);
    s->bins_cut = bins.cut;
    by__data_bins_close(&bins);
    /* A window touches one document, and one more for each border inside it; over all phases a
     * border is inside for context - 1 of context positions. */
    double borders = (double)(s->documents - s->empty_documents) - 1.0;
    s->documents_per_window = 1.0 + borders * ((double)o->context - 1.0) / (double)s->tokens;
    measure_order(s, o->seed);
    return BY_OK;
}

by_status by_dataset_measure(by_dataset_statistics *out, const by_dataset *dataset,
                             const by_dataset_statistics_options *options, by_error *error)
{
    by_dataset_statistics s = {.tokens = by_dataset_tokens(dataset),
                               .documents = by_dataset_documents(dataset),
                               .vocab = by_dataset_vocab(dataset)};
    BY_TRY(by__alloc((void **)&s.counts, s.vocab, sizeof *s.counts, "counts of tokens", error));
    by_status status = measure_documents(&s, dataset, error);
    if (status == BY_OK) {
        status = count_tokens(&s, dataset, options, error);
    }
    if (status == BY_OK && options->context > 0) {
        status = measure_windows(&s, dataset, options, error);
    }
    if (status != BY_OK) {
        free(s.counts);
        return status;
    }
    *out = s;
    return BY_OK;
}
