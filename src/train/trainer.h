/* The inside of by_trainer, shared by trainer.c (programs, plan), trainer_layout.c (what is
 * stored), trainer_memory.c (memory, what programs are bound to), trainer_feed.c (inputs and
 * results), trainer_steps.c (steps), trainer_loaders.c (data), trainer_weights.c (initial values,
 * loading, views), and
 *
 *   trainer_ranks.c    what ranks do together; gradient_buckets.c: ranges of gradients that they
 *                      add up; trainer_overlap.c: sums beside the backward pass
 *   gradient_norm.c    the norm of gradients of which ranks have parts
 *   trainer_shard.c    ZeRO: slices; shard_gradients.c and shard_parameters.c: stages 2 and 3;
 *                      divided_slices.c: slices as checkpoints have them
 *   trainer_sync.c     exchanges that are compressed or not made at every step; trainer_late.c:
 *                      those that run while steps are taken; trainer_settle.c: equal ranks
 *   trainer_offload.c  the optimizer's state on disk; offload_windows.c: its transfers
 *   trainer_average.c  the moving average of the weights
 *   trainer_flops.c    the FLOPs of training
 *   trainer_budget.c   a plan within a number of bytes, and the time of its step
 *   layer_norms.c      norms and histograms of single tensors
 *   activations.c      statistics of the outputs of blocks
 *   sampler.c          texts that the model continues
 *   teacher.c          a model that the student learns from
 *   pipeline/          a rank that holds some stages of the model
 *   guards/            steps that are not applied */
#ifndef BY_TRAIN_TRAINER_H
#define BY_TRAIN_TRAINER_H

#include "base/sum_tree.h"
#include "nn/nn.h"
#include "store/store.h"
#include "train/gradient_norm.h"
#include "train/guards/guard.h"
#include "train/reducer.h"
#include "train/train.h"
#include "train/trainer_shard.h"
#include "train/trainer_sync.h"

/* An input of the model's programs that comes from the batch. Its bytes have the same place in the
 * device's buffer of inputs and in each staging buffer of the host. */
typedef struct by__feed {
    const char *name; /* the graph's */
    by_dtype dtype;
    by_shape shape; /* of a micro-batch */
    size_t offset;
    size_t bytes;
} by__feed;

#define BY__STAGES     2 /* staging buffers: one is filled while the other is copied */
#define BY__MAX_STATES (BY_MAX_STATES + 2) /* and two of exchanges */
#define BY__MAX_SETS   BY__SUM_TREE_NODES

/* A step that was submitted: what the host must know to read its results. */
typedef struct by__pending {
    by_step_result result; /* but for loss and norm */
    uint64_t targets;      /* of the global batch */
    int64_t batch;         /* examples of it */
    by__event *read;       /* its results are in pinned memory */
} by__pending;

/* Seconds since the trainer was opened, as in by_step_result. */
typedef struct by__spent {
    double exchange;
    double exposed;
} by__spent;

/* Other ranks. Everything is NULL and 0 in a job of one. */
typedef struct by__ranks {
    by_comm *all; /* the caller's */
    by_mesh *mesh;
    by__mesh_collectives *collectives; /* of the programs' graphs */
    by_comm *peers;                    /* that compute other micro-batches of a step; of the mesh */
    by_comm *adders;                   /* whose gradients are added up; of the mesh */
    by__reducer *reducer;
    float *held[BY__SUM_TREE_NODES + 1]; /* gradient sets with the sums that this rank holds */
    by__bucket *buckets;
    size_t bucket_count;
    size_t *counts;   /* micro-batches of each peer */
    double late;      /* seconds of exchanges by a thread of their own (trainer_late.c), ... */
    double stood;     /* ... and those that this one waited for them */
    by__spent before; /* by__ranks_spent when the present step began */
} by__ranks;

typedef struct by__pipe by__pipe;
typedef struct by__offload by__offload;
typedef struct by__layer_norms by__layer_norms;
typedef struct by__activations by__activations;
typedef struct by__sampler by__sampler;
typedef struct by__teacher by__teacher;

