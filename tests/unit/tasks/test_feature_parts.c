/* Features that are divided among ranks: every row of a batch is that of its node, whichever rank
 * has it, in as many exchanges as that takes; what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/nodes/packed_arrays.h"
#include "rank_run.h"
#include "runner.h"
#include "tasks/graph/feature_parts.h"
#include "temporary.h"

/* A row of 16 KiB, of which an exchange of four ranks has 64 for each pair of them. */
enum { NODES = 37, FEATURES = 4096, ROWS = 150 };

static char *folder;

static float value_of(int64_t node, size_t k)
{
    return (float)(node * FEATURES) + (float)k;
}

/* Features of the nodes that a rank has; those of others must not be read. */
static by_status make_features(float **out, int rank, int ranks, by_error *error)
{
    BY_TRY(by__alloc((void **)out, NODES * FEATURES, sizeof **out, "features", error));
    for (int64_t i = 0; i < NODES; i++) {
        bool mine = i >= (int64_t)NODES * rank / ranks && i < (int64_t)NODES * (rank + 1) / ranks;
        for (size_t k = 0; k < FEATURES; k++) {
            (*out)[i * FEATURES + (int64_t)k] = mine ? value_of(i, k) : NAN;
        }
    }
    return BY_OK;
}

/* Samples of two: of rank 0 all nodes are those of the last rank, others have all kinds. */
static by_status fetch_rows(by__task_parts *parts, int rank, float *x, by_error *error)
{
    int32_t ids[2][ROWS];
    for (int32_t i = 0; i < 2 * ROWS; i++) {
        int32_t node = rank == 0 ? NODES - 1 - i % 2 : (i * 7 + rank) % NODES;
        ids[i / ROWS][i % ROWS] = i % ROWS < ROWS - rank ? node : -1;
    }
    const by_array arrays[] = {{"nodes.x", BY_F32, BY_SHAPE(2, ROWS, FEATURES), x},
                               {"nodes.ids", BY_I32, BY_SHAPE(2, ROWS), ids}};
    const by_batch batch = {.arrays = arrays, .array_count = 2, .batch = rank == 1 ? 0 : 2};
    BY_TRY(by__task_parts_fetch(parts, &batch, error));
    for (int64_t i = 0; i < 2 * ROWS; i++) {
        int32_t node = ids[i / ROWS][i % ROWS];
        for (size_t k = 0; k < FEATURES; k++) {
            float want = rank == 1 || node < 0 ? -1.0f : value_of(node, k);
            EXPECT(x[(size_t)i * FEATURES + k] == want);
        }
    }
    return BY_OK;
}

static by_status fetch_on(by_comm *comm, by__nodes_set *set, by_error *error)
{
    const by__task_fan_keys keys = {.graph = {.graph = folder}, .partition = 1};
    const by_task_request request = {.purpose = BY_TASK_TRAIN, .comm = comm};
    by__task_parts *parts;
    float *x;
    BY_TRY(by__alloc((void **)&x, 2 * ROWS * FEATURES, sizeof *x, "rows", error));
    by_status status = by__task_parts_open(&parts, &keys, set, false, &request, error);
    for (int step = 0; step < 2 && status == BY_OK; step++) {
        for (size_t i = 0; i < 2 * (size_t)ROWS * FEATURES; i++) {
            x[i] = -1.0f;
        }
        status = fetch_rows(parts, by_comm_rank(comm), x, error);
    }
    by__task_parts_close(&parts);
    free(x);
    return status;
}

static by_status rank_main(by_comm *comm, void *user, by_error *error)
{
    float *features;
    BY_UNUSED(user);
    BY_TRY(make_features(&features, by_comm_rank(comm), by_comm_size(comm), error));
    by__nodes_set set = {.nodes = NODES, .features = FEATURES, .x = features};
    by_status status = fetch_on(comm, &set, error);
    free(features);
    return status == BY_OK && !set.partitioned
               ? by_error_set(error, BY_ESTATE, "the set is not partitioned")
               : status;
}

static void test_fetch(void **state)
{
    BY_UNUSED(state);
    run_ranks(2, rank_main, NULL);
    run_ranks(4, rank_main, NULL);
}

/* What one rank says, of so many that are planned. */
static by_status plan(int64_t partition, const char *graph, bool whole, int ranks, bool *parts,
                      by_error *error)
{
    const by__task_fan_keys keys = {.graph = {.graph = (char *)(uintptr_t)graph},
                                    .partition = partition};
    const by_task_request request = {.purpose = BY_TASK_TRAIN, .ranks = ranks};
    by__nodes_set set = {.nodes = NODES, .features = FEATURES};
    by__task_parts *p = NULL;
    by_status status = by__task_parts_open(&p, &keys, &set, whole, &request, error);
    *parts = p != NULL;
    assert_false(set.partitioned);
    by__task_parts_close(&p);
    return status;
}

static void test_refused(void **state)
{
    by_error error = {0};
    bool parts;
    BY_UNUSED(state);
    assert_int_equal(plan(1, folder, false, 4, &parts, &error), BY_OK);
    assert_true(parts);
    assert_int_equal(plan(1, folder, false, 1, &parts, &error), BY_OK);
    assert_false(parts);
    assert_int_equal(plan(0, folder, true, 4, &parts, &error), BY_OK);
    assert_false(parts);
    assert_int_equal(plan(1, folder, true, 1, &parts, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "reads the whole graph"));
    assert_int_equal(plan(1, "edges.csv", false, 1, &parts, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "banyan pack --graph"));
}

static int make_folder(void **state)
{
    char path[700];
    by_error error = {0};
    BY_UNUSED(state);
    folder = temporary_make();
    (void)snprintf(path, sizeof path, "%s/manifest.json", folder);
    check_ok(by__file_write(path, "{}", 2, &error), &error);
    return by__nodes_is_packed(folder) ? 0 : 1;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fetch),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
