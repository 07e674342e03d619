/* What a serving step is made of gives a row the same bits whatever rows are computed with it:
 * every kernel at every level of this machine, on all rows and on runs of 1 and more of them, on 1
 * to 3 threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "kernel_test.h"

#define ROWS 200 /* more than one block of any product */
#define AXIS(...)                                                                                  \
    {                                                                                              \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ }                       \
    }
#define OF(dtype, ...)                                                                             \
    {                                                                                              \
        {dtype, AXIS(__VA_ARGS__)}, PLAIN                                                          \
    }
#define X(...) OF(ACT, __VA_ARGS__)
#define F(...) OF(BY_F32, __VA_ARGS__)
#define I(...) OF(BY_I32, __VA_ARGS__)
#define ABSENT                                                                                     \
    {                                                                                              \
        .type = {.shape = {.rank = -1} }                                                           \
    }
#define WEIGHT OF(BY_U8, 1)
#define PACKED_AS(packing, outputs, inputs, together)                                              \
    {                                                                                              \
        .kind = BY_PACKING_##packing, .dtype = ACT, .n = outputs, .k = inputs, .group = together   \
    }
#define PACKING(outputs, inputs) PACKED_AS(PACKED, outputs, inputs, 0)
#define ATTRS(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
/* The inputs and outputs (a bit each) that have the rows, along their first axis. */
#define LINE(op, attrs, ins, outs, ...) LINE_OF(op, attrs, ins, outs, 0, false, __VA_ARGS__)
#define LINE_OF(op, attrs, ins, outs, axis, kept, ...)                                             \
    {                                                                                              \
        {BY_OP_##op, ATTRS attrs, (const operand[]){__VA_ARGS__},                                  \
         sizeof((const operand[]){__VA_ARGS__}) / sizeof(operand), FOR_KERNELS},                   \
            ins, outs, axis, kept                                                                  \
    }

typedef struct row_case {
    op_case source;
    unsigned ins, outs;
    int axis;  /* of the rows; the axes before it have an extent of 1 */
    bool kept; /* a run begins with what the run of all rows has left in what it updates */
} row_case;

static const by_map_program gelu_of_sum = {
    .inputs = 2,
    .steps = 2,
    .results = 1,
    .step = {{BY_MAP_ADD, {0, 1}, 0, 0.0f},
             {BY_MAP_FUNCTION, {BY_MAP_MAX_INPUTS}, BY_FN_GELU, 0.0f}},
    .result = {{BY_MAP_MAX_INPUTS + 1, BY_F32}},
};

