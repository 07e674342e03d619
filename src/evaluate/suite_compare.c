/* Two runs of a suite, item by item.
 *
 * The scores of a pair are of the same question, so what both find easy or hard cancels out: the
 * interval of their mean difference is narrower than two intervals suggest (Miller, "Adding error
 * bars to evals", arXiv 2411.00640, section 4). It comes from the bootstrap over pairs. For scores
 * of 0 and 1, McNemar's exact test says how likely a difference as large as this one is if both are
 * equally good: of the n items on which they differ, the number that one has right is binomial with
 * p = 1/2 (McNemar 1947).
 *
 * A document's score counts as often as it has bytes, in the values as in the bootstrap, so that a
 * run's value is the one that the evaluation gave. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/suite.h"
#include "base/json.h"
#include "base/name_table.h"
#include "evaluate/bootstrap.h"
#include "evaluate/evaluate.h"

/* A line of a file of items. */
typedef struct scored_item {
    char *task;
    char *key; /* task, item and hash of its texts: equal for the same question */
    char *metric;
    double score;
    double weight; /* bytes of a document, else 1 */
} scored_item;

/* The same item of two runs, or sums of such pairs. */
typedef struct scored_pair {
    double scores[2];
    double weights[2];
} scored_pair;

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
        free(s->items[i].metric);
    }
    free(s->items);
    by__name_table_free(&s->table);
}

/* How much an item's score counts. */
static by_status read_weight(double *out, const char *metric, const char *path, size_t number,
                             const json_t *line, by_error *error)
{
    const json_t *bytes = json_object_get(line, "bytes");
    *out = 1.0;
    if (strcmp(metric, "bits_per_byte") != 0) {
        return BY_OK;
    }
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s:%zu: a score of bits_per_byte needs 'bytes', the length of its "
                            "document: write the file anew with banyan eval --items-out",
                            path, number);
    }
    *out = (double)json_integer_value(bytes);
    return BY_OK;
}

