#include "serve/telemetry/metrics_vllm.h"

#include <stddef.h>
#include <string.h>

#include "serve/protocol/messages.h"

static const by__telemetry_model_family families[] = {
    {"vllm:prompt_tokens_total", "Tokens of prompts.",
     offsetof(by__telemetry_model_metrics, prompt_tokens), false},
    {"vllm:generation_tokens_total", "Tokens of answers.",
     offsetof(by__telemetry_model_metrics, generated_tokens), false},
    {"vllm:time_to_first_token_seconds", "From a request to its first text.",
     offsetof(by__telemetry_model_metrics, first), true},
    {"vllm:inter_token_latency_seconds", "Between two texts of a request.",
     offsetof(by__telemetry_model_metrics, token), true},
    /* The same under its former name. */
    {"vllm:time_per_output_token_seconds", "Between two texts of a request.",
     offsetof(by__telemetry_model_metrics, token), true},
    {"vllm:e2e_request_latency_seconds", "From a request to its end.",
     offsetof(by__telemetry_model_metrics, whole), true},
    {"vllm:request_queue_time_seconds", "From a request to its acceptance by a worker.",
     offsetof(by__telemetry_model_metrics, queue), true},
};

/* Values from the broker's state: sums over the workers of a model. */
static const struct {
    const char *name;
    const char *help;
    const char *type;
    const char *key;   /* in a worker's engine */
    const char *queue; /* in the model, added; NULL: none */
    const char *of;    /* in the engine, the total that the sum is a share of; NULL: not a share */
} sums[] = {
    {"vllm:num_requests_running", "Sequences that run.", "gauge", "running", NULL, NULL},
    {"vllm:num_requests_waiting", "Requests that wait.", "gauge", "waiting", "queue", NULL},
    {"vllm:kv_cache_usage_perc", "Share of the pages that running sequences have, 0 to 1.", "gauge",
     "pages_used", NULL, "pages"},
    {"vllm:num_preemptions_total", "Sequences that were preempted because the page pool was full.",
     "counter", "preemptions", NULL, NULL},
    {"vllm:prefix_cache_queries_total", "Tokens that were looked up in the prefix cache.",
     "counter", "looked_up", NULL, NULL},
    {"vllm:prefix_cache_hits_total", "Tokens that were in the prefix cache.", "counter", "found",
     NULL, NULL},
};

static void add_labels(by_string *out, const char *model)
{
    by__string_append(out, "model_name=\"");
    by__telemetry_metrics_label(out, model);
    by__string_append(out, "\",engine=\"0\"");
}

static double sum_of(const json_t *state, const char *model, const char *key)
{
    double sum = 0.0;
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(state, "workers"), i, w)
    {
        const char *of = by__protocol_get_text(w, "model");
        if (of != NULL && strcmp(of, model) == 0) {
            sum += by__protocol_get_number(json_object_get(w, "engine"), key, 0.0);
        }
    }
    return sum;
}

static void print_sums(by_string *out, const json_t *state)
{
    const json_t *models = json_object_get(state, "models");
    for (size_t row = 0; row < BY_ARRAY_LENGTH(sums); row++) {
        size_t i;
        json_t *m;
        by__telemetry_metrics_family(out, sums[row].name, sums[row].help, sums[row].type);
        json_array_foreach(models, i, m)
        {
            const char *model = by__protocol_get_text(m, "id");
            by_string labels = {0};
            if (model == NULL) {
                continue;
            }
            double value = sum_of(state, model, sums[row].key);
            double whole = sums[row].of == NULL ? 1.0 : sum_of(state, model, sums[row].of);
            value +=
                sums[row].queue == NULL ? 0.0 : by__protocol_get_number(m, sums[row].queue, 0.0);
            add_labels(&labels, model);
            if (!labels.failed) {
                by__telemetry_metrics_sample(out, sums[row].name, labels.data,
                                             whole > 0.0 ? value / whole : 0.0);
            }
            by_string_free(&labels);
        }
    }
}

static void print_finished(by_string *out, const by__telemetry_model_metrics *list)
{
    static const char *const reasons[BY__FINISHES] = {"stop", "length", "abort", "error"};
    static const char name[] = "vllm:request_success_total";
    by__telemetry_metrics_family(out, name, "Sequences that ended, by reason.", "counter");
    for (const by__telemetry_model_metrics *m = list; m != NULL; m = m->next) {
        for (size_t i = 0; i < BY__FINISHES; i++) {
            by_string labels = {0};
            add_labels(&labels, m->model);
            by_string_format(&labels, ",finished_reason=\"%s\"", reasons[i]);
            if (!labels.failed) {
                by__telemetry_metrics_sample(out, name, labels.data, (double)m->finished[i]);
            }
            by_string_free(&labels);
        }
    }
}

void by__telemetry_metrics_vllm(by_string *out, const by__telemetry_model_metrics *list,
                                const json_t *state)
{
    print_sums(out, state);
    by__telemetry_model_metrics_families(out, list, families, BY_ARRAY_LENGTH(families),
                                         add_labels);
    print_finished(out, list);
}
