/* Links of a graph as samples: one that there is, and others that there are not, of which a model
 * should find the one.
 *
 * Links to train on and held out are no edges that the model reads, or it would only have to
 * remember them; the edges that it reads are called messages. */
#ifndef BY_DATA_NODES_NODE_LINKS_H
#define BY_DATA_NODES_NODE_LINKS_H

#include "data/nodes/node_around.h"

typedef struct by__nodes_link_options {
    by__nodes_options graph;
    double valid;       /* share of the links that is held out */
    double test;        /* and that is kept for a test */
    double supervision; /* share of the others that is trained on and no message; 0: all others are
                           both */
    uint64_t seed;      /* of which ones, and of the candidates of those that are held out */
} by__nodes_link_options;

typedef struct by__nodes_links {
    by__nodes_set *set;           /* whose edges are the messages */
    const int64_t *known_offsets; /* all edges, in rows of where they end */
    const int32_t *known_sources;
    int32_t (*pairs)[2]; /* [count] from, to: valid, test, trained on, messages alone */
    uint64_t count;
    uint64_t valid_count;
    uint64_t test_count;
    uint64_t train_count;
    uint64_t seed;
    bool symmetric; /* a link leads in both directions, and is there once */
} by__nodes_links;

/* Reads a graph, and divides its links; loops are none. set->whole is not made. BY_ECONFIG: a part
 * has none; and errors of by__nodes_set_open. */
by_status by__nodes_links_open(by__nodes_links **out, const by__nodes_link_options *options,
                               by_error *error);
void by__nodes_links_close(by__nodes_links **links);
/* Returns whether an edge leads from one node to another. */
bool by__nodes_linked(const by__nodes_links *links, int32_t from, int32_t to);

/* What a source of links has. */
typedef struct by__nodes_link_samples {
    const int32_t (*pairs)[2]; /* [count] must outlive the source */
    uint64_t count;
    int64_t
        candidates; /* nodes that a link of a sample may lead to: that where it does, and others,
                           drawn at random from those where none from this node does */
    int64_t room;   /* for candidates; behind those that there are, ids are 0 and labels -1 */
    bool shuffle;   /* to train on: endless epochs; else one pass, of the same candidates */
    bool unknown;   /* whether they are links is not known: labels are -1 */
    const by__nodes_sampling *around; /* surroundings of 1 + room nodes that are read; NULL: the
                                         whole graph is */
} by__nodes_link_samples;

/* Opens a source of links, one a sample:
 *   "ids"     i32 [1 + room]  where it comes from, where it leads, and where it does not
 *   "labels"  i32 [room]      1, then 0; -1: padding
 *   "weight"  f32 []          1, 0 for padding
 *   "place"   i32 []          number of the sample in a pass
 * and those of surroundings of "ids" (node_around.h), in which no edge connects both ends of the
 * link, so that a model cannot look it up.
 * Candidates are a function of the loader's seed (of a pass, that of the links) and of the sample's
 * number in all epochs. The links must outlive it. (link_source.c) */
by_status by__nodes_link_source_open(by_source **out, const by__nodes_links *links,
                                     const by__nodes_link_samples *samples, by_error *error);

#endif
