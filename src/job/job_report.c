/* What a job tells its caller: notes, reports, progress; and what the caller asks of it. */
#include <stdarg.h>

#include "job/job.h"

/* Fills the members common to all events. */
static void complete_report(const by__job *job, by_train_event *event)
{
    event->run = job->dir.path;
    event->config = job->config;
    event->steps = job->config->train.steps;
    event->first_step = job->at.first_step;
    event->task = by_trainer_task(job->trainer);
    event->step = event->kind == BY_TRAIN_SAVED ? event->step : job->at.done_step;
}

void by__job_send(const by__job *job, by_train_event *event)
{
    if (job->options->event != NULL && by__job_leads(job) && !job->is_trial) {
        complete_report(job, event);
        job->options->event(job->options->user, event);
    }
}

void by__job_report(by__job *job, by_train_event *report)
{
    complete_report(job, report);
    by__track_report(job->tracker, report);
}

void by__job_note(const by__job *job, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
    by__job_send(job, &event);
}

void by__job_progress(const by__job *job, const char *phase)
{
    if (job->options->progress != NULL) {
        job->options->progress(job->options->user, job->at.done_step, phase);
    }
}

bool by__job_stopped(const by__job *job)
{
    return job->options->stop != NULL && job->options->stop(job->options->user);
}

by__trainer_recipe by__job_recipe(const by__job *job)
{
    const by_trainer_options *own = job->options->trainer;
    return (by__trainer_recipe){.builder = own == NULL ? NULL : own->builder,
                                .user = own == NULL ? NULL : own->user,
                                .task = job->data->task};
}
