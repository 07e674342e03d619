/* Packs of small graphs. What is in a pack is decided when the source is opened: a graph goes into
 * the last pack if it has room, and into a new one otherwise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/nodes/graph_list.h"

/* A pack has at least this many nodes. */
#define LEAST_NODES 256

/* The arrays of a sample, in their order; the last ones if edges have features, or graphs have. */
enum {
    NODES_X,
    NODES_ROOT,
    NODES_DEGREE,
    EDGES_OFFSETS,
    EDGES_SOURCES,
    EDGES_BACK_OFFSETS,
    EDGES_BACK_SOURCES,
    EDGES_BACK_EDGES,
    GRAPHS_OFFSETS,
    GRAPHS_SOURCES,
    GRAPHS_BACK_OFFSETS,
    GRAPHS_BACK_SOURCES,
    GRAPHS_BACK_EDGES,
    GRAPHS_SIZE,
    IDS,
    PLACES,
    PACK_LABELS,
    PACK_TARGETS,
    WEIGHTS,
    EDGES_X,
    EDGES_EACH,
    EDGES_OWN,
    EDGES_TARGETS,
    GRAPHS_X,
    ARRAYS
};

typedef struct pack_source {
    by_source base;
    by_array arrays[ARRAYS];
    const by__nodes_graph_list *list;
    by__nodes_pack_options options;
    uint64_t *begins; /* [samples + 1] first of `ids` in each pack */
    size_t graphs_x;  /* which array has features of graphs */
} pack_source;

static int64_t nodes_of(const by__nodes_graph_list *l, uint64_t id)
{
    return l->begins[id + 1] - l->begins[id];
}

static int64_t edges_of(const by__nodes_graph_list *l, uint64_t id)
{
    return l->set->offsets[l->begins[id + 1]] - l->set->offsets[l->begins[id]];
}

by_status by__nodes_pack_size_fit(by__nodes_pack_size *out, const by__nodes_graph_list *list,
                                  int64_t nodes, by_error *error)
{
    int64_t most_nodes = 1;
    int64_t most_edges = 1;
    for (int64_t i = 0; i < list->graphs; i++) {
        int64_t n = nodes_of(list, (uint64_t)i);
        int64_t e = edges_of(list, (uint64_t)i);
        most_nodes = n > most_nodes ? n : most_nodes;
        most_edges = e > most_edges ? e : most_edges;
    }
    if (nodes > 0 && nodes < most_nodes) {
        return by_error_set(error, BY_ECONFIG,
                            "data.pack_nodes is %lld, but a graph of %s has %lld nodes",
                            (long long)nodes, list->set->name, (long long)most_nodes);
    }
    double mean = (double)list->set->nodes / (double)list->graphs;
    double degree = (double)list->set->edges / (double)list->set->nodes;
    out->nodes = nodes > 0 ? nodes : most_nodes > LEAST_NODES ? most_nodes : LEAST_NODES;
    out->edges = (int64_t)ceil(1.25 * degree * (double)out->nodes);
    out->edges = out->edges > most_edges ? out->edges : most_edges;
    out->graphs = (int64_t)ceil(1.5 * (double)out->nodes / mean);
    if (out->edges >= INT32_MAX || out->nodes >= INT32_MAX) {
        return by_error_set(error, BY_ECONFIG, "data.pack_nodes %lld: the edges overflow",
                            (long long)out->nodes);
    }
    return BY_OK;
}

/* ---- filling ---- */

/* Writes the features of edge `edge` of the set, and what it is in matrices of edges, as edge `at`
 * of a pack that ends in node `target`; edge -1: padding. */
static void fill_edge(const pack_source *s, void *const *rows, int64_t edge, int32_t at,
                      int32_t target)
{
    const by__nodes_set *set = s->list->set;
    size_t features = (size_t)set->edge_features;
    float *x = (float *)rows[EDGES_X] + (size_t)at * features;
    int32_t *each = rows[EDGES_EACH];
    each[at + 1] = each[at] + (edge < 0 ? 0 : 1);
    ((int32_t *)rows[EDGES_OWN])[at] = edge < 0 ? -1 : at;
    ((int32_t *)rows[EDGES_TARGETS])[at] = edge < 0 ? -1 : target;
    if (edge < 0) {
        memset(x, 0, features * sizeof *x);
    } else {
        memcpy(x, set->edge_x + (size_t)edge * features, features * sizeof *x);
    }
}

static bool has_edge_features(const pack_source *s)
{
    return s->list->set->edge_features > 0;
}

