/* The norm of the gradient of one micro-batch, beside which that of the whole batch tells how noisy
 * gradients are (McCandlish et al. 2018, appendix A.1). It is measured before other gradients are
 * added to it. */
#include "banyan/ops.h"
#include "ops/ops.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"

static void name_of(char name[300], const by_update_unit *unit)
{
    (void)snprintf(name, 300, "grad.%s", unit->name);
}

static by_status build(const by_trainer *t, by_graph *graph, by_error *error)
{
    static const int axis = 0;
    by_value all = BY_NONE;
    for (size_t i = 0; i < t->units.trained_groups; i++) {
        const by_update_unit *unit = &t->units.groups[i];
        char name[300];
        if (unit->statistic) {
            continue;
        }
        name_of(name, unit);
        by_value x = by_graph_input(graph, name, BY_F32, unit->shape);
        by_value sum = by_sum(graph, by__op_build_sum_squares(graph, x), &axis, 1, true);
        all = all == BY_NONE ? sum : by_add(graph, all, sum);
    }
    by_graph_output(graph, all, "squares");
    return by_graph_check(graph, error);
}

by_status by__trainer_noise_plan(by_trainer *t, by_error *error)
{
    bool divided = t->layout.size[BY_MESH_TENSOR] > 1 || t->layout.size[BY_MESH_EXPERT] > 1 ||
                   t->layout.size[BY_MESH_SEQUENCE] > 1 || t->layout.size[BY_MESH_PIPELINE] > 1;
    return t->config->track.noise_every == 0 || divided || t->summation->in_rounds
               ? BY_OK
               : by__trainer_add_update(t, "micro-batch norm", build, &t->norm.micro, error);
}

by_status by__trainer_noise_keep(by_trainer *t, int set, by_error *error)
{
    int64_t every = t->config->track.noise_every;
    t->norm.has_micro = t->norm.micro != NULL && t->part.all_micro_batches > 1 &&
                        (t->steps.updates + 1) % every == 0;
    if (!t->norm.has_micro) {
        return BY_OK;
    }
    for (size_t i = 0; i < t->units.trained_groups; i++) {
        const by_update_unit *unit = &t->units.groups[i];
        char name[300];
        name_of(name, unit);
        if (!unit->statistic) {
            BY_TRY(by__exec_row_bind(t->norm.micro, name,
                                     by__trainer_group(t, t->flats.gradient_sets[set], i), error));
        }
    }
    return by_program_submit(t->norm.micro->program, error);
}
