/* A job's handling of damaged data that is skipped (data.corrupt: skip).
 *
 * Damage is found when data are opened, before the first step, so every rank knows which samples of
 * the whole batch replace damaged ones, without communication. */
#include <string.h>

#include "job/job.h"

by_status by__job_damage_open(by__job *job, by_error *error)
{
    const by_task_data *data = job->data;
    by_string text = {0};
    if (strcmp(job->config->data.corrupt, "skip") != 0) {
        return BY_OK;
    }
    for (size_t i = 0; i < data->damage_count; i++) {
        by_string_format(&text, "%llu %llu\n", (unsigned long long)data->damage[i].begin,
                         (unsigned long long)data->damage[i].count);
    }
    if (text.failed) {
        by_string_free(&text);
        return by_error_set(error, BY_EMEMORY, "out of memory: damaged data");
    }
    if (text.length > 0) {
        by__hash128_hex(job->skipped.hash, text.data, text.length);
    }
    by_string_free(&text);
    return by__job_same(job, job->skipped.hash[0] == '\0' ? "none" : job->skipped.hash,
                        "the hash of damaged data", error);
}

void by__job_damage_start(by__job *job)
{
    const by_task_data *data = job->data;
    for (size_t i = 0; i < data->damage_count; i++) {
        const by_damage *d = &data->damage[i];
        by__track_begin(job->tracker, BY__EVENT_ALERT, "corrupt", (uint64_t)job->at.first_step);
        by__track_text(job->tracker, "file", d->path);
        by__track_integer(job->tracker, "place", (int64_t)d->place);
        by__track_integer(job->tracker, "first", (int64_t)d->begin);
        by__track_integer(job->tracker, "count", (int64_t)d->count);
        by__track_text(job->tracker, "reason", d->reason);
        by__track_end(job->tracker);
    }
}

void by__job_damage_submitted(by__job *job, const by_batch *batch)
{
    size_t slot = (size_t)(by_trainer_updates(job->trainer) % BY_STEPS_AHEAD);
    job->skipped.counts[slot] = batch->damaged;
    job->skipped.first[slot] = batch->first_damaged;
}

void by__job_damage_collected(by__job *job, int64_t step)
{
    size_t slot = (size_t)(step % BY_STEPS_AHEAD);
    if (job->skipped.counts[slot] == 0) {
        return;
    }
    job->skipped.samples += job->skipped.counts[slot];
    if (by__job_leads(job)) {
        by__track_begin(job->tracker, BY__EVENT_ALERT, "replaced", (uint64_t)step);
        by__track_integer(job->tracker, "samples", (int64_t)job->skipped.counts[slot]);
        by__track_integer(job->tracker, "first_sample", (int64_t)job->skipped.first[slot]);
        by__track_integer(job->tracker, "damaged_samples", (int64_t)job->skipped.samples);
        by__track_end(job->tracker);
    }
}

void by__job_damage_end(by__job *job)
{
    if (job->skipped.samples > 0) {
        by__job_note(
            job, "%llu samples had damaged tokens and were replaced by others (events `replaced`)",
            (unsigned long long)job->skipped.samples);
    }
}

void by__job_damage_restore(by__job *job, const by_checkpoint *checkpoint)
{
    const char *then;
    if (by_checkpoint_value_u64(checkpoint, "damaged_samples", &job->skipped.samples, NULL) !=
        BY_OK) {
        job->skipped.samples = 0;
    }
    if (by_checkpoint_value_string(checkpoint, "damage", &then, NULL) != BY_OK) {
        then = "";
    }
    if (strcmp(then, job->skipped.hash) != 0) {
        by__job_note(job,
                     "other parts of the data are damaged than when %s was written: they are "
                     "replaced by other samples from here on",
                     by_checkpoint_path(checkpoint));
    }
}
