/* Filters of lists. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"

static by_status copy_items(by__template_render *r, const by__template_value *v,
                            by__template_value *out)
{
    by__template_list *items;
    BY_TRY(by__template_value_items(r, v, &items));
    BY_TRY(by__template_value_list(r, items->count, false, out));
    if (items->count > 0) {
        memcpy(out->as.list->items, items->items, items->count * sizeof *items->items);
    }
    return by__template_render_steps(r, items->count / 4);
}

static by_status filter_list(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "list", 0, NULL));
    return copy_items(r, v, out);
}

static by_status filter_items(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "items", 0, NULL));
    if (v->kind == BY__UNDEFINED) {
        return by__template_value_list(r, 0, false, out);
    }
    return v->kind == BY__MAP ? by__template_method_call(r, v, "items", a, out)
                              : by__template_render_fail(r, "items needs a mapping, not %s",
                                                         by__template_value_word(v));
}

static by_status filter_first(by__template_render *r, const by__template_value *v,
                              const by__template_arguments *a, by__template_value *out)
{
    by__template_list *items;
    BY_TRY(by__template_arguments_check(r, a, "first", 0, NULL));
    BY_TRY(by__template_value_items(r, v, &items));
    *out =
        items->count > 0 ? items->items[0] : by__template_value_undefined("the first of nothing");
    return BY_OK;
}

static by_status filter_last(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, by__template_value *out)
{
    by__template_list *items;
    BY_TRY(by__template_arguments_check(r, a, "last", 0, NULL));
    BY_TRY(by__template_value_items(r, v, &items));
    *out = items->count > 0 ? items->items[items->count - 1]
                            : by__template_value_undefined("the last of nothing");
    return BY_OK;
}

static by_status filter_reverse(by__template_render *r, const by__template_value *v,
                                const by__template_arguments *a, by__template_value *out)
{
    BY_TRY(by__template_arguments_check(r, a, "reverse", 0, NULL));
    if (v->kind == BY__STRING) {
        by__template_value step = by__template_value_integer(-1);
        by__template_value none = by__template_value_none();
        return by__template_value_slice(r, v, &none, &none, &step, out);
    }
    BY_TRY(copy_items(r, v, out));
    by__template_list *l = out->as.list;
    for (size_t i = 0; i < l->count / 2; i++) {
        by__template_value held = l->items[i];
        l->items[i] = l->items[l->count - 1 - i];
        l->items[l->count - 1 - i] = held;
    }
    return BY_OK;
}

/* The element of v at the path "a.b.0". */
static by_status get_path(by__template_render *r, const by__template_value *v,
                          const by__template_value *path, by__template_value *out)
{
    *out = *v;
    if (path->kind != BY__STRING) {
        return by__template_value_get(r, v, path, false, out);
    }
    const char *s = path->as.string.data;
    size_t n = path->as.string.length;
    for (size_t begin = 0; begin <= n;) {
        const char *dot = memchr(s + begin, '.', n - begin);
        size_t end = dot != NULL ? (size_t)(dot - s) : n;
        by__template_value key;
        by__template_value of = *out;
        bool number = end > begin && end - begin < 9;
        int64_t index = 0;
        for (size_t i = begin; i < end; i++) {
            number = number && s[i] >= '0' && s[i] <= '9';
            index = index * 10 + (number ? s[i] - '0' : 0);
        }
        BY_TRY(by__template_value_copy_string(r, s + begin, end - begin, &key));
        key = number ? by__template_value_integer(index) : key;
        BY_TRY(by__template_value_get(r, &of, &key, false, out));
        begin = end + 1;
    }
    return BY_OK;
}

static by_status filter_join(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"d", "attribute", NULL};
    const by__template_value *given = by__template_argument(a, 0, "d");
    const by__template_value *path = by__template_argument(a, 1, "attribute");
    by__template_value mark = by__template_value_string("", 0);
    by__template_value list;
    BY_TRY(by__template_arguments_check(r, a, "join", 2, names));
    if (given != NULL) {
        BY_TRY(by__template_value_text(r, given, &mark));
    }
    BY_TRY(copy_items(r, v, &list));
    for (size_t i = 0; path != NULL && i < list.as.list->count; i++) {
        by__template_value item = list.as.list->items[i];
        BY_TRY(get_path(r, &item, path, &list.as.list->items[i]));
    }
    return by__template_join(r, &mark, list.as.list, out);
}

