#include <stdlib.h>
#include <string.h>

#include "data/loader/order.h"
#include "data/nodes/partition/partition.h"

#define PASSES 16

typedef struct refinement {
    const by__nodes_level *level;
    int32_t *part_of;
    int64_t parts;
    int64_t most;
    int64_t *sizes;               /* [parts] nodes of the finest graph */
    by__nodes_edge_counts counts; /* of the node looked at, by parts */
} refinement;

/* Counts the edges of a node by where they lead. Returns whether one leads to another part. */
static bool is_at_border(refinement *r, int64_t v)
{
    by__nodes_edge_counts *c = &r->counts;
    by__nodes_edge_counts_of(c, r->level, r->part_of, v);
    return c->met_count > 1 || (c->met_count == 1 && c->met[0] != r->part_of[v]);
}

/* The part that a node moves to; its own: it stays. It goes where it has more edges or, with as
 * many, where there are fewer nodes. From a part that is too large, it goes where there is room. */
static int32_t better_part(const refinement *r, int64_t v)
{
    int32_t own = r->part_of[v];
    int32_t best = own;
    int64_t size = by__nodes_level_size(r->level, v);
    bool full = r->sizes[own] > r->most;
    int64_t gain = full ? INT64_MIN : 0;
    if (r->sizes[own] <= size) { /* it would be empty */
        return own;
    }
    for (int64_t i = 0; i < r->counts.met_count; i++) {
        int32_t part = r->counts.met[i];
        int64_t more = r->counts.edges[part] - r->counts.edges[own];
        bool fits = r->sizes[part] + size <= r->most;
        int64_t from = best == own ? r->sizes[own] - size : r->sizes[best];
        if (part != own && fits && (more > gain || (more == gain && r->sizes[part] < from))) {
            best = part;
            gain = more;
        }
    }
    return best;
}

static int64_t pass_over(refinement *r, uint64_t seed, uint64_t pass)
{
    by__loader_order order;
    int64_t moves = 0;
    by__loader_order_init(&order, (uint64_t)r->level->nodes, seed, pass);
    for (int64_t i = 0; i < r->level->nodes; i++) {
        int64_t v = (int64_t)by__loader_order_at(&order, (uint64_t)i);
        if (is_at_border(r, v)) {
            int32_t part = better_part(r, v);
            int32_t size = by__nodes_level_size(r->level, v);
            moves += part != r->part_of[v] ? 1 : 0;
            r->sizes[r->part_of[v]] -= size;
            r->sizes[part] += size;
            r->part_of[v] = part;
        }
    }
    return moves;
}

static int32_t smallest(const refinement *r)
{
    int32_t part = 0;
    for (int64_t i = 1; i < r->parts; i++) {
        part = r->sizes[i] < r->sizes[part] ? (int32_t)i : part;
    }
    return part;
}

/* Nodes of parts that are still too large go to the smallest one, and each empty part gets a node
 * of a part with several: so it is where each node is one of the finest graph. */
static void balance(refinement *r)
{
    int32_t to = smallest(r);
    for (int64_t v = 0; v < r->level->nodes; v++) {
        int32_t own = r->part_of[v];
        int64_t size = by__nodes_level_size(r->level, v);
        bool empty = r->sizes[to] == 0;
        if ((r->sizes[own] > r->most || (empty && r->sizes[own] > size)) &&
            r->sizes[to] + size <= r->most) {
            r->sizes[own] -= size;
            r->sizes[to] += size;
            r->part_of[v] = to;
            to = smallest(r);
        }
    }
}

static bool needs_balance(const refinement *r)
{
    bool needs = false;
    for (int64_t i = 0; i < r->parts; i++) {
        needs = needs || r->sizes[i] == 0 || r->sizes[i] > r->most;
    }
    return needs;
}

by_status by__nodes_refine(int32_t *part_of, const by__nodes_level *level, int64_t parts,
                           int64_t most, uint64_t seed, by_error *error)
{
    refinement r = {.level = level, .part_of = part_of, .parts = parts, .most = most};
    by_status status =
        by__alloc((void **)&r.sizes, (size_t)parts, sizeof *r.sizes, "a partition", error);
    if (status == BY_OK) {
        status = by__nodes_edge_counts_open(&r.counts, parts, error);
    }
    if (status == BY_OK) {
        for (int64_t v = 0; v < level->nodes; v++) {
            r.sizes[part_of[v]] += by__nodes_level_size(level, v);
        }
        int64_t moves = 1;
        for (uint64_t pass = 0; pass < PASSES && moves > 0; pass++) {
            moves = pass_over(&r, seed, pass);
        }
        if (needs_balance(&r)) {
            balance(&r);
            (void)pass_over(&r, seed, PASSES);
        }
    }
    free(r.sizes);
    by__nodes_edge_counts_free(&r.counts);
    return status;
}
