/* Splits a template into tokens, with Jinja's whitespace rules, unless it is plain with those for
 * trim_blocks and lstrip_blocks: a newline after a block is dropped, and so are blanks between the
 * beginning of a line and a block; a '-' at a delimiter strips all whitespace on its side, a '+'
 * keeps it. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"

typedef struct lexer {
    const by__template *tpl;
    const char *s;
    size_t n;
    size_t at;
    size_t counted; /* end of the text whose lines were counted */
    unsigned line;
    bool line_start; /* the last input ended with a newline */
    by__template_token *tokens;
    size_t count;
    size_t capacity;
    by_error *error;
} lexer;

static by_status fail(const lexer *l, const char *what)
{
    return by_error_set(l->error, BY_EFORMAT, "%s:%u: %s", l->tpl->name, l->line, what);
}

static void count_lines(lexer *l, size_t to)
{
    for (; l->counted < to; l->counted++) {
        l->line += l->s[l->counted] == '\n' ? 1 : 0;
    }
}

static by_status add(lexer *l, by__template_token_kind kind, size_t begin, size_t end)
{
    BY_TRY(
        by__reserve((void **)&l->tokens, &l->capacity, l->count + 1, sizeof *l->tokens, l->error));
    l->tokens[l->count++] = (by__template_token){kind, l->line, l->s + begin, end - begin};
    return BY_OK;
}

static bool has(const lexer *l, size_t at, const char *text)
{
    size_t length = strlen(text);
    return l->n - at >= length && memcmp(l->s + at, text, length) == 0;
}

static size_t skip_space(const lexer *l, size_t at)
{
    size_t length;
    while (at < l->n && by__template_is_space(l->s + at, l->n - at, &length)) {
        at += length;
    }
    return at;
}

/* Adds the text before a delimiter at `end`, stripped according to the delimiter's sign. */
static by_status add_text(lexer *l, size_t end, char sign, bool lstrip)
{
    size_t begin = l->at;
    size_t stop = end;
    if (sign == '-') {
        const char *data = l->s + begin;
        size_t length = end - begin;
        by__template_strip(&data, &length, NULL, false, true);
        stop = begin + length;
    } else if (sign != '+' && lstrip && !l->tpl->plain) {
        size_t line = end;
        while (line > begin && l->s[line - 1] != '\n') {
            line--;
        }
        if ((line > begin || l->line_start) && skip_space(l, line) >= end) {
            stop = line;
        }
    }
    count_lines(l, begin);
    return stop > begin ? add(l, BY__TOKEN_TEXT, begin, stop) : BY_OK;
}

/* Continues after a delimiter that ends at `at`. */
static void continue_at(lexer *l, size_t at, bool strip, bool trim)
{
    if (strip) {
        at = skip_space(l, at);
    } else if (trim && !l->tpl->plain && at < l->n && l->s[at] == '\n') {
        at++;
    }
    l->line_start = at > 0 && l->s[at - 1] == '\n';
    l->at = at;
    count_lines(l, at);
}

static by_status lex_comment(lexer *l, size_t begin)
{
    for (size_t at = begin + 2; at + 1 < l->n; at++) {
        if (l->s[at] == '#' && l->s[at + 1] == '}') {
            char sign = at > begin + 2 ? l->s[at - 1] : ' ';
            continue_at(l, at + 2, sign == '-', sign != '+');
            return BY_OK;
        }
    }
    return fail(l, "a comment {# is not ended by #}");
}

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static bool is_digit(const lexer *l, size_t at)
{
    return at < l->n && l->s[at] >= '0' && l->s[at] <= '9';
}

static by_status lex_number(lexer *l)
{
    size_t begin = l->at;
    size_t at = begin;
    bool real = false;
    /* After a point it is an index: x.0.1 */
    const by__template_token *before = l->count > 0 ? &l->tokens[l->count - 1] : NULL;
    bool element = before != NULL && before->kind == BY__TOKEN_OPERATOR && before->data[0] == '.';
    while (is_digit(l, at) || (at < l->n && l->s[at] == '_' && is_digit(l, at + 1))) {
        at++;
    }
    if (!element && at < l->n && l->s[at] == '.' && is_digit(l, at + 1)) {
        real = true;
        for (at++; is_digit(l, at);) {
            at++;
        }
    }
    if (!element && at < l->n && (l->s[at] == 'e' || l->s[at] == 'E')) {
        size_t digits = at + 1;
        digits += digits < l->n && (l->s[digits] == '+' || l->s[digits] == '-') ? 1 : 0;
        if (is_digit(l, digits)) {
            real = true;
            for (at = digits; is_digit(l, at);) {
                at++;
            }
        }
    }
    l->at = at;
    return add(l, real ? BY__TOKEN_REAL : BY__TOKEN_INTEGER, begin, at);
}

static by_status lex_string(lexer *l)
{
    char quote = l->s[l->at];
    for (size_t at = l->at + 1; at < l->n; at++) {
        if (l->s[at] == '\\') {
            at++;
        } else if (l->s[at] == quote) {
            BY_TRY(add(l, BY__TOKEN_STRING, l->at, at + 1));
            l->at = at + 1;
            count_lines(l, l->at);
            return BY_OK;
        }
    }
    return fail(l, "a string is not ended");
}

