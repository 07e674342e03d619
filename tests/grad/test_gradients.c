/* The gradient of every op against finite differences, at the reference level and at the machine's
 * own.
 *
 * The cases are the lines GRADIENT of tests/support/op_cases.c. A case's graph holds the op and,
 * through the op row's own gradient, the gradients of all its operands, where dy is an input: of
 * all outputs that have a gradient, and of each of them alone. The oracle is L = sum(dy * y),
 * summed in double, differentiated by the five-point stencil (8 (L(+h) - L(-h)) - (L(+2h) -
 * L(-2h))) / 12h. Operands are multiples of 2^-10 and h is 2^-5, so that x +- h is exact in f32.
 * Then the truncation error is h^4 / 30 times the fifth derivative (about 1e-6 here) and rounding
 * y to f32 adds about 6e-8 |y| / h = 2e-6; the bound is 1e-4 of the largest gradient.
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
#include "base/packing/packing.h"
#include "kernel_test.h"
#include "ops/ops.h"
#include "runner.h"
#include "trainer/state/train.h"

#define STEP       0x1p-5
#define F32_BOUND  1e-4
#define BF16_BOUND 2e-2

static bool is_present(const operand *in)
{
    return in->type.shape.rank >= 0;
}

static by_dtype dtype_of(const operand *in, by_dtype act)
{
    return in->type.dtype == ACT ? act : in->type.dtype;
}

static bool differentiable(const operand *in)
{
    return is_present(in) && in->type.dtype != BY_I32 && in->kind != CONSTANT;
}

/* The cases that are meant for this test. */
static const op_case *next_case(size_t *c)
{
    while (*c < op_case_count && op_cases[*c].use != FOR_GRADIENTS) {
        (*c)++;
    }
    return *c < op_case_count ? &op_cases[(*c)++] : NULL;
}

/* The outputs whose gradients flow in variant v of a case, a bit each; 0 if there is none: all of
 * them, then, where they are several, output v - 1 alone. */
static uint32_t outputs_of(const op_case *source, int v)
{
    uint32_t all = by__op_row_of(source->op)->differentiable;
    all = all == 0 ? 1u : all;
    bool several = (all & (all - 1)) != 0;
    return v == 0 ? all : several ? all & 1u << (v - 1) : 0;
}
#define VARIANTS (1 + BY_MAX_OUTPUTS)

/* One case made into a graph: operands "in.K", results "y.K", their gradients "dy.K", and those of
 * the operands "grad.in.K". */
typedef struct gradients {
    const op_case *source;
    uint32_t through;
    by_dtype act;
    by_graph *graph;
    runner runner;
} gradients;

static void name_of(char name[32], const char *prefix, int i)
{
    (void)snprintf(name, 32, "%s%d", prefix, i);
}

/* Attributes of the case in the format of this problem. */
static by_attrs attrs_of(const gradients *p)
{
    by_attrs attrs = p->source->attrs;
    attrs.dtype = attrs.dtype == ACT ? p->act : attrs.dtype;
    attrs.packing.dtype = attrs.packing.dtype == ACT ? p->act : attrs.packing.dtype;
    return attrs;
}

static bool is_packed(const gradients *p, int i)
{
    return p->source->attrs.packing.kind != BY_PACKING_NONE && p->source->in[i].type.dtype == BY_U8;
}

static by_value add_operand(gradients *p, int i)
{
    char name[32];
    const operand *in = &p->source->in[i];
    by__graph_type type = {dtype_of(in, p->act), in->type.shape};
    by_attrs attrs = attrs_of(p);
    type.shape = is_packed(p, i) ? by__packed_shape(&attrs.packing) : type.shape;
    by_role role = in->kind == TRAINED ? BY_ROLE_PARAMETER : BY_ROLE_INPUT;
    name_of(name, "in.", i);
    return is_present(in) ? by__graph_add_value(p->graph, role, name, NULL, type) : BY_NONE;
}

