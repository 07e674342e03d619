/* Models of tokenizers: what turns a piece of a text into ids. Each is a file and a row of the
 * table in models.c; everything else of a tokenizer is shared. */
#ifndef BY_TEXT_TOKENIZER_MODEL_H
#define BY_TEXT_TOKENIZER_MODEL_H

#include <jansson.h>

#include "text/tokenizer/encoder.h"

struct by__tokenizer_model {
    const char *type; /* "type" of the model in tokenizer.json */
    /* The special token that ends a document if none has a usual name for that; NULL: none. */
    const char *end;
    /* Whether a file of this type is of this model; NULL: any is. */
    bool (*takes)(const json_t *root);
    /* Reads the vocabulary and settings from "model". */
    by_status (*read)(by_tokenizer *tokenizer, const json_t *model, const char *name,
                      by_error *error);
    /* Builds tables, when the vocabulary can be searched. NULL: there are none. */
    by_status (*finish)(by_tokenizer *tokenizer, const char *name, by_error *error);
    /* Encodes a piece of n >= 1 bytes to at most n ids. NULL: not by pieces (characters). */
    by_status (*encode)(by_encoder *encoder, const uint8_t *s, size_t n, uint32_t *ids,
                        size_t *count, by_error *error);
    /* Adds to the hash what only this model has; NULL: nothing. */
    void (*hash)(const by_tokenizer *tokenizer, by__hasher *hasher);
    /* Adds the JSON of "model". */
    void (*write)(const by_tokenizer *tokenizer, by_string *text);
    /* Frees tokenizer->model_state; NULL: there is none. */
    void (*free_state)(void *state);
};

extern const by__tokenizer_model by__tokenizer_bpe_model;
extern const by__tokenizer_model by__tokenizer_character_model;
extern const by__tokenizer_model by__tokenizer_wordpiece_model;
extern const by__tokenizer_model by__tokenizer_unigram_model;

/* Of both kinds of BPE; a character vocabulary is written as one without merges. */
by_status by__tokenizer_bpe_read(by_tokenizer *tokenizer, const json_t *model, const char *name,
                                 by_error *error);
by_status by__tokenizer_bpe_finish(by_tokenizer *tokenizer, const char *name, by_error *error);
void by__tokenizer_bpe_write(const by_tokenizer *tokenizer, by_string *text);

/* The model of a tokenizer.json; NULL if it is none of the table. */
const by__tokenizer_model *by__tokenizer_model_of(const json_t *root);

/* Adds a token as a JSON string, as files name it. */
void by__tokenizer_write_name(by_string *text, const by_tokenizer *tokenizer, uint32_t id);
/* Adds {"token": id, ...} of the model's tokens, with the brackets. */
void by__tokenizer_write_vocabulary(by_string *text, const by_tokenizer *tokenizer);

#endif
