#include <stdlib.h>

#include "data/nodes/subgraph/subgraph.h"

enum {
    IDS,
    LABELS,
    WEIGHTS,
    NODES_X,
    NODES_ROOT,
    NODES_ROOT_INTO,
    NODES_DEGREE,
    EDGES_OFFSETS,
    EDGES_SOURCES,
    EDGES_BACK_OFFSETS,
    EDGES_BACK_SOURCES,
    EDGES_BACK_EDGES,
    EDGES_WEIGHTS, /* if edges have factors or weights */
    ARRAYS
};

typedef struct subgraph_source {
    by_source base;
    by_array arrays[ARRAYS];
    const by__nodes_subgraphs *subgraphs;
    const uint64_t *ids;
    uint64_t count;
    uint8_t *wanted; /* [nodes of the set] 1: it is one of `ids` */
} subgraph_source;

/* Draws a sample, unless it is padding. Returns its targets of a pass. */
static int32_t draw_sample(const subgraph_source *s, const by_source_sample *sample,
                           by__nodes_met *met)
{
    const by__nodes_draw draw = {s->ids, s->count, s->base.shuffle, sample};
    return by__nodes_subgraph_draw(met, s->subgraphs, &draw);
}

/* Whether node i of a sample is a target: of a pass, each is once, where it was drawn itself. */
static bool is_target(const subgraph_source *s, const by__nodes_met *met, int32_t i, int32_t first)
{
    int32_t id = met->ids[i];
    const by__nodes_set *set = s->subgraphs->set;
    return s->wanted[id] != 0 && (s->base.shuffle || i < first) && set->labels != NULL &&
           set->labels[id] >= 0;
}

static by_status count_targets(const by_source *source, const by_source_sample *sample,
                               uint64_t *targets, by_error *error)
{
    const subgraph_source *s = (const subgraph_source *)source;
    by__nodes_met met;
    int32_t first = draw_sample(s, sample, &met);
    BY_UNUSED(error);
    *targets = 0;
    for (int32_t i = 0; i < met.count; i++) {
        *targets += is_target(s, &met, i, first) ? 1 : 0;
    }
    return BY_OK;
}

/* Factors of nodes are such that a sample counts as one. */
static by_status weigh(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error)
{
    BY_UNUSED(source);
    BY_UNUSED(sample);
    BY_UNUSED(error);
    *weight = 1.0;
    return BY_OK;
}

/* ---- filling ---- */

/* Writes the weights of edges, times their factors. */
static void fill_weights(const by__nodes_subgraphs *p, const int64_t *places, int32_t edges,
                         float *weights)
{
    for (int32_t k = 0; k < edges; k++) {
        float factor = p->edge_factors == NULL ? 1.0f : p->edge_factors[places[k]];
        weights[k] = factor * by__nodes_set_weight(p->set, places[k]);
    }
    for (int64_t k = edges; k < p->edges; k++) {
        weights[k] = 0.0f;
    }
}

/* The degree of node i of a sample. With estimates, sums over its edges stand for all. */
static double degree_of(const by__nodes_subgraphs *p, int32_t id, int64_t i, void *const *rows)
{
    const int32_t *offsets = rows[EDGES_OFFSETS];
    double sum = 0.0;
    if (p->edge_factors != NULL) {
        return by__nodes_set_weights(p->set, id);
    }
    if (p->set->weights == NULL) {
        return (double)(offsets[i + 1] - offsets[i]);
    }
    for (int32_t k = offsets[i]; k < offsets[i + 1]; k++) {
        sum += (double)((const float *)rows[EDGES_WEIGHTS])[k];
    }
    return sum;
}

static void fill_targets(const subgraph_source *s, const by__nodes_met *met, int32_t first,
                         void *const *rows)
{
    const by__nodes_subgraphs *p = s->subgraphs;
    for (int32_t i = 0; i < (int32_t)p->nodes; i++) {
        bool real = i < met->count;
        bool target = real && is_target(s, met, i, first);
        int32_t id = real ? met->ids[i] : -1;
        bool weighted = target && s->base.shuffle && p->node_factors != NULL;
        ((int32_t *)rows[IDS])[i] = id;
        ((int32_t *)rows[LABELS])[i] = target ? p->set->labels[id] : -1;
        ((float *)rows[WEIGHTS])[i] = weighted ? p->node_factors[id] : target ? 1.0f : 0.0f;
    }
}

