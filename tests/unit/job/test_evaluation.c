/* Metrics of a task that adds up a value for each of many classes: the same for any number of
 * ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "job/job.h"
#include "runner.h"

#define CLASSES  50
#define EXAMPLES 70 /* some classes have two, the others one */

static const by_array arrays[] = {{"x", BY_F32, {1, {1}}, NULL}, {"class", BY_I32, {0}, NULL}};

static double value_of(uint64_t example)
{
    return (double)example / 8.0 - 3.0;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    BY_UNUSED(error);
    bool counts = sample->place < source->samples;
    *(float *)rows[0] = (float)value_of(sample->place);
    *(int32_t *)rows[1] = counts ? (int32_t)(sample->place % CLASSES) : -1;
    return BY_OK;
}

static by_status open_source(by_source **out, by_task_data *data, const by_config *config,
                             bool training, by_error *error)
{
    static by_source source = {.name = "numbers",
                               .arrays = arrays,
                               .array_count = 2,
                               .samples = EXAMPLES,
                               .sample_targets = 1,
                               .targets = EXAMPLES,
                               .fill = fill};
    BY_UNUSED(data);
    BY_UNUSED(config);
    BY_UNUSED(training);
    BY_UNUSED(error);
    *out = &source;
    return BY_OK;
}

static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(config);
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(request->batch, 1));
    by_init one = {.kind = BY_INIT_ONE};
    by_value w = by_graph_parameter(graph, "w", "out in", BY_SHAPE(1, 1), one);
    out->output = by_linear(graph, x, w, BY_NONE, true);
    return by_graph_check(graph, error);
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(error);
    by_value class = by_graph_input(graph, "class", BY_I32, BY_SHAPE(request->batch));
    by_value zeros = by_fill(graph, BY_F32, BY_SHAPE(request->batch, CLASSES), 0.0f);
    model->loss = by_cross_entropy(graph, zeros, class, 0.0f);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

/* ---- sums ---- */

enum { SUM_COUNT, SUM_CLASS_COUNT, SUM_CLASS };

static size_t count_classes(const by_task_data *data, const by_config *config)
{
    BY_UNUSED(data);
    BY_UNUSED(config);
    return CLASSES;
}

static size_t count_none(const by_task_data *data, const by_config *config)
{
    BY_UNUSED(data);
    BY_UNUSED(config);
    return 0;
}

static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"},
    [SUM_CLASS_COUNT] = {.name = "class_count", .count = count_classes},
    [SUM_CLASS] = {.name = "class", .count = count_classes},
};

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const int32_t *class = by_batch_array(batch, "class")->data;
    BY_UNUSED(data);
    for (size_t i = 0; i < batch->batch; i++) {
        if (class[i] >= 0) {
            *sums[SUM_COUNT] += 1.0;
            sums[SUM_CLASS_COUNT][class[i]] += 1.0;
            sums[SUM_CLASS][class[i]] += (double)values[i * width] / 3.0;
        }
    }
}

/* The largest mean of a class. */
static double best_class(const by_task_data *data, const double *const *sums,
                         const by_evaluation *evaluation)
{
    double best = -INFINITY;
    BY_UNUSED(data);
    BY_UNUSED(evaluation);
    for (int c = 0; c < CLASSES; c++) {
        best = fmax(best, sums[SUM_CLASS][c] / sums[SUM_CLASS_COUNT][c]);
    }
    return best;
}

static double count(const by_task_data *data, const double *const *sums,
                    const by_evaluation *evaluation)
{
    BY_UNUSED(data);
    BY_UNUSED(evaluation);
    return *sums[SUM_COUNT];
}

static double sum(const by_task_data *data, const double *const *sums,
                  const by_evaluation *evaluation)
{
    double all = 0.0;
    BY_UNUSED(data);
    BY_UNUSED(evaluation);
    for (int c = 0; c < CLASSES; c++) {
        all += sums[SUM_CLASS][c];
    }
    return all;
}

static const by_metric metrics[] = {
    {"best_class", true, 4, best_class}, {"count", true, 0, count}, {"sum", true, 4, sum}};
