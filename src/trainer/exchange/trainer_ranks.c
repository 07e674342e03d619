/* Collective operations of a trainer: the sum of gradients, the losses of all micro-batches. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "trainer/exchange/exchange.h"

/* ---- the plan ---- */

/* Sets the micro-batches of this rank, of `count` in total. */
static void set_leaves(by_trainer *t, int64_t count)
{
    t->part.all_micro_batches = count;
    const by__trainer_leaves mine = by__trainer_replica_leaves(t, t->layout.replica);
    const by__trainer_leaves together = by__trainer_sum_leaves(t, t->layout.replica);
    t->part.first_micro_batch = mine.first;
    t->part.micro_batches = mine.count;
    t->part.first_leaf = mine.first - together.first;
    t->part.leaves = together.count;
}

by_status by__trainer_ranks_plan(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    t->part.most_micro_batches = t->config->train.batch / t->config->train.micro_batch;
    by__trainer_layout_single(&t->layout);
    if (o->mode == BY_TRAINER_FULL || o->comm != NULL || o->ranks > 0) {
        BY_TRY(by__trainer_layout_resolve(&t->layout, t->config, by__trainer_job_ranks(o),
                                          by__trainer_job_rank(o), error));
    }
    t->ranks.all = t->layout.ranks > 1 ? o->comm : NULL;
    t->flats.sets = o->mode == BY_TRAINER_FULL ? 1 : 0;
    by__trainer_shard_choose(t);
    t->summation = by__trainer_sync_summation(
        t, t->shard.gradients != 0 ? &by__exchange_rounds : &by__exchange_at_the_end);
    set_leaves(t, t->part.most_micro_batches);
    return BY_OK;
}

static int sets_of(by_trainer *t, int64_t count)
{
    set_leaves(t, count);
    return t->summation->sets(t);
}

int by__trainer_ranks_sets(by_trainer *t)
{
    const by_record_list *stages = &t->config->train.batch_warmup;
    int most = 0;
    for (size_t i = 0; i < stages->count; i++) {
        const by_batch_stage *stage = (const by_batch_stage *)stages->items + i;
        int sets = sets_of(t, stage->batch / t->config->train.micro_batch);
        most = sets > most ? sets : most;
    }
    int sets = sets_of(t, t->part.most_micro_batches);
    return sets > most ? sets : most;
}

/* ---- collective operations ---- */

/* Losses and other small values. */
#define LEAST_STAGING ((size_t)64 << 10)

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A bucket of each gradient set and of a micro-batch; or all that replicas exchange now and then,
 * the partial sums of the norm, a message between stages. */
size_t by__trainer_ranks_plan_staging(by_trainer *t)
{
    size_t bucket = 0;
    if (t->device->host_memory || t->layout.ranks == 1) {
        return 0;
    }
    for (size_t k = 0; k < t->ranks.bucket_count; k++) {
        bucket = larger(bucket, (size_t)t->ranks.buckets[k].part.count * sizeof(float));
    }
    size_t most = (size_t)(t->flats.sets + 1) * by__round_up(bucket, BY_CACHE_LINE);
    most = larger(most, t->sync.is_on ? by__exchange_elements(t) * sizeof(float) : 0);
    most = larger(most, by__trainer_norm_bytes(t));
    most = larger(most, t->strategy->exchanged == NULL ? 0 : t->strategy->exchanged(t));
    t->ranks.staging.planned = by__round_up(larger(most, LEAST_STAGING), BY_CACHE_LINE);
    return t->ranks.staging.planned;
}

static void report_failure(void *user, by_status status, const by_error *error)
{
    (void)by_comm_fail(user, status, error);
}

/* How gradients are summed. */
static by__trainer_reducer_spec reducer_spec(by_trainer *t)
{
    return (by__trainer_reducer_spec){.peers = t->ranks.adders,
                                      .parts = by__trainer_ranks_parts(t),
                                      .leaves = t->part.leaves,
                                      .last_apart = t->model.last != NULL,
                                      .owners = t->layout.size[BY_MESH_SHARD],
                                      .copies = t->summation->axes != 0 ? t->shard.copies : NULL,
                                      .staging = &t->ranks.staging,
                                      .round_robin = t->summation->in_rounds,
                                      .buckets = t->ranks.buckets,
                                      .bucket_count = t->ranks.bucket_count};
}

