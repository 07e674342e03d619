/* What the files of by_pass_shard share: what is known of the values of the graph, and the nodes
 * that bring one from one form into another (shard_convert.c), and the choice of forms
 * (shard_choice.c).
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

/* ---- shard_choice.c ---- */

#define BY__SHARD_OPTIONS 4
#define BY__TIME_AXIS     "time"

/* A form in which an operand may be given, and the bytes that it costs. */
typedef struct by__shard_option {
    by__split split;
    double cost;
} by__shard_option;

/* The operands of the node at hand. */
typedef struct by__shard_choice {
    by__type *in;
    by__type out[BY_MAX_OUTPUTS];
    by__shard_option (*options)[BY__SHARD_OPTIONS];
    int *option_count;
    int *taken;
    by__split *split; /* the operands' as tried */
    by__split *best;
    by__sharding sharding; /* of the best */
    double cost;
} by__shard_choice;

/* The operands of a node with their options. Closed also when this fails. */
by_status by__shard_choice_open(by__shard_choice *c, const by__sharder *s, const by__node *node,
                                by_error *error);
void by__shard_choice_close(by__shard_choice *c);
/* Finds the cheapest: c->best, c->sharding. */
void by__shard_choose(by__shard_choice *c, const by__sharder *s, const by__node *node);
/* Whether the rows of an input are examples, which are divided among the ranks. */
bool by__shard_has_examples(const by__sharder *s, by_value v);
/* Whether an input has an axis of which each rank takes its slice. */
bool by__shard_has_time(const by__sharder *s, by_value v, by__split *split);

#endif
