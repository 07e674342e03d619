/* Metrics with vLLM's names and labels, so that dashboards and autoscalers made for it work
 * (https://docs.vllm.ai, "Production Metrics"). Values that vLLM counts in its engine are counted
 * at the gateway here, for each model. */
#ifndef BY_SERVE_METRICS_VLLM_H
#define BY_SERVE_METRICS_VLLM_H

#include "serve/observe/metrics.h"

/* Why a sequence ended. */
typedef enum by__finish {
    BY__FINISH_STOP,
    BY__FINISH_LENGTH,
    BY__FINISH_ABORT, /* the client disconnected */
    BY__FINISH_ERROR,
    BY__FINISHES
} by__finish;

/* Metrics of one model. */
typedef struct by__model_metrics {
    char model[256];
    by__histogram first; /* histograms as in by__metrics */
    by__histogram token;
    by__histogram whole;
    by__histogram queue; /* from a request to its acceptance by a worker */
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    uint64_t finished[BY__FINISHES];
    struct by__model_metrics *next;
} by__model_metrics;

/* Finds or creates the record of a model; NULL when memory is exhausted or the name is too long. */
by__model_metrics *by__model_metrics_of(by__model_metrics **list, const char *model);
void by__model_metrics_free(by__model_metrics **list);
/* Prints all families; state: the broker's, or NULL. */
void by__metrics_vllm(by__text *out, const by__model_metrics *list, const json_t *state);

#endif
