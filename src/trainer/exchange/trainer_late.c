/* Exchanges of weights with bounded staleness (sync.staleness): they run on a separate thread while
 * the replica continues with its steps.
 *
 * After step n a replica copies its weights, and the exchange of their difference to the anchor
 * begins. The result is applied after step n + staleness, no earlier, so that every run has the
 * same bits; a replica that gets there first waits. With w its weights, w_n those of step n, and a
 * the anchor:
 *
 *   a  <-  the outer optimizer's step on a, by the mean of a - w_n over the replicas
 *   w  <-  w + (a - w_n)
 *
 * The overlap of an outer step with inner steps is that of Streaming DiLoCo (Douillard et al. 2025,
 * arXiv 2501.18512); what a replica has learned meanwhile is kept completely, as in CoCoD-SGD (Shen
 * et al. 2019, arXiv 1906.12043), which is staleness = every, outer_lr 1 and outer_momentum 0. */

#include "base/worker_thread.h"
#include "comm/comm.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/trainer.h"

by_status by__trainer_late_lay_out(by_trainer *t, by_error *error)
{
    by__trainer_late *late = &t->sync.late;
    by__store_flat_spec spec = {.role = BY__STATE,
                                .name = "sent",
                                .dtype = BY_F32,
                                .groups = (1u << BY__TRAINED_GROUPS) - 1};
    BY_TRY(by__store_add_flat(t->store, &spec, &late->sent, error));
    spec.name = "difference";
    return by__store_add_flat(t->store, &spec, &late->difference, error);
}

/* merged.U = U + (anchor.U - sent.U) */
static by_status build_merge(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->units.trained_groups; i++) {
        char name[64];
        const by_update_unit *unit = &t->units.groups[i];
        by_value own = by_graph_input(graph, unit->name, BY_F32, unit->shape);
        (void)snprintf(name, sizeof name, "anchor.%s", unit->name);
        by_value anchor = by_graph_input(graph, name, BY_F32, unit->shape);
        (void)snprintf(name, sizeof name, "sent.%s", unit->name);
        by_value sent = by_graph_input(graph, name, BY_F32, unit->shape);
        (void)snprintf(name, sizeof name, "merged.%s", unit->name);
        by_graph_output(graph, by_add(graph, own, by_sub(graph, anchor, sent)), name);
    }
    return by_graph_check(graph, error);
}

by_status by__trainer_late_add_program(by_trainer *t, by_error *error)
{
    return by__trainer_add_update(t, "late merge", build_merge, &t->sync.late.merge, error);
}

by_status by__trainer_late_open(by_trainer *t, by_error *error)
{
    by__trainer_late *late = &t->sync.late;
    by__exec_program_row *merge = late->merge;
    /* Used by a thread other than all other communicators. */
    BY_TRY(by_comm_split(&late->peers, t->sync.peers, 0, by_comm_rank(t->sync.peers), error));
    by__comm_set_background(late->peers);
    t->sync.peers = late->peers;
    for (size_t i = 0; i < t->units.trained_groups; i++) {
        char name[64];
        const char *unit = t->units.groups[i].name;
        by_memory own = by__trainer_group(t, t->flats.masters, i);
        BY_TRY(by__exec_row_bind(merge, unit, own, error));
        (void)snprintf(name, sizeof name, "merged.%s", unit);
        BY_TRY(by__exec_row_bind(merge, name, own, error));
        (void)snprintf(name, sizeof name, "anchor.%s", unit);
        BY_TRY(by__exec_row_bind(merge, name, by__trainer_group(t, t->sync.anchor, i), error));
        (void)snprintf(name, sizeof name, "sent.%s", unit);
        BY_TRY(by__exec_row_bind(merge, name, by__trainer_group(t, late->sent, i), error));
    }
    return BY_OK;
}

void by__trainer_late_drop(by_trainer *t)
{
    by__trainer_late *late = &t->sync.late;
    if (late->is_under_way) {
        (void)pthread_join(late->thread, NULL);
        late->is_under_way = false;
    }
}

void by__trainer_late_close(by_trainer *t)
{
    by__trainer_late_drop(t);
    by_comm_close(&t->sync.late.peers);
}

/* ---- an exchange ---- */

static void *exchange(void *user)
{
    by_trainer *t = user;
    by__trainer_late *late = &t->sync.late;
    double begin = by__now();
    float *data = (float *)by__trainer_flat(t, late->difference).address;
    late->status =
        by_comm_all_reduce(late->peers, &late->count, 1, BY_I32, "requests to stop", &late->error);
    if (late->status == BY_OK) {
        late->status = by__trainer_sync_add_up(t, data, late->is_exact, &late->error);
    }
    late->seconds = by__now() - begin;
    return NULL;
}

static by_status begin_exchange(by_trainer *t, by_error *error)
{
    by__trainer_late *late = &t->sync.late;
    BY_TRY(by__device_copy(BY__QUEUE_COMPUTE, by__trainer_flat(t, late->sent),
                           by__trainer_flat(t, t->flats.masters), error));
    BY_TRY(by_program_run(t->sync.difference->program, error));
    late->begun = t->steps.updates;
    late->is_exact = by__trainer_sync_is_exact(t);
    late->count = late->wishes;
    late->error = (by_error){0};
    BY_TRY(by__thread_create(&late->thread, exchange, t, "the thread of an exchange", error));
    late->is_under_way = true;
    return BY_OK;
}

by_status by__trainer_finish_exchange(by_trainer *t, by_error *error)
{
    by__trainer_late *late = &t->sync.late;
    double begin = by__now();
    if (!late->is_under_way) {
        return BY_OK;
    }
    by__trainer_late_drop(t);
    if (late->status != BY_OK) {
        return by_error_set(error, late->status, "%s", late->error.message);
    }
    late->stops = late->stops || late->count > 0;
    t->ranks.late += late->seconds;
    t->ranks.wait_seconds += by__now() - begin;
    BY_TRY(by__trainer_sync_outer_step(t, error));
    if (late->begun == t->steps.updates) { /* w = w_n: exactly the anchor, as on all ranks */
        return by__trainer_sync_load_anchor(t, error);
    }
    BY_TRY(by_program_submit(late->merge->program, error));
    return t->update.copy_row == NULL ? BY_OK
                                      : by_program_submit(t->update.copy_row->program, error);
}

by_status by__trainer_late_after_update(by_trainer *t, bool due, by_error *error)
{
    const by__trainer_late *late = &t->sync.late;
    if (late->is_under_way && t->steps.updates - late->begun >= t->config->sync.staleness) {
        BY_TRY(by__trainer_finish_exchange(t, error));
    }
    return due ? begin_exchange(t, error) : BY_OK;
}

/* ---- a job of such trainers ---- */

bool by__trainer_is_late(const by_trainer *t)
{
    return t->sync.is_late;
}

bool by__trainer_agree_to_stop(by_trainer *t, bool mine)
{
    t->sync.late.wishes = mine;
    return t->sync.late.stops;
}
