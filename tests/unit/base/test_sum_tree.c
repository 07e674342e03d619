/* The sum tree: any partition of the leaves over ranks adds in the order of one process, as an
 * expression and in the bits of floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sum_tree.h"

enum { LEAVES = 64, RANKS = 16, TEXT = 512 };

/* A sum: what was added, and its value. */
typedef struct sum {
    char text[TEXT];
    float value;
} sum;

static void set_leaf(sum *out, int64_t leaf)
{
    uint32_t key[2];
    uint32_t bits[4];
    uint32_t counter[4] = {(uint32_t)leaf, 0, 0, 0};
    by__philox_key(key, 7, 1);
    by__philox(bits, key, counter);
    (void)snprintf(out->text, TEXT, "%d", (int)leaf);
    /* Magnitudes over six decades, of both signs: another order of additions shows. */
    out->value = (by__unit_float(bits[0]) - 0.5f) * (float)(1u << bits[1] % 20);
}

static void add(const sum *left, sum *right)
{
    char text[2 * TEXT + 4];
    (void)snprintf(text, sizeof text, "(%s+%s)", left->text, right->text);
    assert_true(strlen(text) < TEXT);
    memcpy(right->text, text, strlen(text) + 1);
    right->value = left->value + right->value;
}

/* The definition, in the words of the header: the first m leaves and the rest. */
static void define(sum *out, int64_t first, int64_t count)
{
    sum left;
    int64_t m = 1;
    if (count == 1) {
        set_leaf(out, first);
        return;
    }
    while (2 * m < count) {
        m *= 2;
    }
    define(&left, first, m);
    define(out, first + m, count - m);
    add(&left, out);
}

/* What one rank is left with: forest[k] is the sum of nodes[k]. */
static int run_rank(int64_t first, int64_t count, int64_t all, by__sum_node *nodes, sum *forest)
{
    sum sets[BY__SUM_TREE_NODES];
    bool taken[BY__SUM_TREE_NODES] = {false};
    by__sum_tree tree;
    by__sum_addition addition;
    int room = by__sum_tree_sets(first, count, all);
    int most = 0;
    by__sum_tree_begin(&tree, first, all, room);
    for (int64_t i = 0; i < count; i++) {
        int set = by__sum_tree_acquire(&tree);
        assert_true(set >= 0 && set < room && !taken[set]);
        taken[set] = true;
        most = set + 1 > most ? set + 1 : most;
        set_leaf(&sets[set], first + i);
        by__sum_tree_release(&tree, set);
        while (by__sum_tree_add(&tree, &addition)) {
            assert_true(taken[addition.left] && taken[addition.right]);
            add(&sets[addition.left], &sets[addition.right]);
            taken[addition.left] = false;
        }
    }
    assert_int_equal(most, room); /* no set too many */
    assert_int_equal(tree.held_count, by__sum_tree_forest(first, count, all, nodes));
    for (int k = 0; k < tree.held_count; k++) {
        assert_int_equal(tree.held[k].first, nodes[k].first);
        assert_int_equal(tree.held[k].count, nodes[k].count);
        forest[k] = sets[tree.held[k].set];
    }
    return tree.held_count;
}

/* A sum that a rank holds. */
typedef struct holding {
    int64_t first;
    int64_t end;
    int rank;
    sum sum;
} holding;

static holding *find(holding *held, size_t count, int64_t first, int64_t end, int rank)
{
    for (size_t i = 0; i < count; i++) {
        if (held[i].first == first && held[i].end == end && held[i].rank == rank) {
            return &held[i];
        }
    }
    fail_msg("rank %d does not hold leaves [%d, %d)", rank, (int)first, (int)end);
    return NULL;
}

/* Runs every rank and then the merges: each operand must be held by the rank that the list
 * names. */
static void check_partition(const int64_t *begin, int ranks, const sum *want)
{
    by_error error = {0};
    by__sum_merge *merges;
    size_t merge_count;
    size_t count = 0;
    holding *held = calloc(2 * LEAVES, sizeof *held);
    by__sum_node nodes[BY__SUM_TREE_NODES];
    sum *forest = calloc(BY__SUM_TREE_NODES, sizeof *forest);
    assert_non_null(held);
    assert_non_null(forest);
    for (int r = 0; r < ranks; r++) {
        int n = run_rank(begin[r], begin[r + 1] - begin[r], begin[ranks], nodes, forest);
        for (int k = 0; k < n; k++) {
            held[count++] =
                (holding){nodes[k].first, nodes[k].first + nodes[k].count, r, forest[k]};
        }
    }
    assert_int_equal(by__sum_tree_merges(&merges, &merge_count, begin, ranks, &error), BY_OK);
    assert_int_equal(merge_count, count - 1);
    for (size_t k = 0; k < merge_count; k++) {
        const by__sum_merge *m = &merges[k];
        holding *left = find(held, count, m->first, m->middle, m->left);
        const holding *right = find(held, count, m->middle, m->end, m->right);
        holding merged = {m->first, m->end, m->left, right->sum};
        add(&left->sum, &merged.sum);
        left->rank = -1; /* used up */
        held[count++] = merged;
    }
    const holding *root = &held[count - 1];
    assert_int_equal(root->first, 0);
    assert_int_equal(root->end, begin[ranks]);
    assert_string_equal(root->sum.text, want->text);
    assert_memory_equal(&root->sum.value, &want->value, sizeof want->value);
    free(merges);
    free(held);
    free(forest);
}

