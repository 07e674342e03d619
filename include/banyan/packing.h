/* Packing: how the weight of a product is held where it does not change any more.
 *
 * A weight has n outputs (columns of the product) and k inputs. Packed, it is panels of
 * BY_PACKED_COLUMNS outputs, one behind the other, each a stream that a product reads from end to
 * end: for every step of k the values of all outputs of the panel are neighbours. Columns beyond n,
 * and what a step lacks beyond k, are zero. The layout is the same on every machine and at every
 * instruction set.
 *
 *   kind    dtype  a panel is
 *   PACKED  f32    f32 [k][32]
 *           f16    f16 [k][32]
 *           bf16   bf16 [k / 2][32][2]: neighbours of k in pairs
 */
#ifndef BANYAN_PACKING_H
#define BANYAN_PACKING_H

#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_PACKED_COLUMNS 32

typedef enum by_packing_kind {
    BY_PACKING_NONE = 0, /* a tensor as files have it */
    BY_PACKING_PACKED,   /* its own elements in panels */
    BY_PACKING_KINDS
} by_packing_kind;

typedef struct by_packing {
    by_packing_kind kind;
    by_dtype dtype; /* of the elements */
    int64_t n, k;
} by_packing;

/* "plain", "packed"; "?" for an invalid value. */
BY_API const char *by_packing_kind_name(by_packing_kind kind);

#ifdef __cplusplus
}
#endif
#endif
