/* gemm: matrix products of the CPU device, planned once and run many times.
 *
 *   C[m, n] = op(A)[m, k] op(B)[k, n] (+ bias[n]) (+ add[m, n]) (+ C)
 *
 * Life: MATMUL, attention and the vocabulary loss open a by__cpu_gemm in `prepare`. It holds
 * shapes, layouts and dtypes, never data: the pointers are passed to `run`. Scratch memory comes
 * from the caller.
 *
 * Bits: a product gives the same bits for every number of threads (see gemm.c for how).
 *
 * Never put here: softmax, activations, anything that is not a product.
 */
#ifndef BY_DEVICE_CPU_GEMM_H
#define BY_DEVICE_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/status.h"
#include "device/cpu/cpu.h"

typedef struct by__cpu_gemm by__cpu_gemm;

typedef struct by__cpu_gemm_options {
    int64_t m, n, k;       /* all at least 1 */
    bool trans_a, trans_b; /* A is stored [k, m], B is stored [n, k] */
    int64_t lda, ldb, ldc; /* elements between stored rows; 0: dense */
    by_dtype dtype;        /* of A and B: an activation dtype */
    by_dtype out;          /* of C and add: an activation dtype */
    bool bias;
    by_dtype bias_dtype; /* an activation dtype */
    bool add;            /* another matrix, laid out as C, is added; it may be C itself */
    bool accumulate;     /* the product is added to C, which is f32; without bias and add */
    bool partial;        /* by__cpu_gemm_run_part will be called */
    by__cpu_isa isa;     /* highest level to use */
    int threads;
} by__cpu_gemm_options;

typedef struct by__cpu_gemm_operands {
    const void *a, *b, *bias, *add;
    void *c;
    void *work; /* by__cpu_gemm_work bytes, 64-byte aligned */
} by__cpu_gemm_operands;

by_status by__cpu_gemm_open(by__cpu_gemm **out, const by__cpu_gemm_options *options,
                            by_error *error);
void by__cpu_gemm_close(by__cpu_gemm **gemm);
size_t by__cpu_gemm_work(const by__cpu_gemm *gemm);
void by__cpu_gemm_run(const by__cpu_gemm *gemm, const by__cpu_gemm_operands *operands);
/* Runs the product with m and k of 1 up to those that it was opened for. This can be slower than a
 * product opened for these sizes, because the division of work follows from the sizes at opening. k
 * may differ only where A is transposed and B is not. */
void by__cpu_gemm_run_part(const by__cpu_gemm *gemm, const by__cpu_gemm_operands *operands,
                           int64_t m, int64_t k);

#endif
