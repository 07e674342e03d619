/* Python values: allocation, truth, equality, order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template/template.h"
#include "text/unicode/unicode.h"

#define BLOCK_BYTES ((size_t)16 << 10)

struct by__template_arena_block {
    by__template_arena_block *next;
    size_t used;
    size_t size;
    size_t padding;
};

by_status by__template_arena_allocate(by__template_arena *a, void **out, size_t count, size_t size,
                                      by_error *error)
{
    size_t bytes;
    if (!by__size_mul(count, size, &bytes) || bytes > a->left || a->left - bytes < BY_CACHE_LINE) {
        return by_error_set(error, BY_EARG, "a template needs more memory than it may have");
    }
    bytes = by__round_up(bytes, 16);
    a->left -= bytes < a->left ? bytes : a->left;
    if (a->blocks == NULL || a->blocks->size - a->blocks->used < bytes) {
        size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        by__template_arena_block *block = malloc(sizeof *block + capacity);
        if (block == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %zu bytes of a template",
                                capacity);
        }
        *block = (by__template_arena_block){.next = a->blocks, .size = capacity};
        a->blocks = block;
    }
    char *data = (char *)(a->blocks + 1) + a->blocks->used;
    a->blocks->used += bytes;
    memset(data, 0, bytes);
    *out = data;
    return BY_OK;
}

void by__template_arena_free(by__template_arena *a)
{
    while (a->blocks != NULL) {
        by__template_arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
}

/* ---- making values ---- */

by__template_value by__template_value_none(void)
{
    return (by__template_value){.kind = BY__NONE};
}

by__template_value by__template_value_bool(bool truth)
{
    return (by__template_value){.kind = BY__BOOL, .as.truth = truth};
}

by__template_value by__template_value_integer(int64_t integer)
{
    return (by__template_value){.kind = BY__INTEGER, .as.integer = integer};
}

by__template_value by__template_value_string(const char *data, size_t length)
{
    return (by__template_value){.kind = BY__STRING, .as.string = {data, length}};
}

by__template_value by__template_value_undefined(const char *name)
{
    return (by__template_value){.kind = BY__UNDEFINED, .as.string = {name, strlen(name)}};
}

by_status by__template_value_copy_string(by__template_render *r, const char *data, size_t length,
                                         by__template_value *out)
{
    char *copy;
    BY_TRY(by__template_render_allocate(r, (void **)&copy, length + 1, 1));
    if (length > 0) {
        memcpy(copy, data, length);
    }
    *out = by__template_value_string(copy, length);
    return BY_OK;
}

by_status by__template_value_move_text(by__template_render *r, by_string *text,
                                       by__template_value *out)
{
    by_status status = text->failed
                           ? by_error_set(r->error, BY_EMEMORY, "out of memory: text of a template")
                           : by__template_value_copy_string(r, text->data != NULL ? text->data : "",
                                                            text->length, out);
    by_string_free(text);
    return status;
}

by_status by__template_value_list(by__template_render *r, size_t count, bool tuple,
                                  by__template_value *out)
{
    by__template_list *list;
    BY_TRY(by__template_render_allocate(r, (void **)&list, 1, sizeof *list));
    BY_TRY(by__template_render_allocate(r, (void **)&list->items, count, sizeof *list->items));
    list->count = count;
    list->tuple = tuple;
    *out = (by__template_value){.kind = BY__LIST, .as.list = list};
    return BY_OK;
}

by_status by__template_value_map(by__template_render *r, by__template_value *out)
{
    out->kind = BY__MAP;
    return by__template_render_allocate(r, (void **)&out->as.table, 1, sizeof *out->as.table);
}

by__template_value *by__template_table_find(const by__template_table *table, const char *key,
                                            size_t length)
{
    for (size_t i = 0; i < table->count; i++) {
        const by__template_value *held = &table->pairs[i].key;
        if (held->kind == BY__STRING && held->as.string.length == length &&
            memcmp(held->as.string.data, key, length) == 0) {
            return &table->pairs[i].value;
        }
    }
    return NULL;
}

by_status by__template_table_get(by__template_render *r, const by__template_table *table,
                                 const by__template_value *key, by__template_value **out)
{
    *out = NULL;
    BY_TRY(by__template_render_steps(r, table->count / 16));
    if (key->kind == BY__STRING) {
        *out = by__template_table_find(table, key->as.string.data, key->as.string.length);
        return BY_OK;
    }
    for (size_t i = 0; i < table->count && *out == NULL; i++) {
        bool same;
        BY_TRY(by__template_value_equal(r, &table->pairs[i].key, key, &same));
        *out = same ? &table->pairs[i].value : NULL;
    }
    return BY_OK;
}

by_status by__template_check_key(by__template_render *r, const by__template_value *key)
{
    bool changes = (key->kind == BY__LIST && !key->as.list->tuple) || key->kind == BY__MAP;
    return changes ? by__template_render_fail(r, "%s cannot be a key", by__template_value_word(key))
                   : BY_OK;
}

