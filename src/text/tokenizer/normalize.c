/* Rewriting of texts: normalizers, and the pre-tokenizers that modify text. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer/charsmap.h"
#include "text/unicode/unicode.h"

void by__tokenizer_pipeline_free(by__tokenizer_pipeline *p)
{
    for (size_t i = 0; i < BY__MAX_REWRITES; i++) {
        free(p->rewrites[i].from);
        free(p->rewrites[i].to);
        by__tokenizer_charsmap_free(p->rewrites[i].map);
        free(p->replacements[i].from);
        free(p->replacements[i].to);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(p->source); i++) {
        free(p->source[i]);
    }
    free(p->continuing);
    *p = (by__tokenizer_pipeline){0};
}

void by__tokenizer_rewriting_free(by__tokenizer_rewriting *r)
{
    free(r->data[0]);
    free(r->data[1]);
    free(r->codes.items);
    *r = (by__tokenizer_rewriting){0};
}

by_status by__tokenizer_put(by__tokenizer_target *t, const void *bytes, size_t n, by_error *error)
{
    size_t need;
    if (!by__size_add(t->length, n, &need)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: text");
    }
    by__tokenizer_rewriting *r = t->rewriting;
    BY_TRY(by__reserve((void **)&r->data[t->buffer], &r->capacity[t->buffer], need + 1, 1, error));
    if (n > 0) {
        memcpy(r->data[t->buffer] + t->length, bytes, n);
    }
    t->length = need;
    return BY_OK;
}

static by_status put_form(const by__tokenizer_rewrite *w, const uint8_t *s, size_t n,
                          by__tokenizer_target *t, by_error *error)
{
    by__text_code_points *codes = &t->rewriting->codes;
    codes->count = 0;
    BY_TRY(by__text_form_make(w->form, s, n, codes, error));
    for (size_t i = 0; i < codes->count; i++) {
        uint8_t utf8[4];
        uint32_t code = codes->items[i];
        if (code >= BY__BYTE_CODE) {
            utf8[0] = (uint8_t)(code - BY__BYTE_CODE);
        }
        size_t length = code >= BY__BYTE_CODE ? 1 : by__utf8_put(utf8, code);
        BY_TRY(by__tokenizer_put(t, utf8, length, error));
    }
    return BY_OK;
}

static by_status put_replaced(const by__tokenizer_rewrite *w, const uint8_t *s, size_t n,
                              by__tokenizer_target *t, by_error *error)
{
    size_t done = 0;
    for (size_t at = 0; at < n;) {
        const uint8_t *found = memchr(s + at, (uint8_t)w->from[0], n - at);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - s);
        if (n - at < w->from_length || memcmp(found, w->from, w->from_length) != 0) {
            at++;
            continue;
        }
        BY_TRY(by__tokenizer_put(t, s + done, at - done, error));
        BY_TRY(by__tokenizer_put(t, w->to, w->to_length, error));
        at += w->from_length;
        done = at;
    }
    return by__tokenizer_put(t, s + done, n - done, error);
}

static by_status put_spaces(const by__tokenizer_rewrite *w, const uint8_t *s, size_t n,
                            by__tokenizer_target *t, by_error *error)
{
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && s[end] == ' ') {
            end++;
        }
        if (end - at >= 2) {
            BY_TRY(by__tokenizer_put(t, w->to, w->to_length, error));
            at = end;
        } else {
            BY_TRY(by__tokenizer_put(t, s + at, 1, error));
            at++;
        }
    }
    return BY_OK;
}

static bool is_space(const uint8_t *s, size_t n, size_t *length)
{
    uint32_t code;
    *length = by__utf8_next(s, n, &code);
    return (by__code_class(code) & BY__CLASS) == BY__SPACE;
}

static void strip(const by__tokenizer_rewrite *w, const uint8_t **s, size_t *n)
{
    size_t length;
    while (w->left && *n > 0 && is_space(*s, *n, &length)) {
        *s += length;
        *n -= length;
    }
    size_t end = 0; /* end of the last character that is not a space */
    for (size_t at = 0; w->right && at < *n;) {
        bool space = is_space(*s + at, *n - at, &length);
        at += length;
        end = space ? end : at;
    }
    *n = w->right ? end : *n;
}