static const by_task counting = {.name = "counting",
                                 .examples = "numbers",
                                 .metrics = metrics,
                                 .metric_count = BY_ARRAY_LENGTH(metrics),
                                 .sums = sums_of,
                                 .sum_count = BY_ARRAY_LENGTH(sums_of),
                                 .source = open_source,
                                 .loss = loss,
                                 .measure = measure};

/* ---- tests ---- */

#define RANKS 3

typedef struct job {
    const by_task *task;
    by_evaluation results[RANKS];
} job;

static by_status evaluate(by_comm *comm, void *user, by_error *error)
{
    static const char *const common[] = {"precision.compute=f32", "train.batch=12",
                                         "train.micro_batch=4", "train.threads=1", NULL};
    static const char *const none[] = {NULL};
    job *j = user;
    by_trainer *trainer = NULL;
    by_loader *loader = NULL;
    by_config *config = config_of(common, none);
    by_task_data data = {.task = j->task};
    const by_trainer_options options = {
        .mode = BY_TRAINER_LOSS, .builder = build, .task = j->task, .comm = comm};
    by_status status = by_trainer_open(&trainer, config, &options, error);
    if (status == BY_OK && (status = by_trainer_allocate(trainer, error)) == BY_OK &&
        (status = by_trainer_initialize(trainer, error)) == BY_OK &&
        (status = by_trainer_loader(&loader, trainer, &data, false, error)) == BY_OK) {
        status = by__job_evaluate_loader(&j->results[comm == NULL ? 0 : by_comm_rank(comm)],
                                         trainer, &data, loader, -1, NULL, NULL, NULL, error);
    }
    by_loader_close(&loader);
    by_trainer_close(&trainer);
    by_config_close(&config);
    return status;
}

static void test_many_sums(void **state)
{
    double means[CLASSES] = {0};
    double best = -INFINITY;
    job alone = {.task = &counting};
    by_error error = {0};
    BY_UNUSED(state);
    for (uint64_t i = 0; i < EXAMPLES; i++) {
        double share = i % CLASSES < EXAMPLES - CLASSES ? 2.0 : 1.0;
        means[i % CLASSES] += value_of(i) / 3.0 / share;
    }
    for (int c = 0; c < CLASSES; c++) {
        best = fmax(best, means[c]);
    }
    check_ok(evaluate(NULL, &alone, &error), &error);
    const by_evaluation *e = &alone.results[0];
    assert_int_equal(e->targets, EXAMPLES);
    assert_true(fabs(e->loss - log(CLASSES)) < 1e-6);
    assert_true(fabs(e->metrics[0] - best) < 1e-6);
    assert_true(e->metrics[1] == EXAMPLES);
    assert_true(isnan(e->metrics[3]));
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        job j = {.task = &counting};
        check_ok(by_comm_run_threads(ranks, NULL, evaluate, &j, &error), &error);
        for (int r = 0; r < ranks; r++) {
            assert_true(j.results[r].loss == e->loss);
            assert_memory_equal(j.results[r].metrics, e->metrics, 3 * sizeof e->metrics[0]);
        }
    }
}

static void test_refused(void **state)
{
    static const by_task_sum empty[] = {{.name = "count"},
                                        {.name = "nothing", .count = count_none}};
    by_task task = counting;
    job j = {.task = &task};
    by_error error = {0};
    BY_UNUSED(state);
    task.sums = empty;
    task.sum_count = BY_ARRAY_LENGTH(empty);
    check_error(evaluate(NULL, &j, &error), BY_EARG, &error, "sum 'nothing' has 0 values");
    task = counting;
    task.metric_count = BY_TASK_METRICS + 1;
    check_error(evaluate(NULL, &j, &error), BY_EARG, &error, "has 17 metrics, of at most 16");
}

/* Metrics of an evaluation that adds up nothing but the loss. */
static void test_without_sums(void **state)
{
    by_evaluation e = {.task = &counting};
    by_task_data data = {.task = &counting};
    BY_UNUSED(state);
    by_task_metrics(&data, NULL, &e);
    assert_true(isnan(e.metrics[0]) && isnan(e.metrics[1]) && isnan(e.metrics[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_sums),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_without_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
