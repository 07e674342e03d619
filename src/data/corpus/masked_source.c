/* Samples of tokens some of which are hidden, for masked language modelling: a source over one of
 * windows of tokens.
 *
 * Of the tokens of a sample that have a target in the inner source, a share is chosen; 80 % of the
 * chosen ones are replaced by the mask, 10 % by a random token, and 10 % stay (Devlin et al. 2018,
 * section 3.1). How many are chosen depends on the sample's length only; which, and by what they
 * are replaced, is a pure function of seed, epoch and sample, so that every epoch hides others (Liu
 * et al. 2019), and a resumed run the same. They may lie in spans. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/data.h"
#include "base/base.h"

#define PURPOSE_MASK ((uint64_t)0x6d61736b << 32) /* "mask" in ASCII, above the positions */

typedef struct masked_source {
    by_source base;
    by_source *inner;
    double share;
    double span;
    int32_t mask;
    uint32_t random; /* random tokens are below this */
    int32_t *special;
    size_t special_count;
    size_t context;
    size_t room; /* for targets of a sample */
    by_array arrays[3];
} masked_source;

size_t by_mask_targets(double share, size_t tokens)
{
    size_t count = (size_t)llrint(share * (double)tokens);
    return tokens == 0 ? 0 : count == 0 ? 1 : count;
}

/* Tokens to choose of `targets`. */
static size_t chosen_of(const masked_source *m, uint64_t targets)
{
    return by_mask_targets(m->share, (size_t)targets);
}

static bool is_special(const masked_source *m, int32_t token)
{
    bool special = false;
    for (size_t i = 0; i < m->special_count; i++) {
        special = special || m->special[i] == token;
    }
    return special;
}

/* Whether the token at i may be chosen: special ones may where `all`. */
static bool may_hide(const masked_source *m, const int32_t *tokens, const int32_t *targets,
                     size_t i, bool all)
{
    return targets[i] >= 0 && (all || !is_special(m, tokens[i]));
}

/* `draw` tells by what it is replaced, `random` by which token. */
static int32_t replace(const masked_source *m, int32_t token, uint32_t draw, uint32_t random)
{
    /* Below 8/10 and 9/10 of 2^32. */
    if (draw < 3435973837u) {
        return m->mask;
    }
    return draw < 3865470566u ? (int32_t)(((uint64_t)random * m->random) >> 32) : token;
}

/* Chooses tokens among those that may be hidden, in the order of positions, by selection sampling
 * (Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2S). */
typedef struct mask_choice {
    size_t left[2];  /* tokens that come, plain and hidden */
    size_t spans[2]; /* that they lie in, with the present one; 0: each token is chosen by itself */
    bool hides;      /* the present span is hidden */
    uint32_t draw;   /* what the present or next hidden span is replaced by */
} mask_choice;

/* Takes one of `*left` tokens that lie in `*spans`: whether it is the last of its span. */
static bool ends_span(size_t *left, size_t *spans, uint32_t random)
{
    *left -= 1;
    bool ends = *left == 0 || ((uint64_t)random * *left) >> 32 < *spans - 1;
    *spans -= ends;
    return ends;
}

/* In spans, plain and hidden ones take turns. One more plain token before the first and one behind
 * the last let a sample begin and end with either. */
static mask_choice begin_choice(const masked_source *m, const by_source_sample *sample,
                                size_t tokens, size_t wanted)
{
    mask_choice c = {.left = {tokens - wanted, wanted}};
    size_t spans = (size_t)llrint((double)wanted / m->span);
    size_t most = wanted < c.left[0] + 1 ? wanted : c.left[0] + 1;
    uint32_t random[4];
    if (m->span > 1.0 && wanted > 0) {
        c.spans[1] = spans < 1 ? 1 : spans > most ? most : spans;
        c.spans[0] = c.spans[1] + 1;
        c.left[0] += 2;
        by_source_random(sample, PURPOSE_MASK + m->context, random);
        c.hides = ends_span(&c.left[0], &c.spans[0], random[0]);
        c.draw = random[1];
    }
    return c;
}

/* Whether to hide the next token. */
static bool choose_next(mask_choice *c, const uint32_t random[4])
{
    bool hide = c->hides;
    if (c->spans[0] == 0) {
        hide = ((uint64_t)random[0] * (c->left[0] + c->left[1])) >> 32 < c->left[1];
        c->left[hide]--;
        c->draw = random[1];
    } else if (ends_span(&c->left[hide], &c->spans[hide], random[0])) {
        c->hides = !hide;
        c->draw = hide ? c->draw : random[1];
    }
    return hide;
}

