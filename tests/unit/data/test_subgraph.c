/* Parts of a graph as samples: what the partition keeps and cuts, random walks, clusters, the edges
 * between the nodes of a sample, and estimates that make sums and losses right on average. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/nodes/partition/partition.h"
#include "data/nodes/subgraph/subgraph.h"
#include "runner.h"
#include "temporary.h"

enum { GROUPS = 6, EACH = 40, NODES = GROUPS * EACH, FEATURES = 3, MOST = 4096 };

static uint32_t drawn;
static uint32_t draw_below(uint32_t limit)
{
    uint32_t bits[4];
    const uint32_t key[2] = {5, 6};
    const uint32_t counter[4] = {drawn++, 0, 0, 0};
    by__philox(bits, key, counter);
    return (uint32_t)((uint64_t)bits[0] * limit >> 32);
}

static void make_set(by__nodes_set *set, int64_t nodes, const int32_t (*pairs)[2], uint64_t count,
                     bool symmetric, bool self_loops)
{
    by_error error = {0};
    const by__nodes_options options = {.symmetric = symmetric, .self_loops = self_loops};
    *set = (by__nodes_set){.name = by__strdup("g"), .nodes = nodes};
    check_ok(by__nodes_set_edges(set, pairs, count, &options, &error), &error);
}

/* Groups whose nodes know eight others of theirs, and one node in five another one. */
static void make_groups(by__nodes_set *set)
{
    static int32_t pairs[NODES * 9][2];
    static float x[NODES * FEATURES];
    static int32_t labels[NODES];
    uint64_t count = 0;
    for (int32_t v = 0; v < NODES; v++) {
        labels[v] = v % GROUPS;
        for (int k = 0; k < FEATURES; k++) {
            x[v * FEATURES + k] = (float)(v * 7 % 11 + k);
        }
        for (int k = 0; k < 9; k++) {
            int32_t other = v % GROUPS + GROUPS * (int32_t)draw_below(EACH);
            if (k == 8) {
                other = v % 5 == 0 ? (int32_t)draw_below(NODES) : v;
            }
            pairs[count][0] = v;
            pairs[count++][1] = other;
        }
    }
    make_set(set, NODES, (const int32_t(*)[2])pairs, count, true, false);
    set->x = x;
    set->features = FEATURES;
    set->labels = labels;
    set->classes = GROUPS;
    memset(set->hash, 'a', 32);
}

/* ---- partitions ---- */

static void cut_into(int32_t *parts, const by__nodes_set *set, int64_t count, uint64_t seed)
{
    by_error error = {0};
    int64_t sizes[256] = {0};
    assert_true(count <= 256);
    check_ok(
        by__nodes_partition(parts, set->offsets, set->sources, set->nodes, count, seed, &error),
        &error);
    for (int64_t v = 0; v < set->nodes; v++) {
        assert_true(parts[v] >= 0 && parts[v] < count);
        sizes[parts[v]]++;
    }
    for (int64_t i = 0; i < count; i++) {
        assert_true(sizes[i] > 0);
        assert_true((double)sizes[i] <=
                    ceil(BY__NODES_IMBALANCE * (double)set->nodes / (double)count));
    }
}

static int64_t edges_cut(const int32_t *parts, const by__nodes_set *set)
{
    int64_t cut = 0;
    for (int64_t v = 0; v < set->nodes; v++) {
        for (int64_t k = set->offsets[v]; k < set->offsets[v + 1]; k++) {
            cut += parts[v] != parts[set->sources[k]] ? 1 : 0;
        }
    }
    return cut;
}

/* Of a grid of 40 x 40, eight rectangles of 20 x 10 cut 160 edges, each of which is there twice. */
static void test_grid(void **state)
{
    static int32_t pairs[2 * 1600][2];
    static int32_t parts[2][1600];
    by__nodes_set set;
    uint64_t count = 0;
    BY_UNUSED(state);
    for (int32_t v = 0; v < 1600; v++) {
        const int32_t next[2] = {v % 40 < 39 ? v + 1 : -1, v + 40 < 1600 ? v + 40 : -1};
        for (int k = 0; k < 2; k++) {
            if (next[k] >= 0) {
                pairs[count][0] = v;
                pairs[count++][1] = next[k];
            }
        }
    }
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        make_set(&set, 1600, (const int32_t(*)[2])pairs, count, symmetric, symmetric);
        cut_into(parts[0], &set, 8, 3);
        int64_t cut = edges_cut(parts[0], &set);
        print_message("a grid: %lld of %lld edges cut\n", (long long)cut, (long long)set.edges);
        assert_true(cut <= (symmetric ? 2 : 1) * 230);
        cut_into(parts[1], &set, 8, 3);
        assert_memory_equal(parts[0], parts[1], sizeof parts[0]);
        cut_into(parts[1], &set, 8, 4);
        assert_memory_not_equal(parts[0], parts[1], sizeof parts[0]);
        by__nodes_set_clear(&set);
    }
}

