/* GraphSAINT's random walks (Zeng et al. 2020, section 3.4): the nodes of a sample are those of
 * walks against the direction of edges, from where a node's sum comes. Each node to train on is a
 * root once an epoch. */
#include "data/loader/order.h"
#include "data/nodes/subgraph/subgraph.h"

static by_status prepare(by__nodes_subgraphs *s, by_error *error)
{
    const by__nodes_subgraph_options *o = &s->options;
    int64_t most = o->roots * (1 + o->length);
    s->nodes = most < s->set->nodes ? most : s->set->nodes;
    return (uint64_t)o->roots <= s->count
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "data.sample_targets %lld are more than the %llu nodes to train on",
                              (long long)o->roots, (unsigned long long)s->count);
}

static uint64_t samples(const by__nodes_subgraphs *s, uint64_t count)
{
    uint64_t roots = (uint64_t)s->options.roots;
    return (count + roots - 1) / roots;
}

/* Walk `number` of a sample. */
static void walk(const by__nodes_subgraphs *s, by__nodes_met *met, int32_t node,
                 const uint32_t key[2], uint64_t index, uint32_t number)
{
    const by__nodes_set *set = s->set;
    uint32_t bits[4];
    for (int64_t step = 0; step < s->options.length; step++) {
        uint64_t degree = (uint64_t)by__nodes_set_degree(set, node);
        if (step % 4 == 0) {
            const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), number,
                                         (uint32_t)(step / 4)};
            by__philox(bits, key, counter);
        }
        if (degree == 0) {
            return;
        }
        node = set->sources[set->offsets[node] + (int64_t)(bits[step % 4] * degree >> 32)];
        (void)by__nodes_met_add(met, node);
    }
}

static int32_t draw(const by__nodes_subgraphs *s, const by__nodes_draw *d, by__nodes_met *met)
{
    uint64_t roots = (uint64_t)s->options.roots;
    const by_source_sample *sample = d->sample;
    uint64_t first = (d->shuffle ? sample->index % samples(s, d->count) : sample->place) * roots;
    by__loader_order order;
    uint32_t key[2];
    if (d->shuffle) {
        by__loader_order_init(&order, d->count, sample->seed, sample->epoch);
    }
    for (uint64_t i = first; i < first + roots && i < d->count; i++) {
        uint64_t place = d->shuffle ? by__loader_order_at(&order, i) : i;
        (void)by__nodes_met_add(met, (int32_t)d->ids[place]);
    }
    int32_t count = met->count;
    by__philox_key(key, sample->seed, 0x77616c6bu); /* "walk" in ASCII */
    for (int32_t i = 0; i < count; i++) {
        walk(s, met, met->ids[i], key, sample->index, (uint32_t)i);
    }
    return count;
}

const by__nodes_strategy by__nodes_strategy_walks = {
    .name = "walks", .prepare = prepare, .samples = samples, .draw = draw, .estimates = true};
