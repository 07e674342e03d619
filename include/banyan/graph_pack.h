/* Packing graphs: edges, features, classes and splits of the nodes of one graph, from the files
 * that others write, into a directory that training maps (src/data/nodes/packed_arrays.h has the
 * format). Edges are sorted within a bound of memory.
 *
 * An input is a text of edges (two numbers of nodes a line: source, target; from 0; separated by a
 * comma, a semicolon, spaces or tabs; further columns but a weight, lines that begin with '#' and
 * a first line of names are left out), a Parquet file of edges, or, alone, an npz file with scipy's
 * matrices or a directory of the Open Graph Benchmark with its CSV files. Texts may be compressed
 * by gzip.
 *
 * The result depends on the inputs and the options, but not on the number of threads.
 */
#ifndef BANYAN_GRAPH_PACK_H
#define BANYAN_GRAPH_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is done about edges from a node to itself. */
typedef enum by_graph_loops {
    BY_LOOPS_DROP = 0, /* they are left out */
    BY_LOOPS_ADD,      /* each node gets one */
    BY_LOOPS_KEEP,     /* those that are there stay */
    BY_LOOPS_FAIL      /* they are an error */
} by_graph_loops;

typedef struct by_graph_pack_options {
    const char *const *inputs; /* [input_count] paths */
    size_t input_count;
    const char *output; /* directory to create; must not exist */
    /* A text of nodes with a line of names: "id" (0, 1, ... in order), "label" (a class, -1 or
     * empty for none) and "split" (train, valid, test or empty), each if it is there; all other
     * columns are features. NULL: `features`, or what the input has. */
    const char *nodes;
    const char *features; /* npy file, a row for each node; NULL */
    const char *labels;   /* npy file, -1: none; NULL */
    const char *lists[3]; /* files of nodes to train on, to validate and to test on: npy, or a
                             number a line; NULL */
    const char *split;    /* of a directory with several splits: name of one; NULL: the only one */
    const char *columns;  /* of Parquet: "SOURCE,TARGET" or "SOURCE,TARGET,WEIGHT"; NULL: the first
                             two of integers, and the first other one of numbers */
    const char *store;    /* features as "f32" (NULL), "f16", or "u8", 256 steps between the least
                             and the largest of each column */
    bool directed;        /* edges lead in one direction only */
    bool weights;         /* edges have weights, finite and at least 0: the third number of a line,
                             a column of Parquet, edge_weight or adj_data of an archive, or
                             raw/edge_weight.csv.gz of a benchmark. An edge that is there twice has
                             the larger one; an edge from a node to itself that is added has 1, or
                             that of one that is there. */
    by_graph_loops loops;
    bool refuse_duplicates; /* an edge that is there twice is an error; else it counts once */
    bool skip_corrupt;      /* leave out lines of edges that are damaged, or name a node that there
                               is not, and report the first ones by a note; else they are errors */
    double corrupt_budget;  /* how many: below 1, a fraction of all; from 1 on, their number */
    uint64_t memory;        /* most bytes of edges in memory at once; 0: 1 GiB. Each node takes 12
                               bytes more. */
    size_t threads;         /* 0: one per core */
    /* May be NULL. `phase` is "reading" or "sorting"; returning false stops with BY_ESTOPPED. */
    bool (*progress)(void *user, const char *phase, uint64_t done, uint64_t total);
    /* May be NULL. Receives remarks for the user, each one line without a line break. */
    void (*note)(void *user, const char *text);
    void *user;
} by_graph_pack_options;

typedef struct by_graph_pack_result {
    uint64_t nodes;
    uint64_t edges; /* in all directions in which they lead */
    uint64_t features;
    uint64_t classes;
    uint64_t held[3];    /* nodes to train on, to validate and to test on */
    uint64_t listed;     /* edges in the inputs */
    uint64_t duplicates; /* left out, in all directions */
    uint64_t loops;      /* in the inputs */
    uint64_t skipped;    /* lines */
} by_graph_pack_result;

/* Packs into options->output, which appears complete by a rename or not at all; `result` may be
 * NULL. Returns BY_EARG if an option is out of range, the inputs do not go together or the output
 * exists; BY_EFORMAT with file and line if an input is malformed; BY_EIO; BY_ESTOPPED. */
BY_API by_status by_graph_pack(const by_graph_pack_options *options, by_graph_pack_result *result,
                               by_error *error);

#ifdef __cplusplus
}
#endif

#endif
