/* Codecs of compressed exchanges: encodings that are sent instead of f32 values.
 *
 * Values are coded in independent blocks of BY__CODEC_BLOCK neighbouring elements, so that a range
 * that begins at a block boundary has the same code whichever rank sends it, and several threads
 * can code blocks at the same time. The size of a code is a function of the number of values alone.
 *
 *   bf16     rounded to nearest even                                     2 bytes a value
 *   int8     round(x / s) with s = max |x| / 127 over 256 values         1.02
 *   one_bit  the sign; magnitude is mean |x| over 1024 values (Seide et  0.13
 *            al. 2014, Interspeech; Tang et al. 2021, arXiv:2102.02888)
 *   top_k    the share `density` of largest magnitude, as index and      6 x density
 *            value (Lin et al. 2018, arXiv:1712.01887)
 *
 * Error feedback: by__comm_codec_send first adds the error of earlier codes to the values, and
 * keeps the error of this one as the residual (Karimireddy et al. 2019, arXiv:1901.09847). The sum
 * of everything decoded then differs from the sum of all values by the last residual alone.
 *
 * A value that is not finite is never hidden: all values that share its scale decode to NaN.
 *
 * Never put here: who sends what to whom (coded_sum.c), memory, the step at which compression
 * begins.
 */
#ifndef BY_COMM_CODEC_H
#define BY_COMM_CODEC_H

#include "base/base.h"

/* Elements of a block: those of a partial sum (BY_SUM_BLOCK), at which slices are cut. */
#define BY__CODEC_BLOCK 16384

typedef struct by__comm_codec {
    const char *name;
    const char *summary;
    /* Bytes of the code of `count` values, at most one block. density: of top_k, in (0, 1]. */
    size_t (*bytes)(size_t count, double density);
    /* Writes that many bytes to `code`, which may have any alignment. */
    void (*encode)(const float *values, size_t count, double density, uint8_t *code);
    void (*decode)(const uint8_t *code, size_t count, double density, float *out);
} by__comm_codec;

/* The i-th codec; NULL after the last. */
const by__comm_codec *by__comm_codec_at(size_t i);
/* BY_EARG lists the known codecs. */
by_status by__comm_codec_find(const by__comm_codec **out, const char *name, by_error *error);

/* Bytes of the code of any number of values. */
size_t by__comm_codec_bytes(const by__comm_codec *codec, size_t count, double density);
/* Encodes values + residual into `code` and stores the error in `residual`. residual NULL: no error
 * feedback. Runs on `threads` threads. */
by_status by__comm_codec_send(const by__comm_codec *codec, const float *values, float *residual,
                              size_t count, double density, uint8_t *code, int threads,
                              by_error *error);
/* out = the decoded values; with `add`, out += them. */
by_status by__comm_codec_receive(const by__comm_codec *codec, const uint8_t *code, size_t count,
                                 double density, bool add, float *out, int threads,
                                 by_error *error);

#endif
