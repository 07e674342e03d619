/* Texts that the model continues during training: encodes the prompt, and reports the text of the
 * tokens from the trainer (sampler.c). */
#include <stdlib.h>
#include <string.h>

#include "config/kind.h"
#include "job/job.h"
#include "trainer/probes/probes.h"
#include "trainer/state/trainer.h"

struct by__job_sample {
    int32_t *ids; /* of the prompt, with room for the continuation */
    size_t count; /* number of ids in the prompt */
    size_t more;
    int64_t vocab;
};

static by_status refuse(const by__job *job, const char *why, by_error *error)
{
    return by_error_set(error, BY_ECONFIG, "%s: track.sample_prompt: %s",
                        by__config_where(job->config, "track.sample_prompt", "track.sample_every"),
                        why);
}

static by_status read_prompt(by__job_sample *s, by__job *job, by_error *error)
{
    by_error problem = {0};
    const char *prompt = job->config->track.sample_prompt;
    int32_t *ids = NULL;
    size_t positions = (size_t)by__trainer_sampler_positions(job->trainer);
    if (job->data->task->encode(job->data, prompt, &ids, &s->count, &s->vocab, &problem) != BY_OK) {
        return refuse(job, problem.message, error);
    }
    by_status status = BY_OK;
    if (s->count == 0 || s->count >= positions) {
        char text[128];
        (void)snprintf(text, sizeof text,
                       "it is %zu tokens long, and the model has a context of %lld", s->count,
                       (long long)job->config->model.context);
        status = refuse(job, text, error);
    } else {
        s->more = positions - s->count;
        s->more = s->more < (size_t)job->config->track.sample_tokens
                      ? s->more
                      : (size_t)job->config->track.sample_tokens;
        status = by__alloc((void **)&s->ids, s->count + s->more, sizeof *s->ids, "sample", error);
    }
    if (status == BY_OK) {
        memcpy(s->ids, ids, s->count * sizeof *ids);
    }
    free(ids);
    return status;
}

by_status by__job_sample_open(by__job *job, by_error *error)
{
    if (by__trainer_sampler_positions(job->trainer) == 0) {
        return BY_OK;
    }
    if (job->data->task->encode == NULL) {
        return refuse(job, "the task has no text: set track.sample_every to 0", error);
    }
    BY_TRY(by__alloc((void **)&job->texts, 1, sizeof *job->texts, "sample", error));
    return read_prompt(job->texts, job, error);
}

void by__job_sample_close(by__job_sample **sample)
{
    if (*sample != NULL) {
        free((*sample)->ids);
        free(*sample);
        *sample = NULL;
    }
}

by_status by__job_sample_log(by__job *job, int64_t step, by_error *error)
{
    by__job_sample *s = job->texts;
    char *text = NULL;
    size_t length;
    size_t made;
    if (s == NULL) {
        return BY_OK;
    }
    BY_TRY(
        by__trainer_sampler_run(job->trainer, s->ids, s->count, s->more, s->vocab, &made, error));
    BY_TRY(job->data->task->decode(job->data, s->ids, s->count + made, &text, &length, error));
    by_string valid = {0};
    by__string_add_valid(&valid, text, length);
    free(text);
    if (!valid.failed && valid.data != NULL) {
        by_train_event event = {.kind = BY_TRAIN_SAMPLED, .text = valid.data};
        by__track_begin(job->tracker, BY__EVENT_TEXT, "sample", (uint64_t)step);
        by__track_text(job->tracker, "text", valid.data);
        by__job_report(job, &event);
        by__track_end(job->tracker);
    }
    by_string_free(&valid);
    return BY_OK;
}
