/* Regression: predicts a number for each row of a table. */
#include <math.h>
#include <string.h>

#include "banyan/ops.h"
#include "tasks/examples.h"

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

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const regress_keys *own = by__config_kind_own(config->task.own, &by__task_regress.kind);
    int64_t batch = request->batch;
    BY_TRY(by__task_examples_needs_output(config, model, error));
    if (config->model.outputs > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "model.outputs is %lld: task.kind regress predicts one number",
                            (long long)config->model.outputs);
    }
    by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(batch));
    by_value targets = by_reshape(graph, by_graph_input(graph, "targets", BY_F32, BY_SHAPE(batch)),
                                  BY_SHAPE(batch, 1));
    model->loss = own != NULL && strcmp(own->loss, "smooth_l1") == 0
                      ? by_smooth_l1(graph, model->output, targets, weight, (float)own->beta)
                      : by_squared_error(graph, model->output, targets, weight);
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

enum { SUM_COUNT, SUM_ABSOLUTE, SUM_SQUARE, SUM_TARGET, SUM_TARGET_SQUARE };
static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"},
    [SUM_ABSOLUTE] = {.name = "absolute"},
    [SUM_SQUARE] = {.name = "square"},
    [SUM_TARGET] = {.name = "target"},
    [SUM_TARGET_SQUARE] = {.name = "target_square"},
};

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by_array *targets = by_batch_array(batch, "targets");
    const by_array *weight = by_batch_array(batch, "weight");
    BY_UNUSED(data);
    for (size_t i = 0; targets != NULL && weight != NULL && i < batch->batch; i++) {
        double w = (double)((const float *)weight->data)[i];
        if (w > 0.0) {
            double y = (double)((const float *)targets->data)[i];
            double e = (double)values[i * width] - y;
            *sums[SUM_COUNT] += w;
            *sums[SUM_ABSOLUTE] += w * fabs(e);
            *sums[SUM_SQUARE] += w * (e * e);
            /* relative to the training part's mean: the target is standardized */
            *sums[SUM_TARGET] += w * y;
            *sums[SUM_TARGET_SQUARE] += w * (y * y);
        }
    }
}

static double unit_of(const by_task_data *data)
{
    double mean;
    double unit;
    by_encoding_target_scale(((const by__task_examples *)data)->encoding, &mean, &unit);
    return unit;
}

static double rmse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return unit_of(data) * sqrt(*sums[SUM_SQUARE] / *sums[SUM_COUNT]);
}

static double mae(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return unit_of(data) * *sums[SUM_ABSOLUTE] / *sums[SUM_COUNT];
}

static double r2(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    double target = *sums[SUM_TARGET];
    double spread = *sums[SUM_TARGET_SQUARE] - target * target / *sums[SUM_COUNT];
    BY_UNUSED(data);
    BY_UNUSED(e);
    return spread > 0.0 ? 1.0 - *sums[SUM_SQUARE] / spread : (double)NAN;
}

static const by_metric metrics[] = {
    {"rmse", false, 4, rmse}, {"mae", false, 4, mae}, {"r2", true, 4, r2}};

/* ---- predictions ---- */

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const by_array *weight = by_batch_array(batch, "weight");
    double mean;
    double unit;
    BY_UNUSED(sum);
    BY_UNUSED(error);
    by_encoding_target_scale(((const by__task_examples *)data)->encoding, &mean, &unit);
    for (size_t i = 0; weight != NULL && i < batch->batch; i++) {
        if (((const float *)weight->data)[i] > 0.0f) {
            const by_field fields[] = {
                {.name = "index", .number = (double)(batch->first_sample + i), .is_whole = true},
                {.name = "value", .number = mean + unit * (double)values[i * width]}};
            report(user, fields, BY_ARRAY_LENGTH(fields));
        }
    }
    return BY_OK;
}

const by__task_row by__task_regress = {
    .kind = {.name = "regress",
             .help = "Regression: a number for each table row.",
             .keys = {&key_list, &by__task_table_data_keys, &by__task_split_keys},
             .size = sizeof(regress_keys)},
    .task = {.name = "regress",
             .examples = "rows",
             .metrics = metrics,
             .metric_count = BY_ARRAY_LENGTH(metrics),
             .sums = sums_of,
             .sum_count = BY_ARRAY_LENGTH(sums_of),
             .best_by_metric = true,
             .loss_label = loss_label,
             .loss = loss,
             .measure = measure,
             .predict = predict,
             BY__TASK_EXAMPLES},
};
