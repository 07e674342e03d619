/* Passes behind the backward pass (recompute, rematerialize, fuse, order, prune, layout, pack), and
 * their table. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pass_graph.h"
#include "passes/passes.h"
#include "runner.h"

/* ---- results of transformed graphs ---- */

/* Runs both graphs on equal inputs; the largest relative distance of an output or gradient, 0 when
 * all have the same bits. */
static double compare_graphs(by_graph *a, by_graph *b)
{
    runner r;
    runner s;
    double most = 0.0;
    runner *both[2] = {&r, &s};
    runner_open(&r, a, 1);
    runner_open(&s, b, 1);
    for (int k = 0; k < 2; k++) {
        runner_fill(both[k], 9, 50);
        *(float *)runner_data(both[k], "loss_scale") = 1.0f / 64.0f;
    }
    runner_run(&r);
    runner_run(&s);
    for (size_t v = 0; v < a->value_count; v++) {
        if (a->values[v].role == BY_ROLE_OUTPUT || a->values[v].role == BY_ROLE_GRADIENT) {
            const char *name = a->values[v].name;
            assert_int_equal(a->values[v].dtype, BY_F32);
            size_t count = runner_count(&r, name);
            const float *x = runner_data(&r, name);
            const float *y = runner_data(&s, name);
            double d = relative_distance(x, y, count);
            assert_true(isfinite(d));
            if (memcmp(x, y, count * sizeof *x) != 0) {
                most = fmax(most, fmax(d, 1e-12));
            }
        }
    }
    runner_close(&r);
    runner_close(&s);
    return most;
}

static size_t arena_of(const by_graph *graph)
{
    by_error error = {0};
    by__pass_memory_plan plan;
    check_ok(by__pass_memory_plan_make(&plan, graph, BY_CACHE_LINE, &error), &error);
    size_t bytes = plan.bytes;
    by__pass_memory_plan_free(&plan);
    return bytes;
}

static void test_recompute(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 4; k++) {
        const char *settings[] = {k % 2 == 0 ? "model.kind=gpt2" : "model.kind=llama",
                                  k < 2 ? "precision.compute=f32" : "precision.compute=bf16",
                                  "model.layers=8", "memory.recompute=none"};
        by_config *config = pass_config(settings, 4);
        by_graph *kept = pass_graph(config, "order");
        settings[3] = "memory.recompute=block";
        by_config *config_again = pass_config(settings, 4);
        by_graph *again = pass_graph(config_again, "order");
        assert_true(pass_count_ops(again, BY_OP_ATTENTION) == 8 + 7); /* all blocks but the last */
        assert_true(compare_graphs(kept, again) == 0.0);
        assert_true((double)arena_of(again) < 0.6 * (double)arena_of(kept));
        by_graph_close(&kept);
        by_graph_close(&again);
        by_config_close(&config);
        by_config_close(&config_again);
    }
}

static void test_rematerialize(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    for (size_t k = 0; k < 4; k++) {
        bool gpt2 = k % 2 == 0;
        const char *settings[] = {gpt2 ? "model.kind=gpt2" : "model.kind=llama",
                                  k < 2 ? "precision.compute=f32" : "precision.compute=bf16",
                                  "model.layers=8", "model.dropout=0"};
        by_config *config = pass_config(settings, 4);
        by_graph *kept = pass_graph(config, "recompute");
        by_graph *again = pass_graph(config, "recompute");
        by_op activation = gpt2 ? BY_OP_UNARY : BY_OP_SWIGLU;
        by_op norm = gpt2 ? BY_OP_LAYER_NORM : BY_OP_RMS_NORM;
        check_ok(by_pass_rematerialize(again, (size_t)1 << 30, &error), &error);
        assert_int_equal(again->node_count, kept->node_count); /* nothing is that large */
        check_ok(by_pass_rematerialize(again, 1, &error), &error);
        check_ok(by_graph_verify(again, &error), &error);
        assert_int_equal(pass_count_ops(again, activation), 2 * 8);
        assert_int_equal(pass_count_ops(again, norm), 2 * (2 * 8 + 1));
        size_t size = arena_of(kept);
        assert_true((double)arena_of(again) < 0.9 * (double)size);
        assert_true(compare_graphs(kept, again) == 0.0);
        by_graph_close(&kept);
        by_graph_close(&again);
        by_config_close(&config);
    }
}

