/* Shapes of tensors and of the arrays in a batch. */
#ifndef BANYAN_SHAPE_H
#define BANYAN_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Largest rank of a tensor in a graph or a batch. */
#define BY_MAX_RANK 6
/* Largest rank of a tensor in a file. */
#define BY_TENSOR_MAX_RANK 8

/* Extents of a dense row-major tensor: the last axis is contiguous in memory. */
typedef struct by_shape {
    int rank; /* 0 (a scalar) to BY_MAX_RANK */
    int64_t dim[BY_MAX_RANK];
} by_shape;

/* Makes a shape from its extents: BY_SHAPE(batch, time, width). */
#define BY_SHAPE(...)                                                                              \
    ((by_shape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                 \
                .dim = {__VA_ARGS__}})

/* Returns the number of elements: 1 for rank 0. The product of the extents must fit int64_t. */
BY_API int64_t by_shape_count(const by_shape *shape);
/* Writes the shape as text, such as "[4, 1024, 768]". Returns `buffer`. */
BY_API const char *by_shape_print(const by_shape *shape, char buffer[128]);
/* Returns whether rank and all extents are equal. */
BY_API bool by_shape_equal(const by_shape *a, const by_shape *b);

/* A part of a tensor: a box of `shape` elements starting at `offset` along each axis or, if `flat`,
 * elements [offset[0], offset[0] + shape[0]) in row-major order. A slice in memory is dense and
 * row-major. */
typedef struct by_tensor_slice {
    bool flat;
    int64_t offset[BY_TENSOR_MAX_RANK];
    int64_t shape[BY_TENSOR_MAX_RANK];
} by_tensor_slice;

#ifdef __cplusplus
}
#endif
#endif
