/* Status routes of a gateway: health, models, metrics. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/core/feedback.h"
#include "serve/gateway/core/payload_log.h"
#include "serve/gateway/gateway_routes.h"
#include "serve/gateway/tasks/gateway_webhooks.h"
#include "serve/protocol/messages.h"
#include "serve/telemetry/served_drift.h"

/* Seconds without a message of a worker after which it is ignored. */
#define SILENCE 5.0

/* ---- health ---- */

/* Number of workers that answer: health depends on these, not on this process being alive. */
static size_t count_workers(const by__gateway *g)
{
    size_t i;
    json_t *w;
    size_t count = 0;
    json_array_foreach(json_object_get(by__gateway_state(g), "workers"), i, w)
    {
        count += by__protocol_get_number(w, "silent", 0.0) < SILENCE &&
                 !json_is_true(json_object_get(w, "leaving"));
    }
    return count;
}

void by__gateway_answer_live(by__gateway *g, by__http_connection *x, const by__http_request *r,
                             const char *key)
{
    BY_UNUSED(r);
    BY_UNUSED(key);
    by__gateway_reply_json(g, x, 200, json_pack("{ss}", "status", "live"));
}

/* Returns true if workers are started on demand, so that having none is no reason to send clients
 * elsewhere. */
static bool starts_workers(const by__gateway *g)
{
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(by__gateway_state(g), "models"), i, m)
    {
        if (json_is_true(json_object_get(m, "elastic")) &&
            json_is_object(json_object_get(m, "info"))) {
            return true;
        }
    }
    return false;
}

/* The reason why this gateway is not ready for clients; NULL: it is ready. */
static const char *not_ready(const by__gateway *g, size_t workers)
{
    return g->draining                          ? "the gateway is draining"
           : !g->broker.ready                   ? "the broker is not reached"
           : workers == 0 && !starts_workers(g) ? "no worker answers"
                                                : NULL;
}

void by__gateway_answer_ready(by__gateway *g, by__http_connection *x, const by__http_request *r,
                              const char *key)
{
    size_t workers = g->draining ? 0 : count_workers(g);
    const char *reason = not_ready(g, workers);
    BY_UNUSED(r);
    BY_UNUSED(key);
    by__gateway_reply_json(g, x, reason == NULL ? 200 : 503,
                           json_pack("{ss sI ss?}", "status",
                                     reason == NULL ? "ready" : "not ready", "workers",
                                     (json_int_t)workers, "reason", reason));
}

void by__gateway_answer_version(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                const char *key)
{
    BY_UNUSED(r);
    BY_UNUSED(key);
    by__gateway_reply_json(g, x, 200, json_pack("{ss}", "version", BY_VERSION));
}

/* ---- models ---- */

static json_t *model_of(const json_t *m)
{
    json_t *info = json_object_get(m, "info");
    return json_pack("{sO ss sI ss sO?}", "id", json_object_get(m, "id"), "object", "model",
                     "created", (json_int_t)by__protocol_get_integer(info, "created"), "owned_by",
                     "banyan", "info", info);
}

void by__gateway_answer_models(by__gateway *g, by__http_connection *x, const by__http_request *r,
                               const char *key)
{
    json_t *data = json_array();
    size_t i;
    json_t *m;
    BY_UNUSED(r);
    BY_UNUSED(key);
    json_array_foreach(json_object_get(g->state, "models"), i, m)
    {
        if (json_is_object(json_object_get(m, "info"))) {
            (void)json_array_append_new(data, model_of(m));
        }
    }
    by__gateway_reply_json(g, x, 200, json_pack("{ss so}", "object", "list", "data", data));
}

void by__gateway_answer_model(by__gateway *g, by__http_connection *x, const by__http_request *r,
                              const char *key)
{
    BY_UNUSED(key);
    const char *name = r->path + strlen("/v1/models/");
    const json_t *model = by__gateway_model(g, name);
    if (model != NULL) {
        by__gateway_reply_json(g, x, 200, model_of(model));
        return;
    }
    by__gateway_reply_no_model(g, x, name);
}

/* ---- metrics ---- */

