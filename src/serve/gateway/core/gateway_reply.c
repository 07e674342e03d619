/* Replies, and what the log and the limits are told of a request. */
#include "serve/gateway/core/gateway_reply.h"

#include <math.h>
#include <string.h>

#include "serve/protocol/messages.h"

/* Most bytes of model names listed in an error. */
#define MAX_NAMED 1000

/* ---- answers ---- */

void by__gateway_openai_error(by_string *out, int status, const char *code, const char *param,
                              const char *message)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 404 ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status == 503 ? "unavailable_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    by__string_append(out, "{\"error\":{\"message\":");
    by_string_json(out, message, strlen(message));
    by_string_format(out, ",\"type\":\"%s\",\"param\":", type);
    if (param == NULL) {
        by__string_append(out, "null");
    } else {
        by_string_json(out, param, strlen(param));
    }
    by__string_append(out, ",\"code\":");
    by_string_json(out, code, strlen(code));
    by__string_append(out, "}}");
}

void by__gateway_reply_error(by__gateway *g, by__http_connection *x, int status, const char *code,
                             const char *param, const char *message)
{
    by_string out = {0};
    by__gateway_request_log *record = by__http_connection_noted(x);
    BY_UNUSED(g);
    if (record != NULL) {
        (void)snprintf(record->code, sizeof record->code, "%s", code);
    }
    by__gateway_openai_error(&out, status, code, param, message);
    by__http_connection_set(x, NULL);
    if (status == 503 && !by__http_connection_has_header(x, "Retry-After")) {
        by__http_connection_header(x, "Retry-After", "1");
    }
    by__http_connection_reply(x, status, "application/json", out.failed ? "{}" : out.data,
                              out.failed ? 2 : out.length);
    by_string_free(&out);
}

void by__gateway_reply_refused(by__gateway *g, by__http_connection *x, by_status status,
                               const char *param, const by_error *error)
{
    bool theirs = status == BY_EARG || status == BY_EFORMAT;
    by__gateway_reply_error(g, x, theirs ? 400 : 503, theirs ? "invalid_request" : "out_of_memory",
                            theirs ? param : NULL, error->message);
}

bool by__gateway_takes_json(by__gateway *g, by__http_connection *x, const by__http_request *r)
{
    if (by__http_is_type(r, "application/json")) {
        return true;
    }
    by__gateway_reply_error(g, x, 415, "not_json", NULL, "Content-Type must be application/json");
    return false;
}

void by__gateway_reply_text(by__gateway *g, by__http_connection *x, int status, by_string *json)
{
    if (json->failed) {
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for an answer");
    } else {
        by__http_connection_reply_text(x, status, "application/json", json);
    }
}

void by__gateway_reply_json(by__gateway *g, by__http_connection *x, int status, json_t *value)
{
    by_string out = {0};
    by__json_write(&out, value, JSON_COMPACT);
    json_decref(value);
    by__gateway_reply_text(g, x, status, &out);
    by_string_free(&out);
}

void by__gateway_retry_after(by__http_connection *x, double seconds)
{
    char text[16];
    if (seconds > 0.0) {
        (void)snprintf(text, sizeof text, "%d", (int)(seconds + 0.999));
        by__http_connection_header(x, "Retry-After", text);
    }
}

void by__gateway_no_model_text(const by__gateway *g, const char *name, by_string *out)
{
    size_t i;
    size_t named = 0;
    size_t more = 0;
    json_t *m;
    by_string_format(out, "the model '%s' is not served here", name);
    size_t most = out->length + MAX_NAMED;
    json_array_foreach(json_object_get(g->state, "models"), i, m)
    {
        const char *id = by__protocol_get_text(m, "id");
        if (id == NULL || !json_is_object(json_object_get(m, "info"))) {
            continue;
        }
        if (more > 0 || out->length + strlen(id) > most) {
            more++;
            continue;
        }
        by_string_format(out, "%s'%s'", named++ == 0 ? "; served: " : ", ", id);
    }
    if (more > 0) {
        by_string_format(out, "%s%zu more, which GET /v1/models lists",
                         named == 0 ? "; served: " : " and ", more);
    }
    by__string_append(out, named + more == 0 ? "; no model is" : "");
}

void by__gateway_reply_no_model(by__gateway *g, by__http_connection *x, const char *name)
{
    by_string message = {0};
    by__gateway_no_model_text(g, name, &message);
    by__gateway_reply_error(g, x, 404, "model_not_found", "model",
                            message.failed ? "no model of this name is served here" : message.data);
    by_string_free(&message);
}

