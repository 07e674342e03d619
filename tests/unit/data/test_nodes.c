/* Graphs of nodes: edges as rows and transposed, settings, files as others write them, lists of
 * edges, and which nodes are drawn. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/nodes/node_entries.h"
#include "data/nodes/node_relations.h"
#include "data/nodes/node_sample.h"
#include "runner.h"

static const by__nodes_options plain = {.graph = "", .features = "", .labels = ""};

static void make_edges(by__nodes_set *set, int64_t nodes, const int32_t (*pairs)[2], uint64_t count,
                       bool symmetric, bool self_loops)
{
    by_error error = {0};
    by__nodes_options options = plain;
    options.symmetric = symmetric;
    options.self_loops = self_loops;
    *set = (by__nodes_set){.name = by__strdup("g"), .nodes = nodes};
    check_ok(by__nodes_set_edges(set, pairs, count, &options, &error), &error);
    check_ok(by__nodes_set_whole(set, &error), &error);
}

static void expect(const int32_t *have, const int32_t *want, size_t count)
{
    assert_memory_equal(have, want, count * sizeof *want);
}

static void test_rows(void **state)
{
    static const int32_t pairs[][2] = {{2, 0}, {1, 0}, {0, 3}, {2, 0}, {3, 3}, {1, 2}};
    by__nodes_set set;
    BY_UNUSED(state);
    make_edges(&set, 4, pairs, 6, false, false);
    assert_int_equal(set.edges, 4);
    expect(set.whole.offsets, (const int32_t[]){0, 2, 2, 3, 4}, 5);
    expect(set.sources, (const int32_t[]){1, 2, 1, 0}, 4);
    expect(set.whole.back_offsets, (const int32_t[]){0, 1, 3, 4, 4}, 5);
    expect(set.whole.back_sources, (const int32_t[]){3, 0, 2, 0}, 4);
    expect(set.whole.back_edges, (const int32_t[]){3, 0, 2, 1}, 4);
    assert_true(set.whole.inverse_degree[0] == 0.5f && set.whole.inverse_degree[1] == 0.0f);
    assert_true(set.whole.inverse_root[1] == 0.0f && set.whole.inverse_root[2] == 1.0f);
    by__nodes_set_clear(&set);
}

static void test_settings(void **state)
{
    static const int32_t pairs[][2] = {{0, 1}, {1, 0}, {2, 1}, {2, 2}};
    by__nodes_set set;
    BY_UNUSED(state);
    make_edges(&set, 3, pairs, 4, true, false);
    assert_int_equal(set.edges, 4);
    expect(set.whole.offsets, (const int32_t[]){0, 1, 3, 4}, 4);
    expect(set.sources, (const int32_t[]){1, 0, 2, 1}, 4);
    by__nodes_set_clear(&set);
    make_edges(&set, 3, pairs, 4, true, true);
    assert_int_equal(set.edges, 7);
    expect(set.sources, (const int32_t[]){0, 1, 0, 1, 2, 1, 2}, 7);
    by__nodes_set_clear(&set);
    make_edges(&set, 3, pairs, 4, false, true);
    expect(set.whole.offsets, (const int32_t[]){0, 2, 5, 6}, 4);
    by__nodes_set_clear(&set);
}

static void test_edge_list(void **state)
{
    int32_t(*pairs)[2];
    uint64_t count;
    by_error error = {0};
    static const char *const wrong[] = {"0 1\n2\n", "0,1\n2,x\n", "0 1\n0 2147483647\n",
                                        "0 1\n-1 2\n", "0 1\n1.5 2\n"};
    static const char text[] = "source,target\r\n# nodes\n0,1\r\n\n 2\t3\n4 5 0.5\n2147483646;0";
    BY_UNUSED(state);
    check_ok(by__nodes_edge_list_parse(&pairs, NULL, &count, "e", text, sizeof text - 1, &error),
             &error);
    assert_int_equal(count, 4);
    expect(pairs[0], (const int32_t[]){0, 1, 2, 3, 4, 5, INT32_MAX - 1, 0}, 8);
    free(pairs);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        by_status status = by__nodes_edge_list_parse(&pairs, NULL, &count, "e", wrong[i],
                                                     strlen(wrong[i]), &error);
        check_error(status, BY_EFORMAT, &error, "e: line 2 is not two numbers");
    }
}

/* Weights are numbers behind the pairs. */
static void test_weight_list(void **state)
{
    int32_t(*pairs)[2];
    float *weights;
    uint64_t count;
    by_error error = {0};
    static const char *const wrong[] = {"0 1 1\n2 3\n",      "0,1,1\n2,3,x\n",
                                        "0,1,1\n2,3,-1\n",   "0,1,1\n2,3,inf\n",
                                        "0,1,1\n2,3,1e39\n", "0,1,1\n2,3,nan\n"};
    static const char text[] = "source,target,weight\r\n0,1,0.5\r\n 2\t3\t7 9\n4;5;1e-3;x\n";
    BY_UNUSED(state);
    check_ok(
        by__nodes_edge_list_parse(&pairs, &weights, &count, "e", text, sizeof text - 1, &error),
        &error);
    assert_int_equal(count, 3);
    expect(pairs[0], (const int32_t[]){0, 1, 2, 3, 4, 5}, 6);
    assert_true(weights[0] == 0.5f && weights[1] == 7.0f && weights[2] == 1e-3f);
    free(pairs);
    free(weights);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        by_status status = by__nodes_edge_list_parse(&pairs, &weights, &count, "e", wrong[i],
                                                     strlen(wrong[i]), &error);
        check_error(status, BY_EFORMAT, &error,
                    "line 2 is not two numbers of nodes, from 0 to "
                    "2147483646, and a weight");
    }
}

