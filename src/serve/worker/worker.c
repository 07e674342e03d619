/* A worker: a model's engine that takes requests from the broker. The loop reads messages and
 * converts tokens to text and events; one thread encodes prompts (worker_prepare.c), and the
 * engine's thread runs steps (worker_engine.c). */
#include "serve/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/base/sandbox.h"
#include "serve/link/core/redis_address.h"
#include "serve/protocol/messages.h"

/* Default number of seconds that an example waits for others of its batch. */
#define BATCH_DELAY 0.002
/* Default number of seconds with work and without a step after which the worker counts as
 * hanging. */
#define HANG_SECONDS 60.0

/* ---- the broker ---- */

static by__worker_job *find_job(const by__worker *w, const char *id)
{
    for (size_t i = 0; i < w->job_count; i++) {
        if (!w->jobs[i]->cancelled && strcmp(w->jobs[i]->id, id) == 0) {
            return w->jobs[i];
        }
    }
    return NULL;
}

static void receive_job(by__worker *w, json_t *message)
{
    const char *id = by__protocol_get_text(message, "id");
    by__worker_job *job = NULL;
    by_error error = {0};
    by_status status = by__worker_job_new(&job, message, &error);
    if (status == BY_OK) {
        status = by__worker_preparer_submit(w->preparer, job, &error);
    }
    if (status != BY_OK) {
        by__worker_job_free(job);
    }
    if (status != BY_OK && id != NULL) {
        by__worker_refuse(w, id, by__protocol_get_integer(message, "attempt"), NULL, NULL, &error);
    }
}

static void on_message(void *user, json_t *message)
{
    by__worker *w = user;
    const char *kind = by__protocol_get_text(message, "t");
    if (kind != NULL && strcmp(kind, "work") == 0) {
        receive_job(w, message);
    } else if (kind != NULL && strcmp(kind, "cancel") == 0) {
        const char *id = by__protocol_get_text(message, "id");
        by__worker_job *job = id == NULL ? NULL : find_job(w, id);
        if (job != NULL) {
            by__worker_cancel(w, job);
        } else if (id != NULL) {
            by__worker_preparer_cancel(w->preparer, id);
            by__worker_batcher_cancel(w->batcher, id);
            by__worker_finish_leaving(w);
        }
    }
}

static void send_beat(by__worker *w)
{
    by_engine_statistics s;
    bool busy;
    size_t preparing;
    uint64_t prepared;
    by__worker_preparer_count(w->preparer, &preparing, &prepared);
    const by__worker_batch_statistics batches = by__worker_batcher_statistics(w->batcher);
    if (by__worker_engine_state(w->thread, &s, &busy, &w->failure) != BY_OK) {
        uv_stop(&w->loop);
        return;
    }
    json_t *sizes = json_array();
    for (size_t i = 0; i < BY_STEP_SIZES; i++) {
        (void)json_array_append_new(sizes, json_integer((json_int_t)s.step_sizes[i]));
    }
    json_t *engine = json_pack(
        "{sI sI sI sI sI sI sI sI sI sI sI so}", "running", (json_int_t)s.running, "waiting",
        (json_int_t)s.waiting, "pages", (json_int_t)s.pages, "pages_used", (json_int_t)s.pages_used,
        "pages_cached", (json_int_t)s.pages_cached, "generated", (json_int_t)s.generated, "found",
        (json_int_t)s.found, "preemptions", (json_int_t)s.preemptions, "rows", (json_int_t)s.rows,
        "looked_up", (json_int_t)s.looked_up, "sequences", (json_int_t)s.sequences, "step_sizes",
        sizes);
    (void)json_object_set_new(engine, "batches", json_integer((json_int_t)batches.batches));
    (void)json_object_set_new(engine, "examples", json_integer((json_int_t)batches.examples));
    json_t *drift = by__telemetry_served_drift_state(w->model.drift);
    if (drift != NULL) {
        (void)json_object_set_new(engine, "drift", drift);
    }
    int64_t steps = (int64_t)(s.steps + prepared + batches.batches);
    busy = busy || preparing > 0 || batches.jobs > 0;
    if (steps != w->steps || !busy) {
        by__worker_hang_watch_moved(w->watch);
    }
    w->steps = steps;
    by__worker_post(w, json_pack("{ss sI sb so}", "t", "beat", "steps", (json_int_t)steps, "busy",
                                 (int)busy, "engine", engine));
}

static void on_beat(uv_timer_t *timer)
{
    by__worker *w = timer->data;
    char call[BY__SANDBOX_CALL];
    if (by__serve_sandbox_violation(call)) {
        by__telemetry_log_event(&w->log, "sandbox_violation", "{ss}", "call", call);
    }
    by__worker_finish_leaving(w); /* the last answer may be sent by now */
    send_beat(w);
}

