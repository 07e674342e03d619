/* Mixtures of experts: groups with and without limits, the router's choices, the routers' loss,
 * threads, and the names of experts in files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/train.h"
#include "checkpoint/storage.h"
#include "runner.h"
#include "temporary.h"
#include "trainer/state/train.h"

#define CONTEXT 8
#define BATCH   6
#define VOCAB   31

/* ---- groups ---- */

/* Runs GROUP on nine entries of three groups and compares its results. */
static void check_group(int64_t capacity, const int32_t *slot, const int32_t *member,
                        const int32_t *range)
{
    static const int32_t ids[9] = {2, 0, 2, 2, 0, -1, 2, 3, 2};
    by_value out[3];
    runner r;
    by_graph *graph = open_graph();
    by_value in = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(3, 3));
    by_group(graph, in, 3, capacity, &out[0], &out[1], &out[2]);
    by_graph_output(graph, out[0], "slot");
    by_graph_output(graph, out[1], "member");
    by_graph_output(graph, out[2], "range");
    runner_open(&r, graph, 1);
    memcpy(runner_data(&r, "ids"), ids, sizeof ids);
    runner_run(&r);
    assert_memory_equal(runner_data(&r, "slot"), slot, sizeof ids);
    assert_memory_equal(runner_data(&r, "member"), member,
                        runner_count(&r, "member") * sizeof *member);
    assert_memory_equal(runner_data(&r, "range"), range, 6 * sizeof *range);
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_group(void **state)
{
    BY_UNUSED(state);
    check_group(0, (const int32_t[]){2, 0, 3, 4, 1, -1, 5, -1, 6},
                (const int32_t[]){1, 4, 0, 2, 3, 6, 8, -1, -1},
                (const int32_t[]){0, 2, 2, 2, 2, 7});
    check_group(3, (const int32_t[]){6, 0, 7, 8, 1, -1, -1, -1, -1},
                (const int32_t[]){1, 4, -1, -1, -1, -1, 0, 2, 3},
                (const int32_t[]){0, 2, 3, 3, 6, 9});
}

