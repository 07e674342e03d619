/* The sum tree: one order of additions for a step's gradients and losses, however many processes
 * share the work.
 *
 * Floating-point addition is not associative, so a sum is defined by its expression. A step has
 * `all` leaves, its micro-batches in the order of the data, and their sum is the expression of one
 * binary tree that depends on `all` alone: a node over leaves [a, a + n) adds the sum of its first
 * m leaves to the sum of the rest, where m is the largest power of two below n. For 7 leaves that
 * is
 *
 *     (((0+1)+(2+3))+((4+5)+6))
 *
 * Every node with a power of two of leaves begins at a multiple of it (an aligned subtree, a node
 * of the complete tree). The others end with the last leaf: they are complete nodes cut off there.
 *
 * A rank computes a contiguous range of leaves, one after another, into sets of buffers, and adds
 * two neighbouring sums as soon as they are the two halves of a node: it never adds across a node's
 * border. That leaves it with the sums of the largest nodes inside its range, its forest. A process
 * that has all leaves is left with the root. In between, an aligned range of 2^h leaves leaves one
 * sum, any other range at most two for each bit of its size:
 *
 *     12 leaves on 2 ranks:   rank 0 has [0, 6):  ((0+1)+(2+3))  and  (4+5)
 *                             rank 1 has [6, 12): (6+7)  and  ((8+9)+(10+11))
 *
 * Adding up a range first, (((0+1)+(2+3))+(4+5)) here, would be a sum of another order, with other
 * bits than one process gets: the root wants (4+5) with (6+7). by__sum_tree_merges lists the nodes
 * that are left, those whose leaves are on several ranks, in an order in which they can be added:
 *
 *     [4, 8)  = [4, 6) of rank 0 + [6, 8) of rank 1            held by rank 0
 *     [0, 8)  = [0, 4) of rank 0 + [4, 8) of rank 0            held by rank 0
 *     [0, 12) = [0, 8) of rank 0 + [8, 12) of rank 1           held by rank 0
 *
 * The list is a function of the leaves and the partition, so every rank has the same one without a
 * message. It serves a reduction to one rank (the other holder sends its sum) and, slice by slice,
 * a reduce-scatter: every rank receives its slice of all forests and runs the whole list on it.
 *
 * Nothing here adds numbers: callers bind buffers to the set numbers, so that gradients, losses and
 * whatever else a step sums have one order.
 */
#ifndef BY_BASE_SUM_TREE_H
#define BY_BASE_SUM_TREE_H

#include "base/base.h"

/* Most nodes of a forest: two for each bit of a count of leaves. */
#define BY__SUM_TREE_NODES 128

/* The sum of leaves [first, first + count). */
typedef struct by__sum_node {
    int64_t first;
    int64_t count;
    int set; /* of buffers, that holds it */
} by__sum_node;

/* One rank's work: leaves that it still has to compute, sums that it holds, sets that are free. */
typedef struct by__sum_tree {
    int64_t all;
    int64_t next; /* leaf that is computed and put next */
    by__sum_node held[BY__SUM_TREE_NODES + 1];
    int held_count; /* ascending; the forest once all of the rank's leaves were put */
    int spare[BY__SUM_TREE_NODES + 1];
    int spare_count;
} by__sum_tree;

/* An addition: set[right] = set[left] + set[right], the left operand first. */
typedef struct by__sum_addition {
    int left;
    int right;
} by__sum_addition;

/* The leaves of rank `rank` of `ranks`: contiguous ranges in the order of ranks, the first ones of
 * them one leaf larger when ranks do not divide the leaves; empty ones at the end when there are
 * more ranks than leaves. */
void by__sum_tree_block(int64_t all, int ranks, int rank, int64_t *first, int64_t *count);

/* Sets that a rank with leaves [first, first + count) of `all` needs. */
int by__sum_tree_sets(int64_t first, int64_t count, int64_t all);
/* Begins a step. `sets` is by__sum_tree_sets of the same leaves, or more. */
void by__sum_tree_begin(by__sum_tree *tree, int64_t first, int64_t all, int sets);
/* A free set, for leaf tree->next to be computed into: leaves are micro-batches counted over the
 * whole step, so the first sample of this one in the global batch, which random numbers are keyed
 * by, is tree->next times the samples of a micro-batch. */
int by__sum_tree_take(by__sum_tree *tree);
/* The leaf in `set` is complete. */
void by__sum_tree_put(by__sum_tree *tree, int set);
/* The next addition that the sums held allow, false when there is none before another leaf is put.
 * The caller runs it before it asks again; set `left` is free then. */
bool by__sum_tree_add(by__sum_tree *tree, by__sum_addition *out);

/* The nodes that a rank with leaves [first, first + count) finishes alone, ascending, into `out`
 * (room for BY__SUM_TREE_NODES; `set` is -1): what `held` is after its last leaf. Returns how
 * many. */
int by__sum_tree_forest(int64_t first, int64_t count, int64_t all, by__sum_node *out);

/* A node whose leaves are on several ranks: the sum of leaves [first, middle), which rank `left`
 * holds, and that of [middle, end), which rank `right` holds. They may be one rank. Rank `left`
 * holds the result. */
typedef struct by__sum_merge {
    int64_t first;
    int64_t middle;
    int64_t end;
    int left;
    int right;
} by__sum_merge;

/* `nodes` are *count sums, ascending and neighbours, of which nodes[i].set names the holder. Lists
 * the additions that they allow in `out` (room for *count) and returns how many there are. *count
 * and `nodes` become the sums that are left, each with the holder of its first leaf. */
size_t by__sum_tree_fold(by__sum_merge *out, by__sum_node *nodes, int *count, int64_t all);

/* The additions that are left when every rank has finished its forest, in an order in which they
 * can be run; the last one makes the root, which rank `left` of it (the first rank with a leaf)
 * holds. Rank r has leaves [begin[r], begin[r + 1]), begin[0] is 0 and begin[ranks] all leaves.
 * None when one rank has all leaves. *out is freed with free(). */
by_status by__sum_tree_merges(by__sum_merge **out, size_t *count, const int64_t *begin, int ranks,
                              by_error *error);

#endif
