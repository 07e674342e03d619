/* coded: weights stored in files as low-bit codes with shared scales. A weight has n outputs (rows)
 * of k inputs each, whatever the axis order of its tensor.
 *
 *   kind  codes of a row
 *   INT8  s8 [k]: -127 .. 127
 *   INT4  u32 [k / 8], little-endian: code + 8 of eight inputs, 4 bits each, the first one lowest
 *   F8    e4m3 [k]
 *
 * An element is its scale times its code, in f32.
 */
#ifndef BY_BASE_PACKING_CODED_H
#define BY_BASE_PACKING_CODED_H

#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"

typedef enum by__code_kind {
    BY__CODE_INT8 = 0,
    BY__CODE_INT4,
    BY__CODE_F8,
    BY__CODE_KINDS
} by__code_kind;

/* Borrows codes and scales; neither needs to be aligned. */
typedef struct by__coded {
    by__code_kind kind;
    int64_t n, k;
    int64_t group;     /* inputs that share a scale; k or more: a whole row does */
    int64_t scale_row; /* scales of each output; 0: one scale for the whole weight */
    by_dtype scale_dtype;
    const uint8_t *codes;
    const uint8_t *scales;
} by__coded;

/* The largest finite e4m3. */
#define BY__F8_LARGEST 448.0f

/* Returns the bytes of one output's codes. */
size_t by__coded_row_bytes(by__code_kind kind, int64_t k);
/* Convert from and to e4m3 (S.EEEE.MMM, bias 7, no infinities; 0x7f and 0xff are NaN). Encoding
 * rounds to nearest, ties to even, and saturates at 448. */
float by__f8_to_f32(uint8_t code);
uint8_t by__f32_to_f8(float value);
/* Return the code, the scale and the value of input i of output j. The code of an F8 is its
 * byte. */
int by__coded_code(const by__coded *coded, int64_t j, int64_t i);
float by__coded_scale(const by__coded *coded, int64_t j, int64_t i);
float by__coded_at(const by__coded *coded, int64_t j, int64_t i);
/* Decodes inputs [first, first + count) of output j into `out`. */
void by__coded_row(const by__coded *coded, int64_t j, int64_t first, int64_t count, float *out);

#endif
