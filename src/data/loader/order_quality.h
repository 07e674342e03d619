/* How well the order of an epoch mixes examples that lie in files (order_quality.c). */
#ifndef BY_DATA_LOADER_ORDER_QUALITY_H
#define BY_DATA_LOADER_ORDER_QUALITY_H

#include "banyan/data.h"
#include "base/base.h"

/* The samples of an epoch, in the order in which they are drawn. */
typedef struct by__loader_drawn {
    uint64_t count;         /* at least 1 */
    const uint64_t *places; /* [count] of each: its example's place in the order of the files, */
    uint64_t examples;      /* below this number */
    const uint32_t *files;  /* [count] number of its file, */
    size_t file_count;      /* below this number */
    const int32_t *classes; /* [count] class of it; NULL: they have none. At least 0 */
    size_t class_count;
    uint64_t batch;  /* samples, at least 1 */
    uint64_t window; /* samples; 0: all are one window */
} by__loader_drawn;

by_status by__loader_order_measure(by_order_quality *out, const by__loader_drawn *drawn,
                                   by_error *error);

#endif
