/* Chooses train.micro_batch where the config leaves it open: the largest that divides work among
 * the ranks as evenly as any, and fits into their memory. The gradients' sum tree, and so the bits
 * of the weights, depend on it, which is why the choice becomes part of the config. */
#include <stdlib.h>
#include <string.h>

#include "trainer/plan/trainer_plan.h"

static const char key[] = "train.micro_batch";

/* Examples of a step that the rank with the most of them computes. */
static int64_t load(const by_config *config, int64_t micro_batch, int64_t replicas)
{
    int64_t count = config->train.batch / micro_batch;
    return (count + replicas - 1) / replicas * micro_batch;
}

/* Returns true if a candidate is permitted, and divides the work more evenly than `best`, or as
 * evenly in larger micro-batches. */
static bool is_better(const by_config *config, const by__trainer_layout *l, int64_t candidate,
                      int64_t best)
{
    int64_t first = by_config_batch(config, 0);
    if (candidate % l->size[BY_MESH_EXPERT] != 0 || first / candidate < l->replicas) {
        return false;
    }
    if (best == 0) {
        return true;
    }
    int64_t work = load(config, candidate, l->replicas);
    int64_t most = load(config, best, l->replicas);
    return work < most || (work == most && candidate > best);
}

by_status by_config_fit_ranks(by_config *config, int ranks, by_error *error)
{
    by__trainer_layout layout = {.ranks = ranks};
    int64_t best = 0;
    if (!by__config_is_derived(config, key)) {
        return BY_OK;
    }
    BY_TRY(by__trainer_layout_axes(&layout, config, error));
    int64_t all = by__config_batch_divisor(config);
    for (int64_t d = 1; d <= all / d; d++) {
        if (all % d == 0) {
            best = is_better(config, &layout, d, best) ? d : best;
            best = is_better(config, &layout, all / d, best) ? all / d : best;
        }
    }
    if (best > 0) { /* otherwise the layout is refused with the reason */
        by__config_derive(config, key, best);
    }
    return BY_OK;
}

/* The least of a number over the ranks that run. */
static by_status least(int32_t *value, by_comm *comm, by_error *error)
{
    int32_t *all;
    size_t *counts = NULL;
    size_t ranks = comm == NULL ? 1 : (size_t)by_comm_size(comm);
    if (ranks == 1) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&all, ranks, sizeof *all, "plans", error));
    by_status status = by__alloc((void **)&counts, ranks, sizeof *counts, "plans", error);
    for (size_t r = 0; r < ranks && status == BY_OK; r++) {
        counts[r] = 1;
    }
    if (status == BY_OK) {
        status = by_comm_all_gather(comm, value, all, counts, BY_I32, key, error);
    }
    for (size_t r = 0; r < ranks && status == BY_OK; r++) {
        *value = all[r] < *value ? all[r] : *value;
    }
    free(counts);
    free(all);
    return status;
}

/* Collective: finds the micro-batch for which every rank has the memory; 0 if there is none. */
static by_status fit_running(int32_t *out, by_trainer *t, const by_config *config,
                             const by_trainer_options *o, by_error *error)
{
    uint64_t bytes;
    uint64_t limit = by_plan_limit(config, o->device, o->comm);
    BY_TRY(by__trainer_needs(&bytes, t, o, error));
    int32_t fits = bytes <= limit;
    bool mine = fits != 0;
    *out = (int32_t)config->train.micro_batch;
    BY_TRY(least(&fits, o->comm, error));
    if (fits != 0) {
        return BY_OK;
    }
    if (!mine) {
        int64_t found;
        BY_TRY(by__trainer_micro_batch_within(&found, config, o, limit, error));
        *out = (int32_t)found;
    }
    return least(out, o->comm, error);
}

/* The same for ranks that do not run: plans for each of them. */
static by_status fit_planned(int32_t *out, by_trainer *t, const by_config *config,
                             const by_trainer_options *o, by_error *error)
{
    *out = (int32_t)config->train.micro_batch;
    for (int r = 0; r < t->layout.ranks; r++) {
        by_trainer_options theirs = *o;
        by_trainer *other = t;
        int32_t fits;
        theirs.rank = r;
        theirs.like = t;
        if (r != t->layout.rank) {
            BY_TRY(by__trainer_open_unconnected(&other, config, &theirs, error));
        }
        by_status status = fit_running(&fits, other, config, &theirs, error);
        if (other != t) {
            by_trainer_close(&other);
        }
        BY_TRY(status);
        *out = fits < *out ? fits : *out;
    }
    return BY_OK;
}

by_status by_trainer_open_fitting(by_trainer **out, by_config *config,
                                  const by_trainer_options *options, by_error *error)
{
    const by_trainer_options o = options == NULL ? (by_trainer_options){0} : *options;
    int32_t fits = 0;
    by_trainer *t;
    BY_TRY(by_config_fit_ranks(config, by__trainer_job_ranks(&o), error));
    BY_TRY(by_trainer_open(&t, config, &o, error));
    by_status status = BY_OK;
    if (by__config_is_derived(config, key) && o.mode == BY_TRAINER_FULL) {
        status = o.comm != NULL ? fit_running(&fits, t, config, &o, error)
                                : fit_planned(&fits, t, config, &o, error);
    }
    if (status == BY_OK && fits > 0 && fits < config->train.micro_batch) {
        by_trainer_close(&t);
        by__config_derive(config, key, fits);
        status = by_trainer_open(&t, config, &o, error);
    }
    if (status != BY_OK) {
        by_trainer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

by_status by_train_check_ranks(const by_config *config, int ranks, int *unit, by_error *error)
{
    by__trainer_layout layout;
    by_config *copy;
    BY_TRY(by_config_copy(&copy, config, error));
    by_status status = by_config_fit_ranks(copy, ranks, error);
    if (status == BY_OK) {
        status = by__trainer_layout_resolve(&layout, copy, ranks, 0, error);
    }
    by_config_close(&copy);
    if (status == BY_OK) {
        *unit = ranks / layout.size[BY_MESH_DATA];
    }
    return status;
}
