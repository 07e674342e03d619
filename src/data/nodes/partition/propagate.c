#include <stdlib.h>
#include <string.h>

#include "data/loader/order.h"
#include "data/nodes/partition/partition.h"

/* Rounds over all nodes, fewer if few move. */
#define ROUNDS 5

typedef struct clustering {
    const by__nodes_level *level;
    int64_t most;
    int32_t *label;               /* [nodes] cluster, named after one of its nodes */
    int64_t *size;                /* [nodes] of each cluster, in nodes of the finest graph */
    by__nodes_edge_counts counts; /* of the node looked at, by clusters */
} clustering;

/* The cluster to which most edges of the node lead that were counted: with room for it or, if
 * `any`, with or without. Its own one if no other has more; -1: it has no edges. */
static int32_t nearest(const clustering *c, int64_t v, bool any)
{
    int32_t best = any ? -1 : c->label[v];
    int64_t most = any ? 0 : c->counts.edges[best];
    int64_t room = c->most - by__nodes_level_size(c->level, v);
    for (int64_t i = 0; i < c->counts.met_count; i++) {
        int32_t label = c->counts.met[i];
        if (c->counts.edges[label] > most && (any || c->size[label] <= room)) {
            best = label;
            most = c->counts.edges[label];
        }
    }
    return best;
}

static int64_t propagate(clustering *c, uint64_t seed, uint64_t round)
{
    by__loader_order order;
    int64_t moves = 0;
    by__loader_order_init(&order, (uint64_t)c->level->nodes, seed, round);
    for (int64_t i = 0; i < c->level->nodes; i++) {
        int64_t v = (int64_t)by__loader_order_at(&order, (uint64_t)i);
        int64_t size = by__nodes_level_size(c->level, v);
        by__nodes_edge_counts_of(&c->counts, c->level, c->label, v);
        int32_t label = nearest(c, v, false);
        moves += label != c->label[v] ? 1 : 0;
        c->size[c->label[v]] -= size;
        c->size[label] += size;
        c->label[v] = label;
    }
    return moves;
}

/* Nodes that are alone join the one that waits for them at the same cluster, as leaves of a star
 * do; those without edges wait at place nodes. */
static void join_waiting(clustering *c, int32_t *waiting)
{
    const by__nodes_level *l = c->level;
    memset(waiting, 0xff, (size_t)(l->nodes + 1) * sizeof *waiting);
    for (int64_t v = 0; v < l->nodes; v++) {
        int64_t size = by__nodes_level_size(l, v);
        if (c->size[c->label[v]] != size) {
            continue;
        }
        by__nodes_edge_counts_of(&c->counts, c->level, c->label, v);
        int32_t at = nearest(c, v, true);
        int32_t *place = &waiting[at < 0 ? l->nodes : at];
        if (*place >= 0 && c->size[*place] + size <= c->most) {
            c->size[c->label[v]] -= size;
            c->size[*place] += size;
            c->label[v] = *place;
        } else {
            *place = c->label[v];
        }
    }
}

/* Numbers the clusters in the order of their first nodes. */
static int64_t number(const clustering *c, int32_t *numbers)
{
    int64_t count = 0;
    memset(numbers, 0xff, (size_t)c->level->nodes * sizeof *numbers);
    for (int64_t v = 0; v < c->level->nodes; v++) {
        int32_t *number = &numbers[c->label[v]];
        *number = *number < 0 ? (int32_t)count++ : *number;
        c->label[v] = *number;
    }
    return count;
}

by_status by__nodes_cluster(int32_t *out, int64_t *count, const by__nodes_level *level,
                            int64_t most, uint64_t seed, by_error *error)
{
    clustering c = {.level = level, .most = most, .label = out};
    size_t nodes = (size_t)level->nodes;
    int32_t *waiting = NULL;
    by_status status = by__alloc((void **)&c.size, nodes, sizeof *c.size, "a partition", error);
    if (status == BY_OK) {
        status = by__nodes_edge_counts_open(&c.counts, level->nodes, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&waiting, nodes + 1, sizeof *waiting, "a partition", error);
    }
    if (status == BY_OK) {
        int64_t moves = level->nodes;
        for (int64_t v = 0; v < level->nodes; v++) {
            out[v] = (int32_t)v;
            c.size[v] = by__nodes_level_size(level, v);
        }
        for (uint64_t round = 0; round < ROUNDS && moves > level->nodes / 50; round++) {
            moves = propagate(&c, seed, round);
        }
        join_waiting(&c, waiting);
        *count = number(&c, waiting);
    }
    free(c.size);
    by__nodes_edge_counts_free(&c.counts);
    free(waiting);
    return status;
}