/* Of an edge that is there twice the larger weight counts; a loop keeps its weight where each node
 * has one. Degrees are sums of weights, as torch_geometric.nn.conv.gcn_conv.gcn_norm has them. */
static void test_weights(void **state)
{
    static const int32_t pairs[][2] = {{0, 1}, {1, 0}, {2, 1}, {2, 2}, {0, 1}, {2, 2}};
    static const float weights[] = {0.5f, 2.0f, 0.25f, 3.0f, 4.0f, 0.125f};
    const struct {
        bool symmetric, self_loops;
        int64_t edges;
        int32_t sources[8];
        float weights[8];
        float degrees[3];
    } cases[] = {
        {false, false, 3, {1, 0, 2}, {2.0f, 4.0f, 0.25f}, {2.0f, 4.25f, 0.0f}},
        {true, false, 4, {1, 0, 2, 1}, {4.0f, 4.0f, 0.25f, 0.25f}, {4.0f, 4.25f, 0.25f}},
        {false, true, 6, {0, 1, 0, 1, 2, 2}, {1, 2, 4, 1, 0.25f, 3}, {3.0f, 5.25f, 3.0f}},
        {true, true, 7, {0, 1, 0, 1, 2, 1, 2}, {1, 4, 4, 1, 0.25f, 0.25f, 3}, {5, 5.25f, 3.25f}}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by__nodes_options options = plain;
        by__nodes_set set = {.name = by__strdup("g"), .nodes = 3};
        options.symmetric = cases[i].symmetric;
        options.self_loops = cases[i].self_loops;
        check_ok(by__nodes_set_weighted_edges(&set, pairs, weights, 6, &options, &error), &error);
        check_ok(by__nodes_set_whole(&set, &error), &error);
        assert_int_equal(set.edges, cases[i].edges);
        expect(set.sources, cases[i].sources, (size_t)set.edges);
        assert_memory_equal(set.weights, cases[i].weights, (size_t)set.edges * sizeof(float));
        for (int v = 0; v < 3; v++) {
            double degree = (double)cases[i].degrees[v];
            assert_true(set.degrees[v] == cases[i].degrees[v]);
            assert_true(set.whole.inverse_root[v] ==
                        (degree > 0.0 ? (float)(1.0 / sqrt(degree)) : 0.0f));
            assert_true(set.whole.inverse_degree[v] ==
                        (degree > 0.0 ? (float)(1.0 / degree) : 0.0f));
        }
        by__nodes_set_clear(&set);
    }
}

