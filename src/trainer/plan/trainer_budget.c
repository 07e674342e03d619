/* A plan within memory.budget. The passes are given a limit on activations: what the budget leaves
 * after everything else, which is known once everything was planned.
 *
 * Ranks must choose alike, because collectives run in one order on all of them: they use one limit,
 * for which the rank that needs the most fits, and weigh time by the speeds of rank 0. A rank of a
 * pipeline chooses for the whole model before it is cut, so its limit is for one micro-batch on one
 * rank. Ranks whose parts of tensors differ in size might still choose differently; a round in
 * which they do is discarded. */
#include <string.h>

#include "trainer/plan/trainer_plan.h"
#include "trainer/step/trainer_step.h"

by_status by__trainer_needs(uint64_t *out, by_trainer *t, const by_trainer_options *o,
                            by_error *error)
{
    by_memory_report before = t->plan.memory;
    by_trainer_plan_staging(t);
    BY_TRY(by_trainer_plan_loaders(t, true, error));
    *out = t->plan.memory.total + o->data_bytes;
    t->plan.memory = before;
    return BY_OK;
}

/* A plan relative to the budget; for several ranks, the maximum of each member but one. */
typedef struct budget_view {
    uint64_t needed;
    uint64_t limit;  /* limit on activations in this plan */
    uint64_t least;  /* the minimum of these limits */
    uint64_t choice; /* digest of the order of nodes */
} budget_view;

/* Digest of the graph of gradients, which shows the nodes that run again. */
static uint64_t digest(const by_trainer *t)
{
    uint64_t digest = 0;
    const by_graph *graph = t->model.whole;
    for (size_t n = 0; n < graph->node_count; n++) {
        const uint64_t item[3] = {digest, (uint64_t)graph->nodes[n].op,
                                  (uint64_t)(int64_t)graph->nodes[n].block};
        digest = by__hash64(item, sizeof item);
    }
    return digest;
}

/* Bytes of the activations of one micro-batch of the whole model. */
static by_status whole_bytes(uint64_t *out, const by_trainer *t, by_error *error)
{
    by__pass_memory_plan plan;
    BY_TRY(by__pass_memory_plan_make(&plan, t->model.whole, by__device_unit(t->device), error));
    *out = plan.bytes;
    by__pass_memory_plan_free(&plan);
    return BY_OK;
}

/* Sets the memory of the process. */
static void count_process(by_trainer *t, uint64_t bytes)
{
    t->plan.memory.total += bytes - t->plan.memory.process;
    t->plan.memory.process = bytes;
}

static by_status measure_own(budget_view *out, by_trainer *t, const by_trainer_options *o,
                             by_error *error)
{
    *out = (budget_view){.limit = t->plan.memory.activations, .choice = digest(t)};
    BY_TRY(by__trainer_needs(&out->needed, t, o, error));
    BY_TRY(t->model.stages > 1 ? whole_bytes(&out->limit, t, error) : BY_OK);
    out->least = out->limit;
    return BY_OK;
}

/* Collective: the views of all ranks. */
static by_status gather_views(budget_view *all, const budget_view *own, by_comm *comm,
                              by_error *error)
{
    size_t *counts;
    size_t ranks = (size_t)by_comm_size(comm);
    BY_TRY(by__alloc((void **)&counts, ranks, sizeof *counts, "plans", error));
    for (size_t r = 0; r < ranks; r++) {
        counts[r] = sizeof *own / sizeof(int32_t);
    }
    by_status status = by_comm_all_gather(comm, own, all, counts, BY_I32, "memory.budget", error);
    free(counts);
    return status;
}

/* The same without the other ranks: plans what they would. */
static by_status plan_views(budget_view *all, const budget_view *own, by_trainer *t,
                            const by_trainer_options *o, by_error *error)
{
    for (int r = 0; r < t->layout.ranks; r++) {
        by_trainer_options theirs = *o;
        by_trainer *other;
        theirs.rank = r;
        theirs.like = t;
        if (r == t->layout.rank) {
            all[r] = *own;
            continue;
        }
        BY_TRY(by__trainer_build(&other, t->config, &theirs, t->plan.arena_bytes, error));
        count_process(other, t->plan.memory.process);
        by_status status = measure_own(&all[r], other, &theirs, error);
        by_trainer_close(&other);
        BY_TRY(status);
    }
    return BY_OK;
}

/* `together`: with the ranks that choose with this one. *alike: whether they did. */
static by_status measure(budget_view *out, bool *alike, by_trainer *t, const by_trainer_options *o,
                         bool together, by_error *error)
{
    int ranks = t->layout.ranks;
    budget_view own;
    budget_view *all;
    BY_TRY(measure_own(&own, t, o, error));
    *out = own;
    *alike = true;
    if (!together) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&all, (size_t)ranks, sizeof *all, "plans", error));
    by_status status = o->comm != NULL ? gather_views(all, &own, o->comm, error)
                                       : plan_views(all, &own, t, o, error);
    for (int r = 0; r < ranks && status == BY_OK; r++) {
        out->needed = all[r].needed > out->needed ? all[r].needed : out->needed;
        out->limit = all[r].limit > out->limit ? all[r].limit : out->limit;
        out->least = all[r].least < out->least ? all[r].least : out->least;
        *alike = *alike && all[r].choice == all[0].choice;
    }
    free(all);
    return status;
}

