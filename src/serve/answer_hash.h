/* Hashes of the texts of an answer while it comes, by which the answers of a request and of its
 * copy for another version are compared: the texts themselves are of no use then. */
#ifndef BY_SERVE_ANSWER_HASH_H
#define BY_SERVE_ANSWER_HASH_H

#include "serve/serve.h"

/* Of a request; a later one counts as the first. */
#define BY__HASHED_SEQUENCES 8

typedef struct by__answer_hash {
    uint64_t texts[BY__HASHED_SEQUENCES]; /* 0: no text yet */
} by__answer_hash;

/* Adds text of a sequence. */
void by__answer_hash_piece(by__answer_hash *hash, size_t sequence, const char *text, size_t length);
/* Adds an event "text", and begins anew with "again"; other events (messages.h) say nothing. */
void by__answer_hash_add(by__answer_hash *hash, const json_t *event);
/* 16 hexadecimal digits of all of it. */
void by__answer_hash_print(char out[17], const by__answer_hash *hash);

#endif