static by_status filter_map(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    const by__template_value *path = by__template_argument(a, SIZE_MAX, "attribute");
    const by__template_value *other = by__template_argument(a, SIZE_MAX, "default");
    const by__template_value *name = by__template_argument(a, 0, NULL);
    if (path == NULL && (name == NULL || name->kind != BY__STRING)) {
        return by__template_render_fail(r, "map needs the name of a filter or an attribute");
    }
    by__template_arguments rest = {.values = a->values + (a->count > 0 ? 1 : 0),
                                   .count = a->count > 0 ? a->count - 1 : 0,
                                   .keywords = a->keywords,
                                   .keyword_count = a->keyword_count};
    BY_TRY(copy_items(r, v, out));
    for (size_t i = 0; i < out->as.list->count; i++) {
        by__template_value item = out->as.list->items[i];
        by__template_value *result = &out->as.list->items[i];
        if (path == NULL) {
            BY_TRY(by__template_filter(r, name->as.string.data, &item, &rest, result));
            continue;
        }
        BY_TRY(get_path(r, &item, path, result));
        if (result->kind == BY__UNDEFINED && other != NULL) {
            *result = *other;
        }
    }
    return BY_OK;
}

/* Implements select, reject, selectattr, rejectattr. */
static by_status choose(by__template_render *r, const by__template_value *v,
                        const by__template_arguments *a, bool attribute, bool wanted,
                        by__template_value *out)
{
    size_t used = attribute ? 1 : 0;
    const by__template_value *name = by__template_argument(a, used, NULL);
    size_t count = 0;
    if ((attribute && a->count == 0) || (name != NULL && name->kind != BY__STRING)) {
        return by__template_render_fail(r, "%s needs %s", attribute ? "selectattr" : "select",
                                        attribute ? "an attribute" : "the name of a test");
    }
    by__template_arguments rest = {0};
    if (a->count > used + 1) {
        rest =
            (by__template_arguments){.values = a->values + used + 1, .count = a->count - used - 1};
    }
    BY_TRY(copy_items(r, v, out));
    by__template_list *l = out->as.list;
    for (size_t i = 0; i < l->count; i++) {
        by__template_value item = l->items[i];
        by__template_value subject = item;
        bool holds;
        if (attribute) {
            BY_TRY(get_path(r, &item, &a->values[0], &subject));
        }
        holds = by__template_value_true(&subject);
        if (name != NULL) {
            BY_TRY(by__template_test(r, name->as.string.data, &subject, &rest, &holds));
        }
        if (holds == wanted) {
            l->items[count++] = item;
        }
    }
    l->count = count;
    return BY_OK;
}

static by_status filter_select(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    return choose(r, v, a, false, true, out);
}

static by_status filter_reject(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    return choose(r, v, a, false, false, out);
}

static by_status filter_selectattr(by__template_render *r, const by__template_value *v,
                                   const by__template_arguments *a, by__template_value *out)
{
    return choose(r, v, a, true, true, out);
}

static by_status filter_rejectattr(by__template_render *r, const by__template_value *v,
                                   const by__template_arguments *a, by__template_value *out)
{
    return choose(r, v, a, true, false, out);
}

/* What each item counts as: itself or what `path` (NULL: none) leads to, a string in lower case
 * unless `exact` (NULL: no) holds. */
static by_status make_keys(by__template_render *r, const by__template_list *items,
                           const by__template_value *path, const by__template_value *exact,
                           by__template_value *out)
{
    by__template_arguments none = {0};
    BY_TRY(by__template_value_list(r, items->count, false, out));
    for (size_t i = 0; i < items->count; i++) {
        by__template_value *key = &out->as.list->items[i];
        *key = items->items[i];
        if (path != NULL) {
            BY_TRY(get_path(r, &items->items[i], path, key));
        }
        if (key->kind == BY__STRING && (exact == NULL || !by__template_value_true(exact))) {
            by__template_value held = *key;
            BY_TRY(by__template_method_call(r, &held, "lower", &none, key));
        }
    }
    return BY_OK;
}

static by_status filter_unique(by__template_render *r, const by__template_value *v,
                               const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"case_sensitive", "attribute", NULL};
    size_t count = 0;
    by__template_value keys;
    BY_TRY(by__template_arguments_check(r, a, "unique", 2, names));
    BY_TRY(copy_items(r, v, out));
    by__template_list *l = out->as.list;
    BY_TRY(make_keys(r, l, by__template_argument(a, 1, "attribute"),
                     by__template_argument(a, 0, "case_sensitive"), &keys));
    by__template_value *k = keys.as.list->items;
    for (size_t i = 0; i < l->count; i++) {
        bool known = false;
        for (size_t j = 0; j < count && !known; j++) {
            BY_TRY(by__template_value_equal(r, &k[j], &k[i], &known));
        }
        if (!known) {
            k[count] = k[i];
            l->items[count++] = l->items[i];
        }
    }
    l->count = count;
    return BY_OK;
}

