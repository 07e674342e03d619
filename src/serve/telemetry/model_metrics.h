/* Metrics of the models that were requested, counted at the gateway for each model.
 *
 * The families are printed by banyan's names here and by vLLM's names in metrics_vllm.c. */
#ifndef BY_SERVE_TELEMETRY_MODEL_METRICS_H
#define BY_SERVE_TELEMETRY_MODEL_METRICS_H

#include "serve/telemetry/metrics.h"

/* Why a sequence ended. */
typedef enum by__telemetry_finish {
    BY__FINISH_STOP,
    BY__FINISH_LENGTH,
    BY__FINISH_ABORT, /* the client disconnected */
    BY__FINISH_ERROR,
    BY__FINISHES
} by__telemetry_finish;

/* Most versions of a model whose tokens are counted; beyond it, the one that has not been named for
 * the longest time is no longer printed. */
#define BY__COUNTED_VERSIONS 16

/* Tokens of completed requests that one version answered. */
typedef struct by__telemetry_version_tokens {
    char version[65]; /* "": a free place */
    double used;      /* by__now when it was named last */
    uint64_t prompt;
    uint64_t generated;
} by__telemetry_version_tokens;

/* Metrics of one model. */
typedef struct by__telemetry_model_metrics {
    char model[256];
    by__telemetry_histogram first; /* histograms as in by__telemetry_metrics */
    by__telemetry_histogram token;
    by__telemetry_histogram whole;
    by__telemetry_histogram queue; /* from a request to its acceptance by a worker */
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    uint64_t finished[BY__FINISHES];
    uint64_t rejected[BY__REFUSALS];
    by__telemetry_version_tokens versions[BY__COUNTED_VERSIONS];
    struct by__telemetry_model_metrics *next;
} by__telemetry_model_metrics;

/* A family with one sample, or one histogram, for each model. */
typedef struct by__telemetry_model_family {
    const char *name;
    const char *help;
    size_t offset;  /* in by__telemetry_model_metrics, of a by__telemetry_histogram or a uint64_t */
    bool histogram; /* else a counter */
} by__telemetry_model_family;

/* Finds or creates the record of a model; NULL when memory is exhausted or the name is too long. */
by__telemetry_model_metrics *by__telemetry_model_metrics_of(by__telemetry_model_metrics **list,
                                                            const char *model);
void by__telemetry_model_metrics_free(by__telemetry_model_metrics **list);
/* Counts the tokens of a completed prompt (version "": not known), or, with 0 tokens, makes the
 * counters of a version. */
void by__telemetry_model_metrics_tokens(by__telemetry_model_metrics *metrics, const char *version,
                                        int64_t prompt, int64_t generated);
/* Prints families; `labels` adds the labels of a model. */
void by__telemetry_model_metrics_families(by_string *out, const by__telemetry_model_metrics *list,
                                          const by__telemetry_model_family *families, size_t count,
                                          void (*labels)(by_string *out, const char *model));
/* Prints all families by banyan's names. */
void by__telemetry_model_metrics_print(by_string *out, const by__telemetry_model_metrics *list);

#endif