struct by_trainer {
    const by_config *config;
    const by_task *task;
    by_device *device;
    bool owns_device;
    by__program_set programs;
    by__program_row *gradients; /* rows of the set; NULL where there is no such program */
    by__program_row *last;      /* of a rank's last micro-batch, with collectives */
    by__program_row *loss;
    by__program_row *sum; /* only with two gradient sets or more */
    by__program_row *norm;
    by__program_row *update;
    by__program_row *copy; /* only where programs compute in a narrower format than f32 */
    by_model model;
    const by_graph *parameters; /* lists those that this rank holds */
    const by_graph *forward;    /* the whole model and its loss */
    by__pipe *pipe;             /* the stages of a pipeline; NULL: this rank has the whole model */
    by__teacher *teacher;       /* NULL: there is none */
    by__store *store;
    int masters; /* flat buffers of the store; -1: none */
    int copies;
    int gradient_sets[BY__MAX_SETS];
    int states[BY__MAX_STATES];
    int sets;
    int state_count;
    by_update_unit
        groups[BY__GROUPS]; /* the groups that have entries, those that are trained first */
    int group_of_unit[BY__GROUPS];
    size_t group_count;
    size_t trained_groups;
    /* What the update works on where that is not the groups: tensors, where the optimizer needs
     * whole ones, or this rank's slices. */
    by_update_unit *tensors;
    size_t tensor_count;
    by__slice *pieces; /* that these are; NULL: they are whole tensors, or this rank's slices */
    by__feed *feeds;
    size_t feed_count;
    size_t feed_capacity;
    size_t input_bytes;     /* feeds, rng and loss scale: what a micro-batch copies to the device */
    size_t evaluated_bytes; /* of the values that evaluation reads; 0: none */
    size_t rng_offset;
    size_t seed_offset;
    by_memory inputs;
    by_memory outputs; /* norm, clip factor, the loss of a micro-batch, of all; "hyper" */
    /* BY__STAGES buffers of inputs; for each step ahead results and "hyper". */
    by_pinned staging;
    by__event *copied[BY__STAGES];       /* a staging buffer may be filled again */
    by__event *computed;                 /* the device's inputs may be overwritten */
    by__pending pending[BY_STEPS_AHEAD]; /* steps that were submitted and not collected, in turn */
    unsigned submitted;                  /* steps so far */
    unsigned collected;
    unsigned fed;              /* micro-batches so far: which staging buffer is next */
    uint64_t own_targets;      /* of the replica's part of the batch that is computed */
    uint64_t gradient_targets; /* of the batch whose gradients by_trainer_gradients left */
    by_memory_report memory;
    by_speeds speeds;
    size_t arena_bytes; /* that activations may take (memory.budget); 0: any number */
    by_model_size size;
    by__layout layout;
    by__ranks ranks;
    by__sync sync;
    by__shard shard;
    by__gradient_norm divided_norm;    /* {0} where this rank has all sums of gradients */
    by__offload *offload;              /* NULL: everything is in memory */
    by__layer_norms *norms;            /* NULL: nothing is recorded of single tensors */
    by__activations *activations;      /* NULL: nothing is measured of them */
    by__sampler *sampler;              /* NULL: this rank continues no texts */
    void (*before_change)(void *user); /* of what is saved; NULL: nobody is told */
    void *before_user;
    by__guard guard;
    by__node_watch *watch;      /* NULL: nobody has looked at nodes so far */
    by__replay *replay;         /* NULL: no step was computed twice so far */
    by__abft *abft;             /* NULL: products are not checked */
    int64_t leaf;               /* micro-batch of the step that programs were last run on */
    int64_t most_micro_batches; /* of a step of train.batch, over all ranks ... */
    int64_t all_micro_batches;  /* ... and of the present one (train.batch_warmup) */
    int64_t first_micro_batch;  /* this rank computes micro-batches first ... */
    int64_t micro_batches;      /* ... first + count - 1, or so many in turn */
    int64_t first_leaf;         /* of them in its sum tree, which has `leaves` */
    int64_t leaves;
    int64_t updates;
    int threads;   /* of the host, that convert values */
    int bound_set; /* gradient set that the gradient program writes */
    int last_set;  /* the same of the last one's */
    int sum_set;   /* set that holds the last batch's sum */
};

