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
 * Parts of the record: trainer_shard.h (divided state), trainer_sync.h (rare exchanges),
 * gradient_norm.h, guard.h, activation_values.h; strategy.h has the tables of what is done in one
 * of several ways. */
#ifndef BY_TRAINER_STATE_TRAINER_H
#define BY_TRAINER_STATE_TRAINER_H

#include "base/sum_tree.h"
#include "nn/nn.h"
#include "store/store.h"
#include "trainer/state/gradient_norm.h"
#include "trainer/state/guard.h"
#include "trainer/state/reducer.h"
#include "trainer/state/strategy.h"
#include "trainer/state/train.h"
#include "trainer/state/trainer_shard.h"
#include "trainer/state/trainer_sync.h"

/* An input of the model's programs that comes from the batch. It has the same offset in the
 * device's input buffer and in each staging buffer of the host. */
typedef struct by__trainer_feed {
    const char *name; /* owned by the graph */
    by_dtype dtype;
    by_shape shape; /* of one micro-batch */
    size_t offset;
    size_t bytes;
} by__trainer_feed;

#define BY__STAGES     2 /* staging buffers: one is filled while another is copied */
#define BY__MAX_STATES (BY_MAX_STATES + 2) /* and two for exchanges */
#define BY__MAX_SETS   BY__SUM_TREE_NODES

/* A submitted step: what the host needs to read its results. */
typedef struct by__trainer_pending {
    by_step_result result;  /* complete except for loss and norm */
    double weight;          /* of the targets of the global batch */
    int64_t batch;          /* number of examples in it */
    by__device_event *read; /* set when its results are in pinned memory */
} by__trainer_pending;

/* Seconds since the trainer was opened, as in by_step_result. */
typedef struct by__trainer_spent {
    double exchange;
    double exposed;
} by__trainer_spent;

/* State of multi-rank jobs. Everything is NULL and 0 in a job of one rank. */
typedef struct by__trainer_ranks {
    by_comm *all; /* owned by the caller */
    by_mesh *mesh;
    by__exec_mesh_collectives *collectives; /* used by the programs' graphs */
    by_comm *peers;  /* ranks that compute other micro-batches of a step; owned by the mesh */
    by_comm *adders; /* ranks whose gradients are summed; owned by the mesh */
    by__trainer_reducer *reducer;
    float *held[BY__SUM_TREE_NODES + 1]; /* gradient sets with the partial sums of this rank */
    by__trainer_bucket *buckets;
    size_t bucket_count;
    size_t *counts;           /* micro-batches of each peer */
    double late;              /* seconds of exchanges on a separate thread (trainer_late.c), */
    double stood;             /* and of waiting for them */
    by__trainer_spent before; /* by__trainer_ranks_spent at the beginning of the current step */
} by__trainer_ranks;

typedef struct by__trainer_pipe by__trainer_pipe;
typedef struct by__offload by__offload;
typedef struct by__trainer_layer_norms by__trainer_layer_norms;
typedef struct by__trainer_activations by__trainer_activations;
typedef struct by__trainer_sampler by__trainer_sampler;
typedef struct by__trainer_teacher by__trainer_teacher;

