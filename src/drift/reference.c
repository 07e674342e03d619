/* Makes a reference from training data: quantiles of numbers, counts of categories and tokens. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drift/drift.h"

by_status by_drift_reference_open(by_drift_reference **out, uint64_t examples, by_error *error)
{
    BY_TRY(by__alloc((void **)out, 1, sizeof **out, "a reference", error));
    (*out)->examples = examples;
    return BY_OK;
}

static void release_feature(by__drift_feature *f)
{
    for (size_t i = 0; f->values != NULL && i < f->kept; i++) {
        free(f->values[i]);
    }
    free(f->values);
    by__aliases_close(&f->aliases);
    free(f->ids);
    free(f->edges);
    free(f->counts);
    free(f->name);
}

void by_drift_reference_close(by_drift_reference **reference)
{
    by_drift_reference *r = *reference;
    if (r == NULL) {
        return;
    }
    *reference = NULL;
    for (size_t i = 0; i < r->count; i++) {
        release_feature(&r->features[i]);
    }
    for (size_t i = 0; i < r->value_count; i++) {
        free(r->values[i].name);
    }
    by__name_table_free(&r->by_name);
    free(r->features);
    free(r->values);
    free(r);
}

size_t by_drift_reference_features(const by_drift_reference *reference)
{
    return reference->count;
}

const char *by_drift_reference_feature(const by_drift_reference *reference, size_t index,
                                       by_drift_kind *kind)
{
    if (kind != NULL) {
        *kind = reference->features[index].kind;
    }
    return reference->features[index].name;
}

size_t by_drift_reference_find(const by_drift_reference *reference, const char *name)
{
    int32_t at = by__name_table_find(&reference->by_name, name);
    return at < 0 ? reference->count : (size_t)at;
}

size_t by_drift_reference_predicted(const by_drift_reference *reference, by_drift_role role)
{
    size_t i = 0;
    while (i < reference->count &&
           (role == BY_DRIFT_INPUT || reference->features[i].role != role)) {
        i++;
    }
    return i;
}

by_drift_role by_drift_reference_role(const by_drift_reference *reference, size_t index)
{
    return reference->features[index].role;
}

by_status by_drift_reference_assign(by_drift_reference *reference, size_t index, by_drift_role role,
                                    by_error *error)
{
    by__drift_feature *f = &reference->features[index];
    size_t other = by_drift_reference_predicted(reference, role);
    bool numbers = role == BY_DRIFT_OUTCOME && other < reference->count &&
                   reference->features[other].kind == BY_DRIFT_NUMBER && f->kind == BY_DRIFT_NUMBER;
    if (other < reference->count && other != index && !numbers) {
        return by_error_set(error, BY_EARG, "'%s' and '%s' cannot both be the %s", f->name,
                            reference->features[other].name,
                            role == BY_DRIFT_OUTCOME ? "prediction" : "confidence");
    }
    if ((role == BY_DRIFT_OUTCOME && f->kind == BY_DRIFT_TOKENS) ||
        (role == BY_DRIFT_CONFIDENCE && f->kind != BY_DRIFT_NUMBER)) {
        return by_error_set(error, BY_EARG,
                            "'%s' cannot be predicted: a prediction is a category or a number, and "
                            "a confidence a number",
                            f->name);
    }
    f->role = role;
    return BY_OK;
}

by_status by__drift_feature_add(by_drift_reference *r, by__drift_feature **out, const char *name,
                                by_drift_kind kind, by_error *error)
{
    if (by_drift_reference_find(r, name) < r->count) {
        return by_error_set(error, BY_EARG, "the feature '%s' is there twice", name);
    }
    BY_TRY(
        by__reserve((void **)&r->features, &r->capacity, r->count + 1, sizeof *r->features, error));
    by__drift_feature *f = &r->features[r->count];
    *f = (by__drift_feature){.kind = kind, .name = by__strdup(name)};
    if (f->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a feature's name");
    }
    by_status status = by__name_table_add(&r->by_name, f->name, (int32_t)r->count, error);
    if (status != BY_OK) {
        free(f->name);
        return status;
    }
    r->count++;
    *out = f;
    return BY_OK;
}

/* Removes the last feature if it could not be filled. */
static by_status settle(by_drift_reference *r, by_status status)
{
    if (status != BY_OK) {
        release_feature(&r->features[--r->count]);
        /* The table only grows, so that it is made anew; it had room for one name more. */
        by__name_table_free(&r->by_name);
        for (size_t i = 0; i < r->count; i++) {
            (void)by__name_table_add(&r->by_name, r->features[i].name, (int32_t)i, NULL);
        }
    }
    return status;
}

