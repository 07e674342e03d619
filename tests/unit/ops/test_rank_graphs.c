/* Graphs with collectives on ranks that are threads: each collective against what it means, and a
 * model that is split over ranks, forward and backward, against the whole one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sum_tree.h"
#include "ops/ops.h"
#include "rank_run.h"
#include "runner.h"

#define TENSOR RANK_MESH

/* ---- each collective ---- */

/* Element (i, j, k) of rank r's x [3, 8, 5]. */
static float element(int rank, int64_t i, int64_t j, int64_t k)
{
    return (float)(rank * 1000 + i * 100 + j * 10 + k) * 0.25f;
}

static by_status fill_and_run(rank_run *r, int rank, by_error *error)
{
    float *x = rank_data(r, "x");
    const by_shape *s = &r->graph->values[by_graph_find(r->graph, "x")].shape;
    for (int64_t i = 0; i < s->dim[0]; i++) {
        for (int64_t j = 0; j < s->dim[1]; j++) {
            for (int64_t k = 0; k < s->dim[2]; k++) {
                *x++ = element(rank, i, j, k);
            }
        }
    }
    return by_program_run(r->program, error);
}

static by_status check_sums(by_comm *comm, rank_run *r, by_error *error)
{
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    int64_t first;
    int64_t count;
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 8, 5));
    by_graph_output(graph, by_all_reduce(graph, x, TENSOR, ranks), "sum");
    by_graph_output(graph, by_reduce_scatter(graph, x, 1, TENSOR, ranks, rank), "part");
    BY_TRY(rank_open(r, comm, graph, error));
    BY_TRY(fill_and_run(r, rank, error));
    by__sum_tree_block(8, ranks, rank, &first, &count);
    const float *sum = rank_data(r, "sum");
    const float *part = rank_data(r, "part");
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 8; j++) {
            for (int64_t k = 0; k < 5; k++) {
                float want = 0.0f;
                for (int other = 0; other < ranks; other++) {
                    want += element(other, i, j, k); /* exact: quarters below 2^16 */
                }
                EXPECT(sum[(i * 8 + j) * 5 + k] == want);
                if (j >= first && j < first + count) {
                    EXPECT(part[(i * count + j - first) * 5 + k] == want);
                }
            }
        }
    }
    return BY_OK;
}

static by_status check_gather(by_comm *comm, rank_run *r, by_error *error)
{
    int ranks = by_comm_size(comm);
    int64_t first;
    int64_t count;
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by__sum_tree_block(7, ranks, by_comm_rank(comm), &first, &count);
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, count, 5));
    by_graph_output(graph, by_all_gather(graph, x, 1, 7, TENSOR, ranks), "all");
    BY_TRY(rank_open(r, comm, graph, error));
    BY_TRY(fill_and_run(r, by_comm_rank(comm), error));
    const float *all = rank_data(r, "all");
    for (int other = 0; other < ranks; other++) {
        by__sum_tree_block(7, ranks, other, &first, &count);
        for (int64_t i = 0; i < 3; i++) {
            for (int64_t j = 0; j < count; j++) {
                for (int64_t k = 0; k < 5; k++) {
                    EXPECT(all[(i * 7 + first + j) * 5 + k] == element(other, i, j, k));
                }
            }
        }
    }
    return BY_OK;
}

/* x [3, 4, 2 R] -> [3, 4 R, 2], and back. */
static by_status check_all_to_all(by_comm *comm, rank_run *r, by_error *error)
{
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 4, 2 * ranks));
    by_value y = by_all_to_all(graph, x, 2, 1, TENSOR, ranks);
    by_graph_output(graph, by_all_to_all(graph, y, 1, 2, TENSOR, ranks), "back");
    by_graph_output(graph, by_reshape(graph, y, BY_SHAPE(3, 4 * ranks, 2)), "y");
    BY_TRY(rank_open(r, comm, graph, error));
    BY_TRY(fill_and_run(r, rank, error));
    const float *got = rank_data(r, "y");
    for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 4 * ranks; j++) {
            for (int64_t k = 0; k < 2; k++) {
                EXPECT(got[(i * 4 * ranks + j) * 2 + k] ==
                       element((int)(j / 4), i, j % 4, 2 * rank + k));
            }
        }
    }
    EXPECT(memcmp(rank_data(r, "back"), rank_data(r, "x"), sizeof(float) * 24 * (size_t)ranks) ==
           0);
    return BY_OK;
}

