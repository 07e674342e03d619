/* The edges between some nodes of a graph. */
#include <assert.h>

#include "data/nodes/subgraph/subgraph.h"

size_t by__nodes_subgraph_scratch(const by__nodes_subgraphs *s)
{
    size_t bytes = (size_t)s->nodes * sizeof(int32_t) + by__nodes_met_bytes(s->nodes);
    return (bytes + 63) / 64 * 64; /* what is put behind it is aligned */
}

int32_t by__nodes_subgraph_draw(by__nodes_met *met, const by__nodes_subgraphs *s,
                                const by__nodes_draw *draw)
{
    int32_t *ids = draw->sample->scratch;
    by__nodes_met_begin(met, s->nodes, ids, ids + s->nodes);
    return s->strategy->draw(s, draw, met);
}

/* Where edges go: of `all`, which are more than the room, edge i is left out where i room / all
 * does not come to another whole number with the next one. */
typedef struct edge_writer {
    const by__nodes_rows *out; /* NULL: they are counted */
    int64_t *places;
    int64_t room;
    int64_t all; /* 0: not known; what is behind the room is left out */
    int64_t seen;
    int64_t written;
} edge_writer;

static void write_edge(edge_writer *w, int32_t source, int64_t place)
{
    int64_t i = w->seen++;
    assert(w->room >= 0);
    bool left_out = w->all > w->room ? (i + 1) * w->room / w->all == i * w->room / w->all
                                     : w->written == w->room;
    if (left_out) {
        return;
    }
    w->out->sources[w->written] = source;
    if (w->places != NULL) {
        w->places[w->written] = place;
    }
    w->written++;
}

static void write_rows(edge_writer *w, const by__nodes_subgraphs *s, const by__nodes_met *met)
{
    const by__nodes_set *set = s->set;
    w->seen = w->written = 0;
    w->out->offsets[0] = 0;
    for (int32_t i = 0; i < met->count; i++) {
        int32_t id = met->ids[i];
        for (int64_t k = set->offsets[id]; k < set->offsets[id + 1]; k++) {
            int32_t source = by__nodes_met_find(met, set->sources[k]);
            if (source >= 0) {
                write_edge(w, source, k);
            }
        }
        w->out->offsets[i + 1] = (int32_t)w->written;
    }
}

int64_t by__nodes_subgraph_edges(const by__nodes_rows *out, int64_t *places,
                                 const by__nodes_subgraphs *s, const by__nodes_met *met)
{
    edge_writer w = {.out = out, .places = places, .room = s->edges};
    write_rows(&w, s, met);
    if (w.seen > w.room) {
        w.all = w.seen;
        write_rows(&w, s, met);
    }
    for (int64_t i = met->count; i < s->nodes; i++) {
        out->offsets[i + 1] = (int32_t)w.written;
    }
    by__nodes_rows_finish(out, s->nodes, s->nodes, s->edges);
    return w.seen;
}
