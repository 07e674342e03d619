/* What libraries have chosen for kernels, and its text: lines of
 * "DEVICE AND LIBRARY <tab> WHAT <tab> HEXADECIMAL BYTES". */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/device.h"

#define MOST_WHAT 512

typedef struct kept_choice {
    char *what;
    unsigned char data[BY__CHOICE_BYTES];
    size_t bytes;
} kept_choice;

struct by__device_choices {
    char *chooser;
    kept_choice *items;
    size_t count;
    size_t capacity;
};

/* A line of a text, taken apart. */
typedef struct choice_line {
    const char *begin; /* of the chooser */
    size_t chooser;    /* lengths */
    const char *what;
    size_t what_length;
    const char *digits;
    size_t digit_count;
    const char *next; /* the following line, or the end */
} choice_line;

by_status by__device_choices_open(by__device_choices **out, const char *chooser, by_error *error)
{
    by__device_choices *c;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "choices", error));
    c->chooser = by__strdup(chooser);
    if (c->chooser == NULL) {
        free(c);
        return by_error_set(error, BY_EMEMORY, "out of memory: choices");
    }
    for (char *at = c->chooser; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' ? ' ' : *at;
    }
    *out = c;
    return BY_OK;
}

void by__device_choices_close(by__device_choices *choices)
{
    if (choices == NULL) {
        return;
    }
    for (size_t i = 0; i < choices->count; i++) {
        free(choices->items[i].what);
    }
    free(choices->items);
    free(choices->chooser);
    free(choices);
}

static kept_choice *find(const by__device_choices *choices, const char *what, size_t length)
{
    for (size_t i = 0; i < choices->count; i++) {
        const char *known = choices->items[i].what;
        if (strncmp(known, what, length) == 0 && known[length] == '\0') {
            return &choices->items[i];
        }
    }
    return NULL;
}

bool by__device_choice_get(void *data, size_t bytes, const by__device_choices *choices,
                           const char *what)
{
    const kept_choice *known = find(choices, what, strlen(what));
    if (known == NULL || known->bytes != bytes) {
        return false;
    }
    memcpy(data, known->data, bytes);
    return true;
}

/* The choice for what has this name, a new one if there is none. */
static by_status add(kept_choice **out, by__device_choices *choices, const char *what,
                     size_t length, by_error *error)
{
    kept_choice *known = find(choices, what, length);
    if (known == NULL) {
        BY_TRY(by__reserve((void **)&choices->items, &choices->capacity, choices->count + 1,
                           sizeof *choices->items, error));
        char *name = by__strndup(what, length);
        if (name == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: choices");
        }
        known = &choices->items[choices->count++];
        known->what = name;
    }
    *out = known;
    return BY_OK;
}

by_status by__device_choice_put(by__device_choices *choices, const char *what, const void *data,
                                size_t bytes, by_error *error)
{
    kept_choice *choice;
    if (bytes > BY__CHOICE_BYTES) {
        return by_error_set(error, BY_EARG, "a choice of %zu bytes", bytes);
    }
    BY_TRY(add(&choice, choices, what, strlen(what), error));
    memcpy(choice->data, data, bytes);
    choice->bytes = bytes;
    return BY_OK;
}

/* ---- text ---- */

/* Takes apart the line at `at`, which is not the end. */
static bool read_line(choice_line *out, const char *at)
{
    choice_line line = {.begin = at};
    const char *end = at + strcspn(at, "\n");
    line.next = *end == '\0' ? end : end + 1;
    line.chooser = strcspn(at, "\t\n");
    line.what = at + line.chooser + 1;
    if (at[line.chooser] != '\t') {
        return false;
    }
    line.what_length = strcspn(line.what, "\t\n");
    line.digits = line.what + line.what_length + 1;
    if (line.what[line.what_length] != '\t' || line.what_length == 0 ||
        line.what_length > MOST_WHAT) {
        return false;
    }
    line.digit_count = (size_t)(end - line.digits);
    *out = line;
    return line.digit_count >= 2 && line.digit_count <= (size_t)2 * BY__CHOICE_BYTES &&
           line.digit_count % 2 == 0 && strspn(line.digits, "0123456789abcdef") == line.digit_count;
}

