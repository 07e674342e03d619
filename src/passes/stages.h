/* Stages of a pipeline: a training graph, all its passes done, cut into graphs that run on
 * different ranks or at different times.
 *
 * The whole graph is cut, not the forward pass alone with a backward pass derived for each piece:
 * every node is then the node that one rank runs, with the operands that it has there, so that the
 * results are the same bits, whatever the passes made of the graph. A parameter that is read at
 * both ends of the model (a tied embedding) needs nothing of its own: the head's part of its
 * gradient is a value like any other that one stage makes and another reads. */
#ifndef BY_PASSES_STAGES_H
#define BY_PASSES_STAGES_H

#include "passes/passes.h"

/* Parts of a stage: what it runs of a micro-batch at one time. */
typedef enum by__part_kind {
    BY__PART_FORWARD = 0,
    BY__PART_BACKWARD,
    BY__PART_WEIGHT, /* only where the weights' gradients are apart */
    BY__PART_KINDS
} by__part_kind;

/* Number of a part of a graph. Every value is made in a part that runs no later than those that
 * read it, in the order forward of stage 0, 1, ..., backward of the last stage, ..., 0, and the
 * weights' gradients of a stage behind its backward part. */
static inline int by__part_of(int stage, by__part_kind kind)
{
    return stage * BY__PART_KINDS + (int)kind;
}
static inline int by__stage_of_part(int part)
{
    return part / BY__PART_KINDS;
}

/* Which stage each unit of a model is in. Units are what comes before the first block, the blocks,
 * and what comes behind the last one; stages are contiguous runs of them. */
typedef struct by__stage_map {
    int *stage; /* of each unit */
    int units;
    int stages;
} by__stage_map;

/* Divides a training graph into stages so that the most expensive one costs as little as can be.
 * `seed` is the input that the backward pass began with. BY_EARG: more stages than units. Released
 * with by__stage_map_free. */
by_status by__map_stages(by__stage_map *out, const by_graph *graph, by_value seed, int stages,
                         by_error *error);
void by__stage_map_free(by__stage_map *map);

/* Assigns the nodes of a graph to parts: part[n] of node n. The graph is the one that the map was
 * made from, or another of the same model (the loss alone; seed BY_NONE). apart: a backward node
 * that no gradient of another unit is made from belongs to the weights' part. */
by_status by__assign_parts(int *part, const by_graph *graph, by_value seed,
                           const by__stage_map *map, bool apart, by_error *error);
/* The stage that holds a parameter: that in which its gradient is made, else the one that reads it
 * first; -1: no node reads it. */
int by__stage_of_parameter(const by_graph *graph, const int *part, by_value parameter);

/* A value that part `from` makes and part `to` reads. */
typedef struct by__crossing {
    by_value value;
    int from;
    int to;
} by__crossing;

/* All crossings, ascending by value, then `to`. A view is made again where it is read, so what it
 * shows crosses in its place. *out is freed with free(). */
by_status by__list_crossings(by__crossing **out, size_t *count, const by_graph *graph,
                             const int *part, by_error *error);
/* The graph of one part. What it reads of another part is an input, what another part reads of it
 * an output; both are named by by__crossing_name of the value in `graph`, but for values that have
 * a name there, which keep it. Attributes may point into `graph`, which must outlive it. The
 * caller closes *out. It may have no nodes. */
by_status by__cut_part(by_graph **out, const by_graph *graph, const int *part, int wanted,
                       const by__crossing *crossings, size_t count, by_error *error);
/* The name of a value where it crosses: its own or "cut.NUMBER". */
const char *by__crossing_name(char buffer[32], const by_graph *graph, by_value value);

#endif