/* The gradient of operand i, as f32 whatever its dtype, in its shape. */
static void publish(gradients *p, int i, by_value gradient)
{
    char name[32];
    if (!differentiable(&p->source->in[i])) {
        assert_int_equal(gradient, BY_NONE);
        return;
    }
    assert_int_not_equal(gradient, BY_NONE);
    assert_true(by_shape_equal(&p->graph->values[gradient].shape, &p->source->in[i].type.shape));
    name_of(name, "grad.in.", i);
    by_graph_output(p->graph, by_cast(p->graph, gradient, BY_F32), name);
}

static void build(gradients *p)
{
    by_error error = {0};
    by_value in[BY__MAX_INPUTS];
    by_value din[BY__MAX_INPUTS + BY_MAX_OUTPUTS];
    by_value outs[BY_MAX_OUTPUTS];
    by_value dout[BY_MAX_OUTPUTS];
    char name[32];
    by_attrs attrs = attrs_of(p);
    p->graph = open_graph();
    for (int i = 0; i < p->source->input_count; i++) {
        in[i] = add_operand(p, i);
        din[i] = BY_NONE;
    }
    (void)by__op_add_node(p->graph, p->source->op, &attrs, in, p->source->input_count, outs);
    check_ok(by_graph_check(p->graph, &error), &error);
    by__graph_node node = p->graph->nodes[0];
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        dout[o] = BY_NONE;
        if ((p->through >> o & 1u) != 0) {
            by__graph_type y = {p->graph->values[outs[o]].dtype, p->graph->values[outs[o]].shape};
            name_of(name, "dy.", o);
            dout[o] = by__graph_add_value(p->graph, BY_ROLE_INPUT, name, NULL, y);
        }
    }
    by__op_row_of(node.op)->gradient(p->graph, &node, dout, din);
    for (int i = 0; i < p->source->input_count; i++) {
        publish(p, i, din[i]);
    }
    bool waits = by__op_row_of(node.op)->communicates;
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        if (dout[o] != BY_NONE) {
            name_of(name, "y.", o);
            by_value ready = waits ? by__op_build_wait(p->graph, outs[o]) : outs[o];
            by_graph_output(p->graph, by_cast(p->graph, ready, BY_F32), name);
        }
    }
    check_ok(by_graph_verify(p->graph, &error), &error);
}

/* Multiples of 2^-10 (of 2^-5 in bf16) with magnitudes in [1/8, 2): relu's kink is further than 2
 * h. */
static double value_of(const gradients *p, int i, size_t k)
{
    static const double ranges[] = {0.0, 2.0, 2.0, 2.0, 3.0, 7.0};
    const operand *in = &p->source->in[i];
    size_t last = (size_t)by_shape_count(&in->type.shape) - 1;
    double u = random_unit(7, (uint64_t)i, k);
    double magnitude = 0.125 + floor(fabs(u) * 60.0) / 32.0;
    double id = floor((u + 1.0) * 2.5);
    switch (in->kind) {
    case SOME_ABSENT:
        return k % 3 == 1 ? -1.0 : id;
    case ALL_THREE:
        return 3.0;
    case IN_TURN:
        return (double)(k % 5);
    case COUNTER:
        return (double)(11 + k);
    case DIVISOR:
        return u < 0.0 ? -1.0 - magnitude : 1.0 + magnitude;
    case SPACED:
        return 0.25 * (double)(k * 7 % 11) - 1.0;
    case SLOT:
        return k == 0 ? -1.0 : (double)(last - k);
    case MEMBER:
        return k == last ? -1.0 : (double)(last - k);
    case RANGE:
        return ranges[k];
    case OFFSETS:
    case SOURCES:
    case BACK_OFFSETS:
    case BACK_SOURCES:
    case BACK_EDGES:
        return (double)edge_operand(p->source, i, (int64_t)k);
    default:
        return in->type.dtype == BY_I32 ? id : u < 0.0 ? -magnitude : magnitude;
    }
}

