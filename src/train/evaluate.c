#include <math.h>

#include "train/loop.h"

by_status by__evaluate_loader(by_evaluation *out, by_trainer *trainer, by_loader *loader,
                              int64_t batches, bool (*stop)(void *user), void *user,
                              by_error *error)
{
    double sum = 0.0;
    uint64_t targets = 0;
    BY_TRY(by_loader_seek(loader, 0, error));
    for (int64_t i = 0; batches < 0 || i < batches; i++) {
        by_batch batch;
        double loss;
        if (stop != NULL && stop(user)) {
            return by_error_set(error, BY_ESTOPPED, "evaluation was interrupted");
        }
        BY_TRY(by_loader_next(loader, &batch, error));
        if (batch.batch == 0) {
            break;
        }
        BY_TRY(by_trainer_loss(trainer, &batch, &loss, error));
        sum += loss;
        targets += batch.valid_targets;
    }
    if (targets == 0) {
        return by_error_set(error, BY_EARG, "evaluation: there is nothing to predict in the data");
    }
    *out = (by_evaluation){.loss = sum / (double)targets, .tokens = targets};
    out->perplexity = exp(out->loss);
    return BY_OK;
}

by_status by__open_held_out(by_dataset **dataset, const by_config *config, const char *data,
                            by_error *error)
{
    BY_TRY(by_dataset_open(dataset, data, NULL, error));
    if (by_dataset_vocab(*dataset) > (uint64_t)config->model.vocab) {
        by_status status = by_error_set(
            error, BY_ECONFIG, "%s: its vocabulary of %u is more than the model's %lld", data,
            by_dataset_vocab(*dataset), (long long)config->model.vocab);
        by_dataset_close(dataset);
        return status;
    }
    return BY_OK;
}

by_status by_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                      const char *data, int64_t batches, bool (*stop)(void *user), void *user,
                      by_error *error)
{
    by_trainer *trainer = NULL;
    by_dataset *dataset = NULL;
    by_loader *loader = NULL;
    by_evaluation result;
    by_status status =
        by_trainer_open(&trainer, config, &(by_trainer_options){.mode = BY_TRAINER_LOSS}, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_trainer_allocate(trainer, error);
    if (status == BY_OK) {
        status = by_trainer_load_weights(trainer, weights, error);
    }
    if (status == BY_OK) {
        status = by__open_held_out(&dataset, config, data, error);
    }
    if (status == BY_OK) {
        status = by__open_loader(&loader, dataset, config, false, error);
    }
    if (status == BY_OK) {
        status = by__evaluate_loader(&result, trainer, loader, batches, stop, user, error);
    }
    if (status == BY_OK) {
        /* The bytes that a token stands for on average, over the whole set. */
        double tokens = (double)by_dataset_tokens(dataset);
        double bytes = (double)by_dataset_text_bytes(dataset);
        result.bits_per_byte = bytes > 0.0 ? result.loss / log(2.0) * tokens / bytes : 0.0;
        *out = result;
    }
    by_loader_close(&loader);
    by_dataset_close(&dataset);
    by_trainer_close(&trainer);
    return status;
}
