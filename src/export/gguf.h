/* What the writer and the reader of GGUF files share: names of tensors and of metadata. */
#ifndef BY_EXPORT_GGUF_H
#define BY_EXPORT_GGUF_H

#include "export/export.h"
#include "export/gguf_types.h"

/* How a tensor of a Hugging Face directory becomes one of GGUF. */
typedef enum by__gguf_order {
    BY__GGUF_PLAIN,
    /* Rows of a head: first the one that rotates with the first of the other half, as llama.cpp's
     * rotary positions pair neighbours where transformers' pair halves. */
    BY__GGUF_HEADS,
    BY__GGUF_KV_HEADS,  /* the same for the heads of keys */
    BY__GGUF_TRANSPOSED /* [in, out] of GPT-2's Conv1D */
} by__gguf_order;

/* A layer of both: names without ".weight" and ".bias". */
typedef struct by__gguf_layer {
    const char *gguf;  /* "attn_q"; of a block behind "blk.N." */
    const char *other; /* "self_attn.q_proj"; of a block behind `block` and N */
    by__gguf_order order;
    bool in_f32; /* whatever the type of the matrices */
} by__gguf_layer;

typedef enum by__gguf_key_kind { BY__GGUF_WHOLE, BY__GGUF_REAL } by__gguf_key_kind;

/* A number of config.json, and its key behind "ARCHITECTURE.". */
typedef struct by__gguf_key {
    const char *gguf;
    const char *other;
    by__gguf_key_kind kind;
    bool optional; /* files may lack it */
} by__gguf_key;

/* An architecture of llama.cpp. */
typedef struct by__gguf_architecture {
    const char *name;
    const char *model_types[3];   /* of config.json, the first for files that are read */
    const char *class_name;       /* "architectures" of config.json for these */
    const char *prefix;           /* "model." */
    const char *block;            /* "layers." */
    const by__gguf_layer *layers; /* up to a NULL name */
    const by__gguf_layer *blocks;
    const by__gguf_key *keys;
    bool rotary;
    bool pairs; /* its rotary positions pair neighbours */
} by__gguf_architecture;

/* NULL: llama.cpp has none. */
const by__gguf_architecture *by__gguf_architecture_of(const char *model_type);
const by__gguf_architecture *by__gguf_architecture_named(const char *name);
/* The names of all, for messages. Freed with free(). */
by_status by__gguf_architectures(char **out, by_error *error);

/* The row of the other order that is row r of a head's [heads * width] rows in GGUF. */
static inline int64_t by__gguf_head_row(int64_t r, int64_t width)
{
    int64_t in_head = r % width;
    return r - in_head + in_head % 2 * (width / 2) + in_head / 2;
}

#endif
