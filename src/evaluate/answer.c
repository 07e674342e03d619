#include "evaluate/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/template/template.h"

#define MAX_FILTERS 32

/* ---- reading ---- */

static void close_way(by__evaluate_way *way)
{
    for (size_t i = 0; i < way->count; i++) {
        by__pattern_close(&way->filters[i].pattern);
        free(way->filters[i].fallback);
    }
    free(way->filters);
    free(way->metric);
}

void by__evaluate_answers_close(by__evaluate_answers *answers)
{
    for (size_t i = 0; i < answers->count; i++) {
        close_way(&answers->ways[i]);
    }
    for (size_t i = 0; i < answers->ignored_count; i++) {
        by__pattern_close(&answers->ignored[i]);
    }
    free(answers->ignored);
    *answers = (by__evaluate_answers){.count = 0};
}

static by_status open_pattern(by__pattern **out, const char *text, const char *where,
                              by_error *error)
{
    by_status status = by__pattern_open(out, text, strlen(text), error);
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "%s", where);
}

static by_status read_filter(by__evaluate_filter *out, const json_t *yaml, const char *where,
                             by_error *error)
{
    static const struct {
        const char *name;
        by__evaluate_filter_kind kind;
    } kinds[] = {{"regex", BY__EVALUATE_REGEX},     {"remove_whitespace", BY__EVALUATE_BLANK},
                 {"lowercase", BY__EVALUATE_LOWER}, {"uppercase", BY__EVALUATE_UPPER},
                 {"strip", BY__EVALUATE_STRIP},     {"last_number", BY__EVALUATE_NUMBER},
                 {"take_first", BY__EVALUATE_FIRST}};
    const char *name = by__json_string(json_object_get(yaml, "function"));
    const char *pattern = by__json_string(json_object_get(yaml, "regex_pattern"));
    const char *fallback = by__json_string(json_object_get(yaml, "fallback"));
    size_t i = 0;
    while (i < BY_ARRAY_LENGTH(kinds) && (name == NULL || strcmp(name, kinds[i].name) != 0)) {
        i++;
    }
    if (i == BY_ARRAY_LENGTH(kinds)) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s: the filter '%.60s' is not supported; those are regex, last_number, "
            "strip, remove_whitespace, lowercase, uppercase and take_first",
            where, name == NULL ? "?" : name);
    }
    out->kind = kinds[i].kind;
    if (out->kind != BY__EVALUATE_REGEX) {
        return BY_OK;
    }
    out->select = json_integer_value(json_object_get(yaml, "group_select"));
    out->fallback = by__strdup(fallback == NULL ? "[invalid]" : fallback);
    if (out->fallback == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: filters");
    }
    if (pattern == NULL && json_object_get(yaml, "regex_pattern") != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: 'regex_pattern' must be a text", where);
    }
    pattern = pattern == NULL ? "#### (\\-?[0-9\\.\\,]+)" : pattern;
    return open_pattern(&out->pattern, pattern, where, error);
}

static by_status read_way(by__evaluate_answers *a, const json_t *yaml, bool named,
                          const char *where, by_error *error)
{
    const json_t *filters = json_object_get(yaml, "filter");
    const char *name = by__json_string(json_object_get(yaml, "name"));
    by__evaluate_way *way = &a->ways[a->count];
    by_string metric = {0};
    size_t count = json_array_size(filters);
    if (a->count == BY__EVALUATE_WAYS || count > MAX_FILTERS) {
        return by_error_set(error, BY_EFORMAT, "%s: more than %d lists of filters, or %d filters",
                            where, BY__EVALUATE_WAYS, MAX_FILTERS);
    }
    *way = (by__evaluate_way){.count = 0};
    a->count++;
    by_string_format(&metric, "exact_match%s%.60s", named && name != NULL ? "," : "",
                     named && name != NULL ? name : "");
    BY_TRY(by__string_release(&metric, &way->metric, error));
    BY_TRY(by__alloc((void **)&way->filters, count, sizeof *way->filters, "filters", error));
    for (size_t i = 0; i < count; i++) {
        way->count++;
        BY_TRY(read_filter(&way->filters[i], json_array_get(filters, i), where, error));
    }
    return BY_OK;
}

