/* When the next checkpoint is due, with checkpoint.every auto: the interval with which failures at
 * random (a Poisson process) lose least, for the seconds that a save stops the run here. It is
 * exact for such failures (by_interval_best, the maximum of Daly 2006, equation 13; Young's sqrt(2
 * save mean) where a save is short); how long a restart takes does not move it.
 *
 * The first two saves come after FIRST steps each, and tell how long steps and saves take. From
 * then on each save sets the step of the next one. Rank 0 measures, and all ranks save after the
 * same steps; what is computed does not depend on them. */
#include <math.h>

#include "banyan/comm.h"
#include "banyan/failures.h"
#include "job/job.h"

#define FIRST 10

static bool is_auto(const by__job *job)
{
    return job->config->checkpoint.every == -1;
}

void by__job_interval_begin(by__job *job)
{
    by__job_interval *i = &job->saved.interval;
    i->step = job->at.done_step;
    i->next = i->step + FIRST;
    i->began = by__now();
}

bool by__job_interval_is_due(const by__job *job, int64_t step)
{
    return is_auto(job) && step >= job->saved.interval.next;
}

/* The steps until the next save, by what this rank has measured. */
static int64_t measured_steps(const by__job *job, double *seconds)
{
    const by__job_interval *i = &job->saved.interval;
    const by__job_position *at = &job->at;
    double step = (by__now() - i->began) / (double)(at->done_step - i->step);
    double left = (double)(job->config->train.steps - at->done_step);
    by_failures failures = {.save = i->stalled,
                            .mean = job->config->checkpoint.mean_time_between_failures};
    *seconds = 0.0;
    if (i->written <= 0.0) {
        return FIRST; /* no save has ended yet */
    }
    /* One that takes no time at all would be due after every step, and one is written at a time. */
    failures.save = fmax(failures.save, 1e-6);
    *seconds = fmax(by_interval_best(&failures), i->written);
    return (int64_t)fmax(1.0, fmin(left, round(*seconds / step)));
}

static void report(by__job *job, double seconds, int64_t steps)
{
    const by__job_interval *i = &job->saved.interval;
    by__track_begin(job->tracker, BY__EVENT_SYSTEM, "checkpoint_interval",
                    (uint64_t)job->at.done_step);
    by__track_number(job->tracker, "interval_steps", (double)steps);
    by__track_number(job->tracker, "interval_seconds", seconds);
    by__track_number(job->tracker, "stalled_seconds", i->stalled);
    by__track_number(job->tracker, "seconds", i->written);
    by__track_end(job->tracker);
    by__job_note(
        job,
        "checkpoint.every auto: a save stops the run for %.3g s and takes %.3g s; the next "
        "one is %lld steps from here",
        i->stalled, i->written, (long long)steps);
}

by_status by__job_interval_saved(by__job *job, by_error *error)
{
    by__job_interval *i = &job->saved.interval;
    int64_t steps = 0;
    if (!is_auto(job) || job->at.done_step <= i->step) {
        return BY_OK;
    }
    if (by__job_leads(job)) {
        double seconds;
        steps = measured_steps(job, &seconds);
        if (seconds > 0.0) {
            report(job, seconds, steps);
        }
    }
    if (job->comm != NULL) {
        BY_TRY(by_comm_broadcast(job->comm, &steps, sizeof steps, BY_U8, 0,
                                 "the steps to the next checkpoint", error));
    }
    i->step = job->at.done_step;
    i->next = i->step + steps;
    i->began = by__now();
    return BY_OK;
}
