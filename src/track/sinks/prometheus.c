/* Prometheus: serves the newest value of every number as text (exposition format 0.0.4) for GET
 * /metrics at the address in the options. The sink's own thread handles one request at a time, each
 * within two seconds. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/name_table.h"
#include "base/worker_thread.h"
#include "track/address.h"
#include "track/prometheus.h"
#include "track/sinks/sink.h"

enum { request_seconds = 2, max_request = 4096 };

typedef struct exported_gauge {
    char *tag; /* "train/loss" */
    double value;
    bool is_layer; /* the part after the "/" names a tensor */
} exported_gauge;

typedef struct exporter {
    int listener;
    int stop; /* eventfd */
    pthread_t thread;
    bool has_thread;
    char *run;            /* its name */
    pthread_mutex_t lock; /* guards the fields below */
    uint64_t step;
    exported_gauge *gauges;
    size_t count;
    size_t capacity;
    by__name_table names;
} exporter;

/* ---- the text ---- */

static void add_number(by_string *out, double value)
{
    char number[32];
    by__format_f64(number, value);
    by__string_append(out, isnan(value)   ? "NaN"
                           : isinf(value) ? value > 0 ? "+Inf" : "-Inf"
                                          : number);
}

/* Appends a name, which may contain letters, digits and underscores. */
static void add_name(by_string *out, const char *tag, size_t n)
{
    by__string_append(out, "banyan_");
    for (size_t i = 0; i < n; i++) {
        char c = tag[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        by_string_add(out, is_word ? &c : "_", 1);
    }
}

static void add_label(by_string *out, const char *name, const char *value)
{
    by_string_format(out, "%s=\"", name);
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\n') {
            by__string_append(out, "\\n");
        } else {
            by__string_append(out, *c == '"' || *c == '\\' ? "\\" : "");
            by_string_add(out, c, 1);
        }
    }
    by__string_append(out, "\"");
}

static void add_gauge(by_string *out, const exporter *e, const exported_gauge *g,
                      const exported_gauge *before)
{
    size_t event = strcspn(g->tag, "/");
    size_t n = g->is_layer ? event : strlen(g->tag);
    if (before == NULL || !g->is_layer || strncmp(before->tag, g->tag, event + 1) != 0) {
        by__string_append(out, "# TYPE ");
        add_name(out, g->tag, n);
        by__string_append(out, " gauge\n");
    }
    add_name(out, g->tag, n);
    by__string_append(out, "{");
    add_label(out, "run", e->run);
    if (g->is_layer) {
        by__string_append(out, ",");
        add_label(out, "tensor", g->tag + event + 1);
    }
    by__string_append(out, "} ");
    add_number(out, g->value);
    by__string_append(out, "\n");
}

static void add_page(by_string *out, exporter *e)
{
    (void)pthread_mutex_lock(&e->lock);
    by__string_append(out, "# TYPE banyan_step gauge\nbanyan_step{");
    add_label(out, "run", e->run);
    by_string_format(out, "} %llu\n", (unsigned long long)e->step);
    for (size_t i = 0; i < e->count; i++) {
        add_gauge(out, e, &e->gauges[i], i == 0 ? NULL : &e->gauges[i - 1]);
    }
    (void)pthread_mutex_unlock(&e->lock);
}

/* ---- requests ---- */

by__track_scrape by__track_scrape_parse(const char *text, size_t length)
{
    static const char get[] = "GET ";
    static const char path[] = "/metrics";
    const char *end = memmem(text, length, "\r\n", 2);
    if (memmem(text, length, "\r\n\r\n", 4) == NULL) {
        return length < max_request ? BY__SCRAPE_PARTIAL : BY__SCRAPE_BAD;
    }
    size_t n = (size_t)(end - text);
    const char *version = memmem(text, n, " HTTP/1.", 8);
    if (version == NULL || n < sizeof get || memcmp(text, get, 4) != 0) {
        return BY__SCRAPE_BAD;
    }
    const char *target = text + 4;
    size_t length_of_target = version < target ? 0 : (size_t)(version - target);
    bool is_known = length_of_target >= 8 && memcmp(target, path, 8) == 0 &&
                    (length_of_target == 8 || target[8] == '?');
    return is_known ? BY__SCRAPE_METRICS : BY__SCRAPE_UNKNOWN;
}

/* Returns true if the socket becomes ready before `until`; false also when the sink closes. */
static bool ready(const exporter *e, int fd, short what, double until)
{
    struct pollfd fds[2] = {{.fd = fd, .events = what}, {.fd = e->stop, .events = POLLIN}};
    double left = until - by__now();
    return left > 0.0 && poll(fds, 2, 1 + (int)(left * 1000.0)) > 0 && fds[1].revents == 0;
}

