#include <string.h>

#include "base/half.h"
#include "checkpoint/storage.h"
#include "train/trainer.h"

/* Rounds the masters of all matrices into their compute copies. */
static void refresh_copies(by_trainer *t)
{
    const float *masters = t->masters.data;
    uint16_t *copies = t->copies.data;
    int64_t count = t->buckets.copies ? t->buckets.matrices : 0;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        copies[i] = by__f32_to_bf16(masters[i]);
    }
}

by_status by_trainer_initialize(by_trainer *t, by_error *error)
{
    BY_TRY(by__trainer_ready(t, false, error));
    for (size_t i = 0; i < t->parameter_count; i++) {
        const by__parameter *p = &t->parameters[i];
        BY_TRY(by_parameter_init(by__trainer_master(t, p), by__trainer_graph(t), p->value,
                                 t->config->seed, error));
    }
    refresh_copies(t);
    if (t->updates > 0) {
        memset(t->moments.data, 0, t->moments.bytes);
    }
    t->updates = 0;
    return BY_OK;
}

/* Reads the tensor `name` of a parameter's shape. */
static by_status read_tensor(const by_weights *weights, const char *prefix, const char *name,
                             const by__parameter *p, float *out, by_error *error)
{
    by_tensor_view tensor;
    size_t count;
    BY_TRY(
        by__weights_parameter(weights, prefix, name, &p->shape, p->is_vocabulary, &tensor, error));
    BY_TRY(by_tensor_size(&tensor, &count, NULL, error));
    return by_tensor_read_f32(&tensor, out, count, error);
}

by_status by_trainer_load_weights(by_trainer *t, const by_weights *weights, by_error *error)
{
    const char *prefix = by_model_name_prefix(&t->config->model);
    BY_TRY(by__trainer_ready(t, false, error));
    for (size_t i = 0; i < t->parameter_count; i++) {
        const by__parameter *p = &t->parameters[i];
        BY_TRY(read_tensor(weights, prefix, p->name, p, by__trainer_master(t, p), error));
    }
    refresh_copies(t);
    return BY_OK;
}

static float *moment_of(const by_trainer *t, const by__parameter *p, int moment)
{
    int64_t flat = t->buckets.matrices + t->buckets.vectors;
    return (float *)t->moments.data + (moment == 0 ? 0 : flat) + p->flat;
}

by_status by_trainer_load_optimizer(by_trainer *t, const by_weights *moments, int64_t step,
                                    by_error *error)
{
    BY_TRY(by__trainer_ready(t, true, error));
    for (size_t i = 0; i < t->parameter_count; i++) {
        for (int moment = 0; moment < 2; moment++) {
            const by__parameter *p = &t->parameters[i];
            char name[220];
            (void)snprintf(name, sizeof name, "%s.%s", moment == 0 ? "m" : "v", p->name);
            BY_TRY(read_tensor(moments, NULL, name, p, moment_of(t, p, moment), error));
        }
    }
    t->updates = step;
    return BY_OK;
}

size_t by_trainer_parameter_count(const by_trainer *trainer)
{
    return trainer->parameter_count;
}

static by_tensor_view view(const by__parameter *p, const float *data)
{
    by_tensor_view tensor = {.name = p->name, .dtype = BY_F32, .rank = p->shape.rank, .data = data};
    memcpy(tensor.shape, p->shape.dim, (size_t)p->shape.rank * sizeof p->shape.dim[0]);
    return tensor;
}

by_tensor_view by_trainer_parameter(const by_trainer *trainer, size_t i)
{
    const by__parameter *p = &trainer->parameters[i];
    return view(p, by__trainer_master(trainer, p));
}

by_tensor_view by_trainer_gradient(const by_trainer *trainer, size_t i)
{
    const by__parameter *p = &trainer->parameters[i];
    return view(p, by__trainer_gradient(trainer, p, trainer->sum_set));
}

by_tensor_view by_trainer_moment(const by_trainer *trainer, size_t i, int moment)
{
    const by__parameter *p = &trainer->parameters[i];
    return view(p, moment_of(trainer, p, moment));
}
