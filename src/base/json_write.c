#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

typedef struct json_writer {
    by_string *out;
    size_t flags;
    unsigned indent; /* columns of a level; 0: one line */
    int precision;   /* digits of reals; 0: the fewest */
} json_writer;

/* ---- strings ---- */

static void add_unit(by_string *out, uint32_t unit)
{
    static const char digits[] = "0123456789ABCDEF";
    char text[6] = {'\\',
                    'u',
                    digits[unit >> 12 & 15],
                    digits[unit >> 8 & 15],
                    digits[unit >> 4 & 15],
                    digits[unit & 15]};
    by_string_add(out, text, sizeof text);
}

static void add_escape(by_string *out, uint32_t code)
{
    static const char codes[] = "\"\\\b\f\n\r\t";
    static const char names[] = "\"\\bfnrt";
    const char *found = code > 0 && code < 0x80 ? strchr(codes, (int)code) : NULL;
    if (found != NULL) {
        char text[2] = {'\\', names[found - codes]};
        by_string_add(out, text, 2);
    } else if (code < 0x10000) {
        add_unit(out, code);
    } else {
        add_unit(out, 0xd800 + ((code - 0x10000) >> 10));
        add_unit(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
}

static void add_string(const json_writer *w, const char *s, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)s;
    bool ascii = (w->flags & JSON_ENSURE_ASCII) != 0;
    size_t run = 0; /* start of the bytes not added yet */
    by_string_add(w->out, "\"", 1);
    for (size_t i = 0; i < n;) {
        unsigned char c = bytes[i];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
            i++;
            continue;
        }
        uint32_t code;
        size_t length = by__utf8_next(bytes + i, n - i, &code);
        if (code == BY__INVALID) {
            code = 0xfffd;
            length = by__utf8_broken(bytes + i, n - i);
        }
        if (c >= 0x80 && !ascii && code != 0xfffd) {
            i += length;
            continue;
        }
        by_string_add(w->out, s + run, i - run);
        if (code == 0xfffd && !ascii) {
            by_string_add(w->out, "\xef\xbf\xbd", 3);
        } else {
            add_escape(w->out, code);
        }
        i += length;
        run = i;
    }
    by_string_add(w->out, s + run, n - run);
    by_string_add(w->out, "\"", 1);
}

/* ---- numbers ---- */

/* Adds `value` in decimal, with at least `width` digits. */
static char *add_digits(char *end, uint64_t value, size_t width)
{
    for (size_t i = 0; value > 0 || i < width; i++) {
        *--end = (char)('0' + value % 10);
        value /= 10;
    }
    return end;
}

/* Adds a number of few decimals. Returns false if it is none: whole / 10^k rounds correctly, so
 * that the first k with a whole number that gives the value back has the fewest digits. */
static bool add_short(by_string *out, double value)
{
    char text[48];
    char *end = text + sizeof text;
    double size = fabs(value);
    double unit = 1.0;
    for (size_t k = 0; k <= 15; k++) {
        double scaled = size * unit;
        if (!(scaled < 0x1p53)) {
            return false;
        }
        double whole = rint(scaled);
        if (whole / unit != size) {
            unit *= 10.0;
            continue;
        }
        if (k > 0 && size < 1e-4) {
            return false; /* with an exponent */
        }
        uint64_t units = (uint64_t)unit;
        char *at = k == 0 ? add_digits(end, 0, 1) : add_digits(end, (uint64_t)whole % units, k);
        *--at = '.';
        at = add_digits(at, (uint64_t)whole / units, 1);
        if (signbit(value)) {
            *--at = '-';
        }
        by_string_add(out, at, (size_t)(end - at));
        return true;
    }
    return false;
}

/* Prints with a precision, independently of the locale. */
static void format_digits(char text[40], double value, int digits)
{
    (void)snprintf(text, 40, "%.*g", digits, value);
    char *point = text + strspn(text, "-0123456789");
    size_t bytes = strcspn(point, "0123456789e");
    if (bytes > 0) {
        *point = '.';
        memmove(point + 1, point + bytes, strlen(point + bytes) + 1);
    }
}

/* Removes a '+' and zeros from the exponent, and marks a whole number as a real one, as jansson
 * does. */
static void tidy(char text[40])
{
    char *e = strchr(text, 'e');
    if (e == NULL) {
        if (strchr(text, '.') == NULL) {
            memcpy(text + strlen(text), ".0", 3);
        }
        return;
    }
    char *to = e + 1 + (e[1] == '-');
    char *from = e + 2;
    while (*from == '0') {
        from++;
    }
    memmove(to, from, strlen(from) + 1);
}

static void add_real(const json_writer *w, double value)
{
    char text[40];
    if (w->precision == 0) {
        if (value < 1e15 && value > -1e15 && add_short(w->out, value)) {
            return;
        }
        by__format_f64(text, value);
    } else {
        format_digits(text, value, w->precision);
    }
    tidy(text);
    by__string_append(w->out, text);
}

