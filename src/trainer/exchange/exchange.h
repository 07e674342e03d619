/* trainer/exchange: what ranks that train together exchange: sums of gradients, slices of
 * divided state (ZeRO), norms, weights that replicas exchange now and then (does nothing unless
 * the section sync asks for it), parameters that stages of a pipeline share. */
#ifndef BY_TRAINER_EXCHANGE_EXCHANGE_H
#define BY_TRAINER_EXCHANGE_EXCHANGE_H

#include "trainer/state/trainer.h"

/* ---- divided_slices.c ---- */

/* Number of slices that this rank holds; the i-th; and its values, in the trainer's memory or
 * *owned. */
size_t by__trainer_divided_slices(const by_trainer *t, int flat, by__store_handle handle);
void by__trainer_divided_slice(by__trainer_held *out, const by_trainer *t, int flat,
                               by__store_handle handle, size_t i);
by_status by__trainer_divided_read(const by_trainer *t, int flat, by__store_handle handle, size_t i,
                                   const void **data, void **owned, by_error *error);

/* ---- gradient_buckets.c ---- */

/* Plans the buckets of a gradient set, once groups are known. */
by_status by__trainer_buckets_plan(by_trainer *t, by_error *error);
/* The same for any rank of a pipeline, which has the entries of `store`. *out is freed with
 * free(). */
by_status by__trainer_buckets_list(by__trainer_bucket **out, size_t *count, const by_trainer *t,
                                   const by__store *store, by_error *error);
/* Lists the parts of each bucket. */
by_status by__trainer_bucket_parts_list(by__trainer_bucket_parts *out, const by_trainer *t,
                                        by_error *error);
void by__trainer_bucket_parts_free(by__trainer_bucket_parts *parts);
/* The gradient's value in a graph; BY_NONE: it is not there. */
by_value by__trainer_part_gradient(const by_trainer *t, const by_graph *graph,
                                   const by__trainer_bucket_part *part);
/* Lists the buckets whose gradients the graph computes, in the order in which it completes them.
 * *out is freed with free(). */
by_status by__trainer_buckets_order(by__trainer_bucket_order **out, size_t *count,
                                    const by_trainer *t, const by__trainer_bucket_parts *parts,
                                    const by_graph *graph, by_error *error);

/* ---- gradient_norm.c ---- */

/* Adds the programs of the norm. The rest is for a pipeline, or ranks that divide states, where
 * ranks hold parts of the sum of gradients; else it does nothing. */
by_status by__trainer_norm_plan(by_trainer *t, by_error *error);
size_t by__trainer_norm_bytes(const by_trainer *t);
/* Collective: allocates memory and binds everything that does not depend on the gradient set. */
by_status by__trainer_norm_open(by_trainer *t, by_error *error);
void by__trainer_norm_close(by_trainer *t);
/* Collective: computes the squares that the norm's program adds up. */
by_status by__trainer_norm_squares(by_trainer *t, by_error *error);
/* With track.noise_every, adds the program of the norm of a micro-batch's gradient, where ranks
 * have whole gradients. */
by_status by__trainer_noise_plan(by_trainer *t, by_error *error);
/* Submits it, if it is due, for the gradient set that a micro-batch has just been computed to. */
by_status by__trainer_noise_keep(by_trainer *t, int set, by_error *error);

/* ---- shard_gradients.c ---- */

/* Builds the graph of gradients, which lists the parameters, */
by_status by__trainer_zero2_build(by_trainer *t, const by_trainer_options *options,
                                  by_error *error);
/* and its program, once buckets are known. */
by_status by__trainer_zero2_plan(by_trainer *t, by_error *error);
/* The two parts of by__trainer_zero2_plan, which a pipeline calls itself: lists the parts of
 * buckets, and adds nodes to an ordered graph that hand over the buckets whose gradients it has. */
by_status by__trainer_zero2_list_parts(by_trainer *t, by_error *error);
by_status by__trainer_zero2_hand_over(by_trainer *t, by_graph *graph, by_error *error);
/* Bytes of host memory. */
size_t by__trainer_zero2_bytes(const by_trainer *t);
void by__trainer_zero2_close(by_trainer *t);
/* Sums in rounds. */
extern const by__trainer_summation by__exchange_rounds;

/* ---- shard_parameters.c ---- */

/* Sets the pass options of a forward graph accordingly. Parameters are numbered as in the graph of
 * gradients, in whose order the store has them. */
void by__trainer_gathered_options(const by_trainer *t, const by_graph *graph,
                                  by_pass_options *options);
/* Implements GATHER_PARAMETER; `user` is the trainer. */
by_status by__trainer_gathered_run(void *user, const by__device_call *call, by_error *error);

