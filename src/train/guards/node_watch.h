/* Looks at what every node of a trainer's programs has read and written, through their hooks. */
#ifndef BY_TRAIN_WATCH_H
#define BY_TRAIN_WATCH_H

#include "train/trainer.h"

/* A node has run: its operands and results are in the host's memory. Not called for nodes that run
 * beside others (collectives). */
typedef void by__watcher(void *user, const by__program_row *row, size_t node, const by__call *call);

typedef struct by__watched by__watched;

typedef struct by__watch {
    by__watcher *call;
    void *user;
    by__watched *rows;
    size_t count;
} by__watch;

by_status by__watch_begin(by__watch *watch, by_trainer *t, by__watcher *call, void *user,
                          by_error *error);
/* {0} is accepted. */
void by__watch_end(by__watch *watch);

/* "layer_norm of block 2 (h.2.ln_1.weight)": a node of the row, with the first named value that it
 * makes or reads; cut at `size` bytes. */
void by__watch_describe(const by__program_row *row, size_t node, char *text, size_t size);

#endif