/* Opens the communicators that programs need, in one order on all ranks: stages of a pipeline may
 * use different collectives first. */
static by_status open_split_comms(by_trainer *t, by_error *error)
{
    static const unsigned sets[] = {1u << BY_MESH_EXPERT, 1u << BY_MESH_SEQUENCE,
                                    1u << BY_MESH_TENSOR,
                                    1u << BY_MESH_EXPERT | 1u << BY_MESH_TENSOR};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sets); i++) {
        by_comm *comm;
        BY_TRY(by_mesh_comm(&comm, t->ranks.mesh, sets[i], error));
    }
    return BY_OK;
}

/* Counts the losses of each replica. */
static void count_losses(by_trainer *t)
{
    for (int k = 0; k < t->layout.replicas && t->ranks.counts != NULL; k++) {
        t->ranks.counts[k] = (size_t)by__trainer_replica_leaves(t, k).count;
    }
}

by_status by__trainer_ranks_open(by_trainer *t, by_error *error)
{
    by__trainer_ranks *r = &t->ranks;
    size_t replicas = (size_t)t->layout.replicas;
    if (r->all == NULL) {
        return BY_OK;
    }
    by__device_on_error(t->device, report_failure, r->all);
    BY_TRY(by_mesh_open(&r->mesh, r->all, t->layout.size, error));
    BY_TRY(open_split_comms(t, error));
    BY_TRY(by_mesh_comm(&r->peers, r->mesh, 1u << BY_MESH_DATA | 1u << BY_MESH_SHARD, error));
    BY_TRY(by_mesh_comm(&r->adders, r->mesh, by__trainer_ranks_adding_axes(t), error));
    BY_TRY(by__trainer_shard_open(t, error));
    BY_TRY(by__alloc((void **)&r->counts, replicas, sizeof *r->counts, "losses", error));
    count_losses(t);
    BY_TRY(by__exec_mesh_collectives_open(&r->collectives, r->mesh, error));
    by__device_set_collectives(t->device, &r->collectives->base);
    for (size_t i = 0; i < t->programs.count; i++) {
        BY_TRY(by__exec_mesh_collectives_use(r->collectives, t->programs.rows[i]->graph, error));
    }
    if (r->bucket_count == 0) {
        return BY_OK;
    }
    const by__trainer_reducer_spec spec = reducer_spec(t);
    BY_TRY(by__trainer_reducer_open(&r->reducer, &spec, error));
    return t->summation->open(t, error);
}

by_status by__trainer_ranks_set_micro_batches(by_trainer *t, int64_t count, by_error *error)
{
    by__trainer_reducer *reducer;
    set_leaves(t, count);
    count_losses(t);
    if (t->ranks.reducer == NULL) {
        return BY_OK;
    }
    const by__trainer_reducer_spec spec = reducer_spec(t);
    BY_TRY(by__trainer_reducer_open(&reducer, &spec, error));
    by__trainer_reducer_close(&t->ranks.reducer);
    t->ranks.reducer = reducer;
    return BY_OK;
}

void by__trainer_ranks_close(by_trainer *t)
{
    by__trainer_ranks *r = &t->ranks;
    if (r->mesh != NULL && t->device != NULL) {
        by__device_on_error(t->device, NULL, NULL);
        by__device_set_collectives(t->device, NULL);
    }
    by__exec_mesh_collectives_close(&r->collectives);
    by__trainer_reducer_close(&r->reducer);
    by__device_staging_close(&r->staging);
    by_mesh_close(&r->mesh);
    free(r->buckets);
    free(r->counts);
    by__trainer_zero2_close(t);
    by__trainer_shard_close(t);
}

void by__trainer_ranks_set_held(by_trainer *t, const by__sum_tree *tree, int set)
{
    for (int i = 0; i < tree->held_count; i++) {
        t->ranks.held[i] = by__trainer_set(t, tree->held[i].set);
    }
    t->ranks.held[tree->held_count] = by__trainer_set(t, set);
}

