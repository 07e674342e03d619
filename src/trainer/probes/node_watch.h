/* Observes the operands and results of every node of a trainer's programs through their hooks. */
#ifndef BY_TRAINER_PROBES_NODE_WATCH_H
#define BY_TRAINER_PROBES_NODE_WATCH_H

#include "trainer/state/trainer.h"

/* Called after a node has run, with its operands and results in host memory: on a device with
 * memory of its own they are copies, and nodes run one by one while there is an observer. Not
 * called for nodes that run concurrently with others (collectives). */
typedef void by__trainer_node_watcher(void *user, const by__exec_program_row *row, size_t node,
                                      const by__device_call *call);

/* Independent observers, which may be active at the same time. */
typedef enum by__trainer_node_watch_slot {
    BY__WATCH_FIND,
    BY__WATCH_REPLAY,
    BY__WATCH_ABFT,
    BY__WATCH_SLOTS
} by__trainer_node_watch_slot;

/* Sets or (call NULL) removes an observer. Hooks are installed only while there is one. */
by_status by__trainer_node_watch_set(by_trainer *t, by__trainer_node_watch_slot slot,
                                     by__trainer_node_watcher *call, void *user, by_error *error);

/* The first failure to copy operands back since the observer was set. */
by_status by__trainer_node_watch_failure(const by_trainer *t, by_error *error);

/* Describes a node by the first named value that it writes or reads: "layer_norm of block 2 in the
 * forward pass, node 17 (h.2.ln_1.weight)"; truncated to `size` bytes. */
void by__trainer_node_watch_describe(const by__exec_program_row *row, size_t node, char *text,
                                     size_t size);

#endif
