/* A worker: a model's engine behind the broker. The loop reads requests, encodes prompts, and makes
 * text and events of tokens; the engine's thread runs steps (worker_engine.c). */
#include "serve/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/broker_link.h"
#include "serve/log.h"
#include "serve/messages.h"
#include "serve/sandbox.h"
#include "serve/served_drift.h"
#include "serve/stop.h"

typedef struct worker {
    by_worker_options options;
    by__log log;
    by__served_model model;
    by__served_drift *drift; /* NULL: the weights have no reference */
    by_engine *engine;
    int ready_file; /* -1: none */
    by__engine_thread *thread;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t beat;
    by__broker_link broker;
    uv_timer_t due;  /* of the next work that max_rate holds back */
    double next_due; /* by__now; the next work begins no earlier */
    by__stop *stop;
    by__work **works; /* that the engine's thread has, or that wait for its last word */
    size_t work_count;
    size_t work_capacity;
    int64_t slots;
    json_t *events; /* gathered for one message */
    char id[BY__ID_BYTES];
    char name[256];
    char version[65];
    by_error failure;
    bool leaving;
} worker;

static void on_due(uv_timer_t *timer);

/* ---- events ---- */

static void post(worker *w, json_t *message)
{
    if (message != NULL) {
        (void)by__broker_link_send(&w->broker, message);
    }
    json_decref(message);
}

static void tell(worker *w, const by__work *work, json_t *event)
{
    if (work->silent || event == NULL) {
        json_decref(event);
        return;
    }
    (void)json_object_set_new(event, "attempt", json_integer(work->attempt));
    if (w->events == NULL) {
        w->events = json_array();
    }
    (void)json_array_append_new(w->events, event);
}

static void flush(worker *w)
{
    if (w->events != NULL) {
        json_t *events = w->events;
        w->events = NULL;
        post(w, json_pack("{ss so}", "t", "events", "events", events));
    }
}

/* The work ends for the client; the engine may need a step more. */
static void silence(worker *w, by__work *work)
{
    if (!work->silent) {
        work->silent = true;
        if (!work->held) {
            by__engine_cancel(w->thread, work);
        }
    }
}

static void fail(worker *w, by__work *work, int status, const char *code, const char *message)
{
    tell(w, work, by__event_error(work->id, status, code, NULL, message));
    work->silent = true;
}

static void tell_text(worker *w, const by__work *work, const by_event *e, by_text text)
{
    if (text.length == 0 && !work->logprobs) {
        return;
    }
    by__text valid = {0};
    by__text_add_valid(&valid, text.data, text.length);
    json_t *event = by__event_new(work->id, "text");
    (void)json_object_set_new(event, "i", json_integer(e->index));
    (void)json_object_set_new(event, "text",
                              json_stringn(valid.data == NULL ? "" : valid.data, valid.length));
    if (work->logprobs && e->token >= 0) {
        const char *bytes;
        size_t length;
        by_error ignored = {0};
        by__text token = {0};
        if (by_tokenizer_token_bytes(w->model.tokenizer, (uint32_t)e->token, &bytes, &length,
                                     &ignored) == BY_OK) {
            by__text_add_valid(&token, bytes, length);
        }
        json_t *p = json_pack("{sI ss% sf}", "id", (json_int_t)e->token, "token",
                              token.data == NULL ? "" : token.data, token.length, "logprob",
                              (double)e->log_probability);
        (void)json_object_set_new(event, "logprobs", json_pack("[o]", p));
        by__text_free(&token);
    }
    by__text_free(&valid);
    tell(w, work, event);
}

/* A sequence ends for the client; with the last one the request does. */
static void end_sequence(worker *w, by__work *work, const by_event *e, const char *reason)
{
    by_text rest;
    by_text_stream_end(work->streams[e->index], &rest);
    if (rest.length > 0) {
        tell_text(w, work, &(by_event){.index = e->index, .token = -1}, rest);
    }
    work->done[e->index] = true;
    json_t *event = by__event_new(work->id, "stop");
    (void)json_object_set_new(event, "i", json_integer(e->index));
    (void)json_object_set_new(event, "reason", json_string(reason));
    tell(w, work, event);
    for (int32_t i = 0; i < work->request.n; i++) {
        if (!work->done[i]) {
            return;
        }
    }
    event = by__event_new(work->id, "end");
    (void)json_object_set_new(event, "usage",
                              json_pack("{sI sI}", "prompt_tokens",
                                        (json_int_t)work->request.prompt_count, "completion_tokens",
                                        (json_int_t)work->generated));
    tell(w, work, event);
    silence(w, work);
}

