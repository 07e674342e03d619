#include "data/nodes/node_source.h"

#include <stdlib.h>

#include "data/loader/order.h"

/* Arrays of a sample: ids, labels, weight, features, three scales, and rows of edges. */
enum { FIRST_SCALE = 4, FIRST_ROWS = 7, PER_ROWS = 5 };
#define ARRAYS (FIRST_ROWS + PER_ROWS * BY__NODES_HOPS)

typedef struct node_source {
    by_source base;
    by_array arrays[ARRAYS];
    char names[ARRAYS][32];
    const by__nodes_set *set;
    const uint64_t *ids;
    uint64_t count;
    by__nodes_sampling sampling;
    bool sampled; /* false: the whole graph is read */
} node_source;

/* ---- targets ---- */

/* Targets of a sample: those at `first` on of an order. */
static uint64_t targets_of(const node_source *s, const by_source_sample *sample, uint64_t *first)
{
    uint64_t at = s->base.shuffle ? sample->index % s->base.samples : sample->place;
    uint64_t each = (uint64_t)s->sampling.targets;
    *first = at * each;
    return *first >= s->count ? 0 : s->count - *first < each ? s->count - *first : each;
}

static by_status count_targets(const by_source *source, const by_source_sample *sample,
                               uint64_t *targets, by_error *error)
{
    uint64_t first;
    BY_UNUSED(error);
    *targets = targets_of((const node_source *)source, sample, &first);
    return BY_OK;
}

/* Writes ids, labels and weights; the order of an epoch is that of samples of one target. */
static int64_t fill_targets(const node_source *s, const by_source_sample *sample, void *const *rows)
{
    int32_t *ids = rows[0];
    int32_t *labels = rows[1];
    float *weights = rows[2];
    uint64_t first;
    uint64_t count = targets_of(s, sample, &first);
    by__loader_order order;
    if (s->base.shuffle) {
        by__loader_order_init(&order, s->count, sample->seed, sample->epoch);
    }
    for (uint64_t i = 0; i < (uint64_t)s->sampling.targets; i++) {
        bool real = i < count;
        uint64_t place = !real             ? 0
                         : s->base.shuffle ? by__loader_order_at(&order, first + i)
                                           : first + i;
        ids[i] = real ? (int32_t)s->ids[place] : s->sampled ? -1 : 0;
        labels[i] = real && s->set->labels != NULL ? s->set->labels[ids[i]] : -1;
        weights[i] = real ? 1.0f : 0.0f;
    }
    return (int64_t)count;
}

/* ---- surroundings ---- */

/* Scales of node i, which has `degree` edges in the set, of which `taken` are in the sample. Sums
 * over these stand for sums over all, so they are larger by as much as edges are fewer. */
static void fill_scales(void *const *rows, int64_t i, int64_t degree, int64_t taken)
{
    float root = by__nodes_inverse_root(degree);
    float more = taken == degree || taken == 0 ? 1.0f : (float)degree / (float)taken;
    ((float *)rows[FIRST_SCALE])[i] = root;
    ((float *)rows[FIRST_SCALE + 1])[i] = root * more;
    ((float *)rows[FIRST_SCALE + 2])[i] = by__nodes_inverse_degree(taken);
}

static void fill_features(const node_source *s, const int32_t *ids, const by__nodes_rows *edges,
                          int64_t edge_rows, void *const *rows)
{
    float *x = rows[3];
    size_t features = (size_t)s->set->features;
    for (int64_t i = 0; i < s->sampling.nodes; i++) {
        int64_t degree = ids[i] < 0 ? 0 : by__nodes_set_degree(s->set, ids[i]);
        fill_scales(rows, i, degree, i < edge_rows ? edges->offsets[i + 1] - edges->offsets[i] : 0);
        if (ids[i] >= 0) {
            by__nodes_set_row(s->set, ids[i], x + (size_t)i * features);
            continue;
        }
        for (size_t k = 0; k < features; k++) {
            x[(size_t)i * features + k] = 0.0f;
        }
    }
}

