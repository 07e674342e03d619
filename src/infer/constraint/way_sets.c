#include "infer/constraint/way_sets.h"

#include <stdlib.h>
#include <string.h>

#define UNKNOWN    (-2)
#define SEEN_SLOTS (2 * BY__MAX_WAYS_SEEN)

/* Memory for the sets of each holder, before sets are forgotten, and for those of all. */
#define HOLDER_BYTES ((size_t)1 << 20)
#define MAX_BYTES    ((size_t)16 << 20)

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- stacks ---- */

/* Finds the stack with `back` on top of `below`; *out is -1 if the nesting is too deep. */
static by_status push(by__constraint_way_sets *s, int32_t back, int32_t below, int32_t *out,
                      by_error *error)
{
    int32_t depth = s->frames[below].depth + 1;
    uint64_t hash = mix(s->frames[below].hash * 31 + (uint64_t)back + 1);
    *out = -1;
    if (depth > 2 * BY__MAX_NESTING) {
        return BY_OK;
    }
    for (by__base_probe p = by__base_probe_begin(&s->frame_table, hash);
         by__base_probe_next(&s->frame_table, &p);) {
        const by__constraint_frame *f = &s->frames[p.number];
        if (f->back == back && f->below == below) {
            *out = (int32_t)p.number;
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&s->frames, &s->frame_capacity, s->frame_count + 1,
                       sizeof *s->frames, error));
    BY_TRY(by__base_table_add(&s->frame_table, hash, s->frame_count, "a constraint", error));
    s->frames[s->frame_count] = (by__constraint_frame){back, below, depth, hash};
    *out = (int32_t)s->frame_count++;
    return BY_OK;
}

/* ---- the ways of the set being made ---- */

static void begin_ways(by__constraint_way_sets *s)
{
    if (++s->round >= UINT32_MAX / BY__MAX_WAYS_SEEN) {
        memset(s->seen_at, 0, SEEN_SLOTS * sizeof *s->seen_at);
        s->round = 1;
    }
}

/* Adds a way, unless it is there or there is no room. */
static void add_way(by__constraint_way_sets *s, size_t *count, int32_t state, int32_t frame)
{
    uint64_t hash =
        ((uint64_t)(uint32_t)state << 32 | (uint32_t)frame) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t slot = hash >> 40;; slot++) {
        uint32_t *at = &s->seen_at[slot & (SEEN_SLOTS - 1)];
        if (*at / BY__MAX_WAYS_SEEN != s->round) {
            if (*count < BY__MAX_WAYS_SEEN) {
                *at = s->round * BY__MAX_WAYS_SEEN + (uint32_t)*count;
                s->seen[(*count)++] = (by__constraint_way){state, frame};
            }
            return;
        }
        const by__constraint_way *w = &s->seen[*at % BY__MAX_WAYS_SEEN];
        if (w->state == state && w->frame == frame) {
            return;
        }
    }
}

/* Adds the ways into rules that are called, and back out of rules that end. */
static by_status follow(by__constraint_way_sets *s, size_t *count, int64_t *work, by_error *error)
{
    const by__constraint_automata *a = s->automata;
    for (size_t i = 0; i < *count; i++) {
        by__constraint_way way = s->seen[i];
        int32_t k = a->first_call[way.state];
        for (; k < a->first_call[way.state + 1] && *count < BY__MAX_WAYS_SEEN; k++) {
            /* A tail call does not return, so it does not make the stack deeper. */
            int32_t back = a->calls[k].back;
            int32_t frame = way.frame;
            if (a->ends[back] == 0) {
                BY_TRY(push(s, back, way.frame, &frame, error));
            }
            if (frame >= 0) {
                add_way(s, count, a->calls[k].start, frame);
            }
        }
        *work -= 1 + k - a->first_call[way.state];
        if (a->accepts[way.state] != 0 && way.frame != 0) {
            const by__constraint_frame *f = &s->frames[way.frame];
            add_way(s, count, f->back, f->below);
        }
    }
    return BY_OK;
}

/* ---- sets ---- */

static by__constraint_way_key key_of(const by__constraint_way_sets *s,
                                     const by__constraint_way *ways, size_t count)
{
    by__constraint_way_key key = {count, ~(uint64_t)count};
    for (size_t i = 0; i < count; i++) {
        uint64_t stack = s->frames[ways[i].frame].hash;
        uint64_t state = (uint64_t)ways[i].state + 1;
        key.a = mix(key.a * 31 + stack + state * UINT64_C(0x9e3779b97f4a7c15));
        key.b = mix(key.b + stack * UINT64_C(0xc2b2ae3d27d4eb4f)) * UINT64_C(0xff51afd7ed558ccd) +
                state;
    }
    return key;
}

/* Appends a set of the first `entered` seen ways, which are in its pool already, with the readable
 * ones of all `seen`. */