static void reply(exporter *e, int fd, by__track_scrape kind, double until)
{
    static const char *const statuses[] = {[BY__SCRAPE_METRICS] = "200 OK",
                                           [BY__SCRAPE_UNKNOWN] = "404 Not Found",
                                           [BY__SCRAPE_PARTIAL] = "400 Bad Request",
                                           [BY__SCRAPE_BAD] = "400 Bad Request"};
    by_string page = {0};
    by_string out = {0};
    if (kind == BY__SCRAPE_METRICS) {
        add_page(&page, e);
    } else {
        by__string_append(&page, "banyan serves GET /metrics\n");
    }
    by_string_format(&out,
                     "HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                     statuses[kind], page.length);
    by__string_append(&out, page.failed ? "" : page.data);
    for (size_t at = 0; !out.failed && at < out.length && ready(e, fd, POLLOUT, until);) {
        ssize_t n = send(fd, out.data + at, out.length - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            break;
        }
        at += n < 0 ? 0 : (size_t)n;
    }
    by_string_free(&page);
    by_string_free(&out);
}

static void serve(exporter *e, int fd)
{
    char text[max_request];
    size_t length = 0;
    double until = by__now() + request_seconds;
    by__track_scrape kind = BY__SCRAPE_PARTIAL;
    while (kind == BY__SCRAPE_PARTIAL && ready(e, fd, POLLIN, until)) {
        ssize_t n = recv(fd, text + length, sizeof text - length, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            return;
        }
        length += n < 0 ? 0 : (size_t)n;
        kind = by__track_scrape_parse(text, length);
    }
    reply(e, fd, kind, until);
}

static void *server_main(void *user)
{
    exporter *e = user;
    for (;;) {
        struct pollfd fds[2] = {{.fd = e->listener, .events = POLLIN},
                                {.fd = e->stop, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            return NULL;
        }
        if (fds[1].revents != 0) {
            return NULL;
        }
        int fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            serve(e, fd);
            (void)close(fd);
        } else if (errno == EMFILE || errno == ENFILE) {
            (void)poll(&fds[1], 1, 100); /* until the process has closed other files */
        }
    }
}

/* ---- the sink ---- */

static by_status start(exporter *e, const char *where, by_error *error)
{
    by__track_address address;
    int on = 1;
    BY_TRY(by__track_address_parse(&address, where, error));
    e->stop = eventfd(0, EFD_CLOEXEC);
    e->listener = socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (e->stop < 0 || e->listener < 0 ||
        setsockopt(e->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(e->listener, (const struct sockaddr *)&address.bytes, address.length) != 0 ||
        listen(e->listener, 8) != 0) {
        return by_error_set(error, BY_EIO, "track.prometheus: cannot listen on %s: %s", where,
                            strerror(errno));
    }
    BY_TRY(by__thread_create(&e->thread, server_main, e, "the thread of track.prometheus", error));
    e->has_thread = true;
    return BY_OK;
}

static by_status open_sink(void **sink, const by__track_tracker_options *options, by_error *error)
{
    exporter *e;
    const char *slash = strrchr(options->run, '/');
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "prometheus", error));
    *sink = e;
    e->listener = -1;
    e->stop = -1;
    (void)pthread_mutex_init(&e->lock, NULL);
    e->run = by__strdup(slash == NULL ? options->run : slash + 1);
    if (e->run == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: prometheus");
    }
    return start(e, options->prometheus, error);
}

/* Finds or adds the gauge of a tag; the caller holds the lock. */
static by_status find(exported_gauge **out, exporter *e, const char *tag, bool is_layer,
                      by_error *error)
{
    int32_t found = by__name_table_find(&e->names, tag);
    if (found < 0) {
        BY_TRY(
            by__reserve((void **)&e->gauges, &e->capacity, e->count + 1, sizeof *e->gauges, error));
        char *copy = by__strdup(tag);
        if (copy == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: prometheus");
        }
        e->gauges[e->count] = (exported_gauge){.tag = copy, .is_layer = is_layer};
        found = (int32_t)e->count++;
        BY_TRY(by__name_table_add(&e->names, copy, found, error));
    }
    *out = &e->gauges[found];
    return BY_OK;
}

static by_status put(void *sink, const by__track_run_event *event, by_error *error)
{
    exporter *e = sink;
    by_status status = BY_OK;
    by_string tag = {0};
    (void)pthread_mutex_lock(&e->lock);
    e->step = event->step;
    for (size_t i = 0; i < event->count && status == BY_OK; i++) {
        exported_gauge *g = NULL;
        if (event->values[i].text != NULL) {
            continue;
        }
        tag.length = 0;
        by__track_event_tag(&tag, event, event->values[i].key);
        status = tag.failed ? by_error_set(error, BY_EMEMORY, "out of memory: prometheus")
                            : find(&g, e, tag.data, event->kind == BY__EVENT_LAYERS, error);
        if (status == BY_OK) {
            g->value = event->values[i].number;
        }
    }
    (void)pthread_mutex_unlock(&e->lock);
    by_string_free(&tag);
    return status;
}

static void close_sink(void *sink)
{
    exporter *e = sink;
    if (e == NULL) {
        return;
    }
    if (e->has_thread) {
        const uint64_t one = 1;
        ssize_t written = write(e->stop, &one, sizeof one);
        BY_UNUSED(written);
        (void)pthread_join(e->thread, NULL);
    }
    const int fds[] = {e->listener, e->stop};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    for (size_t i = 0; i < e->count; i++) {
        free(e->gauges[i].tag);
    }
    by__name_table_free(&e->names);
    (void)pthread_mutex_destroy(&e->lock);
    free(e->gauges);
    free(e->run);
    free(e);
}

const by__sink_row by__sink_prometheus = {
    .name = "prometheus",
    .kinds = 1u << BY__EVENT_STEP | 1u << BY__EVENT_EVALUATION | 1u << BY__EVENT_LAYERS |
             1u << BY__EVENT_SYSTEM | 1u << BY__EVENT_ALERT,
    .then = "training continues",
    .open = open_sink,
    .put = put,
    .close = close_sink};
