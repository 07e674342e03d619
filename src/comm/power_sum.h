/* Sums over ranks by PowerSGD (power_sgd.h): matrices are exchanged as two thin factors, everything
 * else uncompressed. Every rank gets the same bits. The error of the factors is added to the values
 * of the next sum.
 */
#ifndef BY_COMM_POWER_SUM_H
#define BY_COMM_POWER_SUM_H

#include "banyan/comm.h"
#include "base/base.h"

/* A tensor in the summed values. columns 0: it is not a matrix and is summed uncompressed. */
typedef struct by__comm_power_tensor {
    size_t first; /* index of its first element */
    size_t rows;  /* or elements, if it is not a matrix */
    size_t columns;
} by__comm_power_tensor;

typedef struct by__comm_power_sum by__comm_power_sum;

/* For sums of `count` elements over `comm`. The caller owns the residual, `count` values; it and
 * comm must outlive the sum. Tensors (copied) must not overlap; elements between them are left
 * unchanged. rank: columns of a factor, at most BY__POWER_MAX_RANK; a matrix that two factors would
 * not make smaller is summed uncompressed. The initial factors are drawn from `seed`. */
by_status by__comm_power_sum_open(by__comm_power_sum **out, by_comm *comm,
                                  const by__comm_power_tensor *tensors, size_t tensor_count,
                                  float *residual, size_t count, size_t rank, uint64_t seed,
                                  by_error *error);
void by__comm_power_sum_close(by__comm_power_sum **sum);
/* Bytes that opening one allocates. */
size_t by__comm_power_sum_bytes(const by__comm_power_tensor *tensors, size_t tensor_count,
                                size_t rank);

/* Collective: data[i] = approximately the sum over ranks of data[i]. */
by_status by__comm_power_sum_run(by__comm_power_sum *sum, float *data, const char *what,
                                 by_error *error);

/* Collective: as by__comm_coded_sum_settle. The next sum starts from newly drawn factors. */
by_status by__comm_power_sum_settle(by__comm_power_sum *sum, by_error *error);

#endif