/* A weight of random values, packed. */
static void fill_packed(gradients *p, int i, const char *name)
{
    by_error error = {0};
    const by_attrs attrs = attrs_of(p);
    float weight[64];
    size_t count = (size_t)(attrs.packing.n * attrs.packing.k);
    assert_true(count <= BY_ARRAY_LENGTH(weight));
    for (size_t k = 0; k < count; k++) {
        weight[k] = (float)value_of(p, i, k);
    }
    check_ok(by__pack_weight(runner_data(&p->runner, name), &attrs.packing, true, weight, BY_F32,
                             attrs.packing.n, 1, &error),
             &error);
}

static void open_problem(gradients *p, const op_case *source, uint32_t through, by_dtype act)
{
    char name[32];
    *p = (gradients){.source = source, .through = through, .act = act};
    build(p);
    runner_open(&p->runner, p->graph, 1);
    for (int i = 0; i < p->source->input_count; i++) {
        name_of(name, "in.", i);
        if (is_packed(p, i)) {
            fill_packed(p, i, name);
            continue;
        }
        for (size_t k = 0; is_present(&source->in[i]) && k < runner_count(&p->runner, name); k++) {
            set_element(runner_data(&p->runner, name), dtype_of(&source->in[i], act), k,
                        value_of(p, i, k));
        }
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        name_of(name, "dy.", o);
        for (size_t k = 0; (through >> o & 1u) != 0 && k < runner_count(&p->runner, name); k++) {
            double u = random_unit(8, (uint64_t)o, k);
            set_element(runner_data(&p->runner, name),
                        p->graph->values[by_graph_find(p->graph, name)].dtype, k,
                        floor(u * 32.0) / 16.0 + 0.03125);
        }
    }
}

static void close_problem(gradients *p)
{
    runner_close(&p->runner);
    by_graph_close(&p->graph);
}

static double loss_of(gradients *p)
{
    double sum = 0.0;
    runner_run(&p->runner);
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        char y[32];
        char dy[32];
        name_of(y, "y.", o);
        name_of(dy, "dy.", o);
        for (size_t k = 0; (p->through >> o & 1u) != 0 && k < runner_count(&p->runner, y); k++) {
            sum += (double)((const float *)runner_data(&p->runner, y))[k] *
                   (double)((const float *)runner_data(&p->runner, dy))[k];
        }
    }
    return sum;
}

/* L with element k of x moved by `steps` steps. */
static double loss_at(gradients *p, float *x, size_t k, double steps)
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

static void compare_operand(gradients *p, int i)
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
            fail_msg("line %td, %s: d / d operand %d [%zu] is %g; finite differences say %g",
                     p->source - op_cases, by_op_name(p->source->op), i, k, (double)gradient[k],
                     want);
        }
    }
    free(gradient);
}

static void compare_f32(const op_case *source, uint32_t through)
{
    gradients p;
    open_problem(&p, source, through, BY_F32);
    for (int i = 0; i < source->input_count; i++) {
        if (differentiable(&source->in[i])) {
            compare_operand(&p, i);
        }
    }
    close_problem(&p);
}

/* All cases in all their variants. */
static void compare_all(const char *isa, void (*compare)(const op_case *, uint32_t))
{
    set_isa(isa);
    const op_case *source;
    for (size_t c = 0; (source = next_case(&c)) != NULL;) {
        for (int v = 0; v < VARIANTS; v++) {
            if (outputs_of(source, v) != 0) {
                compare(source, outputs_of(source, v));
            }
        }
    }
}

static void test_reference(void **state)
{
    BY_UNUSED(state);
    compare_all("reference", compare_f32);
}

static void test_native(void **state)
{
    BY_UNUSED(state);
    compare_all("native", compare_f32);
}

