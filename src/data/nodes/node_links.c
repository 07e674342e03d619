#include "data/nodes/node_links.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader/order.h"

/* Where an edge is among all edges, or would be. */
static int64_t place_of(const by__nodes_links *links, int32_t from, int32_t to)
{
    int64_t low = links->known_offsets[to];
    int64_t high = links->known_offsets[to + 1];
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (links->known_sources[middle] < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool by__nodes_linked(const by__nodes_links *links, int32_t from, int32_t to)
{
    int64_t place = place_of(links, from, to);
    return place < links->known_offsets[to + 1] && links->known_sources[place] == from;
}

/* Lists each link once, in an order that the seed determines. */
static by_status list_links(by__nodes_links *l, by_error *error)
{
    const by__nodes_set *set = l->set;
    int32_t(*sorted)[2];
    by__loader_order order;
    BY_TRY(by__alloc((void **)&sorted, (size_t)set->edges, sizeof *sorted, "links", error));
    for (int32_t to = 0; to < set->nodes; to++) {
        for (int64_t k = l->known_offsets[to]; k < l->known_offsets[to + 1]; k++) {
            int32_t from = l->known_sources[k];
            if (!l->symmetric || from < to) {
                sorted[l->count][0] = from;
                sorted[l->count++][1] = to;
            }
        }
    }
    by_status status =
        by__alloc((void **)&l->pairs, (size_t)l->count, sizeof *l->pairs, "links", error);
    by__loader_order_init(&order, l->count, l->seed, 0);
    for (uint64_t i = 0; status == BY_OK && i < l->count; i++) {
        memcpy(l->pairs[i], sorted[by__loader_order_at(&order, i)], sizeof *sorted);
    }
    free(sorted);
    return status;
}

static uint64_t share_of(double share, uint64_t count)
{
    uint64_t part = (uint64_t)floor(share * (double)count);
    return share > 0.0 && part == 0 && count > 0 ? 1 : part;
}

/* Divides the links, and makes messages the edges of the graph. */
static by_status divide(by__nodes_links *l, const by__nodes_link_options *o, by_error *error)
{
    l->valid_count = share_of(o->valid, l->count);
    l->test_count = share_of(o->test, l->count);
    uint64_t held = l->valid_count + l->test_count;
    uint64_t left = held < l->count ? l->count - held : 0;
    l->train_count = o->supervision > 0.0 ? share_of(o->supervision, left) : left;
    uint64_t messages = o->supervision > 0.0 ? left - l->train_count : left;
    if (l->train_count == 0 || messages == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: of %llu links %llu are held out; of the others some must be "
                            "trained on, and some be read: change data.valid_links, "
                            "data.test_links or data.supervision",
                            l->set->name, (unsigned long long)l->count, (unsigned long long)held);
    }
    const int32_t(*read)[2] = (const int32_t(*)[2])(l->pairs + (l->count - messages));
    float *weights = NULL;
    if (l->set->weights != NULL) {
        BY_TRY(by__alloc((void **)&weights, (size_t)messages, sizeof *weights, "links", error));
        for (uint64_t i = 0; i < messages; i++) {
            weights[i] = l->set->weights[place_of(l, read[i][0], read[i][1])];
        }
    }
    by_status status =
        by__nodes_set_weighted_edges(l->set, read, weights, messages, &o->graph, error);
    free(weights);
    return status;
}

static by_status open_links(by__nodes_links *l, const by__nodes_link_options *o, by_error *error)
{
    by__nodes_options known = o->graph;
    known.self_loops = false;
    BY_TRY(by__nodes_set_open(&l->set, &known, error));
    l->known_offsets = l->set->offsets;
    l->known_sources = l->set->sources;
    BY_TRY(list_links(l, error));
    return divide(l, o, error);
}

by_status by__nodes_links_open(by__nodes_links **out, const by__nodes_link_options *options,
                               by_error *error)
{
    by__nodes_links *l;
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "links", error));
    l->symmetric = options->graph.symmetric;
    l->seed = options->seed;
    by_status status = open_links(l, options, error);
    if (status != BY_OK) {
        by__nodes_links_close(&l);
        return status;
    }
    *out = l;
    return BY_OK;
}

void by__nodes_links_close(by__nodes_links **links)
{
    by__nodes_links *l = *links;
    if (l != NULL) {
        by__nodes_set_close(&l->set);
        free(l->pairs);
        free(l);
        *links = NULL;
    }
}