/* What the passes are told for a graph of `model`. */
by_pass_options by__trainer_pass_options(const by_trainer *t, const by_model *model);
/* by_trainer_open of a plan whose activations take at most `arena_bytes` (0: any number), if the
 * passes find one (trainer.c). */
by_status by__trainer_build(by_trainer **out, const by_config *config, const by_trainer_options *o,
                            size_t arena_bytes, by_error *error);
/* by_trainer_open without the other ranks: what this one would choose (trainer_budget.c). */
by_status by__trainer_open_alone(by_trainer **out, const by_config *config,
                                 const by_trainer_options *options, by_error *error);
/* Everything that the run will take, with the loaders, data and staging that are planned later
 * (trainer_budget.c). */
by_status by__trainer_needs(uint64_t *out, by_trainer *t, const by_trainer_options *o,
                            by_error *error);
/* Builds one of the graphs behind the gradients and adds its program. */
typedef by_status by__update_builder(const by_trainer *t, by_graph *graph, by_error *error);
by_status by__trainer_add_update(by_trainer *t, const char *name, by__update_builder *build,
                                 by_error *error);

/* ---- trainer_flops.c ---- */

/* Fills in t->size, but for what is frozen. */
by_status by__trainer_measure(by_trainer *t, const by_trainer_options *o, by_error *error);

/* ---- trainer_layout.c ---- */

/* Declares parameters, the flat buffers of masters, copies, gradient sets and states, and the units
 * of updates. */
by_status by__trainer_lay_out(by_trainer *t, by_error *error);
/* What the update is told of `shape` elements of a group. */
by_update_unit by__trainer_unit(const by_trainer *t, const char *name, by_shape shape, int group);
/* The same of a whole tensor, or of this rank's part of one. */
by_update_unit by__trainer_tensor_unit(const by_trainer *t, const char *name,
                                       const by__stored_tensor *entry);
/* Bytes of gradients and states that frozen parameters do not have; *elements: how many these
 * are. */
uint64_t by__trainer_spared(const by_trainer *t, int64_t *elements);

/* ---- trainer_memory.c ---- */

/* BY_ESTATE before by_trainer_allocate, and for `training` in a trainer that only computes
 * losses. */
by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error);
/* Tells who reads parameters and states that they are about to change. */
void by__trainer_changes(const by_trainer *t);
/* Range of group `unit` in a flat buffer. */
by_memory by__trainer_group(const by_trainer *t, int flat, size_t unit);
/* All of a flat buffer that holds the groups that are trained, which are neighbours. */
by_memory by__trainer_flat(const by_trainer *t, int flat);
/* The same of a gradient set. */
by_memory by__trainer_set(const by_trainer *t, int set);
/* What the update works on one by one: tensors where the optimizer needs whole ones, this rank's
 * slices where ranks divide the state, else groups; and the memory of one in a flat buffer. */
const by_update_unit *by__update_units(const by_trainer *t, size_t *count);
by_memory by__unit_memory(const by_trainer *t, int flat, size_t i);
/* Points norm and update at the set that holds the sum. */
by_status by__trainer_bind_sum(by_trainer *t, int set, by_error *error);

/* ---- trainer_weights.c ---- */

/* Collective: compute copies and what other ranks hold follow weights that were set. */
by_status by__trainer_refresh(by_trainer *t, by_error *error);

/* ---- trainer_feed.c ---- */

/* Lists the inputs that come from the batch and lays out inputs, outputs and staging. */
by_status by__trainer_plan_feeds(by_trainer *t, by_error *error);
/* Bytes of them, on the device and pinned on the host. */
uint64_t by__trainer_feed_bytes(const by_trainer *t);
/* Takes their memory and binds all programs to it. */
by_status by__trainer_open_feeds(by_trainer *t, by_error *error);
void by__trainer_close_feeds(by_trainer *t);
/* Binds what every update reads in addition to tensors; the row may be NULL. */
by_status by__trainer_bind_update(by_trainer *t, by__program_row *row, by_error *error);
/* Sends micro-batch `index` of a batch of `examples` to the device and submits the program of `row`
 * on it; its loss is kept as number `kept_as`: that of the micro-batch in the step, or
 * t->most_micro_batches for an evaluation, which leaves those of a step alone. */
