/* coded: weights of products as files hold them in fewer bits: codes, and scales that some of them
 * share. A weight is rows of n outputs with k inputs each, whatever the order of its tensor is.
 *
 *   kind  codes of a row
 *   INT8  s8 [k]: -127 .. 127
 *   INT4  u32 [k / 8], little-endian: of eight inputs the code + 8 in 4 bits each, the first lowest
 *   F8    e4m3 [k]
 *
 * An element is its scale times its code, in f32.
 */
#ifndef BY_BASE_CODED_H
#define BY_BASE_CODED_H

#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"

typedef enum by__code_kind {
    BY__CODE_INT8 = 0,
    BY__CODE_INT4,
    BY__CODE_F8,
    BY__CODE_KINDS
} by__code_kind;

/* Borrows codes and scales, which may have any address. */
typedef struct by__coded {
    by__code_kind kind;
    int64_t n, k;
    int64_t group;     /* inputs that share a scale; k or more: all do */
    int64_t scale_row; /* scales of an output; 0: the weight has one */
    by_dtype scale_dtype;
    const uint8_t *codes;
    const uint8_t *scales;
} by__coded;

/* The largest e4m3. */
#define BY__F8_LARGEST 448.0f

/* Bytes of the codes of an output. */
size_t by__coded_row_bytes(by__code_kind kind, int64_t k);
/* The value of an e4m3 (S.EEEE.MMM, bias 7, no infinities; 0x7f and 0xff are NaN), and the nearest
 * one, ties to even; beyond 448 the largest. */
float by__f8_to_f32(uint8_t code);
uint8_t by__f32_to_f8(float value);
/* Code of input i of output j, and the scale that it has. An F8's code is its byte. */
int by__coded_code(const by__coded *coded, int64_t j, int64_t i);
float by__coded_scale(const by__coded *coded, int64_t j, int64_t i);
float by__coded_at(const by__coded *coded, int64_t j, int64_t i);
/* out = inputs [first, first + count) of output j. */
void by__coded_row(const by__coded *coded, int64_t j, int64_t first, int64_t count, float *out);

#endif