/* ---- sync_values.c ---- */

/* What replicas exchange is what this rank updates: the memory of the i-th part in a flat buffer,
 * and the elements of all groups. */
by_memory by__exchange_unit_memory(const by_trainer *t, int flat, size_t i);
size_t by__exchange_elements(const by_trainer *t);
/* f32 memory on the host: *out has its values, and changes of them are in the memory after the end.
 * The compute queue has been waited for. */
by_status by__exchange_begin(by_trainer *t, by_memory memory, float **out, by_error *error);
by_status by__exchange_end(by_trainer *t, by_memory memory, const float *values, by_error *error);
/* Copies them from one flat buffer to another. */
by_status by__exchange_copy(by_trainer *t, int to, int from, by_error *error);
/* Collective: data = its sum over the replicas. */
by_status by__trainer_sync_add_up(by_trainer *t, float *data, bool exact, by_error *error);
/* Takes the outer optimizer's step on the anchor, with the summed differences. */
by_status by__trainer_sync_outer_step(by_trainer *t, by_error *error);
/* Sets the weights to the anchor. */
by_status by__trainer_sync_load_anchor(by_trainer *t, by_error *error);
/* Sets the padding between the tensors of a gradient set to zero, because a code of signs cannot
 * represent zero. */
void by__trainer_sync_clear_gaps(const by__trainer_sync *s, float *values);

/* ---- trainer_late.c ---- */

/* Collective: waits for an exchange that overlaps with steps and applies it, so that replicas that
 * have taken no step since it began are equal. */
by_status by__trainer_finish_exchange(by_trainer *trainer, by_error *error);
/* Returns true if exchanges may be applied late, so that ranks do not wait for each other at every
 * step. */
bool by__trainer_is_late(const by_trainer *trainer);
/* Tells the other replicas, with the next exchange that begins, whether this one wants to stop.
 * Returns true on all of them once an applied exchange carried such a wish. */
bool by__trainer_agree_to_stop(by_trainer *trainer, bool mine);

by_status by__trainer_late_lay_out(by_trainer *t, by_error *error);
by_status by__trainer_late_add_program(by_trainer *t, by_error *error);
/* Collective. */
by_status by__trainer_late_open(by_trainer *t, by_error *error);
void by__trainer_late_close(by_trainer *t);
/* Applies an exchange when it has reached its staleness, and begins one that is due. */
by_status by__trainer_late_after_update(by_trainer *t, bool due, by_error *error);
/* Waits for the current exchange and discards it. */
void by__trainer_late_drop(by_trainer *t);

/* ---- trainer_overlap.c ---- */

#define BY__LAST_GRADIENTS "last gradients"

/* Adds the program of a rank's last micro-batch, during which gradients are summed, and sorts the
 * buckets in the order in which it completes them. */
by_status by__trainer_overlap_plan(by_trainer *t, const by_trainer_options *options,
                                   by_error *error);
/* Called after the reducer was opened. */
by_status by__trainer_overlap_open(by_trainer *t, by_error *error);

/* ---- trainer_ranks.c ---- */

/* Number of ranks that compute different micro-batches; *rank: index of this one. */
size_t by__trainer_ranks_replicas(const by_trainer *trainer, size_t *rank);
/* Collective among these: gathers counts[r] 32-bit words of each rank; `mine` is this rank's place
 * in `all`. */
by_status by__trainer_ranks_gather(const by_trainer *trainer, const void *mine, void *all,
                                   const size_t *counts, by_error *error);
/* Collective if a replica consists of several ranks, which compute a micro-batch together: sets
 * *flag to whether it is true on any of them. Else does nothing. */
by_status by__trainer_ranks_agree(const by_trainer *trainer, bool *flag, by_error *error);

/* Seconds that this rank has waited for others since the trainer was opened. */
double by__trainer_wait_seconds(const by_trainer *trainer);

/* Resolves the layout, and which micro-batches belong to this rank. */
by_status by__trainer_ranks_plan(by_trainer *t, const by_trainer_options *o, by_error *error);
/* Bytes of the pinned copies of what is exchanged between programs, at most. None where the host
 * reads the device's memory. */
size_t by__trainer_ranks_plan_staging(by_trainer *t);
/* Sets the number of micro-batches of a step, over all ranks: at most
 * t->part.most_micro_batches. */
by_status by__trainer_ranks_set_micro_batches(by_trainer *t, int64_t count, by_error *error);
/* Number of gradient sets that this rank needs in any stage of train.batch_warmup. */
int by__trainer_ranks_sets(by_trainer *t);
/* Collective: opens communicators and prepares sums. */
by_status by__trainer_ranks_open(by_trainer *t, by_error *error);
void by__trainer_ranks_close(by_trainer *t);
/* Time that this rank has spent in exchanges so far, on all communicators of its job: in programs
 * (where they overlap with computation only the stalls count) and between them. */
