/* Methods of strings, mappings and lists, as in Python, except those that modify a value. Case
 * conversion affects ASCII letters only. */
#include <string.h>

#include "base/utf8.h"
#include "text/template/template.h"
#include "text/unicode/unicode.h"

typedef by_status (*method)(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out);

static by_status need_string(by__template_render *r, const by__template_value *v, const char *what)
{
    return v != NULL && v->kind == BY__STRING
               ? BY_OK
               : by__template_render_fail(r, "%s needs a string, not %s", what,
                                          v == NULL ? "nothing" : by__template_value_word(v));
}

/* ---- strings: case ---- */

typedef enum letters { UPPER, LOWER, TITLE, CAPITALIZE } letters;

static by_status change_case(by__template_render *r, const by__template_value *v, letters kind,
                             by__template_value *out)
{
    char *data;
    bool inside = false; /* a letter precedes */
    BY_TRY(by__template_value_copy_string(r, v->as.string.data, v->as.string.length, out));
    data = (char *)(uintptr_t)out->as.string.data;
    for (size_t i = 0; i < v->as.string.length; i++) {
        char c = data[i];
        bool upper = c >= 'A' && c <= 'Z';
        bool lower = c >= 'a' && c <= 'z';
        bool raise = kind == UPPER || (kind == TITLE && !inside) || (kind == CAPITALIZE && i == 0);
        data[i] = (char)(raise && lower ? c - 32 : !raise && upper ? c + 32 : c);
        inside = upper || lower || (uint8_t)c >= 0x80;
    }
    return by__template_render_steps(r, v->as.string.length / 64);
}

static by_status to_upper(by__template_render *r, const by__template_value *v,
                          const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "upper", 0, NULL));
    return change_case(r, v, UPPER, out);
}

static by_status to_lower(by__template_render *r, const by__template_value *v,
                          const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "lower", 0, NULL));
    return change_case(r, v, LOWER, out);
}

static by_status to_title(by__template_render *r, const by__template_value *v,
                          const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "title", 0, NULL));
    return change_case(r, v, TITLE, out);
}

static by_status capitalize(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "capitalize", 0, NULL));
    return change_case(r, v, CAPITALIZE, out);
}

/* ---- strings: ends ---- */

static by_status strip_sides(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, bool left, bool right,
                             by__template_value *out)
{
    const by__template_value *set = by__template_argument(a, 0, NULL);
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    BY_TRY(by__template_arguments_check(r, a, "strip", 1, NULL));
    if (set != NULL && set->kind == BY__NONE) {
        set = NULL;
    }
    if (set != NULL) {
        BY_TRY(need_string(r, set, "strip"));
        BY_TRY(by__template_render_steps(r, (n / 64 + 1) * (1 + set->as.string.length / 16)));
    }
    by__template_strip(&s, &n, set, left, right);
    *out = by__template_value_string(s, n);
    return by__template_render_steps(r, v->as.string.length / 64);
}

static by_status strip(by__template_render *r, const by__template_value *v,
                       const by__template_arguments *a, by__template_value *out)
{
    return strip_sides(r, v, a, true, true, out);
}

static by_status lstrip(by__template_render *r, const by__template_value *v,
                        const by__template_arguments *a, by__template_value *out)
{
    return strip_sides(r, v, a, true, false, out);
}

static by_status rstrip(by__template_render *r, const by__template_value *v,
                        const by__template_arguments *a, by__template_value *out)
{
    return strip_sides(r, v, a, false, true, out);
}

static bool has_end(const by__template_value *v, const by__template_value *part, bool front)
{
    size_t n = v->as.string.length;
    size_t m = part->as.string.length;
    return m <= n && memcmp(v->as.string.data + (front ? 0 : n - m), part->as.string.data, m) == 0;
}

/* startswith and endswith, with a string or any of a tuple. */
static by_status test_end(by__template_render *r, const by__template_value *v,
                          const by__template_arguments *a, bool front, by__template_value *out)
{
    const by__template_value *part = by__template_argument(a, 0, NULL);
    BY_TRY(by__template_arguments_check(r, a, front ? "startswith" : "endswith", 1, NULL));
    bool several = part != NULL && part->kind == BY__LIST;
    size_t count = several ? part->as.list->count : 1;
    *out = by__template_value_bool(false);
    for (size_t i = 0; i < count; i++) {
        const by__template_value *one = several ? &part->as.list->items[i] : part;
        BY_TRY(need_string(r, one, front ? "startswith" : "endswith"));
        BY_TRY(by__template_render_steps(r, one->as.string.length / 64));
        out->as.truth = out->as.truth || has_end(v, one, front);
    }
    return by__template_render_steps(r, count);
}

