/* Samples that are parts of a graph: nodes that a strategy draws, and the edges between them. All
 * layers of a model read all of such a sample.
 *
 * A strategy is one file with one row. What it draws is a function of the loader's seed and of the
 * sample's number in all epochs. */
#ifndef BY_DATA_NODES_SUBGRAPH_SUBGRAPH_H
#define BY_DATA_NODES_SUBGRAPH_SUBGRAPH_H

#include "data/nodes/node_met.h"
#include "data/nodes/node_sample.h"

typedef struct by__nodes_subgraph_options {
    const char *kind; /* name of a strategy */
    /* Of walks: nodes of a sample that walks begin at, and edges of a walk. */
    int64_t roots;
    int64_t length;
    /* Of walks: samples that a node is in, on average, of those from which it is estimated how
     * often nodes and edges are in one. 0: sums and losses of samples are plain. */
    int64_t coverage;
    /* Of clusters: how many the graph is cut into, and how many of them a sample has. */
    int64_t clusters;
    int64_t together;
    /* Of clusters: a directory that keeps them; NULL: none does. */
    const char *directory;
    uint64_t seed; /* of what is made when the graph is read */
} by__nodes_subgraph_options;

typedef struct by__nodes_strategy by__nodes_strategy;

typedef struct by__nodes_subgraphs {
    const by__nodes_set *set;
    const by__nodes_strategy *strategy;
    by__nodes_subgraph_options options;
    const uint64_t *ids; /* [count] nodes to train on */
    uint64_t count;
    int64_t nodes; /* room of a sample */
    int64_t edges;
    /* Estimates (Zeng et al. 2020, section 3.2), NULL: there are none. Of a node 1 / (its
     * probability to be in a sample, times count); of an edge the probability of the node where it
     * ends, divided by that of both its ends. */
    float *node_factors; /* [nodes of the set] */
    float *edge_factors; /* [edges of the set] */
    /* Nodes by cluster, ascending, and the first of each cluster. */
    int32_t *members; /* [nodes of the set] */
    int64_t *begins;  /* [clusters + 1] */
    uint64_t bytes;
} by__nodes_subgraphs;

/* Whether the edges of samples have weights or factors. */
static inline bool by__nodes_subgraphs_weigh(const by__nodes_subgraphs *s)
{
    return s->edge_factors != NULL || s->set->weights != NULL;
}

/* Which nodes a source is about, and the sample of it that is wanted. */
typedef struct by__nodes_draw {
    const uint64_t *ids;
    uint64_t count;
    bool shuffle;
    const by_source_sample *sample;
} by__nodes_draw;

struct by__nodes_strategy {
    const char *name;
    /* Makes what is drawn from, and sets subgraphs->nodes. */
    by_status (*prepare)(by__nodes_subgraphs *s, by_error *error);
    /* Samples of an epoch, or of a pass, over `count` nodes. */
    uint64_t (*samples)(const by__nodes_subgraphs *s, uint64_t count);
    /* Adds the nodes of a sample, at most s->nodes, none of a sample behind the last one of a pass.
     * Returns how many of them are targets of a pass, in front of the others. */
    int32_t (*draw)(const by__nodes_subgraphs *s, const by__nodes_draw *draw, by__nodes_met *met);
    bool estimates; /* whether options.coverage is used */
};

/* sample_walks.c, sample_clusters.c */
extern const by__nodes_strategy by__nodes_strategy_walks;
extern const by__nodes_strategy by__nodes_strategy_clusters;

/* The strategy of a name; NULL: there is none. */
const by__nodes_strategy *by__nodes_strategy_find(const char *name);
/* Prepares samples of a graph, and estimates what room they need. `ids` must not be empty; set and
 * ids must outlive it. BY_ECONFIG: an option does not fit the graph. */
by_status by__nodes_subgraphs_open(by__nodes_subgraphs **out, const by__nodes_set *set,
                                   const uint64_t *ids, uint64_t count,
                                   const by__nodes_subgraph_options *options, by_error *error);
void by__nodes_subgraphs_close(by__nodes_subgraphs **subgraphs);

/* Bytes of scratch memory, which has the numbers of a sample's nodes first: i32 [s->nodes]. */
size_t by__nodes_subgraph_scratch(const by__nodes_subgraphs *s);
/* Draws a sample into scratch memory. Returns what the strategy's draw does. (induce.c) */
int32_t by__nodes_subgraph_draw(by__nodes_met *met, const by__nodes_subgraphs *s,
                                const by__nodes_draw *draw);
/* Writes the edges between the nodes of a sample, of which those beyond the room are left out
 * evenly, and the number in the set of each edge, i64 [s->edges], unless NULL. Returns how many
 * there are without this bound. (induce.c) */
int64_t by__nodes_subgraph_edges(const by__nodes_rows *out, int64_t *places,
                                 const by__nodes_subgraphs *s, const by__nodes_met *met);

/* Opens a source of samples of N = s->nodes nodes and E = s->edges edges:
 *   "ids"     i32 [N] -1: padding
 *   "labels"  i32 [N] -1: none, padding, or no target
 *   "weight"  f32 [N] of the loss: 0 where there is no label; to train on, with estimates, the
 *             factors of nodes, whose sum over samples counts the samples; else 1
 *   "nodes.x", "nodes.inverse_root", "nodes.inverse_root_into", "nodes.inverse_degree", "edges.0.*"
 *             as by__nodes_source_open has them, of one hop; degrees are those of the sample or,
 *             with estimates, of the whole graph
 *   "edges.0.weights" f32 [E, 1] with estimates or weights of edges: the product of both
 * shuffle: to train on, endless epochs; else one pass, in which each of `ids` is a target once. s
 * and ids must outlive it. (subgraph_source.c) */
by_status by__nodes_subgraph_source_open(by_source **out, const by__nodes_subgraphs *s,
                                         const uint64_t *ids, uint64_t count, bool shuffle,
                                         by_error *error);

#endif
