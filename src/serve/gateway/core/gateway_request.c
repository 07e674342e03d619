/* An HTTP request in flight: submitted to the broker, with events forwarded to the client. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/core/feedback.h"
#include "serve/gateway/core/gateway_reply.h"
#include "serve/gateway/core/payload_log.h"
#include "serve/protocol/messages.h"

/* Seconds after a deadline in which broker and worker should report it themselves. */
#define LATE 10.0
/* Bytes of the buffer for frames that are kept allocated. */
#define MAX_FRAME ((size_t)16 << 10)

/* ---- the broker ---- */

/* Returns true if part of the answer has been sent to the client. */
static bool has_sent(const by__gateway_part *part)
{
    const by__gateway_request *request = part->request;
    const by__gateway_choice *choices =
        &request->choices[(size_t)(part - request->parts) * request->n];
    for (size_t i = 0; i < request->n && request->stream; i++) {
        if (choices[i].sent > 0) {
            return true;
        }
    }
    return false;
}

/* Returns true if only the version that began the answer can complete it. */
static bool is_bound(const by__gateway_part *part)
{
    return has_sent(part) && part->version[0] != '\0';
}

/* Nothing is sent while the link is down: by__gateway_requests_again will submit it. */
static void submit_part(by__gateway *g, by__gateway_part *part)
{
    if (is_bound(part)) {
        (void)json_object_set_new(part->message, "version", json_string(part->version));
    }
    if (g->broker.ready) {
        bool seen = by__gateway_model(g, part->request->model) != NULL;
        /* Sent as a duration, because hosts need not agree on the time, and clocks may be set. */
        double left = part->request->since + g->options.deadline - by__now();
        (void)json_object_set_new(part->message, "seen", json_boolean(seen));
        (void)json_object_set_new(part->message, "again", json_boolean(part->submitted));
        (void)json_object_set_new(part->message, "left", json_real(left > 0.001 ? left : 0.001));
        json_t *message = part->text == NULL ? by__protocol_message_with_text(part->message)
                                             : by__protocol_copy_object(part->message);
        if (part->text != NULL && json_object_set_new(message, "request", part->text) != 0) {
            json_decref(message);
            message = NULL;
        }
        part->text = NULL; /* it was taken */
        bool sent = message != NULL && by__link_broker_send(&g->broker, message);
        part->submitted = sent || part->submitted;
        json_decref(message);
    }
}

/* Further events of the part are ignored. */
static void cancel_part(by__gateway *g, by__gateway_part *part)
{
    if (part->listed) {
        by__serve_id_remove(&g->parts, &part->entry);
        part->listed = false;
    }
    if (part->submitted && !part->done) {
        json_t *message = json_pack("{ss ss}", "t", "cancel", "id", part->entry.id);
        (void)by__link_broker_send(&g->broker, message);
        json_decref(message);
    }
    part->done = true;
}

/* ---- end of a request ---- */

/* Removes a request from the gateway. */
static void remove_request(by__gateway_request *request)
{
    by__gateway *g = request->gateway;
    for (size_t i = 0; i < request->part_count; i++) {
        cancel_part(g, &request->parts[i]);
    }
    *(request->previous == NULL ? &g->requests : &request->previous->next) = request->next;
    if (request->next != NULL) {
        request->next->previous = request->previous;
    }
    g->metrics.running--;
}

static void log_call(const by__gateway_request *request, const char *code)
{
    int64_t prompt = 0;
    int64_t generated = 0;
    for (size_t i = 0; i < request->part_count; i++) {
        prompt += request->parts[i].prompt_tokens;
        generated += request->parts[i].generated;
    }
    by__gateway_used(request->connection, prompt + generated);
    by__gateway_detail(request->connection,
                       json_pack("{ss ss ss? sb sI sI}", "id", request->id, "model", request->model,
                                 "code", code, "stream", (int)request->stream, "prompt_tokens",
                                 (json_int_t)prompt, "generated_tokens", (json_int_t)generated));
}

static void count_end(by__gateway_request *request, by__telemetry_finish finish)
{
    if (request->counts != NULL) {
        request->counts->finished[finish]++;
    }
}

