/* Metrics of scores, and their intervals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "evaluate/bootstrap.h"
#include "evaluate/evaluate.h"

#define SAMPLES BY__EVALUATE_SAMPLES

/* ---- metrics ---- */

static const char *const length_names[BY__EVALUATE_LENGTHS] = {"acc", "acc_norm", "acc_bytes",
                                                               "acc_tokens"};

size_t by__evaluate_metric_names(const by__evaluate_task *task, const char *names[BY_SUITE_METRICS])
{
    size_t count = 0;
    switch (task->kind) {
    case BY__EVALUATE_CHOICE:
    case BY__EVALUATE_SCHEMA:
        names[count++] = length_names[task->length];
        names[count++] = "centered";
        for (int i = 0; i < BY__EVALUATE_LENGTHS; i++) {
            if (i != (int)task->length) {
                names[count++] = length_names[i];
            }
        }
        break;
    case BY__EVALUATE_EXACT:
        names[count++] = "acc";
        names[count++] = "centered";
        names[count++] = "perplexity";
        break;
    case BY__EVALUATE_GENERATE:
        for (; count < task->answers.count; count++) {
            names[count] = task->answers.ways[count].metric;
        }
        break;
    default:
        names[count++] = "bits_per_byte";
        names[count++] = "byte_perplexity";
        names[count++] = "word_perplexity";
        break;
    }
    return count;
}

static bool is_perplexity(const char *metric)
{
    return strcmp(metric, "perplexity") == 0 || strcmp(metric, "byte_perplexity") == 0 ||
           strcmp(metric, "word_perplexity") == 0;
}

bool by__evaluate_lower_is_better(const char *metric)
{
    return strcmp(metric, "bits_per_byte") == 0 || is_perplexity(metric);
}

/* The value of a metric from the quotient of its sums and weights: log-probabilities become
 * perplexities. */
static double finish(const char *name, double quotient)
{
    if (strcmp(name, "bits_per_byte") == 0) {
        return -quotient / log(2.0);
    }
    return is_perplexity(name) ? exp(-quotient) : quotient;
}

/* ---- intervals ---- */

typedef struct sample_sums {
    double sums[BY_SUITE_METRICS];
    double weights[BY_SUITE_METRICS];
} sample_sums;

static void add_score(sample_sums *s, const by__evaluate_score *score, size_t count)
{
    for (size_t m = 0; m < count; m++) {
        s->sums[m] += score->sums[m];
        s->weights[m] += score->weights[m];
    }
}

/* Fills the metrics of a task. values [metrics][SAMPLES] receives those of the samples, of which
 * the first two are left in the order of the draws. A sample that drew nothing but documents
 * without bytes has no value, and says nothing of the interval. */
static void fill_task(by_suite_task_result *task, const char *const *names,
                      const by__evaluate_score *scores, by__evaluate_draws *draws, uint32_t number,
                      double *values, double *scratch)
{
    size_t count = task->metric_count;
    uint32_t items = (uint32_t)task->items;
    size_t filled[BY_SUITE_METRICS] = {0};
    sample_sums all = {0};
    for (uint32_t k = 0; k < items; k++) {
        add_score(&all, &scores[k], count);
    }
    for (uint32_t b = 0; b < SAMPLES; b++) {
        sample_sums s = {0};
        for (uint32_t k = 0; k < items; k++) {
            add_score(&s, &scores[by__evaluate_draw(draws, number, b, k, items)], count);
        }
        for (size_t m = 0; m < count; m++) {
            if (s.weights[m] > 0.0) {
                values[m * SAMPLES + filled[m]++] = finish(names[m], s.sums[m] / s.weights[m]);
            }
        }
    }
    for (size_t m = 0; m < count; m++) {
        by_suite_metric *metric = &task->metrics[m];
        *metric = (by_suite_metric){.name = names[m],
                                    .value = finish(names[m], all.sums[m] / all.weights[m])};
        memcpy(scratch, values + m * SAMPLES, filled[m] * sizeof *scratch);
        by__evaluate_interval(scratch, filled[m], &metric->low, &metric->high);
    }
}

/* Adds a task's share of a mean to its value and to its samples. */
static void add_share(by_suite_metric *mean, double *samples, double share,
                      const by_suite_metric *metric, const double *values)
{
    mean->value += share * metric->value;
    for (size_t b = 0; b < SAMPLES; b++) {
        samples[b] += share * values[b];
    }
}

/* Ends a mean, which has a name only if every task took part in it. */
static void end_mean(by_suite_metric *mean, const char *name, double *samples)
{
    if (name == NULL) {
        *mean = (by_suite_metric){.name = NULL};
        return;
    }
    mean->name = name;
    by__evaluate_interval(samples, SAMPLES, &mean->low, &mean->high);
}

by_status by__evaluate_results_fill(by_suite_results *results, const by_suite *suite,
                                    const by__evaluate_score *scores, uint64_t seed,
                                    by_error *error)
{
    double *memory; /* values of a task's metrics, then scratch, then sums of both means */
    by__evaluate_draws draws;
    bool all_centered = true;
    bool all_shares = true; /* of right answers: bits or perplexities have other units */
    double share = 1.0 / (double)suite->count;
    BY_TRY(by__alloc((void **)&memory, BY_SUITE_METRICS + 3, SAMPLES * sizeof *memory, "samples",
                     error));
    double *scratch = memory + BY_SUITE_METRICS * SAMPLES;
    double *means[2] = {scratch + SAMPLES, scratch + 2 * SAMPLES};
    by__evaluate_draws_begin(&draws, seed);
    results->mean = (by_suite_metric){.name = NULL};
    results->centered = (by_suite_metric){.name = NULL};
    for (size_t i = 0; i < suite->count; i++) {
        by_suite_task_result *task = &results->tasks[i];
        const char *names[BY_SUITE_METRICS];
        task->metric_count = by__evaluate_metric_names(&suite->tasks[i], names);
        fill_task(task, names, scores, &draws, (uint32_t)i, memory, scratch);
        scores += task->items;
        all_shares = all_shares && !by__evaluate_lower_is_better(names[0]);
        all_centered = all_centered && task->metric_count > 1 && strcmp(names[1], "centered") == 0;
        if (all_shares) {
            add_share(&results->mean, means[0], share, &task->metrics[0], memory);
        }
        if (all_centered) {
            add_share(&results->centered, means[1], share, &task->metrics[1], memory + SAMPLES);
        }
    }
    end_mean(&results->mean, all_shares ? "mean" : NULL, means[0]);
    end_mean(&results->centered, all_centered ? "centered" : NULL, means[1]);
    free(memory);
    return BY_OK;
}

void by_suite_results_close(by_suite_results **results)
{
    if (*results != NULL) {
        free((*results)->tasks);
        free(*results);
        *results = NULL;
    }
}
