/* Packed graphs: what is written is what was listed, with any threads and any memory; what is
 * refused, with its line; and damage of the files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/graph_pack.h"
#include "data/nodes/node_set.h"
#include "runner.h"
#include "temporary.h"

enum { NODES = 300, EDGES = 4000 };

static char *folder;
static char edges[512];
static char nodes[512];
static char output[512];

static int make_folder(void **state)
{
    BY_UNUSED(state);
    folder = temporary_make();
    (void)snprintf(edges, sizeof edges, "%s/edges.csv", folder);
    (void)snprintf(nodes, sizeof nodes, "%s/nodes.csv", folder);
    (void)snprintf(output, sizeof output, "%s/packed", folder);
    return 0;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

static void write_text(const char *path, const char *text)
{
    by_error error = {0};
    check_ok(by__file_write(path, text, strlen(text), &error), &error);
}

/* Node 7 has many edges. */
static void list_pairs(int32_t (*pairs)[2])
{
    for (size_t i = 0; i < EDGES; i++) {
        uint32_t bits[4];
        by__philox(bits, (const uint32_t[]){1, 2}, (const uint32_t[]){(uint32_t)i, 0, 0, 0});
        pairs[i][0] = (int32_t)(bits[0] % NODES);
        pairs[i][1] = bits[1] % 4 == 0 ? 7 : (int32_t)(bits[2] % NODES);
    }
}

static float weight_of(size_t i)
{
    return (float)(i * 37 % 101) / 16.0f;
}

static void write_graph(int32_t (*pairs)[2])
{
    by_string text = {0};
    by_error error = {0};
    by_string_format(&text, "source,target,weight\n");
    for (size_t i = 0; i < EDGES; i++) {
        by_string_format(&text, "%d,%d,%g\n", pairs[i][0], pairs[i][1], (double)weight_of(i));
    }
    check_ok(by__file_write(edges, text.data, text.length, &error), &error);
    by_string_free(&text);
    by_string_format(&text, "id,a,label,b,split\n");
    for (int i = 0; i < NODES; i++) {
        by_string_format(&text, "%d,%d.25,%d, -%de-2 ,%s\r\n", i, i, i % 4 - 1, i,
                         i % 5 == 0   ? "train"
                         : i % 5 == 1 ? "valid"
                         : i == 2     ? "test"
                                      : "");
    }
    check_ok(by__file_write(nodes, text.data, text.length, &error), &error);
    by_string_free(&text);
}

static by_graph_pack_options options_of(void)
{
    static const char *inputs[1];
    inputs[0] = edges;
    return (by_graph_pack_options){.inputs = inputs,
                                   .input_count = 1,
                                   .output = output,
                                   .nodes = nodes,
                                   .corrupt_budget = 0.5,
                                   .threads = 1};
}

static by_graph_pack_result pack(const by_graph_pack_options *options)
{
    by_error error = {0};
    by_graph_pack_result result;
    check_ok(by__remove_tree(output, &error), &error);
    check_ok(by_graph_pack(options, &result, &error), &error);
    return result;
}

static by__nodes_set *open_packed(void)
{
    by_error error = {0};
    by__nodes_set *set;
    const by__nodes_options options = {.graph = output, .features = "", .labels = ""};
    check_ok(by__nodes_set_open(&set, &options, &error), &error);
    return set;
}

static void hash_files(char out[BY__NODES_ARRAYS][33])
{
    by_error error = {0};
    memset(out, 0, BY__NODES_ARRAYS * sizeof out[0]);
    for (size_t i = 0; i < BY__NODES_ARRAYS; i++) {
        char *path = by__path_join(output, by__nodes_array_name((by__nodes_array)i));
        if (by__path_exists(path)) {
            check_ok(by__hash_file_hex(out[i], path, &error), &error);
        }
        free(path);
    }
}

static void check_nodes(const by__nodes_set *set)
{
    assert_true(set->features == 2 && set->classes == 3);
    for (int i = 0; i < NODES; i++) {
        float x[2];
        by__nodes_set_row(set, i, x);
        assert_true(x[0] == (float)i + 0.25f && x[1] == (float)(-i * 0.01));
        assert_int_equal(set->labels[i], i % 4 - 1);
    }
    assert_true(set->split.train_count == 60 && set->split.train[1] == 5);
    assert_true(set->split.valid_count == 60 && set->split.valid[1] == 6);
    assert_true(set->split.test_count == 1 && set->split.test[0] == 2);
}

