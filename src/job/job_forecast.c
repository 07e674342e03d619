/* What a step was predicted to take beside what steps take. */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "job/job.h"
#include "trainer/state/trainer.h"

/* Fewer steps tell nothing: the first one is left out, and one may be slow. */
enum { LEAST_STEPS = 3 };

void by__job_forecast_open(by__job *job)
{
    const by_forecaster *f = job->options->forecaster;
    if (f == NULL || !by__job_leads(job) || job->is_trial || job->rollouts != NULL) {
        return;
    }
    by_error aside;
    if (f->predict(&job->forecast.step, job->trainer, job->config, &aside) != BY_OK) {
        job->forecast.step = (by_step_forecast){0};
    }
}

void by__job_forecast_step(by__job *job)
{
    by__job_forecast *f = &job->forecast;
    double now = by_clock();
    if (f->time > 0.0) {
        f->measured[f->count++ % BY__FORECAST_STEPS] = now - f->time;
    }
    f->time = now;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(by__job_forecast *f)
{
    size_t count = f->count < BY__FORECAST_STEPS ? f->count : BY__FORECAST_STEPS;
    qsort(f->measured, count, sizeof *f->measured, ascending);
    return 0.5 * (f->measured[(count - 1) / 2] + f->measured[count / 2]);
}

static void compare(by__job *job, double measured)
{
    const by__job_forecast *f = &job->forecast;
    const by_memory_report *memory = by_trainer_memory(job->trainer);
    uint64_t resident = job->trainer->device->host_memory ? by__trainer_resident_bytes() : 0;
    resident = resident > 0 && f->resident > resident ? f->resident : resident;
    by_train_event event = {.kind = BY_TRAIN_COMPARED,
                            .forecast = &f->step,
                            .step_seconds = measured,
                            .memory = memory,
                            .resident_bytes = resident};
    by__track_begin(job->tracker, BY__EVENT_SYSTEM, "plan", (uint64_t)job->at.done_step);
    by__track_number(job->tracker, "planned_step_seconds", f->step.seconds);
    by__track_number(job->tracker, "step_seconds", measured);
    by__track_integer(job->tracker, "planned_bytes", (int64_t)memory->total);
    if (resident > 0) {
        by__track_integer(job->tracker, "resident_bytes", (int64_t)resident);
    }
    by__job_report(job, &event);
    by__track_end(job->tracker);
}

void by__job_forecast_end(by__job *job)
{
    by__job_forecast *f = &job->forecast;
    if (!(f->step.seconds > 0.0) || f->count < LEAST_STEPS) {
        return;
    }
    double measured = median(f);
    compare(job, measured);
    /* Steps of other batches than the last one took other times. */
    if (job->config->train.batch_warmup.count == 0) {
        by_error aside;
        (void)job->options->forecaster->learn(&f->step, job->trainer, job->config, measured,
                                              &aside);
    }
}