static void take_token(worker *w, by__work *work, const by__out *out)
{
    const by_event *e = &out->event;
    bool stopped = false;
    by_text text;
    by_error error = {0};
    if (work->silent || work->done[e->index]) {
        return;
    }
    if (e->finish == BY_FINISH_FAILED) {
        fail(w, work, 500, "generation_failed", out->error.message);
        silence(w, work);
        return;
    }
    if (e->finish == BY_FINISH_DEADLINE) {
        fail(w, work, 504, "deadline_exceeded", "the deadline came before the end of the answer");
        silence(w, work);
        return;
    }
    bool is_end = e->finish == BY_FINISH_STOP;
    work->generated += e->token >= 0;
    if (e->token >= 0 && !is_end) {
        if (by_text_stream_push(work->streams[e->index], (uint32_t)e->token, &text, &stopped,
                                &error) != BY_OK) {
            fail(w, work, 500, "generation_failed", error.message);
            silence(w, work);
            return;
        }
        tell_text(w, work, e, text);
    }
    if (stopped) {
        end_sequence(w, work, e, "stop");
    } else if (e->finish != BY_FINISH_NONE) {
        end_sequence(w, work, e, is_end ? "stop" : by_finish_name(e->finish));
    }
}

static void drop_work(worker *w, by__work *work)
{
    for (size_t i = 0; i < w->work_count; i++) {
        if (w->works[i] == work) {
            w->works[i] = w->works[--w->work_count];
            by__work_close(&work);
            return;
        }
    }
}

static void finish_leaving(worker *w)
{
    if (w->leaving && w->work_count == 0) {
        uv_stop(&w->loop);
    }
}

static void on_wake(uv_async_t *async)
{
    worker *w = async->data;
    const by__out *outs;
    size_t count;
    by_engine_statistics statistics;
    bool busy;
    by__engine_take(w->thread, &outs, &count);
    for (size_t i = 0; i < count; i++) {
        by__work *work = outs[i].work;
        switch (outs[i].kind) {
        case BY__OUT_BEGUN: {
            json_t *event = by__event_new(work->id, "begin");
            (void)json_object_set_new(event, "prompt_tokens",
                                      json_integer((json_int_t)work->request.prompt_count));
            (void)json_object_set_new(event, "version", json_string(w->version));
            tell(w, work, event);
            break;
        }
        case BY__OUT_TOKEN:
            take_token(w, work, &outs[i]);
            break;
        case BY__OUT_REFUSED:
            fail(w, work, 400, "invalid_request", outs[i].error.message);
            break;
        case BY__OUT_LAST:
            drop_work(w, work);
            break;
        }
    }
    flush(w);
    if (by__engine_look(w->thread, &statistics, &busy, &w->failure) != BY_OK) {
        uv_stop(&w->loop);
    }
    finish_leaving(w);
}

/* ---- the broker ---- */

static by__work *find_work(const worker *w, const char *id)
{
    for (size_t i = 0; i < w->work_count; i++) {
        if (!w->works[i]->silent && strcmp(w->works[i]->id, id) == 0) {
            return w->works[i];
        }
    }
    return NULL;
}

/* Gives the engine the works whose time has come, in their order, and waits for the next. */
static void begin_due(worker *w)
{
    double now = by__now();
    size_t i = 0;
    while (i < w->work_count) {
        by__work *work = w->works[i];
        by_error error = {0};
        if (!work->held || work->due > now) {
            i++;
            continue;
        }
        work->held = false;
        if (work->silent) {
            drop_work(w, work);
        } else if (by__engine_submit(w->thread, work, &error) != BY_OK) {
            fail(w, work, 503, "out_of_memory", error.message);
            drop_work(w, work);
        } else {
            i++;
        }
    }
    double first = 0.0;
    for (i = 0; i < w->work_count; i++) {
        const by__work *work = w->works[i];
        first = work->held && (first == 0.0 || work->due < first) ? work->due : first;
    }
    if (first > 0.0) {
        (void)uv_timer_start(&w->due, on_due, (uint64_t)((first - now) * 1000.0) + 1, 0);
    }
    flush(w);
    finish_leaving(w);
}

static void on_due(uv_timer_t *timer)
{
    begin_due(timer->data);
}