/* x of the rank before, and around the whole ring. */
static by_status check_ring_shift(by_comm *comm, rank_run *r, by_error *error)
{
    int ranks = by_comm_size(comm);
    int before = (by_comm_rank(comm) + ranks - 1) % ranks;
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(3, 4, 2));
    by_value y = by_ring_shift(graph, x, TENSOR, ranks);
    by_graph_output(graph, by_reshape(graph, y, BY_SHAPE(12, 2)), "y");
    for (int i = 1; i < ranks; i++) {
        y = by_ring_shift(graph, y, TENSOR, ranks);
    }
    by_graph_output(graph, y, "back");
    BY_TRY(rank_open(r, comm, graph, error));
    BY_TRY(fill_and_run(r, by_comm_rank(comm), error));
    for (int64_t i = 0; i < 24; i++) {
        EXPECT(((const float *)rank_data(r, "y"))[i] == element(before, i / 8, i / 2 % 4, i % 2));
    }
    EXPECT(memcmp(rank_data(r, "back"), rank_data(r, "x"), sizeof(float) * 24) == 0);
    return BY_OK;
}

static by_status each_collective(by_comm *comm, void *user, by_error *error)
{
    BY_UNUSED(user);
    by_status (*const checks[])(by_comm *, rank_run *, by_error *) = {
        check_sums, check_gather, check_all_to_all, check_ring_shift};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(checks) && status == BY_OK; i++) {
        rank_run r = {0};
        status = checks[i](comm, &r, error);
        rank_close(&r);
    }
    return status;
}

static void test_each(void **state)
{
    BY_UNUSED(state);
    for (int ranks = 2; ranks <= 4; ranks++) {
        run_ranks(ranks, each_collective, NULL);
    }
}

/* ---- a model ---- */

#define ROWS  12
#define WIDTH 8
#define INNER 24

typedef struct model {
    float x[ROWS * WIDTH];
    float a[2][WIDTH * INNER];
    float b[2][INNER * WIDTH];
    float loss;
    float da[2][WIDTH * INNER];
    float db[2][INNER * WIDTH];
} model;

/* Two layers y = x + gelu(x A) B, rows of x over the ranks before and behind them (sequence
 * parallel) in `sequence`, columns of A and rows of B over the ranks. */
static by_graph *build_model(int ranks, int rank, bool sequence)
{
    by_error error = {0};
    by_graph *graph;
    int64_t rows = ROWS / ranks;
    int64_t inner = INNER / ranks;
    if (by_graph_open(&graph, &error) != BY_OK) {
        return NULL;
    }
    by_value seed = by_graph_input(graph, "seed", BY_F32, BY_SHAPE(1));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(sequence ? rows : ROWS, WIDTH));
    for (int layer = 0; layer < 2; layer++) {
        static const char *const names[2][2] = {{"a0", "b0"}, {"a1", "b1"}};
        by_value a =
            by_graph_parameter(graph, names[layer][0], NULL, BY_SHAPE(WIDTH, inner), (by_init){0});
        by_value b =
            by_graph_parameter(graph, names[layer][1], NULL, BY_SHAPE(inner, WIDTH), (by_init){0});
        by_value y = sequence ? by_all_gather(graph, x, 0, ROWS, TENSOR, ranks)
                              : by_replicate(graph, x, TENSOR, ranks);
        y = by_unary(graph, by_linear(graph, y, a, BY_NONE, false), BY_FN_GELU);
        y = by_linear(graph, y, b, BY_NONE, false);
        y = sequence ? by_reduce_scatter(graph, y, 0, TENSOR, ranks, rank)
                     : by_all_reduce(graph, y, TENSOR, ranks);
        x = by_add(graph, x, y);
    }
    by_value squares = by_mul(graph, x, x);
    by_value loss =
        by_reshape(graph, by_sum(graph, squares, (const int[]){0, 1}, 2, false), BY_SHAPE(1));
    by_graph_output(
        graph, sequence ? by_all_reduce(graph, loss, TENSOR, ranks) : by_scale(graph, loss, seed),
        "loss");
    if (by_pass_gradients(graph, loss, seed, &error) != BY_OK ||
        by_pass_fuse(graph, &error) != BY_OK || by_pass_order(graph, &error) != BY_OK ||
        by_pass_overlap(graph, 1 << 20, &error) != BY_OK) {
        by_graph_close(&graph);
    }
    return graph;
}

