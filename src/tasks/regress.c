/* Regression: predicts a number, or several, for each row of a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "tasks/examples/examples.h"

typedef struct regress_keys {
    by__task_examples_keys set;
    char *loss;
    double beta;
} regress_keys;

static const by__config_key keys[] = {
    {"task", "loss", BY__KEY_TEXT, BY__OWN(regress_keys, loss), "squared",
     .choices = "squared|smooth_l1",
     .help = "squared error or smooth L1 (Huber 1964) of the standardized target"},
    {"task", "beta", BY__KEY_REAL, BY__OWN(regress_keys, beta), "1", 0, 1e9, BY__ABOVE_MIN,
     .help = "error at which smooth_l1 changes from quadratic to linear"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_regress;

static by_status check_outputs(const by_config *config, const regress_keys *own, by_error *error)
{
    int64_t outputs = config->model.outputs;
    size_t named = own == NULL ? 0 : own->set.target.count;
    return named == 0 || outputs < 1 || (uint64_t)outputs == named
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "model.outputs is %lld, but data.target names %zu column%s to "
                              "predict: leave it out",
                              (long long)outputs, named, named == 1 ? "" : "s");
}

/* Of several targets, the mean over them. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const regress_keys *own = by__config_kind_own(config->task.own, &by__task_regress.kind);
    int64_t batch = request->batch;
    int64_t count = config->model.outputs > 1 ? config->model.outputs : 1;
    BY_TRY(by__task_examples_needs_output(config, model, error));
    BY_TRY(check_outputs(config, own, error));
    by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(batch));
    by_shape shape = count == 1 ? BY_SHAPE(batch) : BY_SHAPE(batch, count);
    by_value targets = by_graph_input(graph, "targets", BY_F32, shape);
    targets = count == 1 ? by_reshape(graph, targets, BY_SHAPE(batch, 1)) : targets;
    model->loss = own != NULL && strcmp(own->loss, "smooth_l1") == 0
                      ? by_smooth_l1(graph, model->output, targets, weight, (float)own->beta)
                      : by_squared_error(graph, model->output, targets, weight);
    if (count > 1) {
        by_value share = by_fill(graph, BY_F32, BY_SHAPE(1), (float)(1.0 / (double)count));
        model->loss = by_scale(graph, model->loss, share);
    }
    by__task_examples_count(graph, request, model);
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    const regress_keys *own = by__config_kind_own(config->task.own, &by__task_regress.kind);
    return own != NULL && strcmp(own->loss, "smooth_l1") == 0
               ? "smooth L1 error (standardized target)"
               : "squared error (standardized target)";
}

/* ---- metrics, in the units of the target ---- */

static size_t targets_of(const by_task_data *data)
{
    return by__task_examples_numbers((const by__task_examples *)data);
}

static size_t count_targets(const by_task_data *data, const by_config *config)
{
    BY_UNUSED(config);
    return targets_of(data);
}

enum { SUM_COUNT, SUM_ABSOLUTE, SUM_SQUARE, SUM_TARGET, SUM_TARGET_SQUARE };
static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"},
    [SUM_ABSOLUTE] = {.name = "absolute", .count = count_targets},
    [SUM_SQUARE] = {.name = "square", .count = count_targets},
    [SUM_TARGET] = {.name = "target", .count = count_targets},
    [SUM_TARGET_SQUARE] = {.name = "target_square", .count = count_targets},
};

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by_array *targets = by_batch_array(batch, "targets");
    const by_array *weight = by_batch_array(batch, "weight");
    size_t count = targets_of(data);
    for (size_t i = 0; targets != NULL && weight != NULL && i < batch->batch; i++) {
        double w = (double)((const float *)weight->data)[i];
        if (!(w > 0.0)) {
            continue;
        }
        *sums[SUM_COUNT] += w;
        for (size_t k = 0; k < count; k++) {
            double y = (double)((const float *)targets->data)[i * count + k];
            double e = (double)values[i * width + k] - y;
            sums[SUM_ABSOLUTE][k] += w * fabs(e);
            sums[SUM_SQUARE][k] += w * (e * e);
            /* relative to the training part's mean: the target is standardized */
            sums[SUM_TARGET][k] += w * y;
            sums[SUM_TARGET_SQUARE][k] += w * (y * y);
        }
    }
}