struct by_trainer {
    const by_config *config;
    const by_task *task;
    by_device *device;
    bool owns_device;
    const by__trainer_strategy *strategy;
    const by__trainer_summation *summation;
    const by__trainer_updater *updater;
    by__exec_program_set programs;
    by__exec_program_row *gradients; /* rows of the set; NULL if there is no such program */
    by__exec_program_row *last;      /* for a rank's last micro-batch, with collectives */
    by__exec_program_row *loss;
    by__exec_program_row *sum; /* only with two or more gradient sets */
    by__exec_program_row *norm;
    by__exec_program_row *update;
    by__exec_program_row *copy;       /* only if programs compute in a narrower format than f32 */
    by__exec_program_row *average[3]; /* its step, its swap with the weights, and the way back */
    by_model model;
    const by_graph *parameters; /* lists the parameters that this rank holds */
    const by_graph *forward;    /* the whole model and its loss */
    const by_graph *whole;      /* the same with the backward pass, if there is one */
    int stages;                 /* that the model is cut into; 1: this rank has all of it */
    const int *stage_of;        /* of each parameter of t->whole, that trains it; NULL: one stage */
    by__trainer_pipe *pipe;     /* this rank's stages; NULL: the whole model */
    by__trainer_teacher *teacher; /* NULL: there is none */
    by__store *store;
    int masters; /* flat buffers of the store; -1: none */
    int copies;
    int gradient_sets[BY__MAX_SETS];
    int states[BY__MAX_STATES];
    int sets;
    int state_count;
    by_update_unit groups[BY__GROUPS]; /* groups that have entries, trained ones first */
    int group_of_unit[BY__GROUPS];
    size_t group_count;
    size_t trained_groups;
    /* The units of the update if they are not the groups: tensors, if the optimizer needs whole
     * ones, or this rank's slices. */
    by_update_unit *tensors;
    size_t tensor_count;
    /* slices that these units are; NULL: whole tensors, or this rank's own slices */
    by__trainer_slice *pieces;
    by__trainer_feed *feeds;
    size_t feed_count;
    size_t feed_capacity;
    /* feeds, rng and loss scale: bytes copied to the device for a micro-batch */
    size_t input_bytes;
    size_t evaluated_bytes; /* of the values read by evaluation; 0: none */
    size_t rng_offset;
    size_t seed_offset;
    by_memory inputs;
    by_memory outputs; /* norm, clip factor, loss of a micro-batch, losses of all; "hyper" */
    /* BY__STAGES buffers of inputs; results and "hyper" for each step in flight. */
    by_pinned staging;
    by__device_event *copied[BY__STAGES]; /* reached when a staging buffer may be filled again */
    by__device_event *computed;           /* reached when the device's inputs may be overwritten */
    by__trainer_pending
        pending[BY_STEPS_AHEAD]; /* ring of steps that were submitted and not collected */
    unsigned submitted;          /* steps submitted so far */
    unsigned collected;
    unsigned fed;           /* micro-batches so far: selects the next staging buffer */
    double own_weight;      /* of the targets in this replica's part of the current batch */
    double gradient_weight; /* of the batch whose gradients by_trainer_gradients left */
    by_memory_report memory;
    by_speeds speeds;
    size_t arena_bytes; /* limit on activations (memory.budget); 0: none */
    by_model_size size;
    by__trainer_layout layout;
    int zero; /* what ranks of `shard` divide: 1: states, 2: gradients, 3: parameters; 0: nothing */
    by__trainer_ranks ranks;
    by__trainer_sync sync;
    by__trainer_shard shard;
    by__trainer_gradient_norm divided_norm; /* {0} if this rank has all sums of gradients */
    by__offload *offload;                   /* NULL: everything is in memory */
    by__trainer_layer_norms *norms;         /* NULL: tensors are not recorded */
    by__trainer_activations *activations;   /* NULL: activations are not measured */
    by__trainer_sampler *sampler;           /* NULL: this rank samples no texts */
    void (*before_change)(void *user);      /* called before saved state changes; NULL: none */
    void *before_user;
    by__trainer_guard guard;
    by__trainer_node_watch *watch; /* NULL: nodes were not watched so far */
    by__trainer_replay *replay;    /* NULL: no step was replayed so far */
    by__trainer_abft *abft;        /* NULL: products are not checked */
    int64_t leaf;                  /* micro-batch of the step on which programs last ran */
    int64_t most_micro_batches;    /* of a step of train.batch, over all ranks, */
    int64_t all_micro_batches;     /* and of the current step (train.batch_warmup) */
    int64_t first_micro_batch;     /* first micro-batch of this rank */
    int64_t micro_batches;         /* number of its micro-batches, consecutive or in turn */
    int64_t first_leaf;            /* index of the first one in its sum tree, which has `leaves` */
    int64_t leaves;
    int64_t updates;
    int threads;   /* host threads for conversions */
    int bound_set; /* gradient set that the gradient program writes */
    int last_set;  /* the same for the program of the last micro-batch */
    int sum_set;   /* set that holds the sum of the last batch */
};