static const row_case cases[] = {
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKING(1, 1)), 1, 1, X(ROWS, 1), WEIGHT),
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKING(33, 77)), 9, 1, X(ROWS, 77), WEIGHT,
         F(33), X(ROWS, 33)),
    LINE(PACKED_MATMUL, (.dtype = BY_F32, .packing = PACKING(100, 1026)), 1, 1, X(ROWS, 1026),
         WEIGHT),
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKING(288, 2048)), 1, 1, X(ROWS, 2048), WEIGHT),
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKED_AS(INT8, 70, 300, 0)), 9, 1, X(ROWS, 300),
         WEIGHT, F(70), X(ROWS, 70)),
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKED_AS(INT4, 70, 300, 32)), 1, 1, X(ROWS, 300),
         WEIGHT),
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKED_AS(W8A8, 70, 1300, 0)), 9, 1,
         X(ROWS, 1300), WEIGHT, F(70), X(ROWS, 70)),
    LINE(PACKED_MATMUL, (.dtype = ACT, .packing = PACKED_AS(FP8, 70, 301, 0)), 9, 1, X(ROWS, 301),
         WEIGHT, F(70), X(ROWS, 70)),
    LINE(PACKED_EMBEDDING, (.dtype = ACT, .packing = PACKING(50, 70)), 1, 1, I(ROWS), WEIGHT),
    LINE(EMBEDDING, (0), 1, 1, I(ROWS), X(50, 70)),
    LINE(LAYER_NORM, (.eps = 1e-5f), 1, 7, X(ROWS, 770), F(770), F(770)),
    LINE(LAYER_NORM, (.eps = 1e-5f), 1, 7, X(ROWS, 9), F(9), F(9)),
    LINE(RMS_NORM, (.eps = 1e-5f), 1, 3, X(ROWS, 770), F(770)),
    LINE(ROPE, (.heads = 3, .theta = 1e4f), 1, 1, X(ROWS, 1, 96), I(1)),
    LINE(ADD, (0), 3, 1, X(ROWS, 77), X(ROWS, 77)),
    LINE(ADD, (0), 1, 1, X(ROWS, 77), F(77)),
    LINE(MUL, (0), 3, 1, X(ROWS, 77), X(ROWS, 77)),
    LINE(CAST, (.dtype = BY_F32), 1, 1, X(ROWS, 77)),
    LINE(CAST, (.dtype = BY_BF16), 1, 1, X(ROWS, 77)),
    LINE(UNARY, (.function = BY_FN_GELU), 1, 1, X(ROWS, 77)),
    LINE(UNARY, (.function = BY_FN_SILU), 1, 1, X(ROWS, 77)),
    LINE(UNARY, (.function = BY_FN_GELU_ERF), 1, 1, X(ROWS, 77)),
    LINE(SWIGLU, (0), 3, 1, X(ROWS, 77), X(ROWS, 77)),
    LINE(MAP, (.map = &gelu_of_sum), 3, 1, X(ROWS, 77), X(ROWS, 77)),
    LINE(SLICE, (.axis = 1, .begin = 5, .rows = 40), 1, 1, X(ROWS, 77)),
    LINE(SOFTMAX, (0), 1, 1, X(ROWS, 515)),
    LINE(SOFTMAX, (.logarithm = true), 1, 1, X(ROWS, 515)),
    LINE(CROSS_ENTROPY, (0), 3, 2, X(ROWS, 515), I(ROWS)),
    LINE(ROUTER, (.chosen = 2), 1, 3, F(ROWS, 8)),
    LINE_OF(PAGED_ATTENTION, (.heads = 4, .kv_heads = 2), 1u << 0 | 1u << 5 | 1u << 6, 1, 1, true,
            X(1, ROWS, 8 * 24), ABSENT, ABSENT, X(121, 2, 16, 24), X(121, 2, 16, 24), I(1, ROWS),
            I(ROWS), I(4, 24)),
    LINE_OF(PAGED_ATTENTION, (.heads = 2, .kv_heads = 1, .window = 37), 1u << 0 | 1u << 5 | 1u << 6,
            1, 1, true, X(1, ROWS, 4 * 64), ABSENT, ABSENT, X(121, 1, 16, 64), X(121, 1, 16, 64),
            I(1, ROWS), I(ROWS), I(4, 24)),
    LINE_OF(PAGED_ATTENTION, (.heads = 4, .kv_heads = 2), 1u << 0 | 1u << 5 | 1u << 6, 1, 1, true,
            X(1, ROWS, 8 * 24), ABSENT, ABSENT, OF(BY_U8, 121, 2, 16, 28),
            OF(BY_U8, 121, 2, 16, 28), I(1, ROWS), I(ROWS), I(4, 24)),
};

/* The axis of the rows, in tensors that have fewer axes, too. */
static int axis_of(const by__graph_type *type, const row_case *c)
{
    return c->axis < type->shape.rank ? c->axis : type->shape.rank - 1;
}

static size_t row_bytes(const by__graph_type *type, const row_case *c)
{
    return (size_t)(by_shape_count(&type->shape) / type->shape.dim[axis_of(type, c)]) *
           by_dtype_size(type->dtype);
}

/* Rows first .. first + count of a problem whose run has left `all`; its data is theirs. */
static problem part_of(const problem *p, const row_case *c, const result *all, int64_t first,
                       int64_t count)
{
    problem part = *p;
    by_error error = {0};
    for (int i = 0; i < c->source.input_count; i++) {
        if (c->kept && all->data[BY_MAX_OUTPUTS + i] != NULL) {
            part.data[i] = all->data[BY_MAX_OUTPUTS + i];
        }
        if ((c->ins >> i & 1u) != 0) {
            part.data[i] = (char *)p->data[i] + (size_t)first * row_bytes(&p->in[i], c);
            part.in[i].shape.dim[axis_of(&p->in[i], c)] = count;
        }
    }
    by__op_signature s = {c->source.op, &part.attrs, part.in, c->source.input_count};
    assert_int_equal(by__op_infer(&s, part.out, &error), BY_OK);
    return part;
}

