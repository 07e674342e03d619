/* Predicts the step of a run from the programs that its trainer has compiled, and learns from what
 * its steps took. */
#include <math.h>
#include <stdlib.h>

#include "plan/layout/layout.h"

static by_status describe(by__layout_step_key *key, by_machine *machine, const by_trainer *t,
                          const by_config *config, by_error *error)
{
    BY_TRY(by_machine_load(machine, config->device, (int)config->train.threads, 0, error));
    *key = by__layout_step_key_of(machine, config, t->layout.size);
    return BY_OK;
}

by__layout_step_key by__layout_step_key_of(const by_machine *machine, const by_config *config,
                                           const int sizes[BY_MESH_AXES])
{
    const by_parallel_config *p = &config->parallel;
    by__layout_step_key key = {.machine = machine,
                               .kind = config->model.kind,
                               .compute = config->precision.compute,
                               .ranks = 1};
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        key.ranks *= sizes[axis];
    }
    (void)snprintf(key.layout, sizeof key.layout,
                   "data %d shard %d zero %lld tensor %d sequence %d expert %d pipeline %d %.20s "
                   "recompute %.20s",
                   sizes[BY_MESH_DATA], sizes[BY_MESH_SHARD], (long long)p->zero,
                   sizes[BY_MESH_TENSOR], sizes[BY_MESH_SEQUENCE], sizes[BY_MESH_EXPERT],
                   sizes[BY_MESH_PIPELINE], p->schedule, config->memory.recompute);
    return key;
}

static by_status predict(by_step_forecast *out, by_trainer *t, const by_config *config,
                         by_error *error)
{
    by_machine machine;
    by_cluster here;
    by__layout_step_key key;
    char *path;
    BY_TRY(describe(&key, &machine, t, config, error));
    by_cluster_of_machine(&here, &machine, t->layout.ranks);
    by_step_forecast f = {0};
    BY_TRY(by__layout_running(&f.planned, &f.low, &f.high, t, config, &here, error));
    f.seconds = f.planned;
    if (by_layout_corrections_path(&path, NULL) == BY_OK) {
        const by__layout_correction c = by__layout_correct(path, &key, f.planned);
        free(path);
        by__layout_apply(&c, &f.seconds, &f.low, &f.high);
        f.runs = c.runs;
    }
    *out = f;
    return BY_OK;
}

static by_status learn(const by_step_forecast *forecast, const by_trainer *t,
                       const by_config *config, double measured, by_error *error)
{
    by_machine machine;
    by__layout_step_key key;
    char *path;
    BY_TRY(describe(&key, &machine, t, config, error));
    BY_TRY(by_layout_corrections_path(&path, error));
    by_status status = by__layout_learn(path, &key, forecast->planned, measured, error);
    free(path);
    return status;
}

void by__layout_apply(const by__layout_correction *c, double *seconds, double *low, double *high)
{
    if (c->runs == 0) {
        return;
    }
    *seconds *= c->factor;
    double deviation = 1.28 * c->error * *seconds;
    *low = *seconds > deviation ? *seconds - deviation : 0.0;
    *high = *seconds + deviation;
}

const by_forecaster *by_layout_forecaster(void)
{
    static const by_forecaster forecaster = {predict, learn};
    return &forecaster;
}
