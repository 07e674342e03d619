/* Strings, numbers and any JSON value as expressions. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "infer/constraint/json_schema.h"

typedef struct named_text {
    const char *name;
    const char *text;
} named_text;

#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define DAY                                                                                        \
    "([1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)"        \
    "|02-(0[1-9]|1\\d|2[0-8])))"
#define CLOCK "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define N     "\\d{1,4}"
#define HOURS "T(" N "H(" N "M(" N "S)?)?|" N "M(" N "S)?|" N "S)"
#define DAYS  "(" N "Y(" N "M(" N "D)?)?|" N "M(" N "D)?|" N "D)"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEXES "[0-9a-f]{1,4}"

/* The formats of OpenAI's structured output; each accepts a subset of its standard. */
static const named_text formats[] = {
    {"date", DAY},
    {"time", CLOCK},
    {"date-time", DAY "T" CLOCK},
    {"duration", "P(" DAYS "(" HOURS ")?|" HOURS "|" N "W)"},
    {"email", "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,15}){0,2}@" LABEL "(\\." LABEL "){1,3}"},
    {"hostname", LABEL "(\\." LABEL "){0,5}"},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"ipv6", "(" HEXES ":){7}" HEXES "|(" HEXES ":){1,6}:" HEXES "|::(" HEXES ")?"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
};

by_status by__constraint_schema_refuse(const by__constraint_schema_parser *p, const char *place,
                                       const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return by_error_set(p->error, BY_EARG, "schema, at %s: %s", place, what);
}

/* ---- pieces ---- */

const by__constraint_expression *by__constraint_schema_text(by__constraint_schema_parser *p,
                                                            const char *text)
{
    return by__constraint_expr_text(p->language, text, strlen(text));
}

const by__constraint_expression *
by__constraint_schema_chain(by__constraint_schema_parser *p, size_t count,
                            const by__constraint_expression *const *parts)
{
    const by__constraint_expression *e = parts[0];
    for (size_t i = 1; i < count; i++) {
        e = by__constraint_expr_concat(p->language, e, parts[i]);
    }
    return e;
}

const by__constraint_expression *by__constraint_schema_pattern(by__constraint_schema_parser *p,
                                                               const char *pattern,
                                                               by__constraint_writing writing)
{
    const by__constraint_expression *e = NULL;
    by_status status = by__constraint_regex_parse(&e, p->language, pattern, strlen(pattern), true,
                                                  writing, p->error);
    return status == BY_OK ? e : NULL;
}

/* One character inside a JSON string. */
static const by__constraint_expression *any_character(by__constraint_schema_parser *p)
{
    by__constraint_code_range all = {0, 0x10ffff};
    by__constraint_code_set set = {.ranges = &all, .count = 1};
    return by__constraint_expr_class(p->language, &set, BY__IN_JSON);
}

static const by__constraint_expression *space(by__constraint_schema_parser *p)
{
    return by__constraint_schema_shared(p, BY__RULE_SPACE);
}

static const by__constraint_expression *quoted(by__constraint_schema_parser *p,
                                               const by__constraint_expression *inner)
{
    return BY__CHAIN(p, by__constraint_schema_text(p, "\""), inner,
                     by__constraint_schema_text(p, "\""));
}

/* Items between brackets, separated by commas; `most` 0 allows none. */
const by__constraint_expression *by__constraint_schema_list(by__constraint_schema_parser *p,
                                                            const char *open,
                                                            const by__constraint_expression *item,
                                                            uint32_t least, uint32_t most,
                                                            const char *close)
{
    const by__constraint_expression *comma =
        BY__CHAIN(p, by__constraint_schema_text(p, ","), space(p), item);
    const by__constraint_expression *items = by__constraint_expr_empty(p->language);
    if (most > 0) {
        uint32_t more = most == BY__UNBOUNDED ? most : most - 1;
        items = BY__CHAIN(
            p, item,
            by__constraint_expr_repeat(p->language, comma, least > 0 ? least - 1 : 0, more),
            space(p));
        items = least == 0 ? by__constraint_expr_optional(p->language, items) : items;
    }
    return BY__CHAIN(p, by__constraint_schema_text(p, open), space(p), items,
                     by__constraint_schema_text(p, close));
}

