/* Graphs of nodes: edges as rows and transposed, settings, files as others write them, lists of
 * edges, and which nodes are drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    *set = (by__nodes_set){.name = (char *)(uintptr_t) "g", .nodes = nodes};
    check_ok(by__nodes_set_edges(set, pairs, count, &options, &error), &error);
}

static void free_edges(by__nodes_set *set)
{
    free(set->offsets);
    free(set->sources);
    free(set->back_offsets);
    free(set->back_sources);
    free(set->back_edges);
    free(set->inverse_root);
    free(set->inverse_degree);
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
    expect(set.offsets, (const int32_t[]){0, 2, 2, 3, 4}, 5);
    expect(set.sources, (const int32_t[]){1, 2, 1, 0}, 4);
    expect(set.back_offsets, (const int32_t[]){0, 1, 3, 4, 4}, 5);
    expect(set.back_sources, (const int32_t[]){3, 0, 2, 0}, 4);
    expect(set.back_edges, (const int32_t[]){3, 0, 2, 1}, 4);
    assert_true(set.inverse_degree[0] == 0.5f && set.inverse_degree[1] == 0.0f);
    assert_true(set.inverse_root[1] == 0.0f && set.inverse_root[2] == 1.0f);
    free_edges(&set);
}

static void test_settings(void **state)
{
    static const int32_t pairs[][2] = {{0, 1}, {1, 0}, {2, 1}, {2, 2}};
    by__nodes_set set;
    BY_UNUSED(state);
    make_edges(&set, 3, pairs, 4, true, false);
    assert_int_equal(set.edges, 4);
    expect(set.offsets, (const int32_t[]){0, 1, 3, 4}, 4);
    expect(set.sources, (const int32_t[]){1, 0, 2, 1}, 4);
    free_edges(&set);
    make_edges(&set, 3, pairs, 4, true, true);
    assert_int_equal(set.edges, 7);
    expect(set.sources, (const int32_t[]){0, 1, 0, 1, 2, 1, 2}, 7);
    free_edges(&set);
    make_edges(&set, 3, pairs, 4, false, true);
    expect(set.offsets, (const int32_t[]){0, 2, 5, 6}, 4);
    free_edges(&set);
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
    check_ok(by__nodes_edge_list_parse(&pairs, &count, "e", text, sizeof text - 1, &error), &error);
    assert_int_equal(count, 4);
    expect(pairs[0], (const int32_t[]){0, 1, 2, 3, 4, 5, INT32_MAX - 1, 0}, 8);
    free(pairs);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        by_status status =
            by__nodes_edge_list_parse(&pairs, &count, "e", wrong[i], strlen(wrong[i]), &error);
        check_error(status, BY_EFORMAT, &error, "e: line 2 is not two numbers");
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
    expect(set->offsets, (const int32_t[]){0, 1, 3, 4, 4}, 5);
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
}

/* ---- samples ---- */

enum { ROOM = 64 };

typedef struct sampled {
    int32_t ids[ROOM], offsets[ROOM + 1], sources[ROOM];
    int32_t back_offsets[ROOM + 1], back_sources[ROOM], back_edges[ROOM];
} sampled;

static void draw(sampled *out, const by__nodes_sampling *sampling, const by__nodes_set *set,
                 int32_t id, uint64_t index)
{
    static const uint32_t key[2] = {3, 4};
    const by__nodes_sample to = {out->ids,          out->offsets,      out->sources,
                                 out->back_offsets, out->back_sources, out->back_edges};
    void *scratch = malloc(by__nodes_sample_scratch(sampling));
    assert_non_null(scratch);
    memset(out, 0x55, sizeof *out);
    by__nodes_sample_fill(&to, sampling, set, id, key, index, scratch);
    free(scratch);
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
    by_error error = {0};
    by__nodes_set set;
    sampled a;
    sampled b;
    int differ = 0;
    int drawn[30] = {0};
    by__nodes_sampling sampling = {.fan_outs = {4, 2}, .hops = 2};
    BY_UNUSED(state);
    open_star(&set);
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    assert_int_equal(sampling.nodes, 1 + 4 + 8);
    assert_int_equal(sampling.edges, 4 + 8);
    for (uint64_t i = 0; i < 500; i++) {
        draw(&a, &sampling, &set, 15, i);
        draw(&b, &sampling, &set, 15, i);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(a.ids[0], 15);
        assert_int_equal(a.offsets[1], 4);
        for (int k = 0; k < 4; k++) {
            drawn[a.ids[a.sources[k]]]++;
            assert_true(k == 0 || a.ids[a.sources[k]] > a.ids[a.sources[k - 1]]);
        }
        for (int k = a.offsets[13]; k < 12; k++) {
            assert_int_equal(a.sources[k], -1);
        }
        for (int k = 0; k < a.offsets[13]; k++) { /* the transpose */
            int32_t edge = a.back_edges[k];
            assert_true(a.back_sources[k] >= 0 && edge >= a.offsets[a.back_sources[k]] &&
                        edge < a.offsets[a.back_sources[k] + 1]);
            assert_true(k >= a.back_offsets[a.sources[edge]] &&
                        k < a.back_offsets[a.sources[edge] + 1]);
        }
        draw(&b, &sampling, &set, 15, i + 1);
        differ += memcmp(&a, &b, sizeof a) != 0;
    }
    assert_true(differ > 480);
    for (int i = 0; i < 30; i++) { /* 500 x 4 / 29 = 69, standard deviation 8 */
        assert_true(i == 15 ? drawn[i] == 0 : drawn[i] > 69 - 40 && drawn[i] < 69 + 40);
    }
    free_edges(&set);
}

/* With all edges, each node of the inner hops has its row of the graph. */
static void test_whole_surroundings(void **state)
{
    by_error error = {0};
    by__nodes_set set;
    sampled a;
    by__nodes_sampling sampling = {.fan_outs = {1000, 1000}, .hops = 2};
    BY_UNUSED(state);
    open_star(&set);
    check_ok(by__nodes_sampling_fit(&sampling, &set, &error), &error);
    assert_int_equal(sampling.nodes, 30);
    assert_int_equal(sampling.edges, set.edges);
    draw(&a, &sampling, &set, 15, 9);
    for (int i = 0; i < 30; i++) {
        int32_t begin = set.offsets[a.ids[i]];
        assert_int_equal(a.offsets[i + 1] - a.offsets[i], set.offsets[a.ids[i] + 1] - begin);
        for (int32_t k = a.offsets[i]; k < a.offsets[i + 1]; k++) {
            assert_int_equal(a.ids[a.sources[k]], set.sources[begin + k - a.offsets[i]]);
        }
    }
    free_edges(&set);
    sampling = (by__nodes_sampling){.fan_outs = {29, 29, 29, 29, 29, 29, 29, 29}, .hops = 8};
    open_star(&set);
    check_error(by__nodes_sampling_fit(&sampling, &set, &error), BY_ECONFIG, &error,
                "a sample would have more than");
    free_edges(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_edge_list),
        cmocka_unit_test(test_archive),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_whole_surroundings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