/* Counts a completed request and each of its sequences. */
static void count_ends(by__gateway_request *request)
{
    double seconds = by__now() - request->since;
    bool whole = request->last_text == 0.0; /* an answer in one piece */
    by__telemetry_histogram_add(&request->gateway->metrics.whole, seconds);
    if (whole) {
        by__telemetry_histogram_add(&request->gateway->metrics.first, seconds);
    }
    if (request->counts == NULL) {
        return;
    }
    by__telemetry_histogram_add(&request->counts->whole, seconds);
    if (whole) {
        by__telemetry_histogram_add(&request->counts->first, seconds);
    }
    for (size_t i = 0; i < request->part_count; i++) {
        const by__gateway_part *part = &request->parts[i];
        by__telemetry_model_metrics_tokens(request->counts, part->version, part->prompt_tokens,
                                           part->generated);
    }
    for (size_t i = 0; i < request->part_count * request->n; i++) {
        bool cut = strcmp(request->choices[i].reason, "length") == 0;
        count_end(request, cut ? BY__FINISH_LENGTH : BY__FINISH_STOP);
    }
}

void by__gateway_request_gone(by__gateway_waiter *waiter)
{
    by__gateway_request *request = (by__gateway_request *)(void *)waiter;
    request->gateway->metrics.cancelled++;
    for (size_t i = 0; i < request->part_count; i++) {
        by__gateway_part *part = &request->parts[i];
        if (part->submitted && !part->done && part->prompt_tokens == 0) {
            /* No event of it has come, but it may be computed. */
            part->prompt_tokens = part->guess;
        }
    }
    count_end(request, BY__FINISH_ABORT);
    log_call(request, "client_gone");
    remove_request(request);
    by__gateway_request_free(request);
}

/* Ends a stream with its last frames. */
static void end_stream(by__http_connection *x, const by_string *frames)
{
    by__http_connection_set(x, NULL);
    if (by__http_connection_send_text(x, frames)) {
        by__http_connection_end(x);
    }
}

/* Names what answers: all prompts of a request go to the same version. */
static void add_origin(const by__gateway_request *request)
{
    const by__gateway_part *part = request->parts;
    const by__gateway_part *last = request->parts + request->part_count - 1;
    while (part < last && part->version[0] == '\0') {
        part++;
    }
    if (part->run[0] != '\0') {
        by__http_connection_header(request->connection, "X-Banyan-Run", part->run);
    }
    if (part->version[0] != '\0') {
        by__http_connection_header(request->connection, "X-Banyan-Version", part->version);
    }
}

static void finish(by__gateway_request *request)
{
    by__gateway *g = request->gateway;
    by__http_connection *x = request->connection;
    by_string out = {0};
    count_ends(request);
    log_call(request, NULL);
    remove_request(request);
    by__gateway_request_choose_best(request);
    by__gateway_feedback_answer(g->feedback, request);
    if (request->recorded) {
        by__gateway_payload_log_request(g->payload, request);
    }
    if (request->stream) {
        request->form->end(request, &out);
        end_stream(x, &out);
    } else {
        add_origin(request);
        if (by__gateway_large_print(request)) {
            return;
        }
        request->form->answer(request, &out);
        by__gateway_reply_text(g, x, 200, &out);
    }
    by_string_free(&out);
    by__gateway_request_free(request);
}

/* An error that ends a request. */
typedef struct failure {
    int status; /* HTTP status */
    const char *code;
    const char *param; /* NULL: none */
    const char *message;
    double retry_after; /* seconds; 0: no header */
} failure;

/* Ends the request with an error, whatever the state of its other parts. */
static void fail_with(by__gateway_request *request, const failure *f)
{
    by__gateway *g = request->gateway;
    by__http_connection *x = request->connection;
    by__telemetry_metrics_refused(g->metrics.rejected, f->code);
    if (request->counts != NULL) {
        by__telemetry_metrics_refused(request->counts->rejected, f->code);
    }
    g->metrics.failed += f->status >= 500;
    count_end(request, BY__FINISH_ERROR);
    log_call(request, f->code);
    remove_request(request);
    if (!request->began && strcmp(f->code, "model_not_found") == 0) {
        by__gateway_reply_no_model(g, x, request->model);
    } else if (!request->began) {
        by__gateway_retry_after(x, f->retry_after);
        by__gateway_reply_error(g, x, f->status, f->code, f->param, f->message);
    } else {
        by_string out = {0};
        request->form->fail(request, f->status, f->code, f->param, f->message, &out);
        end_stream(x, &out);
        by_string_free(&out);
    }
    by__gateway_request_free(request);
}

