/* Looks at what every node of a trainer's programs has read and written, through their hooks. */
#ifndef BY_TRAIN_WATCH_H
#define BY_TRAIN_WATCH_H

#include "train/trainer.h"

/* A node has run: its operands and results are in the host's memory. Not called for nodes that run
 * beside others (collectives). */
typedef void by__node_watcher(void *user, const by__program_row *row, size_t node,
                              const by__call *call);

/* Who may look, each at the same time as the others. */
typedef enum by__node_watch_slot {
    BY__WATCH_FIND,
    BY__WATCH_REPLAY,
    BY__WATCH_ABFT,
    BY__WATCH_SLOTS
} by__node_watch_slot;

/* Nobody looks at first, and hooks are set while anybody does. call NULL: no more. */
by_status by__node_watch_set(by_trainer *t, by__node_watch_slot slot, by__node_watcher *call,
                             void *user, by_error *error);

/* "layer_norm of block 2 in the forward pass, node 17 (h.2.ln_1.weight)": a node of the row, with
 * the first named value that it makes or reads; cut at `size` bytes. */
void by__node_watch_describe(const by__program_row *row, size_t node, char *text, size_t size);

#endif
