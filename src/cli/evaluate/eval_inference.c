/* Computes the loss of a language model with the kernels of inference: packed weights, in any
 * precision that inference supports. */
#include <math.h>
#include <string.h>

#include "banyan/infer.h"
#include "base/cli.h"

/* Returns -log softmax(logits)[target]; NaN if the logits contain NaN. */
static double loss_of(const float *logits, int64_t vocab, int32_t target)
{
    float largest = logits[0];
    double sum = 0.0;
    for (int64_t i = 1; i < vocab; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (int64_t i = 0; i < vocab; i++) {
        sum += exp((double)(logits[i] - largest));
    }
    return log(sum) - (double)(logits[target] - largest);
}

static by_status add_batch(cli_losses *s, by_logits *model, const by_batch *batch, int64_t vocab,
                           by_error *error)
{
    const by_array *tokens = by_batch_array(batch, "tokens");
    const by_array *targets = by_batch_array(batch, "targets");
    const by_array *weights = by_batch_array(batch, "weight");
    const float *logits;
    by_status status = by_logits_run(model, tokens->data, &logits, error);
    const int32_t *target = targets->data;
    int64_t count = status == BY_OK ? by_shape_count(&targets->shape) : 0;
    for (int64_t i = 0; i < count; i++) {
        if (target[i] >= 0 && target[i] < vocab) {
            double weight = weights == NULL ? 1.0 : (double)((const float *)weights->data)[i];
            s->sum += weight * loss_of(logits + i * vocab, vocab, target[i]);
            s->weight += weight;
            s->targets++;
        }
    }
    return status;
}

static by_status add_all(cli_losses *s, by_logits *model, by_loader *loader, int64_t batches,
                         int64_t vocab, by_error *error)
{
    by_batch batch;
    by_status status = BY_OK;
    for (int64_t i = 0; status == BY_OK && (batches < 0 || i < batches); i++) {
        if (cli_stop_requested(NULL)) {
            return by_error_set(error, BY_ESTOPPED, "evaluation was interrupted");
        }
        status = by_loader_next(loader, &batch, error);
        if (status != BY_OK || batch.batch == 0 ||
            batch.first_sample >= by_loader_epoch_samples(loader)) {
            return status;
        }
        status = add_batch(s, model, &batch, vocab, error);
    }
    return status;
}

by_status cli_check_inference(const by_config *config, const char *what, by_error *error)
{
    const by_model_config *model = &config->model;
    if (strcmp(by_model_reads(model), "tokens") != 0) {
        return by_error_set(error, BY_EARG,
                            "%s: the kernels of inference evaluate models that read tokens, and "
                            "model.kind %s reads %s",
                            what, model->kind, by_model_reads(model));
    }
    return strcmp(config->data.documents, "mask") != 0
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "%s: the kernels of inference evaluate without masks between "
                              "documents, and data.documents is mask; leave it out",
                              what);
}

bool cli_has_integer_rows(const by_config *config, const by_weights *weights)
{
    return strcmp(by_infer_precision_of(config, weights), "w8a8") == 0;
}

by_status cli_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                       by_task_data *data, const char *precision, const char *kv, int64_t batches,
                       by_error *error)
{
    return precision != NULL || kv != NULL || cli_has_integer_rows(config, weights)
               ? cli_evaluate_inference(out, config, weights, data, precision, kv, batches, error)
               : by_evaluate(out, config, weights, data, batches, cli_stop_requested, NULL, error);
}

by_status cli_evaluate_inference(by_evaluation *out, const by_config *config,
                                 const by_weights *weights, by_task_data *data,
                                 const char *precision, const char *kv, int64_t batches,
                                 by_error *error)
{
    cli_losses s = {0};
    by_logits *model = NULL;
    by_loader *loader = NULL;
    by_evaluation result = {.task = data->task};
    by_status status = cli_check_inference(config,
                                           kv != NULL          ? "--kv"
                                           : precision != NULL ? "--precision"
                                                               : "a model quantized to w8a8",
                                           error);
    if (status == BY_OK) {
        status = by_task_loader(&loader, data, config, false, error);
    }
    if (status == BY_OK && kv != NULL) {
        status = cli_sum_engine_losses(&s, config, weights, loader, precision, kv, batches, error);
    } else if (status == BY_OK) {
        status = by_logits_open(&model, config, weights, config->train.micro_batch,
                                config->model.context, precision, 0, error);
        if (status == BY_OK) {
            status = add_all(&s, model, loader, batches, config->model.vocab, error);
        }
    }
    if (status == BY_OK && s.targets == 0) {
        status = by_error_set(error, BY_EARG, "evaluation: the data has no tokens to predict");
    }
    if (status == BY_OK && !(s.weight > 0.0)) {
        status = by_error_set(error, BY_EARG, "evaluation: the weights of all tokens are 0");
    }
    if (status == BY_OK) {
        result.targets = s.targets;
        result.loss = s.sum / s.weight;
        by_task_metrics(data, NULL, &result);
        *out = result;
    }
    by_loader_close(&loader);
    by_logits_close(&model);
    return status;
}