static const by__constraint_expression *define_shared(by__constraint_schema_parser *p,
                                                      by__constraint_shared_rule which)
{
    const by__constraint_expression *e = NULL;
    switch (which) {
    case BY__RULE_SPACE:
        return by__constraint_schema_pattern(p, "( |\\n {0,20})?", BY__PLAIN);
    case BY__RULE_CHARACTER:
        return any_character(p);
    case BY__RULE_STRING:
        return quoted(p,
                      by__constraint_expr_repeat(p->language, any_character(p), 0, BY__UNBOUNDED));
    case BY__RULE_NUMBER:
        return by__constraint_schema_pattern(
            p, "-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?", BY__PLAIN);
    case BY__RULE_INTEGER:
        return by__constraint_schema_pattern(p, "-?(0|[1-9][0-9]{0,14})", BY__PLAIN);
    case BY__RULE_OBJECT:
        e = BY__CHAIN(p, by__constraint_schema_shared(p, BY__RULE_STRING),
                      by__constraint_schema_text(p, ":"), space(p),
                      by__constraint_schema_shared(p, BY__RULE_VALUE));
        return by__constraint_schema_list(p, "{", e, 0, BY__UNBOUNDED, "}");
    case BY__RULE_ARRAY:
        return by__constraint_schema_list(p, "[", by__constraint_schema_shared(p, BY__RULE_VALUE),
                                          0, BY__UNBOUNDED, "]");
    default:
        e = by__constraint_schema_pattern(p, "true|false|null", BY__PLAIN);
        e = by__constraint_expr_either(p->language, e,
                                       by__constraint_schema_shared(p, BY__RULE_STRING));
        e = by__constraint_expr_either(p->language, e,
                                       by__constraint_schema_shared(p, BY__RULE_NUMBER));
        e = by__constraint_expr_either(p->language, e,
                                       by__constraint_schema_shared(p, BY__RULE_OBJECT));
        return by__constraint_expr_either(p->language, e,
                                          by__constraint_schema_shared(p, BY__RULE_ARRAY));
    }
}

const by__constraint_expression *by__constraint_schema_shared(by__constraint_schema_parser *p,
                                                              by__constraint_shared_rule which)
{
    if (p->shared[which] == BY__UNBOUNDED) {
        uint32_t rule = by__constraint_language_rule(p->language);
        p->shared[which] = rule;
        by__constraint_language_define(p->language, rule, define_shared(p, which));
    }
    return by__constraint_expr_call(p->language, p->shared[which]);
}

/* ---- numbers and lengths of keywords ---- */

by_status by__constraint_schema_count(const by__constraint_schema_parser *p, const json_t *schema,
                                      const char *key, const char *place, uint32_t fallback,
                                      uint32_t *out)
{
    const json_t *value = json_object_get(schema, key);
    *out = fallback;
    if (value == NULL) {
        return BY_OK;
    }
    double number = by__json_is_number(value) ? by__json_double(value) : -1.0;
    if (!(number >= 0.0 && number <= (double)BY__MAX_REPEAT) ||
        number != (double)(uint32_t)number) {
        return by__constraint_schema_refuse(p, place, "%s must be an integer from 0 to %d", key,
                                            BY__MAX_REPEAT);
    }
    *out = (uint32_t)number;
    return BY_OK;
}

static by_status read_limit(const by__constraint_schema_parser *p, const json_t *schema,
                            const char *key, const char *place, double *out, bool *found)
{
    const json_t *value = json_object_get(schema, key);
    *found = value != NULL;
    if (value != NULL && !by__json_is_number(value)) {
        return by__constraint_schema_refuse(p, place, "%s must be a number", key);
    }
    *out = value == NULL ? 0.0 : by__json_double(value);
    if (isinf(*out)) { /* beyond double: every number is within it, or none */
        bool low = strstr(key, "inimum") != NULL;
        *found = false;
        return low == (*out < 0.0) && strcmp(key, "multipleOf") != 0
                   ? BY_OK
                   : by__constraint_schema_refuse(p, place, "%s is %.40s, which no number reaches",
                                                  key, by__json_spelled(value));
    }
    return BY_OK;
}

