#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "train/trainer.h"

static by_status refresh_copies(by_trainer *t, by_error *error)
{
    return t->copy == NULL ? BY_OK : by_program_run(t->copy->program, error);
}

by_status by_trainer_initialize(by_trainer *t, by_error *error)
{
    BY_TRY(by__trainer_ready(t, false, error));
    BY_TRY(by__initialize_parameters(t->store, t->masters, t->parameters, t->config->seed,
                                     t->threads, error));
    BY_TRY(by__store_clear(t->store, BY__STATE, error));
    t->updates = 0;
    return refresh_copies(t, error);
}

by_status by_trainer_load_weights(by_trainer *t, const by_weights *weights, by_error *error)
{
    by__load_options options = {.family = by_model_name_prefix(&t->config->model),
                                .threads = t->threads};
    BY_TRY(by__trainer_ready(t, false, error));
    BY_TRY(by__store_load(t->store, t->masters, weights, &options, error));
    return refresh_copies(t, error);
}

/* States of all parameters of the whole model. */
static size_t count_states(const by_trainer *t)
{
    size_t parameters = t->pipe != NULL ? by__pipe_whole_count(t->pipe) : by__store_count(t->store);
    size_t count = 0;
    for (int i = 0; i < t->state_count; i++) {
        for (size_t k = 0; k < parameters; k++) {
            by_tensor_view view;
            size_t here;
            if (t->pipe != NULL) {
                (void)by__pipe_whole(t, k, i, &view, &here);
                count += view.rank >= 0;
            } else {
                count += by__store_shape(t->store, t->states[i], (by__handle)k).rank >= 0;
            }
        }
    }
    return count;
}

/* BY_ECONFIG when the file holds more than the states of this optimizer, so those of another. */
static by_status check_states(const by_trainer *t, const by_weights *states, by_error *error)
{
    size_t wanted = count_states(t);
    if (by_weights_count(states) <= wanted) {
        return BY_OK; /* what is missing has a name, by which it is missed */
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s holds %zu states of parameters, optimizer.kind %s keeps %zu: it was "
                        "trained with other keys of the section optimizer; leave them as they were",
                        by_weights_path(states), by_weights_count(states),
                        t->config->optimizer.kind, wanted);
}

by_status by_trainer_load_optimizer(by_trainer *t, const by_weights *states, int64_t step,
                                    by_error *error)
{
    BY_TRY(by__trainer_ready(t, true, error));
    BY_TRY(states == NULL ? BY_OK : check_states(t, states, error));
    if (states == NULL && t->state_count > 0) {
        return by_error_set(error, BY_EFORMAT, "there is no optimizer state to resume from");
    }
    for (int i = 0; i < t->state_count; i++) {
        char prefix[64];
        by__load_options options = {.prefix = prefix, .threads = t->threads};
        (void)snprintf(prefix, sizeof prefix, "%s.", by__store_flat_name(t->store, t->states[i]));
        BY_TRY(by__store_load(t->store, t->states[i], states, &options, error));
    }
    t->updates = step;
    return BY_OK;
}

/* ---- what a trainer holds ---- */

size_t by_trainer_parameter_count(const by_trainer *trainer)
{
    return by__store_count(trainer->store);
}

int by_trainer_state_count(const by_trainer *trainer)
{
    return trainer->state_count;
}

static by_tensor_view view(const by_trainer *t, int flat, size_t i)
{
    by_shape shape = by__store_shape(t->store, flat, (by__handle)i);
    by_tensor_view tensor = {.name = by__store_entry(t->store, (by__handle)i)->name,
                             .dtype = BY_F32,
                             .rank = shape.rank,
                             .data = by__store_host(t->store, flat, (by__handle)i)};
    if (shape.rank > 0) {
        memcpy(tensor.shape, shape.dim, (size_t)shape.rank * sizeof shape.dim[0]);
    }
    return tensor;
}

by_tensor_view by_trainer_parameter(const by_trainer *trainer, size_t i)
{
    return view(trainer, trainer->masters, i);
}

by_tensor_view by_trainer_gradient(const by_trainer *trainer, size_t i)
{
    return view(trainer, trainer->gradient_sets[trainer->sum_set], i);
}

by_tensor_view by_trainer_state(const by_trainer *trainer, size_t i, int state)
{
    return view(trainer, trainer->states[state], i);
}

const char *by_trainer_state_name(const by_trainer *trainer, int state)
{
    return by__store_flat_name(trainer->store, trainer->states[state]);
}

/* The flat buffer that holds what `what` names. */
static int flat_of(const by_trainer *t, by_trainer_tensor what, int state)
{
    return what == BY_TRAINER_PARAMETER  ? t->masters
           : what == BY_TRAINER_GRADIENT ? t->gradient_sets[t->sum_set]
                                         : t->states[state];
}

by_status by_trainer_read(const by_trainer *trainer, by_trainer_tensor what, int state, size_t i,
                          float *out, by_error *error)
{
    return by__store_read(trainer->store, flat_of(trainer, what, state), (by__handle)i, out, error);
}
