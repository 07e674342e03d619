#include "data/nodes/node_source.h"

#include <stdlib.h>

typedef struct node_source {
    by_source base;
    by_array arrays[9];
    const by__nodes_set *set;
    const uint64_t *ids;
    by__nodes_sampling sampling; /* hops 0: the whole graph is read */
} node_source;

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const node_source *s = (const node_source *)source;
    bool real = sample->place < source->samples;
    uint64_t id = s->ids[real ? sample->place : 0];
    BY_UNUSED(error);
    *(int32_t *)rows[0] = (int32_t)id;
    *(int32_t *)rows[1] = real && s->set->labels != NULL ? s->set->labels[id] : -1;
    *(float *)rows[2] = real ? 1.0f : 0.0f;
    if (s->sampling.hops > 0) {
        const by__nodes_sample out = {.ids = rows[3],
                                      .offsets = rows[4],
                                      .sources = rows[5],
                                      .back_offsets = rows[6],
                                      .back_sources = rows[7],
                                      .back_edges = rows[8]};
        uint32_t key[2];
        by__philox_key(key, sample->seed, 0x6e6f6465u); /* "node" in ASCII */
        by__nodes_sample_fill(&out, &s->sampling, s->set, (int32_t)id, key, sample->index,
                              sample->scratch);
    }
    return BY_OK;
}

static void close_source(by_source *source)
{
    free(source);
}

by_status by__nodes_source_open(by_source **out, const by__nodes_set *set, const uint64_t *ids,
                                uint64_t count, bool shuffle, const by__nodes_sampling *sampling,
                                by_error *error)
{
    node_source *s;
    bool sampled = sampling != NULL && sampling->hops > 0;
    int64_t nodes = sampled ? sampling->nodes : 0;
    int64_t edges = sampled ? sampling->edges : 0;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of nodes", error));
    const by_array arrays[] = {{"ids", BY_I32, {0}, NULL},
                               {"labels", BY_I32, {0}, NULL},
                               {"weight", BY_F32, {0}, NULL},
                               {"sample.ids", BY_I32, BY_SHAPE(nodes), NULL},
                               {"edges.offsets", BY_I32, BY_SHAPE(nodes + 1), NULL},
                               {"edges.sources", BY_I32, BY_SHAPE(edges), NULL},
                               {"edges.back_offsets", BY_I32, BY_SHAPE(nodes + 1), NULL},
                               {"edges.back_sources", BY_I32, BY_SHAPE(edges), NULL},
                               {"edges.back_edges", BY_I32, BY_SHAPE(edges), NULL}};
    s->set = set;
    s->ids = ids;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        s->arrays[i] = arrays[i];
    }
    if (sampled) {
        s->sampling = *sampling;
    }
    s->base = (by_source){.name = set->name,
                          .arrays = s->arrays,
                          .array_count = sampled ? BY_ARRAY_LENGTH(arrays) : 3,
                          .shuffle = shuffle,
                          .samples = count,
                          .sample_targets = 1,
                          .targets = count,
                          .fill = fill,
                          .scratch = sampled ? by__nodes_sample_scratch(sampling) : 0,
                          .close = close_source};
    *out = &s->base;
    return BY_OK;
}
