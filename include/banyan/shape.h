/* Shapes of tensors and of the arrays of a batch. */
#ifndef BANYAN_SHAPE_H
#define BANYAN_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_MAX_RANK 6

/* Extents of a tensor, slowest axis first, densely packed in that order. */
typedef struct by_shape {
    int rank;
    int64_t dim[BY_MAX_RANK];
} by_shape;

/* A shape from its extents: BY_SHAPE(batch, time, width). */
#define BY_SHAPE(...)                                                                              \
    ((by_shape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                 \
                .dim = {__VA_ARGS__}})

/* Number of elements; 1 for rank 0; 0 if any extent is 0. The extents are valid (their product
 * fits). */
BY_API int64_t by_shape_count(const by_shape *shape);
/* "[4, 1024, 768]" into buffer (returned). */
BY_API const char *by_shape_print(const by_shape *shape, char buffer[128]);
BY_API bool by_shape_equal(const by_shape *a, const by_shape *b);

#ifdef __cplusplus
}
#endif
#endif
