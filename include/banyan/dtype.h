/* Element types of tensors and arrays. */
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
    BY_BF16,    /* bfloat16: the upper 16 bits of a binary32 */
    BY_F16,     /* IEEE binary16 */
    BY_I32,     /* signed 32-bit integer: token ids, positions, counts */
    BY_U8,      /* unsigned 8-bit integer */
    BY_BOOL,    /* one byte, 0 or 1 */
    BY_I8,      /* signed 8-bit integer: quantized weights in files */
    BY_F8,      /* OCP 8-bit float e4m3, without infinities: quantized weights in files */
    BY_DTYPE_COUNT
} by_dtype;

/* Returns the size of an element in bytes; 0 for an invalid value. */
BY_API size_t by_dtype_size(by_dtype dtype);
/* Returns "f32", "bf16", "f16", "i32", "u8", "bool", "i8" or "f8"; "?" for an invalid value. */
BY_API const char *by_dtype_name(by_dtype dtype);
/* Returns true for f32, bf16 and f16. */
BY_API bool by_dtype_is_float(by_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
