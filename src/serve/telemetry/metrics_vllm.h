/* Metrics with vLLM's names and labels, so that dashboards and autoscalers made for it work
 * (https://docs.vllm.ai, "Production Metrics"). Values that vLLM counts in its engine are counted
 * at the gateway here, for each model. */
#ifndef BY_SERVE_TELEMETRY_METRICS_VLLM_H
#define BY_SERVE_TELEMETRY_METRICS_VLLM_H

#include "serve/telemetry/model_metrics.h"

/* Prints all families; state: the broker's, or NULL. */
void by__telemetry_metrics_vllm(by_string *out, const by__telemetry_model_metrics *list,
                                const json_t *state);

#endif
