/* Nodes to train on and to hold out. */
#include <stdlib.h>

#include "data/loader/order.h"
#include "data/nodes/node_set.h"

static by_status allocate(by__nodes_split *out, uint64_t nodes, by_error *error)
{
    BY_TRY(by__alloc((void **)&out->train, (size_t)nodes, sizeof *out->train, "nodes", error));
    BY_TRY(by__alloc((void **)&out->valid, (size_t)nodes, sizeof *out->valid, "nodes", error));
    return by__alloc((void **)&out->test, (size_t)nodes, sizeof *out->test, "nodes", error);
}

/* Takes a node for the first part that has room; *taken are those of each class to train on. */
static void take_node(by__nodes_split *out, uint64_t node, uint64_t *taken, uint64_t per_class,
                      uint64_t valid, uint64_t test)
{
    if (per_class > 0 && *taken < per_class) {
        ++*taken;
        out->train[out->train_count++] = node;
    } else if (out->valid_count < valid) {
        out->valid[out->valid_count++] = node;
    } else if (out->test_count < test) {
        out->test[out->test_count++] = node;
    } else if (per_class == 0) {
        out->train[out->train_count++] = node;
    }
}

static by_status check_split(const by__nodes_split *split, const by__nodes_set *set,
                             const uint64_t *taken, uint64_t per_class, uint64_t valid,
                             uint64_t test, by_error *error)
{
    for (int64_t c = 0; c < set->classes; c++) {
        if (per_class > 0 && taken[c] < per_class) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: class %lld has %llu nodes; data.per_class is %llu", set->name,
                                (long long)c, (unsigned long long)taken[c],
                                (unsigned long long)per_class);
        }
    }
    return split->train_count > 0 && split->valid_count == valid && split->test_count == test
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: not enough nodes with labels for %llu to validate on, %llu to "
                              "test on and some to train on",
                              set->name, (unsigned long long)valid, (unsigned long long)test);
}

by_status by__nodes_split_draw(by__nodes_split *out, const by__nodes_set *set, uint64_t per_class,
                               uint64_t valid, uint64_t test, uint64_t seed, by_error *error)
{
    by__nodes_split split = {0};
    by__loader_order order;
    uint64_t nodes = (uint64_t)set->nodes;
    uint64_t *taken = NULL;
    if (set->labels == NULL) {
        return by_error_set(error, BY_ECONFIG, "%s has no labels: set data.labels", set->name);
    }
    if (set->classes == 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: all nodes with labels are of one class, 0: to tell classes apart, "
                            "a model needs nodes of two or more",
                            set->name);
    }
    by_status status = allocate(&split, nodes, error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&taken, (size_t)set->classes + 1, sizeof *taken, "classes", error);
    }
    by__loader_order_init(&order, nodes, seed, 0);
    for (uint64_t i = 0; status == BY_OK && i < nodes; i++) {
        uint64_t node = by__loader_order_at(&order, i);
        if (set->labels[node] >= 0) {
            take_node(&split, node, &taken[set->labels[node]], per_class, valid, test);
        }
    }
    if (status == BY_OK) {
        status = check_split(&split, set, taken, per_class, valid, test, error);
    }
    free(taken);
    if (status != BY_OK) {
        by__nodes_split_free(&split);
        return status;
    }
    *out = split;
    return BY_OK;
}

void by__nodes_split_free(by__nodes_split *split)
{
    free(split->train);
    free(split->valid);
    free(split->test);
    *split = (by__nodes_split){0};
}