static void test_groups(void **state)
{
    by__nodes_set set;
    int32_t parts[NODES];
    int right = 0;
    BY_UNUSED(state);
    make_groups(&set);
    cut_into(parts, &set, GROUPS, 1);
    for (int v = GROUPS; v < NODES; v++) {
        right += parts[v] == parts[v % GROUPS] ? 1 : 0;
    }
    assert_true(right >= NODES - GROUPS - 4);
    cut_into(parts, &set, NODES, 1); /* as many parts as nodes */
    cut_into(parts, &set, 1, 1);
    by__nodes_set_clear(&set);
}

/* Of a graph with one edge in ten between its parts, a partition into as many cuts hardly more. */
static void test_many_parts(void **state)
{
    enum { PARTS = 200, SIZE = 60, ALL = PARTS * SIZE, EDGES = 6 * ALL };
    static int32_t pairs[EDGES][2];
    static int32_t parts[ALL];
    static int32_t made[ALL];
    by__nodes_set set;
    BY_UNUSED(state);
    for (int32_t v = 0; v < ALL; v++) {
        made[v] = v % PARTS;
    }
    for (int32_t i = 0; i < EDGES; i++) {
        int32_t from = i % ALL;
        pairs[i][0] = from;
        pairs[i][1] = draw_below(10) == 0 ? (int32_t)draw_below(ALL)
                                          : (int32_t)draw_below(SIZE) * PARTS + from % PARTS;
    }
    make_set(&set, ALL, (const int32_t(*)[2])pairs, EDGES, true, false);
    cut_into(parts, &set, PARTS, 1);
    int64_t cut = edges_cut(parts, &set);
    int64_t least = edges_cut(made, &set);
    print_message("%d parts: %lld of %lld edges cut, %lld between those made\n", PARTS,
                  (long long)cut, (long long)set.edges, (long long)least);
    assert_true(cut <= least + least / 20);
    by__nodes_set_clear(&set);
}

/* The leaves of a star have one neighbour, and some nodes have none. */
static void test_star(void **state)
{
    static int32_t pairs[1500][2];
    static int32_t parts[2000];
    by__nodes_set set;
    BY_UNUSED(state);
    for (int32_t i = 0; i < 1500; i++) {
        pairs[i][0] = i + 1;
    }
    make_set(&set, 2000, (const int32_t(*)[2])pairs, 1500, true, false);
    cut_into(parts, &set, 20, 1);
    by__nodes_set_clear(&set);
}

/* ---- samples ---- */

typedef struct sample_arrays {
    int32_t ids[MOST], labels[MOST];
    float weight[MOST], x[MOST * FEATURES], root[MOST], into[MOST], degree[MOST];
    int32_t offsets[MOST + 1], sources[MOST], back_offsets[MOST + 1], back_sources[MOST];
    int32_t back_edges[MOST];
    float weights[MOST];
} sample_arrays;

static void fill_sample(sample_arrays *out, const by_source *source, uint64_t index, uint64_t seed)
{
    by_error error = {0};
    uint64_t targets;
    uint64_t found = 0;
    void *const rows[] = {out->ids,     out->labels,       out->weight,       out->x,
                          out->root,    out->into,         out->degree,       out->offsets,
                          out->sources, out->back_offsets, out->back_sources, out->back_edges,
                          out->weights};
    by_source_sample sample = {
        .index = index, .place = index, .epoch = index / source->samples, .seed = seed};
    sample.scratch = malloc(source->scratch);
    assert_non_null(sample.scratch);
    memset(sample.scratch, (int)(index % 251), source->scratch); /* what others left there */
    memset(out, 0x55, sizeof *out);
    check_ok(source->fill(source, &sample, rows, &error), &error);
    check_ok(source->count(source, &sample, &targets, &error), &error);
    free(sample.scratch);
    int64_t room = source->arrays[0].shape.dim[0];
    for (int64_t i = 0; i < room; i++) {
        found += out->labels[i] >= 0 ? 1 : 0;
        assert_true((out->labels[i] >= 0) == (out->weight[i] > 0.0f));
    }
    assert_int_equal(found, targets);
}

