/* way_sets: the automata of a constraint, run as one deterministic automaton that is made as far as
 * texts need it.
 *
 * A text may be parsed in several ways at once: each is a state and a stack of states to return to.
 * What may follow a text depends on the set of its ways alone, and few sets occur: all tokens of a
 * vocabulary, all sequences and all steps that reach a set share it and its transitions. (Subsets
 * made on demand, as in RE2; stacks are hash-consed, so equal stacks have equal numbers.)
 *
 * A set is identified by the ways right after its last byte, in order. Bounds drop ways, which can
 * only forbid texts, and depend on the set alone, never on what else was asked before.
 *
 * Memory is bounded by forgetting: by__constraint_way_sets_forget keeps what holders name and drops
 * the rest. Sets are then renumbered, so numbers between calls belong into a holder.
 *
 * Never put here: tokens, locks.
 */
#ifndef BY_INFER_CONSTRAINT_WAY_SETS_H
#define BY_INFER_CONSTRAINT_WAY_SETS_H

#include "base/hash_table.h"
#include "infer/constraint/byte_language.h"

/* Maximum number of ways of a set that can read a byte, and of all that are looked at to find
 * them. */
#define BY__MAX_WAYS      1024
#define BY__MAX_WAYS_SEEN 4096

typedef struct by__constraint_way {
    int32_t state;
    int32_t frame; /* 0: the empty stack */
} by__constraint_way;

typedef struct by__constraint_frame {
    int32_t back;
    int32_t below;
    int32_t depth;
    uint64_t hash; /* hash of the whole stack */
} by__constraint_frame;

/* Two independent hashes over the ways with their whole stacks. Survives
 * by__constraint_way_sets_forget. */
typedef struct by__constraint_way_key {
    uint64_t a, b;
} by__constraint_way_key;

typedef struct by__constraint_way_set {
    by__constraint_way_key key;
    size_t first;     /* of its ways in the pool */
    int32_t entered;  /* ways right after the last byte */
    int32_t readable; /* ways behind these that can read a byte, after calls and returns */
    bool can_end;     /* the text may end here */
} by__constraint_way_set;

/* Keeps sets from being forgotten and has their numbers updated. */
typedef struct by__constraint_way_holder {
    int32_t *sets; /* [count] */
    size_t count;
    struct by__constraint_way_holder *next, *before;
} by__constraint_way_holder;

typedef struct by__constraint_way_sets {
    const by__constraint_automata *automata;
    by__constraint_frame *frames;
    size_t frame_count, frame_capacity;
    by__base_table frame_table; /* of all but the first */
    by__constraint_way *ways;   /* of all sets */
    size_t way_count, way_capacity;
    by__constraint_way_set *sets;
    size_t count, capacity;
    by__base_table set_table;
    int32_t *next; /* [sets, classes]: a set, BY__DEAD, or not known yet */
    size_t next_capacity;
    by__constraint_way *seen; /* [BY__MAX_WAYS_SEEN]: of the set being made */
    uint32_t *seen_at;        /* hash table of these: round and place */
    uint32_t round;
    by__constraint_way_holder *holders;
    size_t holder_count;
    size_t floor;        /* bytes that holders need; more than this must fit */
    bool full;           /* it is time for by__constraint_way_sets_forget */
    uint64_t generation; /* counts by__constraint_way_sets_forget */
} by__constraint_way_sets;

by_status by__constraint_way_sets_open(by__constraint_way_sets *sets,
                                       const by__constraint_automata *automata, by_error *error);
void by__constraint_way_sets_close(by__constraint_way_sets *sets);
void by__constraint_way_sets_hold(by__constraint_way_sets *sets, by__constraint_way_holder *holder);
void by__constraint_way_sets_release(by__constraint_way_sets *sets,
                                     by__constraint_way_holder *holder);
/* Finds the set at the start of a text. Subtracts elementary steps from *work. */
by_status by__constraint_way_sets_begin(by__constraint_way_sets *sets, int32_t *out, int64_t *work,
                                        by_error *error);
/* Finds the set after one more byte; BY__DEAD: the byte may not follow. */
by_status by__constraint_way_sets_next(by__constraint_way_sets *sets, int32_t from, uint8_t byte,
                                       int32_t *out, int64_t *work, by_error *error);
/* Drops the sets that no holder names, if there are many sets. Call it before a set is asked
 * for, when holders have all numbers that are still needed. */
by_status by__constraint_way_sets_forget(by__constraint_way_sets *sets, by_error *error);

#endif
