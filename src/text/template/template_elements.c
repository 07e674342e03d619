/* Elements of Python values: characters of strings, items of lists and maps, slices. */
#include <string.h>

#include "base/utf8.h"
#include "text/template/template.h"
#include "text/unicode/unicode.h"

/* ---- characters ---- */

/* Offset of character `index`. */
static size_t character_at(const char *s, size_t n, size_t index)
{
    size_t at = 0;
    for (; at < n; at++) {
        if (by__utf8_begins(s[at]) && index-- == 0) {
            break;
        }
    }
    return at;
}

bool by__template_is_space(const char *s, size_t n, size_t *length)
{
    uint32_t code;
    *length = by__utf8_next((const uint8_t *)s, n, &code);
    return (by__code_class(code) & BY__CLASS) == BY__SPACE || (code >= 0x1c && code <= 0x1f);
}

/* Returns true if the character at s, of *length bytes, is to be stripped. */
static bool is_stripped(const char *s, size_t n, const by__template_value *set, size_t *length)
{
    if (set == NULL) {
        return by__template_is_space(s, n, length);
    }
    uint32_t code;
    *length = by__utf8_next((const uint8_t *)s, n, &code);
    return memmem(set->as.string.data, set->as.string.length, s, *length) != NULL;
}

void by__template_strip(const char **s, size_t *n, const by__template_value *set, bool left,
                        bool right)
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

by_status by__template_value_length(by__template_render *r, const by__template_value *v,
                                    int64_t *out)
{
    switch (v->kind) {
    case BY__UNDEFINED:
        *out = 0;
        return BY_OK;
    case BY__STRING:
        *out = (int64_t)by__utf8_count(v->as.string.data, v->as.string.length);
        return by__template_render_steps(r, v->as.string.length / 64);
    case BY__LIST:
        *out = (int64_t)v->as.list->count;
        return BY_OK;
    case BY__MAP:
        *out = (int64_t)v->as.table->count;
        return BY_OK;
    default:
        return by__template_render_fail(r, "%s has no length", by__template_value_word(v));
    }
}

static by_status get_item(by__template_render *r, const by__template_value *v,
                          const by__template_value *key, by__template_value *out)
{
    int64_t length = 0;
    if (v->kind == BY__MAP || v->kind == BY__NAMESPACE) {
        by__template_value *held;
        BY_TRY(by__template_table_get(r, v->as.table, key, &held));
        if (held != NULL) {
            *out = *held;
        }
        return BY_OK;
    }
    if ((v->kind != BY__LIST && v->kind != BY__STRING) ||
        (key->kind != BY__INTEGER && key->kind != BY__BOOL)) {
        return BY_OK;
    }
    BY_TRY(by__template_value_length(r, v, &length));
    int64_t index = by__template_value_whole(key);
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
    *out = by__template_value_string(v->as.string.data + begin,
                                     by__utf8_next((const uint8_t *)v->as.string.data + begin,
                                                   v->as.string.length - begin, &code));
    return BY_OK;
}

by_status by__template_value_get(by__template_render *r, const by__template_value *v,
                                 const by__template_value *key, bool attribute,
                                 by__template_value *out)
{
    bool named = key->kind == BY__STRING;
    const char *name = named ? key->as.string.data : "element";
    if (v->kind == BY__UNDEFINED) {
        return by__template_render_fail(r, "'%.*s' is undefined, so it has no '%.60s'",
                                        (int)v->as.string.length, v->as.string.data, name);
    }
    *out = by__template_value_undefined(name);
    /* As in Jinja: x.name looks up a method first, x['name'] an item. */
    if (!attribute || !named || !by__template_method_exists(v->kind, name)) {
        BY_TRY(get_item(r, v, key, out));
    }
    if (out->kind == BY__UNDEFINED && named && by__template_method_exists(v->kind, name)) {
        by__template_method *method;
        BY_TRY(by__template_render_allocate(r, (void **)&method, 1, sizeof *method));
        BY_TRY(
            by__template_render_allocate(r, (void **)&method->object, 1, sizeof *method->object));
        *method->object = *v;
        method->name = name;
        *out = (by__template_value){.kind = BY__METHOD, .as.method = method};
    }
    return BY_OK;
}

/* Evaluates a bound of a slice as in Python. */
static by_status slice_bound(by__template_render *r, const by__template_value *v, int64_t length,
                             int64_t step, int64_t missing, int64_t *out)
{
    if (v == NULL || v->kind == BY__NONE) {
        *out = missing;
        return BY_OK;
    }
    if (v->kind != BY__INTEGER && v->kind != BY__BOOL) {
        return by__template_render_fail(r, "a slice needs integers, not %s",
                                        by__template_value_word(v));
    }
    int64_t least = step > 0 ? 0 : -1;
    int64_t most = step > 0 ? length : length - 1;
    int64_t at = by__template_value_whole(v);
    at += at < 0 ? length : 0;
    *out = at < least ? least : at > most ? most : at;
    return BY_OK;
}

by_status by__template_value_slice(by__template_render *r, const by__template_value *v,
                                   const by__template_value *from, const by__template_value *to,
                                   const by__template_value *step, by__template_value *out)
{
    int64_t length;
    int64_t by = 1;
    int64_t begin;
    int64_t end;
    if (v->kind != BY__LIST && v->kind != BY__STRING) {
        return by__template_render_fail(r, "%s cannot be sliced", by__template_value_word(v));
    }
    BY_TRY(by__template_value_length(r, v, &length));
    if (step != NULL && step->kind != BY__NONE) {
        by = step->kind == BY__INTEGER ? step->as.integer : 0;
    }
    if (by == 0 || by > length + 1 || by < -length - 1) {
        /* Larger steps take one element; only their sign matters. */
        if (by == 0) {
            return by__template_render_fail(r, "a slice cannot have this step");
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
        *out = by__template_value_string(s + first, last - first);
        return by__template_render_steps(r, n / 64);
    }
    by__template_list *items;
    by__template_value list;
    size_t count = 0;
    BY_TRY(by__template_value_items(r, v, &items));
    BY_TRY(by__template_value_list(r, (size_t)length, items->tuple, &list));
    for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) {
        list.as.list->items[count++] = items->items[i];
    }
    list.as.list->count = count;
    *out = list;
    BY_TRY(by__template_render_steps(r, count));
    if (v->kind == BY__LIST) {
        return BY_OK;
    }
    by_string text = {0};
    for (size_t i = 0; i < count; i++) {
        by_string_add(&text, list.as.list->items[i].as.string.data,
                      list.as.list->items[i].as.string.length);
    }
    return by__template_value_move_text(r, &text, out);
}
