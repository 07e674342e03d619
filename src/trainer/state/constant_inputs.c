/* Inputs that are the same for all batches: copied to the device once, all to every rank. */
#include <stdlib.h>
#include <string.h>

#include "trainer/state/trainer.h"

by_status by__trainer_plan_constant(by_trainer *t, const by__graph_value *value, by_error *error)
{
    by__trainer_feeds *f = &t->feed;
    size_t bytes = by__graph_value_bytes(value);
    size_t unit = by__device_unit(t->device);
    for (size_t i = 0; i < f->constant_count; i++) {
        if (strcmp(f->constants[i].name, value->name) == 0) {
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&f->constants, &f->constant_capacity, f->constant_count + 1,
                       sizeof *f->constants, error));
    f->constants[f->constant_count++] = (by__trainer_feed){.name = value->name,
                                                           .dtype = value->dtype,
                                                           .shape = value->shape,
                                                           .offset = f->constant_bytes,
                                                           .bytes = bytes};
    if (!by__size_add(bytes, unit - 1, &bytes) ||
        !by__size_add(f->constant_bytes, bytes & ~(unit - 1), &f->constant_bytes)) {
        return by_error_set(error, BY_EMEMORY, "the constant inputs' size overflows");
    }
    return BY_OK;
}

by_status by__trainer_open_constants(by_trainer *t, by_error *error)
{
    return t->feed.constant_bytes == 0
               ? BY_OK
               : by_device_alloc(&t->feed.constant_memory, t->device, t->feed.constant_bytes,
                                 "the constant inputs", error);
}

void by__trainer_close_constants(by_trainer *t)
{
    by_device_free(&t->feed.constant_memory);
    free(t->feed.constants);
}

static by_memory memory_of(const by_trainer *t, const by__trainer_feed *feed)
{
    return by_memory_at(t->feed.constant_memory, feed->offset, feed->bytes);
}

by_status by__trainer_bind_constants(by_trainer *t, by__exec_program_row *row, by_error *error)
{
    for (size_t i = 0; i < t->feed.constant_count; i++) {
        const by__trainer_feed *feed = &t->feed.constants[i];
        BY_TRY(by__exec_row_bind(row, feed->name, memory_of(t, feed), error));
    }
    return BY_OK;
}

by_status by__trainer_need_constants(const by_trainer *t, by_error *error)
{
    return t->feed.constant_count == 0 || t->feed.has_constants
               ? BY_OK
               : by_error_set(error, BY_ESTATE,
                              "the constant input '%s' was not set: call by_trainer_set_constants "
                              "or by_trainer_set_data before the first batch",
                              t->feed.constants[0].name);
}

by_status by__trainer_clear_constants(by_trainer *t, by_error *error)
{
    char *zeros;
    if (t->feed.constant_count == 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&zeros, t->feed.constant_bytes, 1, "constant inputs", error));
    by_status status = by_device_write(
        by_memory_at(t->feed.constant_memory, 0, t->feed.constant_bytes), zeros, error);
    free(zeros);
    t->feed.has_constants = status == BY_OK;
    return status;
}

static by_status find_array(const by__trainer_feed *feed, const by_array *arrays, size_t count,
                            const by_array **out, by_error *error)
{
    char have[128];
    char want[128];
    for (size_t i = 0; i < count; i++) {
        const by_array *array = &arrays[i];
        if (strcmp(array->name, feed->name) == 0) {
            *out = array;
            return array->dtype == feed->dtype && by_shape_equal(&array->shape, &feed->shape)
                       ? BY_OK
                       : by_error_set(error, BY_EARG,
                                      "the constant input '%s' is %s %s, and the model wants %s %s",
                                      feed->name, by_dtype_name(array->dtype),
                                      by_shape_print(&array->shape, have),
                                      by_dtype_name(feed->dtype),
                                      by_shape_print(&feed->shape, want));
        }
    }
    return by_error_set(error, BY_EARG, "there is no array for the constant input '%s'",
                        feed->name);
}

by_status by_trainer_set_constants(by_trainer *t, const by_array *arrays, size_t count,
                                   by_error *error)
{
    for (size_t i = 0; i < t->feed.constant_count; i++) {
        const by__trainer_feed *feed = &t->feed.constants[i];
        const by_array *array = NULL;
        BY_TRY(find_array(feed, arrays, count, &array, error));
        for (size_t p = 0; p < t->programs.count; p++) {
            const by__exec_program_row *row = t->programs.rows[p];
            if (by_graph_find(row->graph, feed->name) != BY_NONE) {
                BY_TRY(by__exec_row_check(row, feed->name, array->data, error));
            }
        }
        BY_TRY(by_device_write(memory_of(t, feed), array->data, error));
    }
    t->feed.has_constants = true;
    return BY_OK;
}

by_status by_trainer_set_data(by_trainer *t, by_task_data *data, by_error *error)
{
    const by_array *arrays = NULL;
    size_t count = 0;
    if (t->feed.constant_count == 0) {
        return BY_OK;
    }
    if (data->task->constants != NULL) {
        BY_TRY(data->task->constants(data, t->config, &arrays, &count, error));
    }
    return by_trainer_set_constants(t, arrays, count, error);
}