/* Reads what exact_match ignores. */
static by_status read_metric(by__evaluate_answers *a, const json_t *yaml, const char *where,
                             by_error *error)
{
    size_t i;
    json_t *pattern;
    const json_t *patterns = json_object_get(yaml, "regexes_to_ignore");
    a->ignores_case = json_is_true(json_object_get(yaml, "ignore_case"));
    a->ignores_punctuation = json_is_true(json_object_get(yaml, "ignore_punctuation"));
    if (a->ignored != NULL || json_array_size(patterns) == 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&a->ignored, json_array_size(patterns), sizeof(void *), "patterns",
                     error));
    json_array_foreach((json_t *)(uintptr_t)patterns, i, pattern)
    {
        const char *text = json_string_value(pattern);
        text = text == NULL ? "" : text;
        BY_TRY(open_pattern(&a->ignored[a->ignored_count], text, where, error));
        a->ignored_count++;
    }
    return BY_OK;
}

by_status by__evaluate_answers_open(by__evaluate_answers *out, const json_t *yaml,
                                    const char *where, by_error *error)
{
    const json_t *ways = json_object_get(yaml, "filter_list");
    size_t count = json_array_size(ways);
    size_t i;
    json_t *item;
    if (ways != NULL && !json_is_null(ways) && !json_is_array(ways)) {
        return by_error_set(error, BY_EFORMAT, "%s: 'filter_list' must be a list", where);
    }
    json_array_foreach((json_t *)(uintptr_t)ways, i, item)
    {
        BY_TRY(read_way(out, item, count > 1, where, error));
    }
    if (count == 0) {
        BY_TRY(read_way(out, NULL, false, where, error));
    }
    json_array_foreach(json_object_get(yaml, "metric_list"), i, item)
    {
        const char *name = by__json_string(json_object_get(item, "metric"));
        if (name != NULL && strcmp(name, "exact_match") == 0) {
            BY_TRY(read_metric(out, item, where, error));
        }
    }
    return BY_OK;
}

/* ---- taking answers ---- */

/* Appends what re.findall has of a match: its group, of several the first that is not empty, or all
 * of it. */
static void add_match(by_string *out, const by__pattern *pattern, const by__pattern_match *match,
                      const char *text)
{
    size_t groups = by__pattern_groups(pattern);
    size_t g = groups > 0;
    while (g < groups &&
           (match->groups[g].end == SIZE_MAX || match->groups[g].end == match->groups[g].begin)) {
        g++;
    }
    if (match->groups[g].end != SIZE_MAX) {
        const char *s = text + match->groups[g].begin;
        size_t n = match->groups[g].end - match->groups[g].begin;
        by__template_strip(&s, &n, NULL, true, true);
        by_string_add(out, s, n);
    }
}

static by_status count_matches(int64_t *out, const by__pattern *pattern, const char *text,
                               by_error *error)
{
    size_t n = strlen(text);
    by__pattern_match match = {0};
    *out = 0;
    BY_TRY(by__pattern_next(pattern, text, n, &match, error));
    while (match.found) {
        ++*out;
        BY_TRY(by__pattern_next(pattern, text, n, &match, error));
    }
    return BY_OK;
}