/* The corpus of the fuzzer has archives that numpy wrote: a is 2 x 3, and labels are 1, 0. */
static void test_archive(void **state)
{
    by_error error = {0};
    by__nodes_options options = plain;
    by__nodes_set *set;
    BY_UNUSED(state);
    options.graph = BY_SOURCE_DIR "/tests/fuzz/corpus/npz/stored";
    check_error(by__nodes_set_open(&set, &options, &error), BY_EFORMAT, &error,
                "the archive has no array 'adj_indptr'");
    options.graph = BY_SOURCE_DIR "/tests/fuzz/corpus/npz/cut";
    check_error(by__nodes_set_open(&set, &options, &error), BY_EFORMAT, &error, "cut short");
    options.graph = BY_SOURCE_DIR "/tests/fuzz/corpus/npz/graph";
    options.symmetric = true;
    check_ok(by__nodes_set_open(&set, &options, &error), &error);
    assert_int_equal(set->nodes, 4);
    assert_int_equal(set->features, 3);
    assert_int_equal(set->classes, 2);
    assert_memory_equal(set->offsets, ((const int64_t[]){0, 1, 3, 4, 4}), 5 * sizeof(int64_t));
    expect(set->sources, (const int32_t[]){1, 0, 2, 1}, 4);
    expect(set->labels, (const int32_t[]){0, 1, 1, -1}, 4);
    assert_true(set->x[0] == 0.0f && set->x[1] == 2.0f && set->x[5] == 0.5f && set->x[9] == 1.0f);
    by__nodes_set_close(&set);
}

static void test_split(void **state)
{
    int32_t labels[60];
    by__nodes_set set = {
        .name = (char *)(uintptr_t) "g", .nodes = 60, .classes = 3, .labels = labels};
    by__nodes_split split;
    by__nodes_split again;
    by_error error = {0};
    int seen[60] = {0};
    int of_class[3] = {0};
    BY_UNUSED(state);
    for (int i = 0; i < 60; i++) {
        labels[i] = i % 10 == 0 ? -1 : i % 3;
    }
    check_ok(by__nodes_split_draw(&split, &set, 4, 10, 15, 7, &error), &error);
    assert_int_equal(split.train_count, 12);
    for (uint64_t i = 0; i < 12; i++) {
        of_class[labels[split.train[i]]]++;
        seen[split.train[i]]++;
    }
    for (uint64_t i = 0; i < 10; i++) {
        seen[split.valid[i]]++;
    }
    for (uint64_t i = 0; i < 15; i++) {
        seen[split.test[i]]++;
    }
    for (int i = 0; i < 60; i++) {
        assert_true(seen[i] <= (labels[i] >= 0));
    }
    assert_true(of_class[0] == 4 && of_class[1] == 4 && of_class[2] == 4);
    check_ok(by__nodes_split_draw(&again, &set, 4, 10, 15, 7, &error), &error);
    assert_memory_equal(again.train, split.train, 12 * sizeof *split.train);
    by__nodes_split_free(&again);
    check_ok(by__nodes_split_draw(&again, &set, 4, 10, 15, 8, &error), &error);
    assert_memory_not_equal(again.train, split.train, 12 * sizeof *split.train);
    by__nodes_split_free(&again);
    by__nodes_split_free(&split);
    check_error(by__nodes_split_draw(&split, &set, 19, 0, 0, 7, &error), BY_ECONFIG, &error,
                "data.per_class is 19");
    check_error(by__nodes_split_draw(&split, &set, 4, 30, 30, 7, &error), BY_ECONFIG, &error,
                "not enough nodes");
    set.classes = 1;
    check_error(by__nodes_split_draw(&split, &set, 4, 10, 15, 7, &error), BY_ECONFIG, &error,
                "all nodes with labels are of one class, 0");
}

/* ---- samples ---- */

enum { ROOM = 64 };

typedef struct row_arrays {
    int32_t offsets[ROOM + 1], sources[ROOM];
    int32_t back_offsets[ROOM + 1], back_sources[ROOM], back_edges[ROOM];
} row_arrays;

