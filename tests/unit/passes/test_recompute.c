/* Recomputation: whatever the backward pass computes again, weights, gradients and states have the
 * same bits; memory falls from choice to choice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "passes/recompute.h"
#include "runner.h"
#include "sanitizer.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/trainer.h"
#include "trainer/step/trainer_step.h"

#define STEPS 3

/* ---- models ---- */

static by_status labels_loss(const by_config *config, const by_model_request *request,
                             by_graph *graph, by_model *model, by_error *error)
{
    BY_UNUSED(config);
    BY_UNUSED(error);
    by_value labels = by_graph_input(graph, "labels", BY_I32, BY_SHAPE(request->batch));
    model->loss = by_cross_entropy(graph, model->output, labels, 0.0f);
    return BY_OK;
}

static const by_task classes = {.name = "classes", .examples = "images", .loss = labels_loss};

typedef struct family {
    const char *settings[8];
    const by_task *task;
} family;

#define TOKENS "model.context=8", "model.vocab=23"

static const family families[] = {
    {{"model.kind=gpt2", TOKENS}, NULL},
    {{"model.kind=llama", "model.kv_heads=2", TOKENS}, NULL},
    {{"model.kind=mixtral", "model.experts=4", "model.router_aux_loss_coef=0.5", TOKENS}, NULL},
    {{"model.kind=vit", "model.patch=4", "model.outputs=7", "model.channels=3",
      "model.image_height=12", "model.image_width=12"},
     &classes},
};

/* A config of a family with further settings, NULL at the end. */
static by_config *config_for(const family *f, const char *const *settings)
{
    const char *all[24] = {"model.layers=5",     "model.heads=4",    "model.width=32",
                           "train.batch=4",      "train.threads=1",  "train.micro_batch=2",
                           "model.init_std=0.1", "optimizer.lr=0.01"};
    size_t count = 8;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(f->settings) && f->settings[i] != NULL; i++) {
        all[count++] = f->settings[i];
    }
    return config_of(all, settings);
}

/* ---- steps ---- */

/* What a trainer has in the end. */
typedef struct outcome {
    double losses[STEPS];
    float *values; /* parameters, gradients, states */
    size_t count;
    size_t capacity;
    uint64_t activations;
    double seconds; /* of a step, as planned */
    int products;   /* in its graph */
} outcome;

static void read_tensor(outcome *o, const by_trainer *t, by_tensor_view view,
                        by_trainer_tensor what, int state, size_t i)
{
    by_error error = {0};
    size_t count;
    check_ok(by_tensor_size(&view, &count, NULL, &error), &error);
    check_ok(
        by__reserve((void **)&o->values, &o->capacity, o->count + count, sizeof *o->values, &error),
        &error);
    check_ok(by_trainer_read(t, what, state, i, o->values + o->count, &error), &error);
    o->count += count;
}

/* arena_bytes: see by__trainer_build. */
static outcome train_within(const family *f, const char *const *settings, size_t arena_bytes)
{
    by_error error = {0};
    by_config *config = config_for(f, settings);
    by_trainer *t;
    by_random_batch *batch;
    outcome o = {0};
    const by_trainer_options options = {.task = f->task};
    check_ok(by__trainer_build(&t, config, &options, arena_bytes, &error), &error);
    o.activations = by_trainer_memory(t)->activations;
    o.seconds = by_trainer_seconds(t);
    for (size_t n = 0; n < t->model.gradients->graph->node_count; n++) {
        o.products += by__op_row_of(t->model.gradients->graph->nodes[n].op)->factors != 0;
    }
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    check_ok(by_random_batch_open(&batch, t, &error), &error);
    for (int step = 0; step < STEPS; step++) {
        by_step_result result;
        check_ok(by_trainer_step(t, by_random_batch_view(batch), &result, &error), &error);
        o.losses[step] = result.loss;
    }
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        read_tensor(&o, t, by_trainer_parameter(t, i), BY_TRAINER_PARAMETER, -1, i);
        read_tensor(&o, t, by_trainer_gradient(t, i), BY_TRAINER_GRADIENT, -1, i);
        for (int s = 0; s < by_trainer_state_count(t); s++) {
            read_tensor(&o, t, by_trainer_state(t, i, s), BY_TRAINER_STATE, s, i);
        }
    }
    by_random_batch_close(&batch);
    by_trainer_close(&t);
    by_config_close(&config);
    return o;
}

static outcome train(const family *f, const char *const *settings)
{
    return train_within(f, settings, 0);
}

static void check_equal(const outcome *a, const outcome *b, const char *what)
{
    assert_true(a->count == b->count);
    assert_true(a->losses[STEPS - 1] != a->losses[0]);
    if (memcmp(a->losses, b->losses, sizeof a->losses) != 0 ||
        memcmp(a->values, b->values, a->count * sizeof *a->values) != 0) {
        fail_msg("%s: other bits", what);
    }
}