/* Writes edges of a graph whose first node gets number `first`, and its first edge number *edge. */
static void fill_edges(const pack_source *s, void *const *rows, uint64_t id, int64_t first,
                       int32_t *edge)
{
    const by__nodes_set *set = s->list->set;
    int32_t *offsets = rows[EDGES_OFFSETS];
    int32_t *sources = rows[EDGES_SOURCES];
    int64_t begin = s->list->begins[id];
    for (int64_t i = 0; i < nodes_of(s->list, id); i++) {
        for (int64_t k = set->offsets[begin + i]; k < set->offsets[begin + i + 1]; k++) {
            if (has_edge_features(s)) {
                fill_edge(s, rows, k, *edge, (int32_t)(first + i));
            }
            sources[(*edge)++] = (int32_t)(first + set->sources[k] - begin);
        }
        int64_t degree = by__nodes_set_degree(set, begin + i);
        offsets[first + i + 1] = *edge;
        ((float *)rows[NODES_ROOT])[first + i] = by__nodes_inverse_root((double)degree);
        ((float *)rows[NODES_DEGREE])[first + i] = by__nodes_inverse_degree((double)degree);
    }
}

/* Writes the entries of a matrix in rows in the order of their columns. */
static void transpose(const int32_t *offsets, const int32_t *sources, int64_t rows, int32_t entries,
                      int64_t columns, int32_t *back_offsets, int32_t *back_sources,
                      int32_t *back_edges)
{
    memset(back_offsets, 0, (size_t)(columns + 1) * sizeof *back_offsets);
    for (int32_t k = 0; k < entries; k++) {
        back_offsets[sources[k] + 1]++;
    }
    for (int64_t i = 0; i < columns; i++) {
        back_offsets[i + 1] += back_offsets[i];
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int32_t k = offsets[row]; k < offsets[row + 1]; k++) {
            int32_t at = back_offsets[sources[k]]++;
            back_sources[at] = (int32_t)row;
            back_edges[at] = k;
        }
    }
    memmove(back_offsets + 1, back_offsets, (size_t)columns * sizeof *back_offsets);
    back_offsets[0] = 0;
}

static void fill_target(const pack_source *s, void *const *rows, int64_t g, uint64_t place)
{
    uint64_t id = s->options.ids[place];
    double value = s->list->values == NULL ? (double)NAN : s->list->values[id];
    bool has = !isnan(value);
    bool is_class = has && value >= 0.0 && value < (double)INT32_MAX && value == floor(value);
    ((int32_t *)rows[IDS])[g] = (int32_t)id;
    ((int32_t *)rows[PLACES])[g] = (int32_t)place;
    ((int32_t *)rows[PACK_LABELS])[g] = is_class ? (int32_t)value : -1;
    ((float *)rows[PACK_TARGETS])[g] =
        has ? (float)((value - s->options.mean) / s->options.deviation) : 0.0f;
    ((float *)rows[WEIGHTS])[g] = has ? 1.0f : 0.0f;
}

/* The features of a graph; id -1: padding. */
static void fill_graph(const pack_source *s, void *const *rows, int64_t g, int64_t id)
{
    size_t features = (size_t)s->list->features;
    if (features == 0) {
        return;
    }
    float *x = (float *)rows[s->graphs_x] + (size_t)g * features;
    if (id < 0) {
        memset(x, 0, features * sizeof *x);
    } else {
        memcpy(x, s->list->x + (size_t)id * features, features * sizeof *x);
    }
}