/* Columns of a matrix [rows, columns] that a rank has, to or from the whole. */
static void move_columns(float *part, float *whole, int64_t rows, int64_t columns, int ranks,
                         int rank, bool gather)
{
    int64_t own = columns / ranks;
    for (int64_t i = 0; i < rows; i++) {
        float *at = whole + i * columns + rank * own;
        memcpy(gather ? at : part + i * own, gather ? part + i * own : at,
               (size_t)own * sizeof(float));
    }
}

typedef struct split_run {
    model *m;
    bool sequence;
} split_run;

static by_status run_model(by_comm *comm, void *user, by_error *error)
{
    const split_run *s = user;
    model *m = s->m;
    rank_run r = {0};
    int ranks = by_comm_size(comm);
    int rank = by_comm_rank(comm);
    size_t x_bytes = sizeof m->x / (size_t)(s->sequence ? ranks : 1);
    size_t b_count = INNER * WIDTH / (size_t)ranks;
    by_graph *graph = build_model(ranks, rank, s->sequence);
    if (graph == NULL) {
        return by_error_set(error, BY_ESTATE, "the model was not built");
    }
    by_status status = rank_open(&r, comm, graph, error);
    if (status == BY_OK) {
        *(float *)rank_data(&r, "seed") = 1.0f;
        memcpy(rank_data(&r, "x"), m->x + (s->sequence ? (size_t)rank * x_bytes / 4 : 0), x_bytes);
        for (int layer = 0; layer < 2; layer++) {
            move_columns(rank_data(&r, layer == 0 ? "a0" : "a1"), m->a[layer], WIDTH, INNER, ranks,
                         rank, false);
            memcpy(rank_data(&r, layer == 0 ? "b0" : "b1"), m->b[layer] + (size_t)rank * b_count,
                   b_count * sizeof(float));
        }
        status = by_program_run(r.program, error);
    }
    if (status == BY_OK) {
        if (rank == 0) {
            m->loss = *(const float *)rank_data(&r, "loss");
        }
        for (int layer = 0; layer < 2; layer++) {
            move_columns(rank_data(&r, layer == 0 ? "grad.a0" : "grad.a1"), m->da[layer], WIDTH,
                         INNER, ranks, rank, true);
            memcpy(m->db[layer] + (size_t)rank * b_count,
                   rank_data(&r, layer == 0 ? "grad.b0" : "grad.b1"), b_count * sizeof(float));
        }
    }
    rank_close(&r);
    return status;
}

static void check_near(const float *got, const float *want, size_t count)
{
    double distance = relative_distance(got, want, count);
    if (!(distance < 2e-6)) {
        fail_msg("a gradient is off by %g", distance);
    }
}

/* Loss and gradients are those of one rank, up to rounding; the same model twice gives the same
 * bits. */