typedef struct sampled {
    int32_t ids[ROOM];
    row_arrays hops[2];
    float weights[2][ROOM];
} sampled;

static void draw(sampled *out, const by__nodes_sampling *sampling, const by__nodes_set *set,
                 const int32_t *targets, int64_t count, uint64_t index)
{
    static const uint32_t key[2] = {3, 4};
    by__nodes_sample to = {.ids = out->ids};
    void *scratch = malloc(by__nodes_sample_scratch(sampling));
    for (int hop = 0; hop < 2; hop++) {
        row_arrays *r = &out->hops[hop];
        to.hops[hop] = (by__nodes_rows){r->offsets, r->sources, r->back_offsets, r->back_sources,
                                        r->back_edges};
    }
    assert_non_null(scratch);
    memset(out, 0x55, sizeof *out);
    if (set->weights != NULL) {
        to.weights[0] = out->weights[0];
        to.weights[1] = out->weights[1];
    }
    by__nodes_sample_fill(&to, sampling, set, targets, count, key, index, scratch);
    free(scratch);
}

/* Rows have their transpose, and -1 behind the last edge. */
static void check_rows(const row_arrays *r, int64_t rows, int64_t columns, int64_t room)
{
    int32_t edges = r->offsets[rows];
    assert_int_equal(r->back_offsets[columns], edges);
    for (int32_t k = 0; k < edges; k++) {
        int32_t edge = r->back_edges[k];
        int32_t row = r->back_sources[k];
        assert_true(row >= 0 && edge >= r->offsets[row] && edge < r->offsets[row + 1]);
        assert_true(r->sources[edge] >= 0 && r->sources[edge] < columns);
        assert_true(k >= r->back_offsets[r->sources[edge]] &&
                    k < r->back_offsets[r->sources[edge] + 1]);
    }
    for (int64_t k = edges; k < room; k++) {
        assert_int_equal(r->sources[k], -1);
        assert_int_equal(r->back_edges[k], -1);
    }
}

/* A node in the middle of 30 has edges from all others, and node i one from node i - 1. */
static void open_star(by__nodes_set *set)
{
    int32_t pairs[60][2];
    uint64_t count = 0;
    for (int32_t i = 0; i < 30; i++) {
        if (i != 15) {
            pairs[count][0] = i;
            pairs[count++][1] = 15;
        }
        if (i != 0 && i != 15) {
            pairs[count][0] = i - 1;
            pairs[count++][1] = i;
        }
    }
    make_edges(set, 30, (const int32_t(*)[2])pairs, count, false, false);
}

static void test_sample(void **state)
{
    static const int32_t target = 15;
    by_error error = {0};
    by__nodes_set set;
    sampled a;
    sampled b;
    int differ = 0;
    int drawn[30] = {0};
    by__nodes_sampling sampling = {.fan_outs = {4, 2}, .hops = 2, .targets = 1};
    BY_UNUSED(state);
    open_star(&set);
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    assert_true(sampling.hop_nodes[0] == 1 && sampling.hop_nodes[1] == 1 + 4);
    assert_true(sampling.hop_edges[0] == 4 && sampling.hop_edges[1] == 4 + 8);
    assert_true(sampling.nodes == 1 + 4 + 8 && !sampling.covers);
    for (uint64_t i = 0; i < 500; i++) {
        draw(&a, &sampling, &set, &target, 1, i);
        draw(&b, &sampling, &set, &target, 1, i);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(a.ids[0], 15);
        assert_int_equal(a.hops[0].offsets[1], 4);
        assert_memory_equal(a.hops[0].sources, a.hops[1].sources, 4 * sizeof(int32_t));
        for (int k = 0; k < 4; k++) {
            drawn[a.ids[a.hops[0].sources[k]]]++;
            assert_true(k == 0 || a.ids[a.hops[0].sources[k]] > a.ids[a.hops[0].sources[k - 1]]);
        }
        check_rows(&a.hops[0], 1, 5, 4);
        check_rows(&a.hops[1], 5, 13, 12);
        draw(&b, &sampling, &set, &target, 1, i + 1);
        differ += memcmp(&a, &b, sizeof a) != 0;
    }
    assert_true(differ > 480);
    for (int i = 0; i < 30; i++) { /* 500 x 4 / 29 = 69, standard deviation 8 */
        assert_true(i == 15 ? drawn[i] == 0 : drawn[i] > 69 - 40 && drawn[i] < 69 + 40);
    }
    by__nodes_set_clear(&set);
}