by__trainer_spent by__trainer_ranks_spent(const by_trainer *t);
/* Sums after the last micro-batch. */
extern const by__trainer_summation by__exchange_at_the_end;
/* Records the sums that this rank holds, and the set that its last micro-batch is computed into. */
void by__trainer_ranks_set_held(by_trainer *t, const by__sum_tree *tree, int set);

/* ---- trainer_settle.c ---- */

/* Called after states were loaded: they are the same on all ranks. */
void by__trainer_sync_loaded(by_trainer *t);

/* ---- trainer_shard.c ---- */

/* Sets what is divided. */
void by__trainer_shard_choose(by_trainer *t);
/* Lists what this rank updates, and divides the buckets into slices, before flat buffers are
 * declared. */
by_status by__trainer_shard_plan(by_trainer *t, by_error *error);
by_status by__trainer_shard_open(by_trainer *t, by_error *error);
void by__trainer_shard_close(by_trainer *t);
/* Divides buckets of the entries of `store` into slices. *out, which they point to, is freed with
 * free(). */
by_status by__trainer_shard_cut(size_t **out, const by_trainer *t, const by__store *store,
                                by__trainer_bucket *buckets, size_t count, by_error *error);
/* The slice of a bucket owned by a rank of `shard`, possibly empty. It has no name. */
by__trainer_slice by__trainer_bucket_slice(const by__trainer_bucket *bucket, int rank);
/* The same for the k-th bucket, with its name. */
by__trainer_slice by__trainer_shard_slice(const by_trainer *t, size_t bucket, int rank);
/* Set of the groups of f32 weights of which a rank holds its slices only. */
unsigned by__trainer_shard_masters(const by_trainer *t);
/* What this rank holds of a flat buffer: the groups in `whole`, and its slices of those in
 * `divided`. *out is freed with free(). */
by_status by__trainer_shard_list_held(const by_trainer *t, unsigned whole, unsigned divided,
                                      by__store_part **out, size_t *count, by_error *error);
/* Declares a flat buffer; of the groups in `divided` this rank holds its slices only. */
by_status by__trainer_shard_add_flat(by_trainer *t, by__store_flat_spec spec, unsigned divided,
                                     int *out, by_error *error);
/* Returns true if this rank updates a whole tensor. */
bool by__trainer_shard_owns(const by_trainer *t, by__store_handle handle);
/* Collective: gathers a tensor that is divided element by element, in the format in which it is
 * held. */
by_status by__trainer_shard_collect(const by_trainer *t, int flat, by__store_handle handle,
                                    void *out, by_error *error);
/* Collective, after the update or new weights were submitted: gives all ranks the values that
 * programs compute with, except those that programs gather themselves. */
by_status by__trainer_shard_gather(by_trainer *t, by_error *error);
/* Returns true if a tensor of a flat buffer is divided, so that reading it is collective; */
bool by__trainer_shard_divides(const by_trainer *t, int flat, by__store_handle handle);
/* then this reads it. */
by_status by__trainer_shard_read(const by_trainer *t, int flat, by__store_handle handle, void *out,
                                 by_error *error);

/* ---- trainer_sync.c ---- */

/* Plans what the config asks for; the sum tree then covers this rank's own micro-batches. */
by_status by__trainer_sync_plan(by_trainer *t, by_error *error);
/* Declares its flat buffers, after those of the optimizer. */
by_status by__trainer_sync_lay_out(by_trainer *t, by_error *error);
by_status by__trainer_sync_add_programs(by_trainer *t, by_error *error);
/* Bytes of host memory for its exchanges. */
size_t by__trainer_sync_bytes(const by_trainer *t);
/* Called after by__trainer_ranks_open. */
by_status by__trainer_sync_open(by_trainer *t, by_error *error);
void by__trainer_sync_close(by_trainer *t);
/* The summation of a trainer that sums as `plain` does if nothing is asked for. */
const by__trainer_summation *by__trainer_sync_summation(by_trainer *t,
                                                        const by__trainer_summation *plain);
by_status by__trainer_sync_before_step(by_trainer *t, by_error *error);
/* Collective: exchanges weights if an exchange is due. */
by_status by__trainer_sync_after_update(by_trainer *t, by_error *error);
/* Called after weights were set. */
void by__trainer_sync_forget(by_trainer *t);
/* Returns true if the exchange that is due now is uncompressed. */
bool by__trainer_sync_is_exact(const by_trainer *t);
/* Collective: exchanges weights. */
by_status by__trainer_sync_exchange(by_trainer *t, by_error *error);

#endif
