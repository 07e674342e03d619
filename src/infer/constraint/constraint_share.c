#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

/* Memory for the masks of a share, and the number of masks that it always keeps. */
#define MASK_BYTES ((size_t)2 << 20)
#define MIN_MASKS  16

static void free_share(by__constraint_share *s)
{
    for (size_t i = 0; i < s->mask_count; i++) {
        free(s->masks[i].bits);
    }
    free(s->masks);
    by__constraint_way_sets_close(&s->sets);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

static by_status make(by__constraint_share **out, const by_constraint *constraint,
                      const by_token_list *list, by_error *error)
{
    by__constraint_share *s;
    int64_t work = 0;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a constraint", error));
    if (pthread_mutex_init(&s->lock, NULL) != 0) {
        free(s);
        return by_error_set(error, BY_EMEMORY, "out of memory: a lock");
    }
    s->list = list;
    s->words = list == NULL ? 0 : ((size_t)list->vocab + 63) / 64;
    s->most_masks = MASK_BYTES / (s->words * sizeof(uint64_t) + 1);
    s->most_masks = s->most_masks < MIN_MASKS ? MIN_MASKS : s->most_masks;
    by_status status = by__constraint_way_sets_open(&s->sets, &constraint->automata, error);
    if (status == BY_OK) {
        status = by__constraint_way_sets_begin(&s->sets, &s->begin, &work, error);
    }
    if (status != BY_OK) {
        free_share(s);
        return status;
    }
    s->holder = (by__constraint_way_holder){.sets = &s->begin, .count = 1};
    by__constraint_way_sets_hold(&s->sets, &s->holder);
    *out = s;
    return BY_OK;
}

by_status by__constraint_share_open(by__constraint_share **out, const by_constraint *constraint,
                                    const by_token_list *list, by_error *error)
{
    by__constraint_shares *all = constraint->shares;
    by_status status = BY_OK;
    (void)pthread_mutex_lock(&all->lock);
    by__constraint_share *s = all->list;
    while (s != NULL && s->list != list) {
        s = s->next;
    }
    if (s == NULL) {
        status = make(&s, constraint, list, error);
        if (status == BY_OK) {
            s->next = all->list;
            all->list = s;
        }
    }
    if (status == BY_OK) {
        s->users++;
        *out = s;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return status;
}

void by__constraint_share_close(const by_constraint *constraint, by__constraint_share *share)
{
    by__constraint_shares *all = constraint->shares;
    (void)pthread_mutex_lock(&all->lock);
    if (--share->users == 0) {
        by__constraint_share **at = &all->list;
        while (*at != share) {
            at = &(*at)->next;
        }
        *at = share->next;
        free_share(share);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

const uint64_t *by__constraint_share_find(by__constraint_share *s, by__constraint_way_key key)
{
    for (size_t i = 0; i < s->mask_count; i++) {
        if (s->masks[i].key.a == key.a && s->masks[i].key.b == key.b) {
            s->masks[i].used = ++s->clock;
            return s->masks[i].bits;
        }
    }
    return NULL;
}

void by__constraint_share_cache(by__constraint_share *s, by__constraint_way_key key,
                                const uint64_t *bits)
{
    by__constraint_kept_mask *at = NULL;
    if (s->mask_count < s->most_masks) {
        if (by__reserve((void **)&s->masks, &s->mask_capacity, s->mask_count + 1, sizeof *s->masks,
                        NULL) != BY_OK) {
            return;
        }
        at = &s->masks[s->mask_count];
        *at = (by__constraint_kept_mask){.bits = malloc(s->words * sizeof *bits)};
        if (at->bits == NULL) {
            return;
        }
        s->mask_count++;
    } else {
        at = &s->masks[0];
        for (size_t i = 1; i < s->mask_count; i++) {
            at = s->masks[i].used < at->used ? &s->masks[i] : at;
        }
    }
    at->key = key;
    at->used = ++s->clock;
    memcpy(at->bits, bits, s->words * sizeof *bits);
}