/* Blocks need not be numbered from 0 upwards. */
static void test_recompute_any_block_numbers(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    static const int blocks[3] = {2000000000, 7, 3};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    for (int i = 0; i < 3; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "w%d", i);
        by_graph_set_block(graph, blocks[i]);
        x = by_unary(
            graph, by_linear(graph, x, pass_parameter(graph, name, BY_SHAPE(8, 8)), BY_NONE, false),
            BY_FN_GELU);
        x = by_unary(graph, x, BY_FN_TANH);
    }
    by_graph_set_block(graph, -1);
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(3));
    by_value loss =
        by_linear_cross_entropy(graph, x, pass_parameter(graph, "w", BY_SHAPE(5, 8)), targets);
    by_graph_output(graph, loss, "loss");
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    check_ok(by_pass_gradients(graph, loss, seed, &error), &error);
    int before = pass_count_ops(graph, BY_OP_UNARY);
    check_ok(by_pass_recompute(graph, NULL, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_count_ops(graph, BY_OP_UNARY), before + 2); /* the gelu of two blocks */
    by_graph_close(&graph);
}

static void test_fuse(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 4; k++) {
        bool gpt2 = k % 2 == 0;
        const char *settings[] = {gpt2 ? "model.kind=gpt2" : "model.kind=llama",
                                  k < 2 ? "precision.compute=f32" : "precision.compute=bf16",
                                  "model.dropout=0", "model.tied=true"};
        by_config *config = pass_config(settings, 4);
        by_graph *plain = pass_graph(config, "recompute");
        by_graph *fused = pass_graph(config, "fuse");
        /* Without dropout every residual addition goes into a product or a norm's gradient, the
         * tied embedding's into the head's, and the loss into its gradient. */
        assert_true(pass_count_ops(plain, BY_OP_ADD) >= 2 * 3 + 2 * 3 + 1);
        assert_int_equal(pass_count_ops(fused, BY_OP_ADD), 0);
        assert_int_equal(pass_count_ops(fused, BY_OP_LINEAR_CROSS_ENTROPY), 0);
        assert_int_equal(pass_count_ops(fused, BY_OP_LINEAR_CROSS_ENTROPY_GRAD), 0);
        assert_int_equal(pass_count_ops(fused, BY_OP_LINEAR_CROSS_ENTROPY_TRAIN), 1);
        assert_int_equal(pass_count_ops(fused, BY_OP_MATMUL), pass_count_ops(plain, BY_OP_MATMUL));
        /* f32: only the order of a few sums changes. bf16: one rounding less at each fused
         * addition, so the results are about as far from f32's as those of the plain graph. */
        settings[1] = "precision.compute=f32";
        by_config *exact_config = pass_config(settings, 4);
        by_graph *exact = pass_graph(exact_config, "recompute");
        double distance = compare_graphs(fused, exact);
        double bound = k < 2 ? 2e-6 : 1.5 * compare_graphs(plain, exact);
        if (!(distance <= bound)) {
            fail_msg("%s, case %zu: fused results are %g away, bound %g", settings[0], k, distance,
                     bound);
        }
        by_graph_close(&exact);
        by_config_close(&exact_config);
        by_graph_close(&plain);
        by_graph_close(&fused);
        by_config_close(&config);
    }
}

/* Additions that must stay: an operand that others read, one that is an output, a repeated
 * vector. */
/* Parts of a tensor with zeros around them are joined if they fill it, whichever comes first. */
static void test_fuse_joins_parts(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value a = by_graph_input(graph, "a", BY_F32, BY_SHAPE(3, 5, 2));
    by_value b = by_graph_input(graph, "b", BY_F32, BY_SHAPE(3, 3, 2));
    static const struct {
        int64_t begin[2];
        int64_t extent;
        int joined;
    } cases[] = {{{0, 5}, 8, 1}, {{3, 0}, 8, 1}, {{0, 4}, 8, 0}, {{0, 5}, 9, 0}, {{1, 6}, 9, 0}};
    int joined = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_value parts[2] = {by_pad(graph, a, 1, cases[i].begin[0], cases[i].extent),
                             by_pad(graph, b, 1, cases[i].begin[1], cases[i].extent)};
        char name[8];
        (void)snprintf(name, sizeof name, "y%zu", i);
        by_graph_output(graph, by_add(graph, parts[0], parts[1]), name);
        joined += cases[i].joined;
    }
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_count_ops(graph, BY_OP_CONCAT), joined);
    assert_int_equal(pass_count_ops(graph, BY_OP_ADD), (int)BY_ARRAY_LENGTH(cases) - joined);
    assert_int_equal(pass_count_ops(graph, BY_OP_PAD), 2 * ((int)BY_ARRAY_LENGTH(cases) - joined));
    by_value second = by_graph_find(graph, "y1");
    const by__graph_node *node = &graph->nodes[graph->values[second].producer];
    assert_true(node->in[0] == b && node->in[1] == a && node->attrs.axis == 1);
    by_graph_close(&graph);
}

