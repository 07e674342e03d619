/* Metrics by vLLM's names and labels, so that dashboards and autoscalers made for it work
 * (https://docs.vllm.ai, "Production Metrics"). What vLLM counts in its engine is counted here at
 * the gateway, for each model. */
#ifndef BY_SERVE_METRICS_VLLM_H
#define BY_SERVE_METRICS_VLLM_H

#include "serve/observe/metrics.h"

/* Why a sequence ended. */
typedef enum by__finish {
    BY__FINISH_STOP,
    BY__FINISH_LENGTH,
    BY__FINISH_ABORT, /* the client went away */
    BY__FINISH_ERROR,
    BY__FINISHES
} by__finish;

/* Of one model. */
typedef struct by__model_metrics {
    char model[256];
    by__histogram first; /* as by__metrics has them */
    by__histogram token;
    by__histogram whole;
    by__histogram queue; /* from a request to its acceptance by a worker */
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    uint64_t finished[BY__FINISHES];
    struct by__model_metrics *next;
} by__model_metrics;

/* The record of a model, made where there is none; NULL when memory is exhausted or the name is too
 * long. */
by__model_metrics *by__model_metrics_of(by__model_metrics **list, const char *model);
void by__model_metrics_free(by__model_metrics **list);
/* All families; state: of the broker, or NULL. */
void by__metrics_vllm(by__text *out, const by__model_metrics *list, const json_t *state);

#endif