static by_status startswith(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    return test_end(r, v, a, true, out);
}

static by_status endswith(by__template_render *r, const by__template_value *v,
                          const by__template_arguments *a, by__template_value *out)
{
    return test_end(r, v, a, false, out);
}

static by_status remove_end(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, bool front, by__template_value *out)
{
    const by__template_value *part = by__template_argument(a, 0, NULL);
    BY_TRY(by__template_arguments_check(r, a, "removeprefix", 1, NULL));
    BY_TRY(need_string(r, part, front ? "removeprefix" : "removesuffix"));
    BY_TRY(by__template_render_steps(r, part->as.string.length / 64));
    size_t m = has_end(v, part, front) ? part->as.string.length : 0;
    *out = by__template_value_string(v->as.string.data + (front ? m : 0), v->as.string.length - m);
    return BY_OK;
}

static by_status removeprefix(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    return remove_end(r, v, a, true, out);
}

static by_status removesuffix(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    return remove_end(r, v, a, false, out);
}

/* ---- strings: parts ---- */

static by_status push(by__template_render *r, by__template_value *list, size_t *capacity,
                      const char *s, size_t n)
{
    by__template_list *l = list->as.list;
    if (l->count == *capacity) {
        by__template_value *items;
        *capacity = *capacity == 0 ? 8 : 2 * *capacity;
        BY_TRY(by__template_render_allocate(r, (void **)&items, *capacity, sizeof *items));
        if (l->count > 0) {
            memcpy(items, l->items, l->count * sizeof *items);
        }
        l->items = items;
    }
    l->items[l->count++] = by__template_value_string(s, n);
    return by__template_render_steps(r, 1);
}

static by_status split_at_spaces(by__template_render *r, const char *s, size_t n, int64_t most,
                                 by__template_value *out)
{
    size_t capacity = 0;
    size_t at = 0;
    size_t length;
    for (;;) {
        while (at < n && by__template_is_space(s + at, n - at, &length)) {
            at += length;
        }
        if (at == n) {
            return BY_OK;
        }
        size_t end = at;
        bool last = most == (int64_t)out->as.list->count;
        while (end < n && (last || !by__template_is_space(s + end, n - end, &length))) {
            end += last ? 1 : length;
        }
        BY_TRY(push(r, out, &capacity, s + at, end - at));
        at = end;
    }
}

/* From the end, the last `most` separators count. */
static size_t skip_separators(const char *s, size_t n, const by__template_value *mark, int64_t most)
{
    size_t count = 0;
    for (size_t at = 0; at < n;) {
        const char *found = memmem(s + at, n - at, mark->as.string.data, mark->as.string.length);
        if (found == NULL) {
            break;
        }
        count++;
        at = (size_t)(found - s) + mark->as.string.length;
    }
    return most >= 0 && count > (size_t)most ? count - (size_t)most : 0;
}

static by_status split_parts(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, bool right, by__template_value *out)
{
    static const char *const names[] = {"sep", "maxsplit", NULL};
    const by__template_value *mark = by__template_argument(a, 0, "sep");
    const by__template_value *limit = by__template_argument(a, 1, "maxsplit");
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    size_t capacity = 0;
    int64_t most = limit != NULL && limit->kind == BY__INTEGER ? limit->as.integer : -1;
    BY_TRY(by__template_arguments_check(r, a, "split", 2, names));
    BY_TRY(by__template_value_list(r, 0, false, out));
    BY_TRY(by__template_render_steps(r, n / 16));
    if (mark == NULL || mark->kind == BY__NONE) {
        return split_at_spaces(r, s, n, most, out);
    }
    BY_TRY(need_string(r, mark, "split"));
    if (mark->as.string.length == 0) {
        return by__template_render_fail(r, "split: the separator is empty");
    }
    size_t skip = right ? skip_separators(s, n, mark, most) : 0;
    size_t begin = 0;
    size_t at = 0;
    while (most < 0 || right || (int64_t)out->as.list->count < most) {
        const char *found = memmem(s + at, n - at, mark->as.string.data, mark->as.string.length);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - s) + mark->as.string.length;
        if (skip > 0) {
            skip--;
            continue;
        }
        BY_TRY(push(r, out, &capacity, s + begin, (size_t)(found - s) - begin));
        begin = at;
    }
    return push(r, out, &capacity, s + begin, n - begin);
}