static void test_fuse_leaves_alone(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    by_value w = pass_parameter(graph, "w", BY_SHAPE(8, 8));
    by_value v = by_graph_input(graph, "v", BY_F32, BY_SHAPE(8));
    by_value read_twice = by_linear(graph, x, w, BY_NONE, false);
    by_graph_output(graph, by_mul(graph, by_add(graph, read_twice, x), read_twice), "a");
    by_value named = by_linear(graph, x, w, BY_NONE, true);
    by_graph_output(graph, by_add(graph, named, x), "b");
    by_graph_output(graph, named, "named");
    by_graph_output(graph, by_add(graph, by_linear(graph, x, w, BY_NONE, false), v), "c");
    by_value itself = by_linear(graph, x, w, BY_NONE, false);
    by_graph_output(graph, by_add(graph, itself, itself), "d");
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_count_ops(graph, BY_OP_ADD), 3);
    assert_int_equal(pass_count_ops(graph, BY_OP_MAP), 1); /* "a", with its product */
    /* An addend that is made after the product: the fused node stands at the addition's place. */
    by_value product = by_linear(graph, x, w, BY_NONE, false);
    by_value later = by_unary(graph, x, BY_FN_TANH);
    by_graph_output(graph, by_add(graph, product, later), "e");
    check_ok(by_pass_fuse(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_count_ops(graph, BY_OP_ADD), 3);
    by_graph_close(&graph);
}

static void test_order(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; k < 4; k++) {
        by_error error = {0};
        size_t before;
        size_t after;
        const char *settings[] = {k % 2 == 0 ? "model.kind=gpt2" : "model.kind=llama",
                                  k < 2 ? "memory.recompute=none" : "memory.recompute=block"};
        by_config *config = pass_config(settings, 2);
        by_graph *plain = pass_graph(config, "fuse");
        by_graph *ordered = pass_graph(config, "order");
        check_ok(by__pass_peak_bytes(&before, plain, &error), &error);
        check_ok(by__pass_peak_bytes(&after, ordered, &error), &error);
        assert_true(after <= before);
        assert_int_equal(plain->node_count, ordered->node_count);
        assert_true(compare_graphs(plain, ordered) == 0.0);
        by_graph_close(&plain);
        by_graph_close(&ordered);
        by_config_close(&config);
    }
}

