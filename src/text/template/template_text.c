/* Values as text: Python's str(), repr() and json.dumps(). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"
#include "text/unicode/unicode.h"

/* Options of json.dumps. */
typedef struct json_layout {
    const char *item; /* between items */
    size_t item_length;
    const char *colon;
    size_t colon_length;
    int64_t indent; /* < 0: all on one line */
    bool sort;
    bool ascii;
    bool json; /* else repr() */
} json_layout;

static by_status add_value(by__template_render *r, const by__template_value *v,
                           const json_layout *l, unsigned level, by_string *out);

/* Checks that the text is within the render's remaining limit. */
static by_status check_room(by__template_render *r, const by_string *out)
{
    if (out->failed) {
        return by_error_set(r->error, BY_EMEMORY, "out of memory: text of a template");
    }
    return out->length <= r->arena.left
               ? BY_OK
               : by__template_render_fail(r, "a template needs more memory than it may have");
}

static void add_json_string(by_string *out, const char *s, size_t n, bool ascii)
{
    by__string_append(out, "\"");
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = by__utf8_next((const uint8_t *)s + i, n - i, &code);
        static const char escapes[] = "\"\"\\\\\nn\rr\tt\bb\ff";
        const char *escape = NULL;
        for (size_t k = 0; k + 1 < sizeof escapes; k += 2) {
            escape = (uint8_t)escapes[k] == code ? &escapes[k + 1] : escape;
        }
        if (escape != NULL) {
            by__string_append(out, "\\");
            by_string_add(out, escape, 1);
        } else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000 && code != 0x7f)) {
            by_string_format(out, "\\u%04" PRIx32, code);
        } else if (ascii && code >= 0x10000 && code != BY__INVALID) {
            by_string_format(out, "\\u%04" PRIx32 "\\u%04" PRIx32,
                             0xd800 + ((code - 0x10000) >> 10),
                             0xdc00 + ((code - 0x10000) & 0x3ff));
        } else {
            by_string_add(out, s + i, length);
        }
        i += length;
    }
    by__string_append(out, "\"");
}

/* repr() of a string: single quotes, unless only these would need escapes. */
static void add_python_string(by_string *out, const char *s, size_t n)
{
    bool twice = memchr(s, '\'', n) != NULL && memchr(s, '"', n) == NULL;
    char quote[2] = {twice ? '"' : '\'', '\0'};
    by__string_append(out, quote);
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = by__utf8_next((const uint8_t *)s + i, n - i, &code);
        bool space = (by__code_class(code) & BY__CLASS) == BY__SPACE && code != ' ';
        if (code == '\n' || code == '\r' || code == '\t') {
            by__string_append(out, code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t");
        } else if (code == (uint8_t)quote[0] || code == '\\') {
            by__string_append(out, "\\");
            by_string_add(out, s + i, 1);
        } else if (code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad) {
            by_string_format(out, "\\x%02" PRIx32, code);
        } else if (space) {
            by_string_format(out, "\\u%04" PRIx32, code);
        } else {
            by_string_add(out, s + i, length);
        }
        i += length;
    }
    by__string_append(out, quote);
}

static void add_line(by_string *out, const json_layout *l, unsigned level)
{
    by__string_append(out, "\n");
    for (uint64_t i = 0; i < (uint64_t)l->indent * level && i < 10000; i++) {
        by__string_append(out, " ");
    }
}

static by_status add_list(by__template_render *r, const by__template_list *list,
                          const json_layout *l, unsigned level, by_string *out)
{
    bool tuple = list->tuple && !l->json;
    bool lines = l->indent >= 0 && list->count > 0;
    by__string_append(out, tuple ? "(" : "[");
    for (size_t i = 0; i < list->count; i++) {
        by_string_add(out, l->item, i > 0 ? l->item_length : 0);
        if (lines) {
            add_line(out, l, level + 1);
        }
        BY_TRY(add_value(r, &list->items[i], l, level + 1, out));
    }
    if (lines) {
        add_line(out, l, level);
    }
    by__string_append(out, tuple ? (list->count == 1 ? ",)" : ")") : "]");
    return BY_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const by__template_value *x = &(*(const by__template_pair *const *)a)->key;
    const by__template_value *y = &(*(const by__template_pair *const *)b)->key;
    if (x->kind != BY__STRING || y->kind != BY__STRING) {
        return x < y ? -1 : 1;
    }
    size_t n =
        x->as.string.length < y->as.string.length ? x->as.string.length : y->as.string.length;
    int order = n > 0 ? memcmp(x->as.string.data, y->as.string.data, n) : 0;
    return order != 0 ? order
                      : (x->as.string.length > y->as.string.length) -
                            (x->as.string.length < y->as.string.length);
}

