/* Statistics of activations: against values that are computed here, without cost in bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/passes.h"
#include "runner.h"
#include "trainer/probes/activations.h"

#define CONTEXT 8
#define VOCAB   31
#define WIDTH   24
#define BATCH   6
#define TOKENS  (BATCH * CONTEXT)

/* x = E[tokens]; block 0: relu(x W0); block 1: a W1, and a scalar that is read outside as well;
 * hidden = twice that. */
static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    const by_init normal = {BY_INIT_NORMAL, 0.5f};
    BY_UNUSED(user);
    BY_UNUSED(config);
    *out = BY_MODEL_NONE;
    out->tokens = by_graph_input(graph, "tokens", BY_I32, BY_SHAPE(request->batch, request->time));
    out->head = by_graph_parameter(graph, "table", "vocab embed", BY_SHAPE(VOCAB, WIDTH), normal);
    by_value w0 = by_graph_parameter(graph, "w0", "embed mlp", BY_SHAPE(WIDTH, WIDTH), normal);
    by_value w1 = by_graph_parameter(graph, "w1", "mlp embed", BY_SHAPE(WIDTH, WIDTH), normal);
    by_value x = by_embedding(graph, out->tokens, out->head);
    by_graph_set_block(graph, 0);
    x = by_unary(graph, by_matmul(graph, x, w0, false, false), BY_FN_RELU);
    by_graph_set_block(graph, 1);
    x = by_matmul(graph, x, w1, false, false);
    by_graph_set_block(graph, -1);
    out->hidden = by_add(graph, x, x);
    return by_graph_check(graph, error);
}

typedef struct setup {
    by_config *config;
    by_trainer *trainer;
    int32_t tokens[TOKENS];
    by_array arrays[2];
    by_batch batch;
} setup;

static void open_setup(setup *s, const char *const *settings)
{
    by_error error = {0};
    static const char *const common[] = {
        "model.kind=gpt2", "model.layers=2",     "model.heads=2",         "model.width=24",
        "model.context=8", "model.vocab=31",     "train.batch=6",         "train.micro_batch=2",
        "train.steps=10",  "optimizer.warmup=0", "precision.compute=f32", NULL};
    const by_trainer_options options = {.builder = build};
    *s = (setup){.config = config_of(common, settings)};
    check_ok(by_trainer_open(&s->trainer, s->config, &options, &error), &error);
    check_ok(by_trainer_allocate(s->trainer, &error), &error);
    check_ok(by_trainer_initialize(s->trainer, &error), &error);
    for (size_t i = 0; i < TOKENS; i++) {
        s->tokens[i] = (int32_t)((random_unit(1, 1, i) + 1.0) / 2.0 * VOCAB);
    }
    s->batch = by_batch_of_tokens(s->arrays, s->tokens, s->tokens, BATCH, CONTEXT);
}

static void close_setup(setup *s)
{
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

static const float *weights_of(const setup *s, const char *name)
{
    for (size_t i = 0; i < by_trainer_parameter_count(s->trainer); i++) {
        by_tensor_view view = by_trainer_parameter(s->trainer, i);
        if (strcmp(view.name, name) == 0) {
            return view.data;
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

/* y = x w, all [.., WIDTH]. */
static void multiply(double *y, const double *x, const float *w)
{
    for (size_t t = 0; t < TOKENS; t++) {
        for (size_t j = 0; j < WIDTH; j++) {
            y[t * WIDTH + j] = 0.0;
            for (size_t k = 0; k < WIDTH; k++) {
                y[t * WIDTH + j] += x[t * WIDTH + k] * (double)w[k * WIDTH + j];
            }
        }
    }
}

static void compare(const double *have, const double *x)
{
    double want[BY__ACTIVATION_NUMBERS] = {[BY__ACTIVATION_COUNT] = TOKENS * WIDTH};
    for (size_t i = 0; i < (size_t)TOKENS * WIDTH; i++) {
        want[BY__ACTIVATION_SUM] += x[i];
        want[BY__ACTIVATION_SQUARES] += x[i] * x[i];
        want[BY__ACTIVATION_ZEROS] += x[i] == 0.0;
        want[BY__ACTIVATION_NONFINITE] += !isfinite(x[i]);
        want[BY__ACTIVATION_LARGEST] = fmax(want[BY__ACTIVATION_LARGEST], fabs(x[i]));
    }
    for (int k = 0; k < BY__ACTIVATION_NUMBERS; k++) {
        double bound = k == BY__ACTIVATION_SUM ? 1e-5 * sqrt(want[BY__ACTIVATION_SQUARES]) * TOKENS
                                               : 1e-5 * fabs(want[k]);
        if (!(fabs(have[k] - want[k]) <= bound)) {
            fail_msg("number %d is %.9g, not %.9g", k, have[k], want[k]);
        }
    }
}

/* Over the three micro-batches of a step, before its update. */
static void test_numbers(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"track.activations_every=2", NULL};
    static const char *const names[] = {"block.0", "block.1", "hidden"};
    static double x[4][TOKENS * WIDTH];
    by_error error = {0};
    by_step_result result;
    setup s;
    open_setup(&s, settings);
    assert_int_equal(by__trainer_activations_count(s.trainer), 3);
    check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
    assert_null(by__trainer_activations_numbers(s.trainer)); /* step 1 is not due */
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        size_t token = (size_t)s.tokens[i / WIDTH];
        x[0][i] = (double)weights_of(&s, "table")[token * WIDTH + i % WIDTH];
    }
    multiply(x[1], x[0], weights_of(&s, "w0"));
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        x[1][i] = fmax(x[1][i], 0.0);
    }
    multiply(x[2], x[1], weights_of(&s, "w1"));
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        x[3][i] = 2.0 * x[2][i];
    }
    check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
    const double *have = by__trainer_activations_numbers(s.trainer);
    assert_non_null(have);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(by__trainer_activations_name(s.trainer, i), names[i]);
        compare(have + i * BY__ACTIVATION_NUMBERS, x[1 + i]);
    }
    assert_true(have[BY__ACTIVATION_ZEROS] > 0.0); /* of the ReLU */
    close_setup(&s);
}

