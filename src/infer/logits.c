#include <stdlib.h>
#include <string.h>

#include "infer/infer.h"

struct by_logits {
    by__infer_forward forward;
    by__exec_program_row *row;
    by_memory tokens;
    by_memory logits;
    by_pinned host;     /* tokens, then logits */
    size_t count;       /* tokens of a run */
    size_t token_bytes; /* bytes of the tokens, rounded up to cache lines */
};

static by_status set_up(by_logits *l, const by__infer_forward_options *options,
                        const by_weights *weights, int64_t batch, int64_t time, by_error *error)
{
    by_model model;
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = batch, .time = time};
    BY_TRY(by__infer_forward_open(&l->forward, options, error));
    BY_TRY(by__infer_forward_add(&l->forward, "logits", &request, &model, &l->row, error));
    BY_TRY(by__infer_forward_plan(&l->forward, weights, error));
    BY_TRY(by__infer_forward_start(&l->forward, weights, error));
    /* Overflow was checked when the graph was built. */
    l->count = (size_t)(batch * time);
    l->token_bytes = by__round_up(l->count * sizeof(int32_t), BY_CACHE_LINE);
    size_t logits_bytes = by__graph_value_bytes(&l->row->graph->values[model.logits]);
    by_device *device = l->forward.device;
    BY_TRY(by_device_alloc(&l->tokens, device, l->token_bytes, "the tokens", error));
    BY_TRY(by_device_alloc(&l->logits, device, logits_bytes, "the logits", error));
    BY_TRY(
        by_device_pin(&l->host, device, l->token_bytes + logits_bytes, "tokens and logits", error));
    BY_TRY(by__exec_row_bind(l->row, "tokens", l->tokens, error));
    return by__exec_row_bind(l->row, "logits", l->logits, error);
}

by_status by_logits_open(by_logits **out, const by_config *config, const by_weights *weights,
                         int64_t batch, int64_t time, const char *precision, int threads,
                         by_error *error)
{
    by_logits *l;
    by__infer_forward_options options;
    BY_TRY(by__infer_forward_options_read(&options, config, weights, precision, threads, error));
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "logits", error));
    by_status status = set_up(l, &options, weights, batch, time, error);
    if (status != BY_OK) {
        by_logits_close(&l);
        return status;
    }
    *out = l;
    return BY_OK;
}

void by_logits_close(by_logits **logits)
{
    if (logits == NULL || *logits == NULL) {
        return;
    }
    by_logits *l = *logits;
    by_device_unpin(&l->host);
    by_device_free(&l->tokens);
    by_device_free(&l->logits);
    by__infer_forward_close(&l->forward);
    free(l);
    *logits = NULL;
}

by_status by_logits_run(by_logits *logits, const int32_t *tokens, const float **out,
                        by_error *error)
{
    float *host = (float *)(void *)((char *)logits->host.data + logits->token_bytes);
    memcpy(logits->host.data, tokens, logits->count * sizeof *tokens);
    BY_TRY(by__exec_row_check(logits->row, "tokens", logits->host.data, error));
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, logits->tokens, logits->host.data, error));
    BY_TRY(by_program_submit(logits->row->program, error));
    BY_TRY(by__device_copy_out(BY__QUEUE_COMPUTE, host, logits->logits, error));
    BY_TRY(by__device_queue_finish(logits->forward.device, BY__QUEUE_COMPUTE, error));
    *out = host;
    return BY_OK;
}
