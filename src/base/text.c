#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

/* Makes room for n more bytes and the NUL. */
static bool grow(by_string *text, size_t n)
{
    size_t need;
    if (text->failed || !by__size_add(text->length, n, &need) || !by__size_add(need, 1, &need) ||
        by__reserve((void **)&text->data, &text->capacity, need, 1, NULL) != BY_OK) {
        text->failed = true;
        return false;
    }
    return true;
}

void by_string_add(by_string *text, const void *bytes, size_t n)
{
    if (grow(text, n)) {
        if (n > 0) {
            memcpy(text->data + text->length, bytes, n);
        }
        text->length += n;
        text->data[text->length] = '\0';
    }
}

void by__string_append(by_string *text, const char *s)
{
    by_string_add(text, s, strlen(s));
}

void by__string_append_html(by_string *text, const char *s)
{
    for (; *s != '\0'; s++) {
        const char *entity = *s == '<'   ? "&lt;"
                             : *s == '>' ? "&gt;"
                             : *s == '&' ? "&amp;"
                             : *s == '"' ? "&quot;"
                                         : NULL;
        if (entity != NULL) {
            by__string_append(text, entity);
        } else {
            by_string_add(text, s, 1);
        }
    }
}

static void add_printed(by_string *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && grow(text, (size_t)n)) {
        (void)vsnprintf(text->data + text->length, (size_t)n + 1, format, again);
        text->length += (size_t)n;
    } else {
        text->failed = true;
    }
    va_end(again);
}

void by_string_format(by_string *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_printed(text, format, args);
    va_end(args);
}

size_t by__utf8_span(const char *s, size_t n)
{
    uint32_t code;
    size_t length = by__utf8_next((const uint8_t *)s, n, &code);
    return code == BY__INVALID ? 0 : length;
}

static bool is_in(char c, uint64_t set)
{
    return (unsigned char)c < 64 && (set >> c & 1) != 0;
}

void by__trim(const char **s, size_t *n, uint64_t blanks)
{
    while (*n > 0 && is_in((*s)[0], blanks)) {
        (*s)++;
        (*n)--;
    }
    while (*n > 0 && is_in((*s)[*n - 1], blanks)) {
        (*n)--;
    }
}

size_t by__mark_span(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

bool by__utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t length = by__utf8_span(s + i, n - i);
        if (length == 0) {
            return false;
        }
        i += length;
    }
    return true;
}

/* Appends s[begin, end). */
static void add_run(by_string *text, const char *s, size_t begin, size_t end)
{
    if (end > begin) {
        by_string_add(text, s + begin, end - begin);
    }
}

void by__string_add_valid(by_string *text, const char *s, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)s;
    size_t begin = 0; /* start of the valid bytes not added yet */
    size_t i = 0;
    while (i < n) {
        size_t length = bytes[i] == 0 ? 0 : by__utf8_span(s + i, n - i);
        if (length == 0) {
            add_run(text, s, begin, i);
            by_string_add(text, "\xef\xbf\xbd", 3);
            begin = i + by__utf8_broken(bytes + i, n - i);
        }
        i = length == 0 ? begin : i + length;
    }
    add_run(text, s, begin, n);
}

void by_string_json(by_string *text, const char *s, size_t n)
{
    const unsigned char *bytes = (const unsigned char *)s;
    size_t begin = 0; /* start of the bytes not added yet that need no escape */
    size_t i = 0;
    by_string_add(text, "\"", 1);
    while (i < n) {
        unsigned char c = bytes[i];
        size_t length = by__utf8_span(s + i, n - i);
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f && length > 0) {
            i += length;
            continue;
        }
        add_run(text, s, begin, i);
        begin = i + 1;
        if (c == '"' || c == '\\') {
            char escape[2] = {'\\', (char)c};
            by_string_add(text, escape, sizeof escape);
        } else if (c == '\n') {
            by__string_append(text, "\\n");
        } else if (c < 0x20 || c == 0x7f) {
            static const char digits[] = "0123456789abcdef";
            char escape[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
            by_string_add(text, escape, sizeof escape);
        } else {
            by__string_append(text, "\xef\xbf\xbd");
            begin = i + by__utf8_broken(bytes + i, n - i);
        }
        i = begin;
    }
    add_run(text, s, begin, n);
    by_string_add(text, "\"", 1);
}

void by_string_free(by_string *text)
{
    free(text->data);
    *text = (by_string){0};
}

by_status by__string_release(by_string *text, char **out, by_error *error)
{
    by__string_append(text, "");
    by_status status = by_string_check(text, error);
    if (status == BY_OK) {
        *out = text->data;
        *text = (by_string){0};
    } else {
        by_string_free(text);
    }
    return status;
}

/* ---- banyan/text.h ---- */

by_status by_string_check(const by_string *string, by_error *error)
{
    return string->failed ? by_error_set(error, BY_EMEMORY, "out of memory: text") : BY_OK;
}

bool by_name_listed(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *p = names; p != NULL; p = strchr(p, '|')) {
        p += *p == '|';
        if (strncmp(p, name, length) == 0 && (p[length] == '|' || p[length] == '\0')) {
            return true;
        }
    }
    return false;
}

size_t by__edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a);
    size_t lb = strlen(b);
    size_t rows[3][64]; /* of the last characters of `a` */
    if (la > 63 || lb > 63) {
        return 64;
    }
    for (size_t j = 0; j <= lb; j++) {
        rows[0][j] = j;
    }
    for (size_t i = 1; i <= la; i++) {
        const size_t *before = rows[(i - 1) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t change = before[j - 1] + (a[i - 1] != b[j - 1]);
            size_t drop = before[j] + 1;
            size_t insert = row[j - 1] + 1;
            row[j] = change < drop ? change : drop;
            row[j] = insert < row[j] ? insert : row[j];
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                size_t swap = rows[(i - 2) % 3][j - 2] + 1;
                row[j] = swap < row[j] ? swap : row[j];
            }
        }
    }
    return rows[la % 3][lb];
}

const char *by_nearest_name(const char *name, const char *const *names, size_t count)
{
    size_t length = strlen(name);
    size_t limit = length <= 4 ? 1 : length < 9 ? 2 : length / 3;
    const char *best = NULL;
    size_t best_distance = limit + 1;
    for (size_t i = 0; i < count; i++) {
        if (length < 64 && strcasecmp(name, names[i]) == 0 && strcmp(name, names[i]) != 0) {
            return names[i]; /* another case of letters is the least difference */
        }
        size_t distance = by__edit_distance(name, names[i]);
        size_t other = strlen(names[i]);
        /* Names of which nothing is the same are not near, however short they are. */
        if (distance < best_distance && distance < (length > other ? length : other)) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

const char *by_format_bytes(char buffer[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < BY_ARRAY_LENGTH(units)) {
        value /= 1024.0;
        unit++;
    }
    (void)snprintf(buffer, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}