static const char *const choices[] = {"memory.recompute=none", "memory.recompute=block",
                                      "memory.recompute=every", "memory.recompute=full"};

/* Every choice in every precision, with dropout and without, of every family. */
static void test_choices(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 4 * BY_ARRAY_LENGTH(families); k++) {
        const family *f = &families[k / 4];
        outcome of[4];
        for (size_t c = 0; c < 4; c++) {
            char what[128];
            const char *settings[] = {
                choices[c], k % 2 == 0 ? "precision.compute=f32" : "precision.compute=bf16",
                k / 2 % 2 == 0 ? "model.dropout=0" : "model.dropout=0.1",
                "memory.recompute_every=2", NULL};
            (void)snprintf(what, sizeof what, "%s, %s, %s, %s", f->settings[0], settings[0],
                           settings[1], settings[2]);
            of[c] = train(f, settings);
            check_equal(&of[0], &of[c], what);
            if (c > 0 && of[c].activations >= of[0].activations) {
                fail_msg("%s: %llu bytes of activations, %llu with nothing again", what,
                         (unsigned long long)of[c].activations,
                         (unsigned long long)of[0].activations);
            }
        }
        for (size_t c = 0; c < 4; c++) {
            free(of[c].values);
        }
    }
}

/* In a deep model each choice takes less memory than the one before. */
static void test_memory_falls(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    uint64_t before = UINT64_MAX;
    for (size_t c = 0; c < 4; c++) {
        by_trainer *t;
        const char *settings[] = {choices[c], "model.layers=40", "train.micro_batch=4", NULL};
        by_config *config = config_for(&families[0], settings);
        check_ok(by_trainer_open(&t, config, NULL, &error), &error);
        assert_true(by_trainer_memory(t)->activations < before / 10 * 9);
        before = by_trainer_memory(t)->activations;
        by_trainer_close(&t);
        by_config_close(&config);
    }
}

/* ---- within a number of bytes ---- */

/* The choice fits where whole blocks do, and takes no longer; it begins with what is cheap; bits do
 * not depend on it. */
static void test_within(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 2 * BY_ARRAY_LENGTH(families); k++) {
        const family *f = &families[k / 2];
        const char *settings[] = {k % 2 == 0 ? "precision.compute=f32" : "precision.compute=bf16",
                                  "model.dropout=0.1", "memory.recompute=none", NULL};
        outcome none = train(f, settings);
        settings[2] = "memory.recompute=block";
        outcome block = train(f, settings);
        settings[2] = "memory.recompute=none";
        uint64_t between = none.activations - block.activations;
        for (uint64_t part = 1; part <= 4; part++) {
            uint64_t arena = none.activations - between * part / 4;
            outcome o = train_within(f, settings, arena);
            check_equal(&none, &o, f->settings[0]);
            free(o.values);
            if (o.activations > arena || o.seconds > block.seconds || o.seconds < none.seconds) {
                fail_msg("%s, %s: %llu bytes of %llu, %g s; none %g s, block %g s", f->settings[0],
                         settings[0], (unsigned long long)o.activations, (unsigned long long)arena,
                         o.seconds, none.seconds, block.seconds);
            }
        }
        outcome cheap = train_within(f, settings, none.activations - 1);
        assert_true(cheap.activations < none.activations);
        assert_int_equal(cheap.products, none.products);
        outcome least = train_within(f, settings, 1);
        assert_true(least.activations <= block.activations);
        free(cheap.values);
        free(least.values);
        free(none.values);
        free(block.values);
    }
}

/* memory.budget counts everything; where nothing fits the plan is the least one. */
static void test_budget(void **state)
{
    BY_UNUSED(state);
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    by_error error = {0};
    static const char *const sizes[] = {"memory.budget=0", "memory.budget=640MiB",
                                        "memory.budget=1MiB"};
    by_memory_report plan[3];
    double seconds[3];
    for (size_t i = 0; i < 3; i++) {
        by_trainer *t;
        const char *settings[] = {"model.layers=12",     "model.width=384", "model.context=1024",
                                  "train.micro_batch=4", sizes[i],          NULL};
        by_config *config = config_for(&families[0], settings);
        check_ok(by_trainer_open(&t, config, NULL, &error), &error);
        plan[i] = *by_trainer_memory(t);
        seconds[i] = by_trainer_seconds(t);
        by_trainer_close(&t);
        by_config_close(&config);
    }
    assert_true(plan[0].total > (uint64_t)640 << 20);
    assert_true(plan[1].total <= (uint64_t)640 << 20 && plan[1].total > (uint64_t)600 << 20);
    assert_true(plan[2].activations < plan[1].activations && plan[2].total > 1 << 20);
    assert_true(seconds[0] < seconds[1] && seconds[1] < seconds[2]);
    assert_true(seconds[2] < 1.6 * seconds[0]);
}

