/* The vocabulary of a GGUF file as the files that Hugging Face directories have. */
#ifndef BY_DATA_TOKENIZER_GGUF_TOKENIZER_H
#define BY_DATA_TOKENIZER_GGUF_TOKENIZER_H

#include <jansson.h>

#include "banyan/tokenizer.h"
#include "data/formats/gguf_file.h"

/* The tokenizer of a file: models "gpt2", "llama" and, of single characters, "rwkv". BY_EFORMAT
 * says what of it is not supported. */
by_status by__tokenizer_from_gguf(by_tokenizer **out, const char *name, const by__gguf_file *file,
                                  by_error *error);
by_status by__tokenizer_open_gguf(by_tokenizer **out, const char *path, by_error *error);
/* What tokenizer_config.json would hold: special tokens and the chat template. */
by_status by__gguf_settings(json_t **out, const by__gguf_file *file, by_error *error);
by_status by__gguf_settings_open(json_t **out, const char *path, by_error *error);
/* Whether a file says how a text becomes tokens; a model of token ids alone has none. */
by_status by__gguf_vocabulary_exists(bool *out, const char *path, by_error *error);
/* Ids of the tokens that end a text and a turn of a conversation, -1: none. */
by_status by__gguf_ends_open(int64_t out[2], const char *path, by_error *error);

#endif
