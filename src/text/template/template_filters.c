/* Filters, "value | name(arguments)", on scalars and text. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"

/* ---- scalars ---- */

static by_status filter_default(by__template_render *r, const by__template_value *v,
                                const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"default_value", "boolean", NULL};
    const by__template_value *other = by__template_argument(a, 0, "default_value");
    const by__template_value *empty = by__template_argument(a, 1, "boolean");
    BY_TRY(by__template_arguments_check(r, a, "default", 2, names));
    bool replaced = v->kind == BY__UNDEFINED || (empty != NULL && by__template_value_true(empty) &&
                                                 !by__template_value_true(v));
    *out = !replaced ? *v : other != NULL ? *other : by__template_value_string("", 0);
    return BY_OK;
}

static by_status filter_length(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    int64_t length;
    BY_TRY(by__template_arguments_check(r, a, "length", 0, NULL));
    BY_TRY(by__template_value_length(r, v, &length));
    *out = by__template_value_integer(length);
    return BY_OK;
}

static by_status filter_string(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "string", 0, NULL));
    return by__template_value_text(r, v, out);
}

static by_status filter_int(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"default", NULL};
    const by__template_value *other = by__template_argument(a, 0, "default");
    BY_TRY(by__template_arguments_check(r, a, "int", 1, names));
    *out = other != NULL ? *other : by__template_value_integer(0);
    double real = 0.0;
    if (v->kind == BY__INTEGER || v->kind == BY__BOOL) {
        *out =
            by__template_value_integer(v->kind == BY__BOOL ? (v->as.truth ? 1 : 0) : v->as.integer);
        return BY_OK;
    }
    if (v->kind == BY__STRING) {
        char text[64];
        const char *s = v->as.string.data;
        size_t n = v->as.string.length;
        by__template_strip(&s, &n, NULL, true, true);
        if (n == 0 || n >= sizeof text) {
            return BY_OK;
        }
        memcpy(text, s, n);
        text[n] = '\0';
        char *end;
        long long integer = strtoll(text, &end, 10);
        if (*end == '\0' && n < 19) {
            *out = by__template_value_integer(integer);
            return BY_OK;
        }
        if (!by__parse_f64(text, &real)) {
            return BY_OK;
        }
    } else if (by__template_value_is_real(v)) {
        real = by__template_value_real(v);
    } else {
        return BY_OK;
    }
    if (real > -9e18 && real < 9e18) {
        *out = by__template_value_integer((int64_t)real);
    }
    return BY_OK;
}

static by_status filter_float(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"default", NULL};
    const by__template_value *other = by__template_argument(a, 0, "default");
    char text[64];
    BY_TRY(by__template_arguments_check(r, a, "float", 1, names));
    by__template_value real = {.kind = BY__REAL};
    *out = other != NULL ? *other : real;
    if (by__template_value_is_number(v)) {
        real.as.real = by__template_value_real(v);
        *out = real;
        return BY_OK;
    }
    if (v->kind != BY__STRING) {
        return BY_OK;
    }
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    by__template_strip(&s, &n, NULL, true, true);
    if (n > 0 && n < sizeof text) {
        memcpy(text, s, n);
        text[n] = '\0';
        *out = by__parse_f64(text, &real.as.real) ? real : *out;
    }
    return BY_OK;
}

static by_status filter_abs(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    by__template_value zero = by__template_value_integer(0);
    int order;
    BY_TRY(by__template_arguments_check(r, a, "abs", 0, NULL));
    BY_TRY(by__template_value_compare(r, v, &zero, &order));
    if (order < 0) {
        return by__template_value_operate(r, BY__OP_SUBTRACT, &zero, v, out);
    }
    *out = *v;
    return BY_OK;
}

static by_status filter_same(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "safe", 0, NULL));
    *out = *v;
    return BY_OK;
}

/* ---- text ---- */

/* Applies a method of strings to the value as text. */
static by_status text_method(by__template_render *r, const by__template_value *v, const char *name,
                             const by__template_arguments *a, by__template_value *out)
{
    by__template_value text;
    BY_TRY(by__template_value_text(r, v, &text));
    return by__template_method_call(r, &text, name, a, out);
}

static by_status filter_trim(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"chars", NULL};
    const by__template_value *set = by__template_argument(a, 0, "chars");
    by__template_arguments one = {.values = set, .count = set != NULL ? 1 : 0};
    BY_TRY(by__template_arguments_check(r, a, "trim", 1, names));
    return text_method(r, v, "strip", &one, out);
}

static by_status filter_upper(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    return text_method(r, v, "upper", a, out);
}

static by_status filter_lower(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    return text_method(r, v, "lower", a, out);
}

static by_status filter_capitalize(by__template_render *r, const by__template_value *v,
                                   const by__template_arguments *a, by__template_value *out)
{
    return text_method(r, v, "capitalize", a, out);
}

