/* Two runs of a suite, item by item.
 *
 * The scores of a pair are of the same question, so what both find easy or hard cancels out: the
 * interval of their mean difference is narrower than two intervals suggest (Miller, "Adding error
 * bars to evals", arXiv 2411.00640, section 4). It comes from the bootstrap over pairs. For scores
 * of 0 and 1, McNemar's exact test says how likely a difference as large as this one is if both are
 * equally good: of the n items on which they differ, the number that one has right is binomial with
 * p = 1/2 (McNemar 1947). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/suite.h"
#include "base/json.h"
#include "base/name_table.h"
#include "evaluate/bootstrap.h"

/* A line of a file of items. */
typedef struct scored_item {
    char *task;
    char *key; /* task, item and hash of its texts: equal for the same question */
    double score;
} scored_item;

typedef struct scored_items {
    scored_item *items;
    size_t count;
    size_t capacity;
    by__name_table table; /* index by key */
} scored_items;

static void free_items(scored_items *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->items[i].task);
        free(s->items[i].key);
    }
    free(s->items);
    by__name_table_free(&s->table);
}

static by_status add_item(scored_items *s, const char *path, size_t number, const json_t *line,
                          by_error *error)
{
    const char *task = by__json_string(json_object_get(line, "task"));
    const char *id = by__json_string(json_object_get(line, "id"));
    const json_t *item = json_object_get(line, "item");
    const json_t *score = json_object_get(line, "score");
    by_string key = {0};
    if (task == NULL || id == NULL || !json_is_integer(item) || !json_is_number(score)) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s:%zu: not an item of banyan eval --items-out: it needs task, item, id "
            "and score",
            path, number);
    }
    BY_TRY(by__reserve((void **)&s->items, &s->capacity, s->count + 1, sizeof *s->items, error));
    by_string_format(&key, "%s\n%lld\n%s", task, (long long)json_integer_value(item), id);
    BY_TRY(by_string_check(&key, error));
    scored_item *to = &s->items[s->count];
    *to = (scored_item){by__strdup(task), key.data, json_number_value(score)};
    s->count++;
    if (to->task == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: items of %s", path);
    }
    if (by__name_table_find(&s->table, to->key) >= 0) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: an item that was there before", path,
                            number);
    }
    return by__name_table_add(&s->table, to->key, (int32_t)(s->count - 1), error);
}

static by_status read_items(scored_items *s, const char *path, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    by_status status = BY_OK;
    size_t number = 1;
    for (size_t at = 0; at < map.size && status == BY_OK; number++) {
        const char *line = (const char *)map.data + at;
        const char *next = memchr(line, '\n', map.size - at);
        size_t n = next == NULL ? map.size - at : (size_t)(next - line);
        json_t *value = n == 0 ? NULL : by_json_load(line, n, 0, NULL);
        at += n + 1;
        status = n == 0 ? BY_OK : add_item(s, path, number, value, error);
        json_decref(value);
    }
    by__map_close(&map);
    if (status == BY_OK && s->count == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s has no items", path);
    }
    return status;
}

/* ---- statistics ---- */

/* Probability that of n fair coins as few or fewer fall on one side, on either of both: the sum of
 * binomial(n, i) / 2^n for i from 0 to `few`, twice. */
static double sign_test(uint64_t few, uint64_t n)
{
    double sum = 0.0;
    for (uint64_t i = 0; i <= few; i++) {
        sum += exp(lgamma((double)n + 1.0) - lgamma((double)i + 1.0) -
                   lgamma((double)(n - i) + 1.0) - (double)n * log(2.0));
    }
    return fmin(1.0, 2.0 * sum);
}

static bool is_right_or_wrong(double score)
{
    return score == 0.0 || score == 1.0;
}

