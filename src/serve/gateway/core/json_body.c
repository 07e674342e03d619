/* JSON bodies of requests, parsed within bounds.
 *
 * A parsed value takes up to 80 times the memory of its text ("{}," becomes a hash table), and as
 * much time, in which the loop serves nobody else. So objects, lists and commas are
 * counted in the text first. */
#include <string.h>

#include "base/json.h"
#include "serve/gateway/core/gateway.h"

#define MAX_DEPTH 100
/* Objects and lists, and values, of a body: more than the longest conversation, or a table of a
 * quarter of a million cells. */
#define MAX_CONTAINERS 65536
#define MAX_VALUES     262144

/* The end of the string that begins at `s`, behind its quote; `end` if it has none. */
static const char *skip_string(const char *s, const char *end)
{
    for (s++; s < end && *s != '"'; s++) {
        s += *s == '\\';
    }
    return s < end ? s + 1 : end;
}

static by_status check_size(const char *text, size_t length, by_error *error)
{
    const char *end = text + length;
    size_t containers = 0;
    size_t values = 0;
    for (const char *s = text; s < end; s++) {
        if (*s == '"') {
            s = skip_string(s, end) - 1;
        }
        containers += *s == '{' || *s == '[';
        values += *s == ',';
    }
    return containers <= MAX_CONTAINERS && values <= MAX_VALUES
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "the body has %zu objects and lists and %zu commas; %d and %d are "
                              "allowed: send several requests",
                              containers, values, MAX_CONTAINERS, MAX_VALUES);
}

static bool is_deep(const json_t *value, int left)
{
    const char *name;
    json_t *item;
    size_t i;
    if (!json_is_array(value) && !json_is_object(value)) {
        return false;
    }
    if (left == 0) {
        return true;
    }
    json_array_foreach(value, i, item)
    {
        if (is_deep(item, left - 1)) {
            return true;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        if (is_deep(item, left - 1)) {
            return true;
        }
    }
    return false;
}

/* A text, number, truth value or null, or nothing at all. */
static bool is_word(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length && text[at] != '\0' && strchr(" \t\r\n", text[at]) != NULL) {
        at++;
    }
    return at == length || (text[at] != '\0' && strchr("\"-0123456789ntf", text[at]) != NULL);
}

by_status by__gateway_body_parse(json_t **out, const char *body, size_t length, by_error *error)
{
    json_error_t where;
    BY_TRY(check_size(body, length, error));
    json_t *object = by_json_load(body, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (object == NULL) {
        bool twice = json_error_code(&where) == json_error_duplicate_key;
        if (is_word(body, length)) {
            return by_error_set(error, BY_EARG, "the body is not a JSON object");
        }
        return by_error_set(error, BY_EARG, "the body %s (line %d, column %d)%s%.120s",
                            twice ? "gives a key twice" : "is not JSON", where.line, where.column,
                            twice ? ": " : "", twice ? where.text : "");
    }
    if (is_deep(object, MAX_DEPTH)) {
        json_decref(object);
        return by_error_set(error, BY_EARG, "the body is nested more than %d deep", MAX_DEPTH);
    }
    *out = object;
    return BY_OK;
}
