#include "data/nodes/subgraph/subgraph.h"

#include <stdlib.h>

#include "base/threads.h"
#include "data/loader/order.h"

/* Samples that tell the room for edges are a part of an epoch, within these bounds. */
#define LEAST_SAMPLES 64
#define MOST_SAMPLES  1024
/* Room for edges beyond the most of these samples. */
#define MARGIN 1.25
/* Most edges of one sample, and the largest factor of an edge. */
#define SAMPLE_LIMIT ((int64_t)1 << 24)
#define MOST_FACTOR  1e4f

static const by__nodes_strategy *const strategies[] = {&by__nodes_strategy_walks,
                                                       &by__nodes_strategy_clusters};

const by__nodes_strategy *by__nodes_strategy_find(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(strategies); i++) {
        if (strcmp(strategies[i]->name, name) == 0) {
            return strategies[i];
        }
    }
    return NULL;
}

/* ---- how often nodes and edges are in a sample ---- */

typedef struct estimation {
    const by__nodes_subgraphs *s;
    uint64_t samples;
    size_t threads;
    uint32_t *of_node; /* NULL: only the room is wanted */
    uint32_t *of_edge;
    int64_t *most;   /* [threads] edges of a sample */
    uint64_t *nodes; /* [threads] of all samples together */
} estimation;

/* Counts the edges between the nodes of a sample. */
static int64_t count_edges(const estimation *e, const by__nodes_met *met)
{
    const by__nodes_set *set = e->s->set;
    int64_t edges = 0;
    for (int32_t i = 0; i < met->count; i++) {
        int32_t id = met->ids[i];
        for (int64_t k = set->offsets[id]; k < set->offsets[id + 1]; k++) {
            if (by__nodes_met_find(met, set->sources[k]) < 0) {
                continue;
            }
            edges++;
            if (e->of_edge != NULL) {
                (void)__atomic_fetch_add(&e->of_edge[k], 1, __ATOMIC_RELAXED);
            }
        }
        if (e->of_node != NULL) {
            (void)__atomic_fetch_add(&e->of_node[id], 1, __ATOMIC_RELAXED);
        }
    }
    return edges;
}

/* Draws each sample whose number divided by the threads leaves `thread`: sums and the largest
 * number do not depend on how many threads there are. */
static by_status estimate_part(void *context, size_t thread, by_error *error)
{
    const estimation *e = context;
    const by__nodes_subgraphs *s = e->s;
    uint64_t epoch = s->strategy->samples(s, s->count);
    by_source_sample sample = {.seed = by__loader_order_seed(s->options.seed, 1)};
    const by__nodes_draw draw = {s->ids, s->count, true, &sample};
    BY_TRY(by__alloc(&sample.scratch, by__nodes_subgraph_scratch(s), 1, "samples", error));
    for (uint64_t i = thread; i < e->samples; i += e->threads) {
        by__nodes_met met;
        sample.index = i;
        sample.place = i % epoch;
        sample.epoch = i / epoch;
        (void)by__nodes_subgraph_draw(&met, s, &draw);
        int64_t edges = count_edges(e, &met);
        e->most[thread] = edges > e->most[thread] ? edges : e->most[thread];
        e->nodes[thread] += (uint64_t)met.count;
    }
    free(sample.scratch);
    return BY_OK;
}

/* Draws samples. *most: edges of the largest; *mean: nodes of one. */
static by_status estimate(estimation *e, int64_t *most, double *mean, by_error *error)
{
    uint64_t nodes = 0;
    e->threads = (size_t)by__thread_count(0);
    BY_TRY(by__alloc((void **)&e->most, e->threads, sizeof *e->most, "samples", error));
    by_status status =
        by__alloc((void **)&e->nodes, e->threads, sizeof *e->nodes, "samples", error);
    if (status == BY_OK) {
        status = by__threads_run(e->threads, estimate_part, e, error);
    }
    *most = 1;
    for (size_t i = 0; i < e->threads && status == BY_OK; i++) {
        *most = e->most[i] > *most ? e->most[i] : *most;
        nodes += e->nodes[i];
    }
    *mean = (double)nodes / (double)e->samples;
    free(e->most);
    free(e->nodes);
    return status;
}

static uint32_t at_least_one(uint32_t count)
{
    return count > 0 ? count : 1;
}

