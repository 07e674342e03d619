#include "data/nodes/node_sample.h"

#include <string.h>

#include "data/nodes/node_met.h"

/* Most edges of one sample. */
#define SAMPLE_LIMIT ((int64_t)1 << 24)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most_edges(const by__nodes_set *set)
{
    int64_t most = 1; /* of a graph without edges, too */
    for (int64_t i = 0; i < set->nodes; i++) {
        int64_t degree = by__nodes_set_degree(set, i);
        most = degree > most ? degree : most;
    }
    return most;
}

/* The whole graph has room for any sample that has no target twice. */
by_status by__nodes_sampling_fit(by__nodes_sampling *s, const by__nodes_set *set, by_error *error)
{
    int64_t most = most_edges(set);
    int64_t front = s->targets;
    bool all = true;
    s->nodes = front;
    s->edges = 0;
    for (int hop = 0; hop < s->hops; hop++) {
        int32_t *fan_out = &s->fan_outs[hop];
        all = all && *fan_out >= most;
        *fan_out = (int32_t)least(*fan_out, most);
        s->hop_nodes[hop] = s->nodes;
        front = front > INT32_MAX / *fan_out ? INT32_MAX : front * *fan_out;
        s->nodes = least(s->nodes + front, set->nodes + s->targets - 1);
        s->edges = least(s->edges + front, set->edges * s->targets);
        s->hop_edges[hop] = s->edges;
        if (s->edges > SAMPLE_LIMIT) {
            return by_error_set(error, BY_ECONFIG,
                                "data.fan_outs: a sample would have %lld edges; at most %lld",
                                (long long)s->edges, (long long)SAMPLE_LIMIT);
        }
    }
    s->covers = all && s->hops > 0 && s->nodes >= set->nodes;
    return BY_OK;
}

/* ---- targets ---- */

size_t by__nodes_sample_scratch(const by__nodes_sampling *sampling)
{
    return by__nodes_met_bytes(sampling->nodes);
}

/* Each target has a number of its own, even if it is there twice. */
static void add_target(by__nodes_met *met, int32_t id)
{
    int32_t count = met->count;
    if (by__nodes_met_add(met, id) != count) {
        met->ids[met->count++] = id;
    }
}

/* ---- edges ---- */

/* Fan-outs up to this are drawn by what was drawn already. */
#define FEW 64

/* Random numbers of a node of a sample, four at a time. */
typedef struct node_random {
    const uint32_t *key;
    uint32_t counter[4];
    uint32_t bits[4];
    unsigned left;
} node_random;

/* A random number below `limit`. */
static uint32_t draw_below(node_random *r, uint32_t limit)
{
    if (r->left == 0) {
        by__philox(r->bits, r->key, r->counter);
        r->counter[3]++;
        r->left = 4;
    }
    return (uint32_t)((uint64_t)r->bits[--r->left] * limit >> 32);
}

/* Draws `wanted` <= FEW of `degree` places without replacement, ascending (Floyd's algorithm). */
static void draw_few(uint32_t *places, uint32_t wanted, uint32_t degree, node_random *r)
{
    for (uint32_t i = 0; i < wanted; i++) {
        uint32_t last = degree - wanted + i;
        uint32_t place = draw_below(r, last + 1);
        uint32_t at = i;
        while (at > 0 && places[at - 1] > place) {
            at--;
        }
        if (at > 0 && places[at - 1] == place) {
            places[i] = last; /* above all others */
            continue;
        }
        memmove(places + at + 1, places + at, (i - at) * sizeof *places);
        places[at] = place;
    }
}

int64_t by__nodes_apart_edge(const by__nodes_set *set, const int32_t *apart, int32_t node)
{
    if (apart == NULL || (node != apart[0] && node != apart[1]) || apart[0] == apart[1]) {
        return -1;
    }
    return by__nodes_set_edge(set, node == apart[0] ? apart[1] : apart[0], node);
}

/* A sample that is filled. */
typedef struct edge_taker {
    by__nodes_met met;
    const by__nodes_set *set;
    int32_t *sources;
    float *weights;       /* NULL: not wanted */
    const int32_t *apart; /* as by__nodes_sample has it */
    int64_t hole;         /* edge of the node at hand that is left out; -1: none */
    int32_t edges;        /* so far */
    const uint32_t *key;
    uint64_t index;
} edge_taker;

/* Takes edge `at` of a row, without one that is left out. */
static void take_edge(edge_taker *t, int64_t row, uint32_t at)
{
    int64_t edge = row + at;
    edge += t->hole >= 0 && edge >= t->hole ? 1 : 0;
    t->sources[t->edges] = by__nodes_met_add(&t->met, t->set->sources[edge]);
    if (t->weights != NULL) {
        t->weights[t->edges] = by__nodes_set_weight(t->set, edge);
    }
    t->edges++;
}

