/* Events that a worker sends about its requests: text and log-probabilities of tokens, ends,
 * errors. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

/* Bytes of the buffer for a step's events that are kept allocated. */
#define MAX_KEPT_BUFFER ((size_t)256 << 10)

void by__worker_post(by__worker *w, json_t *message)
{
    if (message != NULL) {
        (void)by__link_broker_send(&w->broker, message);
    }
    json_decref(message);
}

void by__worker_add_event(by__worker *w, const by__worker_job *job, json_t *event)
{
    if (job->cancelled || event == NULL) {
        json_decref(event);
        return;
    }
    by__protocol_events_add(&w->events, job->attempt, event);
    json_decref(event);
}

void by__worker_flush(by__worker *w)
{
    if (w->events.failed) {
        by__link_broker_drop(&w->broker, "no memory for events");
    } else if (w->events.length > 0) {
        (void)by__link_broker_send_events(&w->broker, w->events.data, w->events.length);
    }
    if (w->events.failed || w->events.capacity > MAX_KEPT_BUFFER) {
        by_string_free(&w->events);
    }
    w->events.length = 0;
}

void by__worker_cancel(by__worker *w, by__worker_job *job)
{
    by__worker_generation *g = job->generation;
    if (!job->cancelled) {
        job->cancelled = true;
        if (!g->delayed) {
            by__worker_engine_cancel(w->thread, job);
        }
    }
}

/* Logs the end of requests whose trace is sampled, so that a trace leads to the worker. */
static void log_end(const by__worker *w, const char *id, const char *trace, const char *code,
                    int64_t prompt, int64_t generated, double seconds)
{
    if (trace[0] != '\0') {
        by__telemetry_log_event(&w->log, "traced_request", "{ss ss ss ss? sI sI sf}", "id", id,
                                "trace_id", trace, "model", w->name, "code", code, "prompt_tokens",
                                (json_int_t)prompt, "generated_tokens", (json_int_t)generated,
                                "seconds", by__telemetry_observe_seconds(seconds));
    }
}

static void log_generation(const by__worker *w, const by__worker_job *job, const char *code)
{
    const by__worker_generation *g = job->generation;
    log_end(w, job->id, job->trace, code, (int64_t)g->request.prompt_count, g->generated,
            g->accepted > 0.0 ? by__now() - g->accepted : 0.0);
}

void by__worker_fail(by__worker *w, by__worker_job *job, int status, const char *code,
                     const char *message)
{
    if (!job->cancelled) {
        log_generation(w, job, code);
    }
    by__worker_add_event(w, job, by__protocol_event_error(job->id, status, code, NULL, message));
    job->cancelled = true;
}

/* A token as clients see it: its text, its bytes, its log-probability. */
static json_t *token_of(const by__worker *w, int32_t id, float log_probability, size_t *characters)
{
    const char *bytes = "";
    size_t length = 0;
    by_error ignored = {0};
    by_string text = {0};
    json_t *list = json_array();
    if (by_tokenizer_token_bytes(w->model.tokenizer, (uint32_t)id, &bytes, &length, &ignored) ==
        BY_OK) {
        by__string_add_valid(&text, bytes, length);
    }
    for (size_t i = 0; i < length; i++) {
        (void)json_array_append_new(list, json_integer((unsigned char)bytes[i]));
        *characters += by__utf8_begins((char)bytes[i]) ? 1 : 0;
    }
    json_t *out = json_pack("{sI ss% so sf}", "id", (json_int_t)id, "token",
                            text.data == NULL ? "" : text.data, text.length, "bytes", list,
                            "logprob", (double)log_probability);
    by_string_free(&text);
    return out;
}

static json_t *logprobs_of(const by__worker *w, by__worker_job *job, const by__worker_out *out)
{
    by__worker_generation *g = job->generation;
    const by_event *e = &out->event;
    size_t ignored = 0;
    size_t offset = g->offsets[e->index];
    json_t *top = json_array();
    json_t *p = token_of(w, e->token, e->log_probability, &g->offsets[e->index]);
    for (int32_t i = 0; i < e->top_count; i++) {
        json_t *one = token_of(w, out->top[i].token, out->top[i].log_probability, &ignored);
        (void)json_array_append_new(top, one);
    }
    (void)json_object_set_new(p, "offset", json_integer((json_int_t)offset));
    (void)json_object_set_new(p, "top", top);
    return json_pack("[o]", p);
}

/* ---- prompts that are repeated with their log-probabilities ---- */

/* Tokens of a prompt that an event holds. */
#define SCORES 64

/* Adds a token of the prompt; out NULL: the first one, which has no log-probability. Special tokens
 * in front of a text are not part of it. */
