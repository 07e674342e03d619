/* A rank that computes gradients on the whole model in rounds (ZeRO 2), each of which hands its
 * gradients over (exchange/shard_gradients.c), with parameters that programs may gather (ZeRO
 * 3). */
#include "passes/passes.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/step/trainer_step.h"

static by_status open(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    BY_TRY(by__trainer_zero2_build(t, o, error));
    t->model.whole = t->model.parameters;
    return by__trainer_add_model(t, o, false, error);
}

static by_status plan(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    BY_UNUSED(o);
    return by__trainer_zero2_plan(t, error);
}

/* In a graph that gathers parameters, products do not show which parameter they read, so a graph
 * without gathering is used. */
static by_status measure(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    by_graph *graph = NULL;
    by_model model;
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    if (t->shard.parameters == 0) {
        return by__trainer_measure(t, t->model.forward, error);
    }
    BY_TRY(by__trainer_forward_graph(&graph, &model, t->config, &recipe, BY_MODEL_LOSS, error));
    by_pass_options options = by__trainer_pass_options(t, &model);
    by_status status = by_passes_run(graph, BY_PURPOSE_LOSS, &options, NULL, error);
    if (status == BY_OK) {
        status = by__trainer_measure(t, graph, error);
    }
    by_graph_close(&graph);
    return status;
}

static by_status step(by_trainer *t, const by_batch *batch, by__sum_tree *tree, by_error *error)
{
    int64_t examples = t->part.micro_batches * t->config->train.micro_batch;
    BY_UNUSED(tree); /* owners of slices have the sums */
    for (int64_t round = 0; round < t->summation->rounds(t); round++) {
        int64_t i = round;
        int64_t kept_as;
        bool counts = t->summation->begin(t, &i, &kept_as);
        BY_TRY(by__trainer_feed_micro_batch(t, t->model.gradients, batch, examples, i, kept_as,
                                            error));
        BY_TRY(counts ? by__trainer_activations_keep(t, t->model.gradients, i, error) : BY_OK);
    }
    return BY_OK;
}

const by__trainer_strategy by__step_rounds = {.open = open,
                                              .plan = plan,
                                              .plan_sums = by__trainer_do_nothing,
                                              .measure = measure,
                                              .bytes = by__trainer_no_bytes,
                                              .allocate = by__trainer_bind_models,
                                              .step = step,
                                              .evaluate = by__trainer_evaluate_loss,
                                              .share = by__trainer_do_nothing,
                                              .part = by__trainer_part_of_model,
                                              .close = by__trainer_close_nothing};