/* Looks at a plan when only the trainers that stay exist: ranks may be threads of one process. */
static by_status measure_settled(budget_view *out, bool *alike, by_trainer *t,
                                 const by_trainer_options *o, bool together, by_error *error)
{
    bool waits = together && o->comm != NULL;
    BY_TRY(waits ? measure(out, alike, t, o, together, error) : BY_OK); /* for all */
    count_process(t, by__trainer_settled_bytes());
    return measure(out, alike, t, o, together, error);
}

#define MAX_ROUNDS 8

/* Plans again until it fits, or nothing more can be recomputed. Memory besides the arena of the
 * largest program does not change with the limit, except for collectives, which is why one round
 * may not be enough; nor do the slots of a pipeline change like the arena of the whole model. */
static by_status shrink(by_trainer **trainer, const by_trainer_options *o, bool together,
                        by_error *error)
{
    const by_config *config = (*trainer)->config;
    uint64_t budget = (uint64_t)config->memory.budget;
    budget_view now;
    bool comparable; /* their graphs differ only in what is recomputed */
    bool alike;
    BY_TRY(measure_settled(&now, &comparable, *trainer, o, together, error));
    uint64_t limit = now.limit;
    bool smallest = false; /* no rank can recompute more */
    for (int round = 0; round < MAX_ROUNDS && now.needed > budget && limit > 1 && !smallest;
         round++) {
        by_trainer *smaller;
        budget_view then;
        /* Each round leaves a little more behind in the process. */
        uint64_t excess = (now.needed - budget) * (round > 0 ? 2 : 1);
        limit = excess < limit && round + 1 < MAX_ROUNDS ? limit - excess : 1;
        BY_TRY(by__trainer_build(&smaller, config, o, (size_t)limit, error));
        /* What it takes of the process is known when the other one is gone. */
        count_process(smaller, (*trainer)->plan.memory.process);
        by_status status = measure(&then, &alike, smaller, o, together, error);
        smallest = status == BY_OK && then.least > limit;
        if (status != BY_OK || (comparable && !alike) || then.needed >= now.needed) {
            by_trainer_close(&smaller);
            BY_TRY(status);
            continue;
        }
        by_trainer_close(trainer);
        *trainer = smaller;
        BY_TRY(measure_settled(&now, &alike, smaller, o, together, error));
    }
    return BY_OK;
}

/* Returns true if the budget decides what is recomputed. */
static bool chooses(const by_config *config, const by_trainer_options *o)
{
    return config->memory.budget > 0 && o->mode == BY_TRAINER_FULL &&
           strcmp(config->memory.recompute, "none") == 0;
}

static by_status open_within(by_trainer **out, const by_config *config, const by_trainer_options *o,
                             bool together, by_error *error)
{
    by_trainer *t;
    BY_TRY(by__trainer_build(&t, config, o, 0, error));
    by_status status = chooses(config, o) ? shrink(&t, o, together, error) : BY_OK;
    if (status != BY_OK) {
        by_trainer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

by_status by__trainer_open_unconnected(by_trainer **out, const by_config *config,
                                       const by_trainer_options *options, by_error *error)
{
    return open_within(out, config, options, false, error);
}

by_status by_trainer_open(by_trainer **out, const by_config *config,
                          const by_trainer_options *options, by_error *error)
{
    by_trainer_options o = options == NULL ? (by_trainer_options){0} : *options;
    bool together = by__trainer_job_ranks(&o) > 1 && chooses(config, &o);
    if (together && o.comm != NULL) {
        BY_TRY(by_comm_broadcast(o.comm, &o.speeds, sizeof o.speeds / sizeof(int32_t), BY_I32, 0,
                                 "memory.budget", error));
    }
    return open_within(out, config, &o, together, error);
}

/* Bytes per second, if not measured. */
#define USUAL_DISK 1e9

static double row_seconds(const by_trainer *t, const by__exec_program_row *row)
{
    double seconds = 0.0;
    /* Costs were computed when the graph was planned, so this can only fail for lack of memory. */
    if (row != NULL) {
        (void)by__pass_graph_seconds(&seconds, row->graph, 0, &t->plan.speeds, NULL);
    }
    return seconds;
}

double by_trainer_seconds(const by_trainer *t)
{
    double once = 0.0;
    double each = 0.0;
    for (size_t i = 0; i < t->programs.count; i++) {
        const by__exec_program_row *row = t->programs.rows[i];
        bool training = row == t->model.gradients || t->model.stages > 1;
        if (training) {
            each += row_seconds(t, row);
        } else if (row != t->model.loss && row != t->model.last && row != t->model.sum &&
                   row != t->update.copy_row) {
            once += row_seconds(t, row);
        }
    }
    double disk = t->plan.speeds.disk > 0.0 ? t->plan.speeds.disk : USUAL_DISK;
    return each * (double)t->part.micro_batches + once +
           row_seconds(t, t->model.sum) * (double)(t->part.micro_batches - 1) +
           2.0 * (double)t->plan.memory.on_disk / disk;
}