by_status by__template_table_put(by__template_render *r, by__template_table *table,
                                 const by__template_value *key, const by__template_value *value)
{
    by__template_value *held;
    BY_TRY(by__template_table_get(r, table, key, &held));
    if (held != NULL) {
        *held = *value;
        return BY_OK;
    }
    if (table->pairs == NULL || table->count == table->capacity) {
        size_t capacity = table->capacity == 0 ? 4 : 2 * table->capacity;
        by__template_pair *pairs;
        BY_TRY(by__template_render_allocate(r, (void **)&pairs, capacity, sizeof *pairs));
        if (table->pairs != NULL) {
            memcpy(pairs, table->pairs, table->count * sizeof *pairs);
        }
        table->pairs = pairs;
        table->capacity = capacity;
    }
    table->pairs[table->count++] = (by__template_pair){*key, *value};
    return BY_OK;
}

/* ---- predicates ---- */

bool by__template_value_is(const by__template_value *value, const char *text)
{
    return value->kind == BY__STRING && value->as.string.length == strlen(text) &&
           memcmp(value->as.string.data, text, value->as.string.length) == 0;
}

bool by__template_value_true(const by__template_value *v)
{
    switch (v->kind) {
    case BY__UNDEFINED:
    case BY__NONE:
        return false;
    case BY__BOOL:
        return v->as.truth;
    case BY__INTEGER:
        return v->as.integer != 0;
    case BY__REAL:
    case BY__SPELLED:
        return by__template_value_real(v) != 0.0;
    case BY__STRING:
        return v->as.string.length > 0;
    case BY__LIST:
        return v->as.list->count > 0;
    case BY__MAP:
        return v->as.table->count > 0;
    default:
        return true;
    }
}

const char *by__template_value_word(const by__template_value *v)
{
    static const char *const words[] = {[BY__UNDEFINED] = "an undefined value",
                                        [BY__NONE] = "none",
                                        [BY__BOOL] = "a boolean",
                                        [BY__INTEGER] = "an integer",
                                        [BY__REAL] = "a float",
                                        [BY__SPELLED] = "a number",
                                        [BY__STRING] = "a string",
                                        [BY__LIST] = "a list",
                                        [BY__MAP] = "a mapping",
                                        [BY__NAMESPACE] = "a namespace",
                                        [BY__MACRO] = "a macro",
                                        [BY__BUILTIN] = "a function",
                                        [BY__METHOD] = "a method"};
    return words[v->kind];
}

bool by__template_value_is_number(const by__template_value *v)
{
    return v->kind == BY__INTEGER || v->kind == BY__BOOL || by__template_value_is_real(v);
}

bool by__template_value_is_real(const by__template_value *v)
{
    return v->kind == BY__REAL || v->kind == BY__SPELLED;
}

double by__template_value_real(const by__template_value *v)
{
    double spelled;
    if (v->kind == BY__SPELLED) {
        return by__parse_f64(v->as.string.data, &spelled) ? spelled : (double)NAN;
    }
    return v->kind == BY__REAL      ? v->as.real
           : v->kind == BY__INTEGER ? (double)v->as.integer
                                    : (v->as.truth ? 1.0 : 0.0);
}

int64_t by__template_value_whole(const by__template_value *v)
{
    return v->kind == BY__BOOL ? (v->as.truth ? 1 : 0) : v->as.integer;
}

static by_status equal_tables(by__template_render *r, const by__template_table *a,
                              const by__template_table *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) {
        by__template_value *other;
        BY_TRY(by__template_table_get(r, b, &a->pairs[i].key, &other));
        *out = other != NULL;
        if (*out) {
            BY_TRY(by__template_value_equal(r, &a->pairs[i].value, other, out));
        }
    }
    return BY_OK;
}

static by_status equal_values(by__template_render *r, const by__template_value *a,
                              const by__template_value *b, bool *out)
{
    *out = false;
    if (by__template_value_is_number(a) && by__template_value_is_number(b)) {
        *out = by__template_value_is_real(a) || by__template_value_is_real(b)
                   ? by__template_value_real(a) == by__template_value_real(b)
                   : by__template_value_whole(a) == by__template_value_whole(b);
        return BY_OK;
    }
    if (a->kind != b->kind) {
        return BY_OK;
    }
    switch (a->kind) {
    case BY__STRING:
        *out = a->as.string.length == b->as.string.length &&
               memcmp(a->as.string.data, b->as.string.data, a->as.string.length) == 0;
        return by__template_render_steps(r, a->as.string.length / 64);
    case BY__LIST:
        *out = a->as.list->count == b->as.list->count && a->as.list->tuple == b->as.list->tuple;
        for (size_t i = 0; i < a->as.list->count && *out; i++) {
            BY_TRY(by__template_value_equal(r, &a->as.list->items[i], &b->as.list->items[i], out));
        }
        return BY_OK;
    case BY__MAP:
        return equal_tables(r, a->as.table, b->as.table, out);
    case BY__NAMESPACE:
        *out = a->as.table == b->as.table;
        return BY_OK;
    case BY__MACRO:
        *out = a->as.macro == b->as.macro;
        return BY_OK;
    default:
        *out = a->kind == BY__NONE || a->kind == BY__UNDEFINED;
        return BY_OK;
    }
}