/* The same rows as those that are made in memory, whatever the options of speed. */
static void test_rows(void **state)
{
    static const struct {
        bool directed;
        by_graph_loops loops;
        uint64_t memory;
        size_t threads;
        bool weights;
    } cases[] = {{false, BY_LOOPS_DROP, 0, 1, false},   {false, BY_LOOPS_DROP, 4096, 1, false},
                 {false, BY_LOOPS_DROP, 0, 3, false},   {false, BY_LOOPS_DROP, 1, 4, false},
                 {true, BY_LOOPS_ADD, 0, 1, false},     {true, BY_LOOPS_ADD, 2048, 2, false},
                 {false, BY_LOOPS_ADD, 2048, 2, false}, {false, BY_LOOPS_DROP, 0, 1, true},
                 {false, BY_LOOPS_ADD, 4096, 3, true},  {true, BY_LOOPS_ADD, 0, 2, true}};
    static float weights[EDGES];
    static int32_t pairs[EDGES][2];
    char hashes[2][BY__NODES_ARRAYS][33];
    by_error error = {0};
    BY_UNUSED(state);
    list_pairs(pairs);
    write_graph(pairs);
    for (size_t i = 0; i < EDGES; i++) {
        weights[i] = weight_of(i);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__nodes_set memory = {.name = by__strdup("g"), .nodes = NODES};
        by_graph_pack_options o = options_of();
        const by__nodes_options same = {.symmetric = !cases[i].directed,
                                        .self_loops = cases[i].loops == BY_LOOPS_ADD};
        o.directed = cases[i].directed;
        o.loops = cases[i].loops;
        o.memory = cases[i].memory;
        o.threads = cases[i].threads;
        o.weights = cases[i].weights;
        by_graph_pack_result result = pack(&o);
        by__nodes_set *set = open_packed();
        check_ok(by__nodes_set_weighted_edges(&memory, (const int32_t(*)[2])pairs,
                                              cases[i].weights ? weights : NULL, EDGES, &same,
                                              &error),
                 &error);
        assert_int_equal(set->edges, memory.edges);
        assert_int_equal(result.edges, memory.edges);
        assert_int_equal(result.listed, EDGES);
        assert_memory_equal(set->offsets, memory.offsets, (NODES + 1) * sizeof(int64_t));
        assert_memory_equal(set->sources, memory.sources, (size_t)set->edges * sizeof(int32_t));
        assert_int_equal((uintptr_t)set->sources % 4096, 0);
        assert_true((set->weights != NULL) == cases[i].weights);
        if (cases[i].weights) {
            assert_memory_equal(set->weights, memory.weights, (size_t)set->edges * sizeof(float));
            assert_memory_equal(set->degrees, memory.degrees, NODES * sizeof(float));
        }
        check_nodes(set);
        hash_files(hashes[i > 0]);
        assert_true(i == 0 || i > 3 || memcmp(hashes[0], hashes[1], sizeof hashes[0]) == 0);
        by__nodes_set_clear(&memory);
        by__nodes_set_close(&set);
    }
}

static void test_stored_features(void **state)
{
    by_graph_pack_options o = options_of();
    static const char *const types[] = {"f16", "u8"};
    BY_UNUSED(state);
    for (int k = 0; k < 2; k++) {
        o.store = types[k];
        (void)pack(&o);
        by__nodes_set *set = open_packed();
        for (int i = 0; i < NODES; i++) {
            float x[2];
            float want[2] = {(float)i + 0.25f, (float)(-i * 0.01)};
            by__nodes_set_row(set, i, x);
            for (int c = 0; c < 2; c++) {
                float range = c == 0 ? 299.0f : 2.99f;
                float bound =
                    k == 0 ? 0.0005f * (want[c] < 0 ? -want[c] : want[c]) : range / 255.0f * 0.51f;
                assert_true(x[c] - want[c] <= bound && want[c] - x[c] <= bound);
            }
        }
        by__nodes_set_close(&set);
    }
    o.store = "f64";
    by_error error = {0};
    check_ok(by__remove_tree(output, &error), &error);
    check_error(by_graph_pack(&o, NULL, &error), BY_EARG, &error, "f32, f16 or u8, not 'f64'");
}