/* Eight large tensors made at once and folded one by one: the pass makes each when it is folded. */
static void test_order_finds_a_lower_peak(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    size_t before;
    size_t after;
    by_value large[8];
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(1, 8));
    by_value w = pass_parameter(graph, "w", BY_SHAPE(8, 512));
    by_value u = pass_parameter(graph, "u", BY_SHAPE(512, 8));
    for (int i = 0; i < 8; i++) {
        large[i] = by_linear(graph, x, w, BY_NONE, false);
    }
    by_value sum = x;
    for (int i = 0; i < 8; i++) {
        sum = by_add(graph, sum, by_linear(graph, large[i], u, BY_NONE, false));
    }
    by_graph_output(graph, sum, "sum");
    check_ok(by__pass_peak_bytes(&before, graph, &error), &error);
    check_ok(by_pass_order(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    check_ok(by__pass_peak_bytes(&after, graph, &error), &error);
    assert_true(before >= 8 * 512 * 4);
    assert_true(after <= 512 * 4 + 9 * 8 * 4);
    by_graph_close(&graph);
}

static void test_prune(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4));
    by_value kept = by_unary(graph, x, BY_FN_TANH);
    (void)by_unary(graph, by_unary(graph, kept, BY_FN_GELU), BY_FN_RELU);
    by_graph_output(graph, by_add(graph, kept, x), "y");
    check_ok(by__pass_graph_prune(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(graph->node_count, 2);
    assert_int_equal(graph->values[kept].producer, 0);
    by_graph_close(&graph);
}

/* ---- layout ---- */

static by_value_info info_of(const by_graph *graph, by_value value)
{
    by_error error = {0};
    by_value_info info;
    check_ok(by_graph_value(graph, value, &info, &error), &error);
    return info;
}

/* Only a weight [k, n] that nothing reads otherwise is transposed. That results stay is what
 * test_generator checks. */
static void test_layout(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    by_value ids = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(3));
    by_value w = by_graph_parameter(graph, "w", "embed mlp", BY_SHAPE(8, 6), (by_init){0});
    by_value kept = by_graph_parameter(graph, "kept", "mlp embed", BY_SHAPE(5, 8), (by_init){0});
    by_value both = pass_parameter(graph, "both", BY_SHAPE(8, 8));
    by_value table = pass_parameter(graph, "table", BY_SHAPE(8, 8));
    by_value given = by_graph_input(graph, "given", BY_F32, BY_SHAPE(8, 4));
    by_graph_output(graph, by_linear(graph, x, w, BY_NONE, false), "a");
    by_graph_output(graph, by_linear(graph, x, w, BY_NONE, false), "b");
    by_graph_output(graph, by_linear(graph, x, kept, BY_NONE, true), "c");
    by_value y = by_linear(graph, x, both, BY_NONE, false);
    by_graph_output(graph, by_linear(graph, y, both, BY_NONE, true), "d");
    y = by_linear(graph, by_embedding(graph, ids, table), table, BY_NONE, false);
    by_graph_output(graph, y, "e");
    by_graph_output(graph, by_linear(graph, x, given, BY_NONE, false), "f");
    check_ok(by_pass_layout(graph, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    by_value_info transposed = info_of(graph, w);
    assert_true(transposed.transposed);
    assert_true(by_shape_equal(&transposed.shape, &BY_SHAPE(6, 8)));
    assert_string_equal(transposed.axes, "mlp embed");
    const by_value others[] = {kept, both, table, given};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        assert_false(info_of(graph, others[i]).transposed);
    }
    assert_string_equal(info_of(graph, kept).axes, "mlp embed");
    /* Nothing is left to transpose. */
    check_ok(by_pass_layout(graph, &error), &error);
    transposed = info_of(graph, w);
    assert_true(by_shape_equal(&transposed.shape, &BY_SHAPE(6, 8)));
    by_graph_close(&graph);
}

/* ---- pack ---- */

static by_packing packing_of(const by_graph *graph, by_value value)
{
    return graph->values[value].packing;
}

/* Packed is what products read in one way, and look-ups of its outputs; another program follows
 * what the first has done, or is refused. That results stay is what test_generator checks. */
static void test_pack(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_packing_options options = {.kind = BY_PACKING_PACKED};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8));
    by_value ids = by_graph_input(graph, "ids", BY_I32, BY_SHAPE(3));
    by_value w = by_graph_parameter(graph, "w", "embed mlp", BY_SHAPE(8, 6), (by_init){0});
    by_value head = by_graph_parameter(graph, "head", "vocab embed", BY_SHAPE(40, 8), (by_init){0});
    by_value both = pass_parameter(graph, "both", BY_SHAPE(8, 8));
    by_value table = pass_parameter(graph, "table", BY_SHAPE(5, 8));
    by_value given = by_graph_input(graph, "given", BY_F32, BY_SHAPE(8, 4));
    by_value bias = pass_parameter(graph, "bias", BY_SHAPE(6));
    by_graph_output(graph, by_linear(graph, x, w, bias, false), "a");
    x = by_add(graph, by_embedding(graph, ids, head), by_embedding(graph, ids, table));
    by_graph_output(graph, by_linear(graph, x, head, BY_NONE, true), "b");
    by_value y = by_linear(graph, x, both, BY_NONE, false);
    by_graph_output(graph, by_linear(graph, y, both, BY_NONE, true), "c");
    by_graph_output(graph, by_linear(graph, x, given, BY_NONE, false), "d");
    check_ok(by_pass_pack(graph, &options, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    assert_int_equal(pass_count_ops(graph, BY_OP_PACKED_MATMUL), 2);
    assert_int_equal(pass_count_ops(graph, BY_OP_PACKED_EMBEDDING), 1);
    assert_int_equal(packing_of(graph, w).n, 6);
    assert_int_equal(packing_of(graph, w).k, 8);
    assert_false(graph->values[w].out_in);
    assert_int_equal(pass_dtype(graph, w), BY_U8);
    assert_true(by_shape_equal(&graph->values[head].shape, &BY_SHAPE(2, 8 * 32 * 4)));
    assert_true(graph->values[head].out_in);
    assert_int_equal(by__graph_value_elements(&graph->values[head]), 320);
    assert_int_equal(packing_of(graph, both).kind, BY_PACKING_NONE);
    assert_int_equal(packing_of(graph, table).kind, BY_PACKING_NONE);

    options.like = graph;
    by_graph *other = open_graph();
    ids = by_graph_input(other, "ids", BY_I32, BY_SHAPE(3));
    head = pass_parameter(other, "head", BY_SHAPE(40, 8));
    by_graph_output(other, by_embedding(other, ids, head), "e");
    check_ok(by_pass_pack(other, &options, &error), &error);
    check_ok(by_graph_verify(other, &error), &error);
    assert_int_equal(pass_count_ops(other, BY_OP_PACKED_EMBEDDING), 1);
    by_graph_close(&other);
    other = open_graph();
    by_graph_output(other, by_unary(other, pass_parameter(other, "w", BY_SHAPE(8, 6)), BY_FN_GELU),
                    "e");
    check_error(by_pass_pack(other, &options, &error), BY_EARG, &error, "'w' is packed");
    by_graph_close(&other);
    by_graph_close(&graph);
}

/* ---- the table ---- */

/* Names are unique, rows are described, the architecture page lists them all, and "forward" and the
 * names themselves are what by_passes_run takes. */
static void test_table(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *page;
    size_t length;
    check_ok(by__file_read(&page, &length, BY_SOURCE_DIR "/docs/architecture.md", 1 << 20, &error),
             &error);
    for (int i = 0; i < by_pass_count(); i++) {
        char quoted[64];
        assert_true(strlen(by_pass_summary(i)) > 0);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(by_pass_name(i), by_pass_name(k));
        }
        (void)snprintf(quoted, sizeof quoted, "%-14s%s\n", by_pass_name(i), by_pass_summary(i));
        if (strstr(page, quoted) == NULL) {
            fail_msg("docs/architecture.md has no line '%s'", quoted);
        }
    }
    free(page);
    assert_null(by_pass_name(by_pass_count()));
    assert_null(by_pass_summary(-1));
}