/* Takes the tighter of two limits; of equal values, the exclusive one is tighter. */
static void tighten(double *limit, bool *has, bool *open, double value, bool found, bool low)
{
    if (found && (!*has || (low ? value >= *limit : value <= *limit))) {
        *limit = value;
        *has = *open = true;
    }
}

by_status by__constraint_schema_number(by__constraint_schema_parser *p, const json_t *schema,
                                       const char *place, bool integer,
                                       const by__constraint_expression **out)
{
    by__constraint_number_limits l = {.integer = integer};
    bool found;
    double value = 0.0;
    BY_TRY(read_limit(p, schema, "minimum", place, &l.low, &l.has_low));
    BY_TRY(read_limit(p, schema, "maximum", place, &l.high, &l.has_high));
    BY_TRY(read_limit(p, schema, "exclusiveMinimum", place, &value, &found));
    tighten(&l.low, &l.has_low, &l.low_open, value, found, true);
    BY_TRY(read_limit(p, schema, "exclusiveMaximum", place, &value, &found));
    tighten(&l.high, &l.has_high, &l.high_open, value, found, false);
    BY_TRY(read_limit(p, schema, "multipleOf", place, &l.multiple, &found));
    if (found && !(l.multiple > 0.0)) {
        return by__constraint_schema_refuse(p, place, "multipleOf must be above 0");
    }
    if (!l.has_low && !l.has_high && !found) {
        *out = by__constraint_schema_shared(p, integer ? BY__RULE_INTEGER : BY__RULE_NUMBER);
        return BY_OK;
    }
    return by__constraint_number_expression(out, p->language, &l, place, p->error);
}

/* ---- strings ---- */

by_status by__constraint_schema_string(by__constraint_schema_parser *p, const json_t *schema,
                                       const char *place, const by__constraint_expression **out)
{
    const json_t *pattern = json_object_get(schema, "pattern");
    const json_t *format = json_object_get(schema, "format");
    const by__constraint_expression *inner = NULL;
    uint32_t least;
    uint32_t most;
    BY_TRY(by__constraint_schema_count(p, schema, "minLength", place, 0, &least));
    BY_TRY(by__constraint_schema_count(p, schema, "maxLength", place, BY__UNBOUNDED, &most));
    bool limited = least > 0 || most != BY__UNBOUNDED;
    if ((pattern != NULL) + (format != NULL) + (limited ? 1 : 0) > 1) {
        return by__constraint_schema_refuse(
            p, place,
            "pattern, format and lengths cannot be combined; say all in the "
            "pattern");
    }
    if (least > most) {
        return by__constraint_schema_refuse(p, place, "minLength %u is over maxLength %u", least,
                                            most);
    }
    if (pattern == NULL && format == NULL) {
        /* Calls a rule for each character, so that thousands of them need only a few states
         * each. */
        inner = by__constraint_expr_repeat(
            p->language, by__constraint_schema_shared(p, BY__RULE_CHARACTER), least, most);
        *out = limited ? quoted(p, inner) : by__constraint_schema_shared(p, BY__RULE_STRING);
        return BY_OK;
    }
    if (pattern != NULL) {
        if (!json_is_string(pattern)) {
            return by__constraint_schema_refuse(p, place, "pattern must be a string");
        }
        by_status status =
            by__constraint_regex_parse(&inner, p->language, json_string_value(pattern),
                                       json_string_length(pattern), false, BY__IN_JSON, p->error);
        *out = status == BY_OK ? quoted(p, inner) : NULL;
        return status == BY_OK ? BY_OK : by_error_prefix(p->error, status, "schema, at %s", place);
    }
    for (size_t i = 0; json_is_string(format) && i < BY_ARRAY_LENGTH(formats); i++) {
        if (strcmp(json_string_value(format), formats[i].name) == 0) {
            *out = quoted(p, by__constraint_schema_pattern(p, formats[i].text, BY__IN_JSON));
            return BY_OK;
        }
    }
    return by__constraint_schema_refuse(
        p, place,
        "format %s is not supported; supported are date, time, date-time, "
        "duration, email, hostname, ipv4, ipv6, uuid",
        json_is_string(format) ? json_string_value(format) : "(no string)");
}
