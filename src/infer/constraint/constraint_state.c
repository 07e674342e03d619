#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

struct by_constraint_state {
    const by_constraint *constraint;
    by__constraint_share *share;
    by__constraint_way_holder holder;
    int32_t sets[BY__MAX_TOKEN_BYTES + 1]; /* sets[0]: the set of the text so far; sets[d]: that
                                              after the first d bytes of the token being walked */
    uint64_t *mask;                        /* [words] */
    bool masked;                           /* the mask is that of the text so far */
    by_status failure;                     /* of making it */
    /* The walk over the sorted tokens that makes the mask; it may be interrupted. */
    bool walking;
    uint32_t token;      /* the next one */
    int depth;           /* walked bytes of the one before */
    int dead;            /* length of its shortest forbidden prefix; INT32_MAX: none */
    uint64_t generation; /* of the sets at the interruption */
};

by_status by_constraint_state_open(by_constraint_state **out, const by_constraint *constraint,
                                   const by_token_list *list, by_error *error)
{
    by_constraint_state *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a constraint", error));
    s->constraint = constraint;
    by_status status = by__constraint_share_open(&s->share, constraint, list, error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s->mask, s->share->words, sizeof *s->mask, "a constraint", error);
    }
    if (status != BY_OK) {
        by_constraint_state_close(&s);
        return status;
    }
    s->holder = (by__constraint_way_holder){.sets = s->sets, .count = 1};
    (void)pthread_mutex_lock(&s->share->lock);
    by__constraint_way_sets_hold(&s->share->sets, &s->holder);
    (void)pthread_mutex_unlock(&s->share->lock);
    by_constraint_state_reset(s);
    *out = s;
    return BY_OK;
}

void by_constraint_state_close(by_constraint_state **state)
{
    by_constraint_state *s = *state;
    if (s == NULL) {
        return;
    }
    *state = NULL;
    if (s->holder.sets != NULL) {
        (void)pthread_mutex_lock(&s->share->lock);
        by__constraint_way_sets_release(&s->share->sets, &s->holder);
        (void)pthread_mutex_unlock(&s->share->lock);
    }
    if (s->share != NULL) {
        by__constraint_share_close(s->constraint, s->share);
    }
    free(s->mask);
    free(s);
}

/* Goes to a set; with the lock held. */
static void move_to(by_constraint_state *s, int32_t set)
{
    s->sets[0] = set;
    s->holder.count = 1;
    s->masked = s->walking = false;
}

void by_constraint_state_reset(by_constraint_state *s)
{
    (void)pthread_mutex_lock(&s->share->lock);
    move_to(s, s->share->begin);
    (void)pthread_mutex_unlock(&s->share->lock);
}

void by_constraint_state_copy(by_constraint_state *to, const by_constraint_state *from)
{
    (void)pthread_mutex_lock(&to->share->lock);
    move_to(to, from->sets[0]);
    (void)pthread_mutex_unlock(&to->share->lock);
}

/* The set of the text so far; with the lock held. */
static const by__constraint_way_set *set_of(const by_constraint_state *s)
{
    return &s->share->sets.sets[s->sets[0]];
}

/* ---- the tokens that may follow ---- */

static void begin_walk(by_constraint_state *s)
{
    memset(s->mask, 0, s->share->words * sizeof *s->mask);
    s->walking = true;
    s->token = 0;
    s->depth = 0;
    s->dead = INT32_MAX;
    s->generation = s->share->sets.generation;
}

/* Walks the bytes of a token that were not walked for the one before it. */
static by_status walk_token(by_constraint_state *s, const uint8_t *bytes, int length, int64_t *work,
                            by_error *error)
{
    by__constraint_way_sets *sets = &s->share->sets;
    s->dead = INT32_MAX;
    while (s->depth < length && s->dead == INT32_MAX) {
        s->holder.count = (size_t)s->depth + 1;
        BY_TRY(by__constraint_way_sets_forget(sets, error));
        BY_TRY(by__constraint_way_sets_next(sets, s->sets[s->depth], bytes[s->depth],
                                            &s->sets[s->depth + 1], work, error));
        s->depth++;
        s->dead = s->sets[s->depth] == BY__DEAD ? s->depth : INT32_MAX;
    }
    return BY_OK;
}

/* Walks over the sorted tokens: the common prefix with the previous token is not walked again, and
 * tokens after a forbidden prefix are skipped. Stops when *work is spent; *done: it came to the
 * end. */
static by_status walk_tokens(by_constraint_state *s, int64_t *work, bool *done, by_error *error)
{
    const by_token_list *list = s->share->list;
    by_status status = BY_OK;
    if (s->generation != s->share->sets.generation) {
        s->depth = 0; /* the sets of the prefix may be forgotten: it is walked again */
    }
    for (; s->token < list->count && status == BY_OK && *work > 0; s->token++) {
        uint32_t k = s->token;
        int length = (int)(list->first[k + 1] - list->first[k]);
        *work -= 1;
        if (list->shared[k] >= s->dead) {
            continue;
        }
        s->depth = list->shared[k] < s->depth ? list->shared[k] : s->depth;
        status = walk_token(s, list->bytes + list->first[k], length, work, error);
        if (s->dead == INT32_MAX) {
            s->mask[list->ids[k] / 64] |= UINT64_C(1) << list->ids[k] % 64;
        } else {
            s->depth--; /* no other token needs the walk of the last byte */
        }
    }
    s->holder.count = 1;
    s->generation = s->share->sets.generation;
    *done = s->token == list->count;
    return status;
}

