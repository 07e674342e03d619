/* cuda_products: matrix products by cuBLASLt, opened at run time.
 *
 * The algorithm of a product is fixed when it is opened: the one that was chosen for its shape
 * before (by__device_choices), else the library's first, with every split of the inner dimension
 * whose parts the library would add in an order of its own turned off. So a GPU gives the same bits
 * from run to run. cuda_matmul.c splits products of much depth and few results itself, and adds the
 * parts in order.
 */
#ifndef BY_DEVICE_CUDA_CUDA_PRODUCTS_H
#define BY_DEVICE_CUDA_CUDA_PRODUCTS_H

#include "device/cuda/cuda.h"

/* y [m, n] = op(a) [m, k] op(b) [k, n] + bias [n] + add: row-major matrices. */
typedef struct by__cuda_product_shape {
    int64_t m, n, k;
    bool trans_a;                         /* a is [k, m] */
    bool trans_b;                         /* b is [n, k] */
    int64_t a_stride, b_stride, y_stride; /* elements from row to row */
    by_dtype dtype;                       /* of a and b */
    by_dtype y_dtype;
    bool has_bias; /* of y's dtype */
    bool adds;     /* `add` is like y, and may be y */
    /* If more than 1: as many products, whose operands and results are these numbers of elements
     * apart; without a bias and `add`. */
    int32_t batches;
    int64_t a_step, b_step, y_step;
} by__cuda_product_shape;

typedef struct by__cuda_product by__cuda_product;

/* Operands, addresses of the device. */
typedef struct by__cuda_product_operands {
    const void *a, *b, *bias, *add;
    void *y;
} by__cuda_product_operands;

/* Of f32 in tf32 if the device says so. */
by_status by__cuda_product_open(by__cuda_product **out, const by__device_context *context,
                                const by__cuda_product_shape *shape, by_error *error);
/* NULL is accepted. */
void by__cuda_product_close(by__cuda_product *product);
/* Bytes of scratch memory that a run needs. */
size_t by__cuda_product_work(const by__cuda_product *product);
/* Launches the product on a queue. */
by_status by__cuda_product_run(const by__cuda_product *product,
                               const by__cuda_product_operands *operands, void *work,
                               by__cuda_queue *queue);

#endif