/* What is refused, and what remains if it is left out. */
static void test_policies(void **state)
{
    static const struct {
        const char *text;
        const char *message;
    } wrong[] = {{"from,to\n0,1\n2,x\n", "edges.csv: line 3 is not two numbers of nodes"},
                 {"0,1\n\n# 1\n1,4\n", "edges.csv: line 4 has node 4; there are 3"},
                 {"0,1\n1,99999999999\n", "edges.csv: line 2 is not two numbers of nodes"},
                 {"0,1\n0\n", "edges.csv: line 2 is not"},
                 {"", "there are no edges"},
                 {"1 1\n", "there are no edges between different nodes"}};
    by_graph_pack_options o = options_of();
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(by__remove_tree(output, &error), &error);
    write_text(nodes, "x\n1\n2\n3\n");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        write_text(edges, wrong[i].text);
        by_status status = by_graph_pack(&o, NULL, &error);
        check_error(status, BY_EFORMAT, &error, wrong[i].message);
        assert_false(by__path_exists(output));
    }
    write_text(edges, "0,1\n1,1\n1,9\nx\n2,1\n1,0\n0,1\n");
    o.skip_corrupt = true;
    by_graph_pack_result r = pack(&o);
    assert_true(r.edges == 4 && r.skipped == 2 && r.loops == 1 && r.duplicates == 4);
    o.corrupt_budget = 1;
    check_ok(by__remove_tree(output, &error), &error);
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error,
                "2 of 7 lines of edges are damaged");
    o = options_of();
    write_text(edges, "0,1\n1,1\n2,1\n1,0\n2,1\n");
    o.loops = BY_LOOPS_FAIL;
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error,
                "line 2 is an edge from node 1 to itself");
    o.loops = BY_LOOPS_KEEP;
    r = pack(&o);
    assert_true(r.edges == 5 && r.loops == 1);
    check_ok(by__remove_tree(output, &error), &error);
    o.refuse_duplicates = true;
    check_error(
        by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error,
        "line 4 is the edge from node 1 to node 0 for the second time, in either direction");
    o.directed = true;
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error,
                "line 5 is the edge from node 2 to node 1 for the second time");
}

static void test_wrong_nodes(void **state)
{
    static const struct {
        const char *text;
        const char *message;
    } wrong[] = {{"id,x\n0,1\n2,1\n", "line 3 is not node 1"},
                 {"x,label\n1,0\n2,one\n", "line 3, column 2 is no class"},
                 {"x,y\n1,0\n2\n", "line 3, column 2 is missing"},
                 {"x,y\n1,0,4\n", "line 2, column 3 is too many"},
                 {"x,y\n1,nan\n", "line 2, column 2 is no finite number"},
                 {"x,split\n1,dev\n", "line 2, column 2 is none of train, valid and test"},
                 {"x,label,label\n1,1,1\n", "column 3 is there for the second time"},
                 {"x\n", "has lines of 0 nodes"},
                 {"", "nodes.csv is empty"}};
    by_graph_pack_options o = options_of();
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(by__remove_tree(output, &error), &error);
    write_text(edges, "0,1\n");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        write_text(nodes, wrong[i].text);
        by_status status = by_graph_pack(&o, NULL, &error);
        check_error(status, BY_EFORMAT, &error, wrong[i].message);
    }
    write_text(nodes, "id,label\n0,1\n1,1\n");
    check_error(by_graph_pack(&o, NULL, &error), BY_EARG, &error, "no columns of features");
    o.nodes = NULL;
    check_error(by_graph_pack(&o, NULL, &error), BY_EARG, &error, "has edges alone");
    char path[600];
    (void)snprintf(path, sizeof path, "%s.partial/mine", output);
    o = options_of();
    (void)snprintf(path, sizeof path, "%s.partial", output);
    check_ok(by__make_dirs(path, &error), &error);
    (void)snprintf(path, sizeof path, "%s.partial/mine", output);
    write_text(path, "x");
    check_error(by_graph_pack(&o, NULL, &error), BY_EARG, &error, "is in the way");
    (void)snprintf(path, sizeof path, "%s.partial", output);
    check_ok(by__remove_tree(path, &error), &error);
}

