/* Links as samples. */
#include <stdlib.h>

#include "data/nodes/node_links.h"

/* Draws of a candidate before those in turn behind the last one are tried. */
#define DRAWS 32

/* Arrays in front of those of surroundings. */
enum { OWN = 4 };

typedef struct link_source {
    by_source base;
    by_array arrays[OWN + BY__NODES_AROUND_ARRAYS];
    char names[BY__NODES_AROUND_ARRAYS][32];
    const by__nodes_links *links;
    by__nodes_link_samples samples;
    by__nodes_sampling around; /* hops 0: the whole graph is read */
} link_source;

static uint32_t draw(const uint32_t key[2], uint64_t index, uint32_t place, uint32_t attempt)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), place, attempt};
    uint32_t bits[4];
    by__philox(bits, key, counter);
    return bits[0];
}

/* A node to which no link from `from` leads; in a graph where there is none, any. */
static int32_t draw_candidate(const by__nodes_links *l, int32_t from, const uint32_t key[2],
                              uint64_t index, uint32_t place)
{
    uint64_t nodes = (uint64_t)l->set->nodes;
    int32_t to = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        to = (int32_t)((uint64_t)draw(key, index, place, i) * nodes >> 32);
        if (to != from && !by__nodes_linked(l, from, to)) {
            return to;
        }
    }
    for (uint64_t i = 0; i < nodes; i++) {
        int32_t next = (int32_t)(((uint64_t)to + i) % nodes);
        if (next != from && !by__nodes_linked(l, from, next)) {
            return next;
        }
    }
    return to;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const link_source *s = (const link_source *)source;
    bool real = sample->place < source->samples;
    const int32_t *pair = s->samples.pairs[real ? sample->place : 0];
    uint64_t index = source->shuffle ? sample->index : sample->place;
    uint32_t key[2];
    int32_t *ids = rows[0];
    int32_t *labels = rows[1];
    BY_UNUSED(error);
    by__philox_key(key, source->shuffle ? sample->seed : s->links->seed,
                   0x6c696e6bu); /* "link" in ASCII */
    /* Of links without a direction, either end may be the one whose links are asked for. */
    bool back = s->links->symmetric && !s->samples.unknown && draw(key, index, 0, DRAWS) >> 31 != 0;
    ids[0] = pair[back];
    ids[1] = pair[!back];
    for (int64_t i = 1; i < s->samples.candidates; i++) {
        ids[1 + i] = draw_candidate(s->links, ids[0], key, index, (uint32_t)i);
    }
    for (int64_t i = 0; i < s->samples.room; i++) {
        bool is_one = i < s->samples.candidates;
        labels[i] = !real || !is_one || s->samples.unknown ? -1 : i == 0;
        ids[1 + i] = is_one ? ids[1 + i] : 0;
    }
    *(float *)rows[2] = real ? 1.0f : 0.0f;
    *(int32_t *)rows[3] = real ? (int32_t)sample->place : -1;
    if (s->around.hops > 0) {
        by__nodes_around_fill(rows + OWN, s->links->set, &s->around, ids,
                              real ? 1 + s->samples.candidates : 0, real ? ids : NULL,
                              source->shuffle ? sample->seed : s->links->seed, index,
                              sample->scratch);
    }
    return BY_OK;
}

static void close_source(by_source *source)
{
    free(source);
}

by_status by__nodes_link_source_open(by_source **out, const by__nodes_links *links,
                                     const by__nodes_link_samples *samples, by_error *error)
{
    link_source *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a source of links", error));
    const by_array arrays[OWN] = {{"ids", BY_I32, BY_SHAPE(samples->room + 1), NULL},
                                  {"labels", BY_I32, BY_SHAPE(samples->room), NULL},
                                  {"weight", BY_F32, {0}, NULL},
                                  {"place", BY_I32, {0}, NULL}};
    s->links = links;
    s->samples = *samples;
    for (size_t i = 0; i < OWN; i++) {
        s->arrays[i] = arrays[i];
    }
    size_t count = OWN;
    if (samples->around != NULL) {
        s->around = *samples->around;
        count += by__nodes_around_arrays(s->arrays + OWN, s->names, links->set, &s->around);
    }
    s->base = (by_source){.name = links->set->name,
                          .arrays = s->arrays,
                          .array_count = count,
                          .shuffle = samples->shuffle,
                          .samples = samples->count,
                          .sample_targets = 1,
                          .targets = samples->count,
                          .fill = fill,
                          .scratch = count > OWN ? by__nodes_around_scratch(&s->around) : 0,
                          .close = close_source};
    *out = &s->base;
    return BY_OK;
}
