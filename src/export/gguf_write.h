/* A GGUF file that is being written: metadata, descriptions of tensors, then their data. */
#ifndef BY_EXPORT_GGUF_WRITE_H
#define BY_EXPORT_GGUF_WRITE_H

#include "export/gguf.h"

/* Key-value pairs in the file's form. {0} is empty. */
typedef struct by__gguf_pairs {
    by__text bytes;
    uint64_t count;
} by__gguf_pairs;

void by__gguf_put_u32(by__gguf_pairs *pairs, const char *key, uint32_t value);
void by__gguf_put_f32(by__gguf_pairs *pairs, const char *key, float value);
void by__gguf_put_bool(by__gguf_pairs *pairs, const char *key, bool value);
void by__gguf_put_text(by__gguf_pairs *pairs, const char *key, const char *text);
/* Begins an array of `count` elements of a type of the format, which the caller then adds with
 * by__gguf_add_text and by__text_add_bytes. */
void by__gguf_begin_array(by__gguf_pairs *pairs, const char *key, uint32_t type, uint64_t count);
void by__gguf_add_text(by__gguf_pairs *pairs, const char *text, size_t length);
#define BY__GGUF_I32    5u
#define BY__GGUF_F32    6u
#define BY__GGUF_STRING 8u

/* A tensor of the file and where its rows come from. */
typedef struct by__gguf_tensor {
    char name[64];
    const char *source; /* of the weights, borrowed; NULL: `values` */
    const float *values;
    by__gguf_order order;
    int64_t head; /* width of a head, where rows go by heads */
    int rank;
    int64_t rows;
    int64_t columns;
    const by__gguf_type *type;
    uint64_t bytes;
    uint64_t offset; /* behind the header */
} by__gguf_tensor;

typedef struct by__gguf_plan {
    const by__gguf_architecture *architecture;
    by__gguf_tensor *tensors;
    size_t count;
    size_t capacity;
    size_t taken;  /* tensors of the weights that are in the file */
    float *values; /* of the one that is no weight: factors of frequencies */
    size_t widened;
} by__gguf_plan;

/* Lists the tensors of the file (gguf_tensors.c). BY_EFORMAT: llama.cpp's architecture has no place
 * for one. */
by_status by__gguf_plan_make(by__gguf_plan *out, const by__export *export,
                             const by__gguf_type *type, by_error *error);
void by__gguf_plan_free(by__gguf_plan *plan);
/* Rows [first, first + count) of a tensor, f32 [count, columns]. scratch: as many. */
by_status by__gguf_rows(float *out, float *scratch, const by__gguf_tensor *tensor,
                        const by_weights *weights, int64_t first, int64_t count, by_error *error);

/* Metadata of the model (gguf_metadata.c) and of its vocabulary (gguf_vocabulary.c). */
by_status by__gguf_put_model(by__gguf_pairs *pairs, const by__export *export,
                             const by__gguf_architecture *architecture, by_error *error);
by_status by__gguf_put_vocabulary(by__gguf_pairs *pairs, const by__export *export, by_error *error);
/* Factors by which rotary frequencies are divided, f32 [width / 2], of rope_type llama3. */
void by__gguf_frequency_factors(float *out, int64_t width, const json_t *config);

#endif