static by_status split(by__template_render *r, const by__template_value *v,
                       const by__template_arguments *a, by__template_value *out)
{
    return split_parts(r, v, a, false, out);
}

static by_status rsplit(by__template_render *r, const by__template_value *v,
                        const by__template_arguments *a, by__template_value *out)
{
    return split_parts(r, v, a, true, out);
}

static by_status splitlines(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    size_t capacity = 0;
    BY_TRY(by__template_arguments_check(r, a, "splitlines", 0, NULL));
    BY_TRY(by__template_value_list(r, 0, false, out));
    for (size_t begin = 0; begin < n;) {
        size_t end = begin;
        while (end < n && s[end] != '\n' && s[end] != '\r') {
            end++;
        }
        BY_TRY(push(r, out, &capacity, s + begin, end - begin));
        end += end + 1 < n && s[end] == '\r' && s[end + 1] == '\n' ? 1 : 0;
        begin = end + 1;
    }
    return by__template_render_steps(r, n / 64);
}

static by_status replace(by__template_render *r, const by__template_value *v,
                         const by__template_arguments *a, by__template_value *out)
{
    const by__template_value *old = by__template_argument(a, 0, NULL);
    const by__template_value *new = by__template_argument(a, 1, NULL);
    const by__template_value *limit = by__template_argument(a, 2, "count");
    static const char *const names[] = {"count", NULL};
    int64_t most = limit != NULL && limit->kind == BY__INTEGER ? limit->as.integer : -1;
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    by_string text = {0};
    BY_TRY(by__template_arguments_check(r, a, "replace", 3, names));
    BY_TRY(need_string(r, old, "replace"));
    BY_TRY(need_string(r, new, "replace"));
    if (old->as.string.length == 0) {
        return by__template_render_fail(r, "replace: the text to be replaced is empty");
    }
    size_t at = 0;
    for (; most != 0; most--) {
        const char *found = memmem(s + at, n - at, old->as.string.data, old->as.string.length);
        if (found == NULL || text.length > r->arena.left) {
            break;
        }
        by_string_add(&text, s + at, (size_t)(found - s) - at);
        by_string_add(&text, new->as.string.data, new->as.string.length);
        at = (size_t)(found - s) + old->as.string.length;
    }
    by_string_add(&text, s + at, n - at);
    size_t length = text.length;
    BY_TRY(by__template_value_move_text(r, &text, out));
    return by__template_render_steps(r, (n + length) / 32);
}

static by_status find_part(by__template_render *r, const by__template_value *v,
                           const by__template_arguments *a, bool last, by__template_value *out)
{
    const by__template_value *part = by__template_argument(a, 0, NULL);
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    size_t found = SIZE_MAX;
    BY_TRY(by__template_arguments_check(r, a, "find", 1, NULL));
    BY_TRY(need_string(r, part, "find"));
    size_t m = part->as.string.length;
    BY_TRY(by__template_render_steps(r, n / 16));
    for (size_t i = 0; m <= n && i <= n - m; i++) {
        const char *at = memmem(s + i, n - i, part->as.string.data, m); /* in linear time */
        if (at == NULL) {
            break;
        }
        found = i = (size_t)(at - s);
        if (!last) {
            break;
        }
        BY_TRY(by__template_render_steps(r, 1 + m / 16));
    }
    *out = by__template_value_integer(found == SIZE_MAX ? -1 : (int64_t)by__utf8_count(s, found));
    return BY_OK;
}

static by_status find(by__template_render *r, const by__template_value *v,
                      const by__template_arguments *a, by__template_value *out)
{
    return find_part(r, v, a, false, out);
}

static by_status rfind(by__template_render *r, const by__template_value *v,
                       const by__template_arguments *a, by__template_value *out)
{
    return find_part(r, v, a, true, out);
}