static by__nodes_rows rows_at(void *const *rows, size_t i)
{
    void *const *at = rows + i;
    return (by__nodes_rows){at[0], at[1], at[2], at[3], at[4]};
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const node_source *s = (const node_source *)source;
    int64_t count = fill_targets(s, sample, rows);
    uint32_t key[2];
    int32_t *ids = (int32_t *)sample->scratch;
    by__nodes_sample out = {.ids = ids};
    int last = s->sampling.hops - 1;
    BY_UNUSED(error);
    if (!s->sampled) {
        return BY_OK;
    }
    for (int hop = 0; hop <= last; hop++) {
        out.hops[hop] = rows_at(rows, FIRST_ROWS + PER_ROWS * (size_t)hop);
    }
    by__philox_key(key, sample->seed, 0x6e6f6465u); /* "node" in ASCII */
    by__nodes_sample_fill(&out, &s->sampling, s->set, rows[0], count, key, sample->index,
                          ids + s->sampling.nodes);
    fill_features(s, ids, &out.hops[last], s->sampling.hop_nodes[last], rows);
    return BY_OK;
}

/* ---- opening ---- */

static void close_source(by_source *source)
{
    free(source);
}

static void add_array(node_source *s, const char *name, by_dtype dtype, by_shape shape)
{
    size_t i = s->base.array_count++;
    (void)snprintf(s->names[i], sizeof s->names[i], "%s", name);
    s->arrays[i] = (by_array){s->names[i], dtype, shape, NULL};
}

static void add_rows(node_source *s, int hop, int64_t rows, int64_t columns, int64_t edges)
{
    static const char *const parts[PER_ROWS] = {"offsets", "sources", "back_offsets",
                                                "back_sources", "back_edges"};
    const int64_t sizes[PER_ROWS] = {rows + 1, edges, columns + 1, edges, edges};
    for (size_t i = 0; i < PER_ROWS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "edges.%d.%s", hop, parts[i]);
        add_array(s, name, BY_I32, BY_SHAPE(sizes[i]));
    }
}

static void add_arrays(node_source *s)
{
    const by__nodes_sampling *p = &s->sampling;
    by_shape targets = s->sampled || p->targets > 1 ? BY_SHAPE(p->targets) : (by_shape){0};
    add_array(s, "ids", BY_I32, targets);
    add_array(s, "labels", BY_I32, targets);
    add_array(s, "weight", BY_F32, targets);
    if (!s->sampled) {
        return;
    }
    add_array(s, "nodes.x", BY_F32, BY_SHAPE(p->nodes, s->set->features));
    add_array(s, "nodes.inverse_root", BY_F32, BY_SHAPE(p->nodes, 1));
    add_array(s, "nodes.inverse_root_into", BY_F32, BY_SHAPE(p->nodes, 1));
    add_array(s, "nodes.inverse_degree", BY_F32, BY_SHAPE(p->nodes, 1));
    for (int hop = 0; hop < p->hops; hop++) {
        add_rows(s, hop, p->hop_nodes[hop], hop + 1 < p->hops ? p->hop_nodes[hop + 1] : p->nodes,
                 p->hop_edges[hop]);
    }
}

by_status by__nodes_source_open(by_source **out, const by__nodes_set *set, const uint64_t *ids,
                                uint64_t count, bool shuffle, const by__nodes_sampling *sampling,
                                by_error *error)
{
    node_source *s;
    uint64_t each = (uint64_t)sampling->targets;
    if (shuffle && each > count) {
        return by_error_set(error, BY_ECONFIG,
                            "data.sample_targets %llu are more than the %llu nodes to train on",
                            (unsigned long long)each, (unsigned long long)count);
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of nodes", error));
    s->set = set;
    s->ids = ids;
    s->count = count;
    s->sampling = *sampling;
    s->sampled = sampling->hops > 0 && !sampling->covers;
    s->base = (by_source){.name = set->name,
                          .arrays = s->arrays,
                          .shuffle = shuffle,
                          .samples = (count + each - 1) / each,
                          .sample_targets = each,
                          .targets = count,
                          .fill = fill,
                          .count = count_targets,
                          .scratch = s->sampled ? by__nodes_sample_scratch(sampling) +
                                                      (size_t)sampling->nodes * sizeof(int32_t)
                                                : 0,
                          .close = close_source};
    add_arrays(s);
    *out = &s->base;
    return BY_OK;
}
