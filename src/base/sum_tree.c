#include "base/sum_tree.h"

#include <stdlib.h>

static int64_t largest_power_of_two(int64_t at_most)
{
    return (int64_t)1 << (63 - __builtin_clzll((unsigned long long)at_most));
}

/* Returns true if leaves [a, middle) and [middle, end) are the two halves of a node: the first half
 * is a power of two aligned to twice its size, the second is as large or cut off by the last
 * leaf. */
static bool are_halves(int64_t a, int64_t middle, int64_t end, int64_t all)
{
    int64_t half = middle - a;
    int64_t rest = end - middle;
    bool aligned = (half & (half - 1)) == 0 && (a & half) == 0 && (a & (half - 1)) == 0;
    return aligned && (rest == half || (rest < half && end == all));
}

/* Returns true if leaves [a, a + count) form a node of the tree. */
static bool is_node(int64_t a, int64_t count, int64_t all)
{
    if (count == 1) {
        return true;
    }
    int64_t half = largest_power_of_two(count - 1);
    return are_halves(a, a + half, a + count, all);
}

void by__sum_tree_block(int64_t all, int ranks, int rank, int64_t *first, int64_t *count)
{
    int64_t each = all / ranks;
    int64_t larger = all % ranks;
    *first = each * rank + (rank < larger ? rank : larger);
    *count = each + (rank < larger ? 1 : 0);
}

int by__sum_tree_forest(int64_t first, int64_t count, int64_t all, by__sum_node *out)
{
    int nodes = 0;
    while (count > 0) {
        int64_t size = count;
        if (first + count != all || !is_node(first, count, all)) {
            /* The largest aligned node that begins here and fits into the rest of the range. */
            int64_t alignment = first == 0 ? count : first & -first;
            size = largest_power_of_two(alignment < count ? alignment : count);
        }
        out[nodes++] = (by__sum_node){first, size, -1};
        first += size;
        count -= size;
    }
    return nodes;
}

int by__sum_tree_sets(int64_t first, int64_t count, int64_t all)
{
    by__sum_node nodes[BY__SUM_TREE_NODES];
    int most = 0;
    for (int64_t i = 0; i < count; i++) {
        /* While leaf i is computed, the forest of the leaves before it is held too. */
        int held = by__sum_tree_forest(first, i, all, nodes);
        most = held + 1 > most ? held + 1 : most;
    }
    return most;
}

void by__sum_tree_begin(by__sum_tree *tree, int64_t first, int64_t all, int sets)
{
    tree->all = all;
    tree->next = first;
    tree->held_count = 0;
    tree->spare_count = sets;
    for (int i = 0; i < sets; i++) {
        tree->spare[i] = sets - 1 - i; /* so that set 0 is taken first */
    }
}

int by__sum_tree_acquire(by__sum_tree *tree)
{
    return tree->spare[--tree->spare_count];
}

void by__sum_tree_release(by__sum_tree *tree, int set)
{
    tree->held[tree->held_count++] = (by__sum_node){tree->next++, 1, set};
}

bool by__sum_tree_add(by__sum_tree *tree, by__sum_addition *out)
{
    if (tree->held_count < 2) {
        return false;
    }
    by__sum_node *left = &tree->held[tree->held_count - 2];
    const by__sum_node *right = &tree->held[tree->held_count - 1];
    if (!are_halves(left->first, right->first, right->first + right->count, tree->all)) {
        return false;
    }
    *out = (by__sum_addition){left->set, right->set};
    tree->spare[tree->spare_count++] = left->set;
    *left = (by__sum_node){left->first, left->count + right->count, right->set};
    tree->held_count--;
    return true;
}

size_t by__sum_tree_fold(by__sum_merge *out, by__sum_node *nodes, int *count, int64_t all)
{
    size_t made = 0;
    int held = 0;
    for (int i = 0; i < *count; i++) {
        nodes[held++] = nodes[i];
        while (held > 1) {
            by__sum_node *left = &nodes[held - 2];
            const by__sum_node *right = &nodes[held - 1];
            int64_t end = right->first + right->count;
            if (!are_halves(left->first, right->first, end, all)) {
                break;
            }
            out[made++] = (by__sum_merge){left->first, right->first, end, left->set, right->set};
            left->count += right->count;
            held--;
        }
    }
    *count = held;
    return made;
}

/* The forests of all ranks, concatenated, are folded like leaves; `set` is the rank that holds a
 * sum. */
by_status by__sum_tree_merges(by__sum_merge **out, size_t *count, const int64_t *begin, int ranks,
                              by_error *error)
{
    by__sum_node *nodes = NULL;
    by__sum_merge *merges = NULL;
    size_t capacity = 0;
    int listed = 0;
    by_status status = BY_OK;
    for (int r = 0; r < ranks && status == BY_OK; r++) {
        status = by__reserve((void **)&nodes, &capacity, (size_t)listed + BY__SUM_TREE_NODES,
                             sizeof *nodes, error);
        int forest = status != BY_OK ? 0
                                     : by__sum_tree_forest(begin[r], begin[r + 1] - begin[r],
                                                           begin[ranks], nodes + listed);
        for (int k = 0; k < forest; k++) {
            nodes[listed++].set = r;
        }
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&merges, (size_t)listed + 1, sizeof *merges, "a sum", error);
    }
    if (status == BY_OK) {
        *count = by__sum_tree_fold(merges, nodes, &listed, begin[ranks]);
        *out = merges;
    }
    free(nodes);
    return status;
}
