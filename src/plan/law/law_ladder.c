/* The rungs of a ladder: sizes of a config's model in steps of a head. */
#include <math.h>

#include "banyan/trainer.h"
#include "config/kind.h"
#include "plan/law/law.h"

#define RUNGS       6
#define LEAST_RUNGS 4
#define FACTOR      2.0
#define RATIO       20.0
#define MOST_HEADS  512

by_status by_ladder_config(by_config **out, const by_config *config, const by_rung *rung,
                           by_error *error)
{
    const by_model_config *m = &config->model;
    by_config *c;
    if (!by__config_has_key(config, "model.heads") || m->heads < 1 || m->width % m->heads != 0) {
        return by_error_set(error, BY_ECONFIG, "model.kind %s: a model without heads has no rungs",
                            m->kind);
    }
    BY_TRY(by_config_copy(&c, config, error));
    bool grouped = by__config_is_given(config, "model.kv_heads") && m->kv_heads > 0;
    double mlp = (double)m->mlp_width * (double)rung->heads / (double)m->heads;
    c->model.heads = rung->heads;
    c->model.width = rung->width;
    c->model.mlp_width = (int64_t)fmax(round(mlp / 16.0) * 16.0, 16.0);
    c->model.kv_heads = grouped ? rung->heads * m->kv_heads / m->heads : -1;
    if (grouped && rung->heads * m->kv_heads % m->heads != 0) {
        c->model.kv_heads = -1;
    }
    if (!by__config_is_given(config, "model.init_std")) {
        c->model.init_std = -1.0;
    }
    /* Warm-up and decay are the same share of every rung: a fixed number of steps would be more of
     * the small ones, and bend the curve. */
    c->optimizer.warmup = config->optimizer.warmup / (double)config->train.steps;
    c->optimizer.decay = config->optimizer.decay / (double)config->train.steps;
    c->train.steps = rung->steps;
    by_status status = by_config_resolve(c, error);
    if (status != BY_OK) {
        by_config_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* Sizes and FLOPs of a rung with so many heads, by its own graph. */
static by_status measure(by_rung *rung, const by_config *config, int64_t heads, double ratio,
                         by_error *error)
{
    by_config *c;
    by_trainer *trainer;
    const by_task *task;
    *rung = (by_rung){
        .heads = heads, .width = config->model.width / config->model.heads * heads, .steps = 1};
    BY_TRY(by_ladder_config(&c, config, rung, error));
    by_status status = by_task_find(&task, c, error);
    if (status == BY_OK) {
        status = by_trainer_open(&trainer, c, NULL, error);
    }
    if (status == BY_OK) {
        const by_model_size *size = by_trainer_size(trainer);
        double each =
            (double)c->train.batch * (double)(task->per_sample == NULL ? 1 : task->per_sample(c));
        rung->parameters = (double)size->parameters;
        rung->steps = (int64_t)fmax(ceil(ratio * rung->parameters / each), 1.0);
        rung->tokens = (double)rung->steps * each;
        rung->flops = size->flops_per_example * rung->tokens;
        by_trainer_close(&trainer);
    }
    by_config_close(&c);
    return status;
}

/* Refuses a budget that does not pay for the smallest rungs. */
static by_status check_budget(const by_ladder_options *options, double sum, by_error *error)
{
    if (sum <= options->flops) {
        return BY_OK;
    }
    return by_error_set(error, BY_EARG,
                        "%.4g FLOPs do not pay for a ladder: its %d smallest rungs take %.4g, with "
                        "%g examples for each parameter. Give more, or fewer layers or examples",
                        options->flops, LEAST_RUNGS, sum,
                        options->ratio > 0.0 ? options->ratio : RATIO);
}

by_status by_ladder_design(by_rung rungs[BY_LADDER_RUNGS], size_t *count, const by_config *config,
                           const by_ladder_options *options, by_error *error)
{
    by_rung all[BY_LADDER_RUNGS];
    size_t most = options->rungs == 0 ? RUNGS : options->rungs;
    double factor = options->factor == 0.0 ? FACTOR : options->factor;
    double ratio = options->ratio == 0.0 ? RATIO : options->ratio;
    double sum = 0.0;
    size_t made = 0;
    most = most < LEAST_RUNGS ? LEAST_RUNGS : most > BY_LADDER_RUNGS ? BY_LADDER_RUNGS : most;
    for (int64_t heads = 1; heads <= MOST_HEADS; heads++) {
        by_rung next;
        BY_TRY(measure(&next, config, heads, ratio, error));
        if (made > 0 && next.flops < factor * all[made - 1].flops) {
            continue;
        }
        /* The smallest rungs give way to a larger one. */
        size_t dropped = made == most ? 1 : 0;
        double kept = dropped > 0 ? sum - all[0].flops : sum;
        if (made >= LEAST_RUNGS && kept + next.flops > options->flops) {
            break;
        }
        for (size_t i = dropped; i < made; i++) {
            all[i - dropped] = all[i];
        }
        made -= dropped;
        all[made++] = next;
        sum = kept + next.flops;
        if (made == LEAST_RUNGS) {
            BY_TRY(check_budget(options, sum, error));
        }
    }
    for (size_t i = 0; i < made; i++) {
        rungs[i] = all[i];
    }
    *count = made;
    return BY_OK;
}