by_status by__template_value_equal(by__template_render *r, const by__template_value *a,
                                   const by__template_value *b, bool *out)
{
    BY_TRY(by__template_render_enter(r));
    BY_TRY(equal_values(r, a, b, out));
    r->depth--;
    return BY_OK;
}

by_status by__template_value_compare(by__template_render *r, const by__template_value *a,
                                     const by__template_value *b, int *out)
{
    BY_TRY(by__template_render_steps(r, 1));
    if (by__template_value_is_number(a) && by__template_value_is_number(b)) {
        if (!by__template_value_is_real(a) && !by__template_value_is_real(b)) {
            int64_t x = by__template_value_whole(a);
            int64_t y = by__template_value_whole(b);
            *out = (x > y) - (x < y);
        } else {
            double x = by__template_value_real(a);
            double y = by__template_value_real(b);
            *out = (x > y) - (x < y);
        }
        return BY_OK;
    }
    if (a->kind == BY__STRING && b->kind == BY__STRING) {
        size_t n =
            a->as.string.length < b->as.string.length ? a->as.string.length : b->as.string.length;
        int order = n > 0 ? memcmp(a->as.string.data, b->as.string.data, n) : 0;
        *out = order != 0 ? order
                          : (a->as.string.length > b->as.string.length) -
                                (a->as.string.length < b->as.string.length);
        return by__template_render_steps(r, n / 64);
    }
    if (a->kind == BY__LIST && b->kind == BY__LIST) {
        size_t n = a->as.list->count < b->as.list->count ? a->as.list->count : b->as.list->count;
        for (size_t i = 0; i < n; i++) {
            bool same;
            BY_TRY(
                by__template_value_equal(r, &a->as.list->items[i], &b->as.list->items[i], &same));
            if (!same) {
                BY_TRY(by__template_render_enter(r));
                BY_TRY(by__template_value_compare(r, &a->as.list->items[i], &b->as.list->items[i],
                                                  out));
                r->depth--;
                return BY_OK;
            }
        }
        *out = (a->as.list->count > b->as.list->count) - (a->as.list->count < b->as.list->count);
        return BY_OK;
    }
    return by__template_render_fail(r, "%s and %s have no order", by__template_value_word(a),
                                    by__template_value_word(b));
}

by_status by__template_value_contains(by__template_render *r, const by__template_value *all,
                                      const by__template_value *one, bool *out)
{
    *out = false;
    if (all->kind == BY__STRING) {
        if (one->kind != BY__STRING) {
            return by__template_render_fail(r, "'in' of a string needs a string, not %s",
                                            by__template_value_word(one));
        }
        BY_TRY(by__template_render_steps(r, all->as.string.length / 16));
        *out = one->as.string.length == 0 ||
               memmem(all->as.string.data, all->as.string.length, one->as.string.data,
                      one->as.string.length) != NULL;
        return BY_OK;
    }
    if (all->kind == BY__MAP) {
        by__template_value *held;
        BY_TRY(by__template_check_key(r, one));
        BY_TRY(by__template_table_get(r, all->as.table, one, &held));
        *out = held != NULL;
        return BY_OK;
    }
    by__template_list *items;
    BY_TRY(by__template_value_items(r, all, &items));
    for (size_t i = 0; i < items->count && !*out; i++) {
        BY_TRY(by__template_value_equal(r, &items->items[i], one, out));
    }
    return BY_OK;
}

static by_status string_items(by__template_render *r, const by__template_value *v,
                              by__template_value *list)
{
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    BY_TRY(by__template_value_list(r, by__utf8_count(s, n), false, list));
    for (size_t i = 0, at = 0; i < list->as.list->count; i++) {
        uint32_t code;
        size_t length = by__utf8_next((const uint8_t *)s + at, n - at, &code);
        list->as.list->items[i] = by__template_value_string(s + at, length);
        at += length;
    }
    return BY_OK;
}

by_status by__template_value_items(by__template_render *r, const by__template_value *v,
                                   by__template_list **out)
{
    by__template_value list = {0};
    switch (v->kind) {
    case BY__LIST:
        *out = v->as.list;
        return BY_OK;
    case BY__UNDEFINED:
        BY_TRY(by__template_value_list(r, 0, false, &list));
        break;
    case BY__STRING:
        BY_TRY(string_items(r, v, &list));
        break;
    case BY__MAP:
        BY_TRY(by__template_value_list(r, v->as.table->count, false, &list));
        for (size_t i = 0; i < v->as.table->count; i++) {
            list.as.list->items[i] = v->as.table->pairs[i].key;
        }
        break;
    default:
        return by__template_render_fail(r, "%s has no elements", by__template_value_word(v));
    }
    *out = list.as.list;
    return by__template_render_steps(r, list.as.list->count / 4);
}
