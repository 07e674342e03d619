/* Frozen weights in codes: gradients of products that decode them, and their codes in files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/ops.h"
#include "banyan/passes.h"
#include "base/packing/packing.h"
#include "runner.h"

#define COUNT(list) BY_ARRAY_LENGTH(list)

#define INPUTS  70
#define OUTPUTS 40
#define ROWS    3

/* L = sum over c y with y = x W + b and W in codes, by which products decode it; x is trained. */
static by_graph *coded_graph(by_packing_kind kind, bool out_in)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    const by_init zero = {.kind = BY_INIT_ZERO};
    by_shape shape = out_in ? BY_SHAPE(OUTPUTS, INPUTS) : BY_SHAPE(INPUTS, OUTPUTS);
    by_graph_set_block(graph, 0);
    by_value x = by_graph_parameter(graph, "x", "batch in", BY_SHAPE(ROWS, INPUTS), zero);
    by_value w = by_graph_parameter(graph, "w", "a b", shape, zero);
    by_value b = by_graph_parameter(graph, "b", "out", BY_SHAPE(OUTPUTS), zero);
    by_value c = by_graph_input(graph, "c", BY_F32, BY_SHAPE(ROWS, OUTPUTS));
    by_value y = by_mul(graph, by_linear(graph, x, w, b, out_in), c);
    by_value loss = by_reshape(graph, by_sum(graph, y, (const int[]){0, 1}, 2, true), BY_SHAPE(1));
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_graph_freeze(graph, w);
    by_graph_output(graph, loss, "loss");
    const by_frozen_options options = {.kind = kind, .group = 32};
    check_ok(by_pass_quantise_frozen(graph, &options, &error), &error);
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    return graph;
}

/* The derivative of L by x, by central differences in double of the decoded weight. */
static void check_coded_gradient(by_packing_kind kind, bool out_in)
{
    by_error error = {0};
    by_graph *graph = coded_graph(kind, out_in);
    const by_packing packing = graph->values[by_graph_find(graph, "w")].packing;
    float weight[INPUTS * OUTPUTS];
    float decoded[INPUTS];
    runner r;
    runner_open(&r, graph, 2);
    for (size_t i = 0; i < ROWS * INPUTS; i++) {
        ((float *)runner_data(&r, "x"))[i] = (float)random_unit(3, 1, i);
    }
    for (size_t i = 0; i < ROWS * OUTPUTS; i++) {
        ((float *)runner_data(&r, "c"))[i] = (float)random_unit(3, 2, i);
    }
    ((float *)runner_data(&r, "seed"))[0] = 1.0f;
    for (size_t i = 0; i < COUNT(weight); i++) {
        weight[i] = (float)random_unit(9, 1, i);
    }
    void *panels = runner_data(&r, "w");
    check_ok(by__pack_weight(panels, &packing, out_in, weight, BY_F32, out_in ? OUTPUTS : INPUTS, 1,
                             &error),
             &error);
    runner_run(&r);
    const float *c = runner_data(&r, "c");
    const float *got = runner_data(&r, "grad.x");
    double want[ROWS * INPUTS] = {0};
    double off = 0.0;
    for (int64_t j = 0; j < OUTPUTS; j++) {
        by__packed_row(decoded, &packing, panels, j, 0, INPUTS);
        for (int64_t i = 0; i < INPUTS; i++) {
            double given = (double)weight[out_in ? j * INPUTS + i : i * OUTPUTS + j];
            assert_true(decoded[i] == by__packed_at(&packing, panels, j, i));
            off = fmax(off, fabs((double)decoded[i] - given));
            for (int64_t t = 0; t < ROWS; t++) {
                const double h = 0x1p-4;
                double above = (double)c[t * OUTPUTS + j] * (0.5 + h) * (double)decoded[i];
                double below = (double)c[t * OUTPUTS + j] * (0.5 - h) * (double)decoded[i];
                want[t * INPUTS + i] += (above - below) / (2.0 * h);
            }
        }
    }
    assert_true(off > 1e-3 && off < (kind == BY_PACKING_INT4 ? 0.15 : 0.01));
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_true(fabs((double)got[i] - want[i]) < 1e-5);
    }
    runner_close(&r);
    by_graph_close(&graph);
}

static void test_coded_gradient(void **state)
{
    BY_UNUSED(state);
    for (int out_in = 0; out_in < 2; out_in++) {
        check_coded_gradient(BY_PACKING_INT8, out_in == 1);
        check_coded_gradient(BY_PACKING_INT4, out_in == 1);
    }
}

/* The codes of a packed weight are those of files. */
static void test_unpacked_codes(void **state)
{
    BY_UNUSED(state);
    static const by_packing packings[] = {
        {.kind = BY_PACKING_INT8, .dtype = BY_F32, .n = 33, .k = 70},
        {.kind = BY_PACKING_INT4, .dtype = BY_F32, .n = 33, .k = 70, .group = 32},
        {.kind = BY_PACKING_INT4, .dtype = BY_BF16, .n = 1, .k = 7, .group = 64}};
    for (size_t p = 0; p < COUNT(packings); p++) {
        const by_packing *packing = &packings[p];
        by_error error = {0};
        bool narrow = packing->kind == BY_PACKING_INT4;
        by_shape shape = by__packed_shape(packing);
        size_t bytes = (size_t)by_shape_count(&shape);
        float weight[33 * 70];
        uint8_t codes[33 * 72];
        float scales[33 * 3];
        for (size_t i = 0; i < COUNT(weight); i++) {
            weight[i] = (float)random_unit(4, 2, i);
        }
        void *panels = malloc(bytes);
        void *again = malloc(bytes);
        assert_true(panels != NULL && again != NULL);
        check_ok(by__pack_weight(panels, packing, true, weight, BY_F32, packing->n, 1, &error),
                 &error);
        by__unpack_codes(codes, scales, packing, panels, 2);
        const by__coded coded = {.kind = narrow ? BY__CODE_INT4 : BY__CODE_INT8,
                                 .n = packing->n,
                                 .k = packing->k,
                                 .group = by__packed_together(packing),
                                 .scale_row = by__packed_scale_row(packing),
                                 .scale_dtype = narrow ? BY_F16 : BY_F32,
                                 .codes = codes,
                                 .scales = (const uint8_t *)scales};
        for (int64_t i = 0; i < packing->n * packing->k; i++) {
            assert_true(by__coded_at(&coded, i / packing->k, i % packing->k) ==
                        by__packed_at(packing, panels, i / packing->k, i % packing->k));
        }
        /* What is packed from them has the same ones. */
        uint8_t same_codes[sizeof codes];
        float same_scales[COUNT(scales)];
        size_t row = by__coded_row_bytes(coded.kind, packing->k);
        check_ok(by__pack_coded(again, packing, 0, &coded, 1, &error), &error);
        by__unpack_codes(same_codes, same_scales, packing, again, 1);
        assert_memory_equal(same_codes, codes, (size_t)packing->n * row);
        assert_memory_equal(same_scales, scales,
                            (size_t)(packing->n * coded.scale_row) *
                                by_dtype_size(coded.scale_dtype));
        free(panels);
        free(again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coded_gradient),
        cmocka_unit_test(test_unpacked_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
