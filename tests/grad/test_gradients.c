/* The gradient of every op against finite differences, at the reference level and at the machine's
 * own.
 *
 * A case is one op with its attributes and operands. Its graph holds the op and, through the op
 * row's own gradient, the gradients of all its operands, where dy is an input. The oracle is
 * L = sum(dy * y), summed in double, differentiated by the five-point stencil (8 (L(+h) - L(-h)) -
 * (L(+2h) - L(-2h))) / 12h. Operands are multiples of 2^-10 and h is 2^-5, so that x +- h is exact
 * in f32. Then the truncation error is h^4 / 30 times the fifth derivative (about 1e-6 here) and
 * rounding y to f32 adds about 6e-8 |y| / h = 2e-6; the bound is 1e-4 of the largest gradient.
 *
 * bf16 is too coarse for differences: there the gradients must agree with the f32 ones, computed
 * from the same rounded operands, within 2 % of the largest (eight bits of mantissa, a few
 * roundings). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/model.h"
#include "banyan/passes.h"
#include "ops/ops.h"
#include "runner.h"
#include "train/train.h"

#define MAX_OPERANDS 4
#define STEP         0x1p-5
#define F32_BOUND    1e-4
#define BF16_BOUND   2e-2

/* What an operand is. */
typedef enum operand_kind {
    ABSENT = 0,
    ACT,       /* activation: f32, then bf16 */
    VECTOR,    /* f32 in both, as norm weights and biases are */
    WEIGHT,    /* parameter of the activations' dtype; its gradient is f32 */
    PARAMETER, /* f32 parameter */
    IDS,       /* i32 in [0, 5) */
    TARGETS,   /* the same, every third one is -1 */
    START,     /* i32 that are not differentiable, all 3 */
    FACTOR,    /* f32 that is not trained */
    SPREAD,    /* f32, neighbours further apart than the steps of the differences */
    SLOTS,     /* entry i of n is in row n - 1 - i, entry 0 in none, ... */
    MEMBERS,   /* ... the entries of these rows */
    RANGES,    /* of groups in 7 rows: 0, 1; none; 3 to 6 */
    RNG
} operand_kind;

typedef struct operand {
    operand_kind kind;
    by_shape shape;
} operand;

typedef struct gradient_case {
    by_op op;
    by_attrs attrs;
    operand in[MAX_OPERANDS];
} gradient_case;