static void fail(by__gateway_request *request, const json_t *event)
{
    const char *code = by__protocol_get_text(event, "code");
    const char *message = by__protocol_get_text(event, "message");
    const char *param = by__protocol_get_text(event, "param");
    int status = (int)by__protocol_get_integer(event, "status");
    if (param != NULL && request->form->kind == BY__REQUEST_RESPONSE &&
        strcmp(param, "messages") == 0) {
        param = "input"; /* of which the messages were made */
    }
    fail_with(request,
              &(failure){.status = status < 400 || status > 599 ? 500 : status,
                         .code = code == NULL ? "server_error" : code,
                         .param = param,
                         .message = message == NULL ? "the request failed" : message,
                         .retry_after = by__protocol_get_number(event, "retry_after", 0.0)});
}

void by__gateway_requests_expire(by__gateway *g)
{
    static const failure late = {504, "deadline_exceeded", NULL,
                                 "no answer came before the deadline", 0.0};
    double now = by__now();
    for (by__gateway_request *request = g->requests, *next; request != NULL; request = next) {
        next = request->next;
        if (now - request->since > g->options.deadline + LATE) {
            fail_with(request, &late);
        }
    }
}

/* ---- start of a request ---- */

by_status by__gateway_request_open(by__gateway_request **out, by__gateway *gateway,
                                   const by__gateway_request_form *form, const char *key,
                                   by_error *error)
{
    by__gateway_request *request = NULL;
    BY_TRY(by__alloc((void **)&request, 1, sizeof *request, "a request", error));
    *request = (by__gateway_request){.gateway = gateway,
                                     .form = form,
                                     .n = 1,
                                     .key = key,
                                     .waiter = {by__gateway_request_gone},
                                     .created = (int64_t)by__serve_wall_clock(),
                                     .since = by__now()};
    by_status status = by__serve_request_id(request->id, form->prefix, error);
    if (status != BY_OK) {
        by__gateway_request_free(request);
        return status;
    }
    memcpy(request->id + strlen(form->prefix), gateway->tag, strlen(gateway->tag));
    *out = request;
    return BY_OK;
}

void by__gateway_request_start(by__gateway_request *request)
{
    by__gateway *g = request->gateway;
    by_error error = {0};
    int64_t cost = 0;
    for (size_t i = 0; i < request->part_count; i++) {
        cost += by__protocol_get_integer(request->parts[i].message, "cost");
    }
    if (!by__gateway_charge(g, request->connection, cost)) {
        by__gateway_request_free(request);
        return;
    }
    request->next = g->requests;
    if (request->next != NULL) {
        request->next->previous = request;
    }
    g->requests = request;
    g->metrics.running++;
    request->counts = by__gateway_counts(g, request->model);
    request->queued = true;
    request->recorded = by__gateway_payload_wants(g->payload, request->id);
    by__http_connection_set(request->connection, &request->waiter);
    for (size_t i = 0; i < request->part_count; i++) {
        const char *id = by__protocol_get_text(request->parts[i].message, "id");
        if (by__serve_id_add(&g->parts, &request->parts[i].entry, id, &error) != BY_OK) {
            fail_with(request, &(failure){503, "out_of_memory", NULL, error.message, 0.0});
            return;
        }
        request->parts[i].listed = true;
    }
    for (size_t i = 0; i < request->part_count; i++) {
        submit_part(g, &request->parts[i]);
    }
}

void by__gateway_requests_again(by__gateway *g)
{
    for (by__gateway_request *request = g->requests; request != NULL; request = request->next) {
        for (size_t i = 0; i < request->part_count * request->n; i++) {
            request->choices[i].replayed = 0;
        }
        for (size_t i = 0; i < request->part_count; i++) {
            /* A part whose answer is being parsed is complete. */
            if (!request->parts[i].done && !request->parts[i].reading) {
                submit_part(g, &request->parts[i]);
            }
        }
    }
}

/* ---- events ---- */

/* Index of the choice for the sequence i of an event. */
static size_t choice_of(const by__gateway_part *part, int64_t i)
{
    const by__gateway_request *request = part->request;
    size_t at = i < 0 || (uint64_t)i >= request->n ? 0 : (size_t)i;
    return (size_t)(part - request->parts) * request->n + at;
}

/* Sends frames, and frees them. Returns false if the client is gone, and the request with it. */
static bool put(by__gateway_request *request, by_string *out)
{
    request->last_sent_at = by__now();
    bool sent = by__http_connection_send_text(request->connection, out);
    by_string_free(out);
    return sent;
}

/* A worker has begun the answer. Another version may start over if the client has nothing of the
 * answer yet; otherwise the answer cannot be completed. Returns false if the request has ended. */