static void add_prompt_score(const by__worker *w, by__worker_job *job, const by__worker_out *out)
{
    by__worker_generation *g = job->generation;
    int32_t id = out == NULL ? g->request.prompt[0] : out->event.token;
    size_t characters = 0;
    size_t ignored = 0;
    json_t *p = token_of(w, id, out == NULL ? 0.0F : out->event.log_probability, &characters);
    json_t *top = out == NULL ? json_null() : json_array();
    for (int32_t i = 0; out != NULL && i < out->event.top_count; i++) {
        json_t *one = token_of(w, out->top[i].token, out->top[i].log_probability, &ignored);
        (void)json_array_append_new(top, one);
    }
    if (out == NULL) {
        (void)json_object_set_new(p, "logprob", json_null());
    }
    (void)json_object_set_new(p, "offset", json_integer((json_int_t)g->prompt_offset));
    (void)json_object_set_new(p, "top", top);
    bool outside = !g->decoded && by_tokenizer_is_special(w->model.tokenizer, (uint32_t)id);
    g->prompt_offset += outside ? 0 : characters;
    (void)json_array_append_new(g->prompt_scores, p);
}

static size_t characters_of(const by_string *text)
{
    return text->data == NULL ? 0 : by__utf8_count(text->data, text->length);
}

/* Sends what is kept for each sequence, with the text of the prompt at first. */
static void send_scores(by__worker *w, by__worker_job *job)
{
    by__worker_generation *g = job->generation;
    for (int32_t i = 0; i < g->request.n && json_array_size(g->prompt_scores) > 0; i++) {
        bool first = !g->echoed[i];
        const char *text = first && g->echo.data != NULL ? g->echo.data : "";
        g->echoed[i] = true;
        g->offsets[i] = characters_of(&g->echo);
        by__worker_add_event(w, job,
                             json_pack("{ss ss si ss% sO}", "id", job->id, "e", "text", "i", (int)i,
                                       "text", text, first ? g->echo.length : (size_t)0, "logprobs",
                                       g->prompt_scores));
    }
    if (g->prompt_scores != NULL) {
        (void)json_array_clear(g->prompt_scores);
    }
}

/* Handles an event of a request whose prompt has log-probabilities. The events that result are the
 * same however the prompt was cut: the answer may continue one of another worker. */
static void add_score(by__worker *w, by__worker_job *job, const by__worker_out *out)
{
    by__worker_generation *g = job->generation;
    if (g->prompt_scores == NULL) {
        g->prompt_scores = json_array();
        add_prompt_score(w, job, NULL);
    }
    if (out->event.prompt_position > 0) {
        add_prompt_score(w, job, out);
    }
    if (out->event.prompt_position == 0 || json_array_size(g->prompt_scores) >= SCORES) {
        send_scores(w, job);
    }
}

/* out->event.token -1: text that belongs to no token. */
static void send_text(by__worker *w, by__worker_job *job, const by__worker_out *out, by_text text)
{
    by__worker_generation *g = job->generation;
    const by_event *e = &out->event;
    bool echoes = g->echo.length > 0 && !g->echoed[e->index] && (text.length > 0 || e->token < 0);
    if (text.length == 0 && !g->logprobs && !echoes) {
        return;
    }
    by_string valid = {0};
    if (echoes) {
        g->echoed[e->index] = true;
        by_string_add(&valid, g->echo.data, g->echo.length);
    }
    by__string_add_valid(&valid, text.data, text.length);
    const char *data = valid.data == NULL ? "" : valid.data;
    if (g->logprobs && e->token >= 0) {
        by__worker_add_event(w, job,
                             json_pack("{ss ss si ss% so}", "id", job->id, "e", "text", "i",
                                       (int)e->index, "text", data, valid.length, "logprobs",
                                       logprobs_of(w, job, out)));
    } else if (!job->cancelled) {
        by__protocol_events_add_piece(&w->events, job->id, job->attempt, (size_t)e->index, data,
                                      valid.length);
    }
    by_string_free(&valid);
}

/* Ends a sequence for the client; the last one ends the request. */
static void end_sequence(by__worker *w, by__worker_job *job, const by_event *e, const char *reason)
{
    by__worker_generation *g = job->generation;
    by_text rest;
    by_text_stream_end(g->streams[e->index], &rest);
    if (rest.length > 0 || g->echo.length > 0) {
        send_text(w, job, &(by__worker_out){.event = {.index = e->index, .token = -1}}, rest);
    }
    g->done[e->index] = true;
    json_t *event = by__protocol_event_new(job->id, "stop");
    (void)json_object_set_new(event, "i", json_integer(e->index));
    (void)json_object_set_new(event, "reason", json_string(reason));
    if (g->echo.length > 0) {
        (void)json_object_set_new(event, "echo", json_integer((json_int_t)g->echo.length));
    }
    if (g->scored) {
        double count = (double)(g->counts[e->index] > 0 ? g->counts[e->index] : 1);
        (void)json_object_set_new(event, "score", json_real(g->sums[e->index] / count));
    }
    by__worker_add_event(w, job, event);
    for (int32_t i = 0; i < g->request.n; i++) {
        if (!g->done[i]) {
            return;
        }
    }
    event = by__protocol_event_new(job->id, "end");
    (void)json_object_set_new(event, "usage",
                              json_pack("{sI sI}", "prompt_tokens",
                                        (json_int_t)g->request.prompt_count, "completion_tokens",
                                        (json_int_t)g->generated));
    double now = by__now();
    double first = g->first > 0.0 ? g->first : now;
    (void)json_object_set_new(
        event, "timing",
        json_pack("{sf sf}", "prefill", first - g->accepted, "decode", now - first));
    by__worker_add_event(w, job, event);
    log_generation(w, job, NULL);
    by__worker_cancel(w, job);
}

