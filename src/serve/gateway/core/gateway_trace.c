#include "serve/gateway/core/gateway_trace.h"

#include <stdlib.h>
#include <string.h>

#include "serve/protocol/messages.h"

/* Most bytes of tracestate that are passed on: the standard requires at least 512. */
#define MAX_STATE 512

by_status by__gateway_trace_endpoint_check(const char *url, by_error *error)
{
    if (url[0] != '\0' && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "tracing.endpoint is %s: it must be a URL such as "
                            "http://127.0.0.1:4318/v1/traces",
                            url);
    }
    return BY_OK;
}

by_status by__gateway_request_trace_begin(by__gateway_request_trace *trace,
                                          const by__gateway_tracing *tracing,
                                          by__http_connection *x, const by__http_request *r,
                                          by_error *error)
{
    char header[BY__TRACEPARENT_BYTES];
    const char *state = by__http_header_of(r, "tracestate");
    BY_TRY(by__telemetry_trace_begin(&trace->context, by__http_header_of(r, "traceparent"),
                                     tracing->fraction, error));
    trace->clock = by__serve_wall_clock() - by__now();
    by__telemetry_trace_print(header, &trace->context);
    by__http_connection_header(x, "traceparent", header);
    /* It applies to the caller's trace only. */
    if (trace->context.parent[0] != '\0' && state != NULL && strlen(state) <= MAX_STATE) {
        trace->state = by__strdup(state);
        by__http_connection_header(x, "tracestate", state);
    }
    return BY_OK;
}

void by__gateway_request_trace_free(by__gateway_request_trace *trace)
{
    free(trace->state);
    trace->state = NULL;
}

/* Adds a child span of the request's. */
static void add_part(const by__gateway_request_trace *trace, const by__gateway_tracing *tracing,
                     const char *name, double begin, double end)
{
    char id[BY__SPAN_ID_BYTES];
    if (by__telemetry_span_id(id, NULL) == BY_OK) {
        by__telemetry_trace_export_add(tracing->exports,
                                       &(by__telemetry_span){.trace = trace->context.trace,
                                                             .id = id,
                                                             .parent = trace->context.span,
                                                             .state = trace->state,
                                                             .name = name,
                                                             .kind = BY__SPAN_INTERNAL,
                                                             .begin = begin + trace->clock,
                                                             .end = end + trace->clock});
    }
}

void by__gateway_request_trace_part(const by__gateway_request_trace *trace,
                                    const by__gateway_tracing *tracing, double since,
                                    const json_t *timing)
{
    /* From last to first: the end of the last one is now, and hosts need not agree on the time. */
    static const char *const names[] = {"decode", "prefill", "compute"};
    double end = by__now();
    if (tracing->exports == NULL || !trace->context.sampled) {
        return;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        double seconds = by__protocol_get_number(timing, names[i], -1.0);
        if (seconds >= 0.0) {
            seconds = seconds < end - since ? seconds : end - since;
            add_part(trace, tracing, names[i], end - seconds, end);
            end -= seconds;
        }
    }
    add_part(trace, tracing, "queue", since, end);
}

void by__gateway_request_trace_span(const by__gateway_request_trace *trace,
                                    const by__gateway_tracing *tracing, const char *name,
                                    double begin, double end)
{
    if (tracing->exports != NULL && trace->context.sampled) {
        add_part(trace, tracing, name, begin, end);
    }
}

/* Attributes by OpenTelemetry's conventions for HTTP and for generative models. */
static json_t *attributes_of(const by__gateway_traced_answer *answer)
{
    int status = answer->status;
    const json_t *details = answer->details;
    static const char *const operations[][2] = {{"/v1/chat/completions", "chat"},
                                                {"/v1/completions", "text_completion"},
                                                {"/v1/responses", "generate_content"},
                                                {"/v1/embeddings", "embeddings"}};
    json_t *a = json_pack("{ss ss ss si ss}", "http.request.method", answer->method, "http.route",
                          answer->route, "url.path", answer->path, "http.response.status_code",
                          status, "client.address", answer->peer);
    const char *code = by__protocol_get_text(details, "code");
    const char *operation = NULL;
    char number[16];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(operations) && operation == NULL; i++) {
        operation = strcmp(answer->path, operations[i][0]) == 0 ? operations[i][1] : NULL;
    }
    (void)snprintf(number, sizeof number, "%d", status);
    if (status >= 500 || code != NULL) {
        (void)json_object_set_new(a, "error.type", json_string(code != NULL ? code : number));
    }
    if (details == NULL) {
        return a;
    }
    (void)json_object_set_new(a, "gen_ai.provider.name", json_string("banyan"));
    if (operation != NULL) {
        (void)json_object_set_new(a, "gen_ai.operation.name", json_string(operation));
    }
    static const char *const fields[][2] = {{"id", "gen_ai.response.id"},
                                            {"model", "gen_ai.request.model"},
                                            {"prompt_tokens", "gen_ai.usage.input_tokens"},
                                            {"generated_tokens", "gen_ai.usage.output_tokens"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(fields); i++) {
        json_t *value = json_object_get(details, fields[i][0]);
        if (value != NULL) {
            (void)json_object_set(a, fields[i][1], value);
        }
    }
    return a;
}

void by__gateway_request_trace_end(const by__gateway_request_trace *trace,
                                   const by__gateway_tracing *tracing,
                                   const by__gateway_traced_answer *answer)
{
    by_string name = {0};
    if (tracing->exports == NULL || !trace->context.sampled) {
        return;
    }
    by_string_format(&name, "%s %s", answer->method, answer->route);
    json_t *attributes = attributes_of(answer);
    by__telemetry_trace_export_add(
        tracing->exports, &(by__telemetry_span){.trace = trace->context.trace,
                                                .id = trace->context.span,
                                                .parent = trace->context.parent,
                                                .state = trace->state,
                                                .name = name.failed ? answer->method : name.data,
                                                .kind = BY__SPAN_SERVER,
                                                .begin = answer->since + trace->clock,
                                                .end = by__now() + trace->clock,
                                                .failed = answer->status >= 500,
                                                .attributes = attributes});
    json_decref(attributes);
    by_string_free(&name);
}