static by_status count(by__template_render *r, const by__template_value *v,
                       const by__template_arguments *a, by__template_value *out)
{
    const by__template_value *part = by__template_argument(a, 0, NULL);
    BY_TRY(by__template_arguments_check(r, a, "count", 1, NULL));
    if (v->kind == BY__LIST) {
        int64_t found = 0;
        for (size_t i = 0; part != NULL && i < v->as.list->count; i++) {
            bool same;
            BY_TRY(by__template_value_equal(r, &v->as.list->items[i], part, &same));
            found += same ? 1 : 0;
        }
        *out = by__template_value_integer(found);
        return BY_OK;
    }
    BY_TRY(need_string(r, part, "count"));
    if (part->as.string.length == 0) {
        return by__template_render_fail(r, "count: the text to be counted is empty");
    }
    *out = by__template_value_integer(
        (int64_t)skip_separators(v->as.string.data, v->as.string.length, part, 0));
    return by__template_render_steps(r, v->as.string.length / 16);
}

by_status by__template_join(by__template_render *r, const by__template_value *mark,
                            const by__template_list *items, by__template_value *out)
{
    by_string text = {0};
    by_status status = BY_OK;
    for (size_t i = 0; i < items->count && status == BY_OK; i++) {
        by__template_value one;
        status = by__template_value_text(r, &items->items[i], &one);
        if (status == BY_OK) {
            by_string_add(&text, mark->as.string.data, i > 0 ? mark->as.string.length : 0);
            by_string_add(&text, one.as.string.data, one.as.string.length);
            status =
                text.length > r->arena.left
                    ? by__template_render_fail(r, "the template needs more memory than it may have")
                    : by__template_render_steps(r, 1 + one.as.string.length / 64);
        }
    }
    if (status != BY_OK) {
        by_string_free(&text);
        return status;
    }
    return by__template_value_move_text(r, &text, out);
}

static by_status join(by__template_render *r, const by__template_value *v,
                      const by__template_arguments *a, by__template_value *out)
{
    const by__template_value *all = by__template_argument(a, 0, NULL);
    by__template_list *items;
    BY_TRY(by__template_arguments_check(r, a, "join", 1, NULL));
    if (all == NULL) {
        return by__template_render_fail(r, "join needs a list");
    }
    BY_TRY(by__template_value_items(r, all, &items));
    for (size_t i = 0; i < items->count; i++) {
        BY_TRY(need_string(r, &items->items[i], "join"));
    }
    return by__template_join(r, v, items, out);
}

/* isdigit, isalpha, isspace: the string is not empty and all characters are of a class. */
static by_status all_of(by__template_render *r, const by__template_value *v, unsigned kind,
                        by__template_value *out)
{
    bool holds = v->as.string.length > 0;
    for (size_t i = 0; i < v->as.string.length && holds;) {
        uint32_t code;
        i += by__utf8_next((const uint8_t *)v->as.string.data + i, v->as.string.length - i, &code);
        holds = (by__code_class(code) & BY__CLASS) == kind;
    }
    *out = by__template_value_bool(holds);
    return by__template_render_steps(r, v->as.string.length / 64);
}

static by_status isdigit_method(by__template_render *r, const by__template_value *v,
                                const by__template_arguments *a, by__template_value *out)
{
    BY_UNUSED(a);
    return all_of(r, v, BY__NUMBER, out);
}

static by_status isalpha_method(by__template_render *r, const by__template_value *v,
                                const by__template_arguments *a, by__template_value *out)
{
    BY_UNUSED(a);
    return all_of(r, v, BY__LETTER, out);
}

static by_status isspace_method(by__template_render *r, const by__template_value *v,
                                const by__template_arguments *a, by__template_value *out)
{
    BY_UNUSED(a);
    return all_of(r, v, BY__SPACE, out);
}

/* ---- mappings ---- */

static by_status pairs_of(by__template_render *r, const by__template_value *v, unsigned part,
                          by__template_value *out)
{
    const by__template_table *t = v->as.table;
    BY_TRY(by__template_value_list(r, t->count, false, out));
    for (size_t i = 0; i < t->count; i++) {
        by__template_value *item = &out->as.list->items[i];
        if (part < 2) {
            *item = part == 0 ? t->pairs[i].key : t->pairs[i].value;
            continue;
        }
        BY_TRY(by__template_value_list(r, 2, true, item));
        item->as.list->items[0] = t->pairs[i].key;
        item->as.list->items[1] = t->pairs[i].value;
    }
    return by__template_render_steps(r, t->count);
}

