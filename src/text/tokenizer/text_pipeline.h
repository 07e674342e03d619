/* Processing of a text before and after the model, as in tokenizer.json's normalizer,
 * pre_tokenizer, post_processor and decoder: rewriting steps, splitters, ids added around a text,
 * and the conversion of tokens to text. Read by pipeline_json.c. {0} does nothing. */
#ifndef BY_TEXT_TOKENIZER_TEXT_PIPELINE_H
#define BY_TEXT_TOKENIZER_TEXT_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"
#include "text/tokenizer/split.h"
#include "text/unicode/unicode_forms.h"

typedef enum by__tokenizer_rewrite_kind {
    BY__REWRITE_FORM,         /* to the Unicode normal form `form` */
    BY__REWRITE_REPLACE,      /* each `from` by `to` */
    BY__REWRITE_SPACES,       /* each run of two or more spaces by `to` */
    BY__REWRITE_PREPEND,      /* `to` before a text that is not empty */
    BY__REWRITE_PREFIX,       /* the same unless the text begins with it */
    BY__REWRITE_PREFIX_FIRST, /* the same at the beginning of the whole text only */
    BY__REWRITE_STRIP,        /* removes spaces at the beginning (left), at the end (right) */
    BY__REWRITE_CHARACTERS,   /* one by one: `actions` */
    BY__REWRITE_MAP,          /* by SentencePiece's `map` */
    BY__REWRITE_WORDS         /* spaces are dropped, and each word is prefixed by `to` */
} by__tokenizer_rewrite_kind;

/* What BY__REWRITE_CHARACTERS does, in this order. */
enum {
    BY__CHARACTERS_CLEAN = 1,    /* drops control characters; all white space becomes a space */
    BY__CHARACTERS_SEPARATE = 2, /* puts spaces around Chinese characters */
    BY__CHARACTERS_ACCENTS = 4,  /* decomposes, and drops marks without a width of their own */
    BY__CHARACTERS_MARKS = 8,    /* drops marks */
    BY__CHARACTERS_LOWER_CASE = 16
};

typedef struct by__tokenizer_charsmap by__tokenizer_charsmap; /* charsmap.h */

typedef struct by__tokenizer_rewrite {
    by__tokenizer_rewrite_kind kind;
    by__text_form form;
    bool left;
    bool right;
    unsigned actions;
    by__tokenizer_charsmap *map; /* owned */
    char *from;                  /* owned; may contain any bytes */
    size_t from_length;
    char *to;
    size_t to_length;
} by__tokenizer_rewrite;

#define BY__MAX_REWRITES  16u
#define BY__MAX_SPLITTERS 8u
#define BY__MAX_ADDED_IDS 16u

typedef struct by__tokenizer_pipeline {
    by__tokenizer_rewrite rewrites[BY__MAX_REWRITES];
    size_t normalizers; /* how many rewrites precede the search for `normalized` added tokens */
    size_t rewrite_count;
    by__tokenizer_splitter splitters[BY__MAX_SPLITTERS];
    size_t splitter_count;
    uint32_t before[BY__MAX_ADDED_IDS]; /* ids before and after a text */
    uint32_t after[BY__MAX_ADDED_IDS];
    size_t before_count;
    size_t after_count;
    /* Decoding of tokenizers that are not byte-level. In each token, `from` becomes `to`, for all
     * replacements; */
    by__tokenizer_rewrite replacements[BY__MAX_REWRITES];
    size_t replacement_count;
    bool decode_bytes; /* <0x..> becomes a byte; */
    bool drop_first;   /* of the first token, a match of the first replacement is dropped. */
    bool spaced;       /* a space precedes each token but the first, unless it begins with */
    char *continuing;  /* this, which is dropped; NULL: none does. Owned. */
    size_t continuing_length;
    bool cleanup;  /* spaces before punctuation and contractions are dropped, in each token. */
    char strip[8]; /* Then up to strip_count of these are removed at the beginning of the text. */
    size_t strip_length;
    size_t strip_count;
    /* JSON of normalizer, pre_tokenizer, post_processor and decoder as they are written to files;
     * all NULL: the ones that tokenizer_write.c generates. */
    char *source[4];
} by__tokenizer_pipeline;

void by__tokenizer_pipeline_free(by__tokenizer_pipeline *pipeline);

/* A text being rewritten. {0} is empty. */
typedef struct by__tokenizer_rewriting {
    char *data[2]; /* double buffer */
    size_t capacity[2];
    by__text_code_points codes;
} by__tokenizer_rewriting;

/* A text being written to one of the two buffers. */
typedef struct by__tokenizer_target {
    by__tokenizer_rewriting *rewriting;
    unsigned buffer;
    size_t length;
} by__tokenizer_target;

by_status by__tokenizer_put(by__tokenizer_target *target, const void *bytes, size_t n,
                            by_error *error);
/* Appends s after BY__REWRITE_CHARACTERS (rewrite_characters.c). */
by_status by__tokenizer_put_characters(unsigned actions, const uint8_t *s, size_t n,
                                       by__tokenizer_target *target, by_error *error);

void by__tokenizer_rewriting_free(by__tokenizer_rewriting *rewriting);
/* Applies rewrites [begin, end) to s; `first`: s begins the whole text; cleared when that is no
 * longer true. *out, borrowed from s or `rewriting`, is valid until the next call. */
by_status by__tokenizer_rewrite_text(const by__tokenizer_pipeline *pipeline, size_t begin,
                                     size_t end, by__tokenizer_rewriting *rewriting,
                                     const uint8_t *s, size_t n, bool *first, const uint8_t **out,
                                     size_t *length, by_error *error);

#endif
