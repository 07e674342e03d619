/* What the files of by_pass_shard share: what is known of the values of the graph, and the nodes
 * that bring one from one form into another (shard_convert.c).
 *
 * Never put here: what an op does with a split operand, which its row says.
 */
#ifndef BY_PASSES_SHARD_H
#define BY_PASSES_SHARD_H

#include "passes/passes.h"

#define BY__SHARD_PHASES 3

typedef struct by__sharder {
    by_graph *graph;
    by_shard_kind kind;
    const by_shard_axis *axis;
    size_t value_count; /* of the graph before */
    size_t node_count;
    int64_t groups;   /* expert: sections of rows that are cut within each group */
    by__type *whole;  /* of each of these values */
    by__split *split; /* the form that it has now */
    by__split *want;  /* the form that its readers would like */
    by_value *now;    /* the value that has that form: itself, or what it was made into */
    /* A value that was put together in this phase. The backward pass does so anew, because keeping
     * it would take the memory that splitting it saves. */
    by_value *gathered[BY__SHARD_PHASES];
} by__sharder;

/* Grouped rows [groups, rows, ...]: cut within each group, or by groups, of which an all-to-all
 * makes the other. */
bool by__shard_exchanges(const by__sharder *s, const by_shape *whole, by__split from, by__split to);
/* Value v of the graph before, in the form `to`: adds nodes for what is not there yet. */
by_value by__shard_form(by__sharder *s, by_value v, by__split to);
/* Adds the nodes that make a value of form `from` one of form `to`. */
by_value by__shard_convert(by__sharder *s, by_value value, const by_shape *whole, by__split from,
                           by__split to);

#endif
