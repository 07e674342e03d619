/* PowerSGD (Vogels et al. 2019, arXiv:1905.13727): a gradient matrix M [rows, columns] is exchanged
 * as two thin factors, M = P Q^T with P [rows, rank] and Q [columns, rank]:
 *
 *     P = M Q      summed over the ranks, then its columns are made orthonormal
 *     Q = M^T P    summed over the ranks; kept: the next step's iteration starts from it
 *     M' = P Q^T   the same on every rank; M - M' is the residual, added to the next M
 *
 * which is one step of the power method for the largest singular vectors of the summed matrix. With
 * rank 2 a matrix of 768 x 3072 is 307 times smaller.
 *
 * Factors are stored column by column: P as [rank, rows], Q as [rank, columns]. The order of all
 * sums is fixed.
 */
#ifndef BY_COMM_POWER_SGD_H
#define BY_COMM_POWER_SGD_H

#include "base/base.h"

#define BY__POWER_MAX_RANK 32

/* The initial Q: normal values from Philox, a function of seed and tensor, so that it is the same
 * on every rank. */
void by__comm_power_begin(float *q, size_t columns, size_t rank, uint64_t seed, uint32_t tensor);
/* p = M Q */
void by__comm_power_left(const float *m, size_t rows, size_t columns, size_t rank, const float *q,
                         float *p);
/* Makes the columns of p orthonormal, in order (modified Gram-Schmidt). A column that depends on
 * earlier ones becomes zero and has no effect. */
void by__comm_power_orthonormalize(float *p, size_t rows, size_t rank);
/* q = M^T P */
void by__comm_power_right(const float *m, size_t rows, size_t columns, size_t rank, const float *p,
                          float *q);
/* out = P Q^T */
void by__comm_power_product(const float *p, const float *q, size_t rows, size_t columns,
                            size_t rank, float *out);

#endif
