/* Incremental decoding of ids to text: emits complete characters only, and stops at stop
 * strings. */
#include "banyan/text_stream.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/vocabulary.h"
#include "text/unicode/unicode.h"

struct by_text_stream {
    const by_tokenizer *tokenizer;
    char **stops;
    size_t stop_count;
    bool *special; /* [vocab], with skip_special */
    bool continues;
    bool first; /* no token has produced text yet */
    bool stopped;
    int64_t unstopped; /* tokens whose text is not searched for stop strings */
    int64_t taken;     /* tokens since the beginning */
    size_t strips;     /* characters that may still be stripped at the beginning */
    char *held;        /* emitted up to `shown`, the rest is held back */
    size_t shown;
    size_t length;
    size_t capacity;
    char *scratch; /* the first token */
    size_t scratch_capacity;
};

void by_text_stream_close(by_text_stream **stream)
{
    by_text_stream *s = *stream;
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->stop_count; i++) {
        free(s->stops[i]);
    }
    free(s->stops);
    free(s->special);
    free(s->held);
    free(s->scratch);
    free(s);
    *stream = NULL;
}

void by_text_stream_reset(by_text_stream *s)
{
    s->first = !s->continues;
    s->strips = s->continues ? 0 : s->tokenizer->pipeline.strip_count;
    s->stopped = false;
    s->taken = 0;
    s->shown = s->length = 0;
}

static by_status fill(by_text_stream *s, const by_text_stream_options *o, by_error *error)
{
    const by_tokenizer *t = s->tokenizer;
    BY_TRY(by__alloc((void **)&s->stops, o->stop_count, sizeof *s->stops, "stop strings", error));
    for (size_t i = 0; i < o->stop_count; i++) {
        if (o->stops[i][0] == '\0') {
            return by_error_set(error, BY_EARG, "stop string %zu is empty", i);
        }
        s->stops[i] = by__strdup(o->stops[i]);
        if (s->stops[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: stop strings");
        }
        s->stop_count++;
    }
    if (o->skip_special) {
        BY_TRY(
            by__alloc((void **)&s->special, t->vocab, sizeof *s->special, "special tokens", error));
        for (size_t i = 0; i < t->added_count; i++) {
            s->special[t->added[i].id] = t->added[i].special;
        }
    }
    s->continues = o->continues;
    s->unstopped = o->unstopped;
    return BY_OK;
}

by_status by_text_stream_open(by_text_stream **out, const by_tokenizer *tokenizer,
                              const by_text_stream_options *options, by_error *error)
{
    static const by_text_stream_options none;
    by_text_stream *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "text stream", error));
    s->tokenizer = tokenizer;
    by_status status = fill(s, options != NULL ? options : &none, error);
    if (status != BY_OK) {
        by_text_stream_close(&s);
        return status;
    }
    by_text_stream_reset(s);
    *out = s;
    return BY_OK;
}

/* Appends the text of a token. */
static by_status append(by_text_stream *s, uint32_t id, by_error *error)
{
    const by_tokenizer *t = s->tokenizer;
    const char *data;
    size_t n;
    size_t need;
    BY_TRY(by_tokenizer_token_bytes(t, id, &data, &n, error));
    if (s->special != NULL && s->special[id]) {
        return BY_OK;
    }
    if (s->first) {
        BY_TRY(by__reserve((void **)&s->scratch, &s->scratch_capacity,
                           t->offsets[id + 1] - t->offsets[id] + 1, 1, error));
        by__tokenizer_piece_of(t, id, true, s->scratch, &data, &n);
    }
    if (!by__size_add(s->length, n, &need)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: text");
    }
    BY_TRY(by__reserve((void **)&s->held, &s->capacity, need + 1, 1, error));
    if (n > 0) {
        memcpy(s->held + s->length, data, n);
    }
    s->length = need;
    s->first = false;
    return BY_OK;
}

static void drop_front(by_text_stream *s, size_t n)
{
    if (n > 0) {
        memmove(s->held, s->held + n, s->length - n);
        s->length -= n;
    }
}

/* Strips the beginning of the text as its decoder says; returns false while that is undecided. */
static bool strip_front(by_text_stream *s)
{
    const by__tokenizer_pipeline *p = &s->tokenizer->pipeline;
    while (s->strips > 0) {
        size_t n = s->length < p->strip_length ? s->length : p->strip_length;
        if (n > 0 && memcmp(s->held, p->strip, n) != 0) {
            s->strips = 0;
        } else if (n < p->strip_length) {
            return false;
        } else {
            drop_front(s, n);
            s->strips--;
        }
    }
    return true;
}

/* Whether the n >= 1 bytes at s are the beginning of a character, which more bytes complete. */
static bool is_beginning(const uint8_t *s, size_t n)
{
    return s[0] >= 0xc2 && s[0] <= 0xf4 && by__utf8_broken(s, n) == n;
}

/* Length of the complete characters of held[0, limit). */
static size_t whole_characters(const by_text_stream *s, size_t limit)
{
    const uint8_t *text = (const uint8_t *)s->held;
    size_t at = 0;
    while (at < limit) {
        uint32_t code;
        size_t length = by__utf8_next(text + at, s->length - at, &code);
        if (at + length > limit ||
            (code == BY__INVALID && is_beginning(text + at, s->length - at))) {
            break;
        }
        at += length;
    }
    return at;
}

/* Where a stop string begins or may begin; s->length: nowhere. *whole: it is complete. */
static size_t find_stop(const by_text_stream *s, bool *whole)
{
    size_t begin = s->length;
    *whole = false;
    for (size_t at = 0; at < s->length; at++) {
        size_t left = s->length - at;
        for (size_t i = 0; i < s->stop_count; i++) {
            size_t n = strlen(s->stops[i]);
            if (memcmp(s->held + at, s->stops[i], n < left ? n : left) != 0) {
                continue;
            }
            if (n <= left) {
                *whole = true;
                return at;
            }
            begin = begin < at ? begin : at;
        }
    }
    return begin;
}

by_status by_text_stream_push(by_text_stream *s, uint32_t id, by_text *out, bool *stopped,
                              by_error *error)
{
    if (s->stopped) {
        return by_error_set(error, BY_ESTATE, "the text has ended at a stop string");
    }
    drop_front(s, s->shown);
    s->shown = 0;
    BY_TRY(append(s, id, error));
    s->taken++;
    bool whole = false;
    if (strip_front(s)) {
        size_t limit = s->taken <= s->unstopped ? s->length : find_stop(s, &whole);
        s->shown = whole ? limit : whole_characters(s, limit);
    }
    if (whole) {
        s->stopped = true;
        s->length = s->shown;
    }
    *stopped = whole;
    *out = (by_text){s->held, s->shown};
    return BY_OK;
}

void by_text_stream_end(by_text_stream *s, by_text *out)
{
    drop_front(s, s->shown);
    *out = (by_text){s->held, s->length};
    s->shown = s->length;
}