/* Of equal logits the first; a NaN last; every choice is another expert. */
static void check_choices(const char *isa)
{
    static const float logits[4][4] = {
        {1, 3, 3, 2}, {0, 0, 0, 0}, {NAN, 1, NAN, NAN}, {-INFINITY, -1, 5, 5}};
    static const int32_t wanted[4][3] = {{1, 2, 3}, {0, 1, 2}, {1, 0, 2}, {2, 3, 1}};
    by_value out[3];
    runner r;
    set_isa(isa);
    by_graph *graph = open_graph();
    by_router(graph, by_graph_input(graph, "logits", BY_F32, BY_SHAPE(4, 4)), 3, &out[0], &out[1],
              &out[2]);
    by_graph_output(graph, out[0], "weight");
    by_graph_output(graph, out[1], "index");
    by_graph_output(graph, out[2], "mass");
    runner_open(&r, graph, 1);
    memcpy(runner_data(&r, "logits"), logits, sizeof logits);
    runner_run(&r);
    assert_memory_equal(runner_data(&r, "index"), wanted, sizeof wanted);
    const float *weight = runner_data(&r, "weight");
    assert_float_equal(weight[0] + weight[1] + weight[2], 1.0f, 1e-6f);
    assert_true(weight[0] == weight[1] && weight[0] > weight[2]);
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_choices(void **state)
{
    BY_UNUSED(state);
    check_choices("reference");
    check_choices("native");
}

/* ---- trainers ---- */

typedef struct setup {
    by_config *config;
    by_trainer *trainer;
    int32_t tokens[BATCH * CONTEXT];
    int32_t targets[BATCH * CONTEXT];
    by_array arrays[2];
    by_batch batch;
} setup;

static void open_setup(setup *s, const char *const *settings, size_t count)
{
    by_error error = {0};
    static const char *const common[] = {
        "model.kind=mixtral", "model.layers=2",      "model.heads=2",      "model.width=32",
        "model.mlp_width=48", "model.experts=4",     "model.context=8",    "model.vocab=31",
        "train.batch=6",      "train.micro_batch=3", "optimizer.warmup=0", "optimizer.lr=1e-2"};
    *s = (setup){0};
    check_ok(by_config_default(&s->config, &error), &error);
    check_ok(by_config_set(s->config, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common) + count; i++) {
        const char *setting =
            i < BY_ARRAY_LENGTH(common) ? common[i] : settings[i - BY_ARRAY_LENGTH(common)];
        check_ok(by_config_set(s->config, setting, &error), &error);
    }
    check_ok(by_config_resolve(s->config, &error), &error);
    check_ok(by_trainer_open(&s->trainer, s->config, NULL, &error), &error);
    check_ok(by_trainer_allocate(s->trainer, &error), &error);
    check_ok(by_trainer_initialize(s->trainer, &error), &error);
    for (size_t i = 0; i < BATCH * CONTEXT; i++) {
        s->tokens[i] = (int32_t)((random_unit(1, 1, i) + 1.0) / 2.0 * VOCAB);
        s->targets[i] = i % 11 == 3 ? -1 : (int32_t)((random_unit(1, 2, i) + 1.0) / 2.0 * VOCAB);
    }
    s->batch = by_batch_of_tokens(s->arrays, s->tokens, s->targets, BATCH, CONTEXT);
}

static void close_setup(setup *s)
{
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

/* The loss of the last of `steps` steps. */
static double train(setup *s, int steps)
{
    by_error error = {0};
    by_step_result result = {0};
    for (int i = 0; i < steps; i++) {
        check_ok(by_trainer_step(s->trainer, &s->batch, &result, &error), &error);
    }
    return result.loss;
}

static void compare_weights(const setup *a, const setup *b)
{
    for (size_t i = 0; i < by_trainer_parameter_count(a->trainer); i++) {
        by_error error = {0};
        by_tensor_view x = by_trainer_parameter(a->trainer, i);
        by_tensor_view y = by_trainer_parameter(b->trainer, i);
        size_t bytes;
        check_ok(by_tensor_size(&x, NULL, &bytes, &error), &error);
        assert_memory_equal(x.data, y.data, bytes);
    }
}

/* A batch is learned by heart; with one, two and three threads to the same bits. */
static void test_threads(void **state)
{
    BY_UNUSED(state);
    static const char *const precisions[] = {"precision.compute=f32", "precision.compute=bf16"};
    static const char *const threads[] = {"train.threads=1", "train.threads=2", "train.threads=3"};
    static const char *const limits[] = {"model.capacity_factor=-1", "model.capacity_factor=1"};
    for (size_t p = 0; p < 4; p++) {
        setup s[3];
        double loss[3];
        for (size_t t = 0; t < 3; t++) {
            const char *settings[] = {precisions[p % 2], threads[t], limits[p / 2]};
            open_setup(&s[t], settings, 3);
            loss[t] = train(&s[t], 40);
        }
        assert_true(loss[0] < 1.0 && loss[0] == loss[1] && loss[0] == loss[2]);
        compare_weights(&s[0], &s[1]);
        compare_weights(&s[0], &s[2]);
        for (size_t t = 0; t < 3; t++) {
            close_setup(&s[t]);
        }
    }
}

/* The loss that is reported is that of the text: without a step the coefficient does not change
 * it, but it does change the gradients, those of the routers above all. */
static void test_balance_is_not_reported(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {"model.router_aux_loss_coef=0"};
    static const char *const some[] = {"model.router_aux_loss_coef=1"};
    by_error error = {0};
    double loss[2];
    setup a;
    setup b;
    open_setup(&a, none, 1);
    open_setup(&b, some, 1);
    check_ok(by_trainer_gradients(a.trainer, &a.batch, &loss[0], &error), &error);
    check_ok(by_trainer_gradients(b.trainer, &b.batch, &loss[1], &error), &error);
    assert_true(loss[0] == loss[1]);
    for (size_t i = 0; i < by_trainer_parameter_count(a.trainer); i++) {
        by_tensor_view x = by_trainer_gradient(a.trainer, i);
        by_tensor_view y = by_trainer_gradient(b.trainer, i);
        size_t count;
        check_ok(by_tensor_size(&x, &count, NULL, &error), &error);
        if (strstr(x.name, "moe.gate") != NULL) {
            assert_true(relative_distance(x.data, y.data, count) > 0.1);
        }
    }
    close_setup(&a);
    close_setup(&b);
}

/* ---- files ---- */

static void write_parts(const char *directory, const setup *s, const char *without)
{
    by_error error = {0};
    by_tensor_view views[256];
    char names[256][160];
    size_t count = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(s->trainer); i++) {
        by_tensor_view whole = by_trainer_parameter(s->trainer, i);
        int64_t parts = by__checkpoint_name_is_stacked(whole.name) ? whole.shape[0] : 1;
        for (int64_t part = 0; part < parts; part++) {
            views[count] = whole;
            if (by__checkpoint_name_is_stacked(whole.name)) {
                (void)by__checkpoint_stacked_part(&views[count], names[count], sizeof names[0],
                                                  part);
            }
            count += without == NULL || strcmp(views[count].name, without) != 0;
        }
    }
    check_ok(by_weights_write(directory, views, count, 0, &error), &error);
}

/* Each expert is a tensor of its own in files, whose absence is missed by its name. */
static void test_files(void **state)
{
    BY_UNUSED(state);
    static const char name[] = "model.layers.1.block_sparse_moe.experts.3.w2.weight";
    by_error error = {0};
    by_weights *weights;
    by_tensor_view view;
    char *directory = temporary_make();
    setup a;
    setup b;
    static const char *const seed[] = {"seed=5"};
    open_setup(&a, NULL, 0);
    open_setup(&b, seed, 1);
    write_parts(directory, &a, NULL);
    check_ok(by_weights_open(&weights, directory, &error), &error);
    check_ok(by_weights_tensor(weights, name, &view, &error), &error);
    assert_int_equal(view.rank, 2);
    assert_int_equal(view.shape[0], 32);
    assert_int_equal(view.shape[1], 48);
    check_ok(by_trainer_load_weights(b.trainer, weights, &error), &error);
    compare_weights(&a, &b);
    by_weights_close(&weights);
    write_parts(directory, &a, name);
    check_ok(by_weights_open(&weights, directory, &error), &error);
    by_status status = by_trainer_load_weights(b.trainer, weights, &error);
    check_error(status, BY_EFORMAT, &error, name);
    by_weights_close(&weights);
    close_setup(&a);
    close_setup(&b);
    temporary_remove(directory);
}

static void test_refuses(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    static const char text[] = "model: {kind: mixtral, experts: 2, experts_per_token: 3}";
    check_ok(by_config_parse(&config, "c.yaml", text, strlen(text), NULL, 0, &error), &error);
    by_status status = by_config_resolve(config, &error);
    check_error(status, BY_ECONFIG, &error,
                "experts_per_token 3 is more than the number of experts, 2");
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group),   cmocka_unit_test(test_choices),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_balance_is_not_reported),
        cmocka_unit_test(test_files),   cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
