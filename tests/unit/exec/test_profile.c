/* Profiles: sums over nodes against the op table, spans, the trace, and programs that are watched
 * no more. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/ops.h"
#include "banyan/profile.h"
#include "device/device.h"
#include "runner.h"
#include "temporary.h"

#define NODES 4

static const by_machine machine = {
    .f32_gflops = 1.0, .bf16_gflops = 4.0, .read_gbps = 1.0, .copy_gbps = 0.5};

/* Two equal products in blocks 0 and 1, a sum of them, and an activation outside blocks. */
static by_graph *make_graph(void)
{
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(8, 16));
    by_value w = by_graph_input(graph, "w", BY_F32, BY_SHAPE(16, 4));
    by_graph_set_block(graph, 0);
    by_value a = by_matmul(graph, x, w, false, false);
    by_graph_set_block(graph, 1);
    by_value b = by_matmul(graph, x, w, false, false);
    by_value c = by_add(graph, a, b);
    by_graph_set_block(graph, -1);
    by_graph_output(graph, by_unary(graph, c, BY_FN_GELU), "y");
    return graph;
}

typedef struct fixture {
    by_graph *graph;
    runner run;
    by_profile *profile;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->graph = make_graph();
    runner_open(&f->run, f->graph, 1);
    runner_fill(&f->run, 1, 0);
    assert_int_equal(by_profile_open(&f->profile, NULL), BY_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    by_profile_close(&f->profile);
    runner_close(&f->run);
    by_graph_close(&f->graph);
    free(f);
    return 0;
}

static const by_profile_row *find(const by_profile_row *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    fail_msg("no row '%s'", name);
    return NULL;
}

static void watch(fixture *f, by_profile_work work)
{
    assert_int_equal(by_profile_watch(f->profile, f->run.program, "work", work, NULL), BY_OK);
}

static void test_by_op(void **state)
{
    fixture *f = *state;
    by_profile_row *rows;
    size_t count;
    watch(f, BY_PROFILE_WORK_MODEL);
    for (int i = 0; i < 3; i++) {
        runner_run(&f->run);
    }
    assert_int_equal(by_profile_rows(&rows, &count, f->profile, BY_PROFILE_BY_OP, &machine, NULL),
                     BY_OK);
    assert_int_equal(count, 3);
    const by_profile_row *matmul = find(rows, count, "matmul");
    assert_int_equal(matmul->nodes, 2);
    assert_int_equal(matmul->runs, 6);
    assert_true(matmul->flops == 6.0 * 2 * 8 * 16 * 4);
    assert_true(matmul->bytes == 6.0 * 4 * (8 * 16 + 16 * 4 + 8 * 4));
    /* At 1 GFLOP/s and 1 GB/s: 1024 operations against 896 bytes. */
    assert_true(fabs(matmul->roof_seconds - 6.0 * 1024e-9) < 1e-15);
    assert_true(matmul->seconds > 0.0 && matmul->median_seconds > 0.0);
    assert_true(matmul->seconds == matmul->part_seconds[BY_PROFILE_FORWARD]);
    assert_true(matmul->part_seconds[BY_PROFILE_BACKWARD] == 0.0);
    for (size_t i = 1; i < count; i++) {
        assert_true(rows[i - 1].seconds >= rows[i].seconds);
    }
    by_profile_rows_free(rows, count);
}

static void test_by_layer_and_shape(void **state)
{
    fixture *f = *state;
    by_profile_row *rows;
    size_t count;
    watch(f, BY_PROFILE_WORK_MODEL);
    runner_run(&f->run);
    assert_int_equal(
        by_profile_rows(&rows, &count, f->profile, BY_PROFILE_BY_LAYER, &machine, NULL), BY_OK);
    assert_int_equal(count, 3);
    assert_string_equal(rows[0].name, "block 0");
    assert_int_equal(rows[0].nodes, 1);
    assert_string_equal(rows[1].name, "block 1");
    assert_int_equal(rows[1].nodes, 2);
    assert_string_equal(rows[2].name, "outside blocks");
    by_profile_rows_free(rows, count);
    assert_int_equal(
        by_profile_rows(&rows, &count, f->profile, BY_PROFILE_BY_SHAPE, &machine, NULL), BY_OK);
    assert_int_equal(count, 3);
    assert_int_equal(find(rows, count, "matmul(f32 [8, 16], f32 [16, 4]) : f32 [8, 4]")->nodes, 2);
    assert_int_equal(find(rows, count, "unary(f32 [8, 4]) gelu : f32 [8, 4]")->op, BY_OP_UNARY);
    by_profile_rows_free(rows, count);
}

static void test_update_program(void **state)
{
    fixture *f = *state;
    by_profile_row *rows;
    size_t count;
    watch(f, BY_PROFILE_WORK_UPDATE);
    runner_run(&f->run);
    assert_int_equal(
        by_profile_rows(&rows, &count, f->profile, BY_PROFILE_BY_LAYER, &machine, NULL), BY_OK);
    assert_int_equal(count, 1);
    assert_string_equal(rows[0].name, "work");
    assert_int_equal(rows[0].nodes, NODES);
    assert_true(rows[0].part_seconds[BY_PROFILE_UPDATE] == rows[0].seconds);
    by_profile_rows_free(rows, count);
}

static void test_clear_and_close(void **state)
{
    fixture *f = *state;
    by_profile_row *rows;
    size_t count;
    watch(f, BY_PROFILE_WORK_MODEL);
    runner_run(&f->run);
    by_profile_clear(f->profile);
    runner_run(&f->run);
    assert_int_equal(by_profile_rows(&rows, &count, f->profile, BY_PROFILE_BY_OP, &machine, NULL),
                     BY_OK);
    assert_int_equal(find(rows, count, "matmul")->runs, 2);
    by_profile_rows_free(rows, count);
    by_profile_close(&f->profile);
    assert_null(f->profile);
    runner_run(&f->run); /* the hook is off: nothing of the profile is touched */
}

/* ---- the trace ---- */

typedef struct interval {
    long long begin;
    long long end;
    const char *name;
} interval;

static int compare(const void *a, const void *b)
{
    const interval *x = a;
    const interval *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end > y->end ? -1 : x->end < y->end;
}

static long long nanoseconds(const json_t *event, const char *key)
{
    return llround(1e3 * json_number_value(json_object_get(event, key)));
}

/* Events of one thread lie inside one another or apart. Returns the deepest nesting. */
static int check_nesting(interval *x, size_t count)
{
    long long ends[16];
    int depth = 0;
    int deepest = 0;
    qsort(x, count, sizeof *x, compare);
    for (size_t i = 0; i < count; i++) {
        while (depth > 0 && ends[depth - 1] <= x[i].begin) {
            depth--;
        }
        assert_true(depth == 0 || x[i].end <= ends[depth - 1]);
        assert_true(depth < 16);
        ends[depth++] = x[i].end;
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

static void test_trace(void **state)
{
    fixture *f = *state;
    char *directory = temporary_make();
    char *path = by__path_join(directory, "trace.json");
    interval x[64];
    size_t count = 0;
    int named = 0;
    watch(f, BY_PROFILE_WORK_MODEL);
    for (int i = 0; i < 2; i++) {
        double began = by_clock();
        runner_run(&f->run);
        assert_int_equal(by_profile_span(f->profile, "a \"step\"", began, by_clock(), NULL), BY_OK);
    }
    assert_int_equal(by_profile_trace(f->profile, path, NULL), BY_OK);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    json_t *events = json_object_get(root, "traceEvents");
    assert_true(json_is_array(events));
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *event = json_array_get(events, i);
        const char *phase = json_string_value(json_object_get(event, "ph"));
        named += strcmp(phase, "M") == 0;
        if (strcmp(phase, "X") == 0) {
            long long begin = nanoseconds(event, "ts");
            assert_true(begin >= 0 && nanoseconds(event, "dur") >= 0 && count < 64);
            x[count++] = (interval){begin, begin + nanoseconds(event, "dur"),
                                    json_string_value(json_object_get(event, "name"))};
        }
    }
    assert_int_equal(named, 2);
    assert_int_equal(count, 2 * (NODES + 2)); /* nodes, program, span */
    assert_int_equal(check_nesting(x, count), 3);
    assert_string_equal(x[0].name, "a \"step\"");
    assert_string_equal(x[1].name, "work");
    assert_string_equal(x[2].name, "matmul");
    json_decref(root);
    assert_int_equal(by_profile_trace(f->profile, "/nowhere/at/all.json", NULL), BY_EIO);
    free(path);
    temporary_remove(directory);
}

/* ---- collectives ---- */

static by_status copy_through(void *user, const by__device_exchange *e, by_error *error)
{
    BY_UNUSED(user);
    BY_UNUSED(error);
    memmove(e->out, e->in, (size_t)(e->entries * e->elements) * by_dtype_size(e->dtype));
    return BY_OK;
}

/* They have a track of their own, and the wait for them is a node of the compute track; every node
 * is told once a run, whichever queue it ran on. */
static void test_collectives(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__device_collectives collectives = {.run = copy_through};
    by_profile *profile;
    by_profile_row *rows;
    runner r;
    size_t count;
    int tracks[3] = {0};
    char *directory = temporary_make();
    char *path = by__path_join(directory, "trace.json");
    by_graph *graph = open_graph();
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(64, 64));
    by_value y = by_all_reduce(graph, by_unary(graph, x, BY_FN_GELU), 1, 2);
    by_graph_output(graph, by_unary(graph, y, BY_FN_GELU), "y");
    runner_open(&r, graph, 1);
    by__device_set_collectives(r.device, &collectives);
    check_ok(by_profile_open(&profile, &error), &error);
    check_ok(by_profile_watch(profile, r.program, "step", BY_PROFILE_WORK_MODEL, &error), &error);
    runner_run(&r);
    runner_run(&r);
    check_ok(by_profile_rows(&rows, &count, profile, BY_PROFILE_BY_OP, &machine, &error), &error);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].runs, strcmp(rows[i].name, "unary") == 0 ? 4 : 2);
        assert_int_equal(rows[i].collective, strcmp(rows[i].name, "all_reduce") == 0);
    }
    by_profile_rows_free(rows, count);
    check_ok(by_profile_trace(profile, path, &error), &error);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    json_t *events = json_object_get(root, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *event = json_array_get(events, i);
        json_int_t track = json_integer_value(json_object_get(event, "tid"));
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") == 0) {
            assert_true(track == 1 || track == 2);
            tracks[track]++;
        }
    }
    assert_int_equal(tracks[1], 2 * (3 + 1)); /* nodes and the program */
    assert_int_equal(tracks[2], 2);
    json_decref(root);
    by_profile_close(&profile);
    runner_close(&r);
    by_graph_close(&graph);
    free(path);
    temporary_remove(directory);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_by_op),          TEST(test_by_layer_and_shape),
        TEST(test_update_program), TEST(test_clear_and_close),
        TEST(test_trace),          cmocka_unit_test(test_collectives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