/* Keeps a work until max_rate lets it begin. */
static void hold(worker *w, by__work *work)
{
    double now = by__now();
    w->next_due = w->next_due > now ? w->next_due : now;
    work->due = w->next_due;
    work->held = true;
    w->next_due += 1.0 / w->options.max_rate;
}

static void take_work(worker *w, const json_t *message)
{
    const char *id = by__get_text(message, "id");
    const char *param = NULL;
    by__work *work = NULL;
    by_error error = {0};
    by_status status = by__reserve((void **)&w->works, &w->work_capacity, w->work_count + 1,
                                   sizeof(by__work *), &error);
    if (status == BY_OK) {
        status = by__work_open(&work, &w->model, message, &param, &error);
    }
    if (status == BY_OK && w->options.max_rate > 0.0) {
        hold(w, work);
    } else if (status == BY_OK) {
        status = by__engine_submit(w->thread, work, &error);
    }
    if (status == BY_OK) {
        w->works[w->work_count++] = work;
        by__served_drift_tokens(w->drift, work->request.prompt, work->request.prompt_count);
        if (work->held) {
            begin_due(w);
        }
        return;
    }
    by__work_close(&work);
    if (id != NULL) {
        bool memory = status == BY_EMEMORY;
        json_t *event =
            by__event_error(id, memory ? 503 : 400, memory ? "out_of_memory" : "invalid_request",
                            param, error.message);
        (void)json_object_set_new(event, "attempt",
                                  json_integer(by__get_integer(message, "attempt")));
        post(w, json_pack("{ss s[o]}", "t", "events", "events", event));
    }
}

static void on_message(void *user, json_t *message)
{
    worker *w = user;
    const char *kind = by__get_text(message, "t");
    if (kind != NULL && strcmp(kind, "work") == 0) {
        take_work(w, message);
    } else if (kind != NULL && strcmp(kind, "cancel") == 0) {
        const char *id = by__get_text(message, "id");
        by__work *work = id == NULL ? NULL : find_work(w, id);
        if (work != NULL) {
            silence(w, work);
        }
    }
}

static void send_beat(worker *w)
{
    by_engine_statistics s;
    bool busy;
    if (by__engine_look(w->thread, &s, &busy, &w->failure) != BY_OK) {
        uv_stop(&w->loop);
        return;
    }
    json_t *engine = json_pack(
        "{sI sI sI sI sI sI sI sI sI}", "running", (json_int_t)s.running, "waiting",
        (json_int_t)s.waiting, "pages", (json_int_t)s.pages, "pages_used", (json_int_t)s.pages_used,
        "pages_cached", (json_int_t)s.pages_cached, "generated", (json_int_t)s.generated, "found",
        (json_int_t)s.found, "preemptions", (json_int_t)s.preemptions, "rows", (json_int_t)s.rows);
    json_t *drift = by__served_drift_state(w->drift);
    if (drift != NULL) {
        (void)json_object_set_new(engine, "drift", drift);
    }
    post(w, json_pack("{ss sI sb so}", "t", "beat", "steps", (json_int_t)s.steps, "busy", (int)busy,
                      "engine", engine));
}

static void on_beat(uv_timer_t *timer)
{
    worker *w = timer->data;
    const char *call = by__sandbox_violation();
    if (call != NULL) {
        by__log_event(&w->log, "sandbox_violation", "{ss}", "call", call);
    }
    send_beat(w);
}

/* The first messages on a link, before anything else is sent. */
static void greet(void *user)
{
    worker *w = user;
    const json_int_t context = (json_int_t)w->model.context;
    char host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    post(w, json_pack("{ss ss ss sI ss ss ss sI s{sI sb}}", "t", "hello", "role", "worker", "name",
                      w->id, "pid", (json_int_t)getpid(), "host", host, "model", w->name, "version",
                      w->version, "slots", (json_int_t)w->slots, "info", "context", context, "chat",
                      (int)(w->model.chat != NULL)));
    if (w->leaving) {
        post(w, json_pack("{ss}", "t", "leaving"));
    }
    send_beat(w);
}

/* The file that says so to others, which is open since before the sandbox. */
static void tell_ready(const worker *w, bool ready)
{
    if (w->ready_file >= 0 &&
        (ready ? pwrite(w->ready_file, "1", 1, 0) != 1 : ftruncate(w->ready_file, 0) != 0)) {
        by__log_event(&w->log, "ready_file_not_written", "{ss}", "reason", strerror(errno));
    }
}

