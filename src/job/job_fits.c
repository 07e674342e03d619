/* Checks whether a plan fits into free memory, and lists changes that would make it fit. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "trainer/state/trainer.h"

/* Most bytes of text in a message. */
#define MAX_TEXT 330

/* Formats "train.micro_batch=4 (3.1 GiB, 2.5 s a step), or ...". */
static void list_changes(by_string *out, const by_plan_change *changes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char bytes[32];
        char text[300];
        int length = snprintf(text, sizeof text, "%s%s", out->length == 0 ? "" : ", or ",
                              changes[i].settings);
        if (changes[i].ranks > 1) {
            length += snprintf(text + length, sizeof text - (size_t)length, " on %d ranks",
                               changes[i].ranks);
        }
        (void)snprintf(text + length, sizeof text - (size_t)length, " (%s%s, %.2g s a step)",
                       changes[i].ranks > 1 ? "about " : "",
                       by_format_bytes(bytes, changes[i].bytes), changes[i].seconds);
        if (out->length + strlen(text) > MAX_TEXT) {
            break;
        }
        by__string_append(out, text);
    }
}

/* The error of a plan that needs more bytes than are available. */
static by_status refuse_plan(const by__job *job, const by_memory_report *planned,
                             uint64_t available, by_error *error)
{
    char text[2][32];
    by_string fits = {0};
    size_t count = 0;
    by_plan_change changes[BY_PLAN_CHANGES];
    by_trainer_options options =
        job->options->trainer == NULL ? (by_trainer_options){0} : *job->options->trainer;
    options.data_bytes = job->data->bytes;
    BY_TRY(by_plan_changes(changes, &count, job->config, &options,
                           by_plan_limit(job->config, options.device, job->comm), error));
    list_changes(&fits, changes, count);
    const char *ways = fits.length > 0 ? fits.data
                                       : "no setting makes it fit: take a smaller train.batch, "
                                         "model.context or model, or more ranks";
    bool above = by__trainer_above_budget(planned, job->config);
    uint64_t need =
        above ? planned->total : by__trainer_needed(planned, job->trainer->device, job->comm);
    uint64_t have = above ? (uint64_t)job->config->memory.budget : available;
    by_status status = by_error_set(
        error, BY_EMEMORY, "the plan needs %s and %s%s%s; %s%s", by_format_bytes(text[0], need),
        above ? "memory.budget is " : "", by_format_bytes(text[1], have), above ? "" : " are free",
        fits.length > 0 ? "this would fit: " : "", ways);
    by_string_free(&fits);
    return status;
}

by_status by__job_fits(const by__job *job, by_error *error)
{
    const by_memory_report *planned = by_trainer_memory(job->trainer);
    const by_device *device = job->trainer->device;
    uint64_t available = by__device_memory_free(device);
    bool fits = by__trainer_needed(planned, device, job->comm) <= available &&
                !by__trainer_above_budget(planned, job->config);
    return fits ? BY_OK : refuse_plan(job, planned, available, error);
}
