#include "data/nodes/node_sample.h"

#include <string.h>

/* Most bytes of one sample's indices. */
#define SAMPLE_LIMIT ((int64_t)1 << 30)

by_status by__nodes_sampling_fit(by__nodes_sampling *sampling, const by__nodes_set *set,
                                 by_error *error)
{
    int32_t most = 1; /* of a graph without edges, too */
    for (int64_t i = 0; i < set->nodes; i++) {
        int32_t degree = set->offsets[i + 1] - set->offsets[i];
        most = degree > most ? degree : most;
    }
    int64_t front = 1;
    sampling->nodes = 1;
    sampling->edges = 0;
    for (int hop = 0; hop < sampling->hops; hop++) {
        int32_t *fan_out = &sampling->fan_outs[hop];
        *fan_out = *fan_out < most ? *fan_out : most;
        if (front > SAMPLE_LIMIT / *fan_out) {
            return by_error_set(error, BY_ECONFIG,
                                "data.fan_outs: a sample would have more than %lld edges",
                                (long long)SAMPLE_LIMIT);
        }
        front *= *fan_out;
        sampling->nodes += front;
        sampling->edges += front;
    }
    sampling->nodes = sampling->nodes < set->nodes ? sampling->nodes : set->nodes;
    sampling->edges = sampling->edges < set->edges ? sampling->edges : set->edges;
    return BY_OK;
}

/* ---- numbers of the nodes met ---- */

/* A table by global number, with linear probing; `slots` is a power of two. */
typedef struct met_nodes {
    int32_t *slot; /* [slots] number in the sample, -1: empty */
    uint32_t mask;
} met_nodes;

static uint32_t slots_for(int64_t nodes)
{
    uint32_t slots = 8;
    while ((int64_t)slots < 2 * nodes) {
        slots *= 2;
    }
    return slots;
}

size_t by__nodes_sample_scratch(const by__nodes_sampling *sampling)
{
    return (size_t)slots_for(sampling->nodes) * sizeof(int32_t);
}

/* The number of a node; it is added if it is new. */
static int32_t number_of(const met_nodes *met, const by__nodes_sample *out, int32_t id,
                         int32_t *count)
{
    uint32_t at = (uint32_t)id * 2654435769u & met->mask; /* 2^32 / golden ratio */
    while (met->slot[at] >= 0 && out->ids[met->slot[at]] != id) {
        at = (at + 1) & met->mask;
    }
    if (met->slot[at] < 0) {
        met->slot[at] = *count;
        out->ids[(*count)++] = id;
    }
    return met->slot[at];
}

/* ---- edges ---- */

/* A random number below `limit`. */
static uint32_t draw_below(const uint32_t key[2], uint64_t index, int32_t id, uint32_t place,
                           uint32_t limit)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)id, place};
    uint32_t bits[4];
    by__philox(bits, key, counter);
    return (uint32_t)((uint64_t)bits[0] * limit >> 32);
}

/* Takes edges of node `number`, at most `fan_out` of them: each edge in turn with the probability
 * that leaves the right number (Knuth's algorithm S). Returns the number of all edges so far. */
static int32_t take_edges(const by__nodes_sample *out, const met_nodes *met,
                          const by__nodes_set *set, int32_t number, int32_t fan_out,
                          const uint32_t key[2], uint64_t index, int32_t *count, int32_t edges)
{
    int32_t id = out->ids[number];
    int32_t begin = set->offsets[id];
    int32_t degree = set->offsets[id + 1] - begin;
    int32_t wanted = degree < fan_out ? degree : fan_out;
    for (int32_t k = 0; k < degree && wanted > 0; k++) {
        int32_t left = degree - k;
        if (wanted == left ||
            draw_below(key, index, id, (uint32_t)k, (uint32_t)left) < (uint32_t)wanted) {
            out->sources[edges++] = number_of(met, out, set->sources[begin + k], count);
            wanted--;
        }
    }
    return edges;
}

static void transpose(const by__nodes_sample *out, int64_t nodes, int32_t edges)
{
    int32_t *rows = out->back_offsets;
    memset(rows, 0, (size_t)(nodes + 1) * sizeof *rows);
    for (int32_t k = 0; k < edges; k++) {
        rows[out->sources[k] + 1]++;
    }
    for (int64_t i = 0; i < nodes; i++) {
        rows[i + 1] += rows[i];
    }
    int32_t row = 0;
    for (int32_t k = 0; k < edges; k++) {
        while (out->offsets[row + 1] <= k) {
            row++;
        }
        int32_t at = rows[out->sources[k]]++;
        out->back_sources[at] = row;
        out->back_edges[at] = k;
    }
    memmove(rows + 1, rows, (size_t)nodes * sizeof *rows);
    rows[0] = 0;
}

void by__nodes_sample_fill(const by__nodes_sample *out, const by__nodes_sampling *sampling,
                           const by__nodes_set *set, int32_t id, const uint32_t key[2],
                           uint64_t index, void *scratch)
{
    met_nodes met = {.slot = scratch, .mask = slots_for(sampling->nodes) - 1};
    int32_t count = 0;
    int32_t edges = 0;
    int32_t next = 0;
    memset(met.slot, 0xff, by__nodes_sample_scratch(sampling));
    (void)number_of(&met, out, id, &count);
    out->offsets[0] = 0;
    for (int hop = 0; hop < sampling->hops; hop++) {
        for (int32_t end = count; next < end; next++) {
            edges = take_edges(out, &met, set, next, sampling->fan_outs[hop], key, index, &count,
                               edges);
            out->offsets[next + 1] = edges;
        }
    }
    for (; next < sampling->nodes; next++) {
        out->offsets[next + 1] = edges;
        out->ids[next] = next < count ? out->ids[next] : 0;
    }
    for (int64_t k = edges; k < sampling->edges; k++) {
        out->sources[k] = out->back_sources[k] = out->back_edges[k] = -1;
    }
    transpose(out, sampling->nodes, edges);
}
