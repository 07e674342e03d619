/* Names of tensors and metadata, shared by the writer and the reader of GGUF files. */
#ifndef BY_EXPORT_GGUF_H
#define BY_EXPORT_GGUF_H

#include "export/export.h"
#include "export/gguf_types.h"

/* How a tensor of a Hugging Face directory is reordered for GGUF. */
typedef enum by__export_gguf_order {
    BY__GGUF_PLAIN,
    /* Interleaves the two halves of each head's rows, because the rotary positions of llama.cpp
     * pair neighbours, while those of transformers pair row i with row i of the other half. */
    BY__GGUF_HEADS,
    BY__GGUF_KV_HEADS,   /* the same for the heads of keys */
    BY__GGUF_TRANSPOSED, /* GPT-2's Conv1D stores [in, out] */
    /* One tensor of all experts, [experts, out, in]; `other` has a '*' for the expert's number. */
    BY__GGUF_EXPERTS
} by__export_gguf_order;

/* A layer in both formats, named without ".weight" and ".bias". */
typedef struct by__export_gguf_layer {
    const char *gguf;  /* "attn_q"; inside a block it follows "blk.N." */
    const char *other; /* "self_attn.q_proj"; inside a block it follows `block` and N */
    by__export_gguf_order order;
    bool in_f32; /* always f32, whatever the type of the matrices */
} by__export_gguf_layer;

/* Key of the number of experts, without "ARCHITECTURE.". */
#define BY__GGUF_EXPERT_COUNT "expert_count"

typedef enum by__export_gguf_key_kind { BY__GGUF_WHOLE, BY__GGUF_REAL } by__export_gguf_key_kind;

/* A number of config.json, and its GGUF key without "ARCHITECTURE.". */
typedef struct by__export_gguf_key {
    const char *gguf;
    const char *other;
    by__export_gguf_key_kind kind;
    bool optional; /* files may omit it */
} by__export_gguf_key;

/* An architecture of llama.cpp. */
typedef struct by__export_gguf_architecture {
    const char *name;
    const char *model_types[3]; /* "model_type" of config.json; the first is used for files that
                                     are read */
    const char *class_name;     /* "architectures" of config.json for them */
    const char *prefix;         /* "model." */
    const char *block;          /* "layers." */
    const by__export_gguf_layer *layers; /* ends with a NULL name */
    const by__export_gguf_layer *blocks;
    const by__export_gguf_key *keys;
    bool rotary;
    bool pairs;   /* its rotary positions pair neighbours */
    bool experts; /* a mixture of experts */
} by__export_gguf_architecture;

/* Returns NULL if llama.cpp has no such architecture. */
const by__export_gguf_architecture *by__export_gguf_architecture_of(const char *model_type);
/* Mixtures are their own row of the same name, since llama.cpp's "llama" is both: a file is one if
 * it has experts. */
const by__export_gguf_architecture *by__export_gguf_architecture_named(const char *name,
                                                                       bool experts);
/* Returns the names of all architectures for messages. Freed with free(). */
by_status by__export_gguf_architectures(char **out, by_error *error);

/* Maps row r of a head's GGUF rows to its row in the other order; a head has `width` rows. */
static inline int64_t by__gguf_head_row(int64_t r, int64_t width)
{
    int64_t in_head = r % width;
    return r - in_head + in_head % 2 * (width / 2) + in_head / 2;
}

#endif
