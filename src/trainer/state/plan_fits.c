/* Whether a plan fits into the memory that is free, and into memory.budget. */
#include <stdlib.h>

#include "device/device.h"
#include "trainer/state/train.h"

/* Number of ranks on this host, each of which plans the same amount. */
static uint64_t ranks_on_host(const by_comm *comm)
{
    uint64_t ranks = 1;
    for (int r = 0; comm != NULL && r < by_comm_size(comm); r++) {
        ranks += r != by_comm_rank(comm) && by_comm_is_near(comm, r);
    }
    return ranks;
}

uint64_t by__trainer_needed(const by_memory_report *plan, const by_device *device,
                            const by_comm *comm)
{
    return device->host_memory ? (plan->total - plan->process) * ranks_on_host(comm)
                               : plan->parameters + plan->gradients + plan->optimizer +
                                     plan->activations + plan->workspace;
}

bool by__trainer_above_budget(const by_memory_report *planned, const by_config *config)
{
    return config->memory.budget > 0 && planned->total > (uint64_t)config->memory.budget;
}

uint64_t by_plan_limit(const by_config *config, by_device *device, const by_comm *comm)
{
    by_device *opened = NULL;
    if (device == NULL && by_device_open(&opened, config->device, 1, NULL) == BY_OK) {
        device = opened;
    }
    uint64_t available = device == NULL ? UINT64_MAX / 2 : by__device_memory_free(device);
    bool shared = device != NULL && device->host_memory;
    uint64_t limit =
        (shared ? available / ranks_on_host(comm) : available) + by__trainer_resident_bytes();
    uint64_t budget = (uint64_t)config->memory.budget;
    by_device_close(&opened);
    return budget > 0 && budget < limit ? budget : limit;
}

by_status by__trainer_plan_fits(const by_memory_report *planned, const by_config *config,
                                const by_device *device, const by_comm *comm, by_error *error)
{
    char text[2][32];
    uint64_t available = by__device_memory_free(device);
    uint64_t need = by__trainer_needed(planned, device, comm);
    /* Loaders have allocated theirs already, on the host. */
    need -= device->host_memory ? planned->data * ranks_on_host(comm) : 0;
    if (by__trainer_above_budget(planned, config)) {
        return by_error_set(error, BY_EMEMORY, "the plan needs %s and memory.budget is %s",
                            by_format_bytes(text[0], planned->total),
                            by_format_bytes(text[1], (uint64_t)config->memory.budget));
    }
    return need <= available
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "the plan needs %s and %s are free%s",
                              by_format_bytes(text[0], need), by_format_bytes(text[1], available),
                              device->host_memory ? "" : " on the device");
}
