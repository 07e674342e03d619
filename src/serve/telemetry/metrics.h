/* telemetry: what a server reports about itself: metrics (this file, model_metrics.h,
 * metrics_vllm.h), log entries (log.h), traces (trace_context.h, trace_export.h) and drift of
 * requests (served_drift.h).
 *
 * This file has the counters and histograms of a process, printed in Prometheus' text format 0.0.4.
 * A histogram has fixed edges, so that histograms of several processes can be added, and sent in
 * messages.
 *
 * Types: by__telemetry_histogram; by__telemetry_metrics, the counters of a gateway.
 *
 * Who owns what: counters are plain members of their owner's record and are used by its loop only.
 * Functions that print append to a text of the caller.
 *
 * Never put here: decisions that depend on a measurement (admission, autoscaling, rollout), the
 * choice of what is counted in a request. */
#ifndef BY_SERVE_TELEMETRY_METRICS_H
#define BY_SERVE_TELEMETRY_METRICS_H

#include "serve/base/serve.h"

/* Bucket edges in seconds of every histogram of time. They include 0.1, 0.15, 0.2, 0.25 and 0.3, so
 * that "95 % within 200 ms" is exact. */
#define BY__EDGES 22
extern const double by__telemetry_edges[BY__EDGES];

typedef struct by__telemetry_histogram {
    uint64_t buckets[BY__EDGES + 1]; /* not cumulative; the last bucket is above all edges */
    double sum;
    uint64_t count;
} by__telemetry_histogram;

void by__telemetry_histogram_add(by__telemetry_histogram *histogram, double seconds);
/* Adds a histogram from a message, as by__telemetry_histogram_json encodes it. */
void by__telemetry_histogram_read(by__telemetry_histogram *histogram, const json_t *value);
json_t *by__telemetry_histogram_json(const by__telemetry_histogram *histogram);
/* Subtracts an earlier state of the same histogram. */
void by__telemetry_histogram_subtract(by__telemetry_histogram *histogram,
                                      const by__telemetry_histogram *earlier);
/* The p-quantile (p in 0..1), linearly interpolated in its bucket; 0 without observations. */
double by__telemetry_histogram_quantile(const by__telemetry_histogram *histogram, double p);

/* Reasons for which a broker refuses a request temporarily, by the codes of its errors
 * (messages.c). */
#define BY__REFUSALS 4
extern const char *const by__telemetry_refusals[BY__REFUSALS];

/* Counts of engine requests by outcome, and of HTTP answers by class. */
typedef struct by__telemetry_metrics {
    by__telemetry_histogram first; /* from a request to the first text: TTFT */
    by__telemetry_histogram token; /* between two texts of a stream */
    by__telemetry_histogram whole; /* from a request to the end of its answer */
    uint64_t requests[6];          /* answers by the first digit of their status */
    uint64_t rejected[BY__REFUSALS];
    uint64_t rejected_key;
    uint64_t rejected_limit;
    uint64_t cancelled; /* the client disconnected */
    uint64_t failed;    /* ended by an error after the first text */
    uint64_t again;     /* run again because a worker was lost */
    uint64_t apart;     /* parsed or printed on threads other than the loop's */
    uint64_t requests_apart;
    uint64_t prompt_tokens;
    uint64_t generated_tokens;
    int64_t running; /* requests in flight */
} by__telemetry_metrics;

/* Prints a family of one sample with HELP and TYPE. labels: "model=\"x\"" or NULL. */
void by__telemetry_metrics_counter(by_string *out, const char *name, const char *help,
                                   const char *type, const char *labels, double value);
void by__telemetry_metrics_histogram(by_string *out, const char *name, const char *help,
                                     const by__telemetry_histogram *histogram);
/* Counts an error of a broker with this code if it is a refusal. */
void by__telemetry_metrics_refused(uint64_t rejected[BY__REFUSALS], const char *code);
/* Prints HELP and TYPE of a family whose samples follow. */
void by__telemetry_metrics_family(by_string *out, const char *name, const char *help,
                                  const char *type);
/* Prints the samples of a histogram; labels may be NULL. */
void by__telemetry_metrics_buckets(by_string *out, const char *name, const char *labels,
                                   const by__telemetry_histogram *histogram);
/* Prints the metrics of workers, an array from the state of a broker (metrics_workers.c). */
void by__telemetry_metrics_workers(by_string *out, const json_t *workers);
/* Prints the metrics of models and their versions from the state of a broker (metrics_models.c). */
void by__telemetry_metrics_models(by_string *out, const json_t *state);
/* Prints all of `metrics`, and process_*. */
void by__telemetry_metrics_print(by_string *out, const by__telemetry_metrics *metrics);
/* Prints process_* of this process. */
void by__telemetry_metrics_process(by_string *out);
/* Prints one sample without HELP and TYPE. */
void by__telemetry_metrics_sample(by_string *out, const char *name, const char *labels,
                                  double value);
/* Prints the value of a label with \, " and LF escaped. */
void by__telemetry_metrics_label(by_string *out, const char *value);

#endif
