#include "evaluate/python_literal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define MAX_DEPTH 32

typedef struct python_reader {
    const char *s;
    const char *end;
    unsigned depth;
} python_reader;

static void skip_blanks(python_reader *l)
{
    while (l->s < l->end && strchr(" \t\r\n", *l->s) != NULL && *l->s != '\0') {
        l->s++;
    }
}

/* Reads up to `digits` hexadecimal digits. */
static bool read_code(python_reader *l, int digits, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < digits; i++) {
        const char *at =
            l->s < l->end && *l->s != '\0' ? strchr("0123456789abcdef", *l->s | 0x20) : NULL;
        if (at == NULL) {
            return false;
        }
        *code = *code << 4 | (uint32_t)(at - "0123456789abcdef");
        l->s++;
    }
    return true;
}

static bool add_code(by_string *out, uint32_t code)
{
    uint8_t bytes[4];
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        return false;
    }
    by_string_add(out, bytes, by__utf8_put(bytes, code));
    return true;
}

/* Reads what follows a backslash. */
static bool read_escape(python_reader *l, by_string *out)
{
    static const char names[] = "\\'\"nrtabfv";
    static const char bytes[] = "\\'\"\n\r\t\a\b\f\v";
    uint32_t code;
    if (l->s >= l->end || *l->s == '\0') {
        return false;
    }
    char c = *l->s++;
    const char *at = strchr(names, c);
    if (at != NULL) {
        by_string_add(out, bytes + (at - names), 1);
        return true;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    return digits > 0 && read_code(l, digits, &code) && add_code(out, code);
}

static json_t *read_string(python_reader *l)
{
    by_string text = {0};
    char quote = *l->s++;
    json_t *value = NULL;
    bool good = true;
    by_string_add(&text, "", 0);
    while (good && l->s < l->end && *l->s != quote) {
        if (*l->s == '\\') {
            l->s++;
            good = read_escape(l, &text);
        } else {
            by_string_add(&text, l->s++, 1);
        }
    }
    if (good && l->s < l->end && !text.failed) {
        l->s++;
        value = json_stringn(text.data == NULL ? "" : text.data, text.length);
    }
    by_string_free(&text);
    return value;
}

static json_t *read_word(python_reader *l)
{
    char word[40];
    char *end;
    size_t n = 0;
    double real;
    while (l->s + n < l->end && strchr(",)] \t\r\n", l->s[n]) == NULL) {
        n++;
    }
    if (n == 0 || n >= sizeof word) {
        return NULL;
    }
    memcpy(word, l->s, n);
    word[n] = '\0';
    l->s += n;
    if (strcmp(word, "True") == 0 || strcmp(word, "False") == 0) {
        return json_boolean(word[0] == 'T');
    }
    if (strcmp(word, "None") == 0) {
        return json_null();
    }
    long long whole = strtoll(word, &end, 10);
    if (*end == '\0' && n < 19) {
        return json_integer(whole);
    }
    return by__parse_f64(word, &real) ? json_real(real) : NULL;
}

static json_t *read_value(python_reader *l);

static json_t *read_list(python_reader *l)
{
    char close = *l->s++ == '[' ? ']' : ')';
    json_t *list = json_array();
    bool good = list != NULL && ++l->depth <= MAX_DEPTH;
    bool more = true; /* a value may follow */
    for (skip_blanks(l); good && l->s < l->end && *l->s != close; skip_blanks(l)) {
        json_t *value = more ? read_value(l) : NULL;
        good = value != NULL && json_array_append_new(list, value) == 0;
        skip_blanks(l);
        more = l->s < l->end && *l->s == ',';
        l->s += more;
    }
    if (!good || l->s >= l->end) {
        json_decref(list);
        return NULL;
    }
    l->s++;
    l->depth--;
    return list;
}

static json_t *read_value(python_reader *l)
{
    skip_blanks(l);
    if (l->s >= l->end) {
        return NULL;
    }
    switch (*l->s) {
    case '[':
    case '(':
        return read_list(l);
    case '\'':
    case '"':
        return read_string(l);
    default:
        return read_word(l);
    }
}

json_t *by__evaluate_python_list(const char *text, size_t length)
{
    python_reader l = {.s = text, .end = text + length};
    skip_blanks(&l);
    json_t *value = l.s < l.end && (*l.s == '[' || *l.s == '(') ? read_value(&l) : NULL;
    skip_blanks(&l);
    if (value != NULL && l.s != l.end) {
        json_decref(value);
        return NULL;
    }
    return value;
}