/* Takes edges of node `id`, at most `fan_out` of them. */
static void take_edges(edge_taker *t, int32_t id, int32_t fan_out)
{
    int64_t row = t->set->offsets[id];
    t->hole = by__nodes_apart_edge(t->set, t->apart, id);
    uint32_t degree = (uint32_t)by__nodes_set_degree(t->set, id) - (t->hole >= 0 ? 1u : 0u);
    uint32_t wanted = (uint32_t)fan_out;
    node_random r = {.key = t->key,
                     .counter = {(uint32_t)t->index, (uint32_t)(t->index >> 32), (uint32_t)id, 0}};
    uint32_t places[FEW];
    if (degree <= wanted) {
        for (uint32_t k = 0; k < degree; k++) {
            take_edge(t, row, k);
        }
    } else if (wanted <= FEW) {
        draw_few(places, wanted, degree, &r);
        for (uint32_t k = 0; k < wanted; k++) {
            take_edge(t, row, places[k]);
        }
    } else { /* each in turn, with the probability that leaves the right number */
        for (uint32_t k = 0; wanted > 0; k++) {
            if (draw_below(&r, degree - k) < wanted) {
                take_edge(t, row, k);
                wanted--;
            }
        }
    }
}

void by__nodes_rows_finish(const by__nodes_rows *r, int64_t rows, int64_t columns, int64_t room)
{
    int32_t edges = r->offsets[rows];
    int32_t *back = r->back_offsets;
    memset(back, 0, (size_t)(columns + 1) * sizeof *back);
    for (int32_t k = 0; k < edges; k++) {
        back[r->sources[k] + 1]++;
    }
    for (int64_t i = 0; i < columns; i++) {
        back[i + 1] += back[i];
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int32_t k = r->offsets[row]; k < r->offsets[row + 1]; k++) {
            int32_t at = back[r->sources[k]]++;
            r->back_sources[at] = (int32_t)row;
            r->back_edges[at] = k;
        }
    }
    memmove(back + 1, back, (size_t)columns * sizeof *back);
    back[0] = 0;
    for (int64_t k = edges; k < room; k++) {
        r->sources[k] = r->back_sources[k] = r->back_edges[k] = -1;
    }
}

/* Gives a hop the first edges of all. */
static void copy_rows(const by__nodes_sample *out, const by__nodes_sampling *s, int hop,
                      int32_t edges)
{
    const by__nodes_rows *r = &out->hops[hop];
    const by__nodes_rows *all = &out->hops[s->hops - 1];
    float *weights = out->weights[hop];
    if (hop < s->hops - 1) {
        memcpy(r->offsets, all->offsets, (size_t)(s->hop_nodes[hop] + 1) * sizeof(int32_t));
        memcpy(r->sources, all->sources, (size_t)edges * sizeof(int32_t));
        if (weights != NULL) {
            memcpy(weights, out->weights[s->hops - 1], (size_t)edges * sizeof *weights);
        }
    }
    for (int64_t k = edges; k < s->hop_edges[hop] && weights != NULL; k++) {
        weights[k] = 0.0f;
    }
    int64_t columns = hop + 1 < s->hops ? s->hop_nodes[hop + 1] : s->nodes;
    by__nodes_rows_finish(r, s->hop_nodes[hop], columns, s->hop_edges[hop]);
}

/* How many nodes ahead their offsets are asked for, and half as many their edges. */
#define FETCH_AHEAD 16

/* Asks for what the nodes behind `next`, of `end` that are known, have. */
static void fetch_ahead(const by__nodes_set *set, const int32_t *ids, int32_t next, int32_t end)
{
    if (end - next > FETCH_AHEAD) {
        by__nodes_set_fetch_degree(set, ids[next + FETCH_AHEAD]);
        by__nodes_set_fetch_edges(set, ids[next + FETCH_AHEAD / 2]);
    }
}

void by__nodes_sample_fill(const by__nodes_sample *out, const by__nodes_sampling *s,
                           const by__nodes_set *set, const int32_t *targets, int64_t count,
                           const uint32_t key[2], uint64_t index, void *scratch)
{
    const by__nodes_rows *all = &out->hops[s->hops - 1];
    edge_taker t = {.set = set,
                    .sources = all->sources,
                    .weights = out->weights[s->hops - 1],
                    .apart = out->apart,
                    .key = key,
                    .index = index};
    int32_t next = 0;
    by__nodes_met_begin(&t.met, s->nodes, out->ids, scratch);
    for (int64_t i = 0; i < count; i++) {
        add_target(&t.met, targets[i]);
    }
    all->offsets[0] = 0;
    for (int hop = 0; hop < s->hops; hop++) {
        for (int32_t end = t.met.count; next < end; next++) {
            fetch_ahead(set, out->ids, next, end);
            take_edges(&t, out->ids[next], s->fan_outs[hop]);
            all->offsets[next + 1] = t.edges;
        }
        for (int64_t row = next; row < s->hop_nodes[hop]; row++) {
            all->offsets[row + 1] = t.edges;
        }
        copy_rows(out, s, hop, t.edges);
    }
    for (int64_t i = t.met.count; i < s->nodes; i++) {
        out->ids[i] = -1;
    }
}