/* The edges of a sample are all those between its nodes, and the transpose is right. */
static void check_edges(const sample_arrays *a, const by__nodes_subgraphs *s)
{
    bool in[NODES] = {false};
    int64_t nodes = 0;
    for (; nodes < s->nodes && a->ids[nodes] >= 0; nodes++) {
        assert_false(in[a->ids[nodes]]);
        in[a->ids[nodes]] = true;
    }
    for (int64_t i = 0; i < nodes; i++) {
        int32_t at = a->offsets[i];
        for (int64_t k = s->set->offsets[a->ids[i]]; k < s->set->offsets[a->ids[i] + 1]; k++) {
            if (in[s->set->sources[k]]) {
                assert_int_equal(a->ids[a->sources[at]], s->set->sources[k]);
                at++;
            }
        }
        assert_int_equal(a->offsets[i + 1], at);
        assert_true(a->x[i * FEATURES] == (float)(a->ids[i] * 7 % 11));
        if (s->edge_factors == NULL) {
            assert_true(a->root[i] == by__nodes_inverse_root(at - a->offsets[i]));
            assert_true(a->degree[i] == by__nodes_inverse_degree(at - a->offsets[i]));
        }
        assert_true(a->root[i] == a->into[i]);
    }
    for (int64_t i = nodes; i < s->nodes; i++) {
        assert_true(a->ids[i] == -1 && a->labels[i] == -1 &&
                    a->offsets[i + 1] == a->offsets[nodes]);
    }
    int32_t edges = a->offsets[nodes];
    assert_true(edges <= s->edges && a->back_offsets[s->nodes] == edges);
    for (int32_t k = 0; k < edges; k++) {
        int32_t edge = a->back_edges[k];
        int32_t row = a->back_sources[k];
        assert_true(edge >= a->offsets[row] && edge < a->offsets[row + 1]);
    }
    for (int64_t k = edges; k < s->edges; k++) {
        assert_true(a->sources[k] == -1 && a->back_edges[k] == -1);
    }
}

static by__nodes_subgraphs *open_samples(const by__nodes_set *set, const uint64_t *ids,
                                         uint64_t count, const by__nodes_subgraph_options *o)
{
    by__nodes_subgraphs *s;
    by_error error = {0};
    check_ok(by__nodes_subgraphs_open(&s, set, ids, count, o, &error), &error);
    assert_true(s->nodes <= MOST && s->edges <= MOST);
    return s;
}

static by_source *open_source(const by__nodes_subgraphs *s, const uint64_t *ids, uint64_t count,
                              bool shuffle)
{
    by_source *source;
    by_error error = {0};
    check_ok(by__nodes_subgraph_source_open(&source, s, ids, count, shuffle, &error), &error);
    return source;
}

/* Nodes to train on are the even ones of the first 200. */
enum { TRAINED = 100, HELD = 20 };
static void list_ids(uint64_t trained[TRAINED], uint64_t held[HELD])
{
    for (uint64_t i = 0; i < TRAINED; i++) {
        trained[i] = 2 * i;
    }
    for (uint64_t i = 0; i < HELD; i++) {
        held[i] = 2 * i + 1;
    }
}

static void test_walks(void **state)
{
    static sample_arrays a;
    static sample_arrays b;
    by__nodes_set set;
    uint64_t trained[TRAINED];
    uint64_t held[HELD];
    int roots[NODES] = {0};
    const by__nodes_subgraph_options o = {.kind = "walks", .roots = 8, .length = 5, .seed = 2};
    BY_UNUSED(state);
    make_groups(&set);
    list_ids(trained, held);
    by__nodes_subgraphs *s = open_samples(&set, trained, TRAINED, &o);
    by_source *source = open_source(s, trained, TRAINED, true);
    assert_int_equal(s->nodes, 8 * 6);
    assert_int_equal(source->samples, 13);
    for (uint64_t i = 0; i < 26; i++) { /* two epochs */
        fill_sample(&a, source, i, 9);
        fill_sample(&b, source, i, 9);
        assert_memory_equal(&a, &b, sizeof a);
        check_edges(&a, s);
        for (int k = 0; k < (i % 13 == 12 ? 4 : 8); k++) {
            roots[a.ids[k]]++;
        }
        for (int k = 0; k < s->nodes && a.ids[k] >= 0; k++) {
            bool target = a.ids[k] % 2 == 0 && a.ids[k] < 2 * TRAINED;
            assert_int_equal(a.labels[k], target ? a.ids[k] % GROUPS : -1);
        }
        fill_sample(&b, source, i, 10);
        assert_memory_not_equal(a.ids, b.ids, sizeof a.ids);
    }
    for (int v = 0; v < NODES; v++) {
        assert_int_equal(roots[v], v % 2 == 0 && v < 2 * TRAINED ? 2 : 0);
    }
    by_source_close(&source);
    source = open_source(s, held, HELD, false);
    int seen[NODES] = {0};
    for (uint64_t i = 0; i < 4; i++) { /* the last one is padding */
        fill_sample(&a, source, i, 9);
        check_edges(&a, s);
        for (int k = 0; k < s->nodes; k++) {
            seen[a.labels[k] >= 0 ? a.ids[k] : NODES - 1]++;
        }
    }
    for (int v = 0; v < NODES - 1; v++) {
        assert_int_equal(seen[v], v % 2 == 1 && v < 2 * HELD ? 1 : 0);
    }
    by_source_close(&source);
    by__nodes_subgraphs_close(&s);
    by__nodes_set_clear(&set);
}