/* Targets become the tokens that were chosen, -1 elsewhere. */
static void choose(const masked_source *m, const by_source_sample *sample, int32_t *tokens,
                   int32_t *targets)
{
    size_t valid = 0;
    size_t left = 0;
    for (size_t i = 0; i < m->context; i++) {
        valid += targets[i] >= 0;
        left += may_hide(m, tokens, targets, i, false);
    }
    size_t wanted = chosen_of(m, valid);
    bool all = left < wanted;
    mask_choice choice = begin_choice(m, sample, all ? valid : left, wanted);
    for (size_t i = 0; i < m->context; i++) {
        uint32_t random[4];
        if (!may_hide(m, tokens, targets, i, all)) {
            targets[i] = -1;
            continue;
        }
        by_source_random(sample, PURPOSE_MASK + i, random);
        bool hide = choose_next(&choice, random);
        targets[i] = hide ? tokens[i] : -1;
        tokens[i] = hide ? replace(m, tokens[i], choice.draw, random[2]) : tokens[i];
    }
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const masked_source *m = (const masked_source *)source;
    int32_t *targets = rows[1];
    int32_t *chosen = rows[2]; /* as large as the targets of the inner source, which it is first */
    void *const inner[2] = {rows[0], chosen};
    size_t spare = m->room;
    size_t count = 0;
    BY_TRY(m->inner->fill(m->inner, sample, inner, error));
    choose(m, sample, rows[0], chosen);
    for (size_t i = 0; i < m->context; i++) {
        spare -= chosen[i] >= 0;
    }
    for (size_t i = 0; i < m->context; i++) {
        bool fills = chosen[i] < 0 && spare > 0;
        spare -= fills;
        if (chosen[i] >= 0 || fills) {
            targets[count++] = chosen[i];
            chosen[i] = 0;
        }
    }
    return BY_OK;
}

static by_status count(const by_source *source, const by_source_sample *sample, uint64_t *targets,
                       by_error *error)
{
    const masked_source *m = (const masked_source *)source;
    const by_source *inner = m->inner;
    if (inner->count != NULL) {
        BY_TRY(inner->count(inner, sample, targets, error));
    } else {
        uint64_t before = sample->place >= inner->samples ? inner->targets
                                                          : sample->place * inner->sample_targets;
        uint64_t left = inner->targets - before;
        *targets = left < inner->sample_targets ? left : inner->sample_targets;
    }
    *targets = chosen_of(m, *targets);
    return BY_OK;
}

static bool replaces(const by_source *source, const by_source_sample *sample)
{
    const by_source *inner = ((const masked_source *)source)->inner;
    return inner->replaces(inner, sample);
}

static void close_source(by_source *source)
{
    masked_source *m = (masked_source *)source;
    by_source_close(&m->inner);
    free(m->special);
    free(m);
}

static by_status check(const by_source *inner, const by_mask_options *o, by_error *error)
{
    bool fits = inner->array_count == 2 && strcmp(inner->arrays[0].name, "tokens") == 0 &&
                strcmp(inner->arrays[1].name, "targets") == 0 && inner->weigh == NULL;
    if (!fits) {
        return by_error_set(error, BY_EARG,
                            "%s: tokens can be hidden in samples of tokens and targets only",
                            inner->name);
    }
    if (!(o->share > 0.0 && o->share <= 1.0) || o->mask < 0 || o->random < 1) {
        return by_error_set(error, BY_EARG,
                            "a share of hidden tokens of %g, mask %d and random tokens below %d: "
                            "the share is above 0 and at most 1, the mask at least 0 and the bound "
                            "at least 1",
                            o->share, o->mask, o->random);
    }
    if (!(o->span == 0.0 || (o->span >= 1.0 && isfinite(o->span)))) {
        return by_error_set(error, BY_EARG, "a mean length of hidden spans of %g is not from 1 on",
                            o->span);
    }
    return BY_OK;
}

/* All windows of the inner source but the last are whole. */
static void plan(masked_source *m, const by_source *inner)
{
    uint64_t whole = inner->sample_targets == 0 ? 0 : inner->targets / inner->sample_targets;
    m->base = *inner;
    m->context = (size_t)inner->arrays[0].shape.dim[0];
    m->room = chosen_of(m, m->context);
    m->arrays[0] = inner->arrays[0];
    m->arrays[1] = (by_array){"targets", BY_I32, BY_SHAPE((int64_t)m->room), NULL};
    m->arrays[2] = (by_array){"chosen", BY_I32, BY_SHAPE((int64_t)m->context, 1), NULL};
    m->base.arrays = m->arrays;
    m->base.array_count = BY_ARRAY_LENGTH(m->arrays);
    m->base.targets = whole * chosen_of(m, inner->sample_targets) +
                      chosen_of(m, inner->targets - whole * inner->sample_targets);
    m->base.sample_targets = chosen_of(m, inner->sample_targets);
    m->base.fill = fill;
    m->base.count = count;
    m->base.replaces = inner->replaces == NULL ? NULL : replaces;
    m->base.close = close_source;
}

by_status by_masked_source_open(by_source **out, by_source *inner, const by_mask_options *options,
                                by_error *error)
{
    masked_source *m = NULL;
    by_status status = check(inner, options, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&m, 1, sizeof *m, "hidden tokens", error);
    }
    if (status == BY_OK && options->special_count > 0) {
        status = by__alloc((void **)&m->special, options->special_count, sizeof *m->special,
                           "hidden tokens", error);
    }
    if (status != BY_OK) {
        free(m);
        by_source_close(&inner);
        return status;
    }
    m->share = options->share;
    m->span = options->span > 0.0 ? options->span : 1.0;
    m->mask = options->mask;
    m->random = (uint32_t)options->random;
    m->special_count = options->special_count;
    for (size_t i = 0; i < options->special_count; i++) {
        m->special[i] = options->special[i];
    }
    m->inner = inner;
    plan(m, inner);
    *out = &m->base;
    return BY_OK;
}
