/* The load generator of `banyan bench serve`: many clients on one loop. */
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/http/event_stream.h"
#include "serve/http/http_answer.h"
#include "serve/protocol/messages.h"

#define READ       ((size_t)64 << 10)
#define BODY_BYTES ((size_t)300) /* bytes of a body that are kept for messages */
#define TICK       2             /* milliseconds between checks for requests that are due */

typedef struct load_generator load_generator;

typedef struct client {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_connect_t connect;
    uv_write_t write;
    load_generator *all;
    by__http_answer answer;
    by_string request;
    by_string events;      /* input of a stream not yet split into lines; or the whole body */
    by_string error_event; /* an error event in a stream */
    size_t sample;         /* SIZE_MAX: none */
    double due;            /* by__now at which the request was scheduled */
    double last_text;      /* by__now; 0: none yet */
    bool open;
    bool connected;
    /* why an answer of status 200 is a failure; NULL: it is not known to be one */
    const char *fault;
    bool reused;       /* the connection has carried an answer before */
    bool last_byte_at; /* a byte of the answer has arrived */
    bool again;        /* the request is repeated if the connection is closed */
} client;

struct load_generator {
    by_load_options options;
    by_load_report *report;
    uv_loop_t loop;
    uv_timer_t timer;
    struct sockaddr_storage address;
    const char *path; /* of a socket in the file system, NULL for none */
    char host[160];   /* the header's value */
    client *clients;
    double *due; /* [requests] seconds from the start, in open-loop mode */
    size_t sent;
    size_t ended;
    size_t open_handles;
    size_t gap_capacity;
    size_t failure_capacity;
    uint64_t random;
    double began;
    by_status status;
    by_error *error;
    bool stopping;
    char buffer[READ];
};

static void send_due(load_generator *l);

static double uniform(load_generator *l)
{
    l->random = l->random * 6364136223846793005u + 1442695040888963407u;
    return ((double)(l->random >> 11) + 0.5) * 0x1p-53;
}

/* ---- one answer ---- */

static void add_gap(load_generator *l, double seconds)
{
    by_error ignored = {0};
    by_load_report *r = l->report;
    if (by__reserve((void **)&r->gaps, &l->gap_capacity, r->gap_count + 1, sizeof(double),
                    &ignored) == BY_OK) {
        r->gaps[r->gap_count++] = seconds;
    }
}

/* Extracts the error from a body: OpenAI's error message, else the beginning of the body. NULL when
 * memory is exhausted. */
static char *message_of(const by_string *body)
{
    json_t *object = by_json_load(body->data, body->length, 0, NULL);
    const char *message = by__protocol_get_text(json_object_get(object, "error"), "message");
    size_t length = message != NULL ? strlen(message) : body->length;
    by_string line = {0};
    char *out = NULL;
    by__string_append(&line, "");
    by__string_add_valid(&line, message != NULL ? message : body->data,
                         length < BODY_BYTES ? length : BODY_BYTES);
    for (size_t i = 0; i < line.length; i++) {
        line.data[i] = (unsigned char)line.data[i] < ' ' ? ' ' : line.data[i];
    }
    json_decref(object);
    (void)by__string_release(&line, &out, NULL);
    return out;
}

/* Counts a failure by its reason. When memory is exhausted only its sample records it. */
static void add_failure(load_generator *l, int status, const char *reason, const by_string *body)
{
    by_load_report *r = l->report;
    by_error ignored = {0};
    for (size_t i = 0; i < r->failure_count; i++) {
        by_load_failure *f = &r->failures[i];
        if (f->status == status && strcmp(f->reason, reason) == 0) {
            f->count++;
            return;
        }
    }
    if (by__reserve((void **)&r->failures, &l->failure_capacity, r->failure_count + 1,
                    sizeof *r->failures, &ignored) == BY_OK) {
        by_load_failure *f = &r->failures[r->failure_count++];
        *f = (by_load_failure){.status = status, .count = 1, .message = message_of(body)};
        (void)snprintf(f->reason, sizeof f->reason, "%s", reason);
    }
}

/* Handles one event of a stream. The text of a chunk only matters by its presence; usage gives the
 * number of tokens of an answer. */
static void read_event(void *user, const char *data, size_t length)
{
    client *c = user;
    load_generator *l = c->all;
    by_load_sample *s = &l->report->samples[c->sample];
    double now = by__now();
    json_t *object = by_json_load(data, length, 0, NULL);
    const json_t *usage = json_object_get(object, "usage");
    const json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
    if (json_object_get(object, "error") != NULL) {
        c->fault = "an error inside a stream";
        c->error_event.length = 0;
        by_string_add(&c->error_event, data, length);
    } else if (json_is_object(usage)) {
        s->tokens = (size_t)by__protocol_get_integer(usage, "completion_tokens");
    } else if (choice != NULL && json_string_length(json_object_get(choice, "text")) > 0) {
        if (c->last_text > 0.0) {
            add_gap(l, now - c->last_text);
        } else {
            s->first = now - c->due;
        }
        c->last_text = now;
    }
    json_decref(object);
}