/* Edges that are drawn bring their weights. */
static void test_sampled_weights(void **state)
{
    static const int32_t target = 15;
    by_error error = {0};
    by__nodes_set set;
    sampled a;
    by__nodes_sampling sampling = {.fan_outs = {4, 2}, .hops = 2, .targets = 1};
    float weights[60];
    BY_UNUSED(state);
    open_star(&set);
    for (int32_t k = 0; k < set.edges; k++) {
        weights[k] = (float)set.sources[k] + 0.5f;
    }
    set.weights = weights;
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    for (uint64_t i = 0; i < 20; i++) {
        draw(&a, &sampling, &set, &target, 1, i);
        for (int hop = 0; hop < 2; hop++) {
            int32_t edges = a.hops[hop].offsets[sampling.hop_nodes[hop]];
            for (int32_t k = 0; k < sampling.hop_edges[hop]; k++) {
                assert_true(a.weights[hop][k] ==
                            (k < edges ? (float)a.ids[a.hops[hop].sources[k]] + 0.5f : 0.0f));
            }
        }
    }
    by__nodes_set_clear(&set);
}

/* Surroundings that targets have in common are there once; a target that is there twice has a
 * number for each. */
static void test_common_sample(void **state)
{
    static const int32_t targets[4] = {20, 21, 15, 20};
    by_error error = {0};
    by__nodes_set set;
    sampled a;
    bool seen[30] = {false};
    by__nodes_sampling sampling = {.fan_outs = {2, 1}, .hops = 2, .targets = 4};
    BY_UNUSED(state);
    open_star(&set);
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    assert_true(sampling.hop_nodes[0] == 4 && sampling.hop_nodes[1] == 12);
    draw(&a, &sampling, &set, targets, 4, 7);
    expect(a.ids, targets, 4);
    for (int64_t i = 0; i < sampling.nodes && a.ids[i] >= 0; i++) {
        assert_true(i == 3 || !seen[a.ids[i]]);
        seen[a.ids[i]] = true;
    }
    /* Nodes 20 and 21 have one edge each, which come from 19 and 20. */
    expect(a.hops[0].offsets, (const int32_t[]){0, 1, 2, 4, 5}, 5);
    assert_int_equal(a.ids[a.hops[0].sources[0]], 19);
    assert_int_equal(a.hops[0].sources[1], 0);
    assert_int_equal(a.hops[0].sources[4], a.hops[0].sources[0]);
    check_rows(&a.hops[0], 4, 12, 8);
    check_rows(&a.hops[1], 12, sampling.nodes, sampling.hop_edges[1]);
    draw(&a, &sampling, &set, targets, 2, 7);
    assert_true(a.hops[0].offsets[2] == 2 && a.hops[0].offsets[4] == 2);
    by__nodes_set_clear(&set);
}

/* Fan-outs of more than 64 edges are drawn in another way. */
static void test_wide_fan_out(void **state)
{
    static int32_t pairs[199][2];
    static const int32_t target = 0;
    by_error error = {0};
    by__nodes_set set;
    int32_t ids[101];
    int32_t offsets[2], sources[100], back_offsets[102], back_sources[100], back_edges[100];
    const by__nodes_sample out = {
        .ids = ids, .hops = {{offsets, sources, back_offsets, back_sources, back_edges}}};
    by__nodes_sampling sampling = {.fan_outs = {100}, .hops = 1, .targets = 1};
    int low = 0;
    BY_UNUSED(state);
    for (int32_t i = 1; i < 200; i++) {
        pairs[i - 1][0] = i;
        pairs[i - 1][1] = 0;
    }
    make_edges(&set, 200, (const int32_t(*)[2])pairs, 199, false, false);
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    void *scratch = malloc(by__nodes_sample_scratch(&sampling));
    for (uint64_t i = 0; i < 50; i++) {
        by__nodes_sample_fill(&out, &sampling, &set, &target, 1, (const uint32_t[]){1, 2}, i,
                              scratch);
        assert_int_equal(offsets[1], 100);
        for (int k = 0; k < 100; k++) {
            assert_true(k == 0 || ids[sources[k]] > ids[sources[k - 1]]);
            low += ids[sources[k]] < 100;
        }
    }
    assert_true(low > 2300 && low < 2700); /* 2487, standard deviation 25 */
    free(scratch);
    by__nodes_set_clear(&set);
}