void by__worker_handle_token(by__worker *w, by__worker_job *job, const by__worker_out *out)
{
    by__worker_generation *g = job->generation;
    const by_event *e = &out->event;
    bool stopped = false;
    by_text text;
    by_error error = {0};
    if (job->cancelled || g->done[e->index]) {
        return;
    }
    if (e->finish == BY_FINISH_FAILED) {
        bool form = out->error.status == BY_EFORMAT;
        bool invalid = out->error.status == BY_EARG;
        by__worker_fail(w, job, form || invalid ? 400 : 500,
                        form      ? BY__UNWRITABLE
                        : invalid ? "invalid_request"
                                  : "generation_failed",
                        out->error.message);
        by__worker_cancel(w, job);
        return;
    }
    if (e->finish == BY_FINISH_DEADLINE) {
        by__worker_fail(w, job, 504, "deadline_exceeded",
                        "the deadline came before the end of the answer");
        by__worker_cancel(w, job);
        return;
    }
    if (g->request.score) {
        add_score(w, job, out);
        if (e->prompt_position > 0) {
            return;
        }
    }
    bool is_end = e->finish == BY_FINISH_STOP;
    g->first = g->first > 0.0 ? g->first : by__now();
    if (e->token >= 0) {
        g->generated++;
        g->counts[e->index]++;
        g->sums[e->index] += (double)e->log_probability;
    }
    if (e->token >= 0 && !is_end) {
        if (by_text_stream_push(g->streams[e->index], (uint32_t)e->token, &text, &stopped,
                                &error) != BY_OK) {
            by__worker_fail(w, job, 500, "generation_failed", error.message);
            by__worker_cancel(w, job);
            return;
        }
        send_text(w, job, out, text);
    }
    if (stopped) {
        end_sequence(w, job, e, "stop");
    } else if (e->finish != BY_FINISH_NONE) {
        end_sequence(w, job, e, is_end ? "stop" : by_finish_name(e->finish));
    }
}

void by__worker_refuse(by__worker *w, const char *id, int64_t attempt, const char *code,
                       const char *param, const by_error *error)
{
    by_status status = error->status;
    bool theirs = status == BY_EARG || status == BY_EFORMAT || status == BY_ECONFIG;
    json_t *event = by__protocol_event_error(id, theirs ? 400 : 503,
                                             theirs ? code != NULL ? code : "invalid_request"
                                             : status == BY_ESTATE ? "worker_busy"
                                                                   : "out_of_memory",
                                             param, error->message);
    by__protocol_events_add(&w->events, attempt, event);
    json_decref(event);
    by__worker_flush(w);
}

void by__worker_send_results(by__worker *w, by__worker_job *job)
{
    json_t *event;
    const char *code = NULL;
    if (job->cancelled) {
        return;
    }
    if (job->late) {
        code = "deadline_exceeded";
        event = by__protocol_event_error(job->id, 504, code, NULL,
                                         "the deadline came before the request was computed");
    } else if (job->status != BY_OK) {
        code = "computation_failed";
        event = by__protocol_event_error(job->id, 500, code, NULL, job->error.message);
    } else {
        event = by__protocol_event_new(job->id, "result");
        (void)json_object_set_new(event, "result", json_pack("{sO}", "list", job->results));
        (void)json_object_set_new(event, "usage",
                                  json_pack("{sI sI}", "prompt_tokens", (json_int_t)job->tokens,
                                            "completion_tokens", (json_int_t)0));
        (void)json_object_set_new(event, "timing",
                                  json_pack("{sf}", "compute", by__now() - job->since));
    }
    log_end(w, job->id, job->trace, code, job->tokens, 0, by__now() - job->since);
    json_t *begin = by__protocol_event_new(job->id, "begin");
    (void)json_object_set_new(begin, "prompt_tokens", json_integer((json_int_t)job->tokens));
    (void)json_object_set_new(begin, "version", json_string(w->version));
    (void)json_object_set_new(begin, "run", json_string(w->run));
    (void)json_object_set_new(begin, "seconds", json_real(by__now() - job->since));
    by__protocol_events_add(&w->events, job->attempt, begin);
    by__protocol_events_add(&w->events, job->attempt, event);
    json_decref(begin);
    json_decref(event);
    by__worker_flush(w);
}