static void print_refusals(const by__gateway *g, by_string *out)
{
    by__http_refusals refused = by__http_server_refusals(g->server);
    const char *name = "banyan_connections_refused_total";
    by__telemetry_metrics_family(
        out, name, "Connections, and requests behind proxies, above a limit.", "counter");
    by__telemetry_metrics_sample(out, name, "limit=\"all\"", (double)refused.connections);
    by__telemetry_metrics_sample(out, name, "limit=\"address\"", (double)refused.addresses);
}

/* Makes the metrics of the models and versions that are served, so that they are 0 before the first
 * request: a rate does not see the value that a counter begins with. */
static void models_known(by__gateway *g)
{
    size_t i;
    size_t j;
    json_t *m;
    json_t *v;
    json_array_foreach(json_object_get(g->state, "models"), i, m)
    {
        const char *id = by__protocol_get_text(m, "id");
        by__telemetry_model_metrics *counts = id == NULL ? NULL : by__gateway_counts(g, id);
        json_array_foreach(json_object_get(m, "versions"), j, v)
        {
            const char *version = by__protocol_get_text(v, "version");
            if (counts != NULL && version != NULL) {
                by__telemetry_model_metrics_tokens(counts, version, 0, 0);
            }
        }
    }
}

static void print_own(by__gateway *g, by_string *out)
{
    const json_t *state = by__gateway_state(g);
    const json_t *all = json_object_get(state, "workers");
    int64_t queue = 0;
    size_t workers = count_workers(g);
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(state, "models"), i, m)
    {
        queue += by__protocol_get_integer(m, "queue");
    }
    by__telemetry_metrics_print(out, &g->metrics);
    by__telemetry_metrics_counter(out, "banyan_broker_reached",
                                  "1: what the broker says is known here.", "gauge", NULL,
                                  state != NULL);
    by__telemetry_metrics_family(out, "banyan_queue_requests", "Requests that wait for a worker.",
                                 "gauge");
    if (state != NULL) {
        by__telemetry_metrics_sample(out, "banyan_queue_requests", NULL, (double)queue);
    }
    by__telemetry_metrics_counter(out, "banyan_workers_ready", "Workers that answer.", "gauge",
                                  NULL, (double)workers);
    by__telemetry_metrics_counter(out, "banyan_ready", "1: /health/ready answers 200.", "gauge",
                                  NULL, not_ready(g, workers) == NULL);
    by__telemetry_metrics_counter(out, "banyan_connections", "Connections of clients.", "gauge",
                                  NULL, (double)by__http_server_connections(g->server));
    print_refusals(g, out);
    by__telemetry_metrics_workers(out, all);
    by__telemetry_model_metrics_print(out, g->models);
    by__telemetry_metrics_models(out, state);
    by__telemetry_served_drift_print(out, all);
    by__gateway_feedback_print(g->feedback, out);
    by__features_print(g->features, out);
    by__gateway_payload_log_print(g->payload, out);
    by__telemetry_trace_export_print(g->tracing.exports, out);
    by__gateway_webhooks_print(g->webhooks, out);
}

/* The names of metrics that are requested: by the query, else by the configuration. NULL: an
 * unknown word. */
static const char *names_of(const by__gateway *g, const char *query)
{
    const char *own =
        g->options.config == NULL ? "banyan" : g->options.config->gateway.metrics_names;
    return query[0] == '\0'                     ? own
           : strcmp(query, "names=banyan") == 0 ? "banyan"
           : strcmp(query, "names=vllm") == 0   ? "vllm"
                                                : NULL;
}

void by__gateway_answer_metrics(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                const char *key)
{
    by_string out = {0};
    const char *names = names_of(g, r->query);
    BY_UNUSED(key);
    if (names == NULL) {
        by__gateway_reply_error(g, x, 400, "invalid_request", "names",
                                "the query of this route is empty, names=banyan or names=vllm");
        return;
    }
    models_known(g);
    if (strcmp(names, "vllm") == 0) {
        by__telemetry_metrics_vllm(&out, g->models, by__gateway_state(g));
        by__telemetry_metrics_process(&out);
    } else {
        print_own(g, &out);
    }
    if (out.failed) {
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for the metrics");
    } else {
        by__http_connection_reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
    }
    by_string_free(&out);
}
