/* Python values: memory, truth, equality, order, elements, operators. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/template/template.h"
#include "data/tokenizer/unicode.h"

#define BLOCK_BYTES ((size_t)16 << 10)

struct by__arena_block {
    by__arena_block *next;
    size_t used;
    size_t size;
    size_t padding;
};

by_status by__arena_take(by__arena *a, void **out, size_t count, size_t size, by_error *error)
{
    size_t bytes;
    if (!by__size_mul(count, size, &bytes) || bytes > a->left || a->left - bytes < BY_CACHE_LINE) {
        return by_error_set(error, BY_EARG, "a template needs more memory than it may have");
    }
    bytes = by__round_up(bytes, 16);
    a->left -= bytes < a->left ? bytes : a->left;
    if (a->blocks == NULL || a->blocks->size - a->blocks->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        by__arena_block *block = malloc(sizeof *block + room);
        if (block == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %zu bytes of a template", room);
        }
        *block = (by__arena_block){.next = a->blocks, .size = room};
        a->blocks = block;
    }
    char *data = (char *)(a->blocks + 1) + a->blocks->used;
    a->blocks->used += bytes;
    memset(data, 0, bytes);
    *out = data;
    return BY_OK;
}

void by__arena_free(by__arena *a)
{
    while (a->blocks != NULL) {
        by__arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
}

/* ---- making values ---- */

by__value by__value_none(void)
{
    return (by__value){.kind = BY__NONE};
}

by__value by__value_bool(bool truth)
{
    return (by__value){.kind = BY__BOOL, .as.truth = truth};
}

by__value by__value_integer(int64_t integer)
{
    return (by__value){.kind = BY__INTEGER, .as.integer = integer};
}

by__value by__value_string(const char *data, size_t length)
{
    return (by__value){.kind = BY__STRING, .as.string = {data, length}};
}

by__value by__value_undefined(const char *name)
{
    return (by__value){.kind = BY__UNDEFINED, .as.string = {name, strlen(name)}};
}

by_status by__value_copy_string(by__render *r, const char *data, size_t length, by__value *out)
{
    char *copy;
    BY_TRY(by__render_take(r, (void **)&copy, length + 1, 1));
    if (length > 0) {
        memcpy(copy, data, length);
    }
    *out = by__value_string(copy, length);
    return BY_OK;
}

by_status by__value_take_text(by__render *r, by__text *text, by__value *out)
{
    by_status status =
        text->failed
            ? by_error_set(r->error, BY_EMEMORY, "out of memory: text of a template")
            : by__value_copy_string(r, text->data != NULL ? text->data : "", text->length, out);
    by__text_free(text);
    return status;
}

by_status by__value_list(by__render *r, size_t count, bool tuple, by__value *out)
{
    by__list *list;
    BY_TRY(by__render_take(r, (void **)&list, 1, sizeof *list));
    BY_TRY(by__render_take(r, (void **)&list->items, count, sizeof *list->items));
    list->count = count;
    list->tuple = tuple;
    *out = (by__value){.kind = BY__LIST, .as.list = list};
    return BY_OK;
}

by_status by__value_map(by__render *r, by__value *out)
{
    out->kind = BY__MAP;
    return by__render_take(r, (void **)&out->as.table, 1, sizeof *out->as.table);
}

by__value *by__table_find(const by__table *table, const char *key, size_t length)
{
    for (size_t i = 0; i < table->count; i++) {
        const by__value *held = &table->pairs[i].key;
        if (held->kind == BY__STRING && held->as.string.length == length &&
            memcmp(held->as.string.data, key, length) == 0) {
            return &table->pairs[i].value;
        }
    }
    return NULL;
}

by_status by__table_get(by__render *r, const by__table *table, const by__value *key,
                        by__value **out)
{
    *out = NULL;
    BY_TRY(by__render_steps(r, table->count / 16));
    if (key->kind == BY__STRING) {
        *out = by__table_find(table, key->as.string.data, key->as.string.length);
        return BY_OK;
    }
    for (size_t i = 0; i < table->count && *out == NULL; i++) {
        bool same;
        BY_TRY(by__value_equal(r, &table->pairs[i].key, key, &same));
        *out = same ? &table->pairs[i].value : NULL;
    }
    return BY_OK;
}