/* A graph gets the passes that its purpose asks for, up to the one that is named. */
static void test_table_runs(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_pass_options options = {.compute = BY_BF16, .loss = BY_NONE};
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4, 8));
    by_value w = pass_parameter(graph, "w", BY_SHAPE(8, 16));
    by_graph_output(graph, by_linear(graph, x, w, BY_NONE, false), "y");
    check_error(by_passes_run(graph, BY_PURPOSE_INFER, &options, "magic", &error), BY_EARG, &error,
                "one of forward, precision, quantise, gradients");
    check_ok(by_passes_run(graph, BY_PURPOSE_INFER, &options, "forward", &error), &error);
    assert_int_equal(pass_dtype(graph, w), BY_F32);
    check_ok(by_passes_run(graph, BY_PURPOSE_UPDATE, &options, NULL, &error), &error);
    assert_int_equal(pass_dtype(graph, w), BY_F32);
    check_ok(by_passes_run(graph, BY_PURPOSE_INFER, &options, "precision", &error), &error);
    assert_int_equal(pass_dtype(graph, w), BY_BF16);
    assert_int_equal(graph->values[w].shape.dim[0], 8);
    check_ok(by_passes_run(graph, BY_PURPOSE_INFER, &options, NULL, &error), &error);
    assert_int_equal(graph->values[w].shape.dim[0], 16); /* layout */
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_rematerialize),
        cmocka_unit_test(test_recompute_any_block_numbers),
        cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_fuse_joins_parts),
        cmocka_unit_test(test_fuse_leaves_alone),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_finds_a_lower_peak),
        cmocka_unit_test(test_prune),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_pack),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
