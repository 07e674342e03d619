/* The weights of the teacher of a distillation, which a trainer holds beside its own. */
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "tasks/teacher.h"
#include "trainer/graphs/graphs.h"

struct by__trainer_teacher {
    by__store *store;
    int flat;
    char hash[33];
};

static bool is_weight(const by__graph_value *value)
{
    return value->role == BY_ROLE_STATE && value->frozen;
}

static by_status declare(by__store *store, const by_graph *graph, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        by__store_handle handle;
        if (is_weight(value)) {
            bool grows = value->axes != NULL && strncmp(value->axes, "vocab", 5) == 0;
            const by__store_tensor entry = {.name = value->name + strlen(BY__TEACHER),
                                            .axes = value->axes,
                                            .shape = value->shape,
                                            .format = value->dtype,
                                            .grows = grows};
            BY_TRY(by__store_add(store, &entry, &handle, error));
        }
    }
    return BY_OK;
}

by_status by__trainer_teacher_plan(by_trainer *t, by_error *error)
{
    if (!by__task_has_teacher(t->config) || t->flats.sets == 0) {
        return BY_OK;
    }
    const by__store_flat_spec spec = {.role = BY__COPY, .dtype = BY_DTYPE_COUNT, .groups = 1u};
    BY_TRY(by__alloc((void **)&t->teacher, 1, sizeof *t->teacher, "the teacher", error));
    BY_TRY(by__store_open(&t->teacher->store, t->device, error));
    BY_TRY(declare(t->teacher->store, t->model.parameters, error));
    return by__store_add_flat(t->teacher->store, &spec, &t->teacher->flat, error);
}

uint64_t by__trainer_teacher_bytes(const by_trainer *t)
{
    return t->teacher == NULL ? 0 : by__store_bytes(t->teacher->store, BY__COPY);
}

/* Hash of the hashes of all weights, in the dtype that they are computed with. */
static by_status hash_weights(by__trainer_teacher *teacher, by_error *error)
{
    by__store *store = teacher->store;
    size_t count = by__store_count(store);
    uint64_t *hashes;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&hashes, count + 1, sizeof *hashes, "hashes", error));
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        by_shape shape = by__store_shape(store, teacher->flat, (by__store_handle)i);
        size_t bytes = (size_t)by_shape_count(&shape) * sizeof(float);
        float *values;
        status = by__alloc_aligned((void **)&values, bytes, "a copy of a tensor", error);
        if (status == BY_OK) {
            status = by__store_read(store, teacher->flat, (by__store_handle)i, values, error);
            hashes[i] = by__hash64(values, bytes);
            free(values);
        }
    }
    by__hash128_hex(teacher->hash, hashes, count * sizeof *hashes);
    free(hashes);
    return status;
}

static by_status bind(const by_trainer *t, by_error *error)
{
    char name[512];
    const by__trainer_teacher *teacher = t->teacher;
    for (size_t i = 0; i < by__store_count(teacher->store); i++) {
        by_memory memory = by__store_buffer(teacher->store, teacher->flat, (by__store_handle)i);
        const char *entry = by__store_entry(teacher->store, (by__store_handle)i)->name;
        (void)snprintf(name, sizeof name, "%s%s", BY__TEACHER, entry);
        for (size_t k = 0; k < t->programs.count; k++) {
            BY_TRY(by__exec_row_bind(t->programs.rows[k], name, memory, error));
        }
    }
    return BY_OK;
}

by_status by__trainer_teacher_open(by_trainer *t, by_error *error)
{
    by_weights *weights;
    by_config *theirs;
    if (t->teacher == NULL) {
        return BY_OK;
    }
    BY_TRY(by__store_allocate(t->teacher->store, NULL, error));
    BY_TRY(by__task_teacher_config(&theirs, t->config, error));
    by__nn_file_names names = by__nn_model_file_names(&theirs->model);
    by__checkpoint_load_options options = {.family = names.family,
                                           .base = names.base,
                                           .tied = names.tied,
                                           .whole = true,
                                           .threads = t->threads};
    by_status status = by__task_teacher_open_weights(&weights, t->config, error);
    if (status == BY_OK) {
        status = by__checkpoint_store_load(t->teacher->store, t->teacher->flat, weights, &options,
                                           error);
        by_weights_close(&weights);
    }
    by_config_close(&theirs);
    BY_TRY(status);
    BY_TRY(hash_weights(t->teacher, error));
    return bind(t, error);
}

void by__trainer_teacher_close(by_trainer *t)
{
    if (t->teacher != NULL) {
        by__store_close(&t->teacher->store);
        free(t->teacher);
        t->teacher = NULL;
    }
}

const char *by__trainer_teacher_hash(const by_trainer *t)
{
    return t->teacher == NULL ? "" : t->teacher->hash;
}