static double unit_of(const by_task_data *data, size_t target)
{
    double mean;
    double unit;
    by_encoding_target_scale(((const by__task_examples *)data)->encoding, target, &mean, &unit);
    return unit;
}

enum { METRIC_RMSE, METRIC_MAE, METRIC_R2 };

static double target_metric(const by_task_data *data, const double *const *sums, size_t metric,
                            size_t k)
{
    double count = *sums[SUM_COUNT];
    double square = sums[SUM_SQUARE][k];
    double target = sums[SUM_TARGET][k];
    if (metric == METRIC_RMSE) {
        return unit_of(data, k) * sqrt(square / count);
    }
    if (metric == METRIC_MAE) {
        return unit_of(data, k) * sums[SUM_ABSOLUTE][k] / count;
    }
    double spread = sums[SUM_TARGET_SQUARE][k] - target * target / count;
    return spread > 0.0 ? 1.0 - square / spread : (double)NAN;
}

/* Over several targets, the mean of what it is for each, as scikit-learn's "uniform_average". */
static double mean_metric(const by_task_data *data, const double *const *sums, size_t metric)
{
    size_t count = targets_of(data);
    double sum = target_metric(data, sums, metric, 0);
    for (size_t k = 1; k < count; k++) {
        sum += target_metric(data, sums, metric, k);
    }
    return count == 1 ? sum : sum / (double)count;
}

static double rmse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return mean_metric(data, sums, METRIC_RMSE);
}

static double mae(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return mean_metric(data, sums, METRIC_MAE);
}

static double r2(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return mean_metric(data, sums, METRIC_R2);
}

static const by_metric metrics[] = {[METRIC_RMSE] = {"rmse", false, 4, rmse},
                                    [METRIC_MAE] = {"mae", false, 4, mae},
                                    [METRIC_R2] = {"r2", true, 4, r2}};

/* ---- predictions ---- */

/* The fields of a row: its index, a number for each target, and which window it is. Returns how
 * many. */
static size_t fill_fields(by_field *fields, const by__task_examples *d, uint64_t index,
                          const float *values)
{
    size_t count = by__task_examples_numbers(d);
    by_example_name of = {.index = index};
    by__task_examples_name(&d->base, index, &of);
    fields[0] = (by_field){.name = "index", .number = (double)index, .is_whole = true};
    for (size_t k = 0; k < count; k++) {
        double mean;
        double unit;
        by_encoding_target_scale(d->encoding, k, &mean, &unit);
        fields[1 + k] = (by_field){.name = count == 1 ? "value" : d->target_names[k],
                                   .number = mean + unit * (double)values[k]};
    }
    return count + 1 + by__task_name_fields(fields + count + 1, &of);
}

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const by_array *weight = by_batch_array(batch, "weight");
    size_t room = targets_of(data) + 1 + BY__TASK_NAME_FIELDS;
    by_field *fields;
    BY_UNUSED(sum);
    BY_TRY(by__alloc((void **)&fields, room, sizeof *fields, "predictions", error));
    for (size_t i = 0; weight != NULL && i < batch->batch; i++) {
        if (((const float *)weight->data)[i] > 0.0f) {
            size_t count = fill_fields(fields, (const by__task_examples *)data,
                                       batch->first_sample + i, values + i * width);
            report(user, fields, count);
        }
    }
    free(fields);
    return BY_OK;
}

const by__task_row by__task_regress = {
    .kind = {.name = "regress",
             .help = "Regression: a number, or several, for each table row or text.",
             .keys = {&key_list, &by__task_table_data_keys, &by__task_split_keys,
                      &by__task_text_column_keys, &by__task_pair_column_keys,
                      &by__task_window_keys},
             .size = sizeof(regress_keys)},
    .task = {.name = "regress",
             .examples = "rows",
             .best_by_metric = true,
             BY__TASK_LEARNS,
             .output_metric = target_metric,
             .predict = predict,
             BY__TASK_EXAMPLES},
    .texts = true};
