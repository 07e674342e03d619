/* Every optimizer of the table in a trainer: what it learns, resuming, threads, planned states, and
 * half steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optimizer_equations.h"
#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"

typedef struct training {
    by_config *config;
    by_trainer *trainer;
    int32_t tokens[6 * 8];
    int32_t targets[6 * 8];
    by_array arrays[2];
    by_batch batch;
} training;

static void open_training(training *t, const optimizer_reference *row, const char *compute,
                          const char *const *more, size_t count)
{
    by_error error = {0};
    *t = (training){0};
    optimizer_reference_config(&t->config, row);
    check_ok(by_config_set(t->config, compute, &error), &error);
    check_ok(by_config_set(t->config, "train.threads=1", &error), &error);
    for (size_t i = 0; i < count; i++) {
        check_ok(by_config_set(t->config, more[i], &error), &error);
    }
    check_ok(by_config_resolve(t->config, &error), &error);
    check_ok(by_trainer_open(&t->trainer, t->config, NULL, &error), &error);
    check_ok(by_trainer_allocate(t->trainer, &error), &error);
    check_ok(by_trainer_initialize(t->trainer, &error), &error);
    for (size_t i = 0; i < 6 * 8; i++) {
        t->tokens[i] = (int32_t)(i * 7 % 29);
        t->targets[i] = (int32_t)((i + 1) * 7 % 29);
    }
    t->batch = by_batch_of_tokens(t->arrays, t->tokens, t->targets, 6, 8);
}

static void close_training(training *t)
{
    by_trainer_close(&t->trainer);
    by_config_close(&t->config);
}

static double train(training *t, int steps)
{
    by_error error = {0};
    by_step_result result = {0};
    for (int i = 0; i < steps; i++) {
        check_ok(by_trainer_step(t->trainer, &t->batch, &result, &error), &error);
    }
    return result.loss;
}

static uint64_t hash_flat(const by_trainer *t, int flat)
{
    uint64_t hash = 0;
    for (by__store_handle i = 0; (size_t)i < by__store_count(t->store); i++) {
        by_memory buffer = by__store_buffer(t->store, flat, i);
        hash = hash * 31u + by__hash64((const void *)buffer.address, buffer.bytes);
    }
    return hash;
}

/* Weights, copies and states. */
static uint64_t hash_training(const training *t)
{
    const by_trainer *trainer = t->trainer;
    uint64_t hash = hash_flat(trainer, trainer->flats.masters);
    hash = hash * 31u + hash_flat(trainer, trainer->flats.copies);
    for (int s = 0; s < trainer->flats.state_count; s++) {
        hash = hash * 31u + hash_flat(trainer, trainer->flats.states[s]);
    }
    return hash;
}

static void test_learns(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        training t;
        open_training(&t, &optimizer_references[row], "precision.compute=f32", NULL, 0);
        double loss = train(&t, BY_TESTS_SANITIZED ? 5 : 60);
        if (!BY_TESTS_SANITIZED && !(loss <= optimizer_references[row].loss)) {
            fail_msg("%s: the loss is %g after 60 steps", optimizer_references[row].kind, loss);
        }
        close_training(&t);
    }
}

/* All parameters or all of one state, as a checkpoint has them. */
static size_t list_views(const by_trainer *trainer, int state, by_tensor_view *views,
                         char (*names)[300])
{
    size_t count = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
        views[count] =
            state < 0 ? by_trainer_parameter(trainer, i) : by_trainer_state(trainer, i, state);
        if (views[count].rank >= 0) {
            (void)snprintf(names[count], sizeof names[0], "%s%s%s",
                           state < 0 ? "" : by_trainer_state_name(trainer, state),
                           state < 0 ? "" : ".", views[count].name);
            views[count].name = names[count];
            count++;
        }
    }
    return count;
}