by_status by_drift_reference_value(by_drift_reference *reference, const char *name, double value,
                                   by_error *error)
{
    by_drift_reference *r = reference;
    BY_TRY(by__reserve((void **)&r->values, &r->value_capacity, r->value_count + 1,
                       sizeof *r->values, error));
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: '%s'", name);
    }
    r->values[r->value_count++] = (by__drift_value){.name = copy, .value = value};
    return BY_OK;
}

double by__drift_value_of(const by_drift_reference *r, const char *name)
{
    for (size_t i = 0; i < r->value_count; i++) {
        if (strcmp(r->values[i].name, name) == 0) {
            return r->values[i].value;
        }
    }
    return (double)NAN;
}

/* ---- numbers ---- */

size_t by__drift_bin_number(const by__drift_feature *f, double value)
{
    size_t low = 0;
    size_t high = f->edge_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->edges[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Sets edges at quantiles, each a value of the sample; equal ones are merged. The first edge is the
 * smallest value, the last one the largest. */
static by_status fill_number(by__drift_feature *f, const double *sorted, size_t count,
                             by_error *error)
{
    double sum = 0.0;
    double squares = 0.0;
    BY_TRY(by__alloc((void **)&f->edges, BY__DRIFT_BINS + 1, sizeof *f->edges, "edges", error));
    BY_TRY(by__alloc((void **)&f->counts, BY__DRIFT_BINS + 2, sizeof *f->counts, "counts", error));
    for (size_t i = 0; i <= BY__DRIFT_BINS; i++) {
        double edge = sorted[(size_t)((double)(count - 1) * (double)i / BY__DRIFT_BINS)];
        if (f->edge_count == 0 || edge > f->edges[f->edge_count - 1]) {
            f->edges[f->edge_count++] = edge;
        }
    }
    f->bins = f->edge_count + 1;
    for (size_t i = 0; i < count; i++) {
        f->counts[by__drift_bin_number(f, sorted[i])]++;
        sum += sorted[i];
    }
    f->rows = (double)count;
    f->mean = sum / f->rows;
    for (size_t i = 0; i < count; i++) {
        squares += (sorted[i] - f->mean) * (sorted[i] - f->mean);
    }
    f->deviation = sqrt(squares / f->rows);
    return BY_OK;
}

by_status by_drift_reference_number(by_drift_reference *reference, const char *name,
                                    const double *values, size_t count, by_error *error)
{
    by__drift_feature *f = NULL;
    double *sorted = NULL;
    size_t there = 0;
    BY_TRY(by__alloc((void **)&sorted, count + 1, sizeof *sorted, "a column", error));
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            sorted[there++] = values[i];
        }
    }
    by_status status =
        there > 0 ? BY_OK : by_error_set(error, BY_EARG, "'%s' has no finite value", name);
    if (status == BY_OK) {
        qsort(sorted, there, sizeof *sorted, by__compare_doubles);
        status = by__drift_feature_add(reference, &f, name, BY_DRIFT_NUMBER, error);
    }
    if (status == BY_OK) {
        f->missing = (double)(count - there);
        status = settle(reference, fill_number(f, sorted, there, error));
    }
    free(sorted);
    return status;
}

/* ---- categories and tokens ---- */

by_status by__drift_index_values(by__drift_feature *f, by_error *error)
{
    return by__aliases_open(&f->aliases, (const char *const *)f->values, f->kept, error);
}

size_t by__drift_bin_category(const by__drift_feature *f, const char *value)
{
    int32_t found = by__same_value((const char *const *)f->values, f->kept, &f->aliases, value);
    return found < 0 ? f->kept : (size_t)found;
}

bool by_drift_reference_has(const by_drift_reference *reference, size_t index, const char *value)
{
    const by__drift_feature *f = &reference->features[index];
    return f->kind == BY_DRIFT_CATEGORY && by__drift_bin_category(f, value) < f->kept;
}

size_t by__drift_bin_token(const by__drift_feature *f, int32_t id)
{
    size_t low = 0;
    size_t high = f->kept;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->ids[middle] == id) {
            return middle;
        }
        if (f->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return f->kept;
}

typedef struct ranked_value {
    uint64_t count;
    size_t index;
    const char *value;
} ranked_value;

