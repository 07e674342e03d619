/* Predicts the step of a run from the programs that its trainer has compiled, and learns from what
 * its steps took. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "plan/layout/layout.h"
#include "plan/plan.h"

/* A launcher may have bound this process to its share of the cores, which the others do not
 * divide. */
static void count_cores(by_machine *m, int ranks)
{
    int64_t online = (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t used = (int64_t)ranks * (m->threads < 1 ? m->cores : m->threads);
    int64_t cores = used < online ? used : online;
    m->cores = cores > m->cores ? (int)cores : m->cores;
}

/* Seconds of processors that this process has used. */
static double used(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static by_status describe(by__layout_step_key *key, by_machine *machine, const by_trainer *t,
                          const by_config *config, by_error *error)
{
    BY_TRY(by_machine_load(machine, config->device, (int)config->train.threads, 0, error));
    *key = by__layout_step_key_of(machine, config, t->layout.size);
    return BY_OK;
}

static by_status predict(by_step_forecast *out, by_trainer *t, const by_config *config,
                         by_error *error)
{
    by_machine machine;
    by_cluster here;
    by__layout_step_key key;
    char *path;
    BY_TRY(describe(&key, &machine, t, config, error));
    count_cores(&machine, t->layout.ranks);
    by_cluster_of_machine(&here, &machine, t->layout.ranks);
    by_step_forecast f = {.began = by_clock(), .used = used(), .waited = by__plan_waited()};
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

/* What a step takes where nobody else computes: without the share of the run for which its threads
 * waited for processors that others had. Those had at most what the ranks of this run have not
 * used: for the rest the threads waited for each other, as with loaders on all cores. */
static double without_others(const by_step_forecast *forecast, int threads, int ranks,
                             double measured)
{
    double seconds = by_clock() - forecast->began;
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    double others = seconds * cores / (double)ranks - (used() - forecast->used);
    double waited = by__plan_waited() - forecast->waited;
    double share = fmin(waited, others) / (seconds * (double)(threads > 0 ? threads : 1));
    return share > 0.0 && share < 1.0 ? measured * (1.0 - share) : measured;
}

static by_status learn(const by_step_forecast *forecast, const by_trainer *t,
                       const by_config *config, double measured, by_error *error)
{
    by_machine machine;
    by__layout_step_key key;
    char *path;
    BY_TRY(describe(&key, &machine, t, config, error));
    if ((machine.busy & BY_MACHINE_COMPUTE) != 0) {
        return BY_OK; /* the plan was wrong by the figures, which will be measured again */
    }
    BY_TRY(by_layout_corrections_path(&path, error));
    double own = without_others(forecast, machine.threads, t->layout.ranks, measured);
    by_status status = by__layout_learn(path, &key, forecast->planned, own, error);
    free(path);
    return status;
}

const by_forecaster *by_layout_forecaster(void)
{
    static const by_forecaster forecaster = {predict, learn};
    return &forecaster;
}