/* ---- any values ---- */

static by_graph *graph_before(const family *f, const by_config *config, by_pass_options *options)
{
    by_error error = {0};
    by_graph *graph;
    by_model model;
    const by__trainer_recipe recipe = {.task = f->task};
    check_ok(by__trainer_forward_graph(&graph, &model, config, &recipe, BY_MODEL_TRAIN, &error),
             &error);
    *options = by__trainer_graph_pass_options(config, &model);
    check_ok(by_passes_run(graph, BY_PURPOSE_TRAIN, options, "gradients", &error), &error);
    check_ok(by_pass_rematerialize(graph, 1, &error), &error);
    return graph;
}

/* The graph without (seed 0) or with values dropped by chance, and how many were. */
static by_graph *drop_some(const family *f, const by_config *config, uint64_t seed, size_t *count)
{
    by_error error = {0};
    by_pass_options options;
    by__pass_forward_values values;
    by_graph *graph = graph_before(f, config, &options);
    bool *dropped = calloc(graph->value_count, sizeof *dropped);
    assert_non_null(dropped);
    check_ok(by__pass_forward_values_open(&values, graph, &error), &error);
    *count = 0;
    double share = random_unit(seed, 1, 0);
    for (size_t v = 0; v < graph->value_count && seed > 0; v++) {
        dropped[v] = random_unit(seed, 0, v) < share;
        *count += dropped[v] && values.may[v] && values.read[v];
    }
    size_t before = graph->node_count;
    check_ok(by__pass_recompute_dropped(graph, &values, dropped, &error), &error);
    assert_true((graph->node_count > before) == (*count > 0));
    by__pass_forward_values_close(&values);
    free(dropped);
    check_ok(by_graph_verify(graph, &error), &error);
    check_ok(by__passes_run_after(graph, BY_PURPOSE_TRAIN, &options, &by__pass_recompute, &error),
             &error);
    return graph;
}

static void run(runner *r, by_graph *graph)
{
    runner_open(r, graph, 1);
    runner_fill(r, 9, 7);
    *(float *)runner_data(r, "loss_scale") = 1.0f / 64.0f;
    runner_run(r);
}

/* Whatever is dropped, gradients and loss have the bits that they have when all is kept. */
static void test_any_values(void **state)
{
    BY_UNUSED(state);
    size_t most = 0;
    for (size_t k = 0; k < 4 * BY_ARRAY_LENGTH(families); k++) {
        const family *f = &families[k / 4];
        const char *settings[] = {k % 2 == 0 ? "precision.compute=f32" : "precision.compute=bf16",
                                  k / 2 % 2 == 0 ? "model.dropout=0" : "model.dropout=0.1", NULL};
        by_config *config = config_for(f, settings);
        runner kept;
        size_t count;
        by_graph *plain = drop_some(f, config, 0, &count);
        run(&kept, plain);
        for (uint64_t seed = 1; seed <= 5; seed++) {
            runner r;
            by_graph *graph = drop_some(f, config, seed, &count);
            run(&r, graph);
            most = count > most ? count : most;
            for (size_t v = 0; v < plain->value_count; v++) {
                const by__graph_value *value = &plain->values[v];
                if (value->role == BY_ROLE_OUTPUT || value->role == BY_ROLE_GRADIENT) {
                    size_t bytes = runner_count(&kept, value->name) * sizeof(float);
                    if (memcmp(runner_data(&kept, value->name), runner_data(&r, value->name),
                               bytes) != 0) {
                        fail_msg("%s, %s, seed %d: other bits in '%s'", f->settings[0], settings[0],
                                 (int)seed, value->name);
                    }
                }
            }
            runner_close(&r);
            by_graph_close(&graph);
        }
        runner_close(&kept);
        by_graph_close(&plain);
        by_config_close(&config);
    }
    assert_true(most > 30);
}

/* A product that an addition and the backward pass read is kept: dropped, the addition would go
 * into it, and round once instead of twice. */
static void test_pinned(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__pass_forward_values values;
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 8));
    by_graph_set_block(graph, 0);
    by_value w = by_graph_parameter(graph, "w", NULL, BY_SHAPE(8, 8), (by_init){0});
    by_value product = by_linear(graph, x, w, BY_NONE, false);
    by_value once = by_unary(graph, by_linear(graph, x, w, BY_NONE, false), BY_FN_GELU);
    by_value y = by_mul(graph, by_add(graph, product, x), product);
    y = by_mul(graph, y, once);
    by_graph_set_block(graph, -1);
    by_value head = by_graph_parameter(graph, "head", NULL, BY_SHAPE(5, 8), (by_init){0});
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(4));
    by_value loss = by_linear_cross_entropy(graph, y, head, targets);
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by__pass_forward_values_open(&values, graph, &error), &error);
    assert_true(values.pinned[product] && values.read[product] && !values.may[product]);
    assert_true(values.may[once] && values.read[once] && !values.pinned[once]);
    assert_true(values.crosses[y] && values.may[y]);
    assert_false(values.may[loss]);
    by__pass_forward_values_close(&values);
    by_graph_close(&graph);
}