/* ---- limits ---- */

static void add_number(by__http_connection *x, const char *name, double value)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.0f", value);
    by__http_connection_header(x, name, text);
}

/* Adds OpenAI's headers; the time is that until the bucket is full. */
static void add_limit(by__http_connection *x, const char *what, int64_t limit, double left)
{
    static const char *const parts[] = {"Limit", "Remaining", "Reset"};
    double values[] = {(double)limit, floor(left),
                       limit > 0 ? ceil(((double)limit - left) * 60.0 / (double)limit) : 0.0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(parts) && limit > 0; i++) {
        char name[48];
        char value[32];
        (void)snprintf(name, sizeof name, "X-RateLimit-%s-%s", parts[i], what);
        (void)snprintf(value, sizeof value, i == 2 ? "%.0fs" : "%.0f", values[i]);
        by__http_connection_header(x, name, value);
    }
}

/* Charges the client of a request. Returns false, after replying, if its limits do not allow
 * that. */
bool by__gateway_charge_record(by__gateway *g, by__http_connection *x,
                               const by__gateway_request_log *record, double requests,
                               double tokens)
{
    by__gateway_allowance left;
    char message[128];
    if (g->limits == NULL) {
        return true;
    }
    double wait = by__gateway_limits_charge(g->limits, record->client->account, requests, tokens,
                                            by__now(), by__serve_wall_clock(), &left);
    if (left.over == NULL) {
        if (requests > 0.0) {
            add_limit(x, "Requests", left.requests_per_minute, left.requests);
        } else {
            add_limit(x, "Tokens", left.tokens_per_minute, left.tokens);
        }
        return true;
    }
    bool day = strcmp(left.over, "tokens_per_day") == 0;
    g->metrics.rejected_limit++;
    add_limit(x, "Requests", left.requests_per_minute, left.requests);
    add_limit(x, "Tokens", left.tokens_per_minute, left.tokens);
    add_number(x, "Retry-After", ceil(wait));
    (void)snprintf(message, sizeof message, "the key has used its %s%s; again in %.0f s",
                   day ? "tokens of the day" : left.over, day ? "" : " of the minute", ceil(wait));
    by__gateway_reply_error(g, x, 429, day ? "insufficient_quota" : "rate_limit_exceeded", NULL,
                            message);
    return false;
}

bool by__gateway_charge(by__gateway *g, by__http_connection *x, int64_t tokens)
{
    by__gateway_request_log *record = by__http_connection_noted(x);
    if (!by__gateway_charge_record(g, x, record, 0.0, (double)tokens)) {
        return false;
    }
    record->charged += tokens;
    record->used += tokens;
    return true;
}

void by__gateway_used(by__http_connection *x, int64_t tokens)
{
    by__gateway_request_log *record = by__http_connection_noted(x);
    record->used = tokens;
}

/* ---- logs ---- */

void by__gateway_detail(by__http_connection *x, json_t *details)
{
    by__gateway_request_log *record = by__http_connection_noted(x);
    if (record == NULL || details == NULL) {
        json_decref(details);
    } else {
        json_decref(record->details);
        record->details = details;
    }
}

void by__gateway_part_ended(by__gateway *g, by__http_connection *x, double since,
                            const json_t *timing)
{
    const by__gateway_request_log *record = by__http_connection_noted(x);
    by__gateway_request_trace_part(&record->trace, &g->tracing, since, timing);
}

void by__gateway_span(by__gateway *g, by__http_connection *x, const char *name, double begin,
                      double end)
{
    const by__gateway_request_log *record = by__http_connection_noted(x);
    by__gateway_request_trace_span(&record->trace, &g->tracing, name, begin, end);
}

const char *by__gateway_key(by__http_connection *x)
{
    const by__gateway_request_log *record = by__http_connection_noted(x);
    return record->client->name;
}

const char *by__gateway_trace(const by__gateway *g, by__http_connection *x)
{
    const by__gateway_request_log *record = by__http_connection_noted(x);
    const by__telemetry_trace_context *c = &record->trace.context;
    /* Without an export new traces are marked as sampled, but nobody reads them. */
    return c->sampled && (c->parent[0] != '\0' || g->tracing.exports != NULL) ? c->trace : NULL;
}
