/* The moving average of the weights: it follows each update, and replaces the weights during its
 * evaluation. Meanwhile the weights are in the memory of a gradient set, which is free between
 * steps, so that evaluating the average needs no additional memory. */
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/step/trainer_step.h"

/* Its programs. */
enum { STEP, IN, OUT };

/* The flat buffer of the averages. */
static int average_flat(const by_trainer *t)
{
    return t->flats.states[by_optimizer_state_count(&t->config->optimizer) - 1];
}

static by_status build_average(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_average_graph(graph, t->units.updated, t->units.updated_count, error);
}

static by_status build_swap_in(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_swap_graph(graph, t->units.updated, t->units.updated_count, false, error);
}

static by_status build_swap_out(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_swap_graph(graph, t->units.updated, t->units.updated_count, true, error);
}

by_status by__trainer_average_plan(by_trainer *t, by_error *error)
{
    if (!by__trainer_has_average(t)) {
        return BY_OK;
    }
    BY_TRY(by__trainer_add_update(t, "average", build_average, &t->update.average[STEP], error));
    if (t->config->train.eval_ema == 0) {
        return BY_OK;
    }
    BY_TRY(by__trainer_add_update(t, "average in", build_swap_in, &t->update.average[IN], error));
    return by__trainer_add_update(t, "average out", build_swap_out, &t->update.average[OUT], error);
}

static by_status bind(by_trainer *t, by__exec_program_row *row, by_error *error)
{
    for (size_t i = 0; i < t->units.updated_count; i++) {
        char name[300];
        const char *unit = t->units.updated[i].name;
        BY_TRY(
            by__exec_row_bind(row, unit, by__trainer_unit_memory(t, t->flats.masters, i), error));
        (void)snprintf(name, sizeof name, "%s.%s", BY_AVERAGE_STATE, unit);
        BY_TRY(by__exec_row_bind(row, name, by__trainer_unit_memory(t, average_flat(t), i), error));
        (void)snprintf(name, sizeof name, "kept.%s", unit);
        BY_TRY(by__exec_row_bind(row, name,
                                 by__trainer_unit_memory(t, t->flats.gradient_sets[0], i), error));
    }
    return by__trainer_bind_update(t, row, error);
}

by_status by__trainer_average_open(by_trainer *t, by_error *error)
{
    for (int i = STEP; i <= OUT; i++) {
        BY_TRY(t->update.average[i] != NULL ? bind(t, t->update.average[i], error) : BY_OK);
    }
    return BY_OK;
}

by_status by__trainer_average_update(by_trainer *t, by_error *error)
{
    return t->update.average[STEP] == NULL
               ? BY_OK
               : by_program_submit(t->update.average[STEP]->program, error);
}

by_status by__trainer_average_swap(by_trainer *t, bool back, by_error *error)
{
    return by_program_run(t->update.average[back ? OUT : IN]->program, error);
}

by_status by__trainer_swap_average(by_trainer *t, bool back, by_error *error)
{
    by__trainer_changes(t);
    BY_TRY(t->updater->swap(t, back, error));
    BY_TRY(by__trainer_refresh(t, error));
    return t->strategy->share(t, error);
}
