/* packing: the layouts of packed weights (banyan/packing.h), for all who size, fill or read them.
 *
 * Never put here: products; ways to find codes that need more than the weight.
 */
#ifndef BY_BASE_PACKING_H
#define BY_BASE_PACKING_H

#include <stdbool.h>
#include <stddef.h>

#include "banyan/packing.h"
#include "base/coded.h"
#include "base/half.h"

/* Steps of k that share 4 bytes of a column in a panel of bf16. */
#define BY__PACKED_PAIR 2
/* Most inputs of a block of integers; those of 8 bits have as many. */
#define BY__PACKED_BLOCK 128
/* Most inputs of W8A8: a sum of so many products of two bytes fits into 32 bits. */
#define BY__W8A8_INPUTS (1 << 17)
/* The codes of weight 0, of integers. */
#define BY__INT8_OFFSET 128
#define BY__INT4_OFFSET 8

/* NULL, or what is wrong with a description. */
const char *by__packing_wrong(const by_packing *packing);
/* Bytes of a panel, a multiple of 64; SIZE_MAX when they do not fit. */
size_t by__packed_panel_bytes(const by_packing *packing);
/* Of integers: inputs of a block, whose scale or whose end is in the panel, and the bytes from one
 * to the next. */
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
/* Element (input i, column c of the panel) of codes; of an output of FP8 one of whose codes is NaN,
 * NaN. */
float by__packed_code_at(const by_packing *packing, const void *panel, int64_t c, int64_t i);
/* Shape of the packed weight as a tensor of u8: [panels, bytes of a panel]. */
by_shape by__packed_shape(const by_packing *packing);
/* Packs the values of a weight, [n, k] when out_in, else [k, n], of f32, bf16 or f16 at any
 * address, on `threads` threads. Of the first axis only the first `given` entries are there; the
 * others become zero. */
by_status by__pack_weight(void *out, const by_packing *packing, bool out_in, const void *values,
                          by_dtype dtype, int64_t given, int threads, by_error *error);

/* Whether a weight of codes can be packed as it is: no code and no scale changes. */
bool by__packing_takes(const by_packing *packing, const by__coded *coded);
/* Packs such a weight; outputs that it lacks become zero. */
by_status by__pack_coded(void *out, const by_packing *packing, const by__coded *coded, int threads,
                         by_error *error);

/* Element (input i, output j). */
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