by_status by__check_key(by__render *r, const by__value *key)
{
    bool changes = (key->kind == BY__LIST && !key->as.list->tuple) || key->kind == BY__MAP;
    return changes ? by__render_fail(r, "%s cannot be a key", by__value_word(key)) : BY_OK;
}

by_status by__table_put(by__render *r, by__table *table, const by__value *key,
                        const by__value *value)
{
    by__value *held;
    BY_TRY(by__table_get(r, table, key, &held));
    if (held != NULL) {
        *held = *value;
        return BY_OK;
    }
    if (table->count == table->capacity) {
        size_t capacity = table->capacity == 0 ? 4 : 2 * table->capacity;
        by__pair *pairs;
        BY_TRY(by__render_take(r, (void **)&pairs, capacity, sizeof *pairs));
        if (table->count > 0) {
            memcpy(pairs, table->pairs, table->count * sizeof *pairs);
        }
        table->pairs = pairs;
        table->capacity = capacity;
    }
    table->pairs[table->count++] = (by__pair){*key, *value};
    return BY_OK;
}

/* ---- questions ---- */

bool by__value_is(const by__value *value, const char *text)
{
    return value->kind == BY__STRING && value->as.string.length == strlen(text) &&
           memcmp(value->as.string.data, text, value->as.string.length) == 0;
}

bool by__value_true(const by__value *v)
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
        return v->as.real != 0.0;
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

const char *by__value_word(const by__value *v)
{
    static const char *const words[] = {[BY__UNDEFINED] = "an undefined value",
                                        [BY__NONE] = "none",
                                        [BY__BOOL] = "a boolean",
                                        [BY__INTEGER] = "an integer",
                                        [BY__REAL] = "a float",
                                        [BY__STRING] = "a string",
                                        [BY__LIST] = "a list",
                                        [BY__MAP] = "a mapping",
                                        [BY__NAMESPACE] = "a namespace",
                                        [BY__MACRO] = "a macro",
                                        [BY__BUILTIN] = "a function",
                                        [BY__METHOD] = "a method"};
    return words[v->kind];
}

bool by__value_is_number(const by__value *v)
{
    return v->kind == BY__INTEGER || v->kind == BY__REAL || v->kind == BY__BOOL;
}

double by__value_real(const by__value *v)
{
    return v->kind == BY__REAL      ? v->as.real
           : v->kind == BY__INTEGER ? (double)v->as.integer
                                    : (v->as.truth ? 1.0 : 0.0);
}

int64_t by__value_whole(const by__value *v)
{
    return v->kind == BY__BOOL ? (v->as.truth ? 1 : 0) : v->as.integer;
}

static by_status equal_tables(by__render *r, const by__table *a, const by__table *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) {
        by__value *other;
        BY_TRY(by__table_get(r, b, &a->pairs[i].key, &other));
        *out = other != NULL;
        if (*out) {
            BY_TRY(by__value_equal(r, &a->pairs[i].value, other, out));
        }
    }
    return BY_OK;
}