/* With room for fewer edges than there are, those that are left are spread over all rows. */
static void test_room(void **state)
{
    static sample_arrays a;
    by__nodes_set set;
    uint64_t trained[TRAINED];
    uint64_t held[HELD];
    const by__nodes_subgraph_options o = {.kind = "clusters", .clusters = 1, .together = 1};
    BY_UNUSED(state);
    make_groups(&set);
    list_ids(trained, held);
    by__nodes_subgraphs *s = open_samples(&set, trained, TRAINED, &o);
    assert_true(s->nodes == NODES && s->edges == set.edges);
    s->edges = set.edges / 2;
    by_source *source = open_source(s, trained, TRAINED, true);
    fill_sample(&a, source, 0, 1);
    assert_int_equal(a.offsets[NODES], s->edges);
    for (int64_t v = 0; v < NODES; v++) {
        int64_t have = a.offsets[v + 1] - a.offsets[v];
        int64_t all = by__nodes_set_degree(&set, v);
        assert_true(2 * have >= all - 2 && 2 * have <= all + 2);
    }
    by_source_close(&source);
    by__nodes_subgraphs_close(&s);
    by__nodes_set_clear(&set);
}

/* Over many samples, the weighted loss is the mean over nodes, and the weighted sum over a node's
 * edges in samples that have it is that over all of its edges. */
static void test_estimates(void **state)
{
    static sample_arrays a;
    static double sums[NODES];
    static double met[NODES];
    static double plain[NODES];
    enum { SAMPLES = 3900, OFTEN = 300 };
    by__nodes_set set;
    uint64_t trained[TRAINED];
    uint64_t held[HELD];
    double loss = 0.0;
    double mean = 0.0;
    double right = 0.0;
    double without = 0.0;
    double often = 0.0;
    const by__nodes_subgraph_options o = {
        .kind = "walks", .roots = 10, .length = 2, .coverage = 300, .seed = 2};
    BY_UNUSED(state);
    make_groups(&set);
    list_ids(trained, held);
    by__nodes_subgraphs *s = open_samples(&set, trained, TRAINED, &o);
    by_source *source = open_source(s, trained, TRAINED, true);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        by_error error = {0};
        double weight;
        const by_source_sample sample = {.index = i};
        fill_sample(&a, source, i, 77);
        check_ok(source->weigh(source, &sample, &weight, &error), &error);
        assert_true(weight == 1.0);
        for (int k = 0; k < s->nodes && a.ids[k] >= 0; k++) {
            int32_t id = a.ids[k];
            loss += a.labels[k] >= 0 ? (double)a.weight[k] * (double)(id % 13) : 0.0;
            met[id] += 1.0;
            for (int32_t e = a.offsets[k]; e < a.offsets[k + 1]; e++) {
                double value = 1.0 + a.ids[a.sources[e]] % 3;
                sums[id] += (double)a.weights[e] * value;
                plain[id] += value;
            }
            assert_true(a.root[k] == by__nodes_inverse_root(by__nodes_set_weights(&set, id)));
        }
    }
    for (uint64_t i = 0; i < TRAINED; i++) {
        mean += (double)(trained[i] % 13) / TRAINED;
    }
    for (int32_t v = 0; v < NODES; v++) {
        double all = 0.0;
        for (int64_t k = set.offsets[v]; k < set.offsets[v + 1]; k++) {
            all += 1.0 + set.sources[k] % 3;
        }
        if (met[v] >= OFTEN) {
            often += 1.0;
            right += sums[v] / met[v] / all;
            without += plain[v] / met[v] / all;
        }
    }
    print_message("loss %.4f of %.4f; sums of %.0f nodes: %.4f of 1, and %.4f without factors\n",
                  loss / SAMPLES, mean, often, right / often, without / often);
    assert_true(fabs(loss / SAMPLES / mean - 1.0) < 0.02);
    assert_true(often > 100.0 && fabs(right / often - 1.0) < 0.03 && without / often < 0.7);
    by_source_close(&source);
    by__nodes_subgraphs_close(&s);
    by__nodes_set_clear(&set);
}