static by_status refuse_line(const char *at, by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "'%.*s' is not a device, what was chosen for, and hexadecimal digits, with "
                        "tabs between them",
                        (int)strcspn(at, "\n") < 60 ? (int)strcspn(at, "\n") : 60, at);
}

static unsigned hex_digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool is_of(const choice_line *line, const by__device_choices *choices)
{
    return strlen(choices->chooser) == line->chooser &&
           memcmp(line->begin, choices->chooser, line->chooser) == 0;
}

by_status by__device_take_choices(by_device *device, const char *text, by_error *error)
{
    choice_line line;
    for (const char *at = text == NULL ? "" : text; *at != '\0'; at = line.next) {
        kept_choice *choice;
        if (!read_line(&line, at)) {
            return refuse_line(at, error);
        }
        if (device->choices == NULL || !is_of(&line, device->choices)) {
            continue;
        }
        BY_TRY(add(&choice, device->choices, line.what, line.what_length, error));
        choice->bytes = line.digit_count / 2;
        for (size_t i = 0; i < choice->bytes; i++) {
            choice->data[i] = (unsigned char)(hex_digit(line.digits[2 * i]) << 4 |
                                              hex_digit(line.digits[2 * i + 1]));
        }
    }
    return BY_OK;
}

/* Whether a text has a line with this beginning: a device and what was chosen for. */
static bool has_line(const by_string *text, const char *begin, size_t length)
{
    const char *at = text->length == 0 ? NULL : text->data;
    while (at != NULL && *at != '\0') {
        if (strncmp(at, begin, length) == 0) {
            return true;
        }
        at = strchr(at, '\n');
        at = at == NULL ? NULL : at + 1;
    }
    return false;
}

by_status by__device_join_choices(by_string *text, const char *other, by_error *error)
{
    choice_line line;
    for (const char *at = other; *at != '\0'; at = line.next) {
        if (!read_line(&line, at)) {
            return refuse_line(at, error);
        }
        if (!has_line(text, at, (size_t)(line.digits - at))) {
            int length = (int)(line.digits + line.digit_count - at);
            by_string_format(text, "%.*s\n", length, at);
        }
    }
    return text->failed ? by_error_set(error, BY_EMEMORY, "out of memory: choices") : BY_OK;
}

by_status by__device_add_choices(by_string *text, const by_device *device, by_error *error)
{
    by_string own = {0};
    const by__device_choices *choices = device->choices;
    for (size_t i = 0; choices != NULL && i < choices->count; i++) {
        const kept_choice *c = &choices->items[i];
        by_string_format(&own, "%s\t%s\t", choices->chooser, c->what);
        for (size_t k = 0; k < c->bytes; k++) {
            by_string_format(&own, "%02x", c->data[k]);
        }
        by__string_append(&own, "\n");
    }
    by_status status = own.failed
                           ? by_error_set(error, BY_EMEMORY, "out of memory: choices")
                           : by__device_join_choices(text, own.length == 0 ? "" : own.data, error);
    by_string_free(&own);
    return status;
}

const char *by__device_chooser(const by_device *device)
{
    return device->choices == NULL ? NULL : device->choices->chooser;
}

const char *by__device_foreign_choices(size_t *length, const by_device *device, const char *text)
{
    const char *first = NULL;
    choice_line line;
    if (text == NULL || device->choices == NULL) {
        return NULL;
    }
    for (const char *at = text; *at != '\0' && read_line(&line, at); at = line.next) {
        if (is_of(&line, device->choices)) {
            return NULL;
        }
        if (first == NULL) {
            first = line.begin;
            *length = line.chooser;
        }
    }
    return first;
}
