/* Writes patterns of Python as PCRE2 reads them. Each escape and each kind of group that is not
 * known to mean the same is refused or written otherwise. */
#include <string.h>

#include "text/pattern/pattern.h"

typedef struct pattern_reader {
    by_string *out;
    const char *text;
    size_t n;
    size_t at;
    by_error *error;
} pattern_reader;

by_status by__pattern_fail(const char *text, size_t length, size_t at, const char *what,
                           by_error *error)
{
    size_t shown = length < 80 ? length : 80;
    while (shown < length && shown > 0 && (text[shown] & 0xc0) == 0x80) { /* within a character */
        shown--;
    }
    return by_error_set(error, BY_EFORMAT, "pattern \"%.*s\": near byte %zu: %s", (int)shown, text,
                        at < length ? at : length, what);
}

static by_status fail(const pattern_reader *r, const char *what)
{
    return by__pattern_fail(r->text, r->n, r->at, what, r->error);
}

/* The character so many bytes ahead; NUL behind the end. */
static char ahead(const pattern_reader *r, size_t n)
{
    return r->n - r->at > n ? r->text[r->at + n] : '\0';
}

static bool begins(const pattern_reader *r, const char *what)
{
    size_t n = strlen(what);
    return r->n - r->at >= n && memcmp(r->text + r->at, what, n) == 0;
}

static void copy(pattern_reader *r, size_t n)
{
    n = n < r->n - r->at ? n : r->n - r->at;
    by_string_add(r->out, r->text + r->at, n);
    r->at += n;
}