/* Stable sort of keys with their items; each comparison counts as a step. */
static by_status merge_sort(by__template_render *r, by__template_value *keys,
                            by__template_value *items, size_t count, bool descending)
{
    by__template_value *spare;
    BY_TRY(by__template_render_allocate(r, (void **)&spare, 2 * count, sizeof *spare));
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t middle = begin + width < count ? begin + width : count;
            size_t end = middle + width < count ? middle + width : count;
            size_t a = begin;
            size_t b = middle;
            for (size_t to = begin; to < end; to++) {
                int order = 0;
                if (a < middle && b < end) {
                    BY_TRY(by__template_value_compare(r, &keys[a], &keys[b], &order));
                    order = descending ? -order : order;
                }
                size_t from = b >= end || (a < middle && order <= 0) ? a++ : b++;
                spare[to] = keys[from];
                spare[count + to] = items[from];
            }
        }
        memcpy(keys, spare, count * sizeof *keys);
        memcpy(items, spare + count, count * sizeof *items);
    }
    return BY_OK;
}

static by_status filter_sort(by__template_render *r, const by__template_value *v,
                             const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute", NULL};
    const by__template_value *reverse = by__template_argument(a, 0, "reverse");
    by__template_value keys;
    BY_TRY(by__template_arguments_check(r, a, "sort", 3, names));
    BY_TRY(copy_items(r, v, out));
    BY_TRY(make_keys(r, out->as.list, by__template_argument(a, 2, "attribute"),
                     by__template_argument(a, 1, "case_sensitive"), &keys));
    return merge_sort(r, keys.as.list->items, out->as.list->items, keys.as.list->count,
                      reverse != NULL && by__template_value_true(reverse));
}

static by_status filter_dictsort(by__template_render *r, const by__template_value *v,
                                 const by__template_arguments *a, by__template_value *out)
{
    by__template_value attribute = by__template_value_integer(0);
    by__template_pair keyword = {by__template_value_string("attribute", 9), attribute};
    by__template_arguments sorting = {.keywords = &keyword, .keyword_count = 1};
    by__template_value list;
    BY_TRY(by__template_arguments_check(r, a, "dictsort", 0, NULL));
    BY_TRY(filter_items(r, v, a, &list));
    return filter_sort(r, &list, &sorting, out);
}

static by_status extreme(by__template_render *r, const by__template_value *v,
                         const by__template_arguments *a, int sign, by__template_value *out)
{
    by__template_list *items;
    BY_TRY(by__template_arguments_check(r, a, sign < 0 ? "min" : "max", 0, NULL));
    BY_TRY(by__template_value_items(r, v, &items));
    *out =
        items->count > 0 ? items->items[0] : by__template_value_undefined("an extreme of nothing");
    for (size_t i = 1; i < items->count; i++) {
        int order;
        BY_TRY(by__template_value_compare(r, &items->items[i], out, &order));
        if (order * sign > 0) {
            *out = items->items[i];
        }
    }
    return BY_OK;
}

static by_status filter_min(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    return extreme(r, v, a, -1, out);
}

static by_status filter_max(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    return extreme(r, v, a, 1, out);
}

static by_status filter_sum(by__template_render *r, const by__template_value *v,
                            const by__template_arguments *a, by__template_value *out)
{
    by__template_list *items;
    BY_TRY(by__template_arguments_check(r, a, "sum", 0, NULL));
    BY_TRY(by__template_value_items(r, v, &items));
    *out = by__template_value_integer(0);
    for (size_t i = 0; i < items->count; i++) {
        by__template_value total = *out;
        BY_TRY(by__template_value_operate(r, BY__OP_ADD, &total, &items->items[i], out));
    }
    return BY_OK;
}

const by__template_filter_row by__template_list_filters[] = {{"list", filter_list},
                                                             {"items", filter_items},
                                                             {"first", filter_first},
                                                             {"last", filter_last},
                                                             {"reverse", filter_reverse},
                                                             {"join", filter_join},
                                                             {"map", filter_map},
                                                             {"select", filter_select},
                                                             {"reject", filter_reject},
                                                             {"selectattr", filter_selectattr},
                                                             {"rejectattr", filter_rejectattr},
                                                             {"unique", filter_unique},
                                                             {"sort", filter_sort},
                                                             {"dictsort", filter_dictsort},
                                                             {"min", filter_min},
                                                             {"max", filter_max},
                                                             {"sum", filter_sum},
                                                             {NULL, NULL}};
