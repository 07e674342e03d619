/* passes: transformations of graphs. One file a pass; pass_table.c says in which order they run and
 * for which graphs. Passes that programs may call alone are declared in banyan/passes.h.
 *
 * A pass reads and writes only the graph: no devices, no buffers, no configuration. It may mark
 * nodes dead, change operands and append nodes. It ends with by__graph_sort or by__graph_compact,
 * so that the nodes are in an order in which they can run and every value knows its producer.
 *
 * Types: by__pass is a row of the table. by__pass_memory_plan is the result of the memory pass,
 * which does not change the graph: the offset of every activation in one arena.
 *
 * Who owns what: the graph owns all nodes that a pass adds; a memory plan belongs to the caller,
 * and the exec module binds it to buffers.
 *
 * Never put here: op semantics (ops), kernel choice (device), buffers (exec).
 */
#ifndef BY_PASSES_PASSES_H
#define BY_PASSES_PASSES_H

#include "banyan/passes.h"
#include "ops/ops.h"

/* A row of the table (pass_table.c), defined in the pass's own file: how by_passes_run applies
 * it. */
typedef struct by__pass {
    const char *name;    /* the name in `banyan info --after` */
    const char *summary; /* one line */
    unsigned purposes;   /* mask of by_purpose: graphs that the pass is meant for */
    by_status (*apply)(by_graph *graph, const by_pass_options *options, by_error *error);
} by__pass;

extern const by__pass by__pass_precision, by__pass_gradients, by__pass_shard,
    by__pass_rematerialize;
extern const by__pass by__pass_quantise_frozen, by__pass_synchronise;
extern const by__pass by__pass_recompute, by__pass_layout, by__pass_fuse, by__pass_order;
extern const by__pass by__pass_overlap;
extern const by__pass by__pass_gather, by__pass_narrow, by__pass_observe, by__pass_pack;

/* Sets needed[value_count] for floating-point values that depend on a parameter that is not frozen
 * (frozen_too: on any parameter), and so have gradients. */
void by__pass_gradients_needed(const by_graph *graph, bool frozen_too, bool *needed);

/* Applies the passes of the table for `purpose` that come after `pass`. For trials: the graph is
 * not verified. */
by_status by__passes_run_after(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                               const by__pass *pass, by_error *error);

/* Sums the seconds that the nodes from `first` on take at these speeds, by estimate. */
by_status by__pass_graph_seconds(double *sum, const by_graph *graph, size_t first,
                                 const by_speeds *speeds, by_error *error);

/* Makes the node of `made` produce `value` instead. */
void by__pass_graph_replace(by_graph *graph, by_value made, by_value value);
/* Drops nodes that no output, gradient or in-place update depends on. */
by_status by__pass_graph_prune(by_graph *graph, by_error *error);
/* Moves the nodes after the first `old_nodes`, which were appended there, to their places: the i-th
 * of them goes before node place[i]. `place` is ascending; old_nodes means that it stays at the
 * end. */
by_status by__pass_graph_place(by_graph *graph, const size_t *place, size_t old_nodes,
                               by_error *error);

/* Where the activations of a graph are while its nodes run in order. */
typedef struct by__pass_memory_plan {
    size_t *offset; /* a value's byte offset in the arena; SIZE_MAX: it is not there */
    /* The value whose memory a value uses: itself, or one that it shares. An activation that
     * becomes an output in place uses the output's bound buffer. */
    by_value *owner;
    size_t bytes;       /* size of the arena */
    size_t lower_bound; /* most bytes alive at once: no plan of this order is smaller */
    size_t peak_node;   /* a node at which they are alive */
    size_t in_place;    /* outputs that reuse the memory of an operand */
} by__pass_memory_plan;

/* Plans memory: liveness, in-place reuse, then offsets, multiples of `unit`, over lifetime
 * intervals by the better of two offline strategies (largest first, earliest first). Freed with
 * by__pass_memory_plan_free. */
by_status by__pass_memory_plan_make(by__pass_memory_plan *out, const by_graph *graph, size_t unit,
                                    by_error *error);
void by__pass_memory_plan_free(by__pass_memory_plan *plan);
/* Sets *fits to whether the plan's arena has at most `limit` bytes, and *bytes to its size. Without
 * `bytes` (NULL) only as much is planned as the answer needs. The graph is not verified. */
by_status by__passes_arena_fits(bool *fits, size_t *bytes, const by_graph *graph, size_t unit,
                                size_t limit, by_error *error);
/* Computes the most bytes of activations alive at once when the nodes run in the given order. */
by_status by__pass_peak_bytes(size_t *out, const by_graph *graph, by_error *error);

#endif
