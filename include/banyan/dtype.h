/* Element types of tensors. */
#ifndef BANYAN_DTYPE_H
#define BANYAN_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_dtype {
    BY_F32 = 0, /* IEEE binary32 */
    BY_BF16,    /* bfloat16: the upper half of a binary32 */
    BY_F16,     /* IEEE binary16 */
    BY_I32,     /* signed 32-bit: token ids, positions, counts */
    BY_U8,      /* unsigned byte */
    BY_BOOL,    /* one byte, 0 or 1 */
    BY_I8,      /* signed byte: codes of weights in files */
    BY_F8,      /* 8-bit float e4m3 (OCP, without infinities): codes of weights in files */
    BY_DTYPE_COUNT
} by_dtype;

/* Bytes of one element; 0 for an invalid value. */
BY_API size_t by_dtype_size(by_dtype dtype);
/* "f32", "bf16", "f16", "i32", "u8", "bool", "i8", "f8"; "?" for an invalid value. */
BY_API const char *by_dtype_name(by_dtype dtype);
/* True for f32, bf16 and f16. */
BY_API bool by_dtype_is_float(by_dtype dtype);
/* Parses a name as by_dtype_name prints it. BY_EARG if there is no such type. */
BY_API by_status by_dtype_parse(by_dtype *out, const char *name, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
