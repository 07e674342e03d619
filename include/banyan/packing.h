/* Packed weights: memory layouts for the constant operand of matrix products.
 *
 * A weight matrix has n outputs (columns of the product) and k inputs. Packed, it is a sequence of
 * panels of BY_PACKED_COLUMNS outputs; for each step in k the values of all outputs in a panel are
 * adjacent, so that a product reads a panel from start to end. Missing columns beyond n and missing
 * inputs beyond k are zero. The layout is the same on every machine and for every instruction set.
 *
 *   kind    dtype  panel
 *   PACKED  f32    f32 [k][32]
 *           f16    f16 [k][32]
 *           bf16   bf16 [k / 2][32][2], pairs of adjacent inputs
 *   INT8    any    u8 [k / 4][32][4], k padded to a multiple of 128: codes c of weights
 *                  t (c - 128); then f32 [32]: t of each output
 *   W8A8    any    as INT8
 *   FP8     any    e4m3 [k / 2][32][2], pairs of adjacent inputs: codes c of weights t c; then
 *                  f32 [32]: t of each output
 *   INT4    any    per `group` inputs (32, 64 or 128): u8 [group / 8][32][4]; of each 8 inputs,
 *                  byte i has the codes c of weights t (c - 8) for inputs i (low nibble) and 4 + i
 *                  (high nibble); then f16 [32]: t of each output in the group
 *
 * A stack of matrices, such as the experts of a layer, has the panels of each matrix one after the
 * other.
 *
 * Codes are rounded to nearest. For 8 bits, t is the largest weight magnitude of the output divided
 * by 127, for FP8 by 448. For 4 bits, the weight of largest magnitude in a group gets code 0, so t
 * is that weight divided by -8.
 *
 * The kind also determines how a product treats its other operand. INT8 and INT4 convert each block
 * of inputs to 16-bit integers with a scale of its own. W8A8 converts a whole row to 8-bit integers
 * with one scale, its largest magnitude / 127 (per-token dynamic quantization as in LLM.int8(),
 * Dettmers et al. 2022), which halves the multiplications and is less precise. PACKED and FP8 use
 * the inputs as they are; every e4m3 is exact in bf16, and t multiplies the sum.
 */
#ifndef BANYAN_PACKING_H
#define BANYAN_PACKING_H

#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Outputs in a panel. */
#define BY_PACKED_COLUMNS 32

/* Layout of a weight. */
typedef enum by_packing_kind {
    BY_PACKING_NONE = 0, /* not packed: row-major as in files */
    BY_PACKING_PACKED,   /* panels of the elements themselves */
    BY_PACKING_INT8,
    BY_PACKING_INT4,
    BY_PACKING_W8A8, /* at most 131,072 inputs */
    BY_PACKING_FP8,
    BY_PACKING_KINDS
} by_packing_kind;

/* Packing of one weight. */
typedef struct by_packing {
    by_packing_kind kind;
    by_dtype dtype; /* of the unpacked elements and of the other operand */
    int64_t n, k;   /* of one matrix */
    int64_t group;  /* INT4: inputs that share a scale, 32, 64 or 128 */
    int64_t stack;  /* matrices of a weight with three axes; 0: the weight is one matrix */
} by_packing;

/* Returns "plain", "packed", "int8", "int4", "w8a8" or "fp8"; "?" for an invalid value. */
BY_API const char *by_packing_kind_name(by_packing_kind kind);

#ifdef __cplusplus
}
#endif
#endif
