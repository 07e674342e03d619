/* Incremental hashes of the texts of an answer. The broker compares the answers of a request and of
 * its shadow copy by these hashes, so that it does not keep the texts. */
#ifndef BY_SERVE_PROTOCOL_ANSWER_HASH_H
#define BY_SERVE_PROTOCOL_ANSWER_HASH_H

#include "serve/base/serve.h"

/* Sequences of a request that are hashed; later ones are added to the first. */
#define BY__HASHED_SEQUENCES 8

typedef struct by__protocol_answer_hash {
    uint64_t texts[BY__HASHED_SEQUENCES]; /* 0: no text yet */
} by__protocol_answer_hash;

/* Adds text of a sequence. */
void by__protocol_answer_hash_piece(by__protocol_answer_hash *hash, size_t sequence,
                                    const char *text, size_t length);
/* Adds an event "text", and starts over at "again"; other events (messages.h) are ignored. */
void by__protocol_answer_hash_add(by__protocol_answer_hash *hash, const json_t *event);
/* Prints the combined hash as 16 hexadecimal digits. */
void by__protocol_answer_hash_print(char out[17], const by__protocol_answer_hash *hash);

#endif
