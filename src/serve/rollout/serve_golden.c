/* Runs golden requests through the broker and compares the answers (golden.h). */
#include "base/json.h"
#include "serve/rollout/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/event_list.h"
#include "serve/protocol/messages.h"

#define TOKENS 16
/* Token ids that every vocabulary has. */
#define PROMPT "[0, 1, 2, 3]"
/* Most bytes of the file of answers, and most versions in it. */
#define MAX_BYTES    ((size_t)16 << 20)
#define MAX_VERSIONS 256

void by__rollout_golden_reset(by__rollout_golden_run *g)
{
    json_decref(g->answers);
    *g = (by__rollout_golden_run){0};
}

static bool reads_rows(const json_t *info)
{
    return json_object_get(info, "columns") != NULL;
}

bool by__rollout_golden_exists(const json_t *info)
{
    return json_object_get(info, "context") != NULL || reads_rows(info);
}

/* The text of the request. */
static json_t *request_of(const json_t *info)
{
    json_t *request = reads_rows(info)
                          ? json_pack("{ss s[{}]}", "kind", "predict", "rows")
                          : json_pack("{so si sf si sb sb}", "prompt",
                                      by__json_read(PROMPT, 0, NULL), "max_tokens", TOKENS,
                                      "temperature", 0.0, "n", 1, "logprobs", 1, "ignore_eos", 1);
    json_t *text = by__protocol_request_text(request);
    json_decref(request);
    return text;
}

void by__rollout_golden_ask(by__rollout_golden_run *g, const by__rollout_golden_target *target,
                            const json_t *info, size_t workers)
{
    by_error ignored = {0};
    if (g->sent || target->link->link == NULL || workers == 0) {
        return;
    }
    g->answers = json_object();
    g->sent = true;
    for (size_t i = 0; i < workers; i++) {
        char id[BY__ID_BYTES];
        if (by__serve_request_id(id, "golden_", &ignored) != BY_OK) {
            continue;
        }
        json_t *message = json_pack("{ss ss ss ss si si so}", "t", "submit", "id", id, "model",
                                    target->model, "version", target->version, "cost", TOKENS,
                                    "priority", 100, "request", request_of(info));
        json_t *answer =
            reads_rows(info) ? json_object() : json_pack("{ss s[]}", "text", "", "logprobs");
        (void)json_object_set_new(g->answers, id, answer);
        g->requested += by__link_broker_send(target->link, message);
        json_decref(message);
    }
}

static void fail(by__rollout_golden_run *g, const char *reason)
{
    g->result = BY__GOLDEN_BAD;
    (void)snprintf(g->reason, sizeof g->reason, "%s", reason);
}

/* ---- the answers of earlier uses ---- */

static json_t *read_known(const char *path)
{
    char *text = NULL;
    size_t length;
    by_error ignored = {0};
    json_t *known = NULL;
    if (path != NULL && by__file_read(&text, &length, path, MAX_BYTES, &ignored) == BY_OK) {
        known = by_json_load(text, length, 0, NULL);
    }
    free(text);
    if (!json_is_object(known)) {
        json_decref(known);
        known = json_object();
    }
    return known;
}

static void write_known(const by__rollout_golden_target *target, json_t *known)
{
    by_error error = {0};
    if (json_object_size(known) > MAX_VERSIONS) {
        (void)json_object_del(known, json_object_iter_key(json_object_iter(known)));
    }
    char *text = by__json_dump(known, JSON_COMPACT);
    by_status status =
        text == NULL ? BY_EMEMORY : by__file_write(target->known, text, strlen(text), &error);
    if (status != BY_OK) {
        by__telemetry_log_event(target->log, "golden_not_written", "{ss}", "reason", error.message);
    }
    free(text);
}