/* A weight that is infinite shows where it is met first, in a step that changes nothing. */
static void test_nonfinite(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"track.activations_every=1", "guard.max_skips=5", NULL};
    by_error error = {0};
    by_step_result result;
    setup s;
    open_setup(&s, settings);
    float *w1 = (float *)(uintptr_t)weights_of(&s, "w1");
    w1[3] = INFINITY; /* of column 3: half of what multiplies it is 0, which makes NaN */
    check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
    assert_int_equal(result.skipped, BY_SKIP_NONFINITE);
    const double *have = by__trainer_activations_numbers(s.trainer);
    const double *block1 = have + BY__ACTIVATION_NUMBERS;
    assert_true(have[BY__ACTIVATION_NONFINITE] == 0.0);
    assert_true(block1[BY__ACTIVATION_NONFINITE] == TOKENS);
    assert_true(!isfinite(block1[BY__ACTIVATION_SQUARES]));
    close_setup(&s);
}

/* Weights after some steps, with and without; and nothing is planned for them without. */
static void test_bits(void **state)
{
    BY_UNUSED(state);
    static const char *const off[] = {"precision.compute=bf16", NULL};
    static const char *const on[] = {"precision.compute=bf16", "track.activations_every=1", NULL};
    static const char *const tensors[] = {"table", "w0", "w1"};
    by_error error = {0};
    by_step_result result;
    setup plain;
    setup seen;
    open_setup(&plain, off);
    open_setup(&seen, on);
    assert_null(plain.trainer->probes.activations);
    for (int i = 0; i < 4; i++) {
        check_ok(by_trainer_step(plain.trainer, &plain.batch, &result, &error), &error);
        check_ok(by_trainer_step(seen.trainer, &seen.batch, &result, &error), &error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(tensors); i++) {
        size_t rows = i == 0 ? VOCAB : WIDTH;
        assert_memory_equal(weights_of(&plain, tensors[i]), weights_of(&seen, tensors[i]),
                            rows * WIDTH * sizeof(float));
    }
    close_setup(&plain);
    close_setup(&seen);
}

/* The pass: the largest value that is read behind a block, and values at the graph's end. */
static void test_pass(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 8));
    by_graph_set_block(graph, 0);
    by_value small = by_sum(graph, x, (const int[]){1}, 1, true);
    by_value large = by_unary(graph, x, BY_FN_TANH);
    by_graph_set_block(graph, -1);
    by_graph_output(graph, by_unary(graph, small, BY_FN_TANH), "other");
    by_value last = by_add(graph, large, large);
    const by_observe_options options = {.blocks = true, .hidden = last, .output = BY_NONE};
    check_ok(by_pass_observe(graph, &options, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    by_value block = by_graph_find(graph, "activation.block.0");
    by_value hidden = by_graph_find(graph, "activation.hidden");
    assert_true(block != BY_NONE && hidden != BY_NONE);
    assert_int_equal(by_graph_find(graph, "activation.output"), BY_NONE);
    assert_int_equal(graph->nodes[graph->values[block].producer].in[0], large);
    assert_int_equal(graph->values[block].producer, graph->values[large].producer + 1);
    assert_int_equal(graph->values[hidden].producer, (int)graph->node_count - 1);
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_nonfinite),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