#define S(...)                                                                                     \
    {                                                                                              \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define UNARY_CASES(f)                                                                             \
    {BY_OP_UNARY, {.function = f}, {{ACT, S(2, 3, 7)}}},                                           \
    {                                                                                              \
        BY_OP_UNARY, {.function = f},                                                              \
        {                                                                                          \
            {                                                                                      \
                ACT, S(1)                                                                          \
            }                                                                                      \
        }                                                                                          \
    }
#define BINARY_CASES(op)                                                                           \
    {op, {0}, {{ACT, S(2, 3, 5)}, {ACT, S(2, 3, 5)}}}, {op, {0}, {{ACT, S(1)}, {WEIGHT, S(1)}}},   \
        {op, {0}, {{ACT, S(4, 33)}, {VECTOR, S(33)}}},                                             \
        {op, {0}, {{ACT, S(2, 3, 5)}, {ACT, S(5)}}},                                               \
        {op, {0}, {{ACT, S(3, 5)}, {PARAMETER, S(5)}}},                                            \
        {op, {0}, {{ACT, S(2, 3, 2, 5)}, {ACT, S(2, 5)}}},                                         \
        {op, {0}, {{ACT, S(2, 3, 5)}, {WEIGHT, S(3, 5)}}},                                         \
        {op, {0}, {{ACT, S(2, 5)}, {PARAMETER, {0}}}},                                             \
    {                                                                                              \
        op, {0},                                                                                   \
        {                                                                                          \
            {WEIGHT, S(3, 5)},                                                                     \
            {                                                                                      \
                WEIGHT, S(3, 5)                                                                    \
            }                                                                                      \
        }                                                                                          \
    }

static const gradient_case cases[] = {
    {BY_OP_MATMUL, {0}, {{ACT, S(5, 3)}, {WEIGHT, S(3, 7)}}},
    {BY_OP_MATMUL, {.trans_b = true}, {{ACT, S(5, 3)}, {WEIGHT, S(7, 3)}}},
    {BY_OP_MATMUL, {.trans_a = true}, {{ACT, S(3, 5)}, {ACT, S(3, 7)}}},
    {BY_OP_MATMUL, {.trans_a = true, .trans_b = true}, {{ACT, S(3, 5)}, {ACT, S(7, 3)}}},
    {BY_OP_MATMUL, {0}, {{ACT, S(1, 1)}, {ACT, S(1, 1)}}},
    {BY_OP_MATMUL, {0}, {{ACT, S(2, 3, 17)}, {WEIGHT, S(17, 33)}, {VECTOR, S(33)}}},
    {BY_OP_MATMUL,
     {0},
     {{ACT, S(2, 3, 4)}, {WEIGHT, S(4, 6)}, {PARAMETER, S(6)}, {ACT, S(2, 3, 6)}}},
    {BY_OP_MATMUL, {.trans_b = true}, {{WEIGHT, S(2, 4)}, {WEIGHT, S(6, 4)}, {0}, {ACT, S(2, 6)}}},
    {BY_OP_MATMUL, {0}, {{ACT, S(4)}, {WEIGHT, S(4, 3)}, {ACT, S(3)}}},
    {BY_OP_ALL_REDUCE, {.mesh = 1, .ranks = 1}, {{ACT, S(2, 3)}}},
    {BY_OP_ALL_GATHER, {.mesh = 1, .ranks = 1, .axis = 1, .rows = 3}, {{ACT, S(2, 3)}}},
    {BY_OP_REDUCE_SCATTER, {.mesh = 1, .ranks = 1, .axis = 1, .rows = 3}, {{ACT, S(2, 3)}}},
    {BY_OP_ALL_TO_ALL, {.mesh = 1, .ranks = 1, .axis = 1, .to = 0}, {{ACT, S(2, 3)}}},
    {BY_OP_REPLICATE, {.mesh = 1, .ranks = 1}, {{ACT, S(2, 3)}}},
    BINARY_CASES(BY_OP_ADD),
    BINARY_CASES(BY_OP_SUB),
    BINARY_CASES(BY_OP_MUL),
    {BY_OP_ADD, {0}, {{ACT, S(2, 3, 5)}, {WEIGHT, S(1, 3, 5)}}},
    {BY_OP_ADD, {0}, {{ACT, S(2, 3, 5)}, {WEIGHT, S(3, 5)}}},
    {BY_OP_ADD, {0}, {{WEIGHT, S(1, 3, 1)}, {ACT, S(2, 3, 5)}}},
    {BY_OP_SUB, {0}, {{ACT, S(3, 1)}, {ACT, S(1, 4)}}},
    {BY_OP_SUB, {0}, {{ACT, S(4)}, {ACT, S(2, 3, 1)}}},
    {BY_OP_MUL, {0}, {{ACT, S(2, 1, 5)}, {WEIGHT, S(3, 1)}}},
    {BY_OP_MUL, {0}, {{ACT, S(2, 3, 1)}, {VECTOR, S(1)}}},
    {BY_OP_RESHAPE, {.shape = S(3, 10)}, {{ACT, S(2, 3, 5)}}},
    {BY_OP_PERMUTE, {.order = {2, 0, 1}}, {{ACT, S(2, 3, 5)}}},
    {BY_OP_PERMUTE, {.order = {1, 0}}, {{WEIGHT, S(18, 17)}}},
    {BY_OP_CONCAT, {.axis = 1}, {{ACT, S(2, 1, 5)}, {ACT, S(2, 3, 5)}, {WEIGHT, S(2, 2, 5)}}},
    {BY_OP_SLICE, {.axis = 1, .begin = 1, .rows = 2}, {{ACT, S(2, 4, 3)}}},
    {BY_OP_PAD, {.axis = 1, .begin = 1, .rows = 5}, {{ACT, S(2, 2, 3)}}},
    {BY_OP_EXPAND, {.shape = S(3, 2, 4)}, {{WEIGHT, S(1, 2, 4)}}},
    {BY_OP_EXPAND, {.shape = S(3, 2, 4)}, {{ACT, S(2, 1)}}},
    {BY_OP_SUM, {.axes = 2}, {{ACT, S(2, 3, 5)}}},
    {BY_OP_SUM, {.axes = 5, .keep = true, .mean = true}, {{ACT, S(2, 3, 5)}}},
    {BY_OP_SUM, {.axes = 4, .wide = true}, {{ACT, S(2, 3, 37)}}},
    {BY_OP_SOFTMAX, {0}, {{ACT, S(3, 5)}}},
    {BY_OP_SOFTMAX, {.logarithm = true}, {{ACT, S(3, 5)}}},
    {BY_OP_CROSS_ENTROPY, {0}, {{ACT, S(2, 3, 5)}, {TARGETS, S(2, 3)}}},
    {BY_OP_CROSS_ENTROPY, {.smoothing = 0.2f}, {{ACT, S(6, 5)}, {TARGETS, S(6)}}},
    {BY_OP_SQUARED_ERROR, {0}, {{ACT, S(3, 5)}, {FACTOR, S(3, 5)}}},
    {BY_OP_SQUARED_ERROR, {0}, {{ACT, S(3, 5)}, {FACTOR, S(3, 5)}, {FACTOR, S(3)}}},
    {BY_OP_SMOOTH_L1, {.beta = 64.0f}, {{ACT, S(3, 5)}, {FACTOR, S(3, 5)}, {FACTOR, S(3)}}},
    {BY_OP_SCALE, {0}, {{ACT, S(3, 7)}, {FACTOR, S(1)}}},
    {BY_OP_CAST, {0}, {{ACT, S(3, 7)}}},
    {BY_OP_CAST, {0}, {{WEIGHT, S(3, 7)}}},
    UNARY_CASES(BY_FN_GELU),
    UNARY_CASES(BY_FN_SILU),
    UNARY_CASES(BY_FN_RELU),
    UNARY_CASES(BY_FN_TANH),
    UNARY_CASES(BY_FN_SIGMOID),
    UNARY_CASES(BY_FN_NEGATE),
    UNARY_CASES(BY_FN_GELU_ERF),
    {BY_OP_SWIGLU, {0}, {{ACT, S(2, 3, 7)}, {ACT, S(2, 3, 7)}}},
    {BY_OP_SWIGLU, {0}, {{ACT, S(1)}, {ACT, S(1)}}},
    {BY_OP_LAYER_NORM, {.eps = 1e-5f}, {{ACT, S(2, 3, 8)}, {PARAMETER, S(8)}, {PARAMETER, S(8)}}},
    {BY_OP_LAYER_NORM, {.eps = 1e-1f}, {{ACT, S(9)}, {PARAMETER, S(9)}, {PARAMETER, S(9)}}},
    {BY_OP_LAYER_NORM,
     {.eps = 1e-5f},
     {{ACT, S(2, 1, 3, 7)}, {PARAMETER, S(7)}, {PARAMETER, S(7)}}},
    {BY_OP_LAYER_NORM, {.eps = 1e-1f}, {{ACT, S(1, 37)}, {VECTOR, S(37)}, {VECTOR, S(37)}}},
    {BY_OP_RMS_NORM, {.eps = 1e-6f}, {{ACT, S(2, 3, 8)}, {PARAMETER, S(8)}}},
    {BY_OP_RMS_NORM, {.eps = 1e-1f}, {{ACT, S(37)}, {VECTOR, S(37)}}},
    {BY_OP_EMBEDDING, {0}, {{IDS, S(3, 4)}, {WEIGHT, S(5, 3)}}},
    {BY_OP_EMBEDDING, {0}, {{IDS, S(1)}, {WEIGHT, S(6, 33)}}},
    {BY_OP_POSITION, {0}, {{ACT, S(2, 3, 5)}, {WEIGHT, S(4, 5)}}},
    {BY_OP_POSITION, {0}, {{ACT, S(1, 1, 17)}, {WEIGHT, S(1, 17)}}},
    {BY_OP_ROPE, {.heads = 2, .theta = 100.0f}, {{ACT, S(2, 5, 12)}}},
    {BY_OP_ROPE, {.heads = 1, .theta = 10000.0f}, {{ACT, S(1, 3, 34)}, {START, S(1)}}},
    {BY_OP_ROPE, {.heads = 3, .theta = 100.0f, .inverse = true}, {{ACT, S(1, 4, 6)}}},
    {BY_OP_ATTENTION, {.heads = 2, .kv_heads = 2}, {{ACT, S(2, 5, 18)}}},
    {BY_OP_ATTENTION, {.heads = 4, .kv_heads = 2}, {{ACT, S(1, 7, 32)}}},
    {BY_OP_ATTENTION, {.heads = 1, .kv_heads = 1}, {{ACT, S(1, 1, 3)}}},
    {BY_OP_ATTENTION,
     {.heads = 4, .kv_heads = 1},
     {{ACT, S(2, 3, 8)}, {ACT, S(2, 3, 2)}, {ACT, S(2, 3, 2)}}},
    {BY_OP_ATTENTION,
     {.heads = 3, .kv_heads = 3},
     {{ACT, S(1, 6, 15)}, {ACT, S(1, 6, 15)}, {ACT, S(1, 6, 15)}}},
    {BY_OP_ATTENTION, {.heads = 2, .kv_heads = 2, .bidirectional = true}, {{ACT, S(2, 5, 18)}}},
    {BY_OP_ATTENTION,
     {.heads = 4, .kv_heads = 2, .bidirectional = true},
     {{ACT, S(2, 5, 32)}, {0}, {0}, {START, S(2)}}},
    {BY_OP_ATTENTION,
     {.heads = 4, .kv_heads = 1, .bidirectional = true},
     {{ACT, S(2, 5, 8)}, {ACT, S(2, 5, 2)}, {ACT, S(2, 5, 2)}, {IDS, S(2)}}},
    {BY_OP_ATTENTION,
     {.heads = 3, .kv_heads = 3},
     {{ACT, S(1, 6, 15)}, {ACT, S(1, 6, 15)}, {ACT, S(1, 6, 15)}, {START, S(1)}}},
    {BY_OP_DROPOUT, {.p = 0.3f, .stream = 2}, {{ACT, S(3, 2, 7)}, {RNG, S(4)}}},
    {BY_OP_DROPOUT, {.p = 0.0f, .stream = 1}, {{ACT, S(2, 65)}, {RNG, S(4)}}},
    {BY_OP_ROUTER, {.chosen = 2}, {{SPREAD, S(2, 3, 5)}}},
    {BY_OP_ROUTER, {.chosen = 3}, {{SPREAD, S(4, 3)}}},
    {BY_OP_SCATTER_ROWS, {0}, {{ACT, S(2, 3, 5)}, {SLOTS, S(2, 3, 2)}, {MEMBERS, S(12)}}},
    {BY_OP_SCATTER_ROWS,
     {0},
     {{ACT, S(6, 5)}, {SLOTS, S(6, 2)}, {MEMBERS, S(12)}, {VECTOR, S(6, 2)}}},
    {BY_OP_GATHER_ROWS, {0}, {{ACT, S(12, 5)}, {SLOTS, S(2, 3, 2)}, {MEMBERS, S(12)}}},
    {BY_OP_GATHER_ROWS,
     {0},
     {{ACT, S(12, 5)}, {SLOTS, S(6, 2)}, {MEMBERS, S(12)}, {VECTOR, S(6, 2)}}},
    {BY_OP_GROUPED_MATMUL, {0}, {{ACT, S(7, 3)}, {WEIGHT, S(3, 3, 5)}, {RANGES, S(3, 2)}}},
    {BY_OP_GROUPED_MATMUL,
     {.trans_b = true},
     {{ACT, S(7, 3)}, {ACT, S(1, 5, 3)}, {RANGES, S(3, 2)}}},
    {BY_OP_LINEAR_CROSS_ENTROPY, {0}, {{ACT, S(2, 3, 4)}, {WEIGHT, S(5, 4)}, {TARGETS, S(2, 3)}}},
    {BY_OP_LINEAR_CROSS_ENTROPY, {0}, {{ACT, S(1, 3)}, {WEIGHT, S(7, 3)}, {IDS, S(1)}}},
};

static by_dtype dtype_of(operand_kind kind, by_dtype act)
{
    switch (kind) {
    case ACT:
    case WEIGHT:
        return act;
    case IDS:
    case TARGETS:
    case START:
    case RNG:
    case SLOTS:
    case MEMBERS:
    case RANGES:
        return BY_I32;
    default:
        return BY_F32;
    }
}

static bool differentiable(operand_kind kind)
{
    return kind == ACT || kind == VECTOR || kind == WEIGHT || kind == PARAMETER || kind == SPREAD;
}

/* One case made into a graph: operands "in.K", the result "y", dy "dy", gradients "grad.in.K". */
typedef struct problem {
    const gradient_case *source;
    by_dtype act;
    int count;
    by_graph *graph;
    runner runner;
    size_t results; /* elements of y */
} problem;

static void name_of(char name[32], const char *prefix, int i)
{
    (void)snprintf(name, 32, "%s%d", prefix, i);
}

static by_value add_operand(problem *p, int i)
{
    char name[32];
    const operand *in = &p->source->in[i];
    by__type type = {dtype_of(in->kind, p->act), in->shape};
    bool parameter = in->kind == WEIGHT || in->kind == PARAMETER;
    name_of(name, "in.", i);
    return in->kind == ABSENT
               ? BY_NONE
               : by__graph_add_value(p->graph, parameter ? BY_ROLE_PARAMETER : BY_ROLE_INPUT, name,
                                     NULL, type);
}

/* The gradient of operand i, as f32 whatever its dtype, in its shape. */
static void publish(problem *p, int i, by_value gradient)
{
    char name[32];
    if (!differentiable(p->source->in[i].kind)) {
        assert_int_equal(gradient, BY_NONE);
        return;
    }
    assert_int_not_equal(gradient, BY_NONE);
    assert_true(by_shape_equal(&p->graph->values[gradient].shape, &p->source->in[i].shape));
    name_of(name, "grad.in.", i);
    by_graph_output(p->graph, by_cast(p->graph, gradient, BY_F32), name);
}

static void build(problem *p)
{
    by_error error = {0};
    by_value in[MAX_OPERANDS];
    by_value din[MAX_OPERANDS + BY_MAX_OUTPUTS];
    by_value outs[BY_MAX_OUTPUTS];
    by_value dout[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    by_attrs attrs = p->source->attrs;
    if (p->source->op == BY_OP_MATMUL || p->source->op == BY_OP_GROUPED_MATMUL) {
        attrs.dtype = p->act;
    }
    p->graph = open_graph();
    for (int i = 0; i < MAX_OPERANDS; i++) {
        in[i] = add_operand(p, i);
        din[i] = BY_NONE;
        p->count = in[i] == BY_NONE ? p->count : i + 1;
    }
    (void)by__op_add_node(p->graph, p->source->op, &attrs, in, p->count, outs);
    check_ok(by_graph_check(p->graph, &error), &error);
    by__node node = p->graph->nodes[0];
    by__type y = {p->graph->values[outs[0]].dtype, p->graph->values[outs[0]].shape};
    dout[0] = by__graph_add_value(p->graph, BY_ROLE_INPUT, "dy", NULL, y);
    by__op_row_of(node.op)->gradient(p->graph, &node, dout, din);
    for (int i = 0; i < p->count; i++) {
        publish(p, i, din[i]);
    }
    by_value ready = by__op_row_of(node.op)->communicates ? by__wait(p->graph, outs[0]) : outs[0];
    by_graph_output(p->graph, by_cast(p->graph, ready, BY_F32), "y");
    check_ok(by_graph_verify(p->graph, &error), &error);
}

/* Multiples of 2^-10 (of 2^-5 in bf16) with magnitudes in [1/8, 2): relu's kink is further than 2
 * h. */
static double value_of(const problem *p, int i, size_t k)
{
    static const double ranges[] = {0.0, 2.0, 2.0, 2.0, 3.0, 7.0};
    const operand *in = &p->source->in[i];
    size_t last = (size_t)by_shape_count(&in->shape) - 1;
    double u = random_unit(7, (uint64_t)i, k);
    double magnitude = 0.125 + floor(fabs(u) * 60.0) / 32.0;
    switch (in->kind) {
    case IDS:
        return floor((u + 1.0) * 2.5);
    case TARGETS:
        return k % 3 == 1 ? -1.0 : floor((u + 1.0) * 2.5);
    case START:
        return 3.0;
    case RNG:
        return (double)(11 + k);
    case SPREAD:
        return 0.25 * (double)(k * 7 % 11) - 1.0;
    case SLOTS:
        return k == 0 ? -1.0 : (double)(last - k);
    case MEMBERS:
        return k == last ? -1.0 : (double)(last - k);
    case RANGES:
        return ranges[k];
    default:
        return u < 0.0 ? -magnitude : magnitude;
    }
}

static void open_problem(problem *p, const gradient_case *source, by_dtype act)
{
    char name[32];
    *p = (problem){.source = source, .act = act};
    build(p);
    runner_open(&p->runner, p->graph, 1);
    for (int i = 0; i < p->count; i++) {
        name_of(name, "in.", i);
        for (size_t k = 0; source->in[i].kind != ABSENT && k < runner_count(&p->runner, name);
             k++) {
            set_element(runner_data(&p->runner, name), dtype_of(source->in[i].kind, act), k,
                        value_of(p, i, k));
        }
    }
    by_dtype dy = p->graph->values[by_graph_find(p->graph, "dy")].dtype;
    p->results = runner_count(&p->runner, "y");
    for (size_t k = 0; k < p->results; k++) {
        double u = random_unit(8, 0, k);
        set_element(runner_data(&p->runner, "dy"), dy, k, floor(u * 32.0) / 16.0 + 0.03125);
    }
}

static void close_problem(problem *p)
{
    runner_close(&p->runner);
    by_graph_close(&p->graph);
}

static double loss_of(problem *p)
{
    const float *y = runner_data(&p->runner, "y");
    const float *dy = runner_data(&p->runner, "dy");
    double sum = 0.0;
    runner_run(&p->runner);
    for (size_t k = 0; k < p->results; k++) {
        sum += (double)y[k] * (double)dy[k];
    }
    return sum;
}

/* L with element k of x moved by `steps` steps. */
static double loss_at(problem *p, float *x, size_t k, double steps)
{
    float saved = x[k];
    x[k] = (float)((double)saved + steps * STEP);
    double loss = loss_of(p);
    x[k] = saved;
    return loss;
}

/* Without fmax: gcc 12.2 for aarch64 dies of an internal error when it makes such a loop a vector
 * one. */
static double largest(const float *x, size_t count)
{
    double most = 0.0;
    for (size_t k = 0; k < count; k++) {
        double size = fabs((double)x[k]);
        most = size > most ? size : most;
    }
    return most;
}

static void compare_operand(problem *p, size_t index, int i)
{
    char name[32];
    char gradient_name[32];
    name_of(name, "in.", i);
    name_of(gradient_name, "grad.in.", i);
    float *x = runner_data(&p->runner, name);
    size_t count = runner_count(&p->runner, name);
    float *gradient = malloc(count * sizeof *gradient);
    assert_non_null(gradient);
    runner_run(&p->runner);
    memcpy(gradient, runner_data(&p->runner, gradient_name), count * sizeof *gradient);
    double bound = F32_BOUND * fmax(largest(gradient, count), 0.1);
    for (size_t k = 0; k < count; k++) {
        double near = loss_at(p, x, k, 1.0) - loss_at(p, x, k, -1.0);
        double far = loss_at(p, x, k, 2.0) - loss_at(p, x, k, -2.0);
        double want = (8.0 * near - far) / (12.0 * STEP);
        if (!(fabs((double)gradient[k] - want) <= bound)) {
            fail_msg("case %zu, %s: d / d operand %d [%zu] is %g; finite differences say %g", index,
                     by_op_name(p->source->op), i, k, (double)gradient[k], want);
        }
    }
    free(gradient);
}

static void compare_all(const char *isa)
{
    set_isa(isa);
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        problem p;
        open_problem(&p, &cases[c], BY_F32);
        for (int i = 0; i < p.count; i++) {
            if (differentiable(cases[c].in[i].kind)) {
                compare_operand(&p, c, i);
            }
        }
        close_problem(&p);
    }
}

static void test_reference(void **state)
{
    BY_UNUSED(state);
    compare_all("reference");
}

static void test_native(void **state)
{
    BY_UNUSED(state);
    compare_all("native");
}

static void compare_bf16(const gradient_case *source, size_t index)
{
    problem narrow;
    problem wide;
    open_problem(&narrow, source, BY_BF16);
    open_problem(&wide, source, BY_F32);
    runner_run(&narrow.runner);
    runner_run(&wide.runner);
    for (int i = 0; i < wide.count; i++) {
        char name[32];
        if (!differentiable(source->in[i].kind)) {
            continue;
        }
        name_of(name, "grad.in.", i);
        const float *have = runner_data(&narrow.runner, name);
        const float *want = runner_data(&wide.runner, name);
        size_t count = runner_count(&wide.runner, name);
        double bound = BF16_BOUND * fmax(largest(want, count), 0.1);
        for (size_t k = 0; k < count; k++) {
            if (!(fabs((double)have[k] - (double)want[k]) <= bound)) {
                fail_msg("case %zu, %s in bf16: d / d operand %d [%zu] is %g, in f32 %g", index,
                         by_op_name(source->op), i, k, (double)have[k], (double)want[k]);
            }
        }
    }
    close_problem(&narrow);
    close_problem(&wide);
}

static void test_bf16(void **state)
{
    BY_UNUSED(state);
    static const char *const levels[] = {"reference", "native"};
    for (size_t l = 0; l < BY_ARRAY_LENGTH(levels); l++) {
        set_isa(levels[l]);
        for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
            compare_bf16(&cases[c], c);
        }
    }
}