static bool is_in(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* How many of the characters from so many bytes ahead on, `most` at most, are of a set. */
static size_t span(const pattern_reader *r, size_t from, size_t most, const char *set)
{
    size_t n = 0;
    while (n < most && is_in(ahead(r, from + n), set)) {
        n++;
    }
    return n;
}

/* ---- escapes ---- */

/* \x, \u and \U with as many digits as each has. */
static by_status write_hex(pattern_reader *r, size_t digits)
{
    if (span(r, 2, digits, "0123456789abcdefABCDEF") != digits) {
        return fail(r, "an escape has too few hexadecimal digits");
    }
    by_string_format(r->out, "\\x{%.*s}", (int)digits, r->text + r->at + 2);
    r->at += 2 + digits;
    return BY_OK;
}

/* A backslash and digits: a character in octal if they begin with 0, are three octal ones, or
 * stand in a set, else a group. */
static by_status write_number(pattern_reader *r, bool in_set)
{
    size_t octal = span(r, 1, 3, "01234567");
    if (octal == 3 || ahead(r, 1) == '0' || in_set) {
        if (octal == 0 || (octal == 3 && ahead(r, 1) > '3')) {
            return fail(r, "an escape in octal is not between \\0 and \\377");
        }
        by_string_format(r->out, "\\o{%.*s}", (int)octal, r->text + r->at + 1);
        r->at += 1 + octal;
        return BY_OK;
    }
    size_t digits = span(r, 1, 2, "0123456789");
    by_string_format(r->out, "\\g{%.*s}", (int)digits, r->text + r->at + 1);
    r->at += 1 + digits;
    return BY_OK;
}

static by_status write_escape(pattern_reader *r, bool in_set)
{
    char c = ahead(r, 1);
    if (c >= '0' && c <= '9') {
        return write_number(r, in_set);
    }
    if (is_in(c, "xuU")) {
        return write_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    /* \v is a class for PCRE2, and \Z is also before a newline; its \z is before bytes that are
     * not UTF-8, too, where $ is not. */
    if (c == 'v' || (c == 'Z' && !in_set)) {
        by__string_append(r->out, c == 'v' ? "\\x{b}" : "(?:(?-m:$)(?!\\n))");
        r->at += 2;
        return BY_OK;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && !is_in(c, in_set ? "abdfnrstwDSW" : "abdfnrstwABDSW")) {
        return fail(r, "an escape is unknown");
    }
    copy(r, 2);
    return BY_OK;
}

/* ---- sets, groups, repetitions ---- */

/* A set, in which [ and : are characters, never those of a class [:name:]. */
static by_status write_set(pattern_reader *r)
{
    copy(r, ahead(r, 1) == '^' ? 2 : 1);
    for (bool first = true; first || ahead(r, 0) != ']'; first = false) {
        if (r->at == r->n) {
            return fail(r, "a set [ is not ended by ]");
        }
        if (ahead(r, 0) == '\\') {
            BY_TRY(write_escape(r, true));
            continue;
        }
        by__string_append(r->out, is_in(ahead(r, 0), "[]:.=") ? "\\" : "");
        copy(r, 1);
    }
    copy(r, 1);
    return BY_OK;
}

/* (?(1)...) and (?(name)...), but for (?(R)...) and others that PCRE2 has a meaning for. */
static by_status write_condition(pattern_reader *r)
{
    size_t n = 3;
    while (n < r->n - r->at && !is_in(ahead(r, n), "()<>?'!=*")) {
        n++;
    }
    if (n == 3 || ahead(r, n) != ')') {
        return fail(r, "a condition is neither the number nor the name of a group");
    }
    bool number = span(r, 3, n - 3, "0123456789") == n - 3;
    by_string_format(r->out, number ? "(?(%.*s)" : "(?(<%.*s>)", (int)(n - 3), r->text + r->at + 3);
    r->at += n + 1;
    return BY_OK;
}

/* What begins a group, up to where its pattern begins. */
static by_status write_group(pattern_reader *r)
{
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?P<", "(?P="};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        if (begins(r, kinds[i])) {
            copy(r, strlen(kinds[i]));
            return BY_OK;
        }
    }
    if (begins(r, "(*")) {
        return fail(r, "nothing to repeat");
    }
    if (!begins(r, "(?")) {
        copy(r, 1);
        return BY_OK;
    }
    if (begins(r, "(?(")) {
        return write_condition(r);
    }
    if (begins(r, "(?#")) {
        const char *end = memchr(r->text + r->at, ')', r->n - r->at);
        if (end == NULL) {
            return fail(r, "a comment is not ended by )");
        }
        r->at = (size_t)(end - r->text) + 1;
        return BY_OK;
    }
    size_t flags = span(r, 2, SIZE_MAX, "ims-");
    if (flags == 0 || !is_in(ahead(r, 2 + flags), "):")) {
        return fail(r, "this kind of group, or a flag other than i, m and s, is not supported");
    }
    copy(r, 2 + flags + 1);
    return BY_OK;
}

/* {m}, {m,}, {,n}, {m,n} and {,}. Other braces are text, of which some are a repetition for newer
 * versions of PCRE2. */
static void write_braces(pattern_reader *r)
{
    static const char digits[] = "0123456789";
    size_t least = span(r, 1, SIZE_MAX, digits);
    size_t comma = ahead(r, 1 + least) == ',';
    size_t most = comma == 1 ? span(r, 2 + least, SIZE_MAX, digits) : 0;
    if (ahead(r, 1 + least + comma + most) != '}' || least + comma == 0) {
        by__string_append(r->out, "\\");
        copy(r, 1);
        return;
    }
    copy(r, 1);
    by__string_append(r->out, least == 0 ? "0" : "");
    copy(r, least + comma + most + 1);
}

by_status by__pattern_translate(by_string *out, const char *text, size_t length, by_error *error)
{
    pattern_reader r = {.out = out, .text = text, .n = length, .error = error};
    while (r.at < r.n) {
        switch (text[r.at]) {
        case '\\':
            BY_TRY(write_escape(&r, false));
            break;
        case '[':
            BY_TRY(write_set(&r));
            break;
        case '(':
            BY_TRY(write_group(&r));
            break;
        case '{':
            write_braces(&r);
            break;
        default:
            copy(&r, 1);
        }
    }
    return by_string_check(out, error);
}