static void add_integer(by_string *out, json_int_t value)
{
    char text[24];
    char *end = text + sizeof text;
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char *at = add_digits(end, size, 1);
    if (value < 0) {
        *--at = '-';
    }
    by_string_add(out, at, (size_t)(end - at));
}

/* ---- values ---- */

static void add_value(const json_writer *w, const json_t *value, unsigned level);

/* Ends a line, if there are lines; `last` is what comes between items else. */
static void add_line(const json_writer *w, unsigned level, const char *otherwise)
{
    static const char blanks[] = "                                ";
    if (w->indent == 0) {
        by__string_append(w->out, otherwise);
        return;
    }
    by_string_add(w->out, "\n", 1);
    for (size_t left = (size_t)w->indent * level; left > 0;) {
        size_t n = left < sizeof blanks - 1 ? left : sizeof blanks - 1;
        by_string_add(w->out, blanks, n);
        left -= n;
    }
}

static const char *between(const json_writer *w)
{
    return (w->flags & JSON_COMPACT) != 0 ? "" : " ";
}

static void add_array(const json_writer *w, const json_t *list, unsigned level)
{
    size_t count = json_array_size(list);
    by_string_add(w->out, "[", 1);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            by_string_add(w->out, ",", 1);
        }
        add_line(w, level + 1, i > 0 ? between(w) : "");
        add_value(w, json_array_get(list, i), level + 1);
    }
    if (count > 0) {
        add_line(w, level, "");
    }
    by_string_add(w->out, "]", 1);
}

static void add_member(const json_writer *w, const char *key, const json_t *value, size_t index,
                       unsigned level)
{
    if (index > 0) {
        by_string_add(w->out, ",", 1);
    }
    add_line(w, level + 1, index > 0 ? between(w) : "");
    add_string(w, key, strlen(key));
    by__string_append(w->out, (w->flags & JSON_COMPACT) != 0 ? ":" : ": ");
    add_value(w, value, level + 1);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_sorted(const json_writer *w, json_t *object, unsigned level)
{
    const char **keys = NULL;
    const char *key;
    json_t *value;
    size_t n = 0;
    if (by__alloc((void **)&keys, json_object_size(object), sizeof *keys, "keys", NULL) != BY_OK) {
        w->out->failed = true;
        return;
    }
    json_object_foreach(object, key, value)
    {
        keys[n++] = key;
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) {
        add_member(w, keys[i], json_object_get(object, keys[i]), i, level);
    }
    free(keys);
}

static void add_object(const json_writer *w, json_t *object, unsigned level)
{
    const char *key;
    json_t *value;
    size_t i = 0;
    by_string_add(w->out, "{", 1);
    if ((w->flags & JSON_SORT_KEYS) != 0 && json_object_size(object) > 1) {
        add_sorted(w, object, level);
    } else {
        json_object_foreach(object, key, value)
        {
            add_member(w, key, value, i++, level);
        }
    }
    if (json_object_size(object) > 0) {
        add_line(w, level, "");
    }
    by_string_add(w->out, "}", 1);
}

static void add_value(const json_writer *w, const json_t *value, unsigned level)
{
    if (value == NULL || w->out->failed || level > BY__JSON_DEPTH + 64) {
        w->out->failed = true;
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        if (by__json_spelled(value) != NULL) {
            by__string_append(w->out, by__json_spelled(value));
        } else {
            add_object(w, (json_t *)(uintptr_t)value, level);
        }
        return;
    case JSON_ARRAY:
        add_array(w, value, level);
        return;
    case JSON_STRING:
        add_string(w, json_string_value(value), json_string_length(value));
        return;
    case JSON_INTEGER:
        add_integer(w->out, json_integer_value(value));
        return;
    case JSON_REAL:
        add_real(w, json_real_value(value));
        return;
    default:
        by__string_append(w->out, json_is_null(value)   ? "null"
                                  : json_is_true(value) ? "true"
                                                        : "false");
    }
}

void by__json_write(by_string *out, const json_t *value, size_t flags)
{
    json_writer w = {.out = out,
                     .flags = flags,
                     .indent = (unsigned)(flags & JSON_MAX_INDENT),
                     .precision = (int)(flags >> 11 & 0x1f)};
    add_value(&w, value, 0);
}

char *by__json_dump(const json_t *value, size_t flags)
{
    by_string text = {0};
    char *out = NULL;
    by__json_write(&text, value, flags);
    return by__string_release(&text, &out, NULL) == BY_OK ? out : NULL;
}

void by__json_compact(by_string *out, const char *text, size_t length)
{
    size_t run = 0;
    for (size_t i = 0; i < length;) {
        if (text[i] == '"') {
            i += by__json_string_span(text + i, length - i);
        } else if (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
            by_string_add(out, text + run, i - run);
            run = ++i;
        } else {
            i++;
        }
    }
    by_string_add(out, text + run, length - run);
}
