#include "data/nodes/node_around.h"

#include <stdio.h>
#include <string.h>

/* Features, three scales, five arrays of each hop, then its weights, and the numbers of nodes. */
enum { SCALES = 1, ROWS = 4, PER_ROWS = 5 };

typedef struct array_list {
    by_array *arrays;
    char (*names)[32];
    size_t count;
} array_list;

static void add_array(array_list *l, const char *name, by_dtype dtype, by_shape shape)
{
    (void)snprintf(l->names[l->count], sizeof l->names[0], "%s", name);
    l->arrays[l->count] = (by_array){l->names[l->count], dtype, shape, NULL};
    l->count++;
}

static void add_rows(array_list *l, int hop, int64_t rows, int64_t columns, int64_t edges)
{
    static const char *const parts[PER_ROWS] = {"offsets", "sources", "back_offsets",
                                                "back_sources", "back_edges"};
    const int64_t sizes[PER_ROWS] = {rows + 1, edges, columns + 1, edges, edges};
    for (size_t i = 0; i < PER_ROWS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "edges.%d.%s", hop, parts[i]);
        add_array(l, name, BY_I32, BY_SHAPE(sizes[i]));
    }
}

size_t by__nodes_around_arrays(by_array out[BY__NODES_AROUND_ARRAYS],
                               char names[BY__NODES_AROUND_ARRAYS][32], const by__nodes_set *set,
                               const by__nodes_sampling *p)
{
    array_list l = {out, names, 0};
    add_array(&l, "nodes.x", BY_F32, BY_SHAPE(p->nodes, set->features));
    add_array(&l, "nodes.inverse_root", BY_F32, BY_SHAPE(p->nodes, 1));
    add_array(&l, "nodes.inverse_root_into", BY_F32, BY_SHAPE(p->nodes, 1));
    add_array(&l, "nodes.inverse_degree", BY_F32, BY_SHAPE(p->nodes, 1));
    for (int hop = 0; hop < p->hops; hop++) {
        add_rows(&l, hop, p->hop_nodes[hop], hop + 1 < p->hops ? p->hop_nodes[hop + 1] : p->nodes,
                 p->hop_edges[hop]);
    }
    for (int hop = 0; hop < p->hops && set->weights != NULL; hop++) {
        char name[32];
        (void)snprintf(name, sizeof name, "edges.%d.weights", hop);
        add_array(&l, name, BY_F32, BY_SHAPE(p->hop_edges[hop], 1));
    }
    if (set->partitioned) {
        add_array(&l, "nodes.ids", BY_I32, BY_SHAPE(p->nodes));
    }
    return l.count;
}

/* Scales of node i, whose edges in the set have weights with the sum `degree`, of which `taken` is
 * in the sample. Sums over these stand for sums over all, so they are larger by as much as edges
 * are fewer. */
static void fill_scales(void *const *rows, int64_t i, double degree, double taken)
{
    float root = by__nodes_inverse_root(degree);
    float more = taken == degree || taken == 0.0 ? 1.0f : (float)degree / (float)taken;
    ((float *)rows[SCALES])[i] = root;
    ((float *)rows[SCALES + 1])[i] = root * more;
    ((float *)rows[SCALES + 2])[i] = by__nodes_inverse_degree(taken);
}

/* The sum of the weights of row i; `degree`, if it has all `count` edges that there are. */
static double weigh_row(const by__nodes_rows *edges, const float *weights, int64_t i, int64_t count,
                        double degree)
{
    int32_t begin = edges->offsets[i];
    int32_t end = edges->offsets[i + 1];
    double sum = 0.0;
    if (end - begin == count) {
        return degree;
    }
    for (int32_t k = begin; k < end && weights != NULL; k++) {
        sum += (double)weights[k];
    }
    return weights == NULL ? (double)(end - begin) : sum;
}

/* How many nodes ahead their features and degrees are asked for. */
#define FETCH_AHEAD 8

static void fetch_node(const by__nodes_set *set, int32_t id)
{
    if (id >= 0) {
        by__nodes_set_fetch_degree(set, id);
    }
    if (id >= 0 && !set->partitioned) {
        by__nodes_set_fetch_row(set, id);
    }
}

static void fill_nodes(void *const *rows, const by__nodes_set *set, const by__nodes_sampling *p,
                       const by__nodes_sample *sample)
{
    float *x = rows[0];
    int last = p->hops - 1;
    size_t features = (size_t)set->features;
    for (int64_t i = 0; i < p->nodes; i++) {
        int32_t id = sample->ids[i];
        double degree = 0.0;
        double taken = 0.0;
        if (i + FETCH_AHEAD < p->nodes) {
            fetch_node(set, sample->ids[i + FETCH_AHEAD]);
        }
        if (id < 0) {
            memset(x + (size_t)i * features, 0, features * sizeof *x);
        } else {
            int64_t hole = by__nodes_apart_edge(set, sample->apart, id);
            int64_t count = by__nodes_set_degree(set, id) - (hole >= 0 ? 1 : 0);
            degree = by__nodes_set_weights(set, id);
            degree -= hole >= 0 ? (double)by__nodes_set_weight(set, hole) : 0.0;
            if (!set->partitioned) {
                by__nodes_set_row(set, id, x + (size_t)i * features);
            }
            if (i < p->hop_nodes[last]) {
                taken = weigh_row(&sample->hops[last], sample->weights[last], i, count, degree);
            }
        }
        fill_scales(rows, i, degree, taken);
    }
}

size_t by__nodes_around_scratch(const by__nodes_sampling *sampling)
{
    return by__nodes_sample_scratch(sampling) + (size_t)sampling->nodes * sizeof(int32_t);
}

void by__nodes_around_fill(void *const *rows, const by__nodes_set *set, const by__nodes_sampling *p,
                           const int32_t *targets, int64_t count, const int32_t *apart,
                           uint64_t seed, uint64_t index, void *scratch)
{
    uint32_t key[2];
    int32_t *ids = (int32_t *)scratch;
    by__nodes_sample out = {.ids = ids, .apart = apart};
    for (int hop = 0; hop < p->hops; hop++) {
        void *const *at = rows + ROWS + PER_ROWS * (size_t)hop;
        out.hops[hop] = (by__nodes_rows){at[0], at[1], at[2], at[3], at[4]};
        if (set->weights != NULL) {
            out.weights[hop] = rows[ROWS + PER_ROWS * (size_t)p->hops + (size_t)hop];
        }
    }
    by__philox_key(key, seed, 0x6e6f6465u); /* "node" in ASCII */
    by__nodes_sample_fill(&out, p, set, targets, count, key, index, ids + p->nodes);
    fill_nodes(rows, set, p, &out);
    if (set->partitioned) {
        size_t hops = (size_t)p->hops;
        memcpy(rows[ROWS + PER_ROWS * hops + (set->weights != NULL ? hops : 0)], ids,
               (size_t)p->nodes * sizeof *ids);
    }
}