static by_status select_match(by_string *out, const by__evaluate_filter *f, const char *text,
                              by_error *error)
{
    size_t n = strlen(text);
    int64_t count = INT64_MAX;
    by__pattern_match match = {0};
    if (f->select < 0) {
        BY_TRY(count_matches(&count, f->pattern, text, error));
    }
    int64_t wanted = f->select < 0 ? count + f->select : f->select;
    for (int64_t i = 0; i <= wanted && (i == 0 || match.found); i++) {
        BY_TRY(by__pattern_next(f->pattern, text, n, &match, error));
    }
    if (match.found) {
        add_match(out, f->pattern, &match, text);
    } else {
        by__string_append(out, f->fallback);
    }
    return BY_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Appends the last number of a text: without separators of thousands and a point at its end. */
static void add_last_number(by_string *out, const char *text)
{
    const char *end = text + strlen(text);
    while (end > text && !is_digit(end[-1])) {
        end--;
    }
    const char *begin = end;
    while (begin > text && (is_digit(begin[-1]) || begin[-1] == '.' || begin[-1] == ',')) {
        begin--;
    }
    while (begin < end && !is_digit(*begin)) {
        begin++;
    }
    if (begin > text && begin[-1] == '-') {
        by_string_add(out, "-", 1);
    }
    size_t point = SIZE_MAX; /* in out, if there is one */
    for (; begin < end; begin++) {
        if (*begin != ',') {
            point = *begin == '.' ? out->length : point;
            by_string_add(out, begin, 1);
        }
    }
    while (point != SIZE_MAX && out->length > 0 && !out->failed &&
           (out->data[out->length - 1] == '0' || out->data[out->length - 1] == '.')) {
        bool ended = out->data[out->length - 1] == '.';
        out->data[--out->length] = '\0';
        if (ended) {
            break;
        }
    }
}

static void add_case(by_string *out, const char *text, bool upper)
{
    for (; *text != '\0'; text++) {
        char c = *text;
        bool letter = upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
        c = letter ? (char)(c ^ 0x20) : c;
        by_string_add(out, &c, 1);
    }
}

static by_status filter(by_string *out, const by__evaluate_filter *f, const char *text,
                        by_error *error)
{
    size_t n = strlen(text);
    switch (f->kind) {
    case BY__EVALUATE_REGEX:
        return select_match(out, f, text, error);
    case BY__EVALUATE_BLANK:
        by__string_append(out, text + (text[0] == ' '));
        return BY_OK;
    case BY__EVALUATE_LOWER:
    case BY__EVALUATE_UPPER:
        add_case(out, text, f->kind == BY__EVALUATE_UPPER);
        return BY_OK;
    case BY__EVALUATE_STRIP:
        by__template_strip(&text, &n, NULL, true, true);
        by_string_add(out, text, n);
        return BY_OK;
    case BY__EVALUATE_NUMBER:
        add_last_number(out, text);
        return BY_OK;
    default:
        by__string_append(out, text);
        return BY_OK;
    }
}

by_status by__evaluate_answer_take(by_string *out, const by__evaluate_way *way, const char *text,
                                   by_error *error)
{
    by_string now = {0};
    by_status status = BY_OK;
    by__string_append(&now, text);
    for (size_t i = 0; i < way->count && status == BY_OK; i++) {
        by_string next = {0};
        status = filter(&next, &way->filters[i], now.data == NULL ? "" : now.data, error);
        by_string_free(&now);
        now = next;
    }
    by_string_add(out, now.data, now.length);
    status = status == BY_OK ? by_string_check(&now, error) : status;
    by_string_free(&now);
    return status == BY_OK ? by_string_check(out, error) : status;
}

/* ---- comparing ---- */

/* Makes what is compared of a text. */
static by_status reduce(by_string *out, const by__evaluate_answers *a, const char *text,
                        by_error *error)
{
    static const char punctuation[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    by_string now = {0};
    by_status status = BY_OK;
    by__string_append(&now, text);
    for (size_t i = 0; i < a->ignored_count && status == BY_OK; i++) {
        by_string next = {0};
        status = by__pattern_replace(a->ignored[i], now.data == NULL ? "" : now.data, now.length,
                                     "", &next, error);
        by_string_free(&now);
        now = next;
    }
    for (size_t i = 0; i < now.length && status == BY_OK; i++) {
        char c = now.data[i];
        if (a->ignores_punctuation && c != '\0' && strchr(punctuation, c) != NULL) {
            continue;
        }
        c = a->ignores_case && c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
        by_string_add(out, &c, 1);
    }
    status = status == BY_OK ? by_string_check(&now, error) : status;
    by_string_free(&now);
    return status == BY_OK ? by_string_check(out, error) : status;
}

by_status by__evaluate_answer_equal(bool *equal, const by__evaluate_answers *answers,
                                    const char *answer, const char *target, by_error *error)
{
    by_string a = {0};
    by_string b = {0};
    by_status status = reduce(&a, answers, answer, error);
    status = status == BY_OK ? reduce(&b, answers, target, error) : status;
    if (status == BY_OK) {
        *equal = a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
    }
    by_string_free(&a);
    by_string_free(&b);
    return status;
}
