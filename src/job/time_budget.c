/* How long the parts of a run take on this machine, and how many steps fit into a time. What is
 * measured has data, weights and memory of its own, which are closed before the run opens its own:
 * nothing of the measurement reaches the run, which is a function of its config. */
#include <math.h>
#include <stdlib.h>

#include "config/kind.h"
#include "job/job.h"
#include "trainer/exchange/exchange.h"

/* Share of the measuring time that evaluations get. */
#define EVALUATION_SHARE 0.2
/* Speed of a disk that was not measured, and of a copy to the saver's memory, in bytes/s. */
#define DISK_SPEED    2e8
#define STAGING_SPEED 2e9
#define MAX_STEPS     400
#define MIN_ROUNDS    2

/* ---- measuring ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the middle half: an interruption of the machine does not count, a load that lasts
 * does. */
static double middle_mean(double *seconds, size_t count)
{
    double sum = 0.0;
    size_t cut = count / 4;
    qsort(seconds, count, sizeof *seconds, compare);
    for (size_t i = cut; i < count - cut; i++) {
        sum += seconds[i];
    }
    return sum / (double)(count - 2 * cut);
}

static by_status time_step(by__job *job, double *seconds, by_error *error)
{
    by_batch batch;
    by_step_result result;
    if (job->comm == NULL && by__job_stopped(job)) {
        return by_error_set(error, BY_ESTOPPED, "stopped before the first step");
    }
    by__job_progress(job, "measuring");
    double began = by__now();
    BY_TRY(by__job_next_batch(job, &batch, error));
    BY_TRY(by_trainer_step(job->trainer, &batch, &result, error));
    *seconds = by__now() - began;
    return BY_OK;
}

/* A number that rank 0 has chosen, on all ranks. */
static by_status share_count(const by__job *job, int32_t *count, by_error *error)
{
    return job->comm == NULL
               ? BY_OK
               : by_comm_broadcast(job->comm, count, 1, BY_I32, 0, "steps to measure", error);
}

/* One step warms up, one tells how many fit into the time. */
static by_status measure_steps(by__job *job, double *step, double seconds, by_error *error)
{
    double times[MAX_STEPS];
    BY_TRY(time_step(job, &times[0], error));
    BY_TRY(time_step(job, &times[0], error));
    double fitting = floor((seconds - times[0]) / times[0]);
    int32_t count = fitting >= MAX_STEPS ? MAX_STEPS : fitting < 1.0 ? 0 : (int32_t)fitting;
    BY_TRY(share_count(job, &count, error));
    for (int32_t i = 0; i < count; i++) {
        BY_TRY(time_step(job, &times[i], error));
    }
    *step = middle_mean(times, count == 0 ? 1 : (size_t)count);
    return BY_OK;
}

/* Ends an evaluation when its time is over. */
typedef struct rounds {
    const by__job *job;
    double end;
    int64_t begun;
} rounds;

static bool is_over(void *user)
{
    rounds *r = user;
    by__job_progress(r->job, "measuring");
    return r->begun++ >= MIN_ROUNDS && by__now() > r->end;
}

/* Rounds of a whole evaluation, in each of which every replica computes a micro-batch. */
static double whole_rounds(const by__job *job)
{
    size_t rank;
    double replicas = (double)by__trainer_ranks_replicas(job->trainer, &rank);
    double micro_batch = (double)job->config->train.micro_batch;
    double all = ceil((double)by_loader_epoch_samples(job->valid_loader) / micro_batch);
    double asked = (double)job->config->train.eval_batches;
    bool limited = asked > 0.0 && asked < all && job->data->part_count == 0;
    return ceil((limited ? asked : all) / replicas);
}

/* An evaluation that does not end in its time is projected from its rounds. */
static by_status measure_evaluation(by__job *job, double *evaluation, double seconds,
                                    by_error *error)
{
    by_evaluation result;
    by_error stopped = {0};
    double began = by__now();
    rounds r = {.job = job, .end = began + seconds};
    *evaluation = 0.0;
    if (job->valid_loader == NULL) {
        return BY_OK;
    }
    by_status status = by__job_evaluate_loader(&result, job->trainer, job->data, job->valid_loader,
                                               job->config->train.eval_batches, job->valid.outcomes,
                                               is_over, &r, &stopped);
    *evaluation = by__now() - began;
    if (status == BY_ESTOPPED) {
        *evaluation *= fmax(1.0, whole_rounds(job) / fmax(1.0, (double)(r.begun - 1)));
        return BY_OK;
    }
    return status == BY_OK ? BY_OK : by_error_set(error, status, "%s", stopped.message);
}

