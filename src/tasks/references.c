#include "tasks/references.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus/dataset.h"

#define TOKENS    ((uint64_t)1 << 22) /* most tokens counted, in all sets */
#define BLOCK     ((size_t)1 << 14)   /* tokens read at once */
#define DOCUMENTS ((size_t)4096)      /* most documents measured, per set */

/* ---- text ---- */

/* Counts up to `budget` tokens in blocks spread evenly over the set. Damaged blocks are skipped, as
 * in training. */
static by_status count_tokens(uint64_t *counts, uint64_t *counted, const by_dataset *set,
                              uint64_t budget, by_error *error)
{
    int32_t *block;
    uint64_t tokens = by_dataset_tokens(set);
    uint64_t blocks = (tokens + BLOCK - 1) / BLOCK;
    uint64_t wanted = budget / BLOCK + 1 < blocks ? budget / BLOCK + 1 : blocks;
    BY_TRY(by__alloc((void **)&block, BLOCK, sizeof *block, "tokens", error));
    by_status status = BY_OK;
    for (uint64_t i = 0; i < wanted && status == BY_OK; i++) {
        uint64_t at = i * blocks / wanted * BLOCK;
        size_t n = tokens - at < BLOCK ? (size_t)(tokens - at) : BLOCK;
        by_error ignored = {0};
        by_status read = by_dataset_read(set, at, n, block, &ignored);
        for (size_t k = 0; k < n && read == BY_OK; k++) {
            counts[block[k]]++; /* below the vocabulary: by_dataset_read has checked it */
        }
        *counted += read == BY_OK ? n : 0;
        if (read != BY_OK && read != BY_EFORMAT) {
            status = read;
            *error = ignored;
        }
    }
    free(block);
    return status;
}

/* Appends the lengths of documents spread evenly over the set. */
static by_status append_lengths(double *lengths, size_t *count, const by_dataset *set,
                                by_error *error)
{
    uint64_t all = by_dataset_documents(set);
    uint64_t wanted = all < DOCUMENTS ? all : DOCUMENTS;
    for (uint64_t i = 0; i < wanted; i++) {
        uint64_t ends[2];
        BY_TRY(by__data_offsets(set, (size_t)(i * (all / wanted)), 2, ends, error));
        lengths[(*count)++] = (double)(ends[1] - ends[0]);
    }
    return BY_OK;
}

static by_status add_lengths(by_drift_reference *r, by_dataset *const *sets, size_t count,
                             by_error *error)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {
        {"document_tokens_p10", 0.1}, {"document_tokens_p50", 0.5}, {"document_tokens_p90", 0.9}};
    double *lengths;
    size_t taken = 0;
    BY_TRY(by__alloc((void **)&lengths, count * DOCUMENTS, sizeof *lengths, "lengths", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = append_lengths(lengths, &taken, sets[i], error);
    }
    qsort(lengths, taken, sizeof *lengths, by__compare_doubles);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(quantiles) && status == BY_OK && taken > 0; i++) {
        size_t at = (size_t)(quantiles[i].share * (double)(taken - 1));
        status = by_drift_reference_value(r, quantiles[i].name, lengths[at], error);
    }
    free(lengths);
    return status;
}

static by_status describe_text(by_drift_reference *r, by_dataset *const *sets,
                               const double *weights, size_t count, by_error *error)
{
    uint64_t *counts;
    uint64_t counted = 0;
    double sum = 0.0;
    double tokens = 0.0;
    double bytes = 0.0;
    size_t vocab = by_dataset_vocab(sets[0]);
    BY_TRY(by__alloc((void **)&counts, vocab, sizeof *counts, "counts of tokens", error));
    for (size_t i = 0; i < count; i++) {
        sum += weights == NULL ? 1.0 : weights[i];
        tokens += (double)by_dataset_tokens(sets[i]);
        bytes += (double)by_dataset_text_bytes(sets[i]);
    }
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        double share = (weights == NULL ? 1.0 : weights[i]) / sum;
        if (share > 0.0 && by_dataset_vocab(sets[i]) <= vocab) {
            status =
                count_tokens(counts, &counted, sets[i], (uint64_t)(share * (double)TOKENS), error);
        }
    }
    if (status == BY_OK && counted > 0) {
        status = by_drift_reference_tokens(r, "tokens", counts, vocab, error);
    }
    if (status == BY_OK && bytes > 0.0) {
        status = by_drift_reference_value(r, "bytes_per_token", bytes / tokens, error);
    }
    free(counts);
    return status == BY_OK ? add_lengths(r, sets, count, error) : status;
}

static by_status print(char **out, by_drift_reference *r, by_status status, by_error *error)
{
    if (status == BY_OK) {
        status = by_drift_reference_print(r, out, error);
    }
    by_drift_reference_close(&r);
    return status;
}

by_status by__task_reference_of_text(char **out, by_dataset *const *sets, const double *weights,
                                     size_t count, by_error *error)
{
    by_drift_reference *r;
    uint64_t documents = 0;
    for (size_t i = 0; i < count; i++) {
        documents += by_dataset_documents(sets[i]);
    }
    BY_TRY(by_drift_reference_open(&r, documents, error));
    return print(out, r, describe_text(r, sets, weights, count, error), error);
}

/* ---- tables ---- */

static by_status add_numbers(by_drift_reference *r, const by_column *c, const by_part *part,
                             by_error *error)
{
    double *values;
    size_t there = 0;
    BY_TRY(by__alloc((void **)&values, (size_t)part->count, sizeof *values, "a column", error));
    for (uint64_t i = 0; i < part->count; i++) {
        values[i] = c->numbers[by_part_example(part, i)];
        there += isfinite(values[i]) ? 1 : 0;
    }
    by_status status =
        there == 0 ? BY_OK
                   : by_drift_reference_number(r, c->name, values, (size_t)part->count, error);
    free(values);
    return status;
}

static by_status add_categories(by_drift_reference *r, const by_column *c, const by_part *part,
                                by_error *error)
{
    uint64_t *counts;
    uint64_t missing = 0;
    BY_TRY(by__alloc((void **)&counts, c->value_count + 1, sizeof *counts, "a column", error));
    for (uint64_t i = 0; i < part->count; i++) {
        int32_t id = c->categories[by_part_example(part, i)];
        if (id < 0) {
            missing++;
        } else {
            counts[id]++;
        }
    }
    by_status status = missing == part->count
                           ? BY_OK
                           : by_drift_reference_category(r, c->name, c->values, counts,
                                                         c->value_count, missing, error);
    free(counts);
    return status;
}

static by_status describe_table(by_drift_reference *r, const by_table *table, const by_part *part,
                                const char *const *ignore, size_t ignore_count, by_error *error)
{
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        const by_column *c = by_table_column(table, i);
        bool ignored = false;
        for (size_t k = 0; k < ignore_count; k++) {
            ignored = ignored || strcmp(ignore[k], c->name) == 0;
        }
        if (!ignored) {
            BY_TRY(c->kind == BY_COLUMN_NUMBER ? add_numbers(r, c, part, error)
                                               : add_categories(r, c, part, error));
        }
    }
    return BY_OK;
}

by_status by__task_reference_of_table(char **out, const by_table *table, const by_part *part,
                                      const char *const *ignore, size_t ignore_count,
                                      by_error *error)
{
    by_drift_reference *r;
    BY_TRY(by_drift_reference_open(&r, part->count, error));
    return print(out, r, describe_table(r, table, part, ignore, ignore_count, error), error);
}
