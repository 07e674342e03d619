/* Numbers of the nodes of a sample, in the order in which they are met: a hash table with linear
 * probing, in memory of the caller. */
#ifndef BY_DATA_NODES_NODE_MET_H
#define BY_DATA_NODES_NODE_MET_H

#include <string.h>

#include "base/base.h"

typedef struct by__nodes_met {
    int32_t *slot; /* number in the sample, -1: empty; a power of two of them */
    uint32_t mask;
    int32_t *ids; /* by number in the sample */
    int32_t count;
} by__nodes_met;

static inline uint32_t by__nodes_met_slots(int64_t nodes)
{
    uint32_t slots = 8;
    while ((int64_t)slots < 2 * nodes) {
        slots *= 2;
    }
    return slots;
}

/* Bytes of scratch memory for up to so many nodes. */
static inline size_t by__nodes_met_bytes(int64_t nodes)
{
    return (size_t)by__nodes_met_slots(nodes) * sizeof(int32_t);
}

static inline void by__nodes_met_begin(by__nodes_met *met, int64_t nodes, int32_t *ids,
                                       void *scratch)
{
    *met = (by__nodes_met){.slot = scratch, .mask = by__nodes_met_slots(nodes) - 1, .ids = ids};
    memset(scratch, 0xff, by__nodes_met_bytes(nodes));
}

/* The slot of a node, or the one where it would be. */
static inline uint32_t by__nodes_met_slot(const by__nodes_met *met, int32_t id)
{
    uint32_t at = (uint32_t)id * 2654435769u & met->mask; /* 2^32 / golden ratio */
    while (met->slot[at] >= 0 && met->ids[met->slot[at]] != id) {
        at = (at + 1) & met->mask;
    }
    return at;
}

/* The number of a node; it is added if it is new. */
static inline int32_t by__nodes_met_add(by__nodes_met *met, int32_t id)
{
    uint32_t at = by__nodes_met_slot(met, id);
    if (met->slot[at] < 0) {
        met->slot[at] = met->count;
        met->ids[met->count++] = id;
    }
    return met->slot[at];
}

/* The number of a node; -1: it was not met. */
static inline int32_t by__nodes_met_find(const by__nodes_met *met, int32_t id)
{
    return met->slot[by__nodes_met_slot(met, id)];
}

#endif
