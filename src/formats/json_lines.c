#include "formats/json_lines.h"

#include <string.h>

#include "base/json.h"

void by__format_json_lines_close(by__format_json_lines *reader)
{
    json_decref(reader->held);
    reader->held = NULL;
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r') {
            return false;
        }
    }
    return true;
}

/* Most names of fields in a message. */
#define SHOWN_FIELDS 5

static by_status missing(const char *field, const char *line, size_t n, by_error *error)
{
    json_t *object = by_json_load(line, n, 0, NULL);
    const char *names[64];
    size_t count = 0;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (count < BY_ARRAY_LENGTH(names)) {
            names[count++] = key;
        }
    }
    const char *near = by_nearest_name(field, names, count);
    by_string list = {0};
    for (size_t i = 0; i < count && i < SHOWN_FIELDS && near == NULL; i++) {
        by_string_format(&list, "%s\"%.40s\"", i == 0 ? "; the line has " : ", ", names[i]);
    }
    if (near != NULL) {
        by_string_format(&list, "; did you mean \"%.60s\"?", near);
    }
    by_string_format(&list, "%s data.field (--field of pack) names the one with the text",
                     near != NULL           ? ""
                     : count > SHOWN_FIELDS ? ", ...:"
                                            : ":");
    (void)by_error_set(error, BY_EFORMAT, "the field \"%s\" is missing%s", field,
                       list.failed ? "" : list.data);
    by_string_free(&list);
    json_decref(object);
    return BY_EFORMAT;
}

static by_status parse(by__format_json_lines *r, const char *line, size_t n, by_text *text,
                       by_error *error)
{
    json_error_t problem;
    json_t *value = NULL;
    if (!by__json_member(&value, line, n, r->field, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                         &problem)) {
        return problem.line < 0 ? by_error_set(error, BY_EFORMAT, "the line is not a JSON object")
                                : by_error_set(error, BY_EFORMAT, "%s (column %d)", problem.text,
                                               problem.column);
    }
    r->held = value;
    if (value == NULL) {
        return missing(r->field, line, n, error);
    }
    if (!json_is_string(value)) {
        return by_error_set(error, BY_EFORMAT, "the field \"%s\" is not a string", r->field);
    }
    *text = (by_text){json_string_value(value), json_string_length(value)};
    return BY_OK;
}

by_status by__format_json_lines_next(by__format_json_lines *r, by_text *text, bool *found,
                                     by_error *error)
{
    by__format_json_lines_close(r);
    while (r->at < r->length) {
        const char *line = r->data + r->at;
        const char *end = memchr(line, '\n', r->length - r->at);
        size_t n = end != NULL ? (size_t)(end - line) : r->length - r->at;
        r->at += end != NULL ? n + 1 : n;
        r->lines++;
        if (!is_blank(line, n)) {
            BY_TRY(parse(r, line, n, text, error));
            *found = true;
            return BY_OK;
        }
    }
    *found = false;
    return BY_OK;
}