by_status by__trainer_feed(by_trainer *t, by__program_row *row, const by_batch *batch,
                           int64_t examples, int64_t index, int64_t kept_as, by_error *error);
/* What comes back from the device. */
typedef struct by__results {
    float norm;
    float failed;        /* not 0: this or an earlier step was vetoed, and nothing was changed */
    const float *losses; /* sums of all micro-batches of the step */
} by__results;

/* The losses of all micro-batches, then that of an evaluation, on a device whose memory is the
 * host's. */
float *by__trainer_losses(const by_trainer *t);
/* What the last evaluation has made for the task's metrics. */
by_memory by__trainer_evaluated(const by_trainer *t);

/* Submits the copy of the results of slot `slot` (step number modulo BY_STEPS_AHEAD) to pinned
 * memory, which pending[slot].read tells of. */
by_status by__trainer_fetch(by_trainer *t, unsigned slot, by_error *error);
/* Waits for it. */
by_status by__trainer_results(by_trainer *t, unsigned slot, by__results *out, by_error *error);
/* Submits the copy of the evaluated values, before by__trainer_fetch, whose event tells of it. */
by_status by__trainer_fetch_evaluated(by_trainer *t, const float **out, by_error *error);
/* Submits the numbers of the next update. */
by_status by__trainer_send_hyper(by_trainer *t, unsigned slot, const float *hyper, by_error *error);
/* Vetoes the update that is submitted next, and those behind it. */
by_status by__trainer_veto(by_trainer *t, by_error *error);
/* The losses of micro-batches that a step does not have are 0. */
by_status by__trainer_clear_losses(by_trainer *t, by_error *error);
/* Lets updates change weights again after a step that failed. Nothing is in flight. */
by_status by__trainer_reset_failure(by_trainer *t, by_error *error);
/* Mean loss of a step, of its micro-batches' losses. */
double by__trainer_mean_loss(const by_trainer *t, const float *losses, uint64_t targets);

/* ---- trainer_ranks.c ---- */

/* The layout, and which micro-batches are this rank's. */
by_status by__ranks_plan(by_trainer *t, const by_trainer_options *o, by_error *error);
/* Lets steps have so many micro-batches, over all ranks: at most t->most_micro_batches. */
by_status by__ranks_set_micro_batches(by_trainer *t, int64_t count, by_error *error);
/* Gradient sets that this rank needs, whatever stage of train.batch_warmup a step is in. */
int by__ranks_sets(by_trainer *t);
/* Collective: communicators and what sums need. */
by_status by__ranks_open(by_trainer *t, by_error *error);
void by__ranks_close(by_trainer *t);
/* Collective, when this rank's gradients and losses were submitted: adds them up over all ranks.
 * *set: the gradient set with the sum. */
by_status by__ranks_sum(by_trainer *t, const by__sum_tree *tree, int *set, by_error *error);

/* What this rank has spent in exchanges so far, on all communicators of its job: in programs
 * (beside what they compute, but for the time that they stand still) and between them. */
by__spent by__ranks_spent(const by_trainer *t);
/* Micro-batches first, first + stride, ... of a step. */
typedef struct by__leaves {
    int64_t first;
    int64_t count;
    int64_t stride;
} by__leaves;

/* Replicas whose gradients are added up at every step, which are neighbours: all, or (section sync)
 * the ranks of `shard`. The micro-batches of a sum tree are theirs. */
int by__ranks_members(const by_trainer *t);
/* Those that a replica computes. */
by__leaves by__replica_leaves(const by_trainer *t, int replica);
/* Ranks of `sequence` that keep what each adds to the gradients of a step's micro-batches; 1: each
 * micro-batch's are added up at once. */
