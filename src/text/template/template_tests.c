/* Tests ("is defined") and builtin functions. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "text/template/template.h"

/* ---- tests ---- */

static bool kind_test(const char *name, const by__template_value *v, bool *out)
{
    by__template_value_kind k = v->kind;
    bool spelled = k == BY__SPELLED;
    bool integer = k == BY__INTEGER || (spelled && strpbrk(v->as.string.data, ".eE") == NULL);
    const struct {
        const char *name;
        bool holds;
    } tests[] = {
        {"defined", k != BY__UNDEFINED},
        {"undefined", k == BY__UNDEFINED},
        {"none", k == BY__NONE},
        {"string", k == BY__STRING},
        {"number", by__template_value_is_number(v)},
        {"integer", integer},
        {"float", by__template_value_is_real(v) && !integer},
        {"boolean", k == BY__BOOL},
        {"true", k == BY__BOOL && v->as.truth},
        {"false", k == BY__BOOL && !v->as.truth},
        {"mapping", k == BY__MAP},
        {"iterable", k == BY__LIST || k == BY__STRING || k == BY__MAP || k == BY__UNDEFINED},
        {"sequence", k == BY__LIST || k == BY__STRING || k == BY__MAP || k == BY__UNDEFINED},
        {"callable", k == BY__MACRO || k == BY__BUILTIN || k == BY__METHOD}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(tests); i++) {
        if (strcmp(tests[i].name, name) == 0) {
            *out = tests[i].holds;
            return true;
        }
    }
    return false;
}

/* Returns true if a string has letters and all are upper (lower) case. */
static bool is_case(const by__template_value *v, bool upper)
{
    bool any = false;
    for (size_t i = 0; v->kind == BY__STRING && i < v->as.string.length; i++) {
        char c = v->as.string.data[i];
        bool is_upper = c >= 'A' && c <= 'Z';
        bool is_lower = c >= 'a' && c <= 'z';
        if (upper ? is_lower : is_upper) {
            return false;
        }
        any = any || is_upper || is_lower;
    }
    return any;
}

static by_status divisible(by__template_render *r, const by__template_value *a,
                           const by__template_value *b, bool *out)
{
    by__template_value rest;
    BY_TRY(by__template_value_operate(r, BY__OP_MODULO, a, b, &rest));
    *out = !by__template_value_true(&rest);
    return BY_OK;
}

static by_status compare_test(by__template_render *r, const char *name, const by__template_value *a,
                              const by__template_value *b, bool *known, bool *out)
{
    static const struct {
        const char *name;
        int least; /* of the order */
        int most;
    } orders[] = {{"lt", -1, -1}, {"lessthan", -1, -1}, {"<", -1, -1},         {"le", -1, 0},
                  {"<=", -1, 0},  {"gt", 1, 1},         {"greaterthan", 1, 1}, {">", 1, 1},
                  {"ge", 0, 1},   {">=", 0, 1}};
    *known = true;
    if (strcmp(name, "eq") == 0 || strcmp(name, "equalto") == 0 || strcmp(name, "==") == 0) {
        return by__template_value_equal(r, a, b, out);
    }
    if (strcmp(name, "sameas") == 0) { /* 1 and 1.0 and true are equal and not the same */
        *out = false;
        return a->kind == b->kind ? by__template_value_equal(r, a, b, out) : BY_OK;
    }
    if (strcmp(name, "ne") == 0 || strcmp(name, "!=") == 0) {
        BY_TRY(by__template_value_equal(r, a, b, out));
        *out = !*out;
        return BY_OK;
    }
    if (strcmp(name, "in") == 0) {
        return by__template_value_contains(r, b, a, out);
    }
    if (strcmp(name, "divisibleby") == 0) {
        return divisible(r, a, b, out);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(orders); i++) {
        if (strcmp(orders[i].name, name) == 0) {
            int order;
            BY_TRY(by__template_value_compare(r, a, b, &order));
            order = (order > 0) - (order < 0);
            *out = order >= orders[i].least && order <= orders[i].most;
            return BY_OK;
        }
    }
    *known = false;
    return BY_OK;
}

by_status by__template_test(by__template_render *r, const char *name,
                            const by__template_value *subject,
                            const by__template_arguments *arguments, bool *out)
{
    const by__template_value *argument = by__template_argument(arguments, 0, NULL);
    bool known = false;
    if (kind_test(name, subject, out)) {
        return by__template_arguments_check(r, arguments, name, 0, NULL);
    }
    if (strcmp(name, "upper") == 0 || strcmp(name, "lower") == 0) {
        size_t length = subject->kind == BY__STRING ? subject->as.string.length : 0;
        BY_TRY(by__template_render_steps(r, length / 16));
        *out = is_case(subject, name[0] == 'u');
        return BY_OK;
    }
    if (strcmp(name, "odd") == 0 || strcmp(name, "even") == 0) {
        by__template_value two = by__template_value_integer(2);
        BY_TRY(divisible(r, subject, &two, out));
        *out = *out == (name[0] == 'e');
        return BY_OK;
    }
    if (argument != NULL) {
        BY_TRY(compare_test(r, name, subject, argument, &known, out));
    }
    return known
               ? BY_OK
               : by__template_render_fail(r, "test '%.60s' is not known or lacks its value", name);
}