/* Drops spaces and puts a prefix before each word that does not begin with it. */
static by_status put_words(const by__tokenizer_rewrite *w, const uint8_t *s, size_t n,
                           by__tokenizer_target *t, by_error *error)
{
    size_t length;
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && !is_space(s + end, n - end, &length)) {
            end += length;
        }
        if (end > at) {
            bool prefixed = end - at >= w->to_length && memcmp(s + at, w->to, w->to_length) == 0;
            BY_TRY(by__tokenizer_put(t, w->to, prefixed ? 0 : w->to_length, error));
            BY_TRY(by__tokenizer_put(t, s + at, end - at, error));
        }
        while (end < n && is_space(s + end, n - end, &length)) {
            end += length;
        }
        at = end;
    }
    return BY_OK;
}

static bool begins_with(const uint8_t *s, size_t n, const by__tokenizer_rewrite *w)
{
    return n >= w->to_length && memcmp(s, w->to, w->to_length) == 0;
}

/* Returns true if a rewrite certainly does not change the text. */
static bool leaves(const by__tokenizer_rewrite *w, const uint8_t *s, size_t n, bool first)
{
    switch (w->kind) {
    case BY__REWRITE_FORM:
        return !by__text_form_changes(w->form, s, n);
    case BY__REWRITE_REPLACE:
        return memchr(s, (uint8_t)w->from[0], n) == NULL;
    case BY__REWRITE_PREFIX:
        return begins_with(s, n, w);
    case BY__REWRITE_PREFIX_FIRST:
        return !first || begins_with(s, n, w);
    default:
        return false;
    }
}

static by_status rewrite(const by__tokenizer_rewrite *w, const uint8_t *s, size_t n,
                         by__tokenizer_target *t, by_error *error)
{
    switch (w->kind) {
    case BY__REWRITE_FORM:
        return put_form(w, s, n, t, error);
    case BY__REWRITE_REPLACE:
        return put_replaced(w, s, n, t, error);
    case BY__REWRITE_SPACES:
        return put_spaces(w, s, n, t, error);
    case BY__REWRITE_CHARACTERS:
        return by__tokenizer_put_characters(w->actions, s, n, t, error);
    case BY__REWRITE_MAP:
        return by__tokenizer_charsmap_apply(w->map, s, n, t, error);
    case BY__REWRITE_WORDS:
        return put_words(w, s, n, t, error);
    default:
        BY_TRY(by__tokenizer_put(t, w->to, w->to_length, error));
        return by__tokenizer_put(t, s, n, error);
    }
}

by_status by__tokenizer_rewrite_text(const by__tokenizer_pipeline *p, size_t begin, size_t end,
                                     by__tokenizer_rewriting *r, const uint8_t *s, size_t n,
                                     bool *first, const uint8_t **out, size_t *length,
                                     by_error *error)
{
    /* Uses the buffer that does not contain the text. */
    unsigned buffer = r->data[0] != NULL && s >= (const uint8_t *)r->data[0] &&
                              s < (const uint8_t *)r->data[0] + r->capacity[0]
                          ? 1
                          : 0;
    for (size_t i = begin; i < end && n > 0; i++) {
        const by__tokenizer_rewrite *w = &p->rewrites[i];
        by__tokenizer_target t = {r, buffer, 0};
        if (w->kind == BY__REWRITE_STRIP) {
            const uint8_t *old = s;
            strip(w, &s, &n);
            *first = *first && s == old;
            continue;
        }
        if (leaves(w, s, n, *first)) {
            continue;
        }
        BY_TRY(rewrite(w, s, n, &t, error));
        s = t.length > 0 ? (const uint8_t *)r->data[buffer] : s;
        n = t.length;
        buffer = 1 - buffer;
    }
    *out = s;
    *length = n;
    return BY_OK;
}
