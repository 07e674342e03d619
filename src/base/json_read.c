#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

/* The key of the object that stands for a number: no text, which is UTF-8, has it. */
#define SPELLED "\xff"

/* U+FFFD */
#define REPLACEMENT "\xef\xbf\xbd"

typedef struct json_reader {
    const unsigned char *begin;
    const unsigned char *at;
    const unsigned char *end;
    size_t flags;
    unsigned depth;
    by_string string; /* of a string with escapes */
    by_string keys;   /* of the objects being read, each with a NUL */
    json_error_t *error;
} json_reader;

/* ---- messages ---- */

static bool fail(json_reader *r, enum json_error_code code, const char *what)
{
    json_error_t *e = r->error;
    if (e == NULL) {
        return false;
    }
    *e = (json_error_t){.line = 1, .position = (int)(r->at - r->begin)};
    for (const unsigned char *s = r->begin; s < r->at; s++) {
        e->line += *s == '\n';
        e->column = *s == '\n' ? 0 : e->column + ((*s & 0xc0) != 0x80);
    }
    size_t near = 0;
    while (near < 24 && r->at + near < r->end && r->at[near] > ' ' && r->at[near] < 0x7f) {
        near++;
    }
    if (r->at == r->end) {
        (void)snprintf(e->text, sizeof e->text - 1, "%s near end of file", what);
    } else {
        (void)snprintf(e->text, sizeof e->text - 1, near > 0 ? "%s near '%.*s'" : "%s", what,
                       (int)near, (const char *)r->at);
    }
    (void)snprintf(e->source, sizeof e->source, "<buffer>");
    e->text[sizeof e->text - 1] = (char)code; /* where jansson has it */
    return false;
}

static bool lacks_memory(json_reader *r)
{
    return fail(r, json_error_out_of_memory, "out of memory");
}

/* ---- strings ---- */

/* Skips bytes that stand for themselves: not below U+0020, not '"', not '\\', not beyond ASCII. */
static const unsigned char *skip_plain(const unsigned char *s, const unsigned char *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t highs = ones << 7;
    while (end - s >= 8) {
        uint64_t word;
        memcpy(&word, s, 8);
        uint64_t quote = word ^ (ones * '"');
        uint64_t slash = word ^ (ones * '\\');
        uint64_t found = (word - ones * 0x20) | (quote - ones) | (slash - ones) | word;
        if ((found & highs) != 0) { /* or a neighbour of one */
            break;
        }
        s += 8;
    }
    while (s < end && *s >= 0x20 && *s < 0x80 && *s != '"' && *s != '\\') {
        s++;
    }
    return s;
}

/* Reads four hexadecimal digits; -1: there are none. */
static int32_t read_hex(const unsigned char *s, const unsigned char *end)
{
    int32_t code = 0;
    for (int i = 0; i < 4; i++) {
        if (s + i >= end) {
            return -1;
        }
        unsigned char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return -1;
        }
        code = code << 4 | digit;
    }
    return code;
}

static void add_code(by_string *out, uint32_t code)
{
    uint8_t bytes[4];
    by_string_add(out, bytes, by__utf8_put(bytes, code));
}