static void compare_bf16(const op_case *source, uint32_t through)
{
    gradients narrow;
    gradients wide;
    open_problem(&narrow, source, through, BY_BF16);
    open_problem(&wide, source, through, BY_F32);
    runner_run(&narrow.runner);
    runner_run(&wide.runner);
    for (int i = 0; i < source->input_count; i++) {
        char name[32];
        if (!differentiable(&source->in[i])) {
            continue;
        }
        name_of(name, "grad.in.", i);
        const float *have = runner_data(&narrow.runner, name);
        const float *want = runner_data(&wide.runner, name);
        size_t count = runner_count(&wide.runner, name);
        double bound = BF16_BOUND * fmax(largest(want, count), 0.1);
        for (size_t k = 0; k < count; k++) {
            if (!(fabs((double)have[k] - (double)want[k]) <= bound)) {
                fail_msg("line %td, %s in bf16: d / d operand %d [%zu] is %g, in f32 %g",
                         source - op_cases, by_op_name(source->op), i, k, (double)have[k],
                         (double)want[k]);
            }
        }
    }
    close_problem(&narrow);
    close_problem(&wide);
}

static void test_bf16(void **state)
{
    BY_UNUSED(state);
    compare_all("reference", compare_bf16);
    compare_all("native", compare_bf16);
}

/* d (a - b) / d b is -dy and nothing that overflows on the way. */
static void test_negated_extremes(void **state)
{
    BY_UNUSED(state);
    static const operand in[2] = {{{ACT, {1, {2}}}, PLAIN}, {{ACT, {1, {2}}}, PLAIN}};
    static const op_case source = {BY_OP_SUB, {0}, in, 2, FOR_GRADIENTS};
    static const float dy[2] = {INFINITY, 3e38f};
    gradients p;
    open_problem(&p, &source, 1u, BY_F32);
    memcpy(runner_data(&p.runner, "dy.0"), dy, sizeof dy);
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
        /* What rounding is given as a gradient is no derivative: test_compress.c. */
        found = found || op == BY_OP_FAKE_QUANTIZE;
        const op_case *source;
        for (size_t c = 0; (source = next_case(&c)) != NULL;) {
            found = found || source->op == (by_op)op;
        }
        if (!found) {
            fail_msg("%s has a gradient and no GRADIENT in op_cases.c", by_op_name((by_op)op));
        }
    }
}

/* ---- whole models, with dropout, through every pass ---- */

/* `features`: settings in addition, up to the first NULL. */
static by_config *model_config(const char *kind, const char *recompute, const char *const *features)
{
    by_error error = {0};
    by_config *config;
    char assignment[64];
    static const char *const settings[] = {
        "model.layers=2", "model.heads=4",       "model.width=16",       "model.context=5",
        "model.vocab=11", "model.mlp_width=24",  "model.dropout=0.2",    "model.init_std=0.3",
        "train.batch=3",  "train.micro_batch=3", "precision.compute=f32"};
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    (void)snprintf(assignment, sizeof assignment, "model.kind=%s", kind);
    check_ok(by_config_set(config, assignment, &error), &error);
    (void)snprintf(assignment, sizeof assignment, "memory.recompute=%s", recompute);
    check_ok(by_config_set(config, assignment, &error), &error);
    for (size_t i = 0; features[i] != NULL; i++) {
        check_ok(by_config_set(config, features[i], &error), &error);
    }
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
static void compare_model(const char *kind, const char *recompute, const char *const *features)
{
    by_error error = {0};
    by_config *config = model_config(kind, recompute, features);
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
            base[v] = malloc(by__graph_value_bytes(&graph->values[v]));
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
    static const char *const plain[] = {NULL};
    static const char *const qwen3[] = {"model.qk_norm=true",  "model.head_dim=6",
                                        "model.kv_heads=2",    "model.rope_scaling=yarn",
                                        "model.rope_factor=2", NULL};
    static const char *const smollm3[] = {"model.qkv_bias=true",
                                          "model.output_bias=true",
                                          "model.mlp_bias=true",
                                          "model.nope_layers=[1]",
                                          "model.rope_scaling=llama3",
                                          "model.rope_factor=4",
                                          NULL};
    for (size_t l = 0; l < BY_ARRAY_LENGTH(levels); l++) {
        set_isa(levels[l]);
        compare_model("gpt2", "none", plain);
        compare_model("gpt2", "block", plain);
        compare_model("llama", "none", plain);
        compare_model("llama", "block", plain);
        compare_model("llama", "none", qwen3);
        compare_model("llama", "block", smollm3);
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