/* Through files: the weights alone, then all states. */
static by_weights *write_views(const training *t, bool states, const char *directory)
{
    by_error error = {0};
    by_weights *weights;
    size_t most = by_trainer_parameter_count(t->trainer) * (1 + BY_MAX_STATES);
    by_tensor_view *views = calloc(most, sizeof *views);
    char(*names)[300] = calloc(most, sizeof *names);
    size_t count = 0;
    assert_true(views != NULL && names != NULL);
    if (!states) {
        count = list_views(t->trainer, -1, views, names);
    }
    for (int s = 0; states && s < by_trainer_state_count(t->trainer); s++) {
        count += list_views(t->trainer, s, views + count, names + count);
    }
    if (count > 0) {
        check_ok(by_weights_write(directory, views, count, 0, &error), &error);
        check_ok(by_weights_open(&weights, directory, &error), &error);
    }
    free(views);
    free(names);
    return count > 0 ? weights : NULL;
}

static void resume(const optimizer_reference *row, const char *compute)
{
    by_error error = {0};
    training whole;
    training first;
    training second;
    char directory[2][64] = {"/tmp/banyan-optim-XXXXXX", "/tmp/banyan-optim-XXXXXX"};
    assert_true(mkdtemp(directory[0]) != NULL && mkdtemp(directory[1]) != NULL);
    open_training(&whole, row, compute, NULL, 0);
    open_training(&first, row, compute, NULL, 0);
    open_training(&second, row, compute, NULL, 0);
    (void)train(&whole, 20);
    (void)train(&first, 10);
    (void)train(&second, 1);
    by_weights *weights = write_views(&first, false, directory[0]);
    by_weights *states = write_views(&first, true, directory[1]);
    check_ok(by_trainer_load_weights(second.trainer, weights, &error), &error);
    check_ok(by_trainer_load_optimizer(second.trainer, states, 10, &error), &error);
    assert_true(hash_training(&second) == hash_training(&first));
    (void)train(&second, 10);
    if (hash_training(&second) != hash_training(&whole)) {
        fail_msg("%s, %s: 10 + 10 steps are not 20", row->kind, compute);
    }
    by_weights_close(&weights);
    by_weights_close(&states);
    for (int i = 0; i < 2; i++) {
        check_ok(by__remove_tree(directory[i], &error), &error);
    }
    close_training(&whole);
    close_training(&first);
    close_training(&second);
}

static void test_resume(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        resume(&optimizer_references[row], "precision.compute=f32");
        resume(&optimizer_references[row], "precision.compute=bf16");
    }
}

/* Micro-batches and threads: the second does not change a bit. */
static void test_training_threads(void **state)
{
    BY_UNUSED(state);
    static const char *const threads[][2] = {{"train.threads=1", "train.micro_batch=2"},
                                             {"train.threads=2", "train.micro_batch=2"}};
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        uint64_t hash[2];
        for (int k = 0; k < 2; k++) {
            training t;
            open_training(&t, &optimizer_references[row], "precision.compute=bf16", threads[k], 2);
            (void)train(&t, 5);
            hash[k] = hash_training(&t);
            close_training(&t);
        }
        assert_true(hash[0] == hash[1]);
    }
}

