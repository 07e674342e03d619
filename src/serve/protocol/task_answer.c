#include "serve/protocol/task_answer.h"

#include <stdlib.h>
#include <string.h>

#include "serve/protocol/messages.h"

/* Most sequences of a task. */
#define MAX_CHOICES 8

struct by__protocol_gather {
    by_string texts[MAX_CHOICES];
    char reasons[MAX_CHOICES][16];
    json_t *scores[MAX_CHOICES]; /* NULL: no scores requested */
    size_t count;                /* number of sequences seen */
    bool lost;                   /* an event was lost */
};

by_status by__protocol_gather_open(by__protocol_gather **out, by_error *error)
{
    return by__alloc((void **)out, 1, sizeof **out, "a task", error);
}

void by__protocol_gather_clear(by__protocol_gather *gather)
{
    for (size_t i = 0; i < MAX_CHOICES; i++) {
        by_string_free(&gather->texts[i]);
        json_decref(gather->scores[i]);
    }
    *gather = (by__protocol_gather){0};
}

void by__protocol_gather_close(by__protocol_gather **gather)
{
    if (*gather != NULL) {
        by__protocol_gather_clear(*gather);
        free(*gather);
        *gather = NULL;
    }
}

void by__protocol_gather_add(by__protocol_gather *gather, const json_t *event)
{
    const char *kind = by__protocol_get_text(event, "e");
    int64_t at = by__protocol_get_integer(event, "i");
    size_t i = at < 0 || at >= MAX_CHOICES ? 0 : (size_t)at;
    const json_t *text = json_object_get(event, "text");
    const char *reason = by__protocol_get_text(event, "reason");
    gather->lost = gather->lost || event == NULL;
    if (kind == NULL || (strcmp(kind, "text") != 0 && strcmp(kind, "stop") != 0)) {
        return;
    }
    gather->count = i + 1 > gather->count ? i + 1 : gather->count;
    by_string_add(&gather->texts[i], json_is_string(text) ? json_string_value(text) : "",
                  json_string_length(text));
    if (json_object_get(event, "score") != NULL) {
        json_decref(gather->scores[i]);
        gather->scores[i] = json_incref(json_object_get(event, "score"));
    }
    if (reason != NULL) {
        (void)snprintf(gather->reasons[i], sizeof gather->reasons[i], "%s", reason);
    }
}

json_t *by__protocol_gather_result(const by__protocol_gather *gather, const json_t *end)
{
    json_t *whole = json_object_get(end, "result");
    if (whole != NULL) {
        return json_pack("{sO sO?}", "result", whole, "usage", json_object_get(end, "usage"));
    }
    json_t *choices = gather->lost ? NULL : json_array();
    for (size_t i = 0; i < gather->count; i++) {
        const by_string *t = &gather->texts[i];
        const char *text = t->data == NULL ? "" : t->data;
        json_t *choice = t->failed ? NULL
                                   : json_pack("{ss% ss sO*}", "text", text, t->length, "reason",
                                               gather->reasons[i], "score", gather->scores[i]);
        if (json_array_append_new(choices, choice) != 0) {
            json_decref(choices);
            return NULL;
        }
    }
    return json_pack("{so sO?}", "choices", choices, "usage", json_object_get(end, "usage"));
}

json_t *by__protocol_gather_failure(const json_t *event)
{
    return json_pack("{sO? sO? sO?}", "status", json_object_get(event, "status"), "code",
                     json_object_get(event, "code"), "message", json_object_get(event, "message"));
}