static void check_part(const by__device_kernel *kernel, const problem *p, const row_case *c,
                       const result *all, int64_t first, int64_t count, int threads)
{
    problem part = part_of(p, c, all, first, count);
    run_options options = plain_run;
    result got;
    options.threads = threads;
    const char *wrong = kernel_run(kernel, &part, &options, &got);
    if (wrong != NULL) {
        fail_msg("%s: %s", kernel->name, wrong);
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        if ((c->outs >> o & 1u) == 0) {
            continue;
        }
        size_t bytes = row_bytes(&p->out[o], c);
        if (memcmp((char *)all->data[o] + (size_t)first * bytes, got.data[o],
                   (size_t)count * bytes) != 0) {
            fail_msg("%s on %s: %d of %d rows, from %d on, on %d threads, have other bits in "
                     "output %d",
                     kernel->name, by_dtype_name(p->in[0].dtype), (int)count, ROWS, (int)first,
                     threads, o);
        }
    }
    result_close(&got);
}

static void check_case(const row_case *c, by_dtype act, by__cpu_isa level)
{
    static const int64_t parts[][2] = {{0, 1},   {199, 1}, {3, 2},   {1, 3},   {7, 4},
                                       {20, 5},  {11, 7},  {40, 13}, {60, 14}, {61, 15},
                                       {50, 31}, {9, 64},  {0, 126}, {73, 127}};
    problem p;
    by__device_tensor in[BY__MAX_INPUTS];
    problem_open(&p, &c->source, act, PATTERN_RANDOM);
    by__device_call call = problem_call(&p, in);
    const by__device_kernel *kernel = by__cpu_kernel_at(&call, level);
    result all;
    if (kernel != NULL) {
        const char *wrong = kernel_run(kernel, &p, &plain_run, &all);
        if (wrong != NULL) {
            fail_msg("%s: %s", kernel->name, wrong);
        }
        for (size_t i = 0; i < BY_ARRAY_LENGTH(parts); i++) {
            check_part(kernel, &p, c, &all, parts[i][0], parts[i][1], 1 + (int)i % 3);
        }
        check_part(kernel, &p, c, &all, 0, ROWS, 3);
        result_close(&all);
    }
    problem_close(&p);
}

static void test_rows(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        int last = cases[i].source.in[0].type.dtype == ACT ? BY_F16 : BY_F32;
        for (int act = BY_F32; act <= last; act++) {
            for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
                check_case(&cases[i], (by_dtype)act, (by__cpu_isa)level);
            }
        }
    }
}

/* The product of a group is that of its rows alone with its matrix. */
static void check_groups(const op_case *source, by_dtype act, by__cpu_isa level)
{
    static const operand alone[] = {X(ROWS, 1), WEIGHT};
    problem p;
    by__device_tensor in[BY__MAX_INPUTS];
    result all;
    problem_open(&p, source, act, PATTERN_RANDOM);
    by__device_call call = problem_call(&p, in);
    const by__device_kernel *kernel = by__cpu_kernel_at(&call, level);
    const int32_t *range = p.data[2];
    const char *wrong = kernel_run(kernel, &p, &plain_run, &all);
    for (int64_t g = 0; g < p.in[2].shape.dim[0] && wrong == NULL; g++) {
        const op_case one = {BY_OP_PACKED_MATMUL, source->attrs, alone, 2, FOR_KERNELS};
        problem q = p;
        result got;
        int64_t rows = range[2 * g + 1] - range[2 * g];
        int64_t panels = p.in[1].shape.dim[0] / p.attrs.packing.stack;
        if (rows == 0) {
            continue;
        }
        q.source = &one;
        q.attrs.packing.stack = 0;
        q.in[0].shape.dim[0] = q.out[0].shape.dim[0] = rows;
        q.in[1].shape.dim[0] = panels;
        q.in[2].shape.rank = -1;
        size_t row = (size_t)p.in[0].shape.dim[1] * by_dtype_size(act);
        q.data[0] = (char *)p.data[0] + (size_t)range[2 * g] * row;
        q.data[1] = (char *)p.data[1] + (size_t)(g * panels * p.in[1].shape.dim[1]);
        call = problem_call(&q, in);
        wrong = kernel_run(by__cpu_kernel_at(&call, level), &q, &plain_run, &got);
        size_t bytes = (size_t)p.out[0].shape.dim[1] * by_dtype_size(p.out[0].dtype);
        if (wrong == NULL && memcmp((char *)all.data[0] + (size_t)range[2 * g] * bytes, got.data[0],
                                    (size_t)rows * bytes) != 0) {
            wrong = "a group has other bits than its product alone";
        }
        result_close(&got);
    }
    if (wrong != NULL) {
        fail_msg("%s on %s: %s", kernel->name, by_dtype_name(act), wrong);
    }
    result_close(&all);
    problem_close(&p);
}