/* Unlike in str.title(), words begin only after spaces, hyphens and opening brackets. */
static by_status filter_title(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    by__template_value lower;
    BY_TRY(text_method(r, v, "lower", a, &lower));
    BY_TRY(by__template_value_copy_string(r, lower.as.string.data, lower.as.string.length, out));
    char *data = (char *)(uintptr_t)out->as.string.data;
    bool first = true;
    for (size_t i = 0; i < out->as.string.length; i++) {
        char c = data[i];
        data[i] = (char)(first && c >= 'a' && c <= 'z' ? c - 32 : c);
        first = strchr("- \t\n\r\f\v({[<", c) != NULL && c != '\0';
    }
    return BY_OK;
}

static by_status filter_replace(by__template_render *r, const by__template_value *v,
                                const by__template_arguments *a, by__template_value *out)
{
    return text_method(r, v, "replace", a, out);
}

static by_status filter_escape(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    static const char *const escapes[][2] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    by__template_value text;
    by_string escaped = {0};
    BY_TRY(by__template_arguments_check(r, a, "escape", 0, NULL));
    BY_TRY(by__template_value_text(r, v, &text));
    BY_TRY(by__template_render_steps(r, text.as.string.length / 8));
    for (size_t i = 0; i < text.as.string.length; i++) {
        const char *c = text.as.string.data + i;
        const char *as = NULL;
        for (size_t k = 0; k < BY_ARRAY_LENGTH(escapes); k++) {
            as = escapes[k][0][0] == *c ? escapes[k][1] : as;
        }
        by_string_add(&escaped, as != NULL ? as : c, as != NULL ? strlen(as) : 1);
    }
    return by__template_value_move_text(r, &escaped, out);
}

/* Indents all lines but the first (also that with `first`), unless they are empty. */
static by_status filter_indent(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"width", "first", "blank", NULL};
    const by__template_value *width = by__template_argument(a, 0, "width");
    const by__template_value *first = by__template_argument(a, 1, "first");
    const by__template_value *blank = by__template_argument(a, 2, "blank");
    by__template_value text;
    by_string lines = {0};
    BY_TRY(by__template_arguments_check(r, a, "indent", 3, names));
    BY_TRY(by__template_value_text(r, v, &text));
    char mark[101];
    bool named = width != NULL && width->kind == BY__STRING;
    int64_t count = width != NULL && width->kind == BY__INTEGER ? width->as.integer : 4;
    size_t length = named ? width->as.string.length : count < 0 ? 0 : (size_t)count;
    if (length > 100) {
        return by__template_render_fail(r, "indent: more than 100 blanks");
    }
    memset(mark, ' ', sizeof mark);
    if (named) {
        memcpy(mark, width->as.string.data, length);
    }
    const char *s = text.as.string.data;
    size_t n = text.as.string.length;
    BY_TRY(by__template_render_steps(r, n / 4));
    for (size_t begin = 0; begin <= n;) {
        const char *newline = memchr(s + begin, '\n', n - begin);
        size_t end = newline != NULL ? (size_t)(newline - s) : n;
        bool wanted = begin > 0 ? (end > begin || (blank != NULL && by__template_value_true(blank)))
                                : first != NULL && by__template_value_true(first);
        by_string_add(&lines, mark, wanted ? length : 0);
        by_string_add(&lines, s + begin, end - begin + (newline != NULL ? 1 : 0));
        if (lines.length > r->arena.left) {
            by_string_free(&lines);
            return by__template_render_fail(r, "the template needs more memory than it may have");
        }
        begin = end + 1;
    }
    return by__template_value_move_text(r, &lines, out);
}

static const by__template_filter_row filters[] = {
    {"default", filter_default},
    {"d", filter_default},
    {"length", filter_length},
    {"count", filter_length},
    {"string", filter_string},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"safe", filter_same},
    {"trim", filter_trim},
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"capitalize", filter_capitalize},
    {"title", filter_title},
    {"replace", filter_replace},
    {"regex_replace", by__template_filter_regex_replace},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"indent", filter_indent},
    {"tojson", by__template_value_json},
    {"round", by__template_filter_round},
    {"format", by__template_filter_format},
    {NULL, NULL}};

static const by__template_filter_row *find(const by__template_filter_row *rows, const char *name)
{
    while (rows->name != NULL && strcmp(rows->name, name) != 0) {
        rows++;
    }
    return rows->name == NULL ? NULL : rows;
}

by_status by__template_filter(by__template_render *r, const char *name,
                              const by__template_value *subject,
                              const by__template_arguments *arguments, by__template_value *out)
{
    const by__template_filter_row *row = find(filters, name);
    row = row == NULL ? find(by__template_list_filters, name) : row;
    if (row == NULL) {
        return by__template_render_fail(r, "filter '%.60s' is not known", name);
    }
    BY_TRY(by__template_render_enter(r)); /* map may nest filters */
    BY_TRY(row->call(r, subject, arguments, out));
    r->depth--;
    return BY_OK;
}