static by_status add_item(scored_items *s, const char *path, size_t number, const json_t *line,
                          by_error *error)
{
    const char *metric = by__json_string(json_object_get(line, "metric"));
    const char *task = by__json_string(json_object_get(line, "task"));
    const char *id = by__json_string(json_object_get(line, "id"));
    const json_t *item = json_object_get(line, "item");
    const json_t *score = json_object_get(line, "score");
    double weight;
    by_string key = {0};
    metric = metric == NULL ? "" : metric;
    if (task == NULL || id == NULL || !json_is_integer(item) || !json_is_number(score)) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s:%zu: not an item of banyan eval --items-out: it needs task, item, id "
            "and score",
            path, number);
    }
    BY_TRY(read_weight(&weight, metric, path, number, line, error));
    BY_TRY(by__reserve((void **)&s->items, &s->capacity, s->count + 1, sizeof *s->items, error));
    by_string_format(&key, "%s\n%lld\n%s", task, (long long)json_integer_value(item), id);
    BY_TRY(by_string_check(&key, error));
    scored_item *to = &s->items[s->count];
    *to = (scored_item){.task = by__strdup(task),
                        .key = key.data,
                        .metric = by__strdup(metric),
                        .score = json_number_value(score),
                        .weight = weight};
    s->count++;
    if (to->task == NULL || to->metric == NULL) {
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

/* Adds a pair to sums, whose quotients are the values of both runs. */
static void add_pair(scored_pair *s, const scored_pair *pair)
{
    for (int f = 0; f < 2; f++) {
        /* A document without bytes has a score, but no say. */
        s->scores[f] += pair->weights[f] > 0.0 ? pair->weights[f] * pair->scores[f] : 0.0;
        s->weights[f] += pair->weights[f];
    }
}

static double quotient(const scored_pair *s, int run)
{
    return s->scores[run] / s->weights[run];
}

/* Fills a comparison from its pairs. `lower`: a lower score is better. samples: scratch. */
static void compare_pairs(by_suite_pair *out, const scored_pair *pairs, bool lower, uint32_t task,
                          by__evaluate_draws *draws, double *samples)
{
    uint32_t count = (uint32_t)out->items;
    bool binary = !lower;
    size_t filled = 0;
    scored_pair all = {0};
    for (uint32_t k = 0; k < count; k++) {
        double first = pairs[k].scores[0];
        double second = pairs[k].scores[1];
        add_pair(&all, &pairs[k]);
        out->better += lower ? second < first : second > first;
        out->worse += lower ? second > first : second < first;
        binary = binary && is_right_or_wrong(first) && is_right_or_wrong(second);
    }
    out->first = quotient(&all, 0);
    out->second = quotient(&all, 1);
    out->difference = out->second - out->first;
    uint64_t few = out->better < out->worse ? out->better : out->worse;
    out->p = binary ? sign_test(few, out->better + out->worse) : NAN;
    for (uint32_t b = 0; b < BY__EVALUATE_SAMPLES; b++) {
        scored_pair sums = {0};
        for (uint32_t k = 0; k < count; k++) {
            add_pair(&sums, &pairs[by__evaluate_draw(draws, task, b, k, count)]);
        }
        if (sums.weights[0] > 0.0 && sums.weights[1] > 0.0) {
            samples[filled++] = quotient(&sums, 1) - quotient(&sums, 0);
        }
    }
    by__evaluate_interval(samples, filled, &out->low, &out->high);
}

/* ---- tasks ---- */

/* The pairs of both files, task by task. */
typedef struct paired_items {
    scored_pair *pairs;
    bool *lower; /* [tasks]: a lower score is better */
} paired_items;

/* Adds the pair of two lines of one question. Scores of different metrics differ for another reason
 * than that a model is better. */
static by_status pair_items(scored_pair *out, const scored_item *a, const scored_item *b,
                            by_error *error)
{
    if (strcmp(a->metric, b->metric) != 0) {
        return by_error_set(error, BY_EARG,
                            "task '%s' has scores of '%s' in one file and of '%s' in the other: "
                            "run both models on the same suite",
                            a->task, a->metric, b->metric);
    }
    *out = (scored_pair){{a->score, b->score}, {a->weight, b->weight}};
    return BY_OK;
}

/* Pairs the items of the task that item `i` of the first file is of, from `filled` on. */
static by_status collect_task(const scored_items *a, const scored_items *b, size_t i, bool *taken,
                              scored_pair *pairs, size_t *filled, by_error *error)
{
    for (size_t k = i; k < a->count; k++) {
        if (taken[k] || strcmp(a->items[k].task, a->items[i].task) != 0) {
            continue;
        }
        int32_t other = by__name_table_find(&b->table, a->items[k].key);
        taken[k] = true;
        if (other >= 0) {
            BY_TRY(pair_items(&pairs[*filled], &a->items[k], &b->items[other], error));
            ++*filled;
        }
    }
    return BY_OK;
}

static by_status add_task(by_suite_comparison *c, const char *name, const scored_pair *pairs,
                          size_t count, by_error *error)
{
    scored_pair all = {0};
    for (size_t k = 0; k < count; k++) {
        add_pair(&all, &pairs[k]);
    }
    if (!(all.weights[0] > 0.0 && all.weights[1] > 0.0)) {
        return by_error_set(error, BY_EARG,
                            "task '%s': the documents that both files have are all empty", name);
    }
    by_suite_pair *t = &c->tasks[c->count++];
    *t = (by_suite_pair){.task = by__strdup(name), .items = count};
    return t->task != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: tasks");
}

/* Adds the tasks that both files have items of, with their pairs. */
static by_status collect(by_suite_comparison *c, const scored_items *a, const scored_items *b,
                         const paired_items *out, by_error *error)
{
    size_t filled = 0;
    bool *taken;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&taken, a->count, sizeof *taken, "items", error));
    for (size_t i = 0; i < a->count && status == BY_OK; i++) {
        size_t begin = filled;
        if (taken[i]) {
            continue;
        }
        status = collect_task(a, b, i, taken, out->pairs, &filled, error);
        if (status == BY_OK && filled > begin) {
            out->lower[c->count] = by__evaluate_lower_is_better(a->items[i].metric);
            status = add_task(c, a->items[i].task, out->pairs + begin, filled - begin, error);
        }
    }
    free(taken);
    c->unpaired = a->count + b->count - 2 * filled;
    return status != BY_OK || filled > 0
               ? status
               : by_error_set(error, BY_EARG,
                              "the files have no item in common: run both models on the "
                              "same suite with equal --few-shot, --limit and --seed");
}

by_status by_suite_compare(by_suite_comparison **out, const char *first, const char *second,
                           uint64_t seed, by_error *error)
{
    scored_items a = {0};
    scored_items b = {0};
    paired_items found = {NULL, NULL};
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
        status = by__alloc((void **)&found.pairs, a.count, sizeof *found.pairs, "pairs", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&found.lower, a.count, sizeof *found.lower, "pairs", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&samples, BY__EVALUATE_SAMPLES, sizeof *samples, "samples", error);
    }
    status = status == BY_OK ? collect(c, &a, &b, &found, error) : status;
    if (status == BY_OK) {
        const scored_pair *at = found.pairs;
        by__evaluate_draws_begin(&draws, seed);
        for (size_t i = 0; i < c->count; i++) {
            compare_pairs(&c->tasks[i], at, found.lower[i], (uint32_t)i, &draws, samples);
            at += c->tasks[i].items;
        }
        *out = c;
    } else {
        by_suite_comparison_close(&c);
    }
    free(found.pairs);
    free(found.lower);
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
