/* packing: sizes, fills and reads the layouts of packed weights that banyan/packing.h defines.
 *
 * Never put here: matrix products, or quantisation methods that need more than the weight itself.
 */
#ifndef BY_BASE_PACKING_PACKING_H
#define BY_BASE_PACKING_PACKING_H

#include <stdbool.h>
#include <stddef.h>

#include "banyan/packing.h"
#include "base/half.h"
#include "base/packing/coded.h"

/* Neighbouring inputs that share the 4 bytes of a column in a bf16 panel. */
#define BY__PACKED_PAIR 2
/* Largest number of inputs in a block of integer codes; blocks of 8-bit codes always have this
 * many. */
#define BY__PACKED_BLOCK 128
/* Largest k of W8A8: a sum of this many products of two bytes fits into 32 bits. */
#define BY__W8A8_INPUTS (1 << 17)
/* The integer codes that represent weight 0. */
#define BY__INT8_OFFSET 128
#define BY__INT4_OFFSET 8

/* Returns NULL, or a message that says what is wrong with a description. */
const char *by__packing_wrong(const by_packing *packing);
/* Returns the bytes of a panel, a multiple of 64, or SIZE_MAX on overflow. */
size_t by__packed_panel_bytes(const by_packing *packing);
/* For integer codes: the inputs of a block, and its bytes in a panel including the block's
 * scales. */
static inline int64_t by__packed_block(const by_packing *packing)
{
    return packing->kind == BY_PACKING_INT4 ? packing->group : BY__PACKED_BLOCK;
}
static inline size_t by__packed_block_bytes(const by_packing *packing)
{
    size_t codes = BY__PACKED_BLOCK * BY_PACKED_COLUMNS;
    return packing->kind == BY_PACKING_INT4
               ? (size_t)packing->group * BY_PACKED_COLUMNS / 2 + 2 * BY_PACKED_COLUMNS
               : codes;
}
/* Decodes element (input i, column c of the panel) of a coded weight. An FP8 output that contains a
 * NaN code reads as NaN throughout. */
float by__packed_code_at(const by_packing *packing, const void *panel, int64_t c, int64_t i);
/* Number of matrices, 1 for a weight that is no stack. */
static inline int64_t by__packed_matrices(const by_packing *packing)
{
    return packing->stack > 0 ? packing->stack : 1;
}
/* Returns the panels of one matrix. */
int64_t by__packed_panels(const by_packing *packing);
/* Returns the shape of the packed weight as a u8 tensor: [panels, bytes of a panel]. */
by_shape by__packed_shape(const by_packing *packing);
/* Returns the shape of the unpacked weight: [n, k] if out_in, else [k, n]; of a stack [stack, n, k]
 * or [stack, k, n]. */
by_shape by__unpacked_shape(const by_packing *packing, bool out_in);
/* Packs a weight of f32, bf16 or f16 values at any address, in its unpacked shape, on `threads`
 * threads. Of each matrix only the first `given` entries of the first axis exist; the others become
 * zero. */
by_status by__pack_weight(void *out, const by_packing *packing, bool out_in, const void *values,
                          by_dtype dtype, int64_t given, int threads, by_error *error);

/* Returns true if coded weights can be packed without changing any code or scale. */
bool by__packing_accepts(const by_packing *packing, const by__coded *coded);
/* Packs coded weights as matrix `matrix` of `out`. Outputs beyond coded->n become zero. */
by_status by__pack_coded(void *out, const by_packing *packing, int64_t matrix,
                         const by__coded *coded, int threads, by_error *error);

/* Decodes inputs [first, first + count) of output j of a packed matrix. */
void by__packed_row(float *out, const by_packing *packing, const void *data, int64_t j,
                    int64_t first, int64_t count);
/* Decodes a packed matrix of 8-bit (INT8) or 4-bit codes into those of files: rows of codes, as in
 * coded.h, and f32 or f16 scales [n, one a row or group]; either may be NULL: not wanted. */
void by__unpack_codes(uint8_t *codes, void *scales, const by_packing *packing, const void *data,
                      int threads);
/* Inputs that share a scale, as by__coded.group has it, and scales of each output. */
int64_t by__packed_together(const by_packing *packing);
int64_t by__packed_scale_row(const by_packing *packing);

/* Reads element (input i, output j) of a packed matrix. */
static inline float by__packed_at(const by_packing *packing, const void *data, int64_t j, int64_t i)
{
    const char *panel =
        (const char *)data + (size_t)(j / BY_PACKED_COLUMNS) * by__packed_panel_bytes(packing);
    int64_t column = j % BY_PACKED_COLUMNS;
    if (packing->kind != BY_PACKING_PACKED) {
        return by__packed_code_at(packing, panel, column, i);
    }
    switch (packing->dtype) {
    case BY_F32:
        return ((const float *)(const void *)panel)[i * BY_PACKED_COLUMNS + column];
    case BY_F16:
        return by__f16_to_f32(
            ((const uint16_t *)(const void *)panel)[i * BY_PACKED_COLUMNS + column]);
    default:
        return by__bf16_to_f32(
            ((const uint16_t *)(const void *)
                 panel)[(i / BY__PACKED_PAIR * BY_PACKED_COLUMNS + column) * BY__PACKED_PAIR +
                        i % BY__PACKED_PAIR]);
    }
}

#endif
