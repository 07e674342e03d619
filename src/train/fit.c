/* Checks whether a plan fits into free memory, and lists changes that would make it fit. */
#include <stdlib.h>
#include <string.h>

#include "train/loop.h"

/* Number of ranks on this host, each of which plans the same amount. */
static uint64_t ranks_here(const by_comm *comm)
{
    uint64_t ranks = 1;
    for (int r = 0; comm != NULL && r < by_comm_size(comm); r++) {
        ranks += r != by_comm_rank(comm) && by_comm_is_near(comm, r);
    }
    return ranks;
}

/* Bytes that a plan still has to allocate: the process itself is resident already. */
static uint64_t needed(const by_memory_report *plan, const by_comm *comm)
{
    return (plan->total - plan->process) * ranks_here(comm);
}

/* Returns true if the plan is larger than the config permits. */
static bool is_above_budget(const by_memory_report *planned, const by_config *config)
{
    return config->memory.budget > 0 && planned->total > (uint64_t)config->memory.budget;
}

uint64_t by_plan_limit(const by_config *config, const by_comm *comm)
{
    by__host_memory memory;
    by__memory_available(&memory);
    uint64_t limit = memory.available / ranks_here(comm) + by__resident_bytes();
    uint64_t budget = (uint64_t)config->memory.budget;
    return budget > 0 && budget < limit ? budget : limit;
}

/* Most bytes of text in a message. */
#define MOST_TEXT 330

/* Formats "train.micro_batch=4 (3.1 GiB, 2.5 s a step), or ...". */
static void list_changes(by__text *out, const by_plan_change *changes, size_t count)
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
        if (out->length + strlen(text) > MOST_TEXT) {
            break;
        }
        by__text_add(out, text);
    }
}

/* The error of a plan that needs more bytes than are available. */
static by_status refuse_plan(const by__job *job, const by_memory_report *planned,
                             const by__host_memory *memory, by_error *error)
{
    char text[2][32];
    by__text fits = {0};
    size_t count = 0;
    by_plan_change changes[BY_PLAN_CHANGES];
    by_trainer_options options =
        job->options->trainer == NULL ? (by_trainer_options){0} : *job->options->trainer;
    options.data_bytes = job->data->bytes;
    BY_TRY(by_plan_changes(changes, &count, job->config, &options,
                           by_plan_limit(job->config, job->comm), error));
    list_changes(&fits, changes, count);
    const char *ways = fits.length > 0 ? fits.data
                                       : "no setting makes it fit: take a smaller train.batch, "
                                         "model.context or model, or more ranks";
    bool above = is_above_budget(planned, job->config);
    uint64_t need = above ? planned->total : needed(planned, job->comm);
    uint64_t have = above ? (uint64_t)job->config->memory.budget : memory->available;
    by_status status = by_error_set(
        error, BY_EMEMORY, "the plan needs %s and %s%s%s; %s%s", by_format_bytes(text[0], need),
        above ? "memory.budget is " : "", by_format_bytes(text[1], have), above ? "" : " are free",
        fits.length > 0 ? "this would fit: " : "", ways);
    by__text_free(&fits);
    return status;
}

by_status by__plan_fits(const by_memory_report *planned, const by_config *config,
                        const by_comm *comm, by_error *error)
{
    char text[2][32];
    by__host_memory memory;
    by__memory_available(&memory);
    /* Loaders have allocated theirs already. */
    uint64_t need = needed(planned, comm) - planned->data * ranks_here(comm);
    if (is_above_budget(planned, config)) {
        return by_error_set(error, BY_EMEMORY, "the plan needs %s and memory.budget is %s",
                            by_format_bytes(text[0], planned->total),
                            by_format_bytes(text[1], (uint64_t)config->memory.budget));
    }
    return need <= memory.available
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "the plan needs %s and %s are free",
                              by_format_bytes(text[0], need),
                              by_format_bytes(text[1], memory.available));
}

by_status by__job_fits(const by__job *job, by_error *error)
{
    by__host_memory memory;
    const by_memory_report *planned = by_trainer_memory(job->trainer);
    by__memory_available(&memory);
    bool fits =
        needed(planned, job->comm) <= memory.available && !is_above_budget(planned, job->config);
    return fits ? BY_OK : refuse_plan(job, planned, &memory, error);
}