/* The factors by which sums and losses of samples are right on average: what no sample had counts
 * as if one had it. */
static void set_factors(by__nodes_subgraphs *s, const estimation *e)
{
    const by__nodes_set *set = s->set;
    double scale = (double)e->samples / (double)s->count;
    for (int64_t v = 0; v < set->nodes; v++) {
        uint32_t of_node = at_least_one(e->of_node[v]);
        s->node_factors[v] = (float)(scale / (double)of_node);
        for (int64_t k = set->offsets[v]; k < set->offsets[v + 1]; k++) {
            float factor = (float)of_node / (float)at_least_one(e->of_edge[k]);
            s->edge_factors[k] = factor < MOST_FACTOR ? factor : MOST_FACTOR;
        }
    }
}

static by_status make_factors(by__nodes_subgraphs *s, double mean, int64_t *most, by_error *error)
{
    size_t nodes = (size_t)s->set->nodes;
    size_t edges = (size_t)s->set->edges;
    uint64_t epoch = s->strategy->samples(s, s->count);
    double wanted = (double)s->options.coverage * (double)nodes / mean + 1.0;
    estimation e = {.s = s, .samples = wanted < 1e9 ? (uint64_t)wanted : 1000000000};
    e.samples = (e.samples + epoch - 1) / epoch * epoch; /* each node is a root as often */
    BY_TRY(by__alloc((void **)&s->node_factors, nodes, sizeof(float), "samples", error));
    BY_TRY(by__alloc((void **)&s->edge_factors, edges, sizeof(float), "samples", error));
    s->bytes += (uint64_t)(nodes + edges) * sizeof(float);
    by_status status = by__alloc((void **)&e.of_node, nodes, sizeof *e.of_node, "samples", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&e.of_edge, edges, sizeof *e.of_edge, "samples", error);
    }
    if (status == BY_OK) {
        status = estimate(&e, most, &mean, error);
    }
    if (status == BY_OK) {
        set_factors(s, &e);
    }
    free(e.of_node);
    free(e.of_edge);
    return status;
}

static by_status fit_edges(by__nodes_subgraphs *s, by_error *error)
{
    uint64_t epoch = s->strategy->samples(s, s->count);
    estimation e = {.s = s, .samples = epoch};
    double mean;
    int64_t most;
    e.samples = e.samples > LEAST_SAMPLES ? e.samples : LEAST_SAMPLES;
    e.samples = e.samples < MOST_SAMPLES ? e.samples : MOST_SAMPLES;
    BY_TRY(estimate(&e, &most, &mean, error));
    if (s->strategy->estimates && s->options.coverage > 0) {
        int64_t found = most;
        BY_TRY(make_factors(s, mean, &found, error));
        most = found > most ? found : most;
    }
    double room = MARGIN * (double)most;
    s->edges = room < (double)s->set->edges ? (int64_t)room : s->set->edges;
    if (s->edges > SAMPLE_LIMIT || s->nodes > SAMPLE_LIMIT) {
        return by_error_set(error, BY_ECONFIG,
                            "data.sampling %s: a sample would have room for %lld nodes and %lld "
                            "edges; at most %lld: take fewer targets or clusters for a sample",
                            s->strategy->name, (long long)s->nodes, (long long)s->edges,
                            (long long)SAMPLE_LIMIT);
    }
    return BY_OK;
}

/* ---- opening ---- */

void by__nodes_subgraphs_close(by__nodes_subgraphs **subgraphs)
{
    by__nodes_subgraphs *s = *subgraphs;
    if (s != NULL) {
        free(s->node_factors);
        free(s->edge_factors);
        free(s->members);
        free(s->begins);
        free(s);
        *subgraphs = NULL;
    }
}

by_status by__nodes_subgraphs_open(by__nodes_subgraphs **out, const by__nodes_set *set,
                                   const uint64_t *ids, uint64_t count,
                                   const by__nodes_subgraph_options *options, by_error *error)
{
    by__nodes_subgraphs *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "samples", error));
    s->set = set;
    s->strategy = by__nodes_strategy_find(options->kind);
    s->options = *options;
    s->ids = ids;
    s->count = count;
    by_status status = s->strategy->prepare(s, error);
    if (status == BY_OK) {
        status = fit_edges(s, error);
    }
    if (status != BY_OK) {
        by__nodes_subgraphs_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}