static by_status equal_values(by__render *r, const by__value *a, const by__value *b, bool *out)
{
    *out = false;
    if (by__value_is_number(a) && by__value_is_number(b)) {
        *out = a->kind == BY__REAL || b->kind == BY__REAL
                   ? by__value_real(a) == by__value_real(b)
                   : by__value_whole(a) == by__value_whole(b);
        return BY_OK;
    }
    if (a->kind != b->kind) {
        return BY_OK;
    }
    switch (a->kind) {
    case BY__STRING:
        *out = a->as.string.length == b->as.string.length &&
               memcmp(a->as.string.data, b->as.string.data, a->as.string.length) == 0;
        return by__render_steps(r, a->as.string.length / 64);
    case BY__LIST:
        *out = a->as.list->count == b->as.list->count && a->as.list->tuple == b->as.list->tuple;
        for (size_t i = 0; i < a->as.list->count && *out; i++) {
            BY_TRY(by__value_equal(r, &a->as.list->items[i], &b->as.list->items[i], out));
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

by_status by__value_equal(by__render *r, const by__value *a, const by__value *b, bool *out)
{
    BY_TRY(by__render_enter(r));
    BY_TRY(equal_values(r, a, b, out));
    r->depth--;
    return BY_OK;
}

by_status by__value_compare(by__render *r, const by__value *a, const by__value *b, int *out)
{
    BY_TRY(by__render_steps(r, 1));
    if (by__value_is_number(a) && by__value_is_number(b)) {
        if (a->kind != BY__REAL && b->kind != BY__REAL) {
            int64_t x = by__value_whole(a);
            int64_t y = by__value_whole(b);
            *out = (x > y) - (x < y);
        } else {
            double x = by__value_real(a);
            double y = by__value_real(b);
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
        return by__render_steps(r, n / 64);
    }
    if (a->kind == BY__LIST && b->kind == BY__LIST) {
        size_t n = a->as.list->count < b->as.list->count ? a->as.list->count : b->as.list->count;
        for (size_t i = 0; i < n; i++) {
            bool same;
            BY_TRY(by__value_equal(r, &a->as.list->items[i], &b->as.list->items[i], &same));
            if (!same) {
                BY_TRY(by__render_enter(r));
                BY_TRY(by__value_compare(r, &a->as.list->items[i], &b->as.list->items[i], out));
                r->depth--;
                return BY_OK;
            }
        }
        *out = (a->as.list->count > b->as.list->count) - (a->as.list->count < b->as.list->count);
        return BY_OK;
    }
    return by__render_fail(r, "%s and %s have no order", by__value_word(a), by__value_word(b));
}

by_status by__value_contains(by__render *r, const by__value *all, const by__value *one, bool *out)
{
    *out = false;
    if (all->kind == BY__STRING) {
        if (one->kind != BY__STRING) {
            return by__render_fail(r, "'in' of a string needs a string, not %s",
                                   by__value_word(one));
        }
        BY_TRY(by__render_steps(r, all->as.string.length / 16));
        *out = one->as.string.length == 0 ||
               memmem(all->as.string.data, all->as.string.length, one->as.string.data,
                      one->as.string.length) != NULL;
        return BY_OK;
    }
    if (all->kind == BY__MAP) {
        by__value *held;
        BY_TRY(by__check_key(r, one));
        BY_TRY(by__table_get(r, all->as.table, one, &held));
        *out = held != NULL;
        return BY_OK;
    }
    by__list *items;
    BY_TRY(by__value_items(r, all, &items));
    for (size_t i = 0; i < items->count && !*out; i++) {
        BY_TRY(by__value_equal(r, &items->items[i], one, out));
    }
    return BY_OK;
}

/* ---- characters ---- */

size_t by__characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += ((uint8_t)s[i] & 0xc0) != 0x80 ? 1 : 0;
    }
    return count;
}

/* Where character `index` begins. */
static size_t character_at(const char *s, size_t n, size_t index)
{
    size_t at = 0;
    for (; at < n; at++) {
        if (((uint8_t)s[at] & 0xc0) != 0x80 && index-- == 0) {
            break;
        }
    }
    return at;
}

bool by__is_space(const char *s, size_t n, size_t *length)
{
    uint32_t code;
    *length = by__utf8_next((const uint8_t *)s, n, &code);
    return (by__code_class(code) & BY__CLASS) == BY__SPACE || (code >= 0x1c && code <= 0x1f);
}

/* True when the character at s, of *length bytes, is to be stripped. */
static bool is_stripped(const char *s, size_t n, const by__value *set, size_t *length)
{
    if (set == NULL) {
        return by__is_space(s, n, length);
    }
    uint32_t code;
    *length = by__utf8_next((const uint8_t *)s, n, &code);
    return memmem(set->as.string.data, set->as.string.length, s, *length) != NULL;
}

void by__strip(const char **s, size_t *n, const by__value *set, bool left, bool right)
{
    size_t length;
    while (left && *n > 0 && is_stripped(*s, *n, set, &length)) {
        *s += length;
        *n -= length;
    }
    while (right && *n > 0) {
        size_t last = *n - 1;
        while (last > 0 && ((uint8_t)(*s)[last] & 0xc0) == 0x80) {
            last--;
        }
        if (!is_stripped(*s + last, *n - last, set, &length) || length != *n - last) {
            break;
        }
        *n = last;
    }
}

/* ---- elements ---- */

static by_status string_items(by__render *r, const by__value *v, by__value *list)
{
    const char *s = v->as.string.data;
    size_t n = v->as.string.length;
    BY_TRY(by__value_list(r, by__characters(s, n), false, list));
    for (size_t i = 0, at = 0; i < list->as.list->count; i++) {
        uint32_t code;
        size_t length = by__utf8_next((const uint8_t *)s + at, n - at, &code);
        list->as.list->items[i] = by__value_string(s + at, length);
        at += length;
    }
    return BY_OK;
}

by_status by__value_items(by__render *r, const by__value *v, by__list **out)
{
    by__value list = {0};
    switch (v->kind) {
    case BY__LIST:
        *out = v->as.list;
        return BY_OK;
    case BY__UNDEFINED:
        BY_TRY(by__value_list(r, 0, false, &list));
        break;
    case BY__STRING:
        BY_TRY(string_items(r, v, &list));
        break;
    case BY__MAP:
        BY_TRY(by__value_list(r, v->as.table->count, false, &list));
        for (size_t i = 0; i < v->as.table->count; i++) {
            list.as.list->items[i] = v->as.table->pairs[i].key;
        }
        break;
    default:
        return by__render_fail(r, "%s has no elements", by__value_word(v));
    }
    *out = list.as.list;
    return by__render_steps(r, list.as.list->count / 4);
}

by_status by__value_length(by__render *r, const by__value *v, int64_t *out)
{
    switch (v->kind) {
    case BY__UNDEFINED:
        *out = 0;
        return BY_OK;
    case BY__STRING:
        *out = (int64_t)by__characters(v->as.string.data, v->as.string.length);
        return by__render_steps(r, v->as.string.length / 64);
    case BY__LIST:
        *out = (int64_t)v->as.list->count;
        return BY_OK;
    case BY__MAP:
        *out = (int64_t)v->as.table->count;
        return BY_OK;
    default:
        return by__render_fail(r, "%s has no length", by__value_word(v));
    }
}

static by_status get_item(by__render *r, const by__value *v, const by__value *key, by__value *out)
{
    int64_t length = 0;
    if (v->kind == BY__MAP || v->kind == BY__NAMESPACE) {
        by__value *held;
        BY_TRY(by__table_get(r, v->as.table, key, &held));
        if (held != NULL) {
            *out = *held;
        }
        return BY_OK;
    }
    if ((v->kind != BY__LIST && v->kind != BY__STRING) ||
        (key->kind != BY__INTEGER && key->kind != BY__BOOL)) {
        return BY_OK;
    }
    BY_TRY(by__value_length(r, v, &length));
    int64_t index = by__value_whole(key);
    index += index < 0 ? length : 0;
    if (index < 0 || index >= length) {
        return BY_OK;
    }
    if (v->kind == BY__LIST) {
        *out = v->as.list->items[index];
        return BY_OK;
    }
    size_t begin = character_at(v->as.string.data, v->as.string.length, (size_t)index);
    uint32_t code;
    *out = by__value_string(v->as.string.data + begin,
                            by__utf8_next((const uint8_t *)v->as.string.data + begin,
                                          v->as.string.length - begin, &code));
    return BY_OK;
}

by_status by__value_get(by__render *r, const by__value *v, const by__value *key, bool attribute,
                        by__value *out)
{
    bool named = key->kind == BY__STRING;
    const char *name = named ? key->as.string.data : "element";
    if (v->kind == BY__UNDEFINED) {
        return by__render_fail(r, "'%.*s' is undefined, so it has no '%.60s'",
                               (int)v->as.string.length, v->as.string.data, name);
    }
    *out = by__value_undefined(name);
    /* As Jinja: x.name is a method first, x['name'] an item first. */
    if (!attribute || !named || !by__method_exists(v->kind, name)) {
        BY_TRY(get_item(r, v, key, out));
    }
    if (out->kind == BY__UNDEFINED && named && by__method_exists(v->kind, name)) {
        by__method *method;
        BY_TRY(by__render_take(r, (void **)&method, 1, sizeof *method));
        BY_TRY(by__render_take(r, (void **)&method->object, 1, sizeof *method->object));
        *method->object = *v;
        method->name = name;
        *out = (by__value){.kind = BY__METHOD, .as.method = method};
    }
    return BY_OK;
}

/* A bound of a slice, as Python counts it. */
static by_status slice_bound(by__render *r, const by__value *v, int64_t length, int64_t step,
                             int64_t missing, int64_t *out)
{
    if (v == NULL || v->kind == BY__NONE) {
        *out = missing;
        return BY_OK;
    }
    if (v->kind != BY__INTEGER && v->kind != BY__BOOL) {
        return by__render_fail(r, "a slice needs integers, not %s", by__value_word(v));
    }
    int64_t least = step > 0 ? 0 : -1;
    int64_t most = step > 0 ? length : length - 1;
    int64_t at = by__value_whole(v);
    at += at < 0 ? length : 0;
    *out = at < least ? least : at > most ? most : at;
    return BY_OK;
}

by_status by__value_slice(by__render *r, const by__value *v, const by__value *from,
                          const by__value *to, const by__value *step, by__value *out)
{
    int64_t length;
    int64_t by = 1;
    int64_t begin;
    int64_t end;
    if (v->kind != BY__LIST && v->kind != BY__STRING) {
        return by__render_fail(r, "%s cannot be sliced", by__value_word(v));
    }
    BY_TRY(by__value_length(r, v, &length));
    if (step != NULL && step->kind != BY__NONE) {
        by = step->kind == BY__INTEGER ? step->as.integer : 0;
    }
    if (by == 0 || by > length + 1 || by < -length - 1) {
        /* Longer steps take one element; only their sign counts. */
        if (by == 0) {
            return by__render_fail(r, "a slice cannot have this step");
        }
        by = by > 0 ? length + 1 : -length - 1;
    }
    BY_TRY(slice_bound(r, from, length, by, by > 0 ? 0 : length - 1, &begin));
    BY_TRY(slice_bound(r, to, length, by, by > 0 ? length : -1, &end));
    if (v->kind == BY__STRING && by == 1) {
        const char *s = v->as.string.data;
        size_t n = v->as.string.length;
        size_t first = character_at(s, n, (size_t)begin);
        size_t last =
            end > begin ? first + character_at(s + first, n - first, (size_t)(end - begin)) : first;
        *out = by__value_string(s + first, last - first);
        return by__render_steps(r, n / 64);
    }
    by__list *items;
    by__value list;
    size_t count = 0;
    BY_TRY(by__value_items(r, v, &items));
    BY_TRY(by__value_list(r, (size_t)length, items->tuple, &list));
    for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) {
        list.as.list->items[count++] = items->items[i];
    }
    list.as.list->count = count;
    *out = list;
    BY_TRY(by__render_steps(r, count));
    if (v->kind == BY__LIST) {
        return BY_OK;
    }
    by__text text = {0};
    for (size_t i = 0; i < count; i++) {
        by__text_add_bytes(&text, list.as.list->items[i].as.string.data,
                           list.as.list->items[i].as.string.length);
    }
    return by__value_take_text(r, &text, out);
}
