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
 *   INT8    any    u8 [k / 4][32][4], k padded to blocks of 128: codes c of weights t (c - 128);
 *                  then f32 [32]: t of each output
 *   W8A8   any    as INT8
 *   FP8    any    e4m3 [k / 2][32][2], codes c of weights t c: neighbours of k in pairs; then
 *                 f32 [32]: t of each output
 *   INT4    any    for each `group` inputs (32, 64 or 128) u8 [group / 8][32][4], whose byte i has
 *                  the codes c of weights t (c - 8) of inputs i (lower half) and 4 + i (upper half)
 *                  of eight; then f16 [32]: t of each output in the group
 *
 * Codes are found by rounding to nearest. Of 8 bits, t is the largest magnitude of the output's
 * weights / 127, of FP8 / 448. Of 4 bits the weight of the largest magnitude in a group gets code
 * 0, so that t is that weight / -8.
 *
 * What a product does with its other operand follows from the kind. INT8 and INT4 take the inputs
 * of a block as integers of 16 bits with a scale of their own, W8A8 takes a whole row as integers
 * of 8 bits with one scale, its largest magnitude / 127 (dynamic quantisation by token: Dettmers et
 * al. 2022, "LLM.int8()"): half the multiplications, and a coarser result. FP8 takes it as it is,
 * as PACKED does: an e4m3 is a bf16 exactly, and t multiplies the sum.
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
    BY_PACKING_INT8,
    BY_PACKING_INT4,
    BY_PACKING_W8A8, /* at most 131,072 inputs */
    BY_PACKING_FP8,
    BY_PACKING_KINDS
} by_packing_kind;

typedef struct by_packing {
    by_packing_kind kind;
    by_dtype dtype; /* of the elements, and of what they are multiplied with */
    int64_t n, k;
    int64_t group; /* INT4: inputs that share a scale */
} by_packing;

/* "plain", "packed", "int8", "int4", "w8a8", "fp8"; "?" for an invalid value. */
BY_API const char *by_packing_kind_name(by_packing_kind kind);

#ifdef __cplusplus
}
#endif
#endif
