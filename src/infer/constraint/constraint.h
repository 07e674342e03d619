/* The parts of a constraint: the compiled automata (constraint.c), the tokens of a vocabulary
 * (token_list.c), what the sequences of a constraint share (constraint_share.c), and the position
 * of one sequence (constraint_state.c). */
#ifndef BY_INFER_CONSTRAINT_CONSTRAINT_H
#define BY_INFER_CONSTRAINT_CONSTRAINT_H

#include <pthread.h>

#include "infer/constraint/way_sets.h"

/* Longer tokens are never allowed. */
#define BY__MAX_TOKEN_BYTES 255

struct by_token_list {
    uint32_t vocab;
    uint32_t count;
    uint32_t *ids;   /* [count], sorted by the tokens' bytes */
    uint32_t *first; /* [count + 1]: where the bytes of the k-th token start */
    uint8_t *bytes;
    uint8_t *shared; /* [count]: length of the k-th token's common prefix with the one before */
    uint32_t *place; /* [vocab]: k of each token, or BY__NO_PLACE */
};
#define BY__NO_PLACE UINT32_MAX

/* The tokens that may follow a set of ways. */
typedef struct by__constraint_kept_mask {
    by__constraint_way_key key;
    uint64_t used; /* time of last use; 0: empty */
    uint64_t *bits;
} by__constraint_kept_mask;

/* What the sequences with one constraint and one vocabulary share. Lives while one of them does. */
typedef struct by__constraint_share {
    const by_token_list *list;
    size_t words; /* of a mask */
    pthread_mutex_t lock;
    /* Under the lock: */
    by__constraint_way_sets sets;
    int32_t begin; /* the set at the start of a text */
    by__constraint_way_holder holder;
    by__constraint_kept_mask *masks;
    size_t mask_count, mask_capacity, most_masks;
    uint64_t clock;
    /* Under the lock of the shares: */
    size_t users;
    struct by__constraint_share *next;
} by__constraint_share;

typedef struct by__constraint_shares {
    pthread_mutex_t lock;
    by__constraint_share *list;
} by__constraint_shares;

struct by_constraint {
    by__constraint_automata automata;
    by__constraint_shares *shares;
};

/* Returns the share for a vocabulary, counting one more user. */
by_status by__constraint_share_open(by__constraint_share **out, const by_constraint *constraint,
                                    const by_token_list *list, by_error *error);
void by__constraint_share_close(const by_constraint *constraint, by__constraint_share *share);
/* Returns the mask of a key, NULL if there is none; with the lock held. */
const uint64_t *by__constraint_share_find(by__constraint_share *share, by__constraint_way_key key);
/* Keeps a copy of a mask if there is memory; with the lock held. */
void by__constraint_share_cache(by__constraint_share *share, by__constraint_way_key key,
                                const uint64_t *bits);

/* Returns true if any token of the list may follow (constraint_state.c). */
bool by__constraint_state_goes_on(by_constraint_state *state);

#endif
