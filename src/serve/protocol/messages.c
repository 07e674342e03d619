/* Helpers to read and make messages, and the table of refusals. */
#include "serve/protocol/messages.h"

#include <string.h>

#include "base/json.h"

json_t *by__protocol_copy_object(const json_t *object)
{
    json_t *out = json_object();
    if (json_object_update(out, (json_t *)(uintptr_t)object) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

void by__protocol_copy_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text == NULL ? "" : text);
}

const char *by__protocol_get_text(const json_t *object, const char *key)
{
    return by__json_string(json_object_get(object, key));
}

int64_t by__protocol_get_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

double by__protocol_get_number(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

json_t *by__protocol_event_new(const char *id, const char *kind)
{
    return json_pack("{ss ss}", "id", id, "e", kind);
}

json_t *by__protocol_event_error(const char *id, int status, const char *code, const char *param,
                                 const char *message)
{
    by_string valid = {0};
    /* A message may be cut within a character, or contain bytes of the client. */
    by__string_add_valid(&valid, message, strlen(message));
    json_t *event =
        json_pack("{ss ss si ss ss? ss}", "id", id, "e", "error", "status", status, "code", code,
                  "param", param, "message", valid.data == NULL ? "" : valid.data);
    by_string_free(&valid);
    return event;
}

bool by__protocol_event_is_last(const json_t *event)
{
    const char *kind = by__protocol_get_text(event, "e");
    return kind != NULL &&
           (strcmp(kind, "end") == 0 || strcmp(kind, "result") == 0 || strcmp(kind, "error") == 0);
}

bool by__protocol_event_is_fault(const json_t *event)
{
    const char *code = by__protocol_get_text(event, "code");
    return by__protocol_get_integer(event, "status") >= 500 ||
           (code != NULL && strcmp(code, BY__UNWRITABLE) == 0);
}

json_t *by__protocol_request_text(const json_t *request)
{
    by_string text = {0};
    by__json_write(&text, request, JSON_COMPACT);
    json_t *out = text.failed ? NULL : json_stringn(text.data, text.length);
    by_string_free(&text);
    return out;
}

json_t *by__protocol_message_with_text(const json_t *message)
{
    json_t *out = by__protocol_copy_object(message);
    json_t *text = by__protocol_request_text(json_object_get(message, "request"));
    if (json_object_set_new(out, "request", text) != 0) {
        json_decref(out);
        out = NULL;
    }
    return out;
}

by_status by__protocol_request_parse(json_t *message, by_error *error)
{
    const json_t *given = json_object_get(message, "request");
    if (json_is_object(given)) {
        return BY_OK;
    }
    json_t *request = json_is_string(given)
                          ? by_json_load(json_string_value(given), json_string_length(given),
                                         JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL)
                          : NULL;
    if (!json_is_object(request) || json_object_set(message, "request", request) != 0) {
        json_decref(request);
        return by_error_set(error, BY_EFORMAT, "a request that is no JSON object");
    }
    json_decref(request);
    return BY_OK;
}

const by__protocol_refusal *by__protocol_refusal_of(const char *why)
{
    static const by__protocol_refusal refusals[] = {
        {"full", 429, "queue_full", NULL, "too many requests wait for this model; try again later"},
        {"wait", 429, "queue_wait", NULL,
         "a request for this model would wait too long now; try again later"},
        {"late", 429, "queue_deadline", NULL,
         "the request could not begin before its deadline; try again later"},
        {"stored", 429, "too_many_stored", NULL,
         "this key stores as many tasks as it may: delete tasks that have ended, or wait until "
         "some "
         "expire"},
        {"unknown", 404, "model_not_found", "model", "no model of this name is served here"},
        {"starting", 503, "starting", NULL, "no model is ready yet"},
        {"broker_full", 503, "broker_full", NULL,
         "the broker cannot keep the request: its memory or its disk is full"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refusals); i++) {
        if (strcmp(why, refusals[i].why) == 0) {
            return &refusals[i];
        }
    }
    return NULL;
}

json_t *by__protocol_event_refused(const char *id, const by__protocol_refusal *refusal,
                                   double seconds)
{
    json_t *event = by__protocol_event_error(id, refusal->status, refusal->code, refusal->param,
                                             refusal->message);
    if (seconds > 0.0) {
        (void)json_object_set_new(event, "retry_after", json_real(seconds));
    }
    return event;
}

json_t *by__protocol_task_refused(const json_t *message, const by__protocol_refusal *refusal,
                                  double seconds)
{
    return json_pack("{ss sO sn s{si ss ss sf}}", "t", "task", "ref",
                     json_object_get(message, "ref"), "task", "error", "status", refusal->status,
                     "code", refusal->code, "message", refusal->message, "retry_after", seconds);
}

double by__protocol_retry_after(double wait)
{
    return wait < 1.0 ? 1.0 : wait > 60.0 ? 60.0 : wait;
}

int64_t by__protocol_sequences_of(const json_t *request)
{
    int64_t n = by__protocol_get_integer(request, "sequences");
    return n > 0 ? n : 1;
}