static void test_split_model(void **state)
{
    BY_UNUSED(state);
    static model whole;
    static model split;
    static model again;
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        whole.x[i] = (float)random_unit(1, 0, i);
    }
    for (size_t i = 0; i < (size_t)2 * WIDTH * INNER; i++) {
        whole.a[i / (WIDTH * INNER)][i % (WIDTH * INNER)] = (float)(0.3 * random_unit(1, 1, i));
        whole.b[i / (WIDTH * INNER)][i % (WIDTH * INNER)] = (float)(0.3 * random_unit(1, 2, i));
    }
    split_run one = {&whole, false};
    run_ranks(1, run_model, &one);
    assert_true(whole.loss > 1.0f);
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (int sequence = 0; sequence < 2; sequence++) {
            split = whole;
            again = whole;
            split_run many = {&split, sequence == 1};
            split_run repeat = {&again, sequence == 1};
            run_ranks(ranks, run_model, &many);
            run_ranks(ranks, run_model, &repeat);
            assert_memory_equal(&split, &again, sizeof split);
            assert_true(fabsf(split.loss - whole.loss) < 1e-5f * whole.loss);
            for (int layer = 0; layer < 2; layer++) {
                check_near(split.da[layer], whole.da[layer], WIDTH * INNER);
                check_near(split.db[layer], whole.db[layer], WIDTH * INNER);
            }
        }
    }
}

/* ---- gradients that the caller exchanges, and errors ---- */

/* Sums the gradients over the ranks, into the gradients. */
static by_status sum_gradients(void *user, const by__device_call *call, by_error *error)
{
    for (int i = 0; i < call->input_count; i++) {
        BY_TRY(by_comm_all_reduce(user, call->in[i].data,
                                  (size_t)by_shape_count(&call->in[i].shape), BY_F32, call->what,
                                  error));
    }
    return BY_OK;
}

static by_status run_buckets(by_comm *comm, void *user, by_error *error)
{
    by_graph *graph;
    rank_run r = {0};
    bool hooked = *(const bool *)user;
    BY_TRY(by_graph_open(&graph, error));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4));
    by_value g = by_unary(graph, x, BY_FN_NEGATE);
    by_graph_output(graph, g, "grad.w");
    (void)by__op_build_wait(
        graph, by__op_build_reduce_gradients(graph, &g, 1, 0, 0, TENSOR, by_comm_size(comm), true));
    by_status status = rank_open(&r, comm, graph, error);
    if (status == BY_OK && hooked) {
        r.collectives->gradients = sum_gradients;
        status = by_mesh_comm((by_comm **)&r.collectives->user, r.mesh, TENSOR, error);
    }
    if (status == BY_OK) {
        ((float *)rank_data(&r, "x"))[3] = (float)(by_comm_rank(comm) + 1);
        status = by_program_run(r.program, error);
    }
    if (status == BY_OK && ((const float *)rank_data(&r, "grad.w"))[3] != -6.0f) {
        status = by_error_set(error, BY_ESTATE, "the gradients are not summed");
    }
    rank_close(&r);
    return status;
}

static void test_buckets(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    bool hooked = true;
    run_ranks(3, run_buckets, &hooked);
    hooked = false;
    by_status status = by_comm_run_threads(3, NULL, run_buckets, &hooked, &error);
    check_error(status, BY_ESTATE, &error, "nothing was given to do it");
}

/* A graph that was made for another mesh. */
static by_status run_other_mesh(by_comm *comm, void *user, by_error *error)
{
    by_graph *graph;
    rank_run r = {0};
    BY_UNUSED(user);
    BY_TRY(by_graph_open(&graph, error));
    by_value x = by_graph_input(graph, "x", BY_F32, BY_SHAPE(4));
    by_graph_output(graph, by_all_reduce(graph, x, TENSOR, 3), "y");
    by_status status = rank_open(&r, comm, graph, error);
    if (status == BY_OK) {
        status = by_program_run(r.program, error);
    }
    rank_close(&r);
    return status;
}

static void test_other_mesh(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_status status = by_comm_run_threads(2, NULL, run_other_mesh, NULL, &error);
    check_error(status, BY_ESTATE, &error, "a group of 3 ranks over the mesh axes 0x20");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_split_model),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_other_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