static void read_body(void *user, const char *data, size_t length)
{
    client *c = user;
    if (c->all->options.whole || c->answer.status != 200) {
        by_string_add(&c->events, data, length);
    } else {
        by__http_event_stream_feed(&c->events, data, length, read_event, c);
    }
}

/* Ends a request. broken: why there is no complete answer, or NULL. */
static void finish(client *c, const char *broken)
{
    load_generator *l = c->all;
    if (c->sample == SIZE_MAX) {
        return;
    }
    by_load_sample *s = &l->report->samples[c->sample];
    const by_string *error_event = &c->error_event;
    const char *fault = broken != NULL ? broken : c->fault;
    char refused[16];
    double now = by__now();
    s->end = now - c->due;
    s->status = broken != NULL ? 0 : c->answer.status;
    if (fault == NULL && s->status != 200) {
        (void)snprintf(refused, sizeof refused, "HTTP %d", s->status);
        fault = refused;
        error_event = &c->events;
    } else if (fault == NULL && l->options.whole) {
        json_t *object = by_json_load(c->events.data, c->events.length, 0, NULL);
        s->tokens =
            (size_t)by__protocol_get_integer(json_object_get(object, "usage"), "completion_tokens");
        json_decref(object);
    }
    /* An empty answer is a failure: its times would be the best of all. Tokens without text are
     * counted when the answer has ended. */
    if (fault == NULL && s->tokens == 0) {
        fault = "an answer without a token";
    }
    s->failed = fault != NULL;
    if (s->failed) {
        add_failure(l, s->status, fault, error_event);
    }
    s->first = c->last_text > 0.0 ? s->first : s->end;
    l->report->seconds = now - l->began;
    c->events.length = c->error_event.length = 0;
    c->sample = SIZE_MAX;
    l->ended++;
}

/* ---- connections ---- */

static void open_client(client *c);

static void on_closed(uv_handle_t *handle)
{
    client *c = handle->data;
    bool again = c->again && c->sample != SIZE_MAX && !c->all->stopping;
    c->open = c->connected = c->again = false;
    c->all->open_handles--;
    if (again) {
        c->reused = false;
        open_client(c);
    }
}

static void hang_up(client *c, const char *why)
{
    finish(c, why);
    if (!uv_is_closing(&c->uv.handle)) {
        uv_close(&c->uv.handle, on_closed);
    }
}

/* The connection has ended; code: of libuv. A server may close an idle connection at any time, also
 * before the next request reaches it (RFC 9112, section 9.3.1): such a request is repeated once. */
