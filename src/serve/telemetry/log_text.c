/* Lines of a log for people: "10:22:03 process role=worker pid=17". */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/telemetry/log.h"

/* Whether a text can be shown as it is: it has no blanks, quotes or control characters. Those of
 * C1 (U+0080 to U+009F) are some for terminals, too. */
static bool is_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool c1 = c == 0xc2 && i + 1 < length && (unsigned char)text[i + 1] < 0xa0;
        if (c <= ' ' || c == '"' || c == 0x7f || c1) {
            return false;
        }
    }
    return length > 0;
}

static void add_value(by_string *out, const json_t *value)
{
    if (json_is_string(value) && is_plain(json_string_value(value), json_string_length(value))) {
        by_string_add(out, json_string_value(value), json_string_length(value));
    } else if (json_is_real(value)) {
        by_string_format(out, "%.4g", json_real_value(value));
    } else {
        by__json_write(out, value, JSON_COMPACT | JSON_ENSURE_ASCII);
    }
}

char *by_serve_log_text(const char *line)
{
    json_t *object = by__json_read(line, JSON_ALLOW_NUL, NULL);
    const char *time = json_string_value(json_object_get(object, "time"));
    const char *event = json_string_value(json_object_get(object, "event"));
    by_string out = {0};
    const char *name;
    json_t *value;
    if (time == NULL || event == NULL || strlen(time) < 19) {
        json_decref(object);
        return NULL;
    }
    by_string_format(&out, "%.8s ", time + 11);
    add_value(&out, json_object_get(object, "event"));
    json_object_foreach(object, name, value)
    {
        if (strcmp(name, "time") != 0 && strcmp(name, "event") != 0 && !json_is_null(value) &&
            !(json_is_string(value) && json_string_length(value) == 0)) {
            by_string_format(&out, " %s=", name);
            add_value(&out, value);
        }
    }
    json_decref(object);
    if (out.failed) {
        by_string_free(&out);
        return NULL;
    }
    return out.data;
}

char *by_serve_log_event(const char *event, const char *name, const char *text)
{
    char now[24];
    by__utc_now(now);
    json_t *line = json_pack("{ss ss ss}", "time", now, "event", event, name, text);
    char *out = by__json_dump(line, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(line);
    return out;
}