/* Builds one of the graphs that follow the gradients. */
typedef by_status by__trainer_update_builder(const by_trainer *t, by_graph *graph, by_error *error);

/* ---- trainer_units.c ---- */

/* The update unit for `shape` elements of a group. */
by_update_unit by__trainer_unit(const by_trainer *t, const char *name, by_shape shape, int group);
/* The same for a whole tensor, or this rank's part of one. */
by_update_unit by__trainer_tensor_unit(const by_trainer *t, const char *name,
                                       const by__store_tensor *entry);
/* Random bits of a tensor's elements are derived from its name, so that every rank rounds an
 * element alike. Parts of a split tensor share random bits, because what they keep of the whole
 * (Adafactor's factors) must stay equal. */
void by__trainer_set_random(const by_trainer *t, by_update_unit *unit,
                            const by__store_tensor *entry, int64_t first);

/* ---- trainer_memory.c ---- */

/* BY_ESTATE before by_trainer_allocate, and with `training` for a trainer that only computes
 * losses. */
by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error);
/* Memory of group `unit` in a flat buffer. */
by_memory by__trainer_group(const by_trainer *t, int flat, size_t unit);
/* Memory of all trained groups in a flat buffer, where they are contiguous. */
by_memory by__trainer_flat(const by_trainer *t, int flat);
/* The same for a gradient set. */
by_memory by__trainer_set(const by_trainer *t, int set);
/* The units that are updated one by one: tensors if the optimizer needs whole ones, this rank's
 * slices if ranks divide the state, else groups; and the memory of a unit in a flat buffer. */
const by_update_unit *by__trainer_update_units(const by_trainer *t, size_t *count);
by_memory by__trainer_unit_memory(const by_trainer *t, int flat, size_t i);
/* Binds norm and update to the set that holds the sum. */
by_status by__trainer_bind_sum(by_trainer *t, int set, by_error *error);

/* ---- trainer_feed.c ---- */

/* Lists the inputs that come from the batch and lays out inputs, outputs and staging. */
by_status by__trainer_plan_feeds(by_trainer *t, by_error *error);
/* Bytes of these, on the device and pinned on the host. */
uint64_t by__trainer_feed_bytes(const by_trainer *t);
/* Allocates them and binds all programs. */
by_status by__trainer_open_feeds(by_trainer *t, by_error *error);
void by__trainer_close_feeds(by_trainer *t);
/* Binds what every update reads besides tensors; the row may be NULL. */
by_status by__trainer_bind_update(by_trainer *t, by__exec_program_row *row, by_error *error);
/* Sends micro-batch `index` of a batch of `examples` to the device and submits the program of `row`
 * on it. Its loss is stored at index `kept_as`: that of the micro-batch in the step, or
 * t->most_micro_batches for an evaluation, which leaves the losses of a step unchanged. */
by_status by__trainer_feed_micro_batch(by_trainer *t, by__exec_program_row *row,
                                       const by_batch *batch, int64_t examples, int64_t index,
                                       int64_t kept_as, by_error *error);
/* Results read back from the device. */
typedef struct by__trainer_results {
    float norm;
    float failed;        /* not 0: this or an earlier step was vetoed, and nothing was changed */
    const float *losses; /* for each micro-batch of the step */
} by__trainer_results;

/* The losses of all micro-batches, then that of an evaluation, if device memory is host memory. */
float *by__trainer_losses(const by_trainer *t);
/* Results of the last evaluation for the task's metrics. */
by_memory by__trainer_evaluated(const by_trainer *t);