static void compare(by__rollout_golden_run *g, const by__rollout_golden_target *target)
{
    const char *id;
    json_t *answer;
    const json_t *first = NULL;
    json_object_foreach(g->answers, id, answer)
    {
        first = first == NULL ? answer : first;
        if (!json_equal(answer, first)) {
            fail(g, "its workers gave different answers to the golden request");
            return;
        }
    }
    json_t *known = read_known(target->known);
    const json_t *earlier = json_object_get(known, target->version);
    if (earlier != NULL && !json_equal(earlier, first)) {
        fail(g, "its answer to the golden request is not the one of its first use");
    } else {
        g->result = BY__GOLDEN_GOOD;
    }
    if (earlier == NULL && target->known != NULL) {
        (void)json_object_set(known, target->version, (json_t *)(uintptr_t)first);
        write_known(target, known);
    }
    json_decref(known);
}

/* Takes text and log-probabilities of one event. Returns false if one of them is not finite, which
 * JSON cannot represent. */
static bool handle_text(json_t *answer, const json_t *event)
{
    const json_t *list = json_object_get(event, "logprobs");
    const char *text = by__protocol_get_text(event, "text");
    const char *before = by__protocol_get_text(answer, "text");
    by_string whole = {0};
    size_t i;
    json_t *p;
    by__string_append(&whole, before == NULL ? "" : before);
    by__string_append(&whole, text == NULL ? "" : text);
    (void)json_object_set_new(answer, "text", json_string(whole.data == NULL ? "" : whole.data));
    by_string_free(&whole);
    json_array_foreach(list, i, p)
    {
        double value = by__protocol_get_number(p, "logprob", NAN);
        if (!isfinite(value)) {
            return false;
        }
        (void)json_array_append_new(json_object_get(answer, "logprobs"), json_real(value));
    }
    return json_array_size(list) > 0;
}

/* Predictions that are not finite are null. */
static bool is_finite(const json_t *value)
{
    size_t i;
    const char *key;
    json_t *one;
    json_array_foreach(value, i, one)
    {
        if (!is_finite(one)) {
            return false;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        if (!is_finite(one)) {
            return false;
        }
    }
    return !json_is_null(value);
}

static void handle_end(by__rollout_golden_run *g, const by__rollout_golden_target *target)
{
    if (++g->answered == g->requested) {
        compare(g, target);
    }
}

static void handle_event(by__rollout_golden_run *g, const by__rollout_golden_target *target,
                         const json_t *event)
{
    const char *id = by__protocol_get_text(event, "id");
    const char *kind = by__protocol_get_text(event, "e");
    json_t *answer = id == NULL ? NULL : json_object_get(g->answers, id);
    if (answer == NULL || kind == NULL || g->result != BY__GOLDEN_PENDING) {
        return;
    }
    if (strcmp(kind, "again") == 0 && json_object_get(answer, "text") != NULL) {
        (void)json_object_set_new(answer, "text", json_string(""));
        (void)json_array_clear(json_object_get(answer, "logprobs"));
    } else if (strcmp(kind, "text") == 0 && !handle_text(answer, event)) {
        fail(g, "the log-probabilities of the golden request are not finite");
    } else if (strcmp(kind, "error") == 0) {
        char reason[160];
        const char *message = by__protocol_get_text(event, "message");
        (void)snprintf(reason, sizeof reason, "the golden request failed: %s",
                       message == NULL ? "?" : message);
        fail(g, reason);
    } else if (strcmp(kind, "result") == 0) {
        json_t *result = json_object_get(event, "result");
        if (result == NULL || !is_finite(result)) {
            fail(g, "the predictions of the golden request are not finite");
            return;
        }
        (void)json_object_set(answer, "result", result);
        handle_end(g, target);
    } else if (strcmp(kind, "end") == 0) {
        handle_end(g, target);
    }
}

void by__rollout_golden_events(by__rollout_golden_run *g, const by__rollout_golden_target *target,
                               const char *list, size_t length)
{
    by__serve_event event;
    size_t at = 0;
    while (by__protocol_events_next(list, length, &at, &event)) {
        json_t *json = by__protocol_event_json(&event);
        handle_event(g, target, json);
        json_decref(json);
    }
}
