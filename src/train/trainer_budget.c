/* A plan within memory.budget. What the passes are asked for is room for the activations: what the
 * budget leaves of the rest. The rest is known when everything was planned once. */
#include <string.h>

#include "train/trainer.h"

by_status by__trainer_needs(uint64_t *out, by_trainer *t, const by_trainer_options *o,
                            by_error *error)
{
    by_memory_report before = t->memory;
    by_trainer_plan_staging(t);
    BY_TRY(by_trainer_plan_loaders(t, true, error));
    *out = t->memory.total + o->data_bytes;
    t->memory = before;
    return BY_OK;
}

#define MOST_ROUNDS 6

/* Plans again until it fits, or no more can be computed again. What is above the arena of the
 * largest program does not change with it, but for collectives, which is why one round may not be
 * enough. */
static by_status shrink(by_trainer **trainer, const by_trainer_options *o, uint64_t needed,
                        by_error *error)
{
    by_trainer *t = *trainer;
    const by_config *config = t->config;
    uint64_t budget = (uint64_t)config->memory.budget;
    uint64_t room = t->memory.activations;
    for (int round = 0; round < MOST_ROUNDS && needed > budget && room > 1; round++) {
        by_trainer *smaller;
        uint64_t excess = needed - budget;
        room = excess < room ? room - excess : 1;
        BY_TRY(by__trainer_build(&smaller, config, o, (size_t)room, error));
        uint64_t then;
        by_status status = by__trainer_needs(&then, smaller, o, error);
        if (status != BY_OK || then >= needed) {
            by_trainer_close(&smaller);
            BY_TRY(status);
            continue;
        }
        by_trainer_close(trainer);
        *trainer = smaller;
        needed = then;
    }
    return BY_OK;
}

static by_status check_ranks(const by_trainer *t, by_error *error)
{
    if (t->layout.ranks > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "memory.budget chooses what one rank computes again, and %d ranks have "
                            "to choose alike: leave it out and set memory.recompute to block, "
                            "every or full",
                            t->layout.ranks);
    }
    return BY_OK;
}

by_status by_trainer_open(by_trainer **out, const by_config *config,
                          const by_trainer_options *options, by_error *error)
{
    by_trainer *t;
    const by_trainer_options defaults = {0};
    const by_trainer_options *o = options == NULL ? &defaults : options;
    BY_TRY(by__trainer_build(&t, config, o, 0, error));
    by_status status = BY_OK;
    if (config->memory.budget > 0 && o->mode == BY_TRAINER_FULL) {
        uint64_t needed = 0;
        status = check_ranks(t, error);
        if (status == BY_OK) {
            status = by__trainer_needs(&needed, t, o, error);
        }
        if (status == BY_OK && strcmp(config->memory.recompute, "none") == 0) {
            status = shrink(&t, o, needed, error);
        }
    }
    if (status != BY_OK) {
        by_trainer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

/* Bytes a second, where it was not measured. */
#define USUAL_DISK 1e9

static double row_seconds(const by_trainer *t, const by__program_row *row)
{
    double seconds = 0.0;
    /* Costs were asked for when the graph was planned: this cannot fail but for memory. */
    if (row != NULL) {
        (void)by__graph_seconds(&seconds, row->graph, 0, &t->speeds, NULL);
    }
    return seconds;
}

double by_trainer_seconds(const by_trainer *t)
{
    double once = 0.0;
    double each = 0.0;
    for (size_t i = 0; i < t->programs.count; i++) {
        const by__program_row *row = &t->programs.rows[i];
        bool training = row == t->gradients || (t->pipe != NULL && row != t->loss);
        if (training) {
            each += row_seconds(t, row);
        } else if (row != t->loss && row != t->last && row != t->sum && row != t->copy) {
            once += row_seconds(t, row);
        }
    }
    double disk = t->speeds.disk > 0.0 ? t->speeds.disk : USUAL_DISK;
    return each * (double)t->micro_batches + once +
           row_seconds(t, t->sum) * (double)(t->micro_batches - 1) +
           2.0 * (double)t->memory.on_disk / disk;
}
