/* The types of GGUF's tensors: how blocks of elements are encoded and decoded. The layouts are
 * those of ggml; rows of a tensor are whole blocks. */
#ifndef BY_EXPORT_GGUF_TYPES_H
#define BY_EXPORT_GGUF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct by__gguf_type {
    const char *name;   /* "q8_0"; as dtypes of an export are called */
    uint32_t id;        /* in a tensor's description */
    uint32_t file_type; /* general.file_type of a file whose matrices have it */
    size_t elements;    /* of a block */
    size_t bytes;
    bool is_quantized;
    /* One block of elements to its bytes; false: a value is not finite, or too large. NULL: read
     * only. */
    bool (*encode)(uint8_t *out, const float *in);
    /* Element i of a block. */
    float (*decode)(const uint8_t *block, size_t i);
} by__gguf_type;

/* NULL: there is none. */
const by__gguf_type *by__gguf_type_named(const char *name);
const by__gguf_type *by__gguf_type_of(uint32_t id);

#endif