/* From the bytes of a checkpoint: writing one would wait for a disk that may be slow only once. */
static void estimate_saves(const by__job *job, by_train_times *out)
{
    const by_trainer_options *own = job->options->trainer;
    const by_memory_report *memory = by_trainer_memory(job->trainer);
    double disk = own != NULL && own->speeds.disk > 0.0 ? own->speeds.disk : DISK_SPEED;
    double bytes =
        4.0 * (double)by_trainer_size(job->trainer)->parameters + (double)memory->optimizer;
    out->last_save = bytes / disk;
    out->save = job->config->checkpoint.async != 0 ? bytes / STAGING_SPEED : out->last_save;
}

static by_status measure(by__job *job, by_train_times *out, double seconds, by_error *error)
{
    BY_TRY(by__job_prepare(job, error));
    double began = by__now();
    BY_TRY(by_trainer_initialize(job->trainer, error));
    double evaluations = job->valid_loader == NULL ? 0.0 : EVALUATION_SHARE * seconds;
    BY_TRY(measure_steps(job, &out->step, seconds - evaluations, error));
    BY_TRY(measure_evaluation(job, &out->evaluation, evaluations, error));
    estimate_saves(job, out);
    out->measuring = by__now() - began;
    return BY_OK;
}

by_status by_train_measure(by_train_times *out, const by_train_options *options, double seconds,
                           by_error *error)
{
    by_train_times times = {0};
    by__job job = by__job_of(options);
    job.is_trial = true;
    by_status status = measure(&job, &times, seconds, error);
    if (job.comm != NULL) {
        status = status == BY_OK
                     ? by_comm_broadcast(job.comm, &times, sizeof times / sizeof(int32_t), BY_I32,
                                         0, "the times of a run", error)
                     : by_comm_fail(job.comm, status, error);
    }
    by__job_release(&job);
    if (status == BY_OK) {
        *out = times;
    }
    return status;
}

/* ---- fitting ---- */

/* Evaluations of a run whose config leaves train.eval_every open. */
#define EVALUATIONS 8
/* Their most share of the time. */
#define EVALUATING 0.05

static int64_t divided_up(int64_t steps, int64_t parts)
{
    return (steps + parts - 1) / parts;
}

/* Number of steps after which there is something to do at this interval, the last one included. */
static double occasions(int64_t steps, int64_t every)
{
    return every <= 0 ? 1.0 : (double)divided_up(steps, every);
}

/* Steps at which both intervals meet; 0: never, or beyond any run. */
static int64_t common(int64_t a, int64_t b)
{
    int64_t divisor = a;
    for (int64_t rest = b; rest != 0;) {
        int64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    int64_t both;
    return a <= 0 || b <= 0 || __builtin_mul_overflow(a / divisor, b, &both) ? 0 : both;
}

/* Evaluations, each of which may save the best weights, and the saves that do not coincide. */
static void plan(by_train_fit *fit, const by_config *config, const by_train_times *times,
                 double seconds)
{
    int64_t steps = fit->steps;
    bool evaluates = times->evaluation > 0.0;
    double most = evaluates ? floor(EVALUATING * seconds / times->evaluation) : EVALUATIONS;
    int64_t parts = most >= EVALUATIONS ? EVALUATIONS : most < 1.0 ? 1 : (int64_t)most;
    fit->eval_every = by__config_is_given(config, "train.eval_every") ? config->train.eval_every
                                                                      : divided_up(steps, parts);
    fit->checkpoint_every = by__config_is_given(config, "checkpoint.every")
                                ? config->checkpoint.every
                            : fit->eval_every > 0 && parts > 1 ? 2 * fit->eval_every
                                                               : divided_up(steps, 4);
    double evaluations = evaluates ? occasions(steps, fit->eval_every) : 0.0;
    double both = evaluates ? occasions(steps, common(fit->eval_every, fit->checkpoint_every)) : 0;
    double saves = evaluations + occasions(steps, fit->checkpoint_every) - both;
    double full = (double)by_config_samples(config, steps) / (double)config->train.batch;
    fit->seconds = full * times->step + evaluations * times->evaluation +
                   (saves - 1.0) * times->save + times->last_save;
}

by_status by_train_fit_steps(by_train_fit *out, const by_config *config,
                             const by_train_times *times, double seconds, by_error *error)
{
    by_train_fit fit = {.steps = 1};
    int64_t most = INT64_C(1000000000000000);
    if (!isfinite(seconds) || seconds <= 0.0 || !isfinite(times->step) || times->step <= 0.0) {
        return by_error_set(error, BY_EARG,
                            "%g seconds for steps of %g seconds: both must be "
                            "above 0",
                            seconds, times->step);
    }
    for (int64_t least = 1; least < most;) {
        fit.steps = least + (most - least + 1) / 2;
        plan(&fit, config, times, seconds);
        if (fit.seconds <= seconds) {
            least = fit.steps;
        } else {
            most = fit.steps - 1;
        }
    }
    fit.steps = most;
    plan(&fit, config, times, seconds);
    *out = fit;
    return BY_OK;
}
