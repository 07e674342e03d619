/* Readers shared by tokenizer.json and GPT-2's encoder.json: the vocabulary object and merges. */
#ifndef BY_TEXT_TOKENIZER_JSON_PARTS_H
#define BY_TEXT_TOKENIZER_JSON_PARTS_H

#include <jansson.h>

#include "text/tokenizer/vocabulary.h"

/* Adds the tokens of {"token": id, ...}: ids are 0 .. n - 1, each once. Tokens of a byte-level
 * tokenizer are written in byte-level letters; those that are not are taken literally. */
by_status by__tokenizer_vocab_from_json(by_tokenizer *tokenizer, const json_t *vocab,
                                        const char *name, by_error *error);
/* Adds the merge of two tokens of the vocabulary object. `number` is its index, for messages. */
by_status by__tokenizer_merge_from_names(by_tokenizer *tokenizer, const json_t *vocab,
                                         const char *left, const char *right, size_t number,
                                         const char *name, by_error *error);

#endif
