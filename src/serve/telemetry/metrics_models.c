/* Metrics of models and their versions, from the broker's state. */
#include "serve/protocol/messages.h"
#include "serve/telemetry/metrics.h"

json_t *by__telemetry_histogram_json(const by__telemetry_histogram *histogram)
{
    json_t *counts = json_array();
    for (size_t i = 0; i <= BY__EDGES; i++) {
        (void)json_array_append_new(counts, json_integer((json_int_t)histogram->buckets[i]));
    }
    return json_pack("{so sf sI}", "counts", counts, "sum", histogram->sum, "count",
                     (json_int_t)histogram->count);
}

void by__telemetry_histogram_read(by__telemetry_histogram *histogram, const json_t *value)
{
    const json_t *counts = json_object_get(value, "counts");
    for (size_t i = 0; i <= BY__EDGES; i++) {
        histogram->buckets[i] += (uint64_t)json_integer_value(json_array_get(counts, i));
    }
    histogram->sum += by__protocol_get_number(value, "sum", 0.0);
    histogram->count += (uint64_t)by__protocol_get_integer(value, "count");
}

typedef enum metric_source { OF_MODEL, OF_VERSION, OF_COPIES } metric_source;

static const struct {
    const char *name;
    const char *help;
    const char *key; /* key in the state */
    metric_source from;
    bool counts; /* a counter, else a gauge */
} rows[] = {
    {"banyan_model_queue_requests", "Requests that wait for a worker.", "queue", OF_MODEL, false},
    {"banyan_model_queue_tokens", "Estimated tokens of the requests that wait for a worker.",
     "queue_tokens", OF_MODEL, false},
    {"banyan_model_queue_oldest_seconds",
     "Seconds that the oldest of the requests in the queue has waited.", "oldest", OF_MODEL, false},
    {"banyan_model_expected_wait_seconds",
     "Estimated seconds that a new request would wait for a worker.", "wait", OF_MODEL, false},
    {"banyan_model_sessions", "Sequences that workers run at a time.", "sessions", OF_MODEL, false},
    {"banyan_model_workers", "Workers that are connected.", "workers", OF_MODEL, false},
    {"banyan_version_workers", "Workers that are connected.", "workers", OF_VERSION, false},
    {"banyan_version_share", "Share of new requests that the version gets, 0 to 1.", "share",
     OF_VERSION, false},
    {"banyan_version_requests_total", "Requests that ended.", "requests", OF_VERSION, true},
    {"banyan_version_errors_total", "Requests that ended with an error of the server.", "errors",
     OF_VERSION, true},
    {"banyan_shadow_same_total", "Shadow requests whose answer was that of the client.", "same",
     OF_COPIES, true},
    {"banyan_shadow_different_total",
     "Shadow requests whose answer differed from that of the client.", "different", OF_COPIES,
     true},
    {"banyan_shadow_failed_total", "Shadow requests that failed.", "failed", OF_COPIES, true},
};

static const struct {
    const char *name;
    const char *help;
    const char *key;
} times[] = {
    {"banyan_version_time_to_first_token_seconds",
     "Seconds from the broker's queue to the first text.", "first"},
    {"banyan_version_request_duration_seconds",
     "Seconds from the broker's queue to the end of the answer.", "whole"},
};

/* Adds model="..." and, for a version, version="...". */
static void add_labels(by_string *out, const json_t *model, const json_t *version)
{
    const char *id = by__protocol_get_text(model, "id");
    const char *name = by__protocol_get_text(version, "version");
    by__string_append(out, "model=\"");
    by__telemetry_metrics_label(out, id == NULL ? "" : id);
    by__string_append(out, "\"");
    if (version != NULL) {
        by_string_format(out, ",version=\"%s\"", name == NULL ? "" : name);
    }
}

static void add_row(by_string *out, size_t row, const json_t *model, const json_t *version)
{
    const json_t *from = rows[row].from == OF_MODEL     ? model
                         : rows[row].from == OF_VERSION ? version
                                                        : json_object_get(version, "mirrored");
    by_string labels = {0};
    add_labels(&labels, model, version);
    if (!labels.failed) {
        by__telemetry_metrics_sample(out, rows[row].name, labels.data,
                                     by__protocol_get_number(from, rows[row].key, 0.0));
    }
    by_string_free(&labels);
}

static void add_times(by_string *out, size_t row, const json_t *model, const json_t *version)
{
    by__telemetry_histogram histogram = {0};
    by_string labels = {0};
    add_labels(&labels, model, version);
    by__telemetry_histogram_read(&histogram, json_object_get(version, times[row].key));
    if (!labels.failed) {
        by__telemetry_metrics_buckets(out, times[row].name, labels.data, &histogram);
    }
    by_string_free(&labels);
}

static void add_restarts(by_string *out, const json_t *models)
{
    static const char name[] = "banyan_worker_restarts_total";
    size_t i;
    json_t *m;
    const char *reason;
    json_t *count;
    by__telemetry_metrics_family(out, name, "Workers that ended and were started again, by reason.",
                                 "counter");
    json_array_foreach(models, i, m)
    {
        json_object_foreach(json_object_get(m, "restarts"), reason, count)
        {
            by_string labels = {0};
            add_labels(&labels, m, NULL);
            by__string_append(&labels, ",reason=\"");
            by__telemetry_metrics_label(&labels, reason);
            by__string_append(&labels, "\"");
            if (!labels.failed) {
                by__telemetry_metrics_sample(out, name, labels.data, json_number_value(count));
            }
            by_string_free(&labels);
        }
    }
}

void by__telemetry_metrics_models(by_string *out, const json_t *state)
{
    const json_t *models = json_object_get(state, "models");
    size_t i;
    size_t j;
    json_t *m;
    json_t *v;
    by__telemetry_metrics_family(out, "banyan_dead_requests_total",
                                 "Requests that ended since they lost too many workers.",
                                 "counter");
    /* Without a state nothing is printed: a counter that falls to 0 for a while would be counted
     * twice. */
    if (state != NULL) {
        by__telemetry_metrics_sample(out, "banyan_dead_requests_total", NULL,
                                     by__protocol_get_number(state, "dead", 0.0));
    }
    add_restarts(out, models);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(rows); row++) {
        by__telemetry_metrics_family(out, rows[row].name, rows[row].help,
                                     rows[row].counts ? "counter" : "gauge");
        json_array_foreach(models, i, m)
        {
            if (rows[row].from == OF_MODEL) {
                add_row(out, row, m, NULL);
                continue;
            }
            json_array_foreach(json_object_get(m, "versions"), j, v)
            {
                add_row(out, row, m, v);
            }
        }
    }
    for (size_t row = 0; row < BY_ARRAY_LENGTH(times); row++) {
        by__telemetry_metrics_family(out, times[row].name, times[row].help, "histogram");
        json_array_foreach(models, i, m)
        {
            json_array_foreach(json_object_get(m, "versions"), j, v)
            {
                add_times(out, row, m, v);
            }
        }
    }
}