static by_status append_set(by__constraint_way_sets *s, by__constraint_way_key key, size_t entered,
                            size_t seen, by_error *error)
{
    const by__constraint_automata *a = s->automata;
    size_t classes = (size_t)a->classes;
    by__constraint_way_set set = {.key = key, .first = s->way_count, .entered = (int32_t)entered};
    BY_TRY(by__reserve((void **)&s->sets, &s->capacity, s->count + 1, sizeof *s->sets, error));
    BY_TRY(by__reserve((void **)&s->next, &s->next_capacity, (s->count + 1) * classes,
                       sizeof *s->next, error));
    BY_TRY(by__reserve((void **)&s->ways, &s->way_capacity, s->way_count + entered + seen,
                       sizeof *s->ways, error));
    BY_TRY(by__base_table_add(&s->set_table, key.a, s->count, "a constraint", error));
    memcpy(s->ways + s->way_count, s->seen, entered * sizeof *s->ways);
    s->way_count += entered;
    for (size_t i = 0; i < seen; i++) {
        by__constraint_way way = s->seen[i];
        set.can_end = set.can_end || (a->accepts[way.state] != 0 && way.frame == 0);
        if (a->reads[way.state] != 0 && set.readable < BY__MAX_WAYS) {
            s->ways[s->way_count++] = way;
            set.readable++;
        }
    }
    for (size_t k = 0; k < classes; k++) {
        s->next[s->count * classes + k] = UNKNOWN;
    }
    s->sets[s->count++] = set;
    return BY_OK;
}

static size_t bytes_of(const by__constraint_way_sets *s)
{
    return s->count * (sizeof *s->sets + (size_t)s->automata->classes * sizeof *s->next) +
           s->way_count * sizeof *s->ways + s->frame_count * sizeof *s->frames;
}

static bool is_full(const by__constraint_way_sets *s)
{
    size_t most = s->holder_count * HOLDER_BYTES;
    most = most < HOLDER_BYTES ? HOLDER_BYTES : most > MAX_BYTES ? MAX_BYTES : most;
    return bytes_of(s) > (most > s->floor ? most : s->floor);
}

/* Finds the set of the first `count` seen ways, making it if necessary. */
static by_status intern(by__constraint_way_sets *s, size_t count, int32_t *out, int64_t *work,
                        by_error *error)
{
    size_t entered = count;
    by__constraint_way_key key = key_of(s, s->seen, count);
    *work -= 1 + (int64_t)count / 4;
    for (by__base_probe p = by__base_probe_begin(&s->set_table, key.a);
         by__base_probe_next(&s->set_table, &p);) {
        const by__constraint_way_set *set = &s->sets[p.number];
        if (set->key.a == key.a && set->key.b == key.b && (size_t)set->entered == count &&
            memcmp(s->ways + set->first, s->seen, count * sizeof *s->seen) == 0) {
            *out = (int32_t)p.number;
            return BY_OK;
        }
    }
    BY_TRY(follow(s, &count, work, error));
    BY_TRY(append_set(s, key, entered, count, error));
    s->full = is_full(s);
    *out = (int32_t)s->count - 1;
    return BY_OK;
}

by_status by__constraint_way_sets_begin(by__constraint_way_sets *s, int32_t *out, int64_t *work,
                                        by_error *error)
{
    size_t count = 0;
    begin_ways(s);
    add_way(s, &count, s->automata->root, 0);
    return intern(s, count, out, work, error);
}

by_status by__constraint_way_sets_next(by__constraint_way_sets *s, int32_t from, uint8_t byte,
                                       int32_t *out, int64_t *work, by_error *error)
{
    const by__constraint_automata *a = s->automata;
    size_t class = a->class_of[byte];
    size_t cell = (size_t)from * (size_t)a->classes + class;
    *work -= 1;
    if (s->next[cell] != UNKNOWN) {
        *out = s->next[cell];
        return BY_OK;
    }
    const by__constraint_way_set *set = &s->sets[from];
    size_t count = 0;
    begin_ways(s);
    for (size_t i = set->first + (size_t)set->entered, n = (size_t)set->readable; n > 0; i++, n--) {
        int32_t to = a->next[(size_t)s->ways[i].state * (size_t)a->classes + class];
        if (to >= 0) {
            add_way(s, &count, to, s->ways[i].frame);
        }
    }
    *work -= (int64_t)set->readable / 4;
    int32_t found = BY__DEAD;
    if (count > 0) {
        BY_TRY(intern(s, count, &found, work, error));
    }
    s->next[cell] = *out = found;
    return BY_OK;
}

/* ---- memory ---- */

static by_status allocate(by__constraint_way_sets *s, by_error *error)
{
    BY_TRY(by__alloc((void **)&s->seen, BY__MAX_WAYS_SEEN, sizeof *s->seen, "a constraint", error));
    BY_TRY(by__alloc((void **)&s->seen_at, SEEN_SLOTS, sizeof *s->seen_at, "a constraint", error));
    BY_TRY(by__reserve((void **)&s->frames, &s->frame_capacity, 1, sizeof *s->frames, error));
    s->frames[0] = (by__constraint_frame){.back = BY__DEAD};
    s->frame_count = 1;
    return BY_OK;
}