/* Submits the copy of the results of slot `slot` (step number modulo BY_STEPS_AHEAD) to pinned
 * memory, and records pending[slot].read. */
by_status by__trainer_fetch(by_trainer *t, unsigned slot, by_error *error);
/* Waits for that copy. */
by_status by__trainer_wait_results(by_trainer *t, unsigned slot, by__trainer_results *out,
                                   by_error *error);
/* Submits the copy of the evaluated values; call before by__trainer_fetch, whose event covers
 * it. */
by_status by__trainer_fetch_evaluated(by_trainer *t, const float **out, by_error *error);
/* Submits the hyper-parameters of the next update. */
by_status by__trainer_send_hyper(by_trainer *t, unsigned slot, const float *hyper, by_error *error);
/* Vetoes the next submitted update, and those after it. */
by_status by__trainer_veto(by_trainer *t, by_error *error);
/* Sets the losses of micro-batches that a step does not have to 0. */
by_status by__trainer_clear_losses(by_trainer *t, by_error *error);
/* Enables updates again after a failed step. Nothing may be in flight. */
by_status by__trainer_reset_failure(by_trainer *t, by_error *error);
/* ---- step_losses.c ---- */

/* Weight of the targets of a batch, of all ranks or of this one's part: their number, unless they
 * have weights. */
double by__trainer_weight(const by_batch *batch, bool all);
/* Mean loss of a step, from the losses of its micro-batches. */
double by__trainer_mean_loss(const by_trainer *t, const float *losses, double weight);

/* ---- ranks_parts.c ---- */

/* Index in the step of this rank's i-th micro-batch. */
int64_t by__trainer_leaf(const by_trainer *t, int64_t i);
/* Number of replicas whose gradients are summed at every step, which are consecutive: all, or
 * (section sync) the ranks of `shard`. A sum tree covers their micro-batches. */
int by__trainer_ranks_members(const by_trainer *t);
/* The micro-batches that the replicas of a sum compute together, and those of one replica. */
by__trainer_leaves by__trainer_sum_leaves(const by_trainer *t, int replica);
by__trainer_leaves by__trainer_replica_leaves(const by_trainer *t, int replica);
/* Number of ranks of `sequence` that keep their own addends to the gradients of a step's
 * micro-batches; 1: the addends are summed for each micro-batch. */
int by__trainer_ranks_parts(const by_trainer *t);
/* Number of ranks whose gradients are summed, with other micro-batches or another part of them, and
 * the set of mesh axes in which they differ. */
int by__trainer_ranks_adders(const by_trainer *t);
unsigned by__trainer_ranks_adding_axes(const by_trainer *t);

/* Number of elements of a group, including padding between its entries. */
int64_t by__trainer_group_elements(const by__store *store, int group);

/* Returns true if there is a moving average of the weights (optimizer.ema). */
bool by__trainer_has_average(const by_trainer *t);

/* ---- stage_parameters.c ---- */

/* The stage that trains a parameter, or the first that reads it if none does; and its rank along
 * `pipeline`. */
int by__trainer_stage_of(const by_trainer *t, const char *parameter);
int by__trainer_holder_of(const by_trainer *t, const char *parameter);
/* Lists the parameters that a rank of the pipeline trains, stage by stage, and the frozen ones
 * there. */
by_status by__trainer_list_trained(by_graph **out, const by_trainer *t, int rank, by_error *error);
/* Adds a parameter to such a list, if it is not there. */
by_status by__trainer_list_parameter(by_graph *list, const by__graph_value *value, bool frozen,
                                     by_error *error);

/* ---- activation_values.c (activation_values.h) ---- */

/* Keeps what that program measured, if config.track asks for it. Called after the program of `row`
 * was submitted on this rank's i-th micro-batch of a step. */
by_status by__trainer_activations_keep(by_trainer *t, const by__exec_program_row *row, int64_t i,
                                       by_error *error);

#endif