/* Every pair of up to 64 leaves and 16 ranks, uneven divisions and ranks without leaves
 * included. */
static void test_every_pair(void **state)
{
    BY_UNUSED(state);
    for (int64_t all = 1; all <= LEAVES; all++) {
        sum want;
        define(&want, 0, all);
        for (int ranks = 1; ranks <= RANKS; ranks++) {
            int64_t begin[RANKS + 1] = {0};
            for (int r = 0; r < ranks; r++) {
                int64_t first;
                int64_t count;
                by__sum_tree_block(all, ranks, r, &first, &count);
                assert_int_equal(first, begin[r]);
                assert_true(count == all / ranks || count == all / ranks + 1);
                begin[r + 1] = first + count;
            }
            assert_int_equal(begin[ranks], all);
            check_partition(begin, ranks, &want);
        }
    }
}

/* Any cut at all, with empty ranks anywhere. */
static void test_any_partition(void **state)
{
    BY_UNUSED(state);
    uint32_t key[2];
    by__philox_key(key, 3, 2);
    for (uint32_t round = 0; round < 400; round++) {
        uint32_t bits[4];
        uint32_t counter[4] = {round, 0, 0, 0};
        int64_t begin[5] = {0};
        sum want;
        by__philox(bits, key, counter);
        int64_t all = 1 + bits[0] % LEAVES;
        int64_t a = bits[1] % (all + 1);
        int64_t b = bits[2] % (all + 1);
        begin[1] = a < b ? a : b;
        begin[2] = a < b ? b : a;
        begin[3] = begin[2] + bits[3] % (all - begin[2] + 1);
        begin[4] = all;
        define(&want, 0, all);
        check_partition(begin, 4, &want);
    }
}

/* One process: the expressions, which are what a step's bits rest on, and the sets they need. */
static void test_one_process(void **state)
{
    BY_UNUSED(state);
    static const char *const want[] = {"",
                                       "0",
                                       "(0+1)",
                                       "((0+1)+2)",
                                       "((0+1)+(2+3))",
                                       "(((0+1)+(2+3))+4)",
                                       "(((0+1)+(2+3))+(4+5))",
                                       "(((0+1)+(2+3))+((4+5)+6))",
                                       "(((0+1)+(2+3))+((4+5)+(6+7)))"};
    for (int64_t k = 1; k <= 8; k++) {
        by__sum_node nodes[BY__SUM_TREE_NODES];
        sum forest[2];
        assert_int_equal(run_rank(0, k, k, nodes, forest), 1);
        assert_string_equal(forest[0].text, want[k]);
    }
    assert_int_equal(by__sum_tree_sets(0, 0, 8), 0);
    assert_int_equal(by__sum_tree_sets(0, 1, 1), 1);
    assert_int_equal(by__sum_tree_sets(0, 2, 2), 2);
    assert_int_equal(by__sum_tree_sets(0, 3, 3), 2);
    assert_int_equal(by__sum_tree_sets(0, 4, 4), 3);
    assert_int_equal(by__sum_tree_sets(0, 8, 8), 4);
    assert_int_equal(by__sum_tree_sets(0, 1024, 1024), 11);
}

/* The example of the header, and a forest as large as forests get. */
static void test_forests(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__sum_node nodes[BY__SUM_TREE_NODES];
    by__sum_merge *merges;
    size_t count;
    const int64_t begin[] = {0, 6, 12};
    const by__sum_merge want[] = {{4, 6, 8, 0, 1}, {0, 4, 8, 0, 0}, {0, 8, 12, 0, 1}};
    assert_int_equal(by__sum_tree_merges(&merges, &count, begin, 2, &error), BY_OK);
    assert_int_equal(count, BY_ARRAY_LENGTH(want));
    for (size_t k = 0; k < count; k++) {
        assert_int_equal(merges[k].first, want[k].first);
        assert_int_equal(merges[k].middle, want[k].middle);
        assert_int_equal(merges[k].end, want[k].end);
        assert_int_equal(merges[k].left, want[k].left);
        assert_int_equal(merges[k].right, want[k].right);
    }
    free(merges);
    int64_t all = INT64_MAX;
    int forest = by__sum_tree_forest(1, all - 2, all, nodes);
    assert_true(forest > 120 && forest <= BY__SUM_TREE_NODES);
    int64_t next = 1;
    for (int k = 0; k < forest; k++) {
        assert_true(nodes[k].first == next);
        next += nodes[k].count;
    }
    assert_true(next == all - 1);
    assert_int_equal(by__sum_tree_forest(5, 0, 9, nodes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_process),
        cmocka_unit_test(test_every_pair),
        cmocka_unit_test(test_any_partition),
        cmocka_unit_test(test_forests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