/* Fills a comparison from pairs of scores [count][2]. samples: scratch. */
static void compare_pairs(by_suite_pair *out, const double (*pairs)[2], uint32_t task,
                          by__evaluate_draws *draws, double *samples)
{
    uint32_t count = (uint32_t)out->items;
    bool binary = true;
    for (uint32_t k = 0; k < count; k++) {
        out->first += pairs[k][0] / count;
        out->second += pairs[k][1] / count;
        out->difference += (pairs[k][1] - pairs[k][0]) / count;
        out->better += pairs[k][1] > pairs[k][0];
        out->worse += pairs[k][1] < pairs[k][0];
        binary = binary && is_right_or_wrong(pairs[k][0]) && is_right_or_wrong(pairs[k][1]);
    }
    uint64_t few = out->better < out->worse ? out->better : out->worse;
    out->p = binary ? sign_test(few, out->better + out->worse) : NAN;
    for (uint32_t b = 0; b < BY__EVALUATE_SAMPLES; b++) {
        double sum = 0.0;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t i = by__evaluate_draw(draws, task, b, k, count);
            sum += pairs[i][1] - pairs[i][0];
        }
        samples[b] = sum / count;
    }
    by__evaluate_interval(samples, &out->low, &out->high);
}

/* ---- tasks ---- */

/* Adds the tasks that both files have items of, and returns the pairs of all of them, task by
 * task. */
static by_status collect(by_suite_comparison *c, const scored_items *a, const scored_items *b,
                         double (*pairs)[2], by_error *error)
{
    size_t filled = 0;
    bool *taken;
    BY_TRY(by__alloc((void **)&taken, a->count, sizeof *taken, "items", error));
    for (size_t i = 0; i < a->count; i++) {
        size_t begin = filled;
        for (size_t k = taken[i] ? a->count : i; k < a->count; k++) {
            if (taken[k] || strcmp(a->items[k].task, a->items[i].task) != 0) {
                continue;
            }
            int32_t other = by__name_table_find(&b->table, a->items[k].key);
            taken[k] = true;
            if (other >= 0) {
                pairs[filled][0] = a->items[k].score;
                pairs[filled++][1] = b->items[other].score;
            }
        }
        if (filled > begin) {
            by_suite_pair *t = &c->tasks[c->count++];
            *t = (by_suite_pair){.task = by__strdup(a->items[i].task), .items = filled - begin};
            if (t->task == NULL) {
                free(taken);
                return by_error_set(error, BY_EMEMORY, "out of memory: tasks");
            }
        }
    }
    free(taken);
    c->unpaired = a->count + b->count - 2 * filled;
    return filled > 0 ? BY_OK
                      : by_error_set(error, BY_EARG,
                                     "the files have no item in common: run both models on the "
                                     "same suite with equal --few-shot, --limit and --seed");
}

by_status by_suite_compare(by_suite_comparison **out, const char *first, const char *second,
                           uint64_t seed, by_error *error)
{
    scored_items a = {0};
    scored_items b = {0};
    double(*pairs)[2] = NULL;
    double *samples = NULL;
    by__evaluate_draws draws;
    by_suite_comparison *c;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "comparison", error));
    by_status status = read_items(&a, first, error);
    status = status == BY_OK ? read_items(&b, second, error) : status;
    if (status == BY_OK) {
        status = by__alloc((void **)&c->tasks, a.count, sizeof *c->tasks, "tasks", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&pairs, a.count, sizeof *pairs, "pairs", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&samples, BY__EVALUATE_SAMPLES, sizeof *samples, "samples", error);
    }
    status = status == BY_OK ? collect(c, &a, &b, pairs, error) : status;
    if (status == BY_OK) {
        const double(*at)[2] = (const double(*)[2])pairs;
        by__evaluate_draws_begin(&draws, seed);
        for (size_t i = 0; i < c->count; i++) {
            compare_pairs(&c->tasks[i], at, (uint32_t)i, &draws, samples);
            at += c->tasks[i].items;
        }
        *out = c;
    } else {
        by_suite_comparison_close(&c);
    }
    free(pairs);
    free(samples);
    free_items(&a);
    free_items(&b);
    return status;
}

void by_suite_comparison_close(by_suite_comparison **comparison)
{
    by_suite_comparison *c = *comparison;
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->count; i++) {
        free(c->tasks[i].task);
    }
    free(c->tasks);
    free(c);
    *comparison = NULL;
}