static void connection_ended(client *c, int code)
{
    if (c->sample != SIZE_MAX && c->reused && !c->last_byte_at && !uv_is_closing(&c->uv.handle)) {
        c->again = true;
        uv_close(&c->uv.handle, on_closed);
    } else if (!c->again) {
        hang_up(c, code == UV_EOF ? "closed before the end of the answer" : uv_strerror(code));
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    client *c = handle->data;
    BY_UNUSED(suggested);
    *buffer = uv_buf_init(c->all->buffer, READ);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    client *c = stream->data;
    c->last_byte_at = c->last_byte_at || n > 0;
    if (n < 0) {
        connection_ended(c, (int)n);
    } else if (n > 0 && (c->sample == SIZE_MAX || !by__http_answer_feed(&c->answer, buffer->base,
                                                                        (size_t)n, read_body, c))) {
        hang_up(c, "the answer is not HTTP/1.1");
    } else if (n > 0 && c->answer.done) {
        finish(c, NULL);
        send_due(c->all);
    }
}

static void on_written(uv_write_t *request, int status)
{
    client *c = request->data;
    if (status < 0 && c->open) {
        connection_ended(c, status);
    }
}

static void send_request(client *c)
{
    uv_buf_t buffer = uv_buf_init(c->request.data, (unsigned)c->request.length);
    c->write.data = c;
    int code = uv_write(&c->write, &c->uv.stream, &buffer, 1, on_written);
    if (code < 0) {
        connection_ended(c, code);
    }
}

static void on_connect(uv_connect_t *request, int status)
{
    client *c = request->data;
    if (!c->open || uv_is_closing(&c->uv.handle)) {
        return;
    }
    status = status == 0 ? uv_read_start(&c->uv.stream, on_alloc, on_read) : status;
    c->connected = status == 0;
    if (!c->connected) {
        load_generator *l = c->all;
        if (l->ended == 0 && l->status == BY_OK) {
            l->status = by__serve_uv_error(l->error, "reach", l->options.url, status);
            l->stopping = true;
        }
        hang_up(c, uv_strerror(status));
    } else {
        send_request(c);
    }
}

static void open_client(client *c)
{
    load_generator *l = c->all;
    int code = l->path != NULL ? uv_pipe_init(&l->loop, &c->uv.pipe, 0)
                               : uv_tcp_init(&l->loop, &c->uv.tcp);
    if (code < 0) {
        finish(c, uv_strerror(code));
        return;
    }
    c->uv.handle.data = c->connect.data = c;
    c->open = true;
    l->open_handles++;
    if (l->path != NULL) {
        uv_pipe_connect(&c->connect, &c->uv.pipe, l->path, on_connect);
        return;
    }
    code = uv_tcp_connect(&c->connect, &c->uv.tcp, (struct sockaddr *)&l->address, on_connect);
    if (code < 0) {
        hang_up(c, uv_strerror(code));
    }
}

/* ---- requests ---- */

static void write_request(client *c)
{
    load_generator *l = c->all;
    const by_load_options *o = &l->options;
    by_string body = {0};
    by__string_append(&body, "{\"model\":");
    by_string_json(&body, o->model, strlen(o->model));
    by_string_format(&body,
                     ",\"max_tokens\":%zu,\"ignore_eos\":true,\"temperature\":0,\"stream\":%s%s,"
                     "\"prompt\":[",
                     o->tokens, o->whole ? "false" : "true",
                     o->whole ? "" : ",\"stream_options\":{\"include_usage\":true}");
    for (size_t i = 0; i < o->prompt_tokens; i++) {
        by_string_format(&body, "%s%lld", i > 0 ? "," : "",
                         (long long)(uniform(l) * (double)o->vocab));
    }
    by__string_append(&body, "]}");
    c->request.length = 0;
    by_string_format(&c->request,
                     "POST /v1/completions HTTP/1.1\r\nHost: %s\r\n"
                     "Content-Type: application/json\r\n",
                     l->host);
    if (o->key != NULL) {
        by_string_format(&c->request, "Authorization: Bearer %s\r\n", o->key);
    }
    by_string_format(&c->request, "Content-Length: %zu\r\n\r\n", body.length);
    by_string_add(&c->request, body.data, body.length);
    by_string_free(&body);
}

static void begin(client *c, double due)
{
    load_generator *l = c->all;
    c->sample = l->sent++;
    c->due = due;
    c->last_text = 0.0;
    c->fault = NULL;
    c->last_byte_at = false;
    c->reused = c->connected;
    c->answer = (by__http_answer){0};
    c->events.length = c->error_event.length = 0;
    write_request(c);
    if (c->request.failed) {
        finish(c, "out of memory");
    } else if (c->connected) {
        send_request(c);
    } else {
        open_client(c);
    }
}

static client *free_client(load_generator *l)
{
    for (size_t i = 0; i < l->options.concurrency; i++) {
        client *c = &l->clients[i];
        if (c->sample == SIZE_MAX && (!c->open || c->connected) &&
            !(c->open && uv_is_closing(&c->uv.handle))) {
            return c;
        }
    }
    return NULL;
}

/* Sends requests that are due, and ends those that took too long. */
static void send_due(load_generator *l)
{
    const by_load_options *o = &l->options;
    while (!l->stopping && l->sent < o->requests) {
        double now = by__now();
        double due = o->rate > 0.0 ? l->began + l->due[l->sent] : now;
        client *c = due > now ? NULL : free_client(l);
        if (c == NULL) {
            return;
        }
        begin(c, due);
    }
}

static void on_timer(uv_timer_t *timer)
{
    load_generator *l = timer->data;
    double now = by__now();
    for (size_t i = 0; i < l->options.concurrency; i++) {
        client *c = &l->clients[i];
        if (c->sample != SIZE_MAX && now - c->due > l->options.seconds) {
            hang_up(c, "no whole answer in time");
        }
    }
    if (l->options.stop != NULL && l->options.stop(l->options.user) && l->status == BY_OK) {
        l->status = by_error_set(l->error, BY_ESTOPPED, "interrupted: %zu of %zu requests are done",
                                 l->ended, l->options.requests);
        l->stopping = true;
    }
    send_due(l);
    if (l->stopping || l->ended == l->options.requests) {
        uv_stop(&l->loop);
    }
}

/* ---- all of it ---- */

static by_status find_server(load_generator *l, by_error *error)
{
    const char *url = l->options.url;
    char host[128];
    if (strncmp(url, "unix:", 5) == 0) {
        l->path = url + 5;
        (void)snprintf(l->host, sizeof l->host, "localhost");
        return BY_OK;
    }
    const char *start = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    size_t length = strcspn(start, "/");
    const char *colon = memrchr(start, ':', length);
    size_t n = colon == NULL ? 0 : (size_t)(colon - start);
    if (n == 0 || n >= sizeof host) {
        return by_error_set(error, BY_EARG, "%s is not http://ADDRESS:PORT or unix:PATH", url);
    }
    bool six = start[0] == '[';
    memcpy(host, start + six, n - 2 * six);
    host[n - 2 * six] = '\0';
    int port = atoi(colon + 1);
    const char *address = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (port < 1 || port > 65535 ||
        (uv_ip4_addr(address, port, (struct sockaddr_in *)&l->address) < 0 &&
         uv_ip6_addr(address, port, (struct sockaddr_in6 *)&l->address) < 0)) {
        return by_error_set(error, BY_EARG, "%s is not http://ADDRESS:PORT or unix:PATH", url);
    }
    (void)snprintf(l->host, sizeof l->host, six ? "[%s]:%d" : "%s:%d", host, port);
    return BY_OK;
}

static by_status prepare(load_generator *l, by_error *error)
{
    const by_load_options *o = &l->options;
    double at = 0.0;
    BY_TRY(find_server(l, error));
    BY_TRY(by__alloc((void **)&l->clients, o->concurrency, sizeof *l->clients, "clients", error));
    BY_TRY(by__alloc((void **)&l->due, o->requests, sizeof *l->due, "requests", error));
    BY_TRY(by__alloc((void **)&l->report->samples, o->requests, sizeof *l->report->samples,
                     "requests", error));
    l->report->count = o->requests;
    for (size_t i = 0; i < o->requests; i++) {
        at += o->rate > 0.0 ? -log(uniform(l)) / o->rate : 0.0;
        l->due[i] = at;
    }
    for (size_t i = 0; i < o->concurrency; i++) {
        l->clients[i].all = l;
        l->clients[i].sample = SIZE_MAX;
    }
    return BY_OK;
}

static void drive(load_generator *l)
{
    (void)uv_timer_init(&l->loop, &l->timer);
    l->timer.data = l;
    l->began = by__now();
    (void)uv_timer_start(&l->timer, on_timer, 0, TICK);
    (void)uv_run(&l->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&l->timer, NULL);
    for (size_t i = 0; i < l->options.concurrency; i++) {
        client *c = &l->clients[i];
        if (c->open && !uv_is_closing(&c->uv.handle)) {
            uv_close(&c->uv.handle, on_closed);
        }
    }
    (void)uv_run(&l->loop, UV_RUN_DEFAULT);
}

by_status by_load_run(by_load_report *out, const by_load_options *options, by_error *error)
{
    load_generator *l = NULL;
    by_error own = {0};
    *out = (by_load_report){0};
    if (options->requests < 1 || options->concurrency < 1 || options->vocab < 1 ||
        options->prompt_tokens < 1 || options->tokens < 1 || !(options->rate >= 0.0) ||
        isinf(options->rate)) {
        return by_error_set(
            error, BY_EARG,
            "requests, concurrency, vocabulary and tokens must be at least 1, and the "
            "rate must be finite and not negative");
    }
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "a load", error));
    l->options = *options;
    l->options.seconds = options->seconds > 0.0 ? options->seconds : 600.0;
    l->report = out;
    l->error = error == NULL ? &own : error;
    l->random = options->seed * 2 + 1;
    by_status status = prepare(l, l->error);
    int code = status == BY_OK ? uv_loop_init(&l->loop) : 0;
    if (code < 0) {
        status = by__serve_uv_error(l->error, "make", "an event loop", code);
    } else if (status == BY_OK) {
        drive(l);
        (void)uv_loop_close(&l->loop);
        status = l->status;
    }
    for (size_t i = 0; l->clients != NULL && i < l->options.concurrency; i++) {
        by_string_free(&l->clients[i].request);
        by_string_free(&l->clients[i].events);
        by_string_free(&l->clients[i].error_event);
    }
    free(l->clients);
    free(l->due);
    free(l);
    if (status != BY_OK) {
        by_load_report_free(out);
    }
    return status;
}

void by_load_report_free(by_load_report *report)
{
    free(report->samples);
    free(report->gaps);
    for (size_t i = 0; i < report->failure_count; i++) {
        free(report->failures[i].message);
    }
    free(report->failures);
    *report = (by_load_report){0};
}