/* A directory as the Open Graph Benchmark has them. */
static void test_benchmark(void **state)
{
    static const struct {
        const char *name;
        const char *text;
    } files[] = {{"raw/edge.csv", "0,1\n1,2\n3,0\n"},
                 {"raw/num-node-list.csv", "4\n"},
                 {"raw/node-feat.csv", "0.5,1\n1.5,2\n2.5,3\n-0.125,4e2\n"},
                 {"raw/node-label.csv", "0\nnan\n2\n1\n"},
                 {"split/time/train.csv", "0\n2\n"},
                 {"split/time/valid.csv", "3\n"},
                 {"split/other/train.csv", "3\n"}};
    by_graph_pack_options o = options_of();
    const char *input = folder;
    char path[600];
    by_error error = {0};
    BY_UNUSED(state);
    for (int i = 0; i < 3; i++) {
        static const char *const made[] = {"raw", "split/time", "split/other"};
        (void)snprintf(path, sizeof path, "%s/%s", folder, made[i]);
        check_ok(by__make_dirs(path, &error), &error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        write_text(path, files[i].text);
    }
    o.inputs = &input;
    o.nodes = NULL;
    check_ok(by__remove_tree(output, &error), &error);
    check_error(by_graph_pack(&o, NULL, &error), BY_EARG, &error, "has the splits other, time");
    o.split = "time";
    (void)pack(&o);
    by__nodes_set *set = open_packed();
    float x[2];
    by__nodes_set_row(set, 3, x);
    assert_true(set->nodes == 4 && set->edges == 6 && set->classes == 3 && set->labels[1] == -1);
    assert_true(x[0] == -0.125f && x[1] == 400.0f);
    assert_true(set->split.train_count == 2 && set->split.train[1] == 2);
    assert_true(set->split.valid_count == 1 && set->split.test_count == 0);
    by__nodes_set_close(&set);
    o.weights = true;
    check_ok(by__remove_tree(output, &error), &error);
    check_error(by_graph_pack(&o, NULL, &error), BY_EARG, &error, "has no weights of edges");
    (void)snprintf(path, sizeof path, "%s/raw/edge_weight.csv", folder);
    write_text(path, "0.5\n2\n");
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error, "has 2 weights of 3 edges");
    write_text(path, "0.5\n2\n-3\n");
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error, "edge 2 has weight -3");
    write_text(path, "0.5\n2\n3\n");
    (void)pack(&o);
    set = open_packed();
    assert_memory_equal(set->sources, ((const int32_t[]){1, 3, 0, 2, 1, 0}), 6 * sizeof(int32_t));
    assert_memory_equal(set->weights, ((const float[]){0.5f, 3, 0.5f, 2, 2, 3}), 6 * sizeof(float));
    by__nodes_set_close(&set);
    o.weights = false;
    (void)snprintf(path, sizeof path, "%s/raw/num-node-list.csv", folder);
    write_text(path, "4\n3\n");
    check_ok(by__remove_tree(output, &error), &error);
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error, "is of 2 graphs");
    write_text(path, "5\n");
    check_error(by_graph_pack(&o, NULL, &error), BY_EFORMAT, &error,
                "lines of 4 nodes; there are 5");
}

static void flip(const char *name, long offset, int bits)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", output, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, offset, SEEK_SET), 0);
    assert_int_equal(fputc(c ^ bits, f), c ^ bits);
    assert_int_equal(fclose(f), 0);
}

static void test_damage(void **state)
{
    static const struct {
        const char *name;
        long offset;
        const char *message;
    } places[] = {{"sources.npy", 4096, "sources.npy: damaged"},
                  {"features.npy", 4099, "features.npy: damaged"},
                  {"labels.npy", 4096, "labels.npy: damaged"},
                  {"offsets.npy", 20, "offsets.npy is not the array"},
                  {"manifest.json", 5, "manifest.json"}};
    by_graph_pack_options o = options_of();
    by_error error = {0};
    by__nodes_set *set;
    by__nodes_options open = {.graph = output, .features = "", .labels = ""};
    BY_UNUSED(state);
    write_text(edges, "0,1\n1,2\n");
    write_text(nodes, "x,label\n1,0\n2,1\n3,0\n");
    (void)pack(&o);
    set = open_packed();
    by__nodes_set_close(&set);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(places); i++) {
        flip(places[i].name, places[i].offset, 1);
        check_error(by__nodes_set_open(&set, &open, &error), BY_EFORMAT, &error, places[i].message);
        flip(places[i].name, places[i].offset, 1);
        set = open_packed();
        by__nodes_set_close(&set);
    }
    open.self_loops = true;
    check_error(by__nodes_set_open(&set, &open, &error), BY_ECONFIG, &error, "--self-loops add");
    open.self_loops = false;
    open.weighted = true;
    check_error(by__nodes_set_open(&set, &open, &error), BY_ECONFIG, &error, "--weights");
    open.weighted = false;
    open.labels = "labels.npy";
    check_error(by__nodes_set_open(&set, &open, &error), BY_ECONFIG, &error, "of its own");
    open.labels = "";
    char manifest[600];
    (void)snprintf(manifest, sizeof manifest, "%s/manifest.json", output);
    assert_int_equal(remove(manifest), 0);
    check_error(by__nodes_set_open(&set, &open, &error), BY_EFORMAT, &error,
                "is a directory without a manifest.json");
    open.graph = edges;
    write_text(edges, "source,target\n# nothing\n");
    check_error(by__nodes_set_open(&set, &open, &error), BY_EFORMAT, &error, "there are no edges");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_stored_features),
        cmocka_unit_test(test_policies),  cmocka_unit_test(test_wrong_nodes),
        cmocka_unit_test(test_benchmark), cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
