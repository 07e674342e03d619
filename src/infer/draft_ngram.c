#include <stdlib.h>

#include "banyan/draft.h"
#include "base/base.h"

/* The minimum length of a match; how many tokens are compared; and the length from which a match
 * counts as long (long and short matches have separate estimates). */
#define MIN_MATCH 2
#define MAX_MATCH 16
#define A_MATCH   6
/* The estimated chances that the draft from a short or long match is right, before anything is
 * known, and the weights of one token in the running means, of a text and of all texts (with the
 * latter a new text begins). */
#define SHORT_CHANCE 0.3
#define LONG_CHANCE  0.8
#define TEXT_WEIGHT  0.1
#define WEIGHT       0.05

/* What is known about a sequence. */
typedef struct ngram_sequence {
    uint64_t id;
    int64_t seen;  /* number of tokens examined */
    int64_t at;    /* index of the expected next token; -1: none */
    int64_t match; /* number of tokens before it that match the end of the text */
    double chance[2];
} ngram_sequence;

typedef struct ngram {
    ngram_sequence *places;
    double chance[2]; /* over all texts */
} ngram;

static by_status start(void *user, int64_t sequences, int64_t context, int64_t vocab,
                       uint64_t *bytes, by_error *error)
{
    ngram *g = user;
    BY_UNUSED(context);
    BY_UNUSED(vocab);
    free(g->places);
    g->chance[0] = SHORT_CHANCE;
    g->chance[1] = LONG_CHANCE;
    *bytes = (uint64_t)sequences * sizeof *g->places;
    return by__alloc((void **)&g->places, (size_t)sequences, sizeof *g->places, "drafts", error);
}

/* Finds the token that follows the longest earlier copy of the end of the text. */
static void find(ngram_sequence *p, const int32_t *tokens, int64_t count)
{
    p->at = -1;
    p->match = MIN_MATCH - 1;
    for (int64_t i = count - 1; i > p->match && p->match < MAX_MATCH; i--) {
        int64_t equal = 0;
        while (equal < MAX_MATCH && equal < i &&
               tokens[i - 1 - equal] == tokens[count - 1 - equal]) {
            equal++;
        }
        if (equal > p->match) {
            p->match = equal;
            p->at = i;
        }
    }
}

static void update_place(void *user, by_draft_text *text)
{
    ngram *g = user;
    ngram_sequence *p = &g->places[text->place];
    if (p->id != text->id || p->seen > text->count) {
        *p = (ngram_sequence){
            .id = text->id, .seen = text->count, .at = -1, .chance = {g->chance[0], g->chance[1]}};
    }
    for (; p->seen < text->count; p->seen++) {
        if (p->at >= 0) {
            bool right = text->tokens[p->at] == text->tokens[p->seen];
            bool is_long = p->match >= A_MATCH;
            p->chance[is_long] += TEXT_WEIGHT * ((right ? 1.0 : 0.0) - p->chance[is_long]);
            g->chance[is_long] += WEIGHT * ((right ? 1.0 : 0.0) - g->chance[is_long]);
            p->at = right ? p->at + 1 : -1;
            p->match += right;
        }
    }
    if (p->at < 0) {
        find(p, text->tokens, text->count);
    }
    text->most = p->at < 0 ? 0 : text->most;
    text->chance = p->chance[p->match >= A_MATCH];
}

static by_status propose(void *user, by_draft_text *texts, size_t count, by_error *error)
{
    const ngram *g = user;
    BY_UNUSED(error);
    for (size_t t = 0; t < count; t++) {
        by_draft_text *text = &texts[t];
        int64_t at = g->places[text->place].at;
        for (int32_t i = 0; i < text->most; i++, at++) {
            /* Beyond the end of the text, continue with the drafts themselves. */
            text->drafts[i] = at < text->count ? text->tokens[at] : text->drafts[at - text->count];
        }
    }
    return BY_OK;
}

static void close_ngram(void *user)
{
    ngram *g = user;
    free(g->places);
    free(g);
}

by_status by_draft_ngram(by_draft_source *out, by_error *error)
{
    ngram *g;
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "drafts", error));
    *out = (by_draft_source){.user = g,
                             .start = start,
                             .observe = update_place,
                             .propose = propose,
                             .close = close_ngram};
    return BY_OK;
}

void by_draft_close(by_draft_source *source)
{
    if (source->close != NULL) {
        source->close(source->user);
    }
    *source = (by_draft_source){0};
}