/* ---- functions ---- */

static by_status make_range(by__template_render *r, const by__template_arguments *a,
                            by__template_value *out)
{
    int64_t bounds[3] = {0, 0, 1};
    BY_TRY(by__template_arguments_check(r, a, "range", 3, NULL));
    for (size_t i = 0; i < a->count; i++) {
        if (a->values[i].kind != BY__INTEGER) {
            return by__template_render_fail(r, "range needs integers, not %s",
                                            by__template_value_word(&a->values[i]));
        }
        bounds[a->count == 1 ? 1 : i] = a->values[i].as.integer;
    }
    if (a->count == 0 || bounds[2] == 0) {
        return by__template_render_fail(r, "range needs an end, and a step that is not 0");
    }
    double span = ((double)bounds[1] - (double)bounds[0]) / (double)bounds[2];
    double steps = span > 0.0 ? ceil(span) : 0.0;
    if (steps >= (double)r->steps) {
        return by__template_render_fail(
            r, "range: %.0f numbers are more than the template may take", steps);
    }
    size_t count = (size_t)steps;
    BY_TRY(by__template_render_steps(r, count));
    BY_TRY(by__template_value_list(r, count, false, out));
    for (size_t i = 0; i < count; i++) {
        out->as.list->items[i] = by__template_value_integer(
            (int64_t)((uint64_t)bounds[0] + (uint64_t)i * (uint64_t)bounds[2]));
    }
    return BY_OK;
}

/* Implements namespace() and dict(). */
static by_status make_table(by__template_render *r, const by__template_arguments *a,
                            by__template_value_kind kind, by__template_value *out)
{
    BY_TRY(by__template_value_map(r, out));
    out->kind = kind;
    if (a->count > 1 || (a->count == 1 && a->values[0].kind != BY__MAP)) {
        return by__template_render_fail(
            r, "only one mapping and named values make a namespace or a dict");
    }
    const by__template_table *from = a->count == 1 ? a->values[0].as.table : NULL;
    for (size_t i = 0; from != NULL && i < from->count; i++) {
        BY_TRY(
            by__template_table_put(r, out->as.table, &from->pairs[i].key, &from->pairs[i].value));
    }
    for (size_t i = 0; i < a->keyword_count; i++) {
        BY_TRY(
            by__template_table_put(r, out->as.table, &a->keywords[i].key, &a->keywords[i].value));
    }
    return BY_OK;
}

static by_status raise(by__template_render *r, const by__template_arguments *a)
{
    by__template_value message = by__template_value_string("", 0);
    if (a->count > 0) {
        BY_TRY(by__template_value_text(r, &a->values[0], &message));
    }
    size_t length = message.as.string.length < 300 ? message.as.string.length : 300;
    return by__template_render_fail(r, "the template refuses the conversation: %.*s", (int)length,
                                    message.as.string.data);
}

static by_status format_time(by__template_render *r, const by__template_arguments *a,
                             by__template_value *out)
{
    char format[128];
    char text[512];
    struct tm parts;
    time_t now = (time_t)r->now;
    if (a->count != 1 || a->values[0].kind != BY__STRING ||
        a->values[0].as.string.length >= sizeof format) {
        return by__template_render_fail(r, "strftime_now needs a format of at most 127 bytes");
    }
    memcpy(format, a->values[0].as.string.data, a->values[0].as.string.length);
    format[a->values[0].as.string.length] = '\0';
    if (localtime_r(&now, &parts) == NULL) {
        return by__template_render_fail(r, "strftime_now: the time cannot be told");
    }
    /* A width in the format ("%200d") would give other text than in Python. */
    for (const char *s = strchr(format, '%'); s != NULL; s = strchr(s + 2, '%')) {
        const char *letter = s[1] == '-' ? s + 2 : s + 1;
        if (*letter == '\0' || strchr("aAbBcdHIjmMpSUwWxXyYZz%efFGDRTuVhn", *letter) == NULL) {
            return by__template_render_fail(r, "strftime_now: the format '%s' is not supported",
                                            format);
        }
    }
    size_t length = strftime(text, sizeof text, format, &parts);
    return by__template_value_copy_string(r, text, length, out);
}

bool by__template_builtin_exists(const char *name)
{
    static const char *const names[] = {"range", "namespace", "dict", "raise_exception",
                                        "strftime_now"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

by_status by__template_builtin_call(by__template_render *r, const char *name,
                                    const by__template_arguments *arguments,
                                    by__template_value *out)
{
    if (strcmp(name, "range") == 0) {
        return make_range(r, arguments, out);
    }
    if (strcmp(name, "raise_exception") == 0) {
        return raise(r, arguments);
    }
    if (strcmp(name, "strftime_now") == 0) {
        return format_time(r, arguments, out);
    }
    return make_table(r, arguments, strcmp(name, "dict") == 0 ? BY__MAP : BY__NAMESPACE, out);
}