/* Reads what follows "\u", of which *changed says that it is not what was written. */
static bool read_unicode(json_reader *r, bool nul, bool *changed)
{
    int32_t code = read_hex(r->at, r->end);
    if (code < 0) {
        return fail(r, json_error_invalid_syntax, "invalid escape");
    }
    r->at += 4;
    if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' &&
        r->at[1] == 'u') {
        int32_t low = read_hex(r->at + 2, r->end);
        if (low >= 0xdc00 && low < 0xe000) {
            r->at += 6;
            add_code(&r->string,
                     0x10000 + ((uint32_t)(code - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
            return true;
        }
    }
    bool half = code >= 0xd800 && code < 0xe000;
    if (half || (code == 0 && !nul)) {
        *changed = true;
        by_string_add(&r->string, REPLACEMENT, 3);
    } else {
        add_code(&r->string, (uint32_t)code);
    }
    return true;
}

static bool read_escape(json_reader *r, bool nul, bool *changed)
{
    static const char names[] = "\"\\/bfnrt";
    static const char codes[] = "\"\\/\b\f\n\r\t";
    r->at++;
    const char *found = r->at < r->end && *r->at != '\0' ? strchr(names, *r->at) : NULL;
    if (found != NULL) {
        by_string_add(&r->string, &codes[found - names], 1);
        r->at++;
        return true;
    }
    if (r->at == r->end || *r->at != 'u') {
        return fail(r, json_error_invalid_syntax, "invalid escape");
    }
    r->at++;
    return read_unicode(r, nul, changed);
}

/* Reads a string from its first quote. *s is in the text, or in r->string until the next one. */
static bool read_string(json_reader *r, const char **s, size_t *n, bool nul, bool *changed)
{
    const unsigned char *run = ++r->at; /* the bytes not added yet */
    bool escaped = false;
    r->string.length = 0;
    for (;;) {
        r->at = skip_plain(r->at, r->end);
        unsigned char c = r->at < r->end ? *r->at : '\0';
        if (c == '"') {
            break;
        }
        if (c >= 0x80) {
            size_t length = by__utf8_span((const char *)r->at, (size_t)(r->end - r->at));
            if (length == 0) {
                return fail(r, json_error_invalid_utf8, "invalid UTF-8");
            }
            r->at += length;
        } else if (c == '\\') {
            by_string_add(&r->string, run, (size_t)(r->at - run));
            escaped = true;
            if (!read_escape(r, nul, changed)) {
                return false;
            }
            run = r->at;
        } else {
            return fail(r, json_error_invalid_syntax,
                        r->at == r->end ? "a string without its end"
                                        : "a control character in a string");
        }
    }
    if (escaped) {
        by_string_add(&r->string, run, (size_t)(r->at - run));
    }
    if (r->string.failed) {
        return lacks_memory(r);
    }
    *s = escaped ? r->string.data : (const char *)run;
    *n = escaped ? r->string.length : (size_t)(r->at - run);
    r->at++;
    return true;
}

/* ---- numbers ---- */

/* The parts of a number's text. */
typedef struct json_number {
    const char *text;
    size_t length;
    uint64_t digits; /* without the point, if there are at most 19 */
    size_t count;    /* of digits, without zeros in front */
    long exponent;   /* of ten, by which they are multiplied; bounded */
    bool negative;
    bool real;
} json_number;

static void add_digit(json_number *n, unsigned char c)
{
    if (n->count > 0 || c != '0') {
        n->digits = n->count < 19 ? n->digits * 10 + (uint64_t)(c - '0') : n->digits;
        n->count++;
    }
}

static bool is_digit(const json_reader *r)
{
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static bool scan_exponent(json_reader *r, json_number *n)
{
    long exponent = 0;
    r->at++;
    bool minus = r->at < r->end && *r->at == '-';
    r->at += r->at < r->end && (*r->at == '-' || *r->at == '+');
    if (!is_digit(r)) {
        return fail(r, json_error_invalid_syntax, "a number without its exponent");
    }
    for (; is_digit(r); r->at++) {
        exponent = exponent < 100000 ? exponent * 10 + (*r->at - '0') : exponent;
    }
    n->exponent += minus ? -exponent : exponent;
    n->real = true;
    return true;
}

static bool scan_number(json_reader *r, json_number *n)
{
    const unsigned char *begin = r->at;
    *n = (json_number){.text = (const char *)begin, .negative = *begin == '-'};
    r->at += n->negative;
    if (!is_digit(r)) {
        return fail(r, json_error_invalid_syntax, "invalid token");
    }
    if (*r->at == '0') {
        r->at++;
    } else {
        for (; is_digit(r); r->at++) {
            add_digit(n, *r->at);
        }
    }
    if (is_digit(r)) {
        return fail(r, json_error_invalid_syntax, "a number that begins with 0");
    }
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        n->real = true;
        if (!is_digit(r)) {
            return fail(r, json_error_invalid_syntax, "a number without digits after its point");
        }
        for (; is_digit(r); r->at++) {
            add_digit(n, *r->at);
            n->exponent -= n->exponent > -100000;
        }
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E') && !scan_exponent(r, n)) {
        return false;
    }
    n->length = (size_t)(r->at - begin);
    return true;
}

/* The value of a number as a double, infinite if it is beyond. Returns false when memory is
 * exhausted. */
static bool real_of(json_reader *r, const json_number *n, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    long e = n->exponent;
    if (n->count <= 19 && n->digits <= (UINT64_C(1) << 53) && e >= -22 && e <= 22) {
        /* Both are exact, so the one operation rounds correctly. */
        double value = e < 0 ? (double)n->digits / tens[-e] : (double)n->digits * tens[e];
        *out = n->negative ? -value : value;
        return true;
    }
    r->string.length = 0;
    by_string_add(&r->string, n->text, n->length);
    return !r->string.failed && by__parse_f64(r->string.data, out);
}

static json_t *spell(const json_number *n)
{
    json_t *out = json_object();
    if (json_object_set_new_nocheck(out, SPELLED, json_stringn_nocheck(n->text, n->length)) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static bool read_number(json_reader *r, json_t **out)
{
    json_number n;
    double real;
    if (!scan_number(r, &n)) {
        return false;
    }
    if (out == NULL) {
        return true;
    }
    uint64_t most = (uint64_t)INT64_MAX + n.negative;
    if (!n.real && (r->flags & JSON_DECODE_INT_AS_REAL) == 0) {
        bool held = n.count <= 19 && n.digits <= most;
        *out = !held        ? spell(&n)
               : n.negative ? json_integer((json_int_t)(0 - n.digits))
                            : json_integer((json_int_t)n.digits);
    } else if (!real_of(r, &n, &real)) {
        return lacks_memory(r);
    } else {
        *out = isinf(real) || (r->flags & BY__JSON_SPELLED) != 0 ? spell(&n) : json_real(real);
    }
    return *out != NULL ? true : lacks_memory(r);
}

/* ---- values ---- */

static void skip_blanks(json_reader *r)
{
    while (r->at < r->end &&
           (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r')) {
        r->at++;
    }
}

/* Takes a character of the syntax, if it comes next. */
static bool accept(json_reader *r, char c)
{
    skip_blanks(r);
    if (r->at < r->end && *r->at == (unsigned char)c) {
        r->at++;
        return true;
    }
    return false;
}

/* Reads a value; out == NULL: checks it. */
static bool read_value(json_reader *r, json_t **out);

static bool read_items(json_reader *r, json_t *list)
{
    if (accept(r, ']')) {
        return true;
    }
    do {
        json_t *item = NULL;
        if (!read_value(r, list == NULL ? NULL : &item)) {
            return false;
        }
        if (list != NULL && json_array_append_new(list, item) != 0) {
            return lacks_memory(r);
        }
    } while (accept(r, ','));
    return accept(r, ']') ? true : fail(r, json_error_invalid_syntax, "']' expected");
}

/* What a member is wanted for. */
typedef struct wanted_member {
    const char *name;
    size_t length;
    json_t *value;
    const unsigned char *begin; /* its text; NULL: there is none */
    const unsigned char *end;
    bool text; /* only that is wanted */
} wanted_member;

static bool fail_twice(json_reader *r, const char *key)
{
    char what[64];
    (void)snprintf(what, sizeof what, "duplicate object key \"%.32s\"", key);
    return fail(r, json_error_duplicate_key, what);
}

/* Puts a value, which is taken, into an object; its key is the last of r->keys. */
static bool put(json_reader *r, json_t *object, size_t key, bool changed, json_t *value)
{
    size_t before = json_object_size(object);
    if (json_object_set_new_nocheck(object, r->keys.data + key, value) != 0) {
        return lacks_memory(r);
    }
    /* Keys that were changed may have become the same. */
    if (changed || (r->flags & JSON_REJECT_DUPLICATES) == 0 || json_object_size(object) > before) {
        return true;
    }
    return fail_twice(r, r->keys.data + key);
}

static bool read_member(json_reader *r, json_t *object, wanted_member *only)
{
    const char *s = "";
    size_t n = 0;
    bool changed = false;
    json_t *value = NULL;
    size_t key = r->keys.length;
    skip_blanks(r);
    if (r->at == r->end || *r->at != '"') {
        return fail(r, json_error_invalid_syntax, "string or '}' expected");
    }
    if (!read_string(r, &s, &n, false, &changed)) {
        return false;
    }
    bool wants =
        object != NULL || (only != NULL && n == only->length && memcmp(s, only->name, n) == 0);
    if (object != NULL) {
        by_string_add(&r->keys, s, n);
        by_string_add(&r->keys, "", 1);
        if (r->keys.failed) {
            return lacks_memory(r);
        }
    }
    if (!accept(r, ':')) {
        return fail(r, json_error_invalid_syntax, "':' expected");
    }
    skip_blanks(r);
    const unsigned char *begin = r->at;
    if (!read_value(r, wants && (only == NULL || !only->text) ? &value : NULL)) {
        return false;
    }
    if (object != NULL) {
        bool good = put(r, object, key, changed, value);
        r->keys.length = key;
        return good;
    }
    if (wants) {
        if ((r->flags & JSON_REJECT_DUPLICATES) != 0 && only->begin != NULL && !changed) {
            json_decref(value);
            return fail_twice(r, only->name);
        }
        json_decref(only->value);
        only->value = value;
        only->begin = begin;
        only->end = r->at;
    }
    return true;
}

/* Reads an object behind its brace: all of it, one member, or (both NULL) checks it. */
static bool read_members(json_reader *r, json_t *object, wanted_member *only)
{
    if (accept(r, '}')) {
        return true;
    }
    do {
        if (!read_member(r, object, only)) {
            return false;
        }
    } while (accept(r, ','));
    return accept(r, '}') ? true : fail(r, json_error_invalid_syntax, "'}' expected");
}

static bool read_container(json_reader *r, json_t **out)
{
    bool list = *r->at == '[';
    json_t *made = NULL;
    if (r->depth == BY__JSON_DEPTH) {
        return fail(r, json_error_stack_overflow, "maximum parsing depth reached");
    }
    if (out != NULL) {
        made = list ? json_array() : json_object();
        if (made == NULL) {
            return lacks_memory(r);
        }
    }
    r->depth++;
    r->at++;
    bool good = list ? read_items(r, made) : read_members(r, made, NULL);
    r->depth--;
    if (!good) {
        json_decref(made);
        return false;
    }
    if (out != NULL) {
        *out = made;
    }
    return true;
}

static bool read_word(json_reader *r, json_t **out)
{
    static const char *const words[] = {"null", "false", "true"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->at) >= n && memcmp(r->at, words[i], n) == 0) {
            r->at += n;
            if (out != NULL) {
                *out = i == 0 ? json_null() : json_boolean(i == 2);
            }
            return true;
        }
    }
    return fail(r, json_error_invalid_syntax,
                r->at == r->end ? "a value expected" : "invalid token");
}

static bool read_value(json_reader *r, json_t **out)
{
    skip_blanks(r);
    unsigned char c = r->at < r->end ? *r->at : '\0';
    if (c == '{' || c == '[') {
        return read_container(r, out);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return read_number(r, out);
    }
    if (c != '"') {
        return read_word(r, out);
    }
    const char *s = "";
    size_t n = 0;
    bool changed = false;
    if (!read_string(r, &s, &n, (r->flags & JSON_ALLOW_NUL) != 0, &changed)) {
        return false;
    }
    if (out != NULL) {
        *out = json_stringn_nocheck(s, n);
    }
    return out == NULL || *out != NULL ? true : lacks_memory(r);
}

/* ---- texts ---- */

static json_reader open_reader(const char *text, size_t length, size_t flags, json_error_t *error)
{
    const unsigned char *begin = (const unsigned char *)text;
    if (error != NULL) {
        *error = (json_error_t){.line = -1, .column = -1};
    }
    return (json_reader){.begin = begin,
                         .at = begin + by__mark_span(text, length),
                         .end = begin + length,
                         .flags = flags,
                         .error = error};
}

/* Whether nothing follows. */
static bool check_end(json_reader *r)
{
    skip_blanks(r);
    return r->at == r->end ? true
                           : fail(r, json_error_end_of_input_expected, "end of file expected");
}

static void close_reader(json_reader *r)
{
    by_string_free(&r->string);
    by_string_free(&r->keys);
}

json_t *by_json_load(const char *text, size_t length, size_t flags, json_error_t *error)
{
    json_t *out = NULL;
    json_reader r = open_reader(text, length, flags, error);
    skip_blanks(&r);
    bool holds = r.at < r.end && (*r.at == '{' || *r.at == '[');
    if (!holds && (flags & JSON_DECODE_ANY) == 0) {
        (void)fail(&r, json_error_invalid_syntax, "'[' or '{' expected");
    } else if (read_value(&r, &out) && !check_end(&r)) {
        json_decref(out);
        out = NULL;
    }
    close_reader(&r);
    return out;
}

json_t *by__json_read(const char *text, size_t flags, json_error_t *error)
{
    return by_json_load(text == NULL ? "" : text, text == NULL ? 0 : strlen(text), flags, error);
}

/* Reads what is wanted of an object. Returns false if the text is none. */
static bool find_member(wanted_member *only, const char *text, size_t length, size_t flags,
                        json_error_t *error)
{
    json_reader r = open_reader(text, length, flags, error);
    only->length = strlen(only->name);
    skip_blanks(&r);
    bool object = r.at < r.end && *r.at == '{';
    r.at += object;
    r.depth = 1;
    bool good = object ? read_members(&r, NULL, only) : read_value(&r, NULL);
    good = good && check_end(&r);
    close_reader(&r);
    if (!good || !object) {
        json_decref(only->value);
        return false;
    }
    return true;
}

bool by__json_member(json_t **out, const char *text, size_t length, const char *name, size_t flags,
                     json_error_t *error)
{
    wanted_member only = {.name = name};
    if (!find_member(&only, text, length, flags, error)) {
        return false;
    }
    *out = only.value;
    return true;
}

bool by__json_member_text(const char **at, size_t *n, const char *text, size_t length,
                          const char *name)
{
    wanted_member only = {.name = name, .text = true};
    if (!find_member(&only, text, length, 0, NULL) || only.begin == NULL) {
        return false;
    }
    *at = (const char *)only.begin;
    *n = (size_t)(only.end - only.begin);
    return true;
}

size_t by__json_string_span(const char *s, size_t n)
{
    size_t i = 1;
    while (i < n && s[i] != '"') {
        i += s[i] == '\\' ? 2 : 1;
    }
    return i < n ? i + 1 : n;
}

/* ---- numbers that are spelled ---- */

const char *by__json_spelled(const json_t *value)
{
    return json_object_size(value) == 1 ? json_string_value(json_object_get(value, SPELLED)) : NULL;
}

bool by__json_is_number(const json_t *value)
{
    return json_is_number(value) || by__json_spelled(value) != NULL;
}

double by__json_double(const json_t *value)
{
    const char *spelled = by__json_spelled(value);
    double out = json_number_value(value);
    return spelled != NULL && !by__parse_f64(spelled, &out) ? (double)NAN : out;
}

const char *by__json_string(const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && strlen(text) == json_string_length(value) ? text : NULL;
}
