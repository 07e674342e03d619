/* Metrics and predictions of small graphs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/graph/graph_tasks.h"
#include "tasks/graph/scored.h"

/* Scores that the area under the curve is made from: those of the first graphs. */
#define MOST_SCORES ((size_t)1 << 17)

enum { SUM_COUNT, SUM_CORRECT, SUM_MAGNITUDES, SUM_SQUARES, SUM_SCORES };

static size_t scored(const by__task_graphs_data *d)
{
    uint64_t count;
    (void)by__task_graph_split_held_out(&d->split, &count);
    return d->numbers || d->classes > 2 ? 0 : count < MOST_SCORES ? (size_t)count : MOST_SCORES;
}

/* Of each graph a 1, where it was evaluated, and its score. */
static size_t count_scores(const by_task_data *data, const by_config *config)
{
    BY_UNUSED(config);
    return 2 * scored((const by__task_graphs_data *)data) + 1;
}

const by_task_sum by__task_graphs_sums[BY__TASK_GRAPHS_SUMS] = {
    [SUM_COUNT] = {.name = "count"},
    [SUM_CORRECT] = {.name = "correct"},
    [SUM_MAGNITUDES] = {.name = "magnitudes"},
    [SUM_SQUARES] = {.name = "squares"},
    [SUM_SCORES] = {.name = "scores", .count = count_scores}};

static size_t best_of(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

static double number_said(const by__task_graphs_data *d, const float *values)
{
    return d->keys->target_mean + fabs(d->keys->target_deviation) * (double)values[0];
}

static void measure_one(const by__task_graphs_data *d, double *const *sums, int32_t place,
                        double value, const float *values, size_t outputs)
{
    *sums[SUM_COUNT] += 1.0;
    if (d->numbers) {
        double difference = number_said(d, values) - value;
        *sums[SUM_MAGNITUDES] += fabs(difference);
        *sums[SUM_SQUARES] += difference * difference;
        return;
    }
    *sums[SUM_CORRECT] += best_of(values, outputs) == (size_t)value ? 1.0 : 0.0;
    if (outputs == 2 && (size_t)place < scored(d)) {
        sums[SUM_SCORES][2 * place] = 1.0;
        sums[SUM_SCORES][2 * place + 1] = (double)values[1] - (double)values[0];
    }
}

void by__task_graphs_measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                             const float *values, size_t width)
{
    const by__task_graphs_data *d = (const by__task_graphs_data *)data;
    const by_array *places = by_batch_array(batch, "place");
    size_t graphs = places == NULL ? 1 : (size_t)places->shape.dim[1];
    size_t outputs = width / graphs;
    uint64_t count;
    const uint64_t *ids = by__task_graph_split_held_out(&d->split, &count);
    for (size_t i = 0; places != NULL && i < batch->batch * graphs; i++) {
        int32_t place = ((const int32_t *)places->data)[i];
        if (place >= 0 && d->list->values != NULL && !isnan(d->list->values[ids[place]])) {
            measure_one(d, sums, place, d->list->values[ids[place]], values + i * outputs, outputs);
        }
    }
}

static double accuracy(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return data != NULL && ((const by__task_graphs_data *)data)->numbers
               ? (double)NAN
               : *sums[SUM_CORRECT] / *sums[SUM_COUNT];
}

static double area(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    const by__task_graphs_data *d = (const by__task_graphs_data *)data;
    uint64_t count;
    const uint64_t *ids = by__task_graph_split_held_out(&d->split, &count);
    by__task_scored *all;
    size_t used = 0;
    BY_UNUSED(e);
    if (by__alloc((void **)&all, scored(d) + 1, sizeof *all, "scores", NULL) != BY_OK) {
        return (double)NAN;
    }
    for (size_t i = 0; i < scored(d); i++) {
        if (sums[SUM_SCORES][2 * i] > 0.0) {
            all[used++] = (by__task_scored){.score = sums[SUM_SCORES][2 * i + 1],
                                            .is_positive = d->list->values[ids[i]] > 0.0};
        }
    }
    double result = by__task_area(all, used);
    free(all);
    return result;
}

static double mae(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return data != NULL && ((const by__task_graphs_data *)data)->numbers
               ? *sums[SUM_MAGNITUDES] / *sums[SUM_COUNT]
               : (double)NAN;
}

static double rmse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return data != NULL && ((const by__task_graphs_data *)data)->numbers
               ? sqrt(*sums[SUM_SQUARES] / *sums[SUM_COUNT])
               : (double)NAN;
}

const by_metric by__task_graphs_metrics[BY__TASK_GRAPHS_METRICS] = {{"accuracy", true, 4, accuracy},
                                                                    {"auc", true, 4, area},
                                                                    {"mae", false, 4, mae},
                                                                    {"rmse", false, 4, rmse}};

/* ---- predictions ---- */

static void predict_one(const by__task_graphs_data *d, int32_t id, const float *values,
                        size_t outputs, by_predicted *report, void *user)
{
    const by_string_list *names = &d->keys->label_names;
    const by_field graph = {.name = "graph", .number = (double)id, .is_whole = true};
    char label[32];
    if (d->numbers) {
        const by_field fields[] = {graph, {.name = "value", .number = number_said(d, values)}};
        report(user, fields, BY_ARRAY_LENGTH(fields));
        return;
    }
    size_t best = best_of(values, outputs);
    double all = 0.0;
    for (size_t c = 0; c < outputs; c++) {
        all += exp((double)values[c] - (double)values[best]);
    }
    (void)snprintf(label, sizeof label, "%zu", best);
    const by_field fields[] = {
        graph,
        {.name = "class", .number = (double)best, .is_whole = true},
        {.name = "label", .text = best < names->count ? names->items[best] : label},
        {.name = "probability", .number = 1.0 / all}};
    report(user, fields, BY_ARRAY_LENGTH(fields));
}

by_status by__task_graphs_predict(by_task_data *data, const by_batch *batch, double sum,
                                  const float *values, size_t width, by_predicted *report,
                                  void *user, by_error *error)
{
    const by__task_graphs_data *d = (const by__task_graphs_data *)data;
    const by_array *ids = by_batch_array(batch, "ids");
    size_t graphs = ids == NULL ? 1 : (size_t)ids->shape.dim[1];
    size_t outputs = width / graphs;
    BY_UNUSED(sum);
    BY_UNUSED(error);
    for (size_t i = 0; ids != NULL && i < batch->batch * graphs; i++) {
        int32_t id = ((const int32_t *)ids->data)[i];
        if (id >= 0) {
            predict_one(d, id, values + i * outputs, outputs, report, user);
        }
    }
    return BY_OK;
}
