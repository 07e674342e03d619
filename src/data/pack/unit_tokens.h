/* What a unit of text becomes: tokens, and where its documents end. */
#ifndef BY_DATA_PACK_UNIT_TOKENS_H
#define BY_DATA_PACK_UNIT_TOKENS_H

#include <stdlib.h>

#include "banyan/tokenizer.h"
#include "data/pack/duplicates.h"

typedef struct by__data_unit_document {
    size_t end; /* end offset in ids */
    uint64_t text_bytes;
    by__data_pack_signature signature; /* if duplicates are removed */
} by__data_unit_document;

/* A skipped line of a unit. */
typedef struct by__data_unit_skip {
    size_t line; /* in the unit, from 1 */
    char reason[128];
} by__data_unit_skip;

typedef struct by__data_unit_tokens {
    by_token_buffer ids;
    by__data_unit_document *documents; /* documents that end in the unit */
    size_t document_count;
    size_t document_capacity;
    uint64_t text_bytes; /* bytes after the last of them */
    uint64_t texts;      /* of JSON lines: lines with a text, */
    uint64_t lines;      /* and all of them */
    by__data_unit_skip *skipped;
    size_t skipped_count;
    size_t skipped_capacity;
} by__data_unit_tokens;

static inline void by__data_unit_tokens_free(by__data_unit_tokens *t)
{
    by_token_buffer_free(&t->ids);
    free(t->documents);
    free(t->skipped);
    *t = (by__data_unit_tokens){0};
}

#endif