/* Sends the first messages on a link. */
static void send_hello(void *user)
{
    by__worker *w = user;
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    by__worker_post(
        w, json_pack("{ss ss ss sI ss ss ss sI sI so}", "t", "hello", "role", "worker", "name",
                     w->id, "pid", (json_int_t)getpid(), "host", host, "model", w->name, "version",
                     w->version, "slots", (json_int_t)w->model.slots, "sessions",
                     (json_int_t)w->model.sessions, "info", by__worker_served_info(&w->model)));
    if (w->leaving) {
        by__worker_post(w, json_pack("{ss}", "t", "leaving"));
    }
    send_beat(w);
}

/* Updates the ready file, which was opened before the sandbox was entered. */
static void write_ready(const by__worker *w, bool ready)
{
    if (w->ready_file >= 0 &&
        (ready ? pwrite(w->ready_file, "1", 1, 0) != 1 : ftruncate(w->ready_file, 0) != 0)) {
        by__telemetry_log_event(&w->log, "ready_file_not_written", "{ss}", "reason",
                                strerror(errno));
    }
}

static by_status open_ready_file(by__worker *w, by_error *error)
{
    const char *path = w->options.ready_file;
    if (path != NULL) {
        w->ready_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    }
    return path != NULL && w->ready_file < 0 ? by__io_error(error, "write", path) : BY_OK;
}

static void on_ready(void *user)
{
    by__worker *w = user;
    by__telemetry_log_event(&w->log, "worker_ready", "{ss ss sI}", "model", w->name, "version",
                            w->version, "slots", (json_int_t)w->model.slots);
    by__worker_served_log_memory(&w->model, &w->log);
    write_ready(w, true);
}

static void on_lost(void *user, const char *why)
{
    by__worker *w = user;
    BY_UNUSED(why);
    write_ready(w, false);
    /* Clients of these requests have them submitted again. */
    by__worker_preparer_cancel(w->preparer, NULL);
    by__worker_batcher_cancel(w->batcher, NULL);
    for (size_t i = 0; i < w->job_count; i++) {
        by__worker_cancel(w, w->jobs[i]);
    }
    if (w->leaving) {
        uv_stop(&w->loop);
    }
}

static void on_refused(void *user, const char *why)
{
    by__worker *w = user;
    (void)by_error_set(&w->failure, BY_ESTATE, "%s", why);
    uv_stop(&w->loop);
}

static void on_stop(void *user, bool again)
{
    by__worker *w = user;
    if (again) {
        uv_stop(&w->loop);
        return;
    }
    w->leaving = true;
    write_ready(w, false);
    by__worker_post(w, json_pack("{ss}", "t", "leaving"));
    by__worker_finish_leaving(w);
}

/* ---- opening ---- */

/* Fills in what the options leave open: the version, and for a run the checkpoint. */
static by_status find_weights(by__worker *w, by_error *error)
{
    by_worker_options *o = &w->options;
    if (o->checkpoint != NULL) {
        BY_TRY(by__checkpoint_lease_open(&w->lease, o->checkpoint, error));
    }
    if (o->version == NULL || o->checkpoint == NULL) {
        char *settings;
        BY_TRY(by_worker_settings(&settings, o, error));
        by_status status =
            by__protocol_served_version_find(&w->served, o->model, o->adapter, settings, error);
        free(settings);
        BY_TRY(status);
        o->version = o->version == NULL ? w->served.name : o->version;
        o->checkpoint =
            o->checkpoint == NULL && w->served.is_run ? w->served.directory : o->checkpoint;
    }
    memcpy(w->version, o->version, strlen(o->version) + 1);
    return BY_OK;
}

/* Sets the name of the run that a path leads to: its directory, above that of a checkpoint. Bytes
 * that a header cannot have are written as %XX. */
static by_status set_run(by__worker *w, by_error *error)
{
    char *path = realpath(w->options.model, NULL);
    if (path == NULL) {
        return by__io_error(error, "read", w->options.model);
    }
    char *part = strstr(path, "/checkpoints/");
    if (part != NULL) {
        *part = '\0';
    }
    const char *last = strrchr(path, '/');
    size_t n = 0;
    for (const char *c = last == NULL ? path : last + 1; *c != '\0' && n + 4 < sizeof w->run; c++) {
        bool plain = *c > ' ' && *c < 0x7f && *c != '%';
        n += (size_t)snprintf(w->run + n, sizeof w->run - n, plain ? "%c" : "%%%02X",
                              (unsigned char)*c);
    }
    free(path);
    return BY_OK;
}