/* Behind what there is. */
static void fill_padding(const pack_source *s, void *const *rows, int64_t nodes, int32_t edges,
                         int64_t graphs)
{
    const by__nodes_pack_size *size = &s->options.size;
    for (int64_t i = nodes; i < size->nodes; i++) {
        ((int32_t *)rows[EDGES_OFFSETS])[i + 1] = edges;
        ((int32_t *)rows[GRAPHS_SOURCES])[i] = -1;
        ((int32_t *)rows[GRAPHS_BACK_SOURCES])[i] = -1;
        ((int32_t *)rows[GRAPHS_BACK_EDGES])[i] = -1;
        ((float *)rows[NODES_ROOT])[i] = 0.0f;
        ((float *)rows[NODES_DEGREE])[i] = 0.0f;
    }
    for (int64_t k = edges; k < size->edges; k++) {
        ((int32_t *)rows[EDGES_SOURCES])[k] = -1;
        ((int32_t *)rows[EDGES_BACK_SOURCES])[k] = -1;
        ((int32_t *)rows[EDGES_BACK_EDGES])[k] = -1;
        if (has_edge_features(s)) {
            fill_edge(s, rows, -1, (int32_t)k, -1);
        }
    }
    for (int64_t g = graphs; g < size->graphs; g++) {
        ((int32_t *)rows[GRAPHS_OFFSETS])[g + 1] = (int32_t)nodes;
        ((float *)rows[GRAPHS_SIZE])[g] = 0.0f;
        fill_graph(s, rows, g, -1);
        ((int32_t *)rows[IDS])[g] = -1;
        ((int32_t *)rows[PLACES])[g] = -1;
        ((int32_t *)rows[PACK_LABELS])[g] = -1;
        ((float *)rows[PACK_TARGETS])[g] = 0.0f;
        ((float *)rows[WEIGHTS])[g] = 0.0f;
    }
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const pack_source *s = (const pack_source *)source;
    const by__nodes_graph_list *l = s->list;
    bool real = sample->place < source->samples;
    uint64_t begin = real ? s->begins[sample->place] : 0;
    uint64_t end = real ? s->begins[sample->place + 1] : 0;
    int64_t features = l->set->features;
    float *x = rows[NODES_X];
    int64_t node = 0;
    int32_t edge = 0;
    BY_UNUSED(error);
    memset(x, 0, (size_t)(s->options.size.nodes * features) * sizeof *x);
    ((int32_t *)rows[EDGES_OFFSETS])[0] = 0;
    ((int32_t *)rows[GRAPHS_OFFSETS])[0] = 0;
    if (has_edge_features(s)) {
        ((int32_t *)rows[EDGES_EACH])[0] = 0;
    }
    for (uint64_t i = begin; i < end; i++) {
        uint64_t id = s->options.ids[i];
        int64_t count = nodes_of(l, id);
        int64_t g = (int64_t)(i - begin);
        memcpy(x + node * features, l->set->x + l->begins[id] * features,
               (size_t)(count * features) * sizeof *x);
        fill_edges(s, rows, id, node, &edge);
        for (int64_t k = 0; k < count; k++) {
            ((int32_t *)rows[GRAPHS_SOURCES])[node + k] = (int32_t)(node + k);
        }
        node += count;
        ((int32_t *)rows[GRAPHS_OFFSETS])[g + 1] = (int32_t)node;
        ((float *)rows[GRAPHS_SIZE])[g] = (float)(1.0 / (double)count);
        fill_target(s, rows, g, i);
        fill_graph(s, rows, g, (int64_t)id);
    }
    fill_padding(s, rows, node, edge, (int64_t)(end - begin));
    transpose(rows[EDGES_OFFSETS], rows[EDGES_SOURCES], node, edge, s->options.size.nodes,
              rows[EDGES_BACK_OFFSETS], rows[EDGES_BACK_SOURCES], rows[EDGES_BACK_EDGES]);
    transpose(rows[GRAPHS_OFFSETS], rows[GRAPHS_SOURCES], (int64_t)(end - begin), (int32_t)node,
              s->options.size.nodes, rows[GRAPHS_BACK_OFFSETS], rows[GRAPHS_BACK_SOURCES],
              rows[GRAPHS_BACK_EDGES]);
    return BY_OK;
}

static by_status count_targets(const by_source *source, const by_source_sample *sample,
                               uint64_t *targets, by_error *error)
{
    const pack_source *s = (const pack_source *)source;
    bool real = sample->place < source->samples;
    BY_UNUSED(error);
    *targets = real ? s->begins[sample->place + 1] - s->begins[sample->place] : 0;
    return BY_OK;
}

/* ---- opening ---- */

static void close_source(by_source *source)
{
    pack_source *s = (pack_source *)source;
    by__nodes_graph_list *list = (by__nodes_graph_list *)(uintptr_t)s->list;
    if (s->options.owns) {
        by__nodes_graph_list_close(&list);
    }
    free(s->begins);
    free(s);
}

/* Returns the number of packs. */
static uint64_t pack(pack_source *s)
{
    const by__nodes_pack_size *size = &s->options.size;
    uint64_t packs = 0;
    int64_t nodes = 0;
    int64_t edges = 0;
    int64_t graphs = 0;
    for (uint64_t i = 0; i < s->options.count; i++) {
        int64_t n = nodes_of(s->list, s->options.ids[i]);
        int64_t e = edges_of(s->list, s->options.ids[i]);
        if (packs == 0 || nodes + n > size->nodes || edges + e > size->edges ||
            graphs == size->graphs) {
            s->begins[packs++] = i;
            nodes = edges = graphs = 0;
        }
        nodes += n;
        edges += e;
        graphs++;
    }
    s->begins[packs] = s->options.count;
    return packs;
}