/* Samples with all edges and room for all nodes are the whole graph; with less room, each node that
 * is fewer hops away than there are has its row. */
static void test_whole_surroundings(void **state)
{
    static const int32_t target = 15;
    by_error error = {0};
    by__nodes_set set;
    sampled a;
    by__nodes_sampling sampling = {.fan_outs = {1000, 1000}, .hops = 2, .targets = 1};
    BY_UNUSED(state);
    open_star(&set);
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    assert_true(sampling.covers);
    sampling = (by__nodes_sampling){.fan_outs = {1000, 28}, .hops = 2, .targets = 1};
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    assert_true(!sampling.covers && sampling.nodes == 30 && sampling.edges == set.edges);
    draw(&a, &sampling, &set, &target, 1, 9);
    const row_arrays *r = &a.hops[1];
    for (int i = 0; i < 30; i++) {
        int64_t begin = set.offsets[a.ids[i]];
        assert_int_equal(r->offsets[i + 1] - r->offsets[i], by__nodes_set_degree(&set, a.ids[i]));
        for (int64_t k = r->offsets[i]; k < r->offsets[i + 1]; k++) {
            assert_int_equal(a.ids[r->sources[k]], set.sources[begin + k - r->offsets[i]]);
        }
    }
    check_rows(r, 30, 30, sampling.edges);
    sampling = (by__nodes_sampling){
        .fan_outs = {29, 29, 29, 29, 29, 29, 29, 29}, .hops = 8, .targets = 1 << 20};
    check_error(by__nodes_sampling_fit(&sampling, &set, &error), BY_ECONFIG, &error,
                "a sample would have");
    by__nodes_set_clear(&set);
}

/* Features that are not 0, by rows and by columns; none of them if they are more than a tenth. */
static void test_entries(void **state)
{
    float x[4 * 20] = {0};
    by__nodes_set set = {
        .name = (char *)(uintptr_t) "g", .nodes = 4, .features = 20, .whole = {.x = x}};
    by__nodes_entries e;
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(by__nodes_entries_make(&e, &set, &error), &error);
    assert_int_equal(e.count, 0);
    by__nodes_entries_free(&e);
    x[0 * 20 + 19] = 1.0f;
    x[0 * 20 + 3] = 2.0f;
    x[2 * 20 + 3] = 3.0f;
    x[2 * 20 + 0] = 4.0f;
    x[3 * 20 + 3] = 5.0f;
    check_ok(by__nodes_entries_make(&e, &set, &error), &error);
    assert_int_equal(e.count, 5);
    expect(e.offsets, (const int32_t[]){0, 2, 2, 4, 5}, 5);
    expect(e.columns, (const int32_t[]){3, 19, 0, 3, 3}, 5);
    assert_memory_equal(e.values, ((const float[]){2.0f, 1.0f, 4.0f, 3.0f, 5.0f}),
                        5 * sizeof(float));
    assert_int_equal(e.back_offsets[0], 0);
    assert_int_equal(e.back_offsets[1], 1);
    assert_int_equal(e.back_offsets[3], 1);
    assert_int_equal(e.back_offsets[4], 4);
    assert_int_equal(e.back_offsets[19], 4);
    assert_int_equal(e.back_offsets[20], 5);
    expect(e.back_rows, (const int32_t[]){2, 0, 2, 3, 0}, 5);
    expect(e.back_entries, (const int32_t[]){2, 0, 3, 4, 1}, 5);
    by__nodes_entries_free(&e);
    for (int i = 0; i < 9; i++) {
        x[20 + i] = 1.0f;
    }
    check_ok(by__nodes_entries_make(&e, &set, &error), &error);
    assert_int_equal(e.count, 0);
}

