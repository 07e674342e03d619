/* Reads sequences to calibrate on: from the data that the setting `data` names, or from the run's
 * training data. */
#include <stdlib.h>
#include <string.h>

#include "banyan/task.h"
#include "banyan/train.h"
#include "compress/compress.h"

#define DEFAULT_SAMPLES 128
#define LINE            64

void by__compress_calibration_free(by__compress_calibration_tokens *tokens)
{
    free(tokens->data);
    *tokens = (by__compress_calibration_tokens){0};
}

/* Chooses how many sequences a program takes, to come near to `rows` rows. */
static by_status lay_out(by__compress_calibration_tokens *t, int64_t samples, int64_t rows,
                         by_error *error)
{
    size_t bytes;
    t->batch = rows / t->time < 1 ? 1 : rows / t->time;
    t->batch = t->batch > samples ? samples : t->batch;
    t->batches = (size_t)(samples / t->batch);
    t->rows = t->batch * t->time;
    t->bytes = (size_t)t->rows * sizeof(int32_t);
    t->stride = by__round_up(t->bytes, LINE);
    if (!by__size_mul(t->stride, t->batches, &bytes)) {
        return by_error_set(error, BY_EMEMORY, "%lld samples do not fit in memory",
                            (long long)samples);
    }
    return by__alloc_aligned((void **)&t->data, bytes, "calibration data", error);
}

/* Returns the index of the i-th chosen sequence of `all`; the indices are distinct and spread over
 * the data. */
static uint64_t choose(uint64_t seed, int64_t i, int64_t samples, uint64_t all)
{
    uint32_t key[2];
    uint32_t bits[4];
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0};
    uint64_t first = (uint64_t)((double)all * (double)i / (double)samples);
    uint64_t next = (uint64_t)((double)all * (double)(i + 1) / (double)samples);
    by__philox_key(key, seed, 0x63616c6962);
    by__philox(bits, key, counter);
    return first + (next > first + 1 ? bits[0] % (next - first) : 0);
}

static by_status fill(by__compress_calibration_tokens *t, by_loader *loader, uint64_t seed,
                      by_error *error)
{
    int64_t samples = t->batch * (int64_t)t->batches;
    uint64_t all = by_loader_epoch_samples(loader);
    for (int64_t i = 0; i < samples; i++) {
        by_batch batch;
        BY_TRY(by_loader_seek(loader, choose(seed, i, samples, all), error));
        BY_TRY(by_loader_next(loader, &batch, error));
        const by_array *tokens = batch.batch == 0 ? NULL : by_batch_array(&batch, "tokens");
        if (tokens == NULL || tokens->dtype != BY_I32 ||
            by_shape_count(&tokens->shape) != t->time) {
            return by_error_set(error, BY_EARG, "the calibration data has no sequences of tokens");
        }
        uint8_t *to = t->data + (size_t)(i / t->batch) * t->stride;
        size_t bytes = (size_t)t->time * sizeof(int32_t);
        memcpy(to + (size_t)(i % t->batch) * bytes, tokens->data, bytes);
    }
    return BY_OK;
}

/* Notes for state.json which data was used. */
static void note(by__compress_state *c, const by__compress_calibration_tokens *t)
{
    char hash[33];
    by__hash128_hex(hash, t->data, t->stride * t->batches);
    by_string_format(&c->notes, "%lld sequences of %lld tokens of %s, seed %llu, XXH3-128 %s",
                     (long long)(t->batch * (int64_t)t->batches), (long long)t->time,
                     c->options->data == NULL ? "the training data" : c->options->data,
                     (unsigned long long)c->options->seed, hash);
}

by_status by__compress_calibration_read(by__compress_calibration_tokens *out, by__compress_state *c,
                                        int64_t rows, by_error *error)
{
    by__compress_calibration_tokens t = {0};
    by_task_data *data = NULL;
    by_loader *loader = NULL;
    by_config *config;
    const by_train_options progress = {.resume = c->options->run};
    int64_t samples = c->options->samples == 0 ? DEFAULT_SAMPLES : c->options->samples;
    bool given = c->options->data != NULL;
    if (!given && c->options->run == NULL) {
        return by_error_set(
            error, BY_EARG,
            "%s needs calibration data, and this is not a run: give data with --data",
            c->method->shown.name);
    }
    BY_TRY(by_config_copy(&config, by_pretrained_config(c->model), error));
    config->model.from[0] = '\0';
    config->train.batch = 1;
    config->train.micro_batch = 1;
    config->train.eval_batches = -1;
    const by_task_request what = {.purpose = given ? BY_TASK_EVALUATE : BY_TASK_TRAIN,
                                  .config = config,
                                  .path = c->options->data,
                                  .learned = by_pretrained_directory(c->model),
                                  .progress = &progress};
    by_status status = by_task_open(&data, NULL, &what, error);
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
    }
    if (status == BY_OK) {
        status = by_task_loader(&loader, data, config, !given, error);
    }
    if (status == BY_OK) {
        uint64_t all = by_loader_epoch_samples(loader);
        t.time = config->model.context;
        samples = (uint64_t)samples > all ? (int64_t)all : samples;
        status = samples < 1 ? by_error_set(error, BY_EARG,
                                            "the calibration data has no sequence of %lld tokens",
                                            (long long)t.time)
                             : lay_out(&t, samples, rows, error);
    }
    if (status == BY_OK) {
        status = fill(&t, loader, c->options->seed, error);
    }
    by_loader_close(&loader);
    by_task_close(&data);
    by_config_close(&config);
    if (status != BY_OK) {
        by__compress_calibration_free(&t);
        return status;
    }
    note(c, &t);
    *out = t;
    return BY_OK;
}
