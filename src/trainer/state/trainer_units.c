/* The units of updates: what the optimizer is told about a tensor or a part of one. */
#include <string.h>

#include "optim/optim.h"
#include "trainer/state/trainer.h"

static const char *const group_names[BY__GROUPS] = {
    "matrices",
    "vectors",
    "wide.matrices",
    "wide.vectors",
    "split.matrices",
    "split.vectors",
    "split.wide.matrices",
    "split.wide.vectors",
    "experts.matrices",
    "experts.vectors",
    "experts.wide.matrices",
    "experts.wide.vectors",
    "experts.split.matrices",
    "experts.split.vectors",
    "experts.split.wide.matrices",
    "experts.split.wide.vectors",
    [BY__GROUP_STATISTIC] = "statistics",
    [BY__GROUP_FROZEN] = "frozen.matrices",
    "frozen.vectors",
    "frozen.wide.matrices",
    "frozen.wide.vectors",
    [BY__GROUP_CODES] = "frozen.codes",
};

const char *by__trainer_group_name(int group)
{
    return group_names[group];
}

by_update_unit by__trainer_unit(const by_trainer *t, const char *name, by_shape shape, int group)
{
    uint32_t mesh = by__group_mesh(group);
    bool wide = (group & BY__GROUP_WIDE) != 0;
    int ranks = 1;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        ranks *= (mesh >> axis & 1u) != 0 ? t->layout.size[axis] : 1;
    }
    return (by_update_unit){.name = name,
                            .ranks = mesh != 0 ? ranks : 0,
                            .mesh = mesh,
                            .shape = shape,
                            .statistic = group == BY__GROUP_STATISTIC,
                            .decay = (group & BY__GROUP_VECTOR) == 0,
                            .copy = wide ? BY_F32 : by__trainer_copies_dtype(t->config),
                            .format = wide ? BY_F32 : by__trainer_weights_dtype(t->config)};
}

/* Returns true if the i-th logical axis of a tensor is that of experts. */
static bool is_of_experts(const by__store_tensor *entry, int i)
{
    const char *name = entry->axes;
    for (; i > 0 && *name != '\0'; i--) {
        name += strcspn(name, " ");
        name += strspn(name, " ");
    }
    return strcspn(name, " ") == strlen("expert") && strncmp(name, "expert", 6) == 0;
}

void by__trainer_set_random(const by_trainer *t, by_update_unit *unit,
                            const by__store_tensor *entry, int64_t first)
{
    unit->stochastic = unit->format != BY_F32 && by__trainer_rounds_stochastically(t->config);
    unit->seed = t->config->seed;
    unit->stream = by__hash64(entry->name, strlen(entry->name));
    unit->first = first;
}

by_update_unit by__trainer_tensor_unit(const by_trainer *t, const char *name,
                                       const by__store_tensor *entry)
{
    by_update_unit unit = by__trainer_unit(t, name, entry->local, entry->group);
    unit.whole = entry->shape;
    unit.axes = entry->axes;
    by__optim_groups_set_rates(&unit, t->model.forward, &t->config->optimizer, entry->name);
    by__trainer_set_random(t, &unit, entry, 0);
    for (int i = 0; i < entry->shape.rank && unit.ranks > 1; i++) {
        if (entry->local.dim[i] != entry->shape.dim[i]) {
            int mesh = is_of_experts(entry, i) ? BY_MESH_EXPERT : BY_MESH_TENSOR;
            unit.axis_mesh[i] = 1u << mesh;
            unit.axis_ranks[i] = t->layout.size[mesh];
        }
    }
    return unit;
}