static void fill_nodes(const by__nodes_subgraphs *p, const by__nodes_met *met, void *const *rows)
{
    float *x = rows[NODES_X];
    size_t features = (size_t)p->set->features;
    for (int64_t i = 0; i < p->nodes; i++) {
        double degree = 0.0;
        if (i < met->count) {
            degree = degree_of(p, met->ids[i], i, rows);
            if (!p->set->partitioned) { /* "ids" are all nodes */
                by__nodes_set_row(p->set, met->ids[i], x + (size_t)i * features);
            }
        } else {
            memset(x + (size_t)i * features, 0, features * sizeof *x);
        }
        ((float *)rows[NODES_ROOT])[i] = by__nodes_inverse_root(degree);
        ((float *)rows[NODES_ROOT_INTO])[i] = by__nodes_inverse_root(degree);
        ((float *)rows[NODES_DEGREE])[i] = by__nodes_inverse_degree(degree);
    }
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const subgraph_source *s = (const subgraph_source *)source;
    const by__nodes_subgraphs *p = s->subgraphs;
    const by__nodes_rows edges = {rows[EDGES_OFFSETS], rows[EDGES_SOURCES],
                                  rows[EDGES_BACK_OFFSETS], rows[EDGES_BACK_SOURCES],
                                  rows[EDGES_BACK_EDGES]};
    by__nodes_met met;
    int32_t first = draw_sample(s, sample, &met);
    int64_t *places = NULL;
    BY_UNUSED(error);
    if (by__nodes_subgraphs_weigh(p)) {
        places = (int64_t *)((char *)sample->scratch + by__nodes_subgraph_scratch(p));
    }
    (void)by__nodes_subgraph_edges(&edges, places, p, &met);
    if (places != NULL) {
        fill_weights(p, places, edges.offsets[p->nodes], rows[EDGES_WEIGHTS]);
    }
    fill_targets(s, &met, first, rows);
    fill_nodes(p, &met, rows);
    return BY_OK;
}

/* ---- opening ---- */

static void close_source(by_source *source)
{
    free(((subgraph_source *)source)->wanted);
    free(source);
}

static void list_arrays(by_array out[ARRAYS], const by__nodes_subgraphs *s)
{
    by_shape nodes = BY_SHAPE(s->nodes);
    by_shape rows = BY_SHAPE(s->nodes + 1);
    by_shape edges = BY_SHAPE(s->edges);
    by_shape column = BY_SHAPE(s->nodes, 1);
    const by_array arrays[ARRAYS] = {
        [IDS] = {"ids", BY_I32, nodes, NULL},
        [LABELS] = {"labels", BY_I32, nodes, NULL},
        [WEIGHTS] = {"weight", BY_F32, nodes, NULL},
        [NODES_X] = {"nodes.x", BY_F32, BY_SHAPE(s->nodes, s->set->features), NULL},
        [NODES_ROOT] = {"nodes.inverse_root", BY_F32, column, NULL},
        [NODES_ROOT_INTO] = {"nodes.inverse_root_into", BY_F32, column, NULL},
        [NODES_DEGREE] = {"nodes.inverse_degree", BY_F32, column, NULL},
        [EDGES_OFFSETS] = {"edges.0.offsets", BY_I32, rows, NULL},
        [EDGES_SOURCES] = {"edges.0.sources", BY_I32, edges, NULL},
        [EDGES_BACK_OFFSETS] = {"edges.0.back_offsets", BY_I32, rows, NULL},
        [EDGES_BACK_SOURCES] = {"edges.0.back_sources", BY_I32, edges, NULL},
        [EDGES_BACK_EDGES] = {"edges.0.back_edges", BY_I32, edges, NULL},
        [EDGES_WEIGHTS] = {"edges.0.weights", BY_F32, BY_SHAPE(s->edges, 1), NULL}};
    memcpy(out, arrays, sizeof arrays);
}

by_status by__nodes_subgraph_source_open(by_source **out, const by__nodes_subgraphs *subgraphs,
                                         const uint64_t *ids, uint64_t count, bool shuffle,
                                         by_error *error)
{
    subgraph_source *s;
    bool weighs = by__nodes_subgraphs_weigh(subgraphs);
    size_t scratch = by__nodes_subgraph_scratch(subgraphs);
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of nodes", error));
    by_status status = by__alloc((void **)&s->wanted, (size_t)subgraphs->set->nodes, 1,
                                 "a source of nodes", error);
    if (status != BY_OK) {
        free(s);
        return status;
    }
    for (uint64_t i = 0; i < count; i++) {
        s->wanted[ids[i]] = 1;
    }
    s->subgraphs = subgraphs;
    s->ids = ids;
    s->count = count;
    list_arrays(s->arrays, subgraphs);
    s->base = (by_source){.name = subgraphs->set->name,
                          .arrays = s->arrays,
                          .array_count = weighs ? ARRAYS : EDGES_WEIGHTS,
                          .shuffle = shuffle,
                          .samples = subgraphs->strategy->samples(subgraphs, count),
                          .sample_targets = (uint64_t)subgraphs->nodes,
                          .targets = count,
                          .fill = fill,
                          .count = count_targets,
                          .weigh = shuffle && subgraphs->node_factors != NULL ? weigh : NULL,
                          .scratch = scratch + (weighs ? (size_t)subgraphs->edges * 8 : 0),
                          .close = close_source};
    *out = &s->base;
    return BY_OK;
}