/* d (a - b) / d b is -dy and nothing that overflows on the way. */
static void test_negated_extremes(void **state)
{
    BY_UNUSED(state);
    static const gradient_case source = {BY_OP_SUB, {0}, {{ACT, S(2)}, {ACT, S(2)}}};
    static const float dy[2] = {INFINITY, 3e38f};
    problem p;
    open_problem(&p, &source, BY_F32);
    memcpy(runner_data(&p.runner, "dy"), dy, sizeof dy);
    runner_run(&p.runner);
    const float *got = runner_data(&p.runner, "grad.in.1");
    assert_true(got[0] == -INFINITY && got[1] == -3e38f);
    close_problem(&p);
}

static void test_table_is_complete(void **state)
{
    BY_UNUSED(state);
    for (int op = 0; op < BY_OP_COUNT; op++) {
        /* What waits has a gradient with what it waits for alone: test_collectives.c. */
        const by__op_row *row = by__op_row_of((by_op)op);
        bool found = row->gradient == NULL || row->waits;
        for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
            found = found || cases[c].op == (by_op)op;
        }
        if (!found) {
            fail_msg("%s has a gradient and no case in this table", by_op_name((by_op)op));
        }
    }
}

/* ---- whole models, with dropout, through every pass ---- */

static by_config *model_config(const char *kind, const char *recompute)
{
    by_error error = {0};
    by_config *config;
    char assignment[64];
    static const char *const settings[] = {
        "model.layers=2", "model.heads=4",      "model.width=16",    "model.context=5",
        "model.vocab=11", "model.mlp_width=24", "model.dropout=0.2", "model.init_std=0.3",
        "train.batch=3",  "train.micro_batch=3"};
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    (void)snprintf(assignment, sizeof assignment, "model.kind=%s", kind);
    check_ok(by_config_set(config, assignment, &error), &error);
    (void)snprintf(assignment, sizeof assignment, "memory.recompute=%s", recompute);
    check_ok(by_config_set(config, assignment, &error), &error);
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

/* Moves every parameter from `base` along its random direction by t and returns the loss. */
static double loss_along(runner *r, float *const *base, double t)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        size_t count = base[v] == NULL ? 0 : (size_t)by_shape_count(&r->graph->values[v].shape);
        for (size_t i = 0; i < count; i++) {
            ((float *)r->buffers[v])[i] = (float)((double)base[v][i] + t * random_unit(3, v, i));
        }
    }
    runner_run(r);
    return (double)*(const float *)runner_data(r, "loss");
}

