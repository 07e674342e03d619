/* The loss of likelihoods and its gradients, compared with torch.distributions in float64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/passes.h"
#include "runner.h"

enum { COUNT = 6 };
static const float a[COUNT] = {0.5f, -1.25f, 2.0f, 3.5f, 0.25f, 8.0f};
static const float b[COUNT] = {0.75f, 2.0f, 0.125f, 1.5f, 0.0625f, 0.5f};
static const float targets[COUNT] = {1.0f, 0.0f, 2.0f, 7.0f, 0.0f, 3.0f};
static const float weights[COUNT] = {1.0f, 0.5f, 2.0f, 1.0f, 0.0f, 1.5f};

/* Of each distribution: the loss, its gradients by a, and those by b. */
static const double want[BY_DENSITY_COUNT][1 + 2 * COUNT] = {
    {78.82148466540924, -0.8888888888888888, -0.15625, -0.0, -1.5555555555555554, 0.0, 30.0,
     0.7407407407407407, 0.15234375, 16.0, -2.9629629629629632, 0.0, -297.0},
    {11.753142611905098, -0.7272727272727274, -0.14285714285714285, 0.0, -0.16000000000000006, 0.0,
     0.18750000000000006, 0.2823448820518977, -0.06730965677620673, 1.6598476540033786,
     0.27373427177776494, 0.0, -0.15662747460460036}};

static void near(double got, double expected)
{
    if (!(fabs(got - expected) <= 2e-6 * (1.0 + fabs(expected)))) {
        fail_msg("%.9g instead of %.9g", got, expected);
    }
}

static void check(by_density density, const char *isa)
{
    by_error error = {0};
    runner r;
    by_graph *graph = open_graph();
    by_value x = by_graph_parameter(graph, "a", NULL, BY_SHAPE(COUNT), (by_init){0});
    by_value y = by_graph_parameter(graph, "b", NULL, BY_SHAPE(COUNT), (by_init){0});
    by_value t = by_graph_input(graph, "t", BY_F32, BY_SHAPE(COUNT));
    by_value w = by_graph_input(graph, "w", BY_F32, BY_SHAPE(COUNT));
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_value loss = by_likelihood(graph, x, y, t, w, density);
    by_graph_output(graph, loss, "loss");
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    set_isa(isa);
    runner_open(&r, graph, 1);
    memcpy(runner_data(&r, "a"), a, sizeof a);
    memcpy(runner_data(&r, "b"), b, sizeof b);
    memcpy(runner_data(&r, "t"), targets, sizeof targets);
    memcpy(runner_data(&r, "w"), weights, sizeof weights);
    *(float *)runner_data(&r, "seed") = 1.0f;
    runner_run(&r);
    near((double)*(float *)runner_data(&r, "loss"), want[density][0]);
    for (size_t i = 0; i < COUNT; i++) {
        near((double)((float *)runner_data(&r, "grad.a"))[i], want[density][1 + i]);
        near((double)((float *)runner_data(&r, "grad.b"))[i], want[density][1 + COUNT + i]);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_torch(void **state)
{
    BY_UNUSED(state);
    for (int density = 0; density < BY_DENSITY_COUNT; density++) {
        check((by_density)density, "reference");
        check((by_density)density, "native");
    }
}

/* Near 0 a parameter counts as 1e-5, and a weight of 0 leaves out whatever its target is. */
static void test_bounds(void **state)
{
    by_error error = {0};
    runner r;
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "a", BY_F32, BY_SHAPE(2));
    by_value y = by_graph_input(graph, "b", BY_F32, BY_SHAPE(2));
    by_value t = by_graph_input(graph, "t", BY_F32, BY_SHAPE(2));
    by_value w = by_graph_input(graph, "w", BY_F32, BY_SHAPE(2));
    by_graph_output(graph, by_likelihood(graph, x, y, t, w, BY_DENSITY_NORMAL), "loss");
    by_graph_output(graph, by_likelihood(graph, x, y, t, w, BY_DENSITY_NEGATIVE_BINOMIAL),
                    "counts");
    check_ok(by_graph_verify(graph, &error), &error);
    runner_open(&r, graph, 1);
    ((float *)runner_data(&r, "w"))[0] = 1.0f;
    ((float *)runner_data(&r, "t"))[1] = INFINITY;
    runner_run(&r);
    near((double)*(float *)runner_data(&r, "loss"), log(1e-5) + 0.5 * log(2.0 * M_PI));
    near((double)*(float *)runner_data(&r, "counts"), 1e-5);
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_refused(void **state)
{
    by_error error = {0};
    BY_UNUSED(state);
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "a", BY_F32, BY_SHAPE(2));
    by_value y = by_graph_input(graph, "b", BY_F32, BY_SHAPE(3));
    (void)by_likelihood(graph, x, y, x, BY_NONE, BY_DENSITY_NORMAL);
    check_error(by_graph_check(graph, &error), BY_EARG, &error, "both parameters must be");
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
