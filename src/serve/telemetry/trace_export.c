#include "serve/telemetry/trace_export.h"

#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire/authorities.h"
#include "base/wire/http_client.h"
#include "serve/base/thread.h"
#include "serve/telemetry/metrics.h"

/* Most spans in one request to the collector. */
#define BATCH 512
/* Attempts per batch, and the seconds before the second one; each pause doubles. */
#define ATTEMPTS    3
#define FIRST_PAUSE 1.0
/* Seconds in which spans are gathered, so that a request to the collector has several. */
#define GATHERING 0.5
/* Timeouts in milliseconds: to connect to the collector, for its answer, and at the end of the
 * process. */
#define CONNECT_TIME 3000L
#define ANSWER_TIME  10000L
#define CLOSING_TIME 2000L
/* Seconds between two log entries about a collector that does not take spans. */
#define REMINDER 60.0

struct by__telemetry_trace_export {
    by__serve_thread thread;
    /* Under its lock: */
    char **spans; /* [capacity] a ring buffer: each span as OTLP's JSON */
    size_t capacity;
    size_t first;
    size_t count;
    uint64_t sent;
    uint64_t dropped;
    char failure[CURL_ERROR_SIZE + 32]; /* why the last batch was not taken; "": it was */
    /* Used by the caller of by__telemetry_trace_export_log: */
    char *endpoint; /* URL without user, password and query, which may hold secrets; curl_free */
    double logged;  /* by__now of the last traces_unavailable; 0: none since a batch was taken */
    /* Used by the thread only: */
    CURL *curl;
    char curl_error[CURL_ERROR_SIZE];
    struct curl_slist *headers;
    double closed;  /* by__now when `closing` was first seen; 0: not yet */
    by_string head; /* beginning of every request: the resource */
};

/* ---- the JSON of spans ---- */

static void add_attribute(by_string *out, const char *key, const json_t *value)
{
    by__string_append(out, "{\"key\":");
    by_string_json(out, key, strlen(key));
    by__string_append(out, ",\"value\":{");
    if (json_is_string(value)) {
        by__string_append(out, "\"stringValue\":");
        by_string_json(out, json_string_value(value), json_string_length(value));
    } else if (json_is_boolean(value)) {
        by_string_format(out, "\"boolValue\":%s", json_is_true(value) ? "true" : "false");
    } else if (json_is_integer(value)) {
        /* protobuf's JSON encodes 64-bit integers as strings. */
        by_string_format(out, "\"intValue\":\"%lld\"", (long long)json_integer_value(value));
    } else {
        by_string_format(out, "\"doubleValue\":%.9g", json_number_value(value));
    }
    by__string_append(out, "}}");
}

static void print_span(by_string *out, const by__telemetry_span *s)
{
    const char *key;
    json_t *value;
    const char *comma = "";
    by_string_format(out, "{\"traceId\":\"%s\",\"spanId\":\"%s\",", s->trace, s->id);
    if (s->parent[0] != '\0') {
        by_string_format(out, "\"parentSpanId\":\"%s\",", s->parent);
    }
    if (s->state != NULL) {
        by__string_append(out, "\"traceState\":");
        by_string_json(out, s->state, strlen(s->state));
        by__string_append(out, ",");
    }
    by__string_append(out, "\"name\":");
    by_string_json(out, s->name, strlen(s->name));
    by_string_format(out,
                     ",\"kind\":%d,\"startTimeUnixNano\":\"%.0f\",\"endTimeUnixNano\":\"%.0f\","
                     "\"status\":{%s},\"attributes\":[",
                     (int)s->kind, floor(s->begin * 1e9), floor(fmax(s->begin, s->end) * 1e9),
                     s->failed ? "\"code\":2" : "");
    json_object_foreach((json_t *)(uintptr_t)s->attributes, key, value)
    {
        by__string_append(out, comma);
        add_attribute(out, key, value);
        comma = ",";
    }
    by__string_append(out, "]}");
}

/* ---- the thread ---- */

static size_t ignore_answer(char *data, size_t size, size_t count, void *user)
{
    BY_UNUSED(data);
    BY_UNUSED(user);
    return size * count;
}

/* Sends a body. code: the answer's status, 0 without one. *again: it failed, but a retry may
 * succeed (by OTLP's list of such answers). */
static bool post(by__telemetry_trace_export *t, const by_string *body, long *code, bool *again)
{
    bool closing = t->closed > 0.0;
    (void)curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT_MS,
                           closing ? CLOSING_TIME : CONNECT_TIME);
    (void)curl_easy_setopt(t->curl, CURLOPT_TIMEOUT_MS, closing ? CLOSING_TIME : ANSWER_TIME);
    (void)curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->length);
    (void)curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, body->data);
    t->curl_error[0] = '\0';
    CURLcode result = curl_easy_perform(t->curl);
    *code = 0;
    if (result == CURLE_OK) {
        (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, code);
    } else if (t->curl_error[0] == '\0') {
        (void)snprintf(t->curl_error, sizeof t->curl_error, "%s", curl_easy_strerror(result));
    }
    *again = *code == 0 || *code == 429 || *code == 502 || *code == 503 || *code == 504;
    return *code >= 200 && *code < 300;
}

