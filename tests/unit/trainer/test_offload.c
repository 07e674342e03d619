/* The optimizer's state on disk: the same bits as in memory, the memory that was planned, and disks
 * that have no room or fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rank_job.h"
#include "runner.h"
#include "temporary.h"

#define ON_DISK "offload.optimizer=disk"
/* Windows of one page: many of them, even of a small model, and more than the buffer holds. */
#define SMALL "offload.buffer_mib=0.05"

static const char *const kinds[] = {"optimizer.kind=adamw", "optimizer.kind=sgd",
                                    "optimizer.kind=lion", "optimizer.kind=lamb",
                                    "optimizer.kind=adafactor"};
static const char *const precisions[] = {"precision.compute=f32", "precision.compute=bf16"};

static void test_same_bits(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        for (size_t k = 0; k < 2; k++) {
            const char *const in_memory[] = {kinds[i], precisions[k], NULL};
            const char *const whole[] = {kinds[i], precisions[k], ON_DISK, NULL};
            const char *const small[] = {kinds[i], precisions[k], ON_DISK, SMALL, NULL};
            const char *const shared[] = {kinds[i], precisions[k],      ON_DISK,
                                          SMALL,    "parallel.shard=3", NULL};
            rank_job_agree(in_memory, 1, whole);
            rank_job_agree(in_memory, 1, small);
            rank_job_agree(in_memory, 2, small);
            rank_job_agree(in_memory, 3, shared);
        }
    }
}

/* ---- one trainer ---- */

static by_status build_frozen(void *user, by_model *out, by_graph *graph,
                              const by_model_config *config, const by_model_request *request,
                              by_error *error)
{
    BY_UNUSED(user);
    BY_TRY(by_model_build(out, graph, config, request, error));
    by_graph_freeze(graph, by_graph_find(graph, "h.0.mlp.c_fc.weight"));
    by_graph_freeze(graph, by_graph_find(graph, "h.1.ln_1.bias"));
    return by_graph_check(graph, error);
}

typedef struct setup {
    by_config *config;
    by_trainer *trainer;
    by_random_batch *batch;
} setup;

static by_status open_setup(setup *s, const char *const *settings, bool frozen, by_error *error)
{
    const by_trainer_options options = {.builder = frozen ? build_frozen : NULL};
    *s = (setup){.config = rank_job_config(settings)};
    BY_TRY(by_trainer_open(&s->trainer, s->config, &options, error));
    BY_TRY(by_trainer_allocate(s->trainer, error));
    BY_TRY(by_trainer_initialize(s->trainer, error));
    return by_random_batch_open(&s->batch, s->trainer, error);
}