static void test_clusters(void **state)
{
    static sample_arrays a;
    by__nodes_set set;
    uint64_t trained[TRAINED];
    uint64_t held[HELD];
    by_error error = {0};
    by__nodes_subgraph_options o = {.kind = "clusters", .clusters = 12, .together = 5, .seed = 2};
    BY_UNUSED(state);
    make_groups(&set);
    list_ids(trained, held);
    by__nodes_subgraphs *s = open_samples(&set, trained, TRAINED, &o);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        by_source *source =
            open_source(s, shuffle ? trained : held, shuffle ? TRAINED : HELD, shuffle);
        assert_int_equal(source->samples, 3);
        for (uint64_t epoch = 0; epoch < (shuffle ? 4 : 1); epoch++) {
            int seen[NODES] = {0};
            int labels = 0;
            for (uint64_t i = 0; i < 3; i++) {
                fill_sample(&a, source, 3 * epoch + i, 9);
                check_edges(&a, s);
                for (int k = 0; k < s->nodes && a.ids[k] >= 0; k++) {
                    seen[a.ids[k]]++;
                    labels += a.labels[k] >= 0 ? 1 : 0;
                }
            }
            for (int v = 0; v < NODES; v++) {
                assert_int_equal(seen[v], 1);
            }
            assert_int_equal(labels, shuffle ? TRAINED : HELD);
        }
        by_source_close(&source);
    }
    by__nodes_subgraphs_close(&s);
    o.clusters = NODES + 1;
    check_error(by__nodes_subgraphs_open(&s, &set, trained, TRAINED, &o, &error), BY_ECONFIG,
                &error, "data.clusters is 241");
    o = (by__nodes_subgraph_options){.kind = "walks", .roots = TRAINED + 1, .length = 1};
    check_error(by__nodes_subgraphs_open(&s, &set, trained, TRAINED, &o, &error), BY_ECONFIG,
                &error, "data.sample_targets 101 are more than the 100 nodes");
    by__nodes_set_clear(&set);
}

/* Clusters are kept in a file, which is made again if it is damaged or of another graph. */
static void test_kept_clusters(void **state)
{
    by__nodes_set set;
    char path[700];
    char *whole;
    char *again;
    size_t length;
    size_t length_again;
    uint64_t trained[TRAINED];
    uint64_t held[HELD];
    by_error error = {0};
    char *folder = temporary_make();
    const by__nodes_subgraph_options o = {
        .kind = "clusters", .clusters = 12, .together = 1, .seed = 2, .directory = folder};
    BY_UNUSED(state);
    make_groups(&set);
    list_ids(trained, held);
    (void)snprintf(path, sizeof path, "%s/clusters-12-2.bin", folder);
    by__nodes_subgraphs *s = open_samples(&set, trained, TRAINED, &o);
    check_ok(by__file_read(&whole, &length, path, MOST, &error), &error);
    for (int damage = 0; damage < 4; damage++) {
        if (damage == 1) { /* two nodes change clusters: what is read is what the file has */
            whole[length - 1] ^= 1;
        }
        if (damage < 3) {
            check_ok(by__file_write(path, whole, damage == 2 ? length - 3 : length, &error),
                     &error);
        } else {
            set.hash[0] = 'b';
        }
        whole[length - 1] ^= damage == 1 ? 1 : 0;
        by__nodes_subgraphs *t = open_samples(&set, trained, TRAINED, &o);
        assert_memory_equal(s->members, t->members, NODES * sizeof *s->members);
        check_ok(by__file_read(&again, &length_again, path, MOST, &error), &error);
        assert_int_equal(length, length_again);
        assert_true((memcmp(whole, again, length) == 0) == (damage < 3));
        free(again);
        by__nodes_subgraphs_close(&t);
    }
    by__nodes_subgraphs_close(&s);
    by__nodes_set_clear(&set);
    free(whole);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid),         cmocka_unit_test(test_groups),
        cmocka_unit_test(test_many_parts),   cmocka_unit_test(test_star),
        cmocka_unit_test(test_walks),        cmocka_unit_test(test_room),
        cmocka_unit_test(test_estimates),    cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_kept_clusters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