/* Makes the mask, or a part of it; with the lock held. Returns whether it is there. */
static bool make_mask(by_constraint_state *s, int64_t *work)
{
    by_error ignored = {0};
    bool done = false;
    if (s->masked) {
        return true;
    }
    by__constraint_way_key key = set_of(s)->key;
    const uint64_t *kept = by__constraint_share_find(s->share, key);
    *work -= (int64_t)(s->share->words + s->share->mask_count) / 8;
    s->failure = BY_OK;
    if (kept != NULL) {
        memcpy(s->mask, kept, s->share->words * sizeof *kept);
        return s->masked = true;
    }
    if (!s->walking) {
        begin_walk(s);
    }
    s->failure = walk_tokens(s, work, &done, &ignored);
    if (s->failure != BY_OK) { /* nothing may follow: a constraint never fails open */
        memset(s->mask, 0, s->share->words * sizeof *s->mask);
        s->walking = false;
        return s->masked = true;
    }
    if (done) {
        by__constraint_share_cache(s->share, key, s->mask);
        s->walking = false;
        s->masked = true;
    }
    return s->masked;
}

bool by_constraint_state_prepare(by_constraint_state *s, int64_t *work)
{
    (void)pthread_mutex_lock(&s->share->lock);
    bool made = make_mask(s, work);
    (void)pthread_mutex_unlock(&s->share->lock);
    return made;
}

const uint64_t *by_constraint_state_allowed(by_constraint_state *s)
{
    int64_t work = INT64_MAX;
    (void)by_constraint_state_prepare(s, &work);
    return s->mask;
}

bool by__constraint_state_goes_on(by_constraint_state *s)
{
    const uint64_t *allowed = by_constraint_state_allowed(s);
    bool any = false;
    for (size_t i = 0; i < s->share->words && !any; i++) {
        any = allowed[i] != 0;
    }
    return any;
}

bool by_constraint_state_can_end(const by_constraint_state *s)
{
    (void)pthread_mutex_lock(&s->share->lock);
    bool can_end = set_of(s)->can_end;
    (void)pthread_mutex_unlock(&s->share->lock);
    return can_end;
}

bool by_constraint_state_is_complete(const by_constraint_state *s)
{
    (void)pthread_mutex_lock(&s->share->lock);
    bool complete = set_of(s)->can_end && set_of(s)->readable == 0;
    (void)pthread_mutex_unlock(&s->share->lock);
    return complete;
}

by_status by_constraint_state_mask(by_constraint_state *s, float *logits, int64_t vocab,
                                   const int32_t *ends, size_t end_count, by_error *error)
{
    const uint64_t *allowed = by_constraint_state_allowed(s);
    bool can_end = by_constraint_state_can_end(s);
    bool any = false;
    if (s->failure != BY_OK) {
        return by_error_set(error, s->failure, "out of memory: the tokens of a constraint");
    }
    float kept[16];
    size_t kept_count = end_count < BY_ARRAY_LENGTH(kept) ? end_count : BY_ARRAY_LENGTH(kept);
    for (size_t i = 0; i < kept_count; i++) {
        kept[i] = ends[i] >= 0 && ends[i] < vocab ? logits[ends[i]] : -INFINITY;
    }
    for (int64_t i = 0; i < vocab; i++) {
        bool on = i < (int64_t)s->share->list->vocab && (allowed[i / 64] >> i % 64 & 1u) != 0;
        logits[i] = on ? logits[i] : -INFINITY;
        any = any || on;
    }
    for (size_t i = 0; i < kept_count; i++) {
        if (ends[i] >= 0 && ends[i] < vocab) {
            logits[ends[i]] = can_end ? kept[i] : -INFINITY;
            any = any || can_end;
        }
    }
    return any ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "the constraint: no token of the vocabulary can follow, and the text "
                              "%s",
                              can_end ? "is complete" : "is not complete");
}

by_status by_constraint_state_accept(by_constraint_state *s, uint32_t token, by_error *error)
{
    by__constraint_way_sets *sets = &s->share->sets;
    const by_token_list *list = s->share->list;
    uint32_t k = token < list->vocab ? list->place[token] : BY__NO_PLACE;
    by_status status = BY_OK;
    int64_t work = 0;
    (void)pthread_mutex_lock(&s->share->lock);
    s->sets[1] = k == BY__NO_PLACE ? BY__DEAD : s->sets[0];
    for (uint32_t i = k == BY__NO_PLACE ? 0 : list->first[k];
         status == BY_OK && s->sets[1] != BY__DEAD && i < list->first[k + 1]; i++) {
        s->holder.count = 2;
        status = by__constraint_way_sets_forget(sets, error);
        if (status == BY_OK) {
            status = by__constraint_way_sets_next(sets, s->sets[1], list->bytes[i], &s->sets[1],
                                                  &work, error);
        }
    }
    s->holder.count = 1;
    s->depth = 0; /* of an interrupted walk, whose sets were replaced */
    if (status == BY_OK && s->sets[1] != BY__DEAD) {
        move_to(s, s->sets[1]);
    }
    (void)pthread_mutex_unlock(&s->share->lock);
    return status == BY_OK && s->sets[1] == BY__DEAD
               ? by_error_set(error, BY_EARG, "token %u may not follow here", token)
               : status;
}
