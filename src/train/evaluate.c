/* Evaluation and prediction: micro-batches of one pass through the program for losses. */
#include <math.h>

#include "train/loop.h"

by_status by__evaluate_loader(by_evaluation *out, by_trainer *trainer, const by_task_data *data,
                              by_loader *loader, int64_t batches, bool (*stop)(void *user),
                              void *user, by_error *error)
{
    const by_task *task = by_trainer_task(trainer);
    double sums[BY_TASK_SUMS] = {0};
    double sum = 0.0;
    by_evaluation result = {.task = task};
    BY_TRY(by_loader_seek(loader, 0, error));
    for (int64_t i = 0; batches < 0 || i < batches; i++) {
        by_batch batch;
        double loss;
        const float *values;
        size_t width;
        if (stop != NULL && stop(user)) {
            return by_error_set(error, BY_ESTOPPED, "evaluation was interrupted");
        }
        BY_TRY(by_loader_next(loader, &batch, error));
        if (batch.batch == 0) {
            break;
        }
        BY_TRY(by_trainer_evaluate(trainer, &batch, &loss, &values, &width, error));
        sum += loss;
        result.targets += batch.valid_targets;
        if (task->measure != NULL) {
            task->measure(data, sums, &batch, values, width);
        }
    }
    if (result.targets == 0) {
        return by_error_set(error, BY_EARG, "evaluation: there is nothing to predict in the data");
    }
    result.loss = sum / (double)result.targets;
    for (size_t i = 0; i < BY_TASK_METRICS; i++) {
        result.metrics[i] = (double)NAN;
    }
    if (task->metric != NULL) {
        task->metric(data, sums, &result);
    }
    *out = result;
    return BY_OK;
}

/* Weights that are only used, and a pass over the data. */
typedef struct pass {
    by_trainer *trainer;
    by_loader *loader;
} pass;

static by_status open_pass(pass *p, const by_config *config, const by_weights *weights,
                           by_task_data *data, by_error *error)
{
    const by_trainer_options options = {.mode = BY_TRAINER_LOSS, .task = data->task};
    BY_TRY(by_trainer_open(&p->trainer, config, &options, error));
    BY_TRY(by_trainer_allocate(p->trainer, error));
    BY_TRY(by_trainer_load_weights(p->trainer, weights, error));
    return by_task_loader(&p->loader, data, config, false, error);
}

static void close_pass(pass *p)
{
    by_loader_close(&p->loader);
    by_trainer_close(&p->trainer);
}

by_status by_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                      by_task_data *data, int64_t batches, bool (*stop)(void *user), void *user,
                      by_error *error)
{
    pass p = {0};
    by_status status = open_pass(&p, config, weights, data, error);
    if (status == BY_OK) {
        status = by__evaluate_loader(out, p.trainer, data, p.loader, batches, stop, user, error);
    }
    close_pass(&p);
    return status;
}

static by_status predict_all(const pass *p, by_task_data *data, by_predicted *say,
                             bool (*stop)(void *user), void *user, by_error *error)
{
    for (;;) {
        by_batch batch;
        double loss;
        const float *values;
        size_t width;
        if (stop != NULL && stop(user)) {
            return by_error_set(error, BY_ESTOPPED, "prediction was interrupted");
        }
        BY_TRY(by_loader_next(p->loader, &batch, error));
        if (batch.batch == 0) {
            return BY_OK;
        }
        BY_TRY(by_trainer_evaluate(p->trainer, &batch, &loss, &values, &width, error));
        BY_TRY(data->task->predict(data, &batch, loss, values, width, say, user, error));
    }
}

by_status by_predict(const by_config *config, const by_weights *weights, by_task_data *data,
                     by_predicted *say, bool (*stop)(void *user), void *user, by_error *error)
{
    pass p = {0};
    by_status status = open_pass(&p, config, weights, data, error);
    if (status == BY_OK) {
        status = predict_all(&p, data, say, stop, user, error);
    }
    close_pass(&p);
    return status;
}
