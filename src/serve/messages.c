#include "serve/messages.h"

#include <string.h>

const char *by__get_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int64_t by__get_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

double by__get_number(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

json_t *by__event_new(const char *id, const char *kind)
{
    return json_pack("{ss ss}", "id", id, "e", kind);
}

json_t *by__event_error(const char *id, int status, const char *code, const char *param,
                        const char *message)
{
    by__text valid = {0};
    /* A message may be cut in the middle of a character, or have bytes of the client. */
    by__text_add_valid(&valid, message, strlen(message));
    json_t *event =
        json_pack("{ss ss si ss ss? ss}", "id", id, "e", "error", "status", status, "code", code,
                  "param", param, "message", valid.data == NULL ? "" : valid.data);
    by__text_free(&valid);
    return event;
}

bool by__event_is_last(const json_t *event)
{
    const char *kind = by__get_text(event, "e");
    return kind != NULL &&
           (strcmp(kind, "end") == 0 || strcmp(kind, "result") == 0 || strcmp(kind, "error") == 0);
}
