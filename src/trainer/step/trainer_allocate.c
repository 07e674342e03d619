/* Allocates all memory of a trainer and binds its programs. */

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/probes/probes.h"
#include "trainer/step/trainer_step.h"

static by_status bind_all(by_trainer *t, by_error *error)
{
    BY_TRY(t->strategy->allocate(t, error));
    if (t->flats.sets == 0) {
        return BY_OK;
    }
    BY_TRY(by__trainer_norm_open(t, error));
    BY_TRY(by__trainer_layers_open(t, error));
    BY_TRY(by__trainer_activations_open(t, error));
    BY_TRY(by__trainer_sampler_open(t, error));
    t->model.bound_set = -1;
    t->model.last_set = -1;
    return by__trainer_bind_sum(t, 0, error);
}

static by_status allocate_memory(by_trainer *t, by_error *error)
{
    BY_TRY(by__store_allocate(t->store, by_config_offload_path(t->config), error));
    BY_TRY(by__exec_set_allocate(&t->programs, error));
    BY_TRY(by__trainer_open_feeds(t, error));
    return t->updater->open(t, error);
}

/* Adds to an error about memory, or space on a disk, what can be changed. */
static by_status refuse_memory(by_status status, by_error *error)
{
    by_error plain = error == NULL ? (by_error){0} : *error;
    const char *way =
        status == BY_EIO
            ? "name a directory on a disk with room in offload.path, or set "
              "offload.optimizer: none"
            : "the micro_batch that banyan info names, recompute: block or a smaller model "
              "needs less";
    return status == BY_OK ? BY_OK : by_error_set(error, status, "%s; %s", plain.message, way);
}

by_status by_trainer_allocate(by_trainer *t, by_error *error)
{
    if (by__store_is_allocated(t->store)) {
        return by_error_set(error, BY_ESTATE, "the trainer's memory was allocated before");
    }
    if (t->layout.ranks > 1 && t->ranks.all == NULL) {
        return by_error_set(error, BY_ESTATE,
                            "this is the plan of one of %d ranks: to train, open the trainer with "
                            "a communicator of all of them",
                            t->layout.ranks);
    }
    BY_TRY(refuse_memory(
        by__trainer_plan_fits(&t->plan.memory, t->config, t->device, t->ranks.all, error), error));
    /* Collective: no rank allocates before all of this host have checked how much is free. */
    BY_TRY(by__trainer_ranks_open(t, error));
    BY_TRY(refuse_memory(allocate_memory(t, error), error));
    BY_TRY(bind_all(t, error));
    BY_TRY(by__trainer_teacher_open(t, error));
    BY_TRY(by__trainer_abft_open(t, error));
    return by__trainer_sync_open(t, error);
}