by__trainer_spent by__trainer_ranks_spent(const by_trainer *t)
{
    const by__trainer_ranks *r = &t->ranks;
    by__trainer_spent spent = {0};
    if (r->collectives != NULL) {
        double calls = by__comm_spent(r->all);
        spent.exchange = calls + r->late;
        spent.exposed =
            calls - r->collectives->seconds + r->collectives->base.wait_seconds + r->wait_seconds;
    }
    return spent;
}

double by__trainer_wait_seconds(const by_trainer *trainer)
{
    return by__trainer_ranks_spent(trainer).exposed;
}

/* ---- sums at the end of a step ---- */

static by__trainer_leaves leaves(by__trainer_leaves all, int members, int member)
{
    by__trainer_leaves own = {.stride = 1};
    by__sum_tree_block(all.count, members, member, &own.first, &own.count);
    own.first += all.first;
    return own;
}

static int sets(const by_trainer *t)
{
    return by__sum_tree_sets(t->part.first_leaf, t->part.micro_batches, t->part.leaves);
}

static int64_t count_rounds(const by_trainer *t)
{
    return t->part.micro_batches;
}

static bool begin(by_trainer *t, int64_t *i, int64_t *kept_as)
{
    *kept_as = by__trainer_leaf(t, *i);
    return true;
}

static by_status gather_losses(by_trainer *t, by_error *error)
{
    by__trainer_ranks *r = &t->ranks;
    const by_memory memory = by__trainer_losses(t);
    void *copy;
    BY_TRY(by__device_staging_begin(&r->staging, t->device, error));
    BY_TRY(by__device_stage(&r->staging, memory, true, &copy, error));
    BY_TRY(by__device_staging_wait(&r->staging, error));
    float *losses = copy;
    BY_TRY(by_comm_all_gather(r->peers, losses + t->part.first_micro_batch, losses, r->counts,
                              BY_F32, "losses", error));
    BY_TRY(by__device_unstage(&r->staging, memory, losses, error));
    return by__device_staging_wait(&r->staging, error);
}

static by_status sum(by_trainer *t, const by__sum_tree *tree, int *set, by_error *error)
{
    by__trainer_ranks *r = &t->ranks;
    *set = tree->held[tree->held_count - 1].set;
    if (r->peers == NULL) {
        return BY_OK;
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    for (int i = 0; i < tree->held_count; i++) {
        r->held[i] = by__trainer_set(t, tree->held[i].set);
    }
    for (size_t k = 0; k < r->bucket_count && t->model.last == NULL; k++) {
        BY_TRY(by__trainer_reducer_run(r->reducer, k, r->held, error));
    }
    return gather_losses(t, error);
}

const by__trainer_summation by__exchange_at_the_end = {.axes = 1u << BY_MESH_DATA |
                                                               1u << BY_MESH_SEQUENCE,
                                                       .leaves = leaves,
                                                       .sets = sets,
                                                       .rounds = count_rounds,
                                                       .begin = begin,
                                                       .open = by__trainer_overlap_open,
                                                       .sum = sum};

size_t by__trainer_ranks_replicas(const by_trainer *trainer, size_t *rank)
{
    *rank = (size_t)trainer->layout.replica;
    return (size_t)trainer->layout.replicas;
}

by_status by__trainer_ranks_agree(const by_trainer *t, bool *flag, by_error *error)
{
    int32_t asked = *flag;
    if (t->layout.ranks == t->layout.replicas) {
        return BY_OK;
    }
    BY_TRY(by_comm_all_reduce(t->ranks.all, &asked, 1, BY_I32, "a request to stop", error));
    *flag = asked != 0;
    return BY_OK;
}

by_status by__trainer_ranks_gather(const by_trainer *trainer, const void *mine, void *all,
                                   const size_t *counts, by_error *error)
{
    return trainer->ranks.peers == NULL ? BY_OK
                                        : by_comm_all_gather(trainer->ranks.peers, mine, all,
                                                             counts, BY_I32, "evaluation", error);
}