static bool set_version(by__gateway_part *part, const json_t *event)
{
    by__gateway_request *request = part->request;
    const char *version = by__protocol_get_text(event, "version");
    static const failure disconnected = {
        503, "version_gone", NULL,
        "the version of the model that began the answer is no longer served", 0.0};
    size_t first = (size_t)(part - request->parts) * request->n;
    if (version == NULL || strcmp(version, part->version) == 0) {
        return true;
    }
    if (is_bound(part)) {
        fail_with(request, &disconnected);
        return false;
    }
    for (size_t i = first; i < first + request->n; i++) {
        by__gateway_choice *c = &request->choices[i];
        by_string_free(&c->text);
        json_decref(c->logprobs);
        *c = (by__gateway_choice){0};
    }
    const char *run = by__protocol_get_text(event, "run");
    (void)snprintf(part->version, sizeof part->version, "%s", version);
    (void)snprintf(part->run, sizeof part->run, "%s", run == NULL ? "" : run);
    return true;
}

static bool begin(by__gateway_request *request)
{
    by_string out = {0};
    if (request->began || !request->stream) {
        return true;
    }
    request->began = true;
    add_origin(request);
    if (!by__http_connection_stream(request->connection)) {
        return false;
    }
    for (size_t i = 0; i < request->part_count * request->n; i++) {
        request->form->first(request, i, &out);
    }
    return put(request, &out);
}

void by__gateway_requests_comment(by__gateway *g)
{
    double now = by__now();
    for (by__gateway_request *request = g->requests, *next; request != NULL; request = next) {
        by_string out = {0};
        next = request->next;
        if (request->began && now - request->last_sent_at > BY__QUIET) {
            by__string_append(&out, BY__WAIT_COMMENT);
            (void)put(request, &out);
        }
    }
}

static void gather_text(by__gateway_request *request, size_t choice, const char *text,
                        size_t length, const json_t *logprobs)
{
    by__gateway_choice *c = &request->choices[choice];
    by_string_add(&c->text, text, length);
    if (logprobs != NULL) {
        c->logprobs = c->logprobs == NULL ? json_array() : c->logprobs;
        c->text.failed =
            json_array_extend(c->logprobs, (json_t *)(uintptr_t)logprobs) != 0 || c->text.failed;
    }
}

static void handle_text(by__gateway_part *part, size_t choice, const char *text, size_t length,
                        const json_t *logprobs)
{
    by__gateway_request *request = part->request;
    by__telemetry_metrics *m = &request->gateway->metrics;
    by__gateway_choice *c = &request->choices[choice];
    double now = by__now();
    if (text == NULL || c->reason[0] != '\0') {
        return;
    }
    if (c->replayed < c->sent) {
        /* After a worker was lost the same text arrives again, in the same pieces. */
        c->replayed++;
        return;
    }
    c->sent++;
    c->replayed = c->sent;
    part->generated++; /* an estimate until the end: a piece is one or more tokens */
    bool first = request->last_text == 0.0;
    double seconds = now - (first ? request->since : request->last_text);
    by__telemetry_histogram_add(first ? &m->first : &m->token, seconds);
    if (request->counts != NULL) {
        by__telemetry_histogram_add(first ? &request->counts->first : &request->counts->token,
                                    seconds);
    }
    request->last_text = now;
    if (!request->stream || request->form->keeps || request->gathers || request->recorded) {
        gather_text(request, choice, text, length, logprobs);
    }
    if (request->stream && begin(request)) {
        by_string *out = &request->gateway->frame; /* one buffer is reused for all frames */
        out->length = 0;
        request->last_sent_at = now;
        request->form->text(request, choice, text, length, logprobs, out);
        (void)by__http_connection_send_text(request->connection, out);
        if (out->failed || out->capacity > MAX_FRAME) {
            by_string_free(out);
        }
    }
}

static void handle_stop(by__gateway_part *part, const json_t *event)
{
    by__gateway_request *request = part->request;
    size_t choice = choice_of(part, by__protocol_get_integer(event, "i"));
    by__gateway_choice *c = &request->choices[choice];
    const char *reason = by__protocol_get_text(event, "reason");
    if (c->reason[0] != '\0') {
        return;
    }
    int64_t echo = by__protocol_get_integer(event, "echo");
    c->echo = echo > 0 ? (size_t)echo : 0;
    c->score = by__protocol_get_number(event, "score", 0.0);
    (void)snprintf(c->reason, sizeof c->reason, "%s",
                   reason != NULL && strcmp(reason, "length") == 0 ? "length" : "stop");
    if (request->stream && begin(request)) {
        by_string out = {0};
        request->form->stop(request, choice, c->reason, &out);
        (void)put(request, &out);
    }
}

