#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

/* Number of token lists that a state caches: inside a string or a number the same positions
 * recur. */
#define KEPT 16

/* Number of ways stored for all prefixes of the current token, one after another. */
#define TRAIL_WAYS 4096

/* Identifies a position by the sum of hashes over its ways with their whole stacks, so that their
 * order does not matter. Two independent 64-bit sums. */
typedef struct place_key {
    uint64_t a, b;
} place_key;

struct by_constraint_state {
    const by_constraint *constraint;
    const by_token_list *list;
    by__frames frames;
    by__frames spare;
    by__way *ways; /* [BY__MAX_WAYS] */
    int count;
    by__way *trail;       /* [TRAIL_WAYS] */
    int *trail_begin;     /* [BY__MAX_TOKEN_BYTES + 2] */
    uint64_t *masks;      /* [KEPT, words] */
    place_key keys[KEPT]; /* keys of the masks */
    uint64_t used[KEPT];  /* time of last use of each; 0: empty */
    uint64_t clock;
    size_t words;
};

by_status by_constraint_state_open(by_constraint_state **out, const by_constraint *constraint,
                                   const by_token_list *list, by_error *error)
{
    by_constraint_state *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a constraint", error));
    s->constraint = constraint;
    s->list = list;
    s->words = ((size_t)list->vocab + 63) / 64;
    by_status status = by__frames_open(&s->frames, error);
    if (status == BY_OK) {
        status = by__frames_open(&s->spare, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s->ways, BY__MAX_WAYS, sizeof *s->ways, "a constraint", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s->trail, TRAIL_WAYS + BY__MAX_WAYS, sizeof *s->trail,
                           "a constraint", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s->trail_begin, BY__MAX_TOKEN_BYTES + 2,
                           sizeof *s->trail_begin, "a constraint", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s->masks, KEPT * s->words, sizeof *s->masks, "a constraint", error);
    }
    if (status != BY_OK) {
        by_constraint_state_close(&s);
        return status;
    }
    by_constraint_state_reset(s);
    *out = s;
    return BY_OK;
}

void by_constraint_state_close(by_constraint_state **state)
{
    by_constraint_state *s = *state;
    if (s != NULL) {
        by__frames_close(&s->frames);
        by__frames_close(&s->spare);
        free(s->ways);
        free(s->trail);
        free(s->trail_begin);
        free(s->masks);
        free(s);
        *state = NULL;
    }
}

void by_constraint_state_reset(by_constraint_state *s)
{
    by__frames_clear(&s->frames);
    s->count = by__walk_begin(&s->constraint->automata, &s->frames, s->ways);
}

void by_constraint_state_copy(by_constraint_state *to, const by_constraint_state *from)
{
    by__frames_copy(&to->frames, &from->frames);
    memcpy(to->ways, from->ways, (size_t)from->count * sizeof *from->ways);
    to->count = from->count;
}

static uint64_t scramble(uint64_t x, uint64_t odd)
{
    x = (x ^ x >> 33) * odd;
    x = (x ^ x >> 29) * UINT64_C(0x9fb21c651e98df25);
    return x ^ x >> 32;
}

static place_key key_of(const by_constraint_state *s)
{
    place_key key = {0, 0};
    for (int i = 0; i < s->count; i++) {
        uint64_t stack = s->frames.list[s->ways[i].frame].hash;
        uint64_t state = (uint64_t)s->ways[i].state + 1;
        key.a +=
            scramble(stack + state * UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xff51afd7ed558ccd));
        key.b +=
            scramble(stack * UINT64_C(0xc2b2ae3d27d4eb4f) + state, UINT64_C(0xc4ceb9fe1a85ec53));
    }
    return key;
}

/* Finds all tokens that may follow in one walk over the sorted tokens: the common prefix with the
 * previous token is not walked again, and tokens after a forbidden prefix are skipped. */