static by_status open_ready_file(worker *w, by_error *error)
{
    const char *path = w->options.ready_file;
    if (path != NULL) {
        w->ready_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    }
    return path != NULL && w->ready_file < 0 ? by__io_error(error, "write", path) : BY_OK;
}

static void on_ready(void *user)
{
    worker *w = user;
    by__log_event(&w->log, "worker_ready", "{ss ss sI}", "model", w->name, "version", w->version,
                  "slots", (json_int_t)w->slots);
    tell_ready(w, true);
}

static void on_lost(void *user, const char *why)
{
    worker *w = user;
    by__log_event(&w->log, "broker_lost", "{ss}", "reason", why);
    tell_ready(w, false);
    /* Whoever had asked asks again. */
    for (size_t i = 0; i < w->work_count; i++) {
        silence(w, w->works[i]);
    }
    if (w->leaving) {
        uv_stop(&w->loop);
    }
}

static void on_stop(void *user, bool again)
{
    worker *w = user;
    if (again) {
        uv_stop(&w->loop);
        return;
    }
    w->leaving = true;
    tell_ready(w, false);
    post(w, json_pack("{ss}", "t", "leaving"));
    finish_leaving(w);
}

/* ---- opening ---- */

static void add_end(by__served_model *m, int64_t id)
{
    for (size_t i = 0; i < m->end_count; i++) {
        if (m->ends[i] == id) {
            return;
        }
    }
    if (id >= 0 && m->end_count < BY_STOP_TOKENS) {
        m->ends[m->end_count++] = (int32_t)id;
    }
}

static by_status open_model(worker *w, by_error *error)
{
    by_pretrained *pretrained = NULL;
    by__served_model *m = &w->model;
    by_error none = {0};
    /* A start again does not help. */
    if (!by__path_exists(w->options.model)) {
        return by_error_set(error, BY_ECONFIG, "%s: there is no such run or directory",
                            w->options.model);
    }
    by_status status = w->options.checkpoint == NULL
                           ? by_pretrained_open(&pretrained, w->options.model, false, error)
                           : by_pretrained_open_checkpoint(&pretrained, w->options.model,
                                                           w->options.checkpoint, error);
    const char *directory = status == BY_OK ? by_pretrained_directory(pretrained) : NULL;
    if (status == BY_OK) {
        status = by_tokenizer_open(&m->tokenizer, directory, error);
    }
    if (status == BY_OK) {
        const by_drift_options drift = {.requests = w->options.drift_requests};
        status = by__served_drift_open(&w->drift, directory, &drift, &w->log, error);
    }
    if (status == BY_OK) {
        status = by_token_list_of(&m->tokens, m->tokenizer, error);
    }
    if (status == BY_OK) {
        by_chat_source source = {.directory = directory};
        by_status chat = by_chat_open(&m->chat, &source, &none);
        if (chat != BY_OK && chat != BY_ESTATE) {
            *error = none;
            status = chat;
        }
    }
    if (status == BY_OK) {
        by_engine_options options = {.context = w->options.context,
                                     .sessions = w->options.sessions,
                                     .rows = w->options.rows,
                                     .pool_bytes = w->options.pool_bytes,
                                     .threads = w->options.threads,
                                     .precision = w->options.precision,
                                     .vocab = (int64_t)by_tokenizer_vocab(m->tokenizer)};
        int64_t sessions = options.sessions > 0 ? options.sessions : 16;
        /* A few more than run, so that the engine never waits for the broker. */
        w->slots = sessions + (sessions + 3) / 4;
        m->context =
            options.context > 0 ? options.context : by_pretrained_config(pretrained)->model.context;
        status = by_engine_open(&w->engine, by_pretrained_config(pretrained),
                                by_pretrained_weights(pretrained), &options, error);
    }
    if (status == BY_OK) {
        add_end(m, by_tokenizer_eos(m->tokenizer));
        for (int64_t id = 0; m->chat != NULL && id < (int64_t)by_tokenizer_vocab(m->tokenizer);
             id++) {
            if (by_chat_ends(m->chat, m->tokenizer, id)) {
                add_end(m, id);
            }
        }
    }
    m->longest = 4; /* a character that the vocabulary lacks */
    for (uint32_t id = 0; status == BY_OK && id < by_tokenizer_vocab(m->tokenizer); id++) {
        const char *bytes;
        size_t length;
        if (by_tokenizer_token_bytes(m->tokenizer, id, &bytes, &length, &none) == BY_OK) {
            m->longest = length > m->longest ? length : m->longest;
        }
    }
    by_pretrained_close(&pretrained);
    return status;
}