static void handle_end(by__gateway_part *part, const json_t *event)
{
    by__gateway_request *request = part->request;
    by__telemetry_metrics *m = &request->gateway->metrics;
    const json_t *usage = json_object_get(event, "usage");
    part->prompt_tokens = by__protocol_get_integer(usage, "prompt_tokens");
    part->generated = by__protocol_get_integer(usage, "completion_tokens");
    m->prompt_tokens += (uint64_t)part->prompt_tokens;
    m->generated_tokens += (uint64_t)part->generated;
    part->done = true;
    part->listed = false;
    by__gateway_part_ended(request->gateway, request->connection, request->since,
                           json_object_get(event, "timing"));
    by__serve_id_remove(&request->gateway->parts, &part->entry);
    for (size_t i = 0; i < request->part_count; i++) {
        if (!request->parts[i].done) {
            return;
        }
    }
    finish(request);
}

static void handle_again(by__gateway_part *part)
{
    size_t first = (size_t)(part - part->request->parts) * part->request->n;
    part->request->gateway->metrics.again++;
    for (size_t i = 0; i < part->request->n; i++) {
        part->request->choices[first + i].replayed = 0;
    }
}

/* A worker has accepted the request. */
static void handle_begin(by__gateway_part *part, const json_t *event)
{
    by__gateway_request *request = part->request;
    if (request->queued && request->counts != NULL) {
        double queue = by__now() - request->since - by__protocol_get_number(event, "seconds", 0.0);
        by__telemetry_histogram_add(&request->counts->queue, queue > 0.0 ? queue : 0.0);
    }
    request->queued = false;
    if (set_version(part, event)) {
        part->prompt_tokens = by__protocol_get_integer(event, "prompt_tokens");
        (void)begin(request);
    }
}

static const failure unread = {500, "server_error", NULL, "a part of the answer could not be read",
                               0.0};

/* The whole answer. */
static void handle_result(by__gateway_part *part, const by__serve_event *event, const json_t *json)
{
    by__gateway_request *request = part->request;
    request->whole = json_incref(json_object_get(json, "result"));
    request->large = event->length >= BY__LARGE;
    if (request->whole == NULL) {
        fail_with(request, &unread);
    } else {
        handle_end(part, json);
    }
}

/* Handles events other than a piece of text; json NULL: it could not be parsed. */
static void handle_other(by__gateway_part *part, const by__serve_event *event, const json_t *json)
{
    by__gateway_request *request = part->request;
    const json_t *text = json_object_get(json, "text");
    const char *name = by__protocol_get_text(json, "e");
    if (json == NULL) {
        fail_with(request, &unread);
    } else if (name != NULL && strcmp(name, "error") == 0) { /* also a malformed event */
        fail(request, json);
    } else if (event->kind == BY__EVENT_TEXT) {
        handle_text(part, choice_of(part, by__protocol_get_integer(json, "i")),
                    json_string_value(text), json_string_length(text),
                    json_object_get(json, "logprobs"));
    } else if (event->kind == BY__EVENT_BEGIN) {
        handle_begin(part, json);
    } else if (event->kind == BY__EVENT_STOP) {
        handle_stop(part, json);
    } else if (event->kind == BY__EVENT_END) {
        handle_end(part, json);
    } else if (event->kind == BY__EVENT_RESULT && request->whole == NULL) {
        handle_result(part, event, json);
    } else if (event->kind == BY__EVENT_AGAIN) {
        handle_again(part);
    }
}

void by__gateway_request_read(by__gateway *g, const by__serve_event *event, const json_t *json)
{
    by__gateway_part *part = (by__gateway_part *)(void *)by__serve_id_find(&g->parts, event->id);
    if (part != NULL) {
        part->reading = false;
        handle_other(part, event, json);
    }
}

void by__gateway_request_event(by__gateway *g, const by__serve_event *event)
{
    by__gateway_part *part = (by__gateway_part *)(void *)by__serve_id_find(&g->parts, event->id);
    if (part == NULL) {
        return;
    }
    if (event->kind == BY__EVENT_PIECE) {
        handle_text(part, choice_of(part, (int64_t)event->sequence), event->data, event->length,
                    NULL);
        return;
    }
    if (event->kind == BY__EVENT_RESULT && by__gateway_large_read(g, event)) {
        part->reading = true;
        return;
    }
    json_t *json = by__protocol_event_json(event);
    handle_other(part, event, json);
    json_decref(json);
}
