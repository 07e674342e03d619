/* The parameters of the stages that a model is cut into; a rank with the whole model has one. */
#include <string.h>

#include "trainer/state/trainer.h"

int by__trainer_stage_of(const by_trainer *t, const char *parameter)
{
    return t->model.stage_of == NULL ? 0
                                     : t->model.stage_of[by_graph_find(t->model.whole, parameter)];
}

int by__trainer_holder_of(const by_trainer *t, const char *parameter)
{
    return by__trainer_stage_of(t, parameter) % t->layout.size[BY_MESH_PIPELINE];
}

by_status by__trainer_list_parameter(by_graph *list, const by__graph_value *value, bool frozen,
                                     by_error *error)
{
    by_value made = by_graph_find(list, value->name);
    if (made != BY_NONE) {
        return BY_OK;
    }
    made = by_graph_parameter(list, value->name, value->axes, value->shape, value->init);
    BY_TRY(by_graph_check(list, error));
    by__graph_value *copy = &list->values[made];
    copy->dtype = value->dtype;
    copy->frozen = frozen;
    copy->statistic = value->statistic;
    copy->transposed = value->transposed;
    copy->whole = value->whole;
    copy->part_count = value->part_count;
    memcpy(copy->part, value->part, sizeof copy->part);
    return BY_OK;
}

by_status by__trainer_list_trained(by_graph **out, const by_trainer *t, int rank, by_error *error)
{
    by_graph *list;
    by_status status = BY_OK;
    BY_TRY(by_graph_open(&list, error));
    for (int stage = rank; stage < t->model.stages; stage += t->layout.size[BY_MESH_PIPELINE]) {
        for (size_t v = 0; v < t->model.whole->value_count && status == BY_OK; v++) {
            const by__graph_value *value = &t->model.whole->values[v];
            if (value->role == BY_ROLE_PARAMETER &&
                (t->model.stage_of == NULL || t->model.stage_of[v] == stage)) {
                status = by__trainer_list_parameter(list, value, value->frozen, error);
            }
        }
    }
    if (status != BY_OK) {
        by_graph_close(&list);
        return status;
    }
    *out = list;
    return BY_OK;
}
