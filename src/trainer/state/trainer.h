/* trainer/state: the record of by_trainer and its parts, with what only reads it or moves bytes in
 * it: accessors, predicates, memory, the feed of inputs and results. What acts on it is in the
 * folders above, each with a header of its functions, and calls run down this list alone:
 *
 *   plan/      plans within a number of bytes
 *   step/      opens, lays out and allocates a trainer, loads weights, takes steps
 *   offload/   the optimizer's state on disk
 *   pipeline/  a rank that holds some stages of the model
 *   probes/    guards against steps that must not be applied, statistics, sampled texts
 *   exchange/  sums over ranks, divided state (ZeRO), exchanges that are compressed or rare
 *   graphs/    the graphs and programs of the model
 *
 * Each part of the record has one owner, who writes it, and a header of its own:
 *
 *   model_programs.h  graphs and programs      the ways of training (strategy.h)
 *   flats.h           flat buffers, units      step/trainer_layout.c
 *   feed.h            inputs and results       state/trainer_feed.c
 *   steps.h           steps under way          step/trainer_steps.c
 *   ranks.h           ranks, micro-batches     exchange/trainer_ranks.c
 *   trainer_shard.h   divided state            exchange/trainer_shard.c
 *   trainer_sync.h    rare exchanges           exchange/trainer_sync.c
 *   gradient_norm.h   the norm of gradients    exchange/gradient_norm.c
 *   probed.h          guards, statistics       probes/ */
#ifndef BY_TRAINER_STATE_TRAINER_H
#define BY_TRAINER_STATE_TRAINER_H

#include "nn/nn.h"
#include "store/store.h"
#include "trainer/state/feed.h"
#include "trainer/state/flats.h"
#include "trainer/state/gradient_norm.h"
#include "trainer/state/model_programs.h"
#include "trainer/state/probed.h"
#include "trainer/state/ranks.h"
#include "trainer/state/steps.h"
#include "trainer/state/strategy.h"
#include "trainer/state/train.h"
#include "trainer/state/trainer_shard.h"
#include "trainer/state/trainer_sync.h"

typedef struct by__trainer_pipe by__trainer_pipe;
typedef struct by__offload by__offload;
typedef struct by__trainer_teacher by__trainer_teacher;

/* Set when the trainer is opened. */
typedef struct by__trainer_planned {
    by_memory_report memory;
    by_model_size size;
    by_speeds speeds;
    size_t arena_bytes; /* limit on activations (memory.budget); 0: none */
} by__trainer_planned;

/* Called before saved state changes; NULL: nothing is. */
typedef struct by__trainer_before_change_hook {
    void (*call)(void *user);
    void *user;
} by__trainer_before_change_hook;

struct by_trainer {
    const by_config *config;
    const by_task *task;
    by_device *device;
    bool owns_device;
    int threads; /* host threads for conversions */
    const by__trainer_strategy *strategy;
    const by__trainer_summation *summation;
    const by__trainer_updater *updater;
    by__trainer_planned plan;
    by__exec_program_set programs;
    by__trainer_model model;
    by__trainer_update update;
    by__store *store;
    by__trainer_flats flats;
    by__trainer_units units;
    by__trainer_feeds feed;
    by__trainer_steps steps;
    by__trainer_layout layout;
    by__trainer_part part;
    by__trainer_ranks ranks;
    by__trainer_sync sync;
    by__trainer_shard shard;
    by__trainer_gradient_norm norm;
    by__trainer_probes probes;
    by__trainer_pipe *pipe;       /* this rank's stages; NULL: the whole model */
    by__trainer_teacher *teacher; /* NULL: there is none */
    by__offload *offload;         /* NULL: everything is in memory */
    by__trainer_before_change_hook before_change;
};

#endif
