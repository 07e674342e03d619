#include "train/train.h"

int by__tree_sets(int64_t leaves)
{
    int most = 0;
    for (int64_t i = 0; i < leaves; i++) {
        int held = __builtin_popcountll((unsigned long long)i);
        most = held > most ? held : most;
    }
    return 1 + most;
}

void by__tree_begin(by__tree *tree, int sets)
{
    tree->sets = sets;
    tree->spare_count = sets;
    for (int i = 0; i < sets; i++) {
        tree->spare[i] = sets - 1 - i; /* set 0 is taken first */
    }
    for (int i = 0; i < 64; i++) {
        tree->level[i] = -1;
    }
}

int by__tree_take(by__tree *tree)
{
    return tree->spare[--tree->spare_count];
}

int by__tree_put(by__tree *tree, int set, int *height)
{
    int waiting = tree->level[*height];
    if (waiting < 0) {
        tree->level[*height] = set;
        return -1;
    }
    tree->level[*height] = -1;
    tree->spare[tree->spare_count++] = waiting;
    (*height)++;
    return waiting;
}

int by__tree_finish(by__tree *tree, int *other)
{
    int sum = -1;
    *other = -1;
    for (int i = 0; i < 64; i++) {
        if (tree->level[i] < 0) {
            continue;
        }
        if (sum < 0) {
            sum = tree->level[i];
            continue;
        }
        /* Their sum stands where the higher one stood; the next call finds it there. */
        *other = tree->level[i];
        for (int k = 0; k < i; k++) {
            tree->level[k] = -1;
        }
        tree->level[i] = sum;
        tree->spare[tree->spare_count++] = *other;
        return sum;
    }
    return sum;
}