/* The model's name and its own id. */
static by_status set_names(by__worker *w, by_error *error)
{
    const char *path = w->options.model;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    const char *last = memrchr(path, '/', length);
    const char *name = w->options.name != NULL ? w->options.name : last == NULL ? path : last + 1;
    size_t n = w->options.name != NULL ? strlen(name) : (size_t)(path + length - name);
    const char *version = w->options.version;
    if (n == 0 || n >= sizeof w->name || !by__utf8_valid(name, n) ||
        (version != NULL && !by__serve_id_valid(version))) {
        return by_error_set(error, BY_EARG,
                            "a model's name has 1 to %zu bytes of UTF-8, and its version 1 to 64 "
                            "of letters, digits, - and _",
                            sizeof w->name - 1);
    }
    memcpy(w->name, name, n);
    return by__serve_request_id(w->id, "worker_", error);
}

/* ---- the sandbox (sandbox.h) ---- */

/* The part at the start: there are no threads yet. */
static by_status open_dialer(by__worker *w, by_error *error)
{
    const by_worker_options *o = &w->options;
    return o->open ? BY_OK : by__link_dialer_open(&w->dialer, o->broker, w->name, error);
}

static by_status describe_sandbox(by__serve_sandbox *out, const by_worker_options *options,
                                  by_error *error)
{
    *out = (by__serve_sandbox){0};
    if (by__link_redis_is_address(options->broker)) {
        by__link_redis_address address;
        BY_TRY(by__link_redis_address_read(&address, options->broker, error));
        out->port = (uint16_t)address.port;
    }
    return BY_OK;
}

/* The part for a warm worker that has no other thread. */
static by_status prepare_sandbox(const by__worker *w, by__serve_sandbox *out, by_error *error)
{
    int version = 0;
    if (w->options.open) {
        return BY_OK;
    }
    BY_TRY(describe_sandbox(out, &w->options, error));
    BY_TRY(by__serve_sandbox_prepare(out, &version, error));
    by__telemetry_log_landlock(&w->log, version,
                               "the list of system calls alone keeps the worker from files");
    return BY_OK;
}

static by_status prepare_job(void *user, by__worker_job *job, by_error *error)
{
    const by__worker *w = user;
    by__worker_predicting *predicting = w->model.predicting;
    if (job->more) {
        return by__worker_predicting_more(predicting, job, error);
    }
    BY_TRY(by__protocol_request_parse(job->message, error));
    const json_t *request = json_object_get(job->message, "request");
    const char *kind = by__protocol_get_text(request, "kind");
    const char *wanted = predicting != NULL ? "predict" : "embed";
    if (predicting != NULL ? kind == NULL || strcmp(kind, wanted) != 0
                           : kind != NULL && strcmp(kind, wanted) != 0) {
        return by_error_set(error, BY_EARG,
                            predicting != NULL
                                ? "the model predicts rows, images or graphs: ask /v1/predict"
                                : "the model reads text: ask for completions or embeddings");
    }
    by__telemetry_trace_copy(job->trace, by__protocol_get_text(request, "trace"));
    if (kind == NULL && w->model.engine == NULL) {
        return by_error_set(error, BY_EARG,
                            "the model is an encoder, which continues no text: ask /v1/embeddings "
                            "for vectors");
    }
    if (kind == NULL) {
        return by__worker_generation_open(job, &w->model, request, error);
    }
    job->results = json_array();
    return predicting != NULL ? by__worker_predicting_prepare(predicting, job, request, error)
                              : by__worker_embedder_prepare(w->embedder, job, request, error);
}

static by_status open_watch(by__worker *w, by_error *error)
{
    const by_worker_options *o = &w->options;
    double seconds = o->hang_seconds > 0.0 ? o->hang_seconds : HANG_SECONDS;
    if (o->hangs == NULL) {
        return BY_OK;
    }
    if (o->hang_seconds == 0.0 && by__link_redis_is_address(o->broker)) {
        by__link_redis_address address;
        BY_TRY(by__link_redis_address_read(&address, o->broker, error));
        seconds = address.hang;
    }
    return by__worker_hang_watch_open(&w->watch, seconds, o->hangs, o->user, error);
}

static by_status open_threads(by__worker *w, by_error *error)
{
    const by_worker_options *o = &w->options;
    by__worker_batch_options batches = {.delay = o->delay > 0.0 ? o->delay : BATCH_DELAY};
    if (w->model.predicting != NULL) {
        batches.most = by__worker_predicting_batch(w->model.predicting);
        batches.compute = by__worker_predicting_compute;
        batches.user = w->model.predicting;
    } else {
        if (w->model.engine != NULL) {
            BY_TRY(by__worker_engine_thread_open(&w->thread, w->model.engine, &w->wake, error));
        }
        BY_TRY(by__worker_embedder_open(&w->embedder, &w->model, error));
        batches.most = by__worker_embedder_batch();
        batches.compute = by__worker_embedder_compute;
        batches.user = w->embedder;
    }
    BY_TRY(open_watch(w, error));
    BY_TRY(by__worker_batcher_open(&w->batcher, &batches, &w->wake, error));
    /* Twice what the broker gives at a time: cancelled requests may still be queued here. */
    return by__worker_preparer_open(&w->preparer, 2 * (size_t)w->model.slots, prepare_job, w,
                                    &w->wake, error);
}