/* Pauses, but not beyond the end of the process. Called with the lock held. Returns false if the
 * thread must end. */
static bool rest(by__telemetry_trace_export *t, double seconds)
{
    double until = by__now() + seconds;
    double left = seconds;
    while (left > 0.0 && !t->thread.closing) {
        (void)uv_cond_timedwait(&t->thread.changed, &t->thread.lock, (uint64_t)(left * 1e9));
        left = until - by__now();
    }
    if (t->thread.closing && t->closed == 0.0) {
        t->closed = by__now();
    }
    return !t->thread.closing;
}

/* Aborts a stalled transfer when the process ends. */
static int on_progress(void *user, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    by__telemetry_trace_export *t = user;
    BY_UNUSED(down_all);
    BY_UNUSED(down);
    BY_UNUSED(up_all);
    BY_UNUSED(up);
    uv_mutex_lock(&t->thread.lock);
    if (t->thread.closing && t->closed == 0.0) {
        t->closed = by__now();
    }
    bool late = t->closed > 0.0 && by__now() - t->closed > (double)CLOSING_TIME * 1e-3;
    uv_mutex_unlock(&t->thread.lock);
    return late;
}

/* Moves a batch from the queue to a body. Called with the lock held. */
static size_t dequeue_batch(by__telemetry_trace_export *t, by_string *body)
{
    size_t count = t->count < BATCH ? t->count : BATCH;
    by__string_append(body, t->head.data);
    for (size_t i = 0; i < count; i++) {
        char *span = t->spans[t->first];
        by__string_append(body, i == 0 ? "" : ",");
        by__string_append(body, span);
        free(span);
        t->first = (t->first + 1) % t->capacity;
    }
    t->count -= count;
    by__string_append(body, "]}]}]}");
    return count;
}

/* Called with the lock held; releases it during the request to the collector. */
static void send_batch(by__telemetry_trace_export *t)
{
    by_string body = {0};
    bool sent = false;
    bool again = true;
    long code = 0;
    double pause = FIRST_PAUSE;
    size_t count = dequeue_batch(t, &body);
    for (int i = 0; i < ATTEMPTS && !sent && again && !body.failed; i++) {
        if (i > 0 && !rest(t, pause)) {
            break;
        }
        pause *= i > 0 ? 2.0 : 1.0;
        uv_mutex_unlock(&t->thread.lock);
        sent = post(t, &body, &code, &again);
        uv_mutex_lock(&t->thread.lock);
    }
    t->sent += sent ? count : 0;
    t->dropped += sent ? 0 : count;
    if (sent) {
        t->failure[0] = '\0';
    } else if (body.failed) {
        (void)snprintf(t->failure, sizeof t->failure, "no memory for a batch");
    } else if (code != 0) {
        (void)snprintf(t->failure, sizeof t->failure, "the collector answered %ld", code);
    } else {
        (void)snprintf(t->failure, sizeof t->failure, "%s", t->curl_error);
    }
    by_string_free(&body);
}

static void export_spans(void *user)
{
    by__telemetry_trace_export *t = user;
    uv_mutex_lock(&t->thread.lock);
    for (;;) {
        while (t->count == 0 && !t->thread.closing) {
            uv_cond_wait(&t->thread.changed, &t->thread.lock);
        }
        (void)rest(t, t->count < BATCH ? GATHERING : 0.0);
        bool late = t->closed > 0.0 && by__now() - t->closed > (double)CLOSING_TIME * 1e-3;
        if (t->count == 0 || late) {
            break;
        }
        send_batch(t);
        if (t->thread.closing && t->count == 0) {
            break;
        }
    }
    uv_mutex_unlock(&t->thread.lock);
}

/* ---- opening and closing ---- */

static void release(by__telemetry_trace_export *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->spans[(t->first + i) % t->capacity]);
    }
    curl_slist_free_all(t->headers);
    curl_easy_cleanup(t->curl);
    curl_free(t->endpoint);
    by_string_free(&t->head);
    free(t->spans);
    free(t);
}

/* The endpoint as it may be logged. */
static char *print_endpoint(const char *url)
{
    char *out = NULL;
    CURLU *u = curl_url();
    bool good = u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_set(u, CURLUPART_USER, NULL, 0) == CURLUE_OK &&
                curl_url_set(u, CURLUPART_PASSWORD, NULL, 0) == CURLUE_OK &&
                curl_url_set(u, CURLUPART_QUERY, NULL, 0) == CURLUE_OK &&
                curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_URL, &out, 0) == CURLUE_OK;
    curl_url_cleanup(u);
    return good ? out : NULL;
}