/* Returns how many there are. */
static size_t list_arrays(pack_source *s)
{
    const by__nodes_pack_size *size = &s->options.size;
    const by__nodes_set *set = s->list->set;
    by_shape rows = BY_SHAPE(size->nodes + 1);
    by_shape nodes = BY_SHAPE(size->nodes);
    by_shape edges = BY_SHAPE(size->edges);
    by_shape graphs = BY_SHAPE(size->graphs);
    by_shape column = BY_SHAPE(size->nodes, 1);
    const by_array arrays[ARRAYS] = {
        [NODES_X] = {"nodes.x", BY_F32, BY_SHAPE(size->nodes, set->features), NULL},
        [NODES_ROOT] = {"nodes.inverse_root", BY_F32, column, NULL},
        [NODES_DEGREE] = {"nodes.inverse_degree", BY_F32, column, NULL},
        [EDGES_OFFSETS] = {"edges.offsets", BY_I32, rows, NULL},
        [EDGES_SOURCES] = {"edges.sources", BY_I32, edges, NULL},
        [EDGES_BACK_OFFSETS] = {"edges.back_offsets", BY_I32, rows, NULL},
        [EDGES_BACK_SOURCES] = {"edges.back_sources", BY_I32, edges, NULL},
        [EDGES_BACK_EDGES] = {"edges.back_edges", BY_I32, edges, NULL},
        [GRAPHS_OFFSETS] = {"graphs.offsets", BY_I32, BY_SHAPE(size->graphs + 1), NULL},
        [GRAPHS_SOURCES] = {"graphs.sources", BY_I32, nodes, NULL},
        [GRAPHS_BACK_OFFSETS] = {"graphs.back_offsets", BY_I32, rows, NULL},
        [GRAPHS_BACK_SOURCES] = {"graphs.back_sources", BY_I32, nodes, NULL},
        [GRAPHS_BACK_EDGES] = {"graphs.back_edges", BY_I32, nodes, NULL},
        [GRAPHS_SIZE] = {"graphs.inverse_size", BY_F32, BY_SHAPE(size->graphs, 1), NULL},
        [IDS] = {"ids", BY_I32, graphs, NULL},
        [PLACES] = {"place", BY_I32, graphs, NULL},
        [PACK_LABELS] = {"labels", BY_I32, graphs, NULL},
        [PACK_TARGETS] = {"targets", BY_F32, graphs, NULL},
        [WEIGHTS] = {"weight", BY_F32, graphs, NULL},
        [EDGES_X] = {"edges.x", BY_F32, BY_SHAPE(size->edges, set->edge_features), NULL},
        [EDGES_EACH] = {"edges.each", BY_I32, BY_SHAPE(size->edges + 1), NULL},
        [EDGES_OWN] = {"edges.own", BY_I32, edges, NULL},
        [EDGES_TARGETS] = {"edges.targets", BY_I32, edges, NULL},
        [GRAPHS_X] = {"graphs.x", BY_F32, BY_SHAPE(size->graphs, s->list->features), NULL}};
    memcpy(s->arrays, arrays, sizeof arrays);
    s->graphs_x = has_edge_features(s) ? GRAPHS_X : EDGES_X;
    s->arrays[s->graphs_x] = arrays[GRAPHS_X];
    return s->graphs_x + (s->list->features > 0 ? 1 : 0);
}

by_status by__nodes_pack_source_open(by_source **out, const by__nodes_graph_list *list,
                                     const by__nodes_pack_options *options, by_error *error)
{
    pack_source *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of graphs", error));
    s->list = list;
    s->options = *options;
    by_status status = by__alloc((void **)&s->begins, (size_t)options->count + 1, sizeof *s->begins,
                                 "a source of graphs", error);
    if (status != BY_OK) {
        free(s);
        return status;
    }
    s->base = (by_source){.name = list->set->name,
                          .arrays = s->arrays,
                          .array_count = list_arrays(s),
                          .shuffle = options->shuffle,
                          .samples = pack(s),
                          .sample_targets = (uint64_t)options->size.graphs,
                          .targets = options->count,
                          .fill = fill,
                          .count = count_targets,
                          .close = close_source};
    *out = &s->base;
    return BY_OK;
}
