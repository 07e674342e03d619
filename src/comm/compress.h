/* Smaller forms of f32 values for the wire, with error feedback.
 *
 * What a form loses goes into `residual`, which the caller keeps from one call to the next and
 * which is added before the values are rounded again, so that over many calls nothing is lost
 * (Seide et al. 2014; Karimireddy et al. 2019, algorithm 1). residual is [count], zeros at
 * first, or NULL for none. Both forms depend on the values alone: blocks begin at the first
 * element, so a range that is cut at multiples of BY__INT8_BLOCK has the same form in pieces. */
#ifndef BY_COMM_COMPRESS_H
#define BY_COMM_COMPRESS_H

#include "base/base.h"

#define BY__INT8_BLOCK 256

/* Scales of `count` elements in int8: one for each block. */
static inline size_t by__int8_scales(size_t count)
{
    return count / BY__INT8_BLOCK + (count % BY__INT8_BLOCK != 0);
}

/* out[i] = round((in[i] + residual[i]) / scale), ties to even, scale = largest magnitude of the
 * block / 127. A block with a value that is not finite has a NaN scale, and reads back as NaNs; its
 * residual becomes zero. */
void by__compress_int8(int8_t *out, float *scales, float *residual, const float *in, size_t count);
void by__decompress_int8(float *out, const int8_t *in, const float *scales, size_t count);

/* out[i] = in[i] + residual[i] rounded to bf16. Residuals of values that are not finite are
 * zero. */
void by__compress_bf16(uint16_t *out, float *residual, const float *in, size_t count);
void by__decompress_bf16(float *out, const uint16_t *in, size_t count);

#endif