/* One request through every part, so that the first client waits no longer than the second. */
static by_status warm_up(worker *w, by_error *error)
{
    int32_t prompt[1] = {0};
    uint64_t session;
    by_request request = {
        .prompt = prompt, .prompt_count = 1, .tokens = 4, .sampling = {.top_p = 1.0}};
    BY_TRY(by_engine_submit(w->engine, &request, &session, error));
    while (by_engine_busy(w->engine)) {
        const by_event *events;
        size_t count;
        BY_TRY(by_engine_step(w->engine, &events, &count, error));
    }
    return BY_OK;
}

static by_status set_names(worker *w, by_error *error)
{
    const char *path = w->options.model;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    const char *last = memrchr(path, '/', length);
    const char *name = w->options.name != NULL ? w->options.name : last == NULL ? path : last + 1;
    size_t n = w->options.name != NULL ? strlen(name) : (size_t)(path + length - name);
    char *found = NULL;
    if (w->options.version == NULL) {
        BY_TRY(by_serve_version(&found, path, w->options.precision, error));
    }
    const char *version = found == NULL ? w->options.version : found;
    if (n == 0 || n >= sizeof w->name || !by__utf8_valid(name, n) || !by__id_valid(version)) {
        free(found);
        return by_error_set(error, BY_EARG,
                            "a model's name has 1 to %zu bytes of UTF-8, and its version 1 to 64 "
                            "of letters, digits, - and _",
                            sizeof w->name - 1);
    }
    memcpy(w->name, name, n);
    memcpy(w->version, version, strlen(version) + 1);
    free(found);
    return by__request_id(w->id, "worker_", error);
}

static void release(worker *w)
{
    by__engine_thread_close(&w->thread);
    for (size_t i = 0; i < w->work_count; i++) {
        by__work_close(&w->works[i]);
    }
    free(w->works);
    json_decref(w->events);
    by_engine_close(&w->engine);
    by__served_drift_close(&w->drift);
    by_token_list_close(&w->model.tokens);
    by_chat_close(&w->model.chat);
    by_tokenizer_close(&w->model.tokenizer);
}

by_status by_worker_run(const by_worker_options *options, by_error *error)
{
    worker w = {.options = *options, .log = {options->log, options->user}, .ready_file = -1};
    BY_TRY(by__link_check(options->broker, error));
    BY_TRY(set_names(&w, error));
    by_status status = open_model(&w, error);
    if (status == BY_OK) {
        status = warm_up(&w, error);
    }
    if (status != BY_OK) {
        release(&w);
        return status;
    }
    int code = uv_loop_init(&w.loop);
    if (code < 0) {
        release(&w);
        return by__uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&w.loop, &w.beat);
    (void)uv_timer_init(&w.loop, &w.due);
    (void)uv_async_init(&w.loop, &w.wake, on_wake);
    w.beat.data = w.due.data = w.wake.data = &w;
    status = by__engine_thread_open(&w.thread, w.engine, &w.wake, error);
    if (status == BY_OK) {
        status = by__stop_open(&w.stop, &w.loop, options->child, on_stop, &w, error);
    }
    if (status == BY_OK) {
        status = open_ready_file(&w, error);
    }
    if (status == BY_OK && !options->open) {
        /* A path is a socket of this machine. */
        status = by__sandbox_enter(options->broker[0] != '/', error);
    }
    if (status == BY_OK) {
        by__broker_link_handler handler = {
            .greet = greet, .ready = on_ready, .message = on_message, .lost = on_lost, .user = &w};
        by__broker_link_open(&w.broker, &w.loop, w.options.broker, &handler);
        (void)uv_timer_start(&w.beat, on_beat, BY__BEAT, BY__BEAT);
        (void)uv_run(&w.loop, UV_RUN_DEFAULT);
        if (w.failure.status != BY_OK) {
            *error = w.failure;
            status = w.failure.status;
        }
    }
    tell_ready(&w, false);
    if (w.ready_file >= 0) {
        (void)close(w.ready_file);
    }
    by__engine_thread_close(&w.thread);
    if (w.broker.loop != NULL) {
        by__broker_link_close(&w.broker);
    }
    by__stop_close(&w.stop);
    uv_close((uv_handle_t *)&w.beat, NULL);
    uv_close((uv_handle_t *)&w.due, NULL);
    uv_close((uv_handle_t *)&w.wake, NULL);
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&w.loop);
    release(&w);
    return status;
}
