/* optimizer.keep_zeros: elements of matrices that are 0 stay 0 through the updates of every
 * optimizer that takes the setting, and the others are updated as without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optim/optim.h"
#include "rank_job.h"
#include "runner.h"

enum { ROWS = 6, COLUMNS = 35, COUNT = ROWS * COLUMNS };

static bool is_pruned(int i)
{
    return i % 3 != 1;
}

/* Weights after some updates; `keep`: of a config with keep_zeros. */
static void update(float *out, const char *kind, bool keep, by_error *error)
{
    const char *const settings[] = {kind, keep ? "optimizer.keep_zeros=true" : "seed=1", NULL};
    by_config *config = rank_job_config(settings);
    by_graph *graph = open_graph();
    by_update_unit unit = {.name = "w",
                           .axes = "mlp embed",
                           .shape = BY_SHAPE(ROWS, COLUMNS),
                           .whole = BY_SHAPE(ROWS, COLUMNS),
                           .decay = true,
                           .copy = BY_F32,
                           .format = BY_F32};
    check_ok(by_optimizer_update_graph(graph, &config->optimizer, &unit, 1, error), error);
    check_ok(by_graph_verify(graph, error), error);
    runner r;
    runner_open(&r, graph, 1);
    float *w = runner_data(&r, "w");
    float *g = runner_data(&r, "grad.w");
    ((float *)runner_data(&r, "scale"))[0] = 0.5f;
    for (int i = 0; i < COUNT; i++) {
        w[i] = is_pruned(i) ? 0.0f : (float)random_unit(3, 0, (uint64_t)i);
    }
    for (int64_t step = 0; step < 5; step++) {
        by_optimizer_hyper(runner_data(&r, "hyper"), &config->optimizer, step, 0.01);
        for (int i = 0; i < COUNT; i++) {
            g[i] = (float)random_unit(4, (uint64_t)step, (uint64_t)i);
        }
        runner_run(&r);
    }
    memcpy(out, w, COUNT * sizeof *out);
    runner_close(&r);
    by_graph_close(&graph);
    by_config_close(&config);
}

static void test_updates(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"optimizer.kind=adamw", "optimizer.kind=adamw8bit",
                                        "optimizer.kind=sgd",   "optimizer.kind=lion",
                                        "optimizer.kind=lamb",  "optimizer.kind=adafactor"};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
        by_error error = {0};
        float with[COUNT];
        float without[COUNT];
        size_t moved = 0;
        size_t woken = 0;
        bool is_local = k < 4; /* norms of tensors are of all gradients */
        update(with, kinds[k], true, &error);
        update(without, kinds[k], false, &error);
        for (int i = 0; i < COUNT; i++) {
            float first = is_pruned(i) ? 0.0f : (float)random_unit(3, 0, (uint64_t)i);
            if (is_pruned(i)) {
                assert_true(with[i] == 0.0f);
                woken += without[i] != 0.0f;
            } else {
                moved += with[i] != first;
                assert_true(!is_local || k == 1 || with[i] == without[i]);
            }
        }
        assert_true(moved > COUNT / 4);
        assert_true(woken > COUNT / 2);
    }
}

/* Ranks that divide what they update. */
static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2};
    const char *const settings[][5] = {
        {"optimizer.keep_zeros=true", "parallel.shard=2", "parallel.zero=3", NULL},
        {"optimizer.keep_zeros=true", "parallel.shard=2", "precision.compute=bf16",
         "precision.weights=bf16", NULL},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        rank_job_compare(two, 1, settings[i]);
    }
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    static const char *const overrides[] = {"optimizer.kind=muon", "optimizer.keep_zeros=true"};
    assert_int_equal(by_config_parse(&config, "c.yaml", "name: x\n", 8, overrides, 2, &error),
                     BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "muon, which mixes the elements of a matrix"));
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