static void test_groups(void **state)
{
    static const operand operands[] = {X(ROWS, 300), WEIGHT, I(4, 2)};
    static const by_packing_kind kinds[] = {BY_PACKING_PACKED, BY_PACKING_INT8, BY_PACKING_INT4,
                                            BY_PACKING_W8A8, BY_PACKING_FP8};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const op_case source = {BY_OP_PACKED_GROUPED_MATMUL,
                                {.dtype = ACT,
                                 .packing = {.kind = kinds[i],
                                             .dtype = ACT,
                                             .n = 70,
                                             .k = 300,
                                             .group = kinds[i] == BY_PACKING_INT4 ? 32 : 0,
                                             .stack = 4}},
                                operands,
                                3,
                                FOR_KERNELS};
        for (int act = BY_F32; act <= BY_F16; act++) {
            for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
                check_groups(&source, (by_dtype)act, (by__cpu_isa)level);
            }
        }
    }
}

/* What is in a page beyond the last token, of sequences that had it before, is not read: with NaN
 * there a run has the same bits as with zeros. */
static void check_unseen(const op_case *source, by_dtype act, by__cpu_isa level)
{
    problem p;
    by__device_tensor in[BY__MAX_INPUTS];
    result of[2];
    problem_open(&p, source, act, PATTERN_RANDOM);
    by__device_call call = problem_call(&p, in);
    const by__device_kernel *kernel = by__cpu_kernel_at(&call, level);
    for (int64_t i = 0; i < p.in[0].shape.dim[1]; i++) {
        ((int32_t *)p.data[5])[i] = (int32_t)i;
        ((int32_t *)p.data[6])[i] = 0;
    }
    for (int k = 0; k < 2; k++) {
        for (int pool = 3; pool < 5; pool++) {
            memset(p.data[pool], k == 0 ? 0 : 0xff,
                   (size_t)by_shape_count(&p.in[pool].shape) * by_dtype_size(p.in[pool].dtype));
        }
        const char *wrong = kernel_run(kernel, &p, &plain_run, &of[k]);
        if (wrong != NULL) {
            fail_msg("%s: %s", kernel->name, wrong);
        }
    }
    size_t bytes = (size_t)by_shape_count(&p.out[0].shape) * by_dtype_size(p.out[0].dtype);
    if (memcmp(of[0].data[0], of[1].data[0], bytes) != 0) {
        fail_msg("%s on %s reads keys that there are not", kernel->name, by_dtype_name(act));
    }
    result_close(&of[0]);
    result_close(&of[1]);
    problem_close(&p);
}

static void test_unseen_places(void **state)
{
    BY_UNUSED(state);
    const op_case all[] = {
        {BY_OP_PAGED_ATTENTION,
         {.heads = 4, .kv_heads = 2},
         (const operand[]){X(1, 21, 8 * 40), ABSENT, ABSENT, X(31, 2, 16, 40), X(31, 2, 16, 40),
                           I(1, 21), I(21), I(1, 4)},
         8,
         FOR_KERNELS},
        {BY_OP_PAGED_ATTENTION,
         {.heads = 4, .kv_heads = 2},
         (const operand[]){X(1, 21, 8 * 40), ABSENT, ABSENT, OF(BY_U8, 31, 2, 16, 44),
                           OF(BY_U8, 31, 2, 16, 44), I(1, 21), I(21), I(1, 4)},
         8,
         FOR_KERNELS}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(all); i++) {
        for (int act = BY_F32; act <= BY_F16; act++) {
            for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
                check_unseen(&all[i], (by_dtype)act, (by__cpu_isa)level);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_unseen_places)};
    return cmocka_run_group_tests_name("row invariance", tests, NULL, NULL);
}
