/* Reads the parts of tokenizer.json other than the model, and has helpers that they share with the
 * model's reader. */
#ifndef BY_TEXT_TOKENIZER_PIPELINE_JSON_H
#define BY_TEXT_TOKENIZER_PIPELINE_JSON_H

#include <jansson.h>

#include "text/tokenizer/vocabulary.h"

/* BY_EFORMAT: "NAME: WHAT TYPE is not supported; ...", with the type from value. */
by_status by__tokenizer_json_refuse(const char *name, const char *what, const json_t *value,
                                    by_error *error);
/* True if a key is absent or null. */
bool by__tokenizer_json_absent(const json_t *object, const char *key);
/* True when value.type is `type`. */
bool by__tokenizer_json_is_type(const json_t *value, const char *type);
/* A boolean, `missing` if the key is absent; BY_EFORMAT if it is something else. */
by_status by__tokenizer_json_bool(const json_t *object, const char *key, bool missing, bool *out,
                                  const char *name, by_error *error);

/* Reads normalizer, pre-tokenizer, post-processor and decoder of a tokenizer whose kind is known.
 * Unsupported features are refused by name. */
by_status by__tokenizer_pipeline_read(by_tokenizer *tokenizer, const json_t *root, const char *name,
                                      by_error *error);
/* True if the pre-tokenizer is ByteLevel or a sequence that contains it. */
bool by__tokenizer_pipeline_is_byte_level(const json_t *pre);

#endif