static by_status add_key(by__template_render *r, const by__template_value *key,
                         const json_layout *l, by_string *out)
{
    if (!l->json || key->kind == BY__STRING) {
        return add_value(r, key, l, 0, out);
    }
    if (key->kind == BY__LIST || key->kind == BY__MAP) {
        return by__template_render_fail(r, "%s cannot be a key of JSON",
                                        by__template_value_word(key));
    }
    by__string_append(out, "\"");
    BY_TRY(add_value(r, key, l, 0, out));
    by__string_append(out, "\"");
    return BY_OK;
}

static by_status add_table(by__template_render *r, const by__template_table *table,
                           const json_layout *l, unsigned level, by_string *out)
{
    const by__template_pair **pairs;
    bool lines = l->indent >= 0 && table->count > 0;
    BY_TRY(by__template_render_allocate(r, (void **)&pairs, table->count, sizeof *pairs));
    for (size_t i = 0; i < table->count; i++) {
        pairs[i] = &table->pairs[i];
    }
    if (l->sort && table->count > 1) {
        qsort(pairs, table->count, sizeof *pairs, compare_keys);
    }
    by__string_append(out, "{");
    for (size_t i = 0; i < table->count; i++) {
        by_string_add(out, l->item, i > 0 ? l->item_length : 0);
        if (lines) {
            add_line(out, l, level + 1);
        }
        BY_TRY(add_key(r, &pairs[i]->key, l, out));
        by_string_add(out, l->colon, l->colon_length);
        BY_TRY(add_value(r, &pairs[i]->value, l, level + 1, out));
    }
    if (lines) {
        add_line(out, l, level);
    }
    by__string_append(out, "}");
    return BY_OK;
}

