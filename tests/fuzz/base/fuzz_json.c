/* JSON from anywhere: what jansson reads is read with the same values, what is written reads back
 * as it was, and a member alone is the one of the whole object. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good) {
        abort();
    }
}

static void check_written(const json_t *value, size_t flags)
{
    by_string again = {0};
    by_string text = {0};
    json_error_t where;
    by__json_write(&text, value, flags);
    check(!text.failed);
    json_t *back = by_json_load(text.data, text.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    check(back != NULL);
    by__json_write(&again, back, flags);
    check(again.length == text.length && memcmp(again.data, text.data, text.length) == 0);
    check((flags & JSON_SORT_KEYS) != 0 || json_equal(back, value));
    json_decref(back);
    by_string_free(&again);
    by__json_compact(&again, text.data, text.length);
    check(!again.failed && again.length <= text.length);
    by_string_free(&text);
    by_string_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    json_error_t where;
    json_t *member = NULL;
    json_t *ours = by_json_load(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    /* A zero byte at the end is nothing to jansson. */
    json_t *theirs = size > 0 && memchr(text, '\0', size) != NULL
                         ? NULL
                         : json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    json_t *spelled = by_json_load(text, size, JSON_DECODE_ANY | BY__JSON_SPELLED, NULL);
    bool found = by__json_member(&member, text, size, "a", JSON_ALLOW_NUL, NULL);
    check(ours != NULL || (where.line > 0 && where.text[0] != '\0'));
    check((ours == NULL) == (spelled == NULL));
    check(theirs == NULL || json_equal(ours, theirs));
    check(found == (json_is_object(ours) && by__json_spelled(ours) == NULL));
    check(!found || (member == NULL) == (json_object_get(ours, "a") == NULL));
    check(member == NULL || json_equal(member, json_object_get(ours, "a")));
    if (ours != NULL) {
        check_written(ours, JSON_COMPACT);
        check_written(ours, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_SORT_KEYS);
    }
    json_decref(member);
    json_decref(ours);
    json_decref(theirs);
    json_decref(spelled);
    return 0;
}
