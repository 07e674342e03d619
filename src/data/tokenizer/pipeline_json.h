/* The parts of tokenizer.json around the model, and what they share with the model's reader. */
#ifndef BY_DATA_TOKENIZER_PIPELINE_JSON_H
#define BY_DATA_TOKENIZER_PIPELINE_JSON_H

#include <jansson.h>

#include "data/tokenizer/vocabulary.h"

/* BY_EFORMAT: "NAME: WHAT TYPE is not supported; ...", the type from value. */
by_status by__json_refuse(const char *name, const char *what, const json_t *value, by_error *error);
/* True for an absent key and null. */
bool by__json_absent(const json_t *object, const char *key);
/* True when value.type is `type`. */
bool by__json_is_type(const json_t *value, const char *type);
/* A boolean with a default for an absent key; BY_EFORMAT when it is something else. */
by_status by__json_bool(const json_t *object, const char *key, bool missing, bool *out,
                        const char *name, by_error *error);

/* Normalizer, pre-tokenizer, post-processor and decoder of a tokenizer whose kind is known. What is
 * not supported is refused by name. */
by_status by__pipeline_read(by_tokenizer *tokenizer, const json_t *root, const char *name,
                            by_error *error);
/* True when the pre-tokenizer is ByteLevel or a sequence with it. */
bool by__pipeline_is_byte_level(const json_t *pre);

#endif