/* Logs what the engine has done since the start. */
static void log_steps(const by__worker *w)
{
    by_engine_statistics s;
    bool busy;
    if (w->thread != NULL && by__worker_engine_state(w->thread, &s, &busy, NULL) == BY_OK) {
        by__telemetry_log_event(&w->log, "worker_stopped", "{sI sI sI sI}", "steps",
                                (json_int_t)s.steps, "rows", (json_int_t)s.rows, "padding",
                                (json_int_t)s.padding, "generated", (json_int_t)s.generated);
    }
}

static void close_threads(by__worker *w)
{
    by__worker_preparer_close(&w->preparer);
    by__worker_batcher_close(&w->batcher);
    by__worker_embedder_close(&w->embedder);
    by__worker_engine_thread_close(&w->thread);
    /* Closed last: it watches the end of the others. */
    by__worker_hang_watch_close(&w->watch);
}

static void release(by__worker *w)
{
    for (size_t i = 0; i < w->job_count; i++) {
        by__worker_job_free(w->jobs[i]);
    }
    free(w->jobs);
    by_string_free(&w->events);
    by__worker_served_close(&w->model);
    by__link_dialer_close(&w->dialer);
    by__protocol_served_version_free(&w->served);
    by__checkpoint_lease_close(&w->lease);
    if (w->ready_file >= 0) {
        (void)close(w->ready_file);
    }
}

/* Opens what needs no loop, the model last. */
static by_status open_parts(by__worker *w, by_error *error)
{
    /* Truncates the file first: a killed worker has left its own. */
    BY_TRY(open_ready_file(w, error));
    BY_TRY(set_names(w, error));
    BY_TRY(open_dialer(w, error));
    BY_TRY(find_weights(w, error));
    BY_TRY(set_run(w, error));
    return by__worker_served_open(&w->model, &w->options, &w->log, error);
}

by_status by_worker_run(const by_worker_options *options, by_error *error)
{
    by__worker w = {.options = *options, .log = {options->log, options->user}, .ready_file = -1};
    by__serve_sandbox sandbox = {0};
    BY_TRY(by__link_check(options->broker, error));
    if (!options->child) { /* else its gateway tells */
        by__link_redis_log_exposed(options->broker, &w.log);
    }
    /* Before threads are created, which inherit it. Lowering the priority cannot fail. */
    (void)nice(options->nice);
    by_status status = open_parts(&w, error);
    if (status != BY_OK) {
        release(&w);
        return status;
    }
    /* The model is loaded and warmed up; from now on other threads compute. */
    by__serve_thread_release_helpers();
    status = prepare_sandbox(&w, &sandbox, error);
    if (status != BY_OK) {
        release(&w);
        return status;
    }
    int code = uv_loop_init(&w.loop);
    if (code < 0) {
        release(&w);
        return by__serve_uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&w.loop, &w.beat);
    (void)uv_timer_init(&w.loop, &w.due);
    (void)uv_async_init(&w.loop, &w.wake, by__worker_on_wake);
    w.beat.data = w.due.data = w.wake.data = &w;
    status = open_threads(&w, error);
    if (status == BY_OK) {
        status = by__serve_stop_open(&w.stop, &w.loop, options->child, on_stop, &w, error);
    }
    if (status == BY_OK && !options->open) {
        status = by__serve_sandbox_enter(&sandbox, error);
    }
    if (status == BY_OK) {
        by__link_broker_handler handler = {.hello = send_hello,
                                           .ready = on_ready,
                                           .message = on_message,
                                           .refused = on_refused,
                                           .lost = on_lost,
                                           .user = &w,
                                           .log = &w.log};
        by__link_broker_open(&w.broker, &w.loop, w.options.broker, w.dialer, &handler);
        (void)uv_timer_start(&w.beat, on_beat, BY__BEAT, BY__BEAT);
        (void)uv_run(&w.loop, UV_RUN_DEFAULT);
        if (w.failure.status != BY_OK) {
            *error = w.failure;
            status = w.failure.status;
        }
    }
    write_ready(&w, false);
    log_steps(&w);
    close_threads(&w);
    if (w.broker.loop != NULL) {
        by__link_broker_close(&w.broker);
    }
    by__serve_stop_close(&w.stop);
    uv_close((uv_handle_t *)&w.beat, NULL);
    uv_close((uv_handle_t *)&w.due, NULL);
    uv_close((uv_handle_t *)&w.wake, NULL);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&w.loop);
    release(&w);
    return status;
}
