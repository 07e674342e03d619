/* The sum tree: a fixed order of additions for a step's gradients and losses, independent of how
 * many processes share the work.
 *
 * Floating-point addition is not associative, so a sum is defined by its expression. A step has
 * `all` leaves, its micro-batches in the order of the data. Their sum is a binary tree that depends
 * on `all` alone: a node over leaves [a, a + n) adds the sum of its first m leaves to the sum of
 * the rest, where m is the largest power of two below n. For 7 leaves that is
 *
 *     (((0+1)+(2+3))+((4+5)+6))
 *
 * Every node over a power-of-two number of leaves begins at a multiple of that number (an aligned
 * subtree of the complete tree). The other nodes end with the last leaf: they are complete nodes
 * that are cut off there.
 *
 * A rank computes a contiguous range of leaves in order, into sets of buffers, and adds two
 * neighbouring sums as soon as they are the two halves of a node; it never adds across a node's
 * boundary. After its last leaf it holds the sums of the largest nodes inside its range, its
 * forest. For a process that has all leaves this is the root alone. An aligned range of 2^h leaves
 * yields one sum, any other range at most two for each bit of its size:
 *
 *     12 leaves on 2 ranks:   rank 0 has [0, 6):  ((0+1)+(2+3))  and  (4+5)
 *                             rank 1 has [6, 12): (6+7)  and  ((8+9)+(10+11))
 *
 * Summing each range completely, (((0+1)+(2+3))+(4+5)) here, would change the order and therefore
 * the bits: the root needs (4+5) added to (6+7). by__sum_tree_merges lists the remaining nodes,
 * whose leaves are spread over ranks, in an order in which they can be added:
 *
 *     [4, 8)  = [4, 6) of rank 0 + [6, 8) of rank 1            held by rank 0
 *     [0, 8)  = [0, 4) of rank 0 + [4, 8) of rank 0            held by rank 0
 *     [0, 12) = [0, 8) of rank 0 + [8, 12) of rank 1           held by rank 0
 *
 * The list is a function of the leaves and the partition, so every rank computes the same one
 * without communication. It serves both a reduction to one rank (the other holder sends its sum)
 * and a reduce-scatter, in which every rank receives its slice of all forests and runs the whole
 * list on it.
 *
 * Nothing here adds numbers: callers bind buffers to the set numbers, so gradients, losses and any
 * other sums of a step share one order.
 */
#ifndef BY_BASE_SUM_TREE_H
#define BY_BASE_SUM_TREE_H

#include "base/base.h"

/* Largest number of nodes in a forest: two for each bit of a leaf count. */
#define BY__SUM_TREE_NODES 128

/* The sum of leaves [first, first + count). */
typedef struct by__sum_node {
    int64_t first;
    int64_t count;
    int set; /* index of the set of buffers that holds it */
} by__sum_node;

/* One rank's progress: leaves still to compute, sums that it holds, and free sets. */
typedef struct by__sum_tree {
    int64_t all;
    int64_t next; /* the leaf to be computed and put next */
    by__sum_node held[BY__SUM_TREE_NODES + 1];
    int held_count; /* in ascending order; the forest after the rank's last leaf was put */
    int spare[BY__SUM_TREE_NODES + 1];
    int spare_count;
} by__sum_tree;

/* An addition: set[right] = set[left] + set[right], in this operand order. */
typedef struct by__sum_addition {
    int left;
    int right;
} by__sum_addition;

/* Returns the leaves of one rank: contiguous ranges in rank order. When `ranks` does not divide
 * `all`, the first ranks get one leaf more; with more ranks than leaves, the last ranges are
 * empty. */
void by__sum_tree_block(int64_t all, int ranks, int rank, int64_t *first, int64_t *count);

/* Returns how many sets a rank with leaves [first, first + count) of `all` needs. */
int by__sum_tree_sets(int64_t first, int64_t count, int64_t all);
/* Begins a step with at least by__sum_tree_sets(first, count, all) sets. */
void by__sum_tree_begin(by__sum_tree *tree, int64_t first, int64_t all, int sets);
/* Takes a free set for the result of leaf tree->next. Leaves count micro-batches over the whole
 * step, so the first sample of this one in the global batch, by which random numbers are keyed, is
 * tree->next times the micro-batch size. */
int by__sum_tree_acquire(by__sum_tree *tree);
/* Marks the leaf in `set` as complete. */
void by__sum_tree_release(by__sum_tree *tree, int set);
/* Returns the next addition that the held sums allow, or false if another leaf must be put first.
 * The caller must run it before asking again; it also frees set `left`. */
bool by__sum_tree_add(by__sum_tree *tree, by__sum_addition *out);

/* Lists in `out` (room for BY__SUM_TREE_NODES; `set` is -1) the nodes that a rank with leaves
 * [first, first + count) finishes alone, in ascending order: `held` after its last leaf. Returns
 * how many there are. */
int by__sum_tree_forest(int64_t first, int64_t count, int64_t all, by__sum_node *out);

/* A node whose leaves are on several ranks: the sum of leaves [first, middle), held by rank `left`,
 * plus that of [middle, end), held by rank `right`, which may be the same rank. Rank `left` holds
 * the result. */
typedef struct by__sum_merge {
    int64_t first;
    int64_t middle;
    int64_t end;
    int left;
    int right;
} by__sum_merge;

/* Takes *count neighbouring sums in ascending order; nodes[i].set is the rank that holds one. Lists
 * the additions that they allow in `out` (room for *count) and returns their number. On return
 * `nodes` and *count describe the remaining sums, each held by the rank of its first leaf. */
size_t by__sum_tree_fold(by__sum_merge *out, by__sum_node *nodes, int *count, int64_t all);

/* Lists the additions that remain when every rank has finished its forest, in an order in which
 * they can be run. The last one makes the root, held by its `left`, the first rank with a leaf.
 * Rank r has leaves [begin[r], begin[r + 1]); begin[0] is 0 and begin[ranks] the number of leaves.
 * The list is empty when one rank has all leaves. *out is freed with free(). */
by_status by__sum_tree_merges(by__sum_merge **out, size_t *count, const int64_t *begin, int ranks,
                              by_error *error);

#endif
