/* Whether a plan fits into the memory that is free, and into memory.budget. */
#include <stdlib.h>

#include "trainer/state/train.h"

/* Number of ranks on this host, each of which plans the same amount. */
static uint64_t ranks_here(const by_comm *comm)
{
    uint64_t ranks = 1;
    for (int r = 0; comm != NULL && r < by_comm_size(comm); r++) {
        ranks += r != by_comm_rank(comm) && by_comm_is_near(comm, r);
    }
    return ranks;
}

uint64_t by__trainer_needed(const by_memory_report *plan, const by_comm *comm)
{
    return (plan->total - plan->process) * ranks_here(comm);
}

bool by__trainer_above_budget(const by_memory_report *planned, const by_config *config)
{
    return config->memory.budget > 0 && planned->total > (uint64_t)config->memory.budget;
}

uint64_t by_plan_limit(const by_config *config, const by_comm *comm)
{
    by__host_memory memory;
    by__memory_available(&memory);
    uint64_t limit = memory.available / ranks_here(comm) + by__trainer_resident_bytes();
    uint64_t budget = (uint64_t)config->memory.budget;
    return budget > 0 && budget < limit ? budget : limit;
}

by_status by__trainer_plan_fits(const by_memory_report *planned, const by_config *config,
                                const by_comm *comm, by_error *error)
{
    char text[2][32];
    by__host_memory memory;
    by__memory_available(&memory);
    /* Loaders have allocated theirs already. */
    uint64_t need = by__trainer_needed(planned, comm) - planned->data * ranks_here(comm);
    if (by__trainer_above_budget(planned, config)) {
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
