/* Finds added tokens in a text before it is split into pieces.
 *
 * Two passes, as in Hugging Face's AddedVocabulary: tokens that are not `normalized` over the text,
 * then the others over the text between them. In a pass the leftmost match wins, of those the
 * longest; a rejected match (a special token that is not enabled, single_word next to a word) is
 * still skipped as a whole. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/vocabulary.h"
#include "text/unicode/unicode.h"

static int compare_contents(const void *a, const void *b)
{
    const by__tokenizer_added_token *x = *(by__tokenizer_added_token *const *)a;
    const by__tokenizer_added_token *y = *(by__tokenizer_added_token *const *)b;
    return strcmp(x->content, y->content);
}

/* Sorts by pass, then first byte, then longest first. */
static int compare_places(const void *a, const void *b)
{
    const by__tokenizer_added_token *x = *(by__tokenizer_added_token *const *)a;
    const by__tokenizer_added_token *y = *(by__tokenizer_added_token *const *)b;
    if (x->normalized != y->normalized) {
        return x->normalized ? 1 : -1;
    }
    if (x->match[0] != y->match[0]) {
        return (uint8_t)x->match[0] < (uint8_t)y->match[0] ? -1 : 1;
    }
    if (x->match_length != y->match_length) {
        return x->match_length > y->match_length ? -1 : 1;
    }
    return strcmp(x->content, y->content);
}

/* A `normalized` token is searched for in its normalized form, in normalized text. */
static by_status make_match(by_tokenizer *t, by__tokenizer_added_token *a, by_error *error)
{
    by__tokenizer_rewriting rewriting = {0};
    const uint8_t *out = (const uint8_t *)a->content;
    size_t length = a->length;
    bool first = true;
    by_status status = BY_OK;
    if (a->normalized) {
        status = by__tokenizer_rewrite_text(&t->pipeline, 0, t->pipeline.normalizers, &rewriting,
                                            out, length, &first, &out, &length, error);
    }
    if (status == BY_OK && length == 0) { /* empty after stripping: it could not match anything */
        out = (const uint8_t *)a->content;
        length = a->length;
    }
    if (status == BY_OK) {
        a->match = by__strndup((const char *)out, length);
        a->match_length = length;
        status = a->match != NULL ? BY_OK
                                  : by_error_set(error, BY_EMEMORY, "out of memory: added token");
    }
    by__tokenizer_rewriting_free(&rewriting);
    return status;
}

by_status by__tokenizer_added_index(by_tokenizer *t, const char *name, by_error *error)
{
    by__tokenizer_added_token **sorted;
    size_t count = t->added_count;
    BY_TRY(
        by__alloc((void **)&t->added_order, count, sizeof *t->added_order, "added tokens", error));
    if (count == 0) {
        return BY_OK;
    }
    for (size_t i = 0; i < count; i++) {
        BY_TRY(make_match(t, &t->added[i], error));
    }
    BY_TRY(by__alloc((void **)&sorted, count, sizeof *sorted, "added tokens", error));
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &t->added[i];
    }
    qsort(sorted, count, sizeof *sorted, compare_contents);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(sorted[i - 1]->content, sorted[i]->content) == 0) {
            by_status status =
                by_error_set(error, BY_EFORMAT, "%s: added token \"%.60s\" is there twice", name,
                             sorted[i]->content);
            free(sorted);
            return status;
        }
    }
    qsort(sorted, count, sizeof *sorted, compare_places);
    uint32_t used = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned byte = 0; byte < 256; byte++) {
            t->added_start[pass][byte] = used;
            while (used < count && (sorted[used]->normalized ? 1u : 0u) == pass &&
                   (uint8_t)sorted[used]->match[0] == byte) {
                t->added_order[used] = (uint32_t)(sorted[used] - t->added);
                used++;
            }
        }
        t->added_start[pass][256] = used;
    }
    free(sorted);
    return BY_OK;
}