static by_status keys(by__template_render *r, const by__template_value *v,
                      const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "keys", 0, NULL));
    return pairs_of(r, v, 0, out);
}

static by_status values(by__template_render *r, const by__template_value *v,
                        const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "values", 0, NULL));
    return pairs_of(r, v, 1, out);
}

static by_status items(by__template_render *r, const by__template_value *v,
                       const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "items", 0, NULL));
    return pairs_of(r, v, 2, out);
}

static by_status get(by__template_render *r, const by__template_value *v,
                     const by__template_arguments *a, by__template_value *out)
{
    const by__template_value *key = by__template_argument(a, 0, NULL);
    const by__template_value *other = by__template_argument(a, 1, NULL);
    by__template_value *held = NULL;
    BY_TRY(by__template_arguments_check(r, a, "get", 2, NULL));
    if (key == NULL) {
        return by__template_render_fail(r, "get needs a key");
    }
    BY_TRY(by__template_check_key(r, key));
    BY_TRY(by__template_table_get(r, v->as.table, key, &held));
    *out = held != NULL ? *held : other != NULL ? *other : by__template_value_none();
    return BY_OK;
}

static by_status index_of(by__template_render *r, const by__template_value *v,
                          const by__template_arguments *a, by__template_value *out)
{
    const by__template_value *one = by__template_argument(a, 0, NULL);
    for (size_t i = 0; one != NULL && i < v->as.list->count; i++) {
        bool same;
        BY_TRY(by__template_value_equal(r, &v->as.list->items[i], one, &same));
        if (same) {
            *out = by__template_value_integer((int64_t)i);
            return BY_OK;
        }
    }
    return by__template_render_fail(r, "index: the value is not in the list");
}

/* loop.cycle(a, b, ...) at the element with that index. */
static by_status cycle(by__template_render *r, const by__template_value *v,
                       const by__template_arguments *a, by__template_value *out)
{
    if (a->count == 0 || a->keyword_count > 0) {
        return by__template_render_fail(r, "loop.cycle needs values, which have no names");
    }
    *out = a->values[(size_t)v->as.integer % a->count];
    return BY_OK;
}

static const struct {
    by__template_value_kind kind;
    const char *name;
    method call;
} methods[] = {{BY__STRING, "strip", strip},
               {BY__STRING, "lstrip", lstrip},
               {BY__STRING, "rstrip", rstrip},
               {BY__STRING, "split", split},
               {BY__STRING, "rsplit", rsplit},
               {BY__STRING, "splitlines", splitlines},
               {BY__STRING, "startswith", startswith},
               {BY__STRING, "endswith", endswith},
               {BY__STRING, "removeprefix", removeprefix},
               {BY__STRING, "removesuffix", removesuffix},
               {BY__STRING, "replace", replace},
               {BY__STRING, "upper", to_upper},
               {BY__STRING, "lower", to_lower},
               {BY__STRING, "title", to_title},
               {BY__STRING, "capitalize", capitalize},
               {BY__STRING, "find", find},
               {BY__STRING, "rfind", rfind},
               {BY__STRING, "count", count},
               {BY__STRING, "join", join},
               {BY__STRING, "isdigit", isdigit_method},
               {BY__STRING, "isalpha", isalpha_method},
               {BY__STRING, "isspace", isspace_method},
               {BY__MAP, "keys", keys},
               {BY__MAP, "values", values},
               {BY__MAP, "items", items},
               {BY__MAP, "get", get},
               {BY__INTEGER, "cycle", cycle},
               {BY__LIST, "index", index_of},
               {BY__LIST, "count", count}};

static method find_method(by__template_value_kind kind, const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(methods); i++) {
        if (methods[i].kind == kind && strcmp(methods[i].name, name) == 0) {
            return methods[i].call;
        }
    }
    return NULL;
}

bool by__template_method_exists(by__template_value_kind kind, const char *name)
{
    return kind != BY__INTEGER && find_method(kind, name) != NULL; /* only `loop` has cycle */
}

by_status by__template_method_call(by__template_render *r, const by__template_value *object,
                                   const char *name, const by__template_arguments *arguments,
                                   by__template_value *out)
{
    method call = find_method(object->kind, name);
    if (call == NULL) {
        return by__template_render_fail(r, "%s has no method '%.60s'",
                                        by__template_value_word(object), name);
    }
    return call(r, object, arguments, out);
}