by_status by__constraint_way_sets_open(by__constraint_way_sets *s,
                                       const by__constraint_automata *automata, by_error *error)
{
    *s = (by__constraint_way_sets){.automata = automata};
    by_status status = allocate(s, error);
    if (status != BY_OK) {
        by__constraint_way_sets_close(s);
    }
    return status;
}

void by__constraint_way_sets_close(by__constraint_way_sets *s)
{
    free(s->frames);
    by__base_table_free(&s->frame_table);
    free(s->ways);
    free(s->sets);
    by__base_table_free(&s->set_table);
    free(s->next);
    free(s->seen);
    free(s->seen_at);
    *s = (by__constraint_way_sets){0};
}

void by__constraint_way_sets_hold(by__constraint_way_sets *s, by__constraint_way_holder *holder)
{
    holder->before = NULL;
    holder->next = s->holders;
    if (s->holders != NULL) {
        s->holders->before = holder;
    }
    s->holders = holder;
    s->holder_count++;
}

void by__constraint_way_sets_release(by__constraint_way_sets *s, by__constraint_way_holder *holder)
{
    *(holder->before == NULL ? &s->holders : &holder->before->next) = holder->next;
    if (holder->next != NULL) {
        holder->next->before = holder->before;
    }
    s->holder_count--;
}

/* Finds a stack of `from` among those of `to`. */
static by_status move_frame(const by__constraint_way_sets *from, by__constraint_way_sets *to,
                            int32_t *frame, by_error *error)
{
    int32_t stack[2 * BY__MAX_NESTING + 1];
    int depth = 0;
    for (int32_t f = *frame; f != 0; f = from->frames[f].below) {
        stack[depth++] = from->frames[f].back;
    }
    *frame = 0;
    while (depth > 0) {
        BY_TRY(push(to, stack[--depth], *frame, frame, error));
    }
    return BY_OK;
}

static by_status move_set(const by__constraint_way_sets *from, by__constraint_way_sets *to,
                          int32_t *at, by_error *error)
{
    by__constraint_way_set set = from->sets[*at];
    size_t ways = (size_t)set.entered + (size_t)set.readable;
    memcpy(to->seen, from->ways + set.first, ways * sizeof *to->seen);
    for (size_t i = 0; i < ways; i++) {
        BY_TRY(move_frame(from, to, &to->seen[i].frame, error));
    }
    for (by__base_probe p = by__base_probe_begin(&to->set_table, set.key.a);
         by__base_probe_next(&to->set_table, &p);) {
        if (to->sets[p.number].key.a == set.key.a && to->sets[p.number].key.b == set.key.b) {
            *at = (int32_t)p.number;
            return BY_OK;
        }
    }
    BY_TRY(append_set(to, set.key, (size_t)set.entered, 0, error));
    BY_TRY(by__reserve((void **)&to->ways, &to->way_capacity, to->way_count + ways,
                       sizeof *to->ways, error));
    memcpy(to->ways + to->way_count, to->seen + set.entered,
           (size_t)set.readable * sizeof *to->ways);
    to->way_count += (size_t)set.readable;
    to->sets[to->count - 1].readable = set.readable;
    to->sets[to->count - 1].can_end = set.can_end;
    *at = (int32_t)to->count - 1;
    return BY_OK;
}

by_status by__constraint_way_sets_forget(by__constraint_way_sets *s, by_error *error)
{
    by__constraint_way_sets kept;
    size_t places = 0;
    int32_t *moved = NULL;
    if (!s->full) {
        return BY_OK;
    }
    BY_TRY(by__constraint_way_sets_open(&kept, s->automata, error));
    for (const by__constraint_way_holder *h = s->holders; h != NULL; h = h->next) {
        places += h->count;
    }
    by_status status = by__alloc((void **)&moved, places + 1, sizeof *moved, "a constraint", error);
    places = 0;
    for (const by__constraint_way_holder *h = s->holders; h != NULL && status == BY_OK;
         h = h->next) {
        for (size_t i = 0; i < h->count && status == BY_OK; i++) {
            moved[places] = h->sets[i];
            status = move_set(s, &kept, &moved[places++], error);
        }
    }
    if (status != BY_OK) {
        free(moved);
        by__constraint_way_sets_close(&kept);
        return status;
    }
    places = 0;
    for (by__constraint_way_holder *h = s->holders; h != NULL; h = h->next) {
        for (size_t i = 0; i < h->count; i++) {
            h->sets[i] = moved[places++];
        }
    }
    free(moved);
    kept.holders = s->holders;
    kept.holder_count = s->holder_count;
    kept.generation = s->generation + 1;
    kept.floor = 2 * bytes_of(&kept);
    s->holders = NULL;
    by__constraint_way_sets_close(s);
    *s = kept;
    return BY_OK;
}