static bool set_up(by__telemetry_trace_export *t, const char *url, const char *service)
{
    const char *authorities = by__authorities();
    t->curl = curl_easy_init();
    t->endpoint = print_endpoint(url);
    t->headers = curl_slist_append(NULL, "Content-Type: application/json");
    by__string_append(&t->head, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":"
                                "\"service.name\",\"value\":{\"stringValue\":");
    by_string_json(&t->head, service, strlen(service));
    by__string_append(&t->head,
                      "}}]},\"scopeSpans\":[{\"scope\":{\"name\":\"banyan\"},\"spans\":[");
    return t->curl != NULL && t->endpoint != NULL && t->headers != NULL && !t->head.failed &&
           by__http_client_prepare(t->curl) &&
           curl_easy_setopt(t->curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, t->curl_error) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_POST, 1L) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, ignore_answer) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t) == CURLE_OK &&
           (authorities == NULL ||
            curl_easy_setopt(t->curl, CURLOPT_CAINFO, authorities) == CURLE_OK);
}

by_status by__telemetry_trace_export_open(by__telemetry_trace_export **out, const char *url,
                                          const char *service, size_t queue, by_error *error)
{
    by__telemetry_trace_export *t = NULL;
    *out = NULL;
    if (url[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "traces", error));
    t->capacity = queue;
    by_status status = by__alloc((void **)&t->spans, queue, sizeof *t->spans, "traces", error);
    if (status == BY_OK && !set_up(t, url, service)) {
        status = by_error_set(error, BY_EARG,
                              "tracing.endpoint: spans cannot be sent to \"%s\": it must be a URL "
                              "such as http://127.0.0.1:4318/v1/traces",
                              url);
    }
    if (status == BY_OK) {
        status = by__serve_thread_start(&t->thread, export_spans, t, "the thread of traces", error);
    }
    if (status != BY_OK) {
        release(t);
        return status;
    }
    *out = t;
    return BY_OK;
}

static void log_export(by__telemetry_trace_export *t, const char *failure, json_int_t dropped,
                       const by__telemetry_log *log)
{
    double now = by__now();
    if (failure[0] != '\0' && (t->logged == 0.0 || now - t->logged >= REMINDER)) {
        by__telemetry_log_event(log, "traces_unavailable", "{ss ss sI}", "endpoint", t->endpoint,
                                "reason", failure, "dropped", dropped);
        t->logged = now;
    } else if (failure[0] == '\0' && t->logged > 0.0) {
        by__telemetry_log_event(log, "traces_available", "{ss sI}", "endpoint", t->endpoint,
                                "dropped", dropped);
        t->logged = 0.0;
    }
}

void by__telemetry_trace_export_log(by__telemetry_trace_export *traces,
                                    const by__telemetry_log *log)
{
    by__telemetry_trace_export *t = traces;
    char failure[sizeof t->failure];
    if (t == NULL) {
        return;
    }
    uv_mutex_lock(&t->thread.lock);
    memcpy(failure, t->failure, sizeof failure);
    json_int_t dropped = (json_int_t)t->dropped;
    uv_mutex_unlock(&t->thread.lock);
    log_export(t, failure, dropped, log);
}

void by__telemetry_trace_export_close(by__telemetry_trace_export **traces,
                                      const by__telemetry_log *log)
{
    by__telemetry_trace_export *t = *traces;
    if (t == NULL) {
        return;
    }
    *traces = NULL;
    by__serve_thread_end(&t->thread);
    log_export(t, t->failure, (json_int_t)t->dropped, log);
    release(t);
}

void by__telemetry_trace_export_add(by__telemetry_trace_export *traces,
                                    const by__telemetry_span *span)
{
    by__telemetry_trace_export *t = traces;
    by_string text = {0};
    if (t == NULL) {
        return;
    }
    print_span(&text, span);
    uv_mutex_lock(&t->thread.lock);
    bool fits = !text.failed && t->count < t->capacity;
    if (fits) {
        t->spans[(t->first + t->count++) % t->capacity] = text.data;
        /* The thread sleeps only while the queue is empty; else it is gathering or sending. */
        if (t->count == 1) {
            uv_cond_signal(&t->thread.changed);
        }
    } else {
        t->dropped++;
    }
    uv_mutex_unlock(&t->thread.lock);
    if (!fits) {
        by_string_free(&text);
    }
}

void by__telemetry_trace_export_print(by__telemetry_trace_export *traces, by_string *out)
{
    by__telemetry_trace_export *t = traces;
    if (t == NULL) {
        return;
    }
    uv_mutex_lock(&t->thread.lock);
    double sent = (double)t->sent;
    double dropped = (double)t->dropped;
    double waiting = (double)t->count;
    uv_mutex_unlock(&t->thread.lock);
    by__telemetry_metrics_counter(out, "banyan_trace_spans_total", "Spans that the collector took.",
                                  "counter", NULL, sent);
    by__telemetry_metrics_counter(
        out, "banyan_trace_spans_dropped_total",
        "Spans that found the queue full, or that the collector did not take.", "counter", NULL,
        dropped);
    by__telemetry_metrics_counter(out, "banyan_trace_spans_waiting",
                                  "Spans that wait for the collector.", "gauge", NULL, waiting);
}