/* Columns are node and relation; weights are those of a mean of each relation; an edge that is
 * there twice counts once. */
/* The hash of a graph with these relations. */
static void relation_hash(char hash[33], const int32_t (*pairs)[2], const int32_t *types)
{
    by__nodes_relations r;
    by_error error = {0};
    check_ok(by__nodes_relations_make(&r, "r", 3, pairs, types, 5, false, NULL, &error), &error);
    memset(hash, '0', 32);
    hash[32] = '\0';
    check_ok(by__nodes_relations_hash(&r, hash, &error), &error);
    by__nodes_relations_free(&r);
}

static void test_relations(void **state)
{
    char hashes[3][33];
    static const int32_t pairs[][2] = {{2, 0}, {1, 0}, {1, 0}, {2, 0}, {0, 1}};
    static const int32_t types[] = {1, 1, 0, 1, 0};
    static const int32_t wrong[] = {0, 0, -1, 0, 0};
    by__nodes_relations r;
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(by__nodes_relations_make(&r, "r", 3, pairs, types, 5, false, NULL, &error), &error);
    assert_int_equal(r.relations, 2);
    assert_int_equal(r.edges, 4);
    expect(r.offsets, (const int32_t[]){0, 3, 4, 4}, 4);
    expect(r.sources, (const int32_t[]){2, 3, 5, 0}, 4);
    assert_memory_equal(r.weights, ((const float[]){1.0f, 0.5f, 0.5f, 1.0f}), 4 * sizeof(float));
    expect(r.back_offsets, (const int32_t[]){0, 1, 1, 2, 3, 3, 4}, 7);
    expect(r.back_sources, (const int32_t[]){1, 0, 0, 0}, 4);
    expect(r.back_edges, (const int32_t[]){3, 0, 1, 2}, 4);
    by__nodes_relations_free(&r);
    check_ok(by__nodes_relations_make(&r, "r", 3, pairs, types, 5, true, NULL, &error), &error);
    assert_int_equal(r.relations, 4);
    assert_int_equal(r.edges, 8);
    expect(r.offsets, (const int32_t[]){0, 4, 7, 8}, 4);
    expect(r.sources, (const int32_t[]){1 * 4 + 0, 1 * 4 + 1, 1 * 4 + 2, 2 * 4 + 1}, 4);
    by__nodes_relations_free(&r);
    /* Only the edges from node 2 to 0 and from 0 to 1. */
    const by__nodes_set among = {
        .nodes = 3, .offsets = (const int64_t[]){0, 1, 2, 2}, .sources = (const int32_t[]){2, 0}};
    check_ok(by__nodes_relations_make(&r, "r", 3, pairs, types, 5, false, &among, &error), &error);
    assert_int_equal(r.relations, 2);
    assert_int_equal(r.edges, 2);
    expect(r.sources, (const int32_t[]){5, 0}, 2);
    by__nodes_relations_free(&r);
    check_error(by__nodes_relations_make(&r, "r", 3, pairs, wrong, 5, false, NULL, &error),
                BY_EFORMAT, &error, "r: edge 2 has relation -1");
    relation_hash(hashes[0], pairs, types);
    relation_hash(hashes[1], pairs, (const int32_t[]){1, 1, 0, 1, 1}); /* another one of an edge */
    relation_hash(hashes[2], pairs, (const int32_t[]){1, 1, 0, 1, 0});
    assert_string_not_equal(hashes[0], hashes[1]);
    assert_string_equal(hashes[0], hashes[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_edge_list),
        cmocka_unit_test(test_weight_list),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_archive),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_sampled_weights),
        cmocka_unit_test(test_common_sample),
        cmocka_unit_test(test_wide_fan_out),
        cmocka_unit_test(test_whole_surroundings),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_relations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
