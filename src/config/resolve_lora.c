/* The section lora: derived values, and what adapters and weights in codes do not work with. */
#include <string.h>

#include "config/schema.h"

/* Refuses what weights in codes cannot do: be divided, or be changed by anything but adapters. */
static by_status check_base(const by_config *config, by_error *error)
{
    static const char *const axes[] = {"parallel.tensor", "parallel.pipeline", "parallel.sequence",
                                       "parallel.expert"};
    const by_lora_config *lora = &config->lora;
    const by_parallel_config *p = &config->parallel;
    const int64_t ranks[] = {p->tensor, p->pipeline, p->sequence, p->expert};
    int64_t group = lora->base_group;
    if (group != 32 && group != 64 && group != 128) {
        return by_error_set(error, BY_ECONFIG, "%s: lora.base_group is %lld; must be 32, 64 or 128",
                            by__config_where(config, "lora.base_group", "lora.base"),
                            (long long)group);
    }
    if (strcmp(lora->base, "full") == 0) {
        return BY_OK;
    }
    if (lora->rank == 0 && lora->from[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: lora.base is %s, but lora.rank is 0: weights in codes are frozen, "
                            "and only adapters are trained: set lora.rank, for example to 8",
                            by__config_where(config, "lora.base", "lora.rank"), lora->base);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(axes); i++) {
        if (ranks[i] > 1) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: lora.base %s holds weights in codes, which %s %lld cannot "
                                "divide: use parallel.data or parallel.shard, or lora.base full",
                                by__config_where(config, "lora.base", axes[i]), lora->base, axes[i],
                                (long long)ranks[i]);
        }
    }
    if (strcmp(config->offload.optimizer, "none") != 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: offload.optimizer %s moves weights to disk, and lora.base %s holds "
            "them in memory, in codes: leave out one of them",
            by__config_where(config, "lora.base", "offload.optimizer"), config->offload.optimizer,
            lora->base);
    }
    return BY_OK;
}

by_status by__config_resolve_lora(by_config *config, by_error *error)
{
    by_lora_config *lora = &config->lora;
    if (lora->rank == 0 && (lora->targets.count > 0 || lora->train_also.count > 0) &&
        lora->from[0] == '\0') {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: lora.rank is 0, so there are no adapters: set it, for example to 8",
            by__config_where(config, "lora.targets", "lora.train_also"));
    }
    /* Otherwise the adapters to start from provide it (by__task_adapters_inherit). */
    if (lora->rank > 0 && lora->alpha == -1.0 && lora->from[0] == '\0') {
        lora->alpha = (double)lora->rank;
    }
    return check_base(config, error);
}
