/* optim: optimizers and learning-rate schedules, as graphs. optimizers.c has the table of optimizers
 * and what they share, one file each has the rest.
 *
 * An optimizer declares its keys (config/kind.h), the states it keeps for each parameter, and the
 * update of one unit (a tensor or a flat block of tensors) as nodes of a graph. Memory plan, sharding,
 * checkpoint and resume follow from the declared states.
 *
 * Adding an optimizer: its file, a row in optimizers.c, its test.
 *
 * Never put here: buffers, loops over steps, reductions between ranks. Those are programs.
 */
#ifndef BY_OPTIM_OPTIM_H
#define BY_OPTIM_OPTIM_H

#include "banyan/optimizer.h"
#include "config/kind.h"
#include "ops/ops.h"

/* What the update of one unit reads and writes. */
typedef struct by__update {
    const by_update_unit *unit;
    by_value parameter;            /* f32, updated in place */
    by_value gradient;             /* f32, before clipping: `scale` times this is what counts */
    by_value state[BY_MAX_STATES]; /* f32, updated in place; BY_NONE where the unit has none */
    by_value hyper;                /* f32 [BY_HYPER_COUNT] */
    by_value scale;                /* f32 [1] */
    float decay;                   /* weight decay of this unit */
} by__update;

typedef struct by__optimizer {
    by__kind kind; /* name and keys */
    const by_optimizer_state *states;
    int state_count;
    bool needs_tensors; /* a unit is always one tensor, in its shape */
    /* Adds the nodes that update a unit. Returns the value of its copy (BY_NONE when unit->copy is
     * BY_F32). `own` is the struct of the kind's keys. */
    by_value (*update)(by_graph *graph, const by__update *u, const void *own);
    /* Fills hyper[1] and the following, which are zero when called; hyper[0] is the learning rate.
     * May be NULL. */
    void (*hyper)(float hyper[BY_HYPER_COUNT], const void *own, int64_t step);
} by__optimizer;

/* The kinds of the section `optimizer`, for by__kind_table. */
const by__kind *by__optimizer_kind(size_t index);

#endif