int by__ranks_parts(const by_trainer *t);
/* Ranks whose gradients are added up, with other micro-batches or another part of them, and the set
 * of mesh axes in which they differ. */
int by__ranks_adders(const by_trainer *t);
unsigned by__ranks_adding_axes(const by_trainer *t);
/* Notes the sums that this rank holds, and the set that its last micro-batch is computed into. */
void by__ranks_hold(by_trainer *t, const by__sum_tree *tree, int set);

/* ---- gradient_buckets.c ---- */

/* The buckets of a gradient set, once groups are known. */
by_status by__buckets_plan(by_trainer *t, by_error *error);
/* The same of any rank of a pipeline, which has the entries of `store`. *out is freed with
 * free(). */
by_status by__buckets_list(by__bucket **out, size_t *count, const by_trainer *t,
                           const by__store *store, by_error *error);
/* What is in each of them. */
by_status by__bucket_parts_list(by__bucket_parts *out, const by_trainer *t, by_error *error);
void by__bucket_parts_free(by__bucket_parts *parts);
/* The gradient's value in a graph; BY_NONE. */
by_value by__part_gradient(const by_trainer *t, const by_graph *graph, const by__bucket_part *part);
/* The buckets whose gradients the graph has, in the order in which it completes them. *out is freed
 * with free(). */
by_status by__buckets_order(by__bucket_order **out, size_t *count, const by_trainer *t,
                            const by__bucket_parts *parts, const by_graph *graph, by_error *error);
/* Elements of a group, with what is between its entries. */
int64_t by__group_elements(const by__store *store, int group);

/* ---- trainer_offload.c: only where t->offload is not NULL, but for plan and close ---- */

/* Cuts what is trained into windows, before flat buffers are declared. */
by_status by__offload_plan(by_trainer *t, by_error *error);
/* Declares a flat buffer with spec.on_disk, of which the windows are held; of other groups this
 * rank's slices where they are in `divided`, or all. */
by_status by__offload_add_flat(by_trainer *t, by__flat_spec spec, unsigned divided, int *out,
                               by_error *error);
/* The programs that take the place of "update" and "compute copies". */
by_status by__offload_add_programs(by_trainer *t, by_error *error);
/* Memory for windows and transfers; 0 where nothing is on disk. */
size_t by__offload_bytes(const by_trainer *t);
/* Seconds that the last update waited for the disk. */
double by__offload_waited(const by_trainer *t);
by_status by__offload_open(by_trainer *t, by_error *error);
/* Before the store is closed. */
void by__offload_close(by_trainer *t);
/* Updates everything that is trained. Done on return, but for writes. */
by_status by__offload_update(by_trainer *t, by_error *error);
/* Makes all compute copies. */
by_status by__offload_copy(by_trainer *t, by_error *error);

/* Puts the averages of the weights in their place, or (`back`) brings them back. */
by_status by__offload_swap(by_trainer *t, bool back, by_error *error);

/* ---- trainer_average.c ---- */

/* Whether there is a moving average of the weights (optimizer.ema), and its flat buffer. */
bool by__has_average(const by_trainer *t);
int by__average_flat(const by_trainer *t);
/* Adds its programs, where they are not those of windows (trainer_offload.c). */
by_status by__average_plan(by_trainer *t, by_error *error);
by_status by__average_open(by_trainer *t, by_error *error);
/* Submits its step, behind the update. */
by_status by__average_update(by_trainer *t, by_error *error);

/* ---- layer_norms.c (layer_norms.h): nothing of it does anything where config.track does not ask
 * for it ---- */

/* Behind the programs of the update. */
by_status by__layers_plan(by_trainer *t, by_error *error);
/* Bytes that it needs, on the device and pinned. */
size_t by__layers_bytes(const by_trainer *t);
by_status by__layers_open(by_trainer *t, by_error *error);
void by__layers_close(by_trainer *t);
/* Around the update of a step whose results go to `slot`; the gradient is in t->sum_set. */
by_status by__layers_before_update(by_trainer *t, unsigned slot, by_error *error);
by_status by__layers_after_update(by_trainer *t, unsigned slot, by_error *error);
/* The step of that slot is collected. */
void by__layers_collect(by_trainer *t, unsigned slot);

