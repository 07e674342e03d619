/* Events that a worker sends about its requests: text and log-probabilities of tokens, ends,
 * errors. */
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

/* Bytes of the buffer for a step's events that are kept allocated. */
#define MOST_KEPT ((size_t)256 << 10)

void by__worker_post(by__worker *w, json_t *message)
{
    if (message != NULL) {
        (void)by__link_broker_send(&w->broker, message);
    }
    json_decref(message);
}

void by__worker_tell(by__worker *w, const by__worker_work *work, json_t *event)
{
    if (work->silent || event == NULL) {
        json_decref(event);
        return;
    }
    by__protocol_events_add(&w->events, work->attempt, event);
    json_decref(event);
}

void by__worker_flush(by__worker *w)
{
    if (w->events.failed) {
        by__link_broker_drop(&w->broker, "no memory for events");
    } else if (w->events.length > 0) {
        (void)by__link_broker_send_events(&w->broker, w->events.data, w->events.length);
    }
    if (w->events.failed || w->events.capacity > MOST_KEPT) {
        by_string_free(&w->events);
    }
    w->events.length = 0;
}

void by__worker_silence(by__worker *w, by__worker_work *work)
{
    if (!work->silent) {
        work->silent = true;
        if (!work->held) {
            by__worker_engine_cancel(w->thread, work);
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

static void log_work(const by__worker *w, const by__worker_work *work, const char *code)
{
    log_end(w, work->id, work->trace, code, (int64_t)work->request.prompt_count, work->generated,
            work->since > 0.0 ? by__now() - work->since : 0.0);
}

void by__worker_fail(by__worker *w, by__worker_work *work, int status, const char *code,
                     const char *message)
{
    if (!work->silent) {
        log_work(w, work, code);
    }
    by__worker_tell(w, work, by__protocol_event_error(work->id, status, code, NULL, message));
    work->silent = true;
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
        *characters += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    }
    json_t *out = json_pack("{sI ss% so sf}", "id", (json_int_t)id, "token",
                            text.data == NULL ? "" : text.data, text.length, "bytes", list,
                            "logprob", (double)log_probability);
    by_string_free(&text);
    return out;
}

static json_t *logprobs_of(const by__worker *w, by__worker_work *work, const by__worker_out *out)
{
    const by_event *e = &out->event;
    size_t ignored = 0;
    size_t offset = work->offsets[e->index];
    json_t *top = json_array();
    json_t *p = token_of(w, e->token, e->log_probability, &work->offsets[e->index]);
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
static void keep_score(const by__worker *w, by__worker_work *work, const by__worker_out *out)
{
    int32_t id = out == NULL ? work->request.prompt[0] : out->event.token;
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
    (void)json_object_set_new(p, "offset", json_integer((json_int_t)work->prompt_offset));
    (void)json_object_set_new(p, "top", top);
    bool outside = !work->decoded && by_tokenizer_is_special(w->model.tokenizer, (uint32_t)id);
    work->prompt_offset += outside ? 0 : characters;
    (void)json_array_append_new(work->prompt_scores, p);
}

static size_t characters_of(const by_string *text)
{
    size_t count = 0;
    for (size_t i = 0; text->data != NULL && i < text->length; i++) {
        count += ((unsigned char)text->data[i] & 0xc0) != 0x80;
    }
    return count;
}

/* Sends what is kept for each sequence, with the text of the prompt at first. */
static void tell_scores(by__worker *w, by__worker_work *work)
{
    for (int32_t i = 0; i < work->request.n && json_array_size(work->prompt_scores) > 0; i++) {
        bool first = !work->echoed[i];
        const char *text = first && work->echo.data != NULL ? work->echo.data : "";
        work->echoed[i] = true;
        work->offsets[i] = characters_of(&work->echo);
        by__worker_tell(w, work,
                        json_pack("{ss ss si ss% sO}", "id", work->id, "e", "text", "i", (int)i,
                                  "text", text, first ? work->echo.length : (size_t)0, "logprobs",
                                  work->prompt_scores));
    }
    if (work->prompt_scores != NULL) {
        (void)json_array_clear(work->prompt_scores);
    }
}

/* Handles an event of a request whose prompt has log-probabilities. The events that result are the
 * same however the prompt was cut: the answer may continue one of another worker. */
static void take_score(by__worker *w, by__worker_work *work, const by__worker_out *out)
{
    if (work->prompt_scores == NULL) {
        work->prompt_scores = json_array();
        keep_score(w, work, NULL);
    }
    if (out->event.prompt_position > 0) {
        keep_score(w, work, out);
    }
    if (out->event.prompt_position == 0 || json_array_size(work->prompt_scores) >= SCORES) {
        tell_scores(w, work);
    }
}

/* out->event.token -1: text that belongs to no token. */
static void tell_text(by__worker *w, by__worker_work *work, const by__worker_out *out, by_text text)
{
    const by_event *e = &out->event;
    bool echoes =
        work->echo.length > 0 && !work->echoed[e->index] && (text.length > 0 || e->token < 0);
    if (text.length == 0 && !work->logprobs && !echoes) {
        return;
    }
    by_string valid = {0};
    if (echoes) {
        work->echoed[e->index] = true;
        by_string_add(&valid, work->echo.data, work->echo.length);
    }
    by__string_add_valid(&valid, text.data, text.length);
    const char *data = valid.data == NULL ? "" : valid.data;
    if (work->logprobs && e->token >= 0) {
        by__worker_tell(w, work,
                        json_pack("{ss ss si ss% so}", "id", work->id, "e", "text", "i",
                                  (int)e->index, "text", data, valid.length, "logprobs",
                                  logprobs_of(w, work, out)));
    } else if (!work->silent) {
        by__protocol_events_add_piece(&w->events, work->id, work->attempt, (size_t)e->index, data,
                                      valid.length);
    }
    by_string_free(&valid);
}

/* Ends a sequence for the client; the last one ends the request. */
static void end_sequence(by__worker *w, by__worker_work *work, const by_event *e,
                         const char *reason)
{
    by_text rest;
    by_text_stream_end(work->streams[e->index], &rest);
    if (rest.length > 0 || work->echo.length > 0) {
        tell_text(w, work, &(by__worker_out){.event = {.index = e->index, .token = -1}}, rest);
    }
    work->done[e->index] = true;
    json_t *event = by__protocol_event_new(work->id, "stop");
    (void)json_object_set_new(event, "i", json_integer(e->index));
    (void)json_object_set_new(event, "reason", json_string(reason));
    if (work->echo.length > 0) {
        (void)json_object_set_new(event, "echo", json_integer((json_int_t)work->echo.length));
    }
    if (work->scored) {
        double count = (double)(work->counts[e->index] > 0 ? work->counts[e->index] : 1);
        (void)json_object_set_new(event, "score", json_real(work->sums[e->index] / count));
    }
    by__worker_tell(w, work, event);
    for (int32_t i = 0; i < work->request.n; i++) {
        if (!work->done[i]) {
            return;
        }
    }
    event = by__protocol_event_new(work->id, "end");
    (void)json_object_set_new(event, "usage",
                              json_pack("{sI sI}", "prompt_tokens",
                                        (json_int_t)work->request.prompt_count, "completion_tokens",
                                        (json_int_t)work->generated));
    double now = by__now();
    double first = work->first > 0.0 ? work->first : now;
    (void)json_object_set_new(
        event, "timing",
        json_pack("{sf sf}", "prefill", first - work->since, "decode", now - first));
    by__worker_tell(w, work, event);
    log_work(w, work, NULL);
    by__worker_silence(w, work);
}

void by__worker_token(by__worker *w, by__worker_work *work, const by__worker_out *out)
{
    const by_event *e = &out->event;
    bool stopped = false;
    by_text text;
    by_error error = {0};
    if (work->silent || work->done[e->index]) {
        return;
    }
    if (e->finish == BY_FINISH_FAILED) {
        bool form = out->error.status == BY_EFORMAT;
        bool asked = out->error.status == BY_EARG;
        by__worker_fail(w, work, form || asked ? 400 : 500,
                        form    ? BY__UNWRITABLE
                        : asked ? "invalid_request"
                                : "generation_failed",
                        out->error.message);
        by__worker_silence(w, work);
        return;
    }
    if (e->finish == BY_FINISH_DEADLINE) {
        by__worker_fail(w, work, 504, "deadline_exceeded",
                        "the deadline came before the end of the answer");
        by__worker_silence(w, work);
        return;
    }
    if (work->request.score) {
        take_score(w, work, out);
        if (e->prompt_position > 0) {
            return;
        }
    }
    bool is_end = e->finish == BY_FINISH_STOP;
    work->first = work->first > 0.0 ? work->first : by__now();
    if (e->token >= 0) {
        work->generated++;
        work->counts[e->index]++;
        work->sums[e->index] += (double)e->log_probability;
    }
    if (e->token >= 0 && !is_end) {
        if (by_text_stream_push(work->streams[e->index], (uint32_t)e->token, &text, &stopped,
                                &error) != BY_OK) {
            by__worker_fail(w, work, 500, "generation_failed", error.message);
            by__worker_silence(w, work);
            return;
        }
        tell_text(w, work, out, text);
    }
    if (stopped) {
        end_sequence(w, work, e, "stop");
    } else if (e->finish != BY_FINISH_NONE) {
        end_sequence(w, work, e, is_end ? "stop" : by_finish_name(e->finish));
    }
}

void by__worker_refuse(by__worker *w, const char *id, int64_t attempt, const char *code,
                       const char *param, const by_error *error)
{
    by_status status = error->status;
    bool theirs = status == BY_EARG || status == BY_EFORMAT;
    json_t *event = by__protocol_event_error(id, theirs ? 400 : 503,
                                             theirs ? code != NULL ? code : "invalid_request"
                                             : status == BY_ESTATE ? "worker_busy"
                                                                   : "out_of_memory",
                                             param, error->message);
    by__protocol_events_add(&w->events, attempt, event);
    json_decref(event);
    by__worker_flush(w);
}

void by__worker_job(by__worker *w, by__worker_batch_job *job)
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