static void close_setup(setup *s)
{
    by_random_batch_close(&s->batch);
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

static by_status step(const setup *s, by_error *error)
{
    by_step_result result;
    return by_trainer_step(s->trainer, by_random_batch_view(s->batch), &result, error);
}

static void compare_tensor(const by_trainer *a, const by_trainer *b, size_t i, int state)
{
    by_error error = {0};
    size_t count;
    by_trainer_tensor what = state < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE;
    by_tensor_view view = state < 0 ? by_trainer_parameter(a, i) : by_trainer_state(a, i, state);
    if (view.rank < 0) {
        return;
    }
    check_ok(by_tensor_size(&view, &count, NULL, &error), &error);
    float *values = malloc(2 * count * sizeof *values);
    assert_non_null(values);
    check_ok(by_trainer_read(a, what, state, i, values, &error), &error);
    check_ok(by_trainer_read(b, what, state, i, values + count, &error), &error);
    assert_memory_equal(values, values + count, count * sizeof *values);
    free(values);
}

/* Frozen weights are on disk in f32, and are what evaluation computes with. Values that are set
 * anew between steps take the place of those that were read ahead. */
static void compare_set_anew(const char *precision)
{
    by_error error = {0};
    setup s[2];
    const char *const settings[2][4] = {{precision, NULL}, {precision, ON_DISK, SMALL, NULL}};
    for (size_t k = 0; k < 2; k++) {
        check_ok(open_setup(&s[k], settings[k], true, &error), &error);
        check_ok(step(&s[k], &error), &error);
        check_ok(step(&s[k], &error), &error);
        check_ok(by_trainer_initialize(s[k].trainer, &error), &error);
        check_ok(step(&s[k], &error), &error);
        check_ok(step(&s[k], &error), &error);
    }
    for (size_t i = 0; i < by_trainer_parameter_count(s[0].trainer); i++) {
        for (int k = -1; k < by_trainer_state_count(s[0].trainer); k++) {
            compare_tensor(s[0].trainer, s[1].trainer, i, k);
        }
    }
    close_setup(&s[0]);
    close_setup(&s[1]);
}

static void test_frozen_and_set_anew(void **state)
{
    BY_UNUSED(state);
    compare_set_anew(precisions[0]);
    compare_set_anew(precisions[1]);
}

/* On disk is what is in memory else, but for the ends of pages; memory has the buffer. */
static void test_plan(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const uint64_t buffer = (uint64_t)1 << 20;
    for (size_t k = 0; k < 2; k++) {
        const char *const in_memory[] = {precisions[k], NULL};
        const char *const on_disk[] = {precisions[k], ON_DISK, "offload.buffer_mib=1", NULL};
        by_config *configs[2] = {rank_job_config(in_memory), rank_job_config(on_disk)};
        by_trainer *t[2];
        for (size_t i = 0; i < 2; i++) {
            check_ok(by_trainer_open(&t[i], configs[i], NULL, &error), &error);
        }
        const by_memory_report *a = by_trainer_memory(t[0]);
        const by_memory_report *b = by_trainer_memory(t[1]);
        uint64_t moved = a->optimizer + (k == 1 ? a->optimizer / 2 : 0);
        assert_int_equal(a->on_disk, 0);
        assert_true(b->on_disk >= a->optimizer && b->on_disk < moved + ((uint64_t)1 << 16));
        assert_true(a->parameters - b->parameters <= a->optimizer / 2);
        assert_int_equal(a->parameters - b->parameters > 0, k);
        assert_true(b->optimizer >= buffer && b->optimizer < buffer + ((uint64_t)2 << 20));
        assert_int_equal(b->gradients, a->gradients);
        for (size_t i = 0; i < 2; i++) {
            by_trainer_close(&t[i]);
            by_config_close(&configs[i]);
        }
    }
}

/* ---- disks ---- */

static void set_limit(rlim_t bytes, struct rlimit *before)
{
    assert_int_equal(getrlimit(RLIMIT_FSIZE, before), 0);
    const struct rlimit limit = {bytes, before->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_no_room(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    struct rlimit before;
    setup s;
    const char *const settings[] = {ON_DISK, SMALL, NULL};
    set_limit(100000, &before);
    by_status status = open_setup(&s, settings, false, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(error.message, "name a directory on a disk with room in offload.path"));
    check_error(status, BY_EIO, &error, "cannot reserve ");
    close_setup(&s);
}

/* A disk that fails under way ends the run; nothing can be read of what the step has left, so no
 * checkpoint has a part of it. */
static void test_disk_fails(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    struct rlimit before;
    setup s;
    float *values = malloc((size_t)1 << 20);
    const char *const settings[] = {ON_DISK, SMALL, NULL};
    assert_non_null(values);
    check_ok(open_setup(&s, settings, false, &error), &error);
    check_ok(step(&s, &error), &error);
    set_limit(100000, &before);
    by_status status = step(&s, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_error(status, BY_EIO, &error, "cannot write the scratch file ");
    check_error(step(&s, &error), BY_EIO, &error, "cannot write the scratch file ");
    check_error(by_trainer_read(s.trainer, BY_TRAINER_STATE, 0, 0, values, &error), BY_EIO, &error,
                "cannot write the scratch file ");
    close_setup(&s);
    free(values);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, ON_DISK, &error), &error);
    check_ok(by_config_set(config, "sync.compress=int8", &error), &error);
    check_error(by_config_resolve(config, &error), BY_ECONFIG, &error,
                "set offload.optimizer: none, or leave out section sync");
    by_config_close(&config);
}

/* Scratch files are made in run.dir: a directory of the test's. */
static int enter_directory(void **state)
{
    *state = temporary_make();
    return *state == NULL ? -1 : chdir(*state);
}

static int leave_directory(void **state)
{
    int status = chdir("/");
    temporary_remove(*state);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_frozen_and_set_anew),
        cmocka_unit_test(test_plan),       cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_disk_fails), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
