#include "data/nodes/node_source.h"

#include <stdlib.h>

#include "data/loader/order.h"
#include "data/nodes/node_around.h"

/* Arrays of a sample: ids, labels, weight, and those of surroundings. */
enum { AROUND = 3 };
#define ARRAYS (AROUND + BY__NODES_AROUND_ARRAYS)

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

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const node_source *s = (const node_source *)source;
    int64_t count = fill_targets(s, sample, rows);
    BY_UNUSED(error);
    if (s->sampled) {
        by__nodes_around_fill(rows + AROUND, s->set, &s->sampling, rows[0], count, NULL,
                              sample->seed, sample->index, sample->scratch);
    }
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
    s->base.array_count +=
        by__nodes_around_arrays(s->arrays + AROUND, s->names + AROUND, s->set, p);
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
                          .scratch = s->sampled ? by__nodes_around_scratch(sampling) : 0,
                          .close = close_source};
    add_arrays(s);
    *out = &s->base;
    return BY_OK;
}
