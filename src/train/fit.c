/* Whether a plan fits into the memory that is free, and what would. */
#include <stdlib.h>
#include <string.h>

#include "train/loop.h"

/* Ranks that share this host's memory, which each plan as much. */
static uint64_t ranks_here(const by_comm *comm)
{
    uint64_t ranks = 1;
    for (int r = 0; comm != NULL && r < by_comm_size(comm); r++) {
        ranks += r != by_comm_rank(comm) && by_comm_is_near(comm, r);
    }
    return ranks;
}

/* What a plan still has to take: the process is resident already. */
static uint64_t needed(const by_memory_report *plan, const by_comm *comm)
{
    return (plan->total - plan->process) * ranks_here(comm);
}

/* Micro-batches up to the config's that divide the batch, smallest first; at most `capacity`. */
static size_t list_divisors(int64_t *out, size_t capacity, const by_train_config *train)
{
    size_t count = 0;
    for (int64_t d = 1; d <= train->micro_batch && count < capacity; d++) {
        if (train->batch % d == 0) {
            out[count++] = d;
        }
    }
    return count;
}

/* Plans the config with another micro-batch and recompute; a plan that cannot be made needs all. */
static uint64_t plan_with(const by__job *job, int64_t micro_batch, char *recompute)
{
    by_config variant = *job->config; /* shares the strings */
    by_trainer *trainer;
    uint64_t bytes = UINT64_MAX;
    variant.train.micro_batch = micro_batch;
    variant.memory.recompute = recompute;
    if (by_trainer_open(&trainer, &variant, job->options->trainer, NULL) != BY_OK) {
        return bytes;
    }
    if (by_trainer_plan_loaders(trainer, job->data->valid_examples > 0, NULL) == BY_OK) {
        by_trainer_plan_data(trainer, job->data->bytes);
        by_trainer_plan_staging(trainer);
        bytes = needed(by_trainer_memory(trainer), job->comm);
    }
    by_trainer_close(&trainer);
    return bytes;
}

/* The largest micro-batch whose plan fits, by halving: a plan grows with it. 0: not even 1. */
static int64_t find_micro_batch(uint64_t *bytes, const by__job *job, char *recompute,
                                uint64_t available)
{
    int64_t divisors[256];
    size_t low = 0; /* so many of the smallest fit */
    size_t high = list_divisors(divisors, BY_ARRAY_LENGTH(divisors), &job->config->train);
    int64_t best = 0;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uint64_t need = plan_with(job, divisors[middle], recompute);
        if (need <= available) {
            best = divisors[middle];
            *bytes = need;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return best;
}

/* "train.micro_batch=4 fits (3.1 GiB)" for each setting of recompute. */
static void suggest(by__text *out, const by__job *job, uint64_t available)
{
    char none[] = "none";
    char block[] = "block";
    char *settings[2] = {none, block};
    bool recomputes = strcmp(job->config->memory.recompute, block) == 0;
    for (int i = recomputes ? 1 : 0; i < 2; i++) {
        char text[32];
        uint64_t bytes = 0;
        int64_t micro_batch = find_micro_batch(&bytes, job, settings[i], available);
        if (micro_batch > 0) {
            by__text_format(out, "%strain.micro_batch=%lld%s (%s)", out->length == 0 ? "" : ", or ",
                            (long long)micro_batch,
                            i == 1 && !recomputes ? " with memory.recompute=block" : "",
                            by_format_bytes(text, bytes));
        }
    }
}

by_status by__refuse_plan(const by__job *job, const by_memory_report *planned,
                          const by__host_memory *memory, by_error *error)
{
    char text[2][32];
    by__text fits = {0};
    suggest(&fits, job, memory->available);
    by_status status = by_error_set(
        error, BY_EMEMORY, "the plan needs %s and %s are free; %s%s",
        by_format_bytes(text[0], needed(planned, job->comm)),
        by_format_bytes(text[1], memory->available),
        fits.length > 0 ? "this would fit: "
                        : "not even train.micro_batch=1 with memory.recompute=block fits: take a "
                          "smaller train.batch, model.context or model",
        fits.length > 0 ? fits.data : "");
    by__text_free(&fits);
    return status;
}

/* The plan is larger than the config permits. */
static bool is_above_budget(const by_memory_report *planned, const by_config *config)
{
    return config->memory.budget > 0 && planned->total > (uint64_t)config->memory.budget;
}

by_status by__plan_fits(const by_memory_report *planned, const by_config *config,
                        const by_comm *comm, by_error *error)
{
    char text[2][32];
    by__host_memory memory;
    by__memory_available(&memory);
    /* Loaders have theirs by now. */
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
    return fits ? BY_OK : by__refuse_plan(job, planned, &memory, error);
}
