/* Shared by the files of by_pass_shard: the state of the pass, the nodes that convert a value from
 * one split to another (shard_convert.c), and the choice of splits (shard_choice.c).
 *
 * Never put here: what an op does with a split operand, which its row defines.
 */
#ifndef BY_PASSES_SHARD_H
#define BY_PASSES_SHARD_H

#include "passes/passes.h"

#define BY__SHARD_PHASES 3

typedef struct by__pass_sharder {
    by_graph *graph;
    by_shard_kind kind;
    const by_shard_axis *axis;
    size_t value_count; /* in the graph before the pass */
    size_t node_count;
    int64_t groups;         /* expert: sections of rows that are cut within each group */
    by__graph_type *whole;  /* of each of these values: its unsplit type */
    by__graph_split *split; /* its present split */
    by__graph_split *want;  /* the split that its readers prefer */
    by_value *now;          /* the value with the present split: itself, or its replacement */
    /* The gathered copy of a value made in this phase. The backward pass gathers again, because
     * keeping the copy would take the memory that splitting saves. */
    by_value *gathered[BY__SHARD_PHASES];
} by__pass_sharder;

/* Returns true for grouped rows [groups, rows, ...] split within each group and by groups, if an
 * all-to-all converts one into the other. */
bool by__pass_shard_exchanges(const by__pass_sharder *s, const by_shape *whole,
                              by__graph_split from, by__graph_split to);
/* Returns value v of the original graph split as `to`, adding nodes if there is no such value
 * yet. */
by_value by__pass_shard_form(by__pass_sharder *s, by_value v, by__graph_split to);
/* Adds the nodes that convert a value from split `from` to split `to`. */
by_value by__pass_shard_convert(by__pass_sharder *s, by_value value, const by_shape *whole,
                                by__graph_split from, by__graph_split to);

/* ---- shard_choice.c ---- */

#define BY__SHARD_OPTIONS 4
#define BY__TIME_AXIS     "time"

/* A split in which an operand can be supplied, and the bytes that it costs. */
typedef struct by__pass_shard_option {
    by__graph_split split;
    double cost;
} by__pass_shard_option;

/* The search over the operands of one node. */
typedef struct by__pass_shard_choice {
    by__graph_type *in;
    by__graph_type out[BY_MAX_OUTPUTS];
    by__pass_shard_option (*options)[BY__SHARD_OPTIONS];
    int *option_count;
    int *taken;
    by__graph_split *split; /* the operands' splits being tried */
    by__graph_split *best;
    by__op_sharding sharding; /* of the best ones */
    double cost;
} by__pass_shard_choice;

/* Lists the options of a node's operands. The choice must be closed even if this fails. */
by_status by__pass_shard_choice_open(by__pass_shard_choice *c, const by__pass_sharder *s,
                                     const by__graph_node *node, by_error *error);
void by__pass_shard_choice_close(by__pass_shard_choice *c);
/* Finds the cheapest combination: c->best, c->sharding. */
void by__pass_shard_choose(by__pass_shard_choice *c, const by__pass_sharder *s,
                           const by__graph_node *node);
/* Returns true if the rows of an input are examples, which are divided among the ranks. */
bool by__pass_shard_has_examples(const by__pass_sharder *s, by_value v);
/* Returns true if an input has an axis of which each rank takes a slice. */
bool by__pass_shard_has_time(const by__pass_sharder *s, by_value v, by__graph_split *split);

#endif
