/* Sums over ranks that travel compressed: every rank gets the same bits, and what the codes lose
 * comes with later sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "comm/coded_sum.h"
#include "comm/power_sum.h"

enum { MAX_RANKS = 5, STEPS = 6, ROWS = 300, COLUMNS = 170 };

/* A matrix, a gap and a vector behind it, and more blocks than there are ranks. */
enum { MATRIX = ROWS * COLUMNS, COUNT = MATRIX + 70000 };

typedef struct exchange {
    const by__comm_codec *codec; /* NULL: PowerSGD */
    float *data[MAX_RANKS];
    double *residual; /* what rank 0 has received, and what all ranks' codes have lost */
} exchange;

static float value_at(int step, int rank, size_t i)
{
    uint32_t key[2];
    uint32_t bits[4];
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)step, (uint32_t)rank, 0};
    by__philox_key(key, 11, 4);
    by__philox(bits, key, counter);
    return (by__unit_float(bits[0]) - 0.5f) * (float)(1u + bits[1] % 16);
}

static void fill(float *data, int step, int rank)
{
    for (size_t i = 0; i < COUNT; i++) {
        data[i] = value_at(step, rank, i);
    }
}

/* What this rank has received, and rank 0 the residuals of all. */
static void keep(exchange *e, int rank, const double *received, const float *residual)
{
    for (size_t i = 0; i < COUNT && rank == 0; i++) {
        e->residual[i] = received[i] + (double)residual[i];
    }
}

static void clear_but_first(float *residual, int rank)
{
    if (rank != 0) {
        memset(residual, 0, COUNT * sizeof *residual);
    }
}

static by_status run_codes(exchange *e, by_comm *comm, float *residual, double *received,
                           by_error *error)
{
    by__comm_coded_sum *sum;
    int rank = by_comm_rank(comm);
    BY_TRY(by__comm_coded_sum_open(&sum, comm, e->codec, 0.05, residual, COUNT, 2, error));
    for (int step = 0; step < STEPS; step++) {
        fill(e->data[rank], step, rank);
        BY_TRY(by__comm_coded_sum_run(sum, e->data[rank], "test", error));
        for (size_t i = 0; i < COUNT; i++) {
            received[i] += (double)e->data[rank][i];
        }
        if (step == 2) { /* and goes on */
            BY_TRY(by__comm_coded_sum_settle(sum, error));
            clear_but_first(residual, rank);
        }
    }
    BY_TRY(by__comm_coded_sum_settle(sum, error));
    by__comm_coded_sum_close(&sum);
    return BY_OK;
}

static by_status run_power(exchange *e, by_comm *comm, float *residual, double *received,
                           by_error *error)
{
    static const by__comm_power_tensor tensors[] = {
        {.first = 0, .rows = ROWS, .columns = COLUMNS},
        {.first = MATRIX + 10, .rows = 1000},
        {.first = MATRIX + 2000, .rows = 3, .columns = 2}, /* too small for factors */
    };
    by__comm_power_sum *sum;
    int rank = by_comm_rank(comm);
    BY_TRY(by__comm_power_sum_open(&sum, comm, tensors, BY_ARRAY_LENGTH(tensors), residual, COUNT,
                                   3, 1, error));
    for (int step = 0; step < STEPS; step++) {
        fill(e->data[rank], step, rank);
        BY_TRY(by__comm_power_sum_run(sum, e->data[rank], "test", error));
        for (size_t i = 0; i < COUNT; i++) {
            received[i] += (double)e->data[rank][i];
        }
        if (step == 2) {
            BY_TRY(by__comm_power_sum_settle(sum, error));
            clear_but_first(residual, rank);
        }
    }
    BY_TRY(by__comm_power_sum_settle(sum, error));
    by__comm_power_sum_close(&sum);
    return BY_OK;
}

static by_status rank_main(by_comm *comm, void *user, by_error *error)
{
    exchange *e = user;
    float *residual;
    double *received;
    BY_TRY(by__alloc((void **)&residual, COUNT, sizeof *residual, "residual", error));
    BY_TRY(by__alloc((void **)&received, COUNT, sizeof *received, "received", error));
    BY_TRY(e->codec == NULL ? run_power(e, comm, residual, received, error)
                            : run_codes(e, comm, residual, received, error));
    keep(e, by_comm_rank(comm), received, residual);
    free(residual);
    free(received);
    return BY_OK;
}
/* Runs an exchange and checks it on the elements [0, checked). */
static void check(const by__comm_codec *codec, int ranks, size_t checked)
{
    exchange e = {.codec = codec, .residual = calloc(COUNT, sizeof(double))};
    by_error error = {0};
    for (int r = 0; r < ranks; r++) {
        e.data[r] = malloc(COUNT * sizeof(float));
        assert_non_null(e.data[r]);
    }
    by_status status = by_comm_run_threads(ranks, NULL, rank_main, &e, &error);
    if (status != BY_OK) {
        fail_msg("%s", error.message);
    }
    for (int r = 1; r < ranks; r++) {
        assert_memory_equal(e.data[0], e.data[r], checked * sizeof(float));
    }
    /* Received and residuals together are all that was sent. */
    for (size_t i = 0; i < checked; i++) {
        double all = 0.0;
        for (int step = 0; step < STEPS; step++) {
            for (int r = 0; r < ranks; r++) {
                all += (double)value_at(step, r, i);
            }
        }
        if (fabs(all - e.residual[i]) > 2e-3) {
            fail_msg("%s, %d ranks: element %zu: %g was sent, %g received or kept",
                     codec == NULL ? "power" : codec->name, ranks, i, all, e.residual[i]);
        }
    }
    for (int r = 0; r < ranks; r++) {
        free(e.data[r]);
    }
    free(e.residual);
}

static void test_codes(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; by__comm_codec_at(k) != NULL; k++) {
        for (int ranks = 1; ranks <= MAX_RANKS; ranks += ranks < 3 ? 1 : 2) {
            check(by__comm_codec_at(k), ranks, COUNT);
        }
    }
}

static void test_power(void **state)
{
    BY_UNUSED(state);
    for (int ranks = 1; ranks <= MAX_RANKS; ranks += ranks < 3 ? 1 : 2) {
        check(NULL, ranks, MATRIX);
    }
    by__comm_power_sum *sum;
    by_error error = {0};
    assert_int_equal(by__comm_power_sum_open(&sum, NULL, NULL, 0, NULL, 0, 33, 1, &error), BY_EARG);
    assert_non_null(strstr(error.message, "33"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_power),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