/* Prints digits d.ddd times ten to the power of `exponent`, as Python prints a float. */
static void add_decimal(by_string *out, const char *digits, size_t count, int exponent)
{
    if (count == 0) {
        by__string_append(out, "0.0");
    } else if (exponent < -4 || exponent >= 16) {
        by_string_add(out, digits, 1);
        by__string_append(out, count > 1 ? "." : "");
        by__string_append(out, digits + 1);
        by_string_format(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        by_string_format(out, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else {
        size_t whole = (size_t)exponent + 1;
        for (size_t i = 0; i < whole; i++) {
            by_string_add(out, i < count ? digits + i : "0", 1);
        }
        by__string_append(out, ".");
        by__string_append(out, count > whole ? digits + whole : "0");
    }
}

static void add_real(by_string *out, double value, bool json)
{
    char text[32];
    if (json && !isfinite(value)) {
        by__string_append(out, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
        return;
    }
    by__format_f64(text, value);
    if (!isfinite(value)) {
        by__string_append(out, text);
        return;
    }
    /* The shortest digits, with the decimal point where repr() puts it. */
    char digits[32];
    size_t count = 0;
    int exponent = 0; /* of the first digit */
    bool point = false;
    const char *s = text + (text[0] == '-' ? 1 : 0);
    for (; *s != '\0' && *s != 'e'; s++) {
        if (*s == '.') {
            point = true;
        } else if (count > 0 || *s != '0') {
            digits[count++] = *s;
            exponent += point ? 0 : 1;
        } else {
            exponent -= point ? 1 : 0;
        }
    }
    exponent += *s == 'e' ? (int)strtol(s + 1, NULL, 10) : 0;
    exponent -= count > 0 ? 1 : 0;
    while (count > 1 && digits[count - 1] == '0') {
        count--;
    }
    digits[count] = '\0';
    by__string_append(out, text[0] == '-' ? "-" : "");
    add_decimal(out, digits, count, exponent);
}

static by_status add_inner(by__template_render *r, const by__template_value *v,
                           const json_layout *l, unsigned level, by_string *out)
{
    switch (v->kind) {
    case BY__NONE:
        by__string_append(out, l->json ? "null" : "None");
        return BY_OK;
    case BY__BOOL:
        by__string_append(out, l->json ? (v->as.truth ? "true" : "false")
                                       : (v->as.truth ? "True" : "False"));
        return BY_OK;
    case BY__INTEGER:
        by_string_format(out, "%" PRId64, v->as.integer);
        return BY_OK;
    case BY__REAL:
        add_real(out, v->as.real, l->json);
        return BY_OK;
    case BY__SPELLED:
        by_string_add(out, v->as.string.data, v->as.string.length);
        return BY_OK;
    case BY__STRING:
        if (l->json) {
            add_json_string(out, v->as.string.data, v->as.string.length, l->ascii);
        } else {
            add_python_string(out, v->as.string.data, v->as.string.length);
        }
        return by__template_render_steps(r, v->as.string.length / 16);
    case BY__LIST:
        return add_list(r, v->as.list, l, level, out);
    case BY__MAP:
        return add_table(r, v->as.table, l, level, out);
    case BY__UNDEFINED:
        if (!l->json) {
            by__string_append(out, "Undefined");
            return BY_OK;
        }
        return by__template_render_fail(r, "tojson: '%.*s' is undefined", (int)v->as.string.length,
                                        v->as.string.data);
    default:
        return by__template_render_fail(r, "%s cannot become text", by__template_value_word(v));
    }
}

static by_status add_value(by__template_render *r, const by__template_value *v,
                           const json_layout *l, unsigned level, by_string *out)
{
    BY_TRY(by__template_render_enter(r));
    BY_TRY(add_inner(r, v, l, level, out));
    BY_TRY(check_room(r, out));
    r->depth--;
    return BY_OK;
}

static by_status make_text(by__template_render *r, const by__template_value *v,
                           const json_layout *l, by__template_value *out)
{
    by_string text = {0};
    by_status status = add_value(r, v, l, 0, &text);
    if (status != BY_OK) {
        by_string_free(&text);
        return status;
    }
    return by__template_value_move_text(r, &text, out);
}

by_status by__template_value_text(by__template_render *r, const by__template_value *v,
                                  by__template_value *out)
{
    static const json_layout python = {
        .item = ", ", .item_length = 2, .colon = ": ", .colon_length = 2, .indent = -1};
    if (v->kind == BY__STRING) {
        *out = *v;
        return BY_OK;
    }
    if (v->kind == BY__UNDEFINED) {
        *out = by__template_value_string("", 0);
        return BY_OK;
    }
    return make_text(r, v, &python, out);
}

static by_status set_separators(by__template_render *r, const by__template_value *v, json_layout *l)
{
    if (v->kind != BY__LIST || v->as.list->count != 2 || v->as.list->items[0].kind != BY__STRING ||
        v->as.list->items[1].kind != BY__STRING) {
        return by__template_render_fail(r, "tojson: separators are two strings");
    }
    const by__template_value *items = v->as.list->items;
    l->item = items[0].as.string.data;
    l->item_length = items[0].as.string.length;
    l->colon = items[1].as.string.data;
    l->colon_length = items[1].as.string.length;
    return BY_OK;
}

by_status by__template_value_json(by__template_render *r, const by__template_value *v,
                                  const by__template_arguments *arguments, by__template_value *out)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
    json_layout l = {.item = ", ",
                     .item_length = 2,
                     .colon = ": ",
                     .colon_length = 2,
                     .indent = -1,
                     .json = true};
    BY_TRY(by__template_arguments_check(r, arguments, "tojson", 4, names));
    const by__template_value *ascii = by__template_argument(arguments, 0, "ensure_ascii");
    const by__template_value *indent = by__template_argument(arguments, 1, "indent");
    const by__template_value *separators = by__template_argument(arguments, 2, "separators");
    const by__template_value *sort = by__template_argument(arguments, 3, "sort_keys");
    l.ascii = ascii != NULL && by__template_value_true(ascii);
    l.sort = sort != NULL && by__template_value_true(sort);
    if (indent != NULL && indent->kind == BY__INTEGER) {
        l.indent = indent->as.integer < 0 ? 0 : indent->as.integer > 100 ? 100 : indent->as.integer;
        l.item_length = 1;
    }
    if (separators != NULL && separators->kind != BY__NONE) {
        BY_TRY(set_separators(r, separators, &l));
    }
    return make_text(r, v, &l, out);
}