bool by__tokenizer_added_any(const by_tokenizer *t, unsigned pass, unsigned flags)
{
    for (size_t i = 0; i < t->added_count; i++) {
        if (t->added[i].normalized == (pass == 1) &&
            (!t->added[i].special || (flags & BY_ENCODE_SPECIAL) != 0)) {
            return true;
        }
    }
    return false;
}

/* Start of the character that ends at `end` > 0. */
static size_t character_before(const uint8_t *s, size_t end)
{
    for (size_t length = 2; length <= 4 && length <= end; length++) {
        uint32_t code;
        if (by__utf8_next(s + end - length, length, &code) == length) {
            return end - length;
        }
    }
    return end - 1;
}

static unsigned class_before(const uint8_t *s, size_t end, size_t *start)
{
    uint32_t code;
    *start = character_before(s, end);
    (void)by__utf8_next(s + *start, end - *start, &code);
    return by__code_class(code);
}

static unsigned class_behind(const uint8_t *s, size_t at, size_t end, size_t *length)
{
    uint32_t code;
    *length = by__utf8_next(s + at, end - at, &code);
    return by__code_class(code);
}

static by_status add_part(by__tokenizer_parts *parts, size_t start, size_t end, uint32_t id,
                          by_error *error)
{
    BY_TRY(by__reserve((void **)&parts->items, &parts->capacity, parts->count + 1,
                       sizeof *parts->items, error));
    parts->items[parts->count++] = (by__tokenizer_part){.start = start, .end = end, .id = id};
    return BY_OK;
}

/* The longest token of the pass at s[at]; NULL: none. */
static const by__tokenizer_added_token *match_at(const by_tokenizer *t, unsigned pass,
                                                 const uint8_t *s, size_t at, size_t end)
{
    const uint32_t *starts = t->added_start[pass];
    for (uint32_t k = starts[s[at]]; k < starts[s[at] + 1u]; k++) {
        const by__tokenizer_added_token *a = &t->added[t->added_order[k]];
        if (a->match_length <= end - at && memcmp(s + at, a->match, a->match_length) == 0) {
            return a;
        }
    }
    return NULL;
}

static bool stands_alone(const uint8_t *s, size_t start, size_t stop, size_t end)
{
    size_t unused;
    return (start == 0 || (class_before(s, start, &unused) & BY__WORD) == 0) &&
           (stop == end || (class_behind(s, stop, end, &unused) & BY__WORD) == 0);
}

by_status by__tokenizer_added_pass(const by_tokenizer *t, unsigned pass, unsigned flags,
                                   const uint8_t *s, size_t from, size_t end,
                                   by__tokenizer_parts *parts, by_error *error)
{
    size_t done = from; /* everything before is in parts */
    for (size_t at = from; at < end;) {
        const by__tokenizer_added_token *a = match_at(t, pass, s, at, end);
        if (a == NULL) {
            at++;
            continue;
        }
        size_t start = at;
        size_t stop = at + a->match_length;
        at = stop;
        if ((a->special && (flags & BY_ENCODE_SPECIAL) == 0) ||
            (a->single_word && !stands_alone(s, start, stop, end))) {
            continue;
        }
        size_t step;
        if (a->lstrip) {
            while (start > 0 && (class_before(s, start, &step) & BY__CLASS) == BY__SPACE) {
                start = step;
            }
            start = start > done ? start : done;
        }
        if (a->rstrip) {
            while (stop < end && (class_behind(s, stop, end, &step) & BY__CLASS) == BY__SPACE) {
                stop += step;
            }
        }
        if (done < start) {
            BY_TRY(add_part(parts, done, start, BY__NO_TOKEN, error));
        }
        BY_TRY(add_part(parts, start, stop, a->id, error));
        done = stop;
    }
    return done < end ? add_part(parts, done, end, BY__NO_TOKEN, error) : BY_OK;
}

bool by_tokenizer_is_special(const by_tokenizer *t, uint32_t id)
{
    for (size_t i = 0; i < t->added_count; i++) {
        if (t->added[i].id == id) {
            return t->added[i].special;
        }
    }
    return false;
}
