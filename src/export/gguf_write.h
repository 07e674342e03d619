/* Writes a GGUF file: metadata, descriptions of tensors, then their data. */
#ifndef BY_EXPORT_GGUF_WRITE_H
#define BY_EXPORT_GGUF_WRITE_H

#include "export/gguf.h"

/* Key-value pairs as encoded in the file. {0} is empty. */
typedef struct by__export_gguf_pairs {
    by_string bytes;
    uint64_t count;
} by__export_gguf_pairs;

void by__export_gguf_put_u32(by__export_gguf_pairs *pairs, const char *key, uint32_t value);
void by__export_gguf_put_f32(by__export_gguf_pairs *pairs, const char *key, float value);
void by__export_gguf_put_bool(by__export_gguf_pairs *pairs, const char *key, bool value);
void by__export_gguf_put_text(by__export_gguf_pairs *pairs, const char *key, const char *text);
/* Begins an array of `count` elements of a GGUF type, which the caller then appends with
 * by__export_gguf_add_text and by_string_add. */
void by__export_gguf_begin_array(by__export_gguf_pairs *pairs, const char *key, uint32_t type,
                                 uint64_t count);
void by__export_gguf_add_text(by__export_gguf_pairs *pairs, const char *text, size_t length);
#define BY__GGUF_I32    5u
#define BY__GGUF_F32    6u
#define BY__GGUF_STRING 8u

/* A tensor of the file and the source of its rows. */
typedef struct by__export_gguf_tensor {
    char name[64];
    const char *source; /* name among the weights, borrowed; NULL: `values` */
    char parts[256];    /* instead of a source, the name of experts with '*' for their number */
    const float *values;
    by__export_gguf_order order;
    int64_t head; /* width of a head, if rows are ordered by heads */
    int rank;
    int64_t experts; /* 1 for a tensor of no experts */
    int64_t rows;    /* of all experts */
    int64_t columns;
    const by__export_gguf_type *type;
    uint64_t bytes;
    uint64_t offset; /* relative to the end of the header */
} by__export_gguf_tensor;

typedef struct by__export_gguf_plan {
    const by__export_gguf_architecture *architecture;
    by__export_gguf_tensor *tensors;
    size_t count;
    size_t capacity;
    float *values; /* of the only tensor that is not a weight: factors of frequencies */
    size_t widened;
} by__export_gguf_plan;

/* Lists the tensors of the file (gguf_tensors.c). BY_EFORMAT: llama.cpp's architecture lacks one of
 * the model's tensors. */
by_status by__export_gguf_plan_make(by__export_gguf_plan *out, const by__export *export,
                                    const by__export_gguf_type *type, by_error *error);
void by__export_gguf_plan_free(by__export_gguf_plan *plan);
/* Reads rows [first, first + count) of a tensor as f32 [count, columns]; scratch has the same
 * size. */
by_status by__export_gguf_rows(float *out, float *scratch, const by__export_gguf_tensor *tensor,
                               const by_weights *weights, int64_t first, int64_t count,
                               by_error *error);

/* Add the metadata of the model (gguf_metadata.c) and of its vocabulary (gguf_vocabulary.c). */
by_status by__export_gguf_put_model(by__export_gguf_pairs *pairs, const by__export *export,
                                    const by__export_gguf_architecture *architecture,
                                    by_error *error);
by_status by__export_gguf_put_vocabulary(by__export_gguf_pairs *pairs, const by__export *export,
                                         by_error *error);
/* Computes the divisors of rotary frequencies for rope_type llama3, f32 [width / 2]. */
void by__export_gguf_frequency_factors(float *out, int64_t width, const json_t *config);

#endif