/* ---- in fewer bits ---- */

static double distance(const outcome *a, const outcome *b)
{
    return relative_distance(a->values, b->values, a->count);
}

/* Formats that activations are kept in, and how far weights, gradients and states may be from those
 * of a run that keeps them as they are. */
static const struct {
    const char *compute;
    const char *activations;
    double apart;
} kept[] = {{"precision.compute=f32", "memory.activations=bf16", 0.03},
            {"precision.compute=f32", "memory.activations=int8", 0.08},
            {"precision.compute=bf16", "memory.activations=int8", 0.08}};

/* Activations kept in fewer bits: the first loss has the same bits, because the forward pass
 * computes what it did; gradients and weights are near; the memory is less, alone and with what is
 * computed again. */
static void check_narrow(const family *f, size_t k)
{
    const char *settings[] = {"memory.recompute=none", "memory.activations=same", kept[k].compute,
                              "model.dropout=0.1", NULL};
    outcome same = train(f, settings);
    settings[1] = kept[k].activations;
    outcome narrow = train(f, settings);
    settings[0] = "memory.recompute=block";
    outcome both = train(f, settings);
    double far = fmax(distance(&narrow, &same), distance(&both, &same));
    if (far > kept[k].apart) {
        fail_msg("%s, %s, %s: %g apart", f->settings[0], kept[k].compute, kept[k].activations, far);
    }
    assert_true(distance(&narrow, &same) > 0.0 && distance(&both, &same) > 0.0);
    assert_true(narrow.losses[0] == same.losses[0] && both.losses[0] == same.losses[0]);
    assert_true(narrow.activations < same.activations);
    assert_true(both.activations < narrow.activations);
    free(same.values);
    free(narrow.values);
    free(both.values);
}

static void test_narrow(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(families); i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(kept); k++) {
            check_narrow(&families[i], k);
        }
    }
}

/* The loss that a tiny model reaches. */
static double reach(const char *activations)
{
    by_error error = {0};
    by_trainer *t;
    by_random_batch *batch;
    by_step_result result = {0};
    const char *settings[] = {activations, "model.layers=2", "optimizer.lr=3e-3", "train.steps=150",
                              NULL};
    by_config *config = config_for(&families[0], settings);
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    check_ok(by_random_batch_open(&batch, t, &error), &error);
    for (int step = 0; step < 150; step++) {
        check_ok(by_trainer_step(t, by_random_batch_view(batch), &result, &error), &error);
    }
    by_random_batch_close(&batch);
    by_trainer_close(&t);
    by_config_close(&config);
    return result.loss;
}

/* Training loses nothing by it. */
static void test_quality_of_narrow(void **state)
{
    BY_UNUSED(state);
    double exact = reach("memory.activations=same");
    double narrow = reach("memory.activations=bf16");
    double codes = reach("memory.activations=int8");
    print_message("loss after 150 steps: %.4f, with activations in bf16 %.4f, in 8 bits %.4f\n",
                  exact, narrow, codes);
    assert_true(exact < 1.0); /* it learned: a guess has log 23 = 3.1 */
    assert_true(narrow < 1.05 * exact + 0.01);
    assert_true(codes < 1.05 * exact + 0.01);
}

/* ---- options ---- */

static void test_refused(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    by_graph *graph = open_graph();
    const by_recompute_options options = {.kind = BY_RECOMPUTE_EVERY, .every = 1};
    check_error(by_pass_recompute(graph, &options, &error), BY_EARG, &error, "every 1.");
    check_error(by_pass_narrow(graph, BY_I32, &error), BY_EARG, &error, "not i32");
    by_graph_close(&graph);
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "model.vocab=50", &error), &error);
    check_ok(by_config_set(config, "parallel.pipeline=2", &error), &error);
    check_ok(by_config_set(config, "memory.recompute=full", &error), &error);
    check_error(by_config_resolve(config, &error), BY_ECONFIG, &error, "recompute: block");
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),    cmocka_unit_test(test_memory_falls),
        cmocka_unit_test(test_within),     cmocka_unit_test(test_budget),
        cmocka_unit_test(test_any_values), cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_narrow),     cmocka_unit_test(test_quality_of_narrow),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
