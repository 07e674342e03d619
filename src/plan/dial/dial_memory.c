/* The memory of what the dial chooses: the plans that training makes of a config. */
#include "config/kind.h"
#include "plan/dial/dial.h"
#include "trainer/plan/trainer_plan.h"

/* What the process may take more when it trains than when it plans, with other work before. */
#define SLACK_BYTES ((uint64_t)8 << 20)
#define SLACK_SHARE 64
/* By which the same plan differs from one process to the next. */
#define NOISE_BYTES ((uint64_t)2 << 20)
#define NOISE_SHARE 256

/* A config to plan, with what its data would complete. */
static by_status copy_config(by_config **out, const by_config *config, const by_dial_data *data,
                             by_error *error)
{
    BY_TRY(by_config_copy(out, config, error));
    if ((*out)->model.vocab < 0) {
        (*out)->model.vocab = data->vocab;
    }
    by_status status = by_config_resolve(*out, error);
    if (status != BY_OK) {
        by_config_close(out);
    }
    return status;
}

static by_trainer_options options_of(const by_train_options *options, const by_dial_data *data)
{
    by_trainer_options own = {0};
    if (options != NULL && options->trainer != NULL) {
        own = *options->trainer;
    }
    own.data_bytes = data->held;
    return own;
}

/* All that a run plans: opening the data comes before what is allocated later. */
static by_status count_bytes(uint64_t *out, by_trainer *t, const by_dial_data *data,
                             const by_trainer_options *o, by_error *error)
{
    BY_TRY(by__trainer_needs(out, t, o, error));
    uint64_t opening = by_trainer_memory(t)->process + data->opening;
    *out = opening > *out ? opening : *out;
    return BY_OK;
}

/* The plan without a limit. */
static by_status plan_whole(by__dial_plan *out, double *seconds, by_config *config,
                            const by_dial_data *data, const by_trainer_options *o, by_error *error)
{
    by_trainer *t;
    config->memory.budget = 0;
    BY_TRY(by_trainer_open(&t, config, o, error));
    const by_memory_report *m = by_trainer_memory(t);
    *out = (by__dial_plan){.slower = 1.0, .state = m->parameters + m->gradients + m->optimizer};
    *seconds = by_trainer_seconds(t);
    by_status status = count_bytes(&out->bytes, t, data, o, error);
    by_trainer_close(&t);
    return status;
}

static by_status plan_within(by__dial_plan *out, double whole, by_config *config,
                             const by_dial_data *data, const by_trainer_options *o, uint64_t limit,
                             by_error *error)
{
    by_trainer *t;
    config->memory.budget = (int64_t)limit;
    BY_TRY(by_config_resolve(config, error)); /* with some settings no budget may choose */
    BY_TRY(by_trainer_open_fitting(&t, config, o, error));
    int64_t micro_batch = config->train.micro_batch;
    out->slower = by_trainer_seconds(t) / whole;
    out->micro_batch = micro_batch < config->train.batch ? micro_batch : 0;
    by_status status = count_bytes(&out->bytes, t, data, o, error);
    by_trainer_close(&t);
    return status;
}

/* What is left of a limit for the plan. */
static uint64_t without_slack(uint64_t limit)
{
    uint64_t slack = SLACK_BYTES + limit / SLACK_SHARE;
    return limit > slack ? limit - slack : 1;
}

by_status by__dial_plan_make(by__dial_plan *out, const by_config *config, const by_dial_data *data,
                             const by_train_options *options, uint64_t limit, by_error *error)
{
    by__dial_plan plan = {0};
    by_config *copy;
    double whole;
    uint64_t most = without_slack(limit);
    const by_trainer_options o = options_of(options, data);
    BY_TRY(copy_config(&copy, config, data, error));
    by_status status = plan_whole(&plan, &whole, copy, data, &o, error);
    /* Recomputing and smaller micro-batches save activations only. */
    if (status == BY_OK && plan.bytes > most && plan.state <= most) {
        status = plan_within(&plan, whole, copy, data, &o, most, error);
    }
    plan.fits = plan.bytes <= most;
    by_config_close(&copy);
    *out = plan;
    return status;
}

/* ---- the least that is enough ---- */

static by_status plan_micro_batch(uint64_t *out, by_config *config, int64_t micro_batch,
                                  const by_dial_data *data, const by_trainer_options *o,
                                  by_error *error)
{
    by_trainer *t;
    by__config_derive(config, "train.micro_batch", micro_batch);
    BY_TRY(by_trainer_open(&t, config, o, error));
    by_status status = count_bytes(out, t, data, o, error);
    by_trainer_close(&t);
    return status;
}

/* The smallest plan of all micro-batches, when all is recomputed that can be. */
static by_status find_least(uint64_t *out, by_config *config, const by_dial_data *data,
                            const by_trainer_options *o, by_error *error)
{
    bool given = !by__config_is_derived(config, "train.micro_batch");
    int64_t all = config->train.batch;
    *out = UINT64_MAX;
    BY_TRY(by_config_set(config, "memory.recompute=full", error));
    config->memory.budget = 0;
    for (int64_t m = given ? config->train.micro_batch : 1; m <= all; m++) {
        uint64_t bytes;
        if (all % m != 0) {
            continue;
        }
        BY_TRY(plan_micro_batch(&bytes, config, m, data, o, error));
        *out = bytes < *out ? bytes : *out;
        if (given) {
            break;
        }
    }
    return BY_OK;
}

by_status by__dial_plan_least(uint64_t *out, const by_config *config, const by_dial_data *data,
                              const by_train_options *options, by_error *error)
{
    by_config *copy;
    const by_trainer_options o = options_of(options, data);
    BY_TRY(copy_config(&copy, config, data, error));
    by_status status = find_least(out, copy, data, &o, error);
    by_config_close(&copy);
    /* So that without_slack leaves as much, in a process of about the same size. */
    *out += SLACK_BYTES + NOISE_BYTES + *out / NOISE_SHARE;
    *out = *out / (SLACK_SHARE - 1) * SLACK_SHARE + SLACK_SHARE;
    return status;
}
