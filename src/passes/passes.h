/* passes: graph -> graph. One file a pass, one table (pass_table.c) that says in which order they
 * run and for which graphs; those that programs may call alone are in banyan/passes.h.
 *
 * A pass reads and writes only the graph: no devices, no buffers, no configuration. It may mark
 * nodes dead, change operands and append nodes, and ends with by__graph_sort or by__graph_compact
 * so that the node list is an order in which the nodes can run and every value knows its producer.
 *
 * The memory pass does not change the graph: it computes a by__memory_plan, the offsets of every
 * activation in one arena, which the exec room binds.
 *
 * Never put here: op semantics (ops), kernel choice (device), buffers (exec).
 */
#ifndef BY_PASSES_PASSES_H
#define BY_PASSES_PASSES_H

#include "banyan/passes.h"
#include "ops/ops.h"

/* A row of the table (pass_table.c): how by_passes_run applies a pass. Each pass defines its
 * own. */
typedef struct by__pass {
    const char *name;    /* as `banyan info --after` knows it */
    const char *summary; /* one line */
    unsigned purposes;   /* of by_purpose: graphs that it is meant for */
    by_status (*apply)(by_graph *graph, const by_pass_options *options, by_error *error);
} by__pass;

extern const by__pass by__pass_precision, by__pass_gradients, by__pass_shard,
    by__pass_rematerialize;
extern const by__pass by__pass_recompute, by__pass_layout, by__pass_fuse, by__pass_order;
extern const by__pass by__pass_overlap;
extern const by__pass by__pass_gather, by__pass_narrow, by__pass_observe, by__pass_pack;

/* Which values have a gradient, needed[value_count]: those that a parameter feeds that is not
 * frozen (frozen_too: any), but whole numbers have none. */
void by__gradients_needed(const by_graph *graph, bool frozen_too, bool *needed);

/* Applies those passes of the table for `purpose` that stand behind `pass`, and verifies. */
by_status by__passes_run_behind(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                                const by__pass *pass, by_error *error);

/* Seconds that a node takes at these speeds: of its operations or of its bytes, whichever are
 * more. */
double by__node_seconds(const by__cost *cost, const by__op_row *row, by_dtype dtype,
                        const by_speeds *speeds);
/* Sum of them from node `first` on. */
by_status by__graph_seconds(double *sum, const by_graph *graph, size_t first,
                            const by_speeds *speeds, by_error *error);

/* Drops nodes that no output, gradient or in-place update depends on. */
by_status by__graph_prune(by_graph *graph, by_error *error);
/* Moves the nodes behind the first `old_nodes`, copies that stand at the end, to their places:
 * place[i], ascending, is the node that the i-th of them goes before; old_nodes: it stays at the
 * end. */
by_status by__graph_place(by_graph *graph, const size_t *place, size_t old_nodes, by_error *error);

/* Where the activations of a graph are when its nodes run in order. */
typedef struct by__memory_plan {
    size_t *offset; /* a value's byte offset in the arena; SIZE_MAX for one that has none */
    /* the value whose memory it uses: itself, or one that it shares in place; an activation that an
     * output takes over is in the output's bound buffer */
    by_value *owner;
    size_t bytes;       /* size of the arena */
    size_t lower_bound; /* most bytes alive at once: no plan of this order is smaller */
    size_t peak_node;   /* node at which they are */
    size_t in_place;    /* outputs that reuse an operand's memory */
} by__memory_plan;

/* Plans memory: liveness, in-place reuse, then offsets by the better of two offline strategies
 * (largest first, earliest first) over lifetime intervals. Released with by__memory_plan_free. */
by_status by__memory_plan_make(by__memory_plan *out, const by_graph *graph, by_error *error);
void by__memory_plan_free(by__memory_plan *plan);
/* Most bytes of activations alive at once if the nodes ran in the given order. */
by_status by__peak_bytes(size_t *out, const by_graph *graph, by_error *error);

#endif