/* The states are planned with the shapes that their rules give, and nothing else is. */
static void test_planned_states(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        training t;
        uint64_t held = 0;
        uint64_t buffers = 0;
        open_training(&t, &optimizer_references[row], "precision.compute=f32", NULL, 0);
        for (int s = 0; s < by_trainer_state_count(t.trainer); s++) {
            for (size_t i = 0; i < by_trainer_parameter_count(t.trainer); i++) {
                by_tensor_view parameter = by_trainer_parameter(t.trainer, i);
                by_shape shape = {.rank = parameter.rank};
                memcpy(shape.dim, parameter.shape, (size_t)shape.rank * sizeof shape.dim[0]);
                const char *axes = by__store_entry(t.trainer->store, (by__store_handle)i)->axes;
                by_optimizer_state rule = by_optimizer_state_at(&t.config->optimizer, s);
                by_shape want = shape;
                bool has = rule.shape == NULL || rule.shape(&shape, axes, &want);
                by_tensor_view view = by_trainer_state(t.trainer, i, s);
                assert_int_equal(view.rank, has ? want.rank : -1);
                for (int d = 0; d < view.rank; d++) {
                    assert_int_equal(view.shape[d], want.dim[d]);
                }
                held += has ? (uint64_t)by_shape_count(&want) * by_dtype_size(view.dtype) : 0;
                buffers += has;
            }
        }
        uint64_t bytes = by_trainer_memory(t.trainer)->optimizer;
        assert_true(bytes >= held);
        assert_true(bytes <= held + 4 * BY__ENTRY_ALIGNMENT * buffers);
        close_training(&t);
    }
}

/* A file of another optimizer's states is refused, unless they have the same names and shapes. */
static void test_states_of_another_kind(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    training from;
    training to;
    char directory[64] = "/tmp/banyan-optim-XXXXXX";
    assert_non_null(mkdtemp(directory));
    open_training(&from, optimizer_reference_of("adamw"), "precision.compute=f32", NULL, 0);
    by_weights *states = write_views(&from, true, directory);
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        open_training(&to, &optimizer_references[row], "precision.compute=f32", NULL, 0);
        bool same = by_trainer_state_count(to.trainer) == 2 &&
                    strcmp(by_trainer_state_name(to.trainer, 0), "m") == 0;
        by_status status = by_trainer_load_optimizer(to.trainer, states, 1, &error);
        assert_true(same ? status == BY_OK : status != BY_OK);
        error = (by_error){0};
        close_training(&to);
    }
    by_weights_close(&states);
    check_ok(by__remove_tree(directory, &error), &error);
    close_training(&from);
}

/* A step in two halves: the same bits as a whole one; gradients that are not finite change
 * nothing. */
static void test_half_steps(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        by_error error = {0};
        training whole;
        training halves;
        double loss;
        by_step_result result;
        by_step_result half;
        open_training(&whole, &optimizer_references[row], "precision.compute=bf16", NULL, 0);
        open_training(&halves, &optimizer_references[row], "precision.compute=bf16", NULL, 0);
        for (int i = 0; i < 3; i++) {
            check_ok(by_trainer_step(whole.trainer, &whole.batch, &result, &error), &error);
            check_ok(by_trainer_gradients(halves.trainer, &halves.batch, &loss, &error), &error);
            check_ok(by_trainer_update(halves.trainer, result.lr, &half, &error), &error);
            assert_true(loss == result.loss && half.loss == loss && half.norm == result.norm);
            assert_true(half.step == i + 1 && half.lr == result.lr);
        }
        assert_true(hash_training(&halves) == hash_training(&whole));
        assert_int_equal(by_trainer_updates(halves.trainer), 3);
        check_ok(by_trainer_gradients(halves.trainer, &halves.batch, &loss, &error), &error);
        *(float *)(uintptr_t)by_trainer_gradient(halves.trainer, 2).data = NAN;
        by_status status = by_trainer_update(halves.trainer, 1e-2, &half, &error);
        check_ok(status, &error);
        assert_int_equal(half.skipped, BY_SKIP_NONFINITE);
        assert_true(hash_training(&halves) == hash_training(&whole));
        assert_int_equal(by_trainer_updates(halves.trainer), 4);
        check_ok(by_trainer_gradients(halves.trainer, &halves.batch, &loss, &error), &error);
        check_ok(by_trainer_update(halves.trainer, 0.5 * result.lr, &half, &error), &error);
        assert_true(hash_training(&halves) != hash_training(&whole));
        close_training(&whole);
        close_training(&halves);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_training_threads),
        cmocka_unit_test(test_planned_states),
        cmocka_unit_test(test_states_of_another_kind),
        cmocka_unit_test(test_half_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