/* Sorts by descending count, then by position. */
static int by_count(const void *a, const void *b)
{
    const ranked_value *x = a;
    const ranked_value *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count)
                                : (x->index > y->index) - (x->index < y->index);
}

static int by_index(const void *a, const void *b)
{
    const ranked_value *x = a;
    const ranked_value *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static int by_content(const void *a, const void *b)
{
    return strcmp(((const ranked_value *)a)->value, ((const ranked_value *)b)->value);
}

/* Lists the values with a count, the most frequent first. */
static by_status rank(ranked_value **out, size_t *distinct, const uint64_t *counts,
                      const char *const *values, size_t count, by_error *error)
{
    BY_TRY(by__alloc((void **)out, count + 1, sizeof **out, "counts", error));
    *distinct = 0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i] > 0) {
            (*out)[(*distinct)++] = (ranked_value){counts[i], i, values == NULL ? NULL : values[i]};
        }
    }
    qsort(*out, *distinct, sizeof **out, by_count);
    return BY_OK;
}

static by_status fill_kept(by__drift_feature *f, ranked_value *all, size_t distinct,
                           by_error *error)
{
    f->distinct = distinct;
    size_t kept = distinct < BY__DRIFT_KEPT ? distinct : BY__DRIFT_KEPT;
    bool texts = f->kind == BY_DRIFT_CATEGORY;
    f->bins = kept + 1;
    BY_TRY(by__alloc((void **)&f->counts, f->bins, sizeof *f->counts, "counts", error));
    if (texts) {
        BY_TRY(by__alloc((void **)&f->values, kept + 1, sizeof *f->values, "values", error));
    } else {
        BY_TRY(by__alloc((void **)&f->ids, kept + 1, sizeof *f->ids, "tokens", error));
    }
    for (size_t i = 0; i < distinct; i++) {
        f->rows += (double)all[i].count;
        f->counts[kept] += i < kept ? 0.0 : (double)all[i].count;
    }
    qsort(all, kept, sizeof *all, texts ? by_content : by_index);
    for (size_t i = 0; i < kept; i++) {
        f->counts[i] = (double)all[i].count;
        if (!texts) {
            f->ids[i] = (int32_t)all[i].index;
        } else if ((f->values[i] = by__strdup(all[i].value)) == NULL) {
            f->kept = i;
            return by_error_set(error, BY_EMEMORY, "out of memory: values of '%s'", f->name);
        }
        f->kept = i + 1;
    }
    if (texts) {
        BY_TRY(by__drift_index_values(f, error));
    }
    return f->rows > 0.0 ? BY_OK : by_error_set(error, BY_EARG, "'%s' has no value", f->name);
}

static by_status add_counted(by_drift_reference *r, const char *name, by_drift_kind kind,
                             const char *const *values, const uint64_t *counts, size_t count,
                             uint64_t missing, by_error *error)
{
    by__drift_feature *f = NULL;
    ranked_value *all = NULL;
    size_t distinct = 0;
    by_status status = rank(&all, &distinct, counts, values, count, error);
    if (status == BY_OK) {
        status = by__drift_feature_add(r, &f, name, kind, error);
    }
    if (status == BY_OK) {
        f->missing = (double)missing;
        status = settle(r, fill_kept(f, all, distinct, error));
    }
    free(all);
    return status;
}

by_status by_drift_reference_category(by_drift_reference *reference, const char *name,
                                      const char *const *values, const uint64_t *counts,
                                      size_t count, uint64_t missing, by_error *error)
{
    uint64_t *sums = NULL;
    by__value_groups groups;
    BY_TRY(by__value_groups_open(&groups, values, counts, count, error));
    by_status status = by__alloc((void **)&sums, groups.count + 1, sizeof *sums, "counts", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        if (groups.group_of[i] >= 0) {
            sums[groups.group_of[i]] += counts[i];
        }
    }
    if (status == BY_OK) {
        status = add_counted(reference, name, BY_DRIFT_CATEGORY, (const char *const *)groups.names,
                             sums, groups.count, missing, error);
    }
    free(sums);
    by__value_groups_close(&groups);
    return status;
}

by_status by_drift_reference_tokens(by_drift_reference *reference, const char *name,
                                    const uint64_t *counts, size_t vocab, by_error *error)
{
    if (vocab > INT32_MAX) {
        return by_error_set(error, BY_EARG, "a vocabulary of %zu tokens is too large", vocab);
    }
    return add_counted(reference, name, BY_DRIFT_TOKENS, NULL, counts, vocab, 0, error);
}