static void find_allowed(by_constraint_state *s, uint64_t *mask)
{
    const by__automata *a = &s->constraint->automata;
    const by_token_list *list = s->list;
    int depth = 0;        /* walked bytes of the current token */
    int dead = INT32_MAX; /* length of its shortest forbidden prefix */
    memset(mask, 0, s->words * sizeof *mask);
    memcpy(s->trail, s->ways, (size_t)s->count * sizeof *s->ways);
    s->trail_begin[0] = 0;
    s->trail_begin[1] = s->count;
    for (uint32_t k = 0; k < list->count; k++) {
        const uint8_t *bytes = list->bytes + list->first[k];
        int length = (int)(list->first[k + 1] - list->first[k]);
        if (list->shared[k] >= dead) {
            continue;
        }
        dead = INT32_MAX;
        depth = list->shared[k] < depth ? list->shared[k] : depth;
        while (depth < length && dead == INT32_MAX) {
            int begin = s->trail_begin[depth];
            int end = s->trail_begin[depth + 1];
            int made = end > TRAIL_WAYS ? 0
                                        : by__walk_byte(a, &s->frames, s->trail + begin,
                                                        end - begin, bytes[depth], s->trail + end);
            depth++;
            s->trail_begin[depth + 1] = end + made;
            dead = made == 0 ? depth : INT32_MAX;
        }
        if (dead == INT32_MAX) {
            mask[list->ids[k] / 64] |= UINT64_C(1) << list->ids[k] % 64;
        } else {
            depth--; /* no other token needs the walk of the last byte */
        }
    }
    by__frames_compact(&s->frames, &s->spare, s->ways, s->count);
}

const uint64_t *by_constraint_state_allowed(by_constraint_state *s)
{
    place_key key = key_of(s);
    size_t oldest = 0;
    s->clock++;
    for (size_t i = 0; i < KEPT; i++) {
        if (s->used[i] != 0 && s->keys[i].a == key.a && s->keys[i].b == key.b) {
            s->used[i] = s->clock;
            return s->masks + i * s->words;
        }
        oldest = s->used[i] < s->used[oldest] ? i : oldest;
    }
    s->keys[oldest] = key;
    s->used[oldest] = s->clock;
    find_allowed(s, s->masks + oldest * s->words);
    return s->masks + oldest * s->words;
}

bool by__constraint_state_goes_on(by_constraint_state *s)
{
    const uint64_t *allowed = by_constraint_state_allowed(s);
    bool any = false;
    for (size_t i = 0; i < s->words && !any; i++) {
        any = allowed[i] != 0;
    }
    return any;
}

bool by_constraint_state_can_end(const by_constraint_state *s)
{
    return by__walk_can_end(&s->constraint->automata, s->ways, s->count);
}

bool by_constraint_state_is_complete(const by_constraint_state *s)
{
    const by__automata *a = &s->constraint->automata;
    for (int i = 0; i < s->count; i++) {
        for (int32_t k = 0; k < a->classes; k++) {
            if (a->next[(size_t)s->ways[i].state * (size_t)a->classes + (size_t)k] >= 0) {
                return false;
            }
        }
    }
    return by_constraint_state_can_end(s);
}

by_status by_constraint_state_mask(by_constraint_state *s, float *logits, int64_t vocab,
                                   const int32_t *ends, size_t end_count, by_error *error)
{
    const uint64_t *allowed = by_constraint_state_allowed(s);
    bool can_end = by_constraint_state_can_end(s);
    bool any = false;
    float kept[16];
    size_t kept_count = end_count < BY_ARRAY_LENGTH(kept) ? end_count : BY_ARRAY_LENGTH(kept);
    for (size_t i = 0; i < kept_count; i++) {
        kept[i] = ends[i] >= 0 && ends[i] < vocab ? logits[ends[i]] : -INFINITY;
    }
    for (int64_t i = 0; i < vocab; i++) {
        bool on = i < (int64_t)s->list->vocab && (allowed[i / 64] >> i % 64 & 1u) != 0;
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
    const by__automata *a = &s->constraint->automata;
    const by_token_list *list = s->list;
    uint32_t k = token < list->vocab ? list->place[token] : BY__NO_PLACE;
    int count = k == BY__NO_PLACE ? 0 : s->count;
    by__way *at = s->trail;
    by__way *other = s->trail + BY__MAX_WAYS;
    memcpy(at, s->ways, (size_t)s->count * sizeof *at);
    for (uint32_t i = k == BY__NO_PLACE ? 0 : list->first[k]; count > 0 && i < list->first[k + 1];
         i++) {
        count = by__walk_byte(a, &s->frames, at, count, list->bytes[i], other);
        by__way *next = other;
        other = at;
        at = next;
    }
    if (count == 0) {
        return by_error_set(error, BY_EARG, "token %u may not follow here", token);
    }
    memcpy(s->ways, at, (size_t)count * sizeof *at);
    s->count = count;
    by__frames_compact(&s->frames, &s->spare, s->ways, s->count);
    return BY_OK;
}