/* The directional derivative <gradient, d> against the stencil along d. The loss is read as f32:
 * with h = 2^-8 its rounding (6e-8 of about 40, times 1.5 / h) is 1e-3, and slopes are above 1. */
static void compare_model(const char *kind, const char *recompute)
{
    by_error error = {0};
    by_config *config = model_config(kind, recompute);
    by_graph *graph;
    runner r;
    const double h = 0x1p-8;
    double slope = 0.0;
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, "order", &error), &error);
    runner_open(&r, graph, 2);
    runner_fill(&r, 5, 11);
    *(float *)runner_data(&r, "loss_scale") = 1.0f;
    float **base = calloc(graph->value_count, sizeof *base);
    assert_non_null(base);
    for (size_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].role == BY_ROLE_PARAMETER) {
            base[v] = malloc(by__value_bytes(&graph->values[v]));
            assert_non_null(base[v]);
            check_ok(by_parameter_init(base[v], graph, (by_value)v, 17, &error), &error);
        }
    }
    (void)loss_along(&r, base, 0.0);
    for (size_t v = 0; v < graph->value_count; v++) {
        char name[128];
        if (base[v] != NULL) {
            (void)snprintf(name, sizeof name, "grad.%s", graph->values[v].name);
            const float *gradient = runner_data(&r, name);
            for (size_t i = 0; i < runner_count(&r, name); i++) {
                slope += (double)gradient[i] * random_unit(3, v, i);
            }
        }
    }
    double near = loss_along(&r, base, h) - loss_along(&r, base, -h);
    double far = loss_along(&r, base, 2.0 * h) - loss_along(&r, base, -2.0 * h);
    double want = (8.0 * near - far) / (12.0 * h);
    if (!(fabs(slope - want) <= 2e-3 * fabs(want)) || fabs(want) < 1.0) {
        fail_msg("%s, recompute %s: the slope is %g; finite differences say %g", kind, recompute,
                 slope, want);
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        free(base[v]);
    }
    free(base);
    runner_close(&r);
    by_graph_close(&graph);
    by_config_close(&config);
}

static void test_models(void **state)
{
    BY_UNUSED(state);
    static const char *const levels[] = {"reference", "native"};
    for (size_t l = 0; l < BY_ARRAY_LENGTH(levels); l++) {
        set_isa(levels[l]);
        compare_model("gpt2", "none");
        compare_model("gpt2", "block");
        compare_model("llama", "none");
        compare_model("llama", "block");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_negated_extremes),
        cmocka_unit_test(test_table_is_complete),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
