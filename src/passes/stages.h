/* Stages of a pipeline: cuts a training graph, after all passes, into graphs that run on different
 * ranks or at different times.
 *
 * The whole graph is cut, instead of cutting the forward pass and deriving a backward pass for each
 * piece. So every node is exactly the node that one rank would run, with the same operands, and the
 * results have the same bits whatever the passes did. A parameter read at both ends of the model (a
 * tied embedding) needs no special case: the head's part of its gradient is a value like any other
 * that one stage makes and another reads. */
#ifndef BY_PASSES_STAGES_H
#define BY_PASSES_STAGES_H

#include "passes/passes.h"

/* Parts of a stage: what it runs of a micro-batch at one time. */
typedef enum by__pass_part_kind {
    BY__PART_FORWARD = 0,
    BY__PART_BACKWARD,
    BY__PART_WEIGHT, /* only if weight gradients are computed separately */
    BY__PART_KINDS
} by__pass_part_kind;

/* Returns the number of a part of a graph. Values are made in a part that runs no later than those
 * that read them; parts run in the order forward of stage 0, 1, ..., backward of the last stage,
 * ..., 0, with a stage's weight gradients after its backward part. */
static inline int by__part_of(int stage, by__pass_part_kind kind)
{
    return stage * BY__PART_KINDS + (int)kind;
}
static inline int by__stage_of_part(int part)
{
    return part / BY__PART_KINDS;
}

/* The stage of each unit of a model. Units are everything before the first block, each block, and
 * everything after the last block; a stage is a contiguous run of units. */
typedef struct by__pass_stage_map {
    int *stage; /* of each unit */
    int units;
    int stages;
} by__pass_stage_map;

/* Divides a training graph into stages such that the most expensive stage is as cheap as possible.
 * `seed` is the input from which the backward pass starts. BY_EARG if there are more stages than
 * units. Freed with by__pass_stage_map_free. */
by_status by__pass_map_stages(by__pass_stage_map *out, const by_graph *graph, by_value seed,
                              int stages, by_error *error);
void by__pass_stage_map_free(by__pass_stage_map *map);

/* Assigns each node n to a part, part[n]. The graph is the one that the map was made from, or
 * another graph of the same model (for example the loss alone, with seed BY_NONE). apart: backward
 * nodes on which no gradient of another unit depends go to the weights' part. */
by_status by__pass_assign_parts(int *part, const by_graph *graph, by_value seed,
                                const by__pass_stage_map *map, bool apart, by_error *error);
/* Returns the stage of a parameter: the one that makes its gradient, else the one that reads it
 * first; -1 if no node reads it. */
int by__pass_stage_of_parameter(const by_graph *graph, const int *part, by_value parameter);

/* A value made in part `from` and read in part `to`. */
typedef struct by__pass_crossing {
    by_value value;
    int from;
    int to;
} by__pass_crossing;

/* Lists all crossings in the order of value, then `to`. A view is made again where it is read, so
 * its base value crosses instead. *out is freed with free(). */
by_status by__pass_list_crossings(by__pass_crossing **out, size_t *count, const by_graph *graph,
                                  const int *part, by_error *error);
/* Builds the graph of one part. What it reads from other parts becomes inputs, what other parts
 * read from it outputs. These are named by by__pass_crossing_name, except that values that have a
 * name in `graph` keep it. Attributes may point into `graph`, which must outlive the part. The
 * caller closes *out. It may have no nodes. */
by_status by__pass_cut_part(by_graph **out, const by_graph *graph, const int *part, int wanted,
                            const by__pass_crossing *crossings, size_t count, by_error *error);
/* Returns the name of a crossing value: its own or "cut.NUMBER". */
const char *by__pass_crossing_name(char buffer[32], const by_graph *graph, by_value value);

#endif
