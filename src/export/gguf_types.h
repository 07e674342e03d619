/* The tensor types of GGUF: encoding and decoding of their blocks, in ggml's layouts. Each row of a
 * tensor consists of whole blocks. */
#ifndef BY_EXPORT_GGUF_TYPES_H
#define BY_EXPORT_GGUF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct by__export_gguf_type {
    const char *name;   /* "q8_0"; the dtype's name in exports */
    uint32_t id;        /* stored in a tensor's description */
    uint32_t file_type; /* general.file_type of a file whose matrices have this type */
    size_t elements;    /* of a block */
    size_t bytes;
    bool is_quantized;
    /* Encodes one block. Returns false if a value is too large or not finite. NULL: the type can
     * only be read. */
    bool (*encode)(uint8_t *out, const float *in);
    /* Returns element i of a block. */
    float (*decode)(const uint8_t *block, size_t i);
} by__export_gguf_type;

/* Returns NULL if there is no such type. */
const by__export_gguf_type *by__export_gguf_type_named(const char *name);
const by__export_gguf_type *by__export_gguf_type_of(uint32_t id);

#endif