static by_status lex_operator(lexer *l, size_t *depth)
{
    static const char *const operators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                            "/",  "%",  "~",  "<",  ">",  "=",  ".", ",", ":",
                                            "|",  "(",  ")",  "[",  "]",  "{",  "}", ";"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(operators); i++) {
        if (has(l, l->at, operators[i])) {
            char c = operators[i][0];
            *depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
            *depth -= (c == ')' || c == ']' || c == '}') && *depth > 0 ? 1 : 0;
            if (*depth > BY__TEMPLATE_MAX_DEPTH) {
                return fail(l, "constructs are nested too deeply");
            }
            size_t end = l->at + strlen(operators[i]);
            BY_TRY(add(l, BY__TOKEN_OPERATOR, l->at, end));
            l->at = end;
            return BY_OK;
        }
    }
    char what[64];
    (void)snprintf(what, sizeof what, "the byte 0x%02x is not part of an expression",
                   (unsigned)(uint8_t)l->s[l->at]);
    return fail(l, what);
}

/* Reads the inside of {{ }} or {% %}, after the opening delimiter. */
static by_status lex_inside(lexer *l, bool block)
{
    const char *end = block ? "%}" : "}}";
    size_t depth = 0; /* depth of brackets, inside which }} does not end the block */
    for (;;) {
        l->at = skip_space(l, l->at);
        count_lines(l, l->at);
        if (l->at >= l->n) {
            return fail(l, block ? "a block {% is not ended by %}"
                                 : "an expression {{ is not ended by }}");
        }
        char c = l->s[l->at];
        bool sign = c == '-' || (c == '+' && block);
        if (depth == 0 && (has(l, l->at, end) || (sign && has(l, l->at + 1, end)))) {
            BY_TRY(add(l, block ? BY__TOKEN_BLOCK_END : BY__TOKEN_PRINT_END, l->at, l->at));
            continue_at(l, l->at + (sign ? 3 : 2), c == '-', block && c != '+');
            return BY_OK;
        }
        if (is_name(c, true)) {
            size_t begin = l->at;
            while (l->at < l->n && is_name(l->s[l->at], false)) {
                l->at++;
            }
            BY_TRY(add(l, BY__TOKEN_NAME, begin, l->at));
        } else if (is_digit(l, l->at)) {
            BY_TRY(lex_number(l));
        } else if (c == '\'' || c == '"') {
            BY_TRY(lex_string(l));
        } else {
            BY_TRY(lex_operator(l, &depth));
        }
    }
}

/* Matches a tag of one word: {% raw %}, {% endraw %}. Returns its end, 0 for anything else, and the
 * signs at its delimiters. */
static size_t word_tag(const lexer *l, size_t at, const char *word, char *open, char *close)
{
    if (!has(l, at, "{%")) {
        return 0;
    }
    *open = at + 2 < l->n ? l->s[at + 2] : ' ';
    at = skip_space(l, at + (*open == '-' || *open == '+' ? 3 : 2));
    if (!has(l, at, word)) {
        return 0;
    }
    at = skip_space(l, at + strlen(word));
    *close = at < l->n ? l->s[at] : ' ';
    at += *close == '-' || *close == '+' ? 1 : 0;
    return has(l, at, "%}") ? at + 2 : 0;
}

static by_status lex_raw(lexer *l, size_t begin, char close)
{
    continue_at(l, begin, close == '-', false);
    for (size_t at = l->at; at < l->n; at++) {
        char sign;
        size_t end = l->s[at] == '{' ? word_tag(l, at, "endraw", &sign, &close) : 0;
        if (end > 0) {
            BY_TRY(add_text(l, at, sign, true));
            continue_at(l, end, close == '-', close != '+');
            return BY_OK;
        }
    }
    return fail(l, "a block raw is not ended by endraw");
}

static by_status lex_all(lexer *l)
{
    l->line_start = true;
    while (l->at < l->n) {
        size_t at = l->at;
        while (at < l->n && !has(l, at, "{{") && !has(l, at, "{%") && !has(l, at, "{#")) {
            at++;
        }
        if (at >= l->n) {
            BY_TRY(add(l, BY__TOKEN_TEXT, l->at, l->n));
            break;
        }
        char kind = l->s[at + 1];
        char sign = at + 2 < l->n ? l->s[at + 2] : ' ';
        char close;
        BY_TRY(add_text(l, at, sign, kind != '{'));
        count_lines(l, at);
        size_t raw = word_tag(l, at, "raw", &sign, &close);
        if (raw > 0) {
            BY_TRY(lex_raw(l, raw, close));
        } else if (kind == '#') {
            BY_TRY(lex_comment(l, at));
        } else {
            BY_TRY(add(l, kind == '{' ? BY__TOKEN_PRINT : BY__TOKEN_BLOCK, at, at + 2));
            l->at = at + (sign == '-' || sign == '+' ? 3 : 2);
            BY_TRY(lex_inside(l, kind == '%'));
        }
    }
    count_lines(l, l->n);
    return add(l, BY__TOKEN_END, l->n, l->n);
}

by_status by__template_lex(const by__template *tpl, by__template_token **out, by_error *error)
{
    lexer l = {.tpl = tpl, .s = tpl->source, .n = strlen(tpl->source), .line = 1, .error = error};
    by_status status = lex_all(&l);
    if (status != BY_OK) {
        free(l.tokens);
        return status;
    }
    *out = l.tokens;
    return BY_OK;
}
