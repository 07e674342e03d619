/* A rank that computes gradients on the whole model, one micro-batch after another. What is done
 * alike in rounds (rounds.c) is shared. */
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/step/trainer_step.h"

/* ---- the plan ---- */

by_status by__trainer_add_model(by_trainer *t, const by_trainer_options *o, bool training,
                                by_error *error)
{
    by_graph *graph;
    by_model_mode mode = training ? BY_MODEL_TRAIN : BY_MODEL_LOSS;
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    BY_TRY(by__trainer_forward_graph(&graph, &t->model.values, t->config, &recipe, mode, error));
    by_pass_options options = by__trainer_pass_options(t, &t->model.values);
    by__trainer_gathered_options(t, graph, &options);
    BY_TRY(by__exec_set_add(&t->programs, training ? "gradients" : "loss", graph,
                            training ? BY_PURPOSE_TRAIN : BY_PURPOSE_LOSS, &options,
                            training ? &t->model.gradients : &t->model.loss, error));
    if (!training) {
        t->model.forward = graph;
    }
    return BY_OK;
}

static by_status open(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    BY_TRY(t->flats.sets > 0 ? by__trainer_add_model(t, o, true, error) : BY_OK);
    BY_TRY(by__trainer_add_model(t, o, false, error));
    t->model.whole = t->model.gradients != NULL ? t->model.gradients->graph : t->model.forward;
    t->model.parameters = t->model.whole;
    return BY_OK;
}

/* y = a + b over whole gradient sets. */
static by_status build_sum(const by_trainer *t, by_graph *graph, by_error *error)
{
    int64_t size = 0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        size += by__store_group_elements(t->store, t->flats.masters, group);
    }
    by_value a = by_graph_input(graph, "a", BY_F32, BY_SHAPE(size));
    by_value b = by_graph_input(graph, "b", BY_F32, BY_SHAPE(size));
    by_graph_output(graph, by_add(graph, a, b), "sum");
    return by_graph_check(graph, error);
}

static by_status plan_sums(by_trainer *t, by_error *error)
{
    return t->flats.sets > 1
               ? by__trainer_add_update(t, "gradient sum", build_sum, &t->model.sum, error)
               : BY_OK;
}

static by_status measure(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    BY_UNUSED(o);
    return by__trainer_measure(t, t->model.forward, error);
}

by_status by__trainer_bind_models(by_trainer *t, by_error *error)
{
    by__exec_program_row *models[3] = {t->model.gradients, t->model.last, t->model.loss};
    for (int k = 0; k < 3; k++) {
        if (models[k] != NULL) {
            BY_TRY(by__exec_row_link(models[k], t->store, error));
            BY_TRY(by__exec_row_bind_flat(models[k], t->store, BY_ROLE_PARAMETER, t->flats.copies,
                                          t->flats.masters, error));
        }
    }
    return BY_OK;
}

/* ---- a step ---- */

/* Binds the outputs of a gradient program to a gradient set; *bound: the one they are bound to. */
static by_status bind_gradients(by_trainer *t, by__exec_program_row *row, int *bound, int set,
                                by_error *error)
{
    if (set != *bound) {
        int flat = t->flats.gradient_sets[set];
        BY_TRY(by__exec_row_bind_flat(row, t->store, BY_ROLE_GRADIENT, flat, flat, error));
    }
    *bound = set;
    return BY_OK;
}

static by_status add_sets(by_trainer *t, int earlier, int set, by_error *error)
{
    BY_TRY(by__exec_row_bind(t->model.sum, "a", by__trainer_set(t, earlier), error));
    BY_TRY(by__exec_row_bind(t->model.sum, "b", by__trainer_set(t, set), error));
    BY_TRY(by__exec_row_bind(t->model.sum, "sum", by__trainer_set(t, set), error));
    return by_program_submit(t->model.sum->program, error);
}

/* Runs the additions that the available sums allow. */
static by_status add_up(by_trainer *t, by__sum_tree *tree, by_error *error)
{
    by__sum_addition pair;
    while (by__sum_tree_add(tree, &pair)) {
        BY_TRY(add_sets(t, pair.left, pair.right, error));
    }
    return BY_OK;
}

static by_status step(by_trainer *t, const by_batch *batch, by__sum_tree *tree, by_error *error)
{
    int64_t examples = t->part.micro_batches * t->config->train.micro_batch;
    by__sum_tree_begin(tree, t->part.first_leaf, t->part.leaves, t->flats.sets);
    for (int64_t i = 0; i < t->part.micro_batches; i++) {
        bool last = t->model.last != NULL && i == t->part.micro_batches - 1;
        by__exec_program_row *row = last ? t->model.last : t->model.gradients;
        int set = by__sum_tree_acquire(tree);
        BY_TRY(bind_gradients(t, row, last ? &t->model.last_set : &t->model.bound_set, set, error));
        if (last) {
            by__trainer_ranks_set_held(t, tree, set);
        }
        BY_TRY(by__trainer_feed_micro_batch(t, row, batch, examples, i,
                                            t->part.first_micro_batch + i, error));
        BY_TRY(by__trainer_activations_keep(t, row, i, error));
        BY_TRY(i == 0 && !last ? by__trainer_noise_keep(t, set, error) : BY_OK);
        by__sum_tree_release(tree, set);
        BY_TRY(last ? BY_OK : add_up(t, tree, error));
    }
    return BY_OK;
}

by_status by__trainer_evaluate_loss(by_trainer *t, const by_batch *batch, by_error *error)
{
    return batch == NULL
               ? by_program_run(t->model.loss->program, error)
               : by__trainer_feed_micro_batch(t, t->model.loss, batch, t->config->train.micro_batch,
                                              0, t->part.most_micro_batches, error);
}

int64_t by__trainer_part_of_model(const by_trainer *t, const by__exec_program_row *row)
{
    return row == t->model.gradients || row == t->model.last ? 0 : -1;
}

const by__trainer_strategy by__step_whole_model = {.open = open,
                                                   .plan = by__trainer_overlap_plan,
                                                   .plan_sums = plan_sums,
                                                   .measure = measure,
                                                   .bytes = by__trainer_no_bytes,
                                                   .allocate = by__trainer_bind_models,
                                                   .step = step,
                                                   .evaluate = by__trainer_evaluate_loss,
                                                   .share = by__trainer_do_nothing,
                                                   .part = by__trainer_part_of_model,
                                                   .close = by__trainer_close_nothing};