/* ---- activations.c (activations.h): nothing of it does anything where config.track does not ask
 * for it ---- */

/* Behind the programs of the model. */
by_status by__activations_plan(by_trainer *t, by_error *error);
/* Bytes that it needs, on the device and pinned. */
size_t by__activations_bytes(const by_trainer *t);
by_status by__activations_open(by_trainer *t, by_error *error);
void by__activations_close(by_trainer *t);
/* The program of `row` was submitted on this rank's i-th micro-batch of a step. */
by_status by__activations_keep(by_trainer *t, const by__program_row *row, int64_t i,
                               by_error *error);
/* Before the results of the step that is submitted next are fetched to `slot`. */
by_status by__activations_fetch(by_trainer *t, unsigned slot, by_error *error);
/* The step of that slot is collected. */
void by__activations_collect(by_trainer *t, unsigned slot);

/* ---- sampler.c: nothing of it does anything where config.track does not ask for it, and on ranks
 * but the first ---- */

/* Adds the program. BY_ECONFIG: the layout leaves no rank all weights. */
by_status by__sampler_plan(by_trainer *t, const by_trainer_options *o, by_error *error);
/* Bytes of its caches and inputs. */
size_t by__sampler_bytes(const by_trainer *t);
/* Behind by__trainer_open_feeds: binds the program to weights and memory of its own. */
by_status by__sampler_open(by_trainer *t, by_error *error);
void by__sampler_close(by_trainer *t);
/* Positions that its caches have; 0: there is none. */
int64_t by__sampler_positions(const by_trainer *t);
/* Continues ids[0 .. count) by ids[count .. count + more), all below `vocab`, drawn from softmax at
 * temperature 0.8; the draws depend on the config's seed and the position alone. *made is less
 * than `more` where no logit is finite. Nothing may be under way. count + more is at most
 * by__sampler_positions. */
by_status by__sampler_run(by_trainer *t, int32_t *ids, size_t count, size_t more, int64_t vocab,
                          size_t *made, by_error *error);

/* ---- trainer_overlap.c ---- */

#define BY__LAST_GRADIENTS "last gradients"

/* Adds the program of a rank's last micro-batch, where gradients are added up beside it, and puts
 * the buckets in the order in which it finishes them. */
by_status by__overlap_plan(by_trainer *t, const by_trainer_options *options, by_error *error);
/* Behind the reducer. */
void by__overlap_open(by_trainer *t);

/* ---- pipeline/: a rank that holds some stages of the model ---- */

/* Cuts the model into stages, lists the parameters of the rank's and makes the schedule. */
by_status by__pipe_open(by_trainer *t, const by_trainer_options *options, by_error *error);
/* {NULL} is accepted. After the programs were closed. */
void by__pipe_close(by_trainer *t);
/* The rest of the plan, which needs the store: the programs of the rank's stages, and sums of
 * gradient sets. */
by_status by__pipe_plan(by_trainer *t, by_error *error);
by_status by__pipe_plan_sums(by_trainer *t, by_error *error);
/* Finds the programs again, after some were added. */
void by__pipe_find_rows(by_trainer *t);
/* Bytes that activations between programs and stages take. */
uint64_t by__pipe_bytes(const by_trainer *t);
/* Collective. Takes memory and binds parameters. */
by_status by__pipe_allocate(by_trainer *t, by_error *error);
/* Collective along the pipeline: forward and backward of all micro-batches of this replica, their
 * sums and losses. *tree: the sets that hold the sums. */
by_status by__pipe_step(by_trainer *t, const by_batch *batch, by__sum_tree *tree, by_error *error);
/* Collective, after an update: parameters that several stages read. */
by_status by__pipe_share_parameters(by_trainer *t, by_error *error);
/* Collective: loss and evaluated values of a micro-batch, on all ranks; NULL: on what the inputs
 * were before. */
by_status by__pipe_evaluate(by_trainer *t, const by_batch *batch, by_error *error);

#endif
