/* Reads the tokenizer of a GGUF file, converted to what Hugging Face directories contain. */
#ifndef BY_TEXT_TOKENIZER_GGUF_TOKENIZER_H
#define BY_TEXT_TOKENIZER_GGUF_TOKENIZER_H

#include <jansson.h>

#include "banyan/tokenizer.h"
#include "formats/gguf_file.h"

/* Opens the tokenizer of a file: models "gpt2", "llama" and, with single characters, "rwkv".
 * BY_EFORMAT names an unsupported feature. */
by_status by__tokenizer_from_gguf(by_tokenizer **out, const char *name,
                                  const by__format_gguf_file *file, by_error *error);
by_status by__tokenizer_open_gguf(by_tokenizer **out, const char *path, by_error *error);
/* Makes the equivalent of tokenizer_config.json: special tokens and the chat template. */
by_status by__tokenizer_gguf_settings(json_t **out, const by__format_gguf_file *file,
                                      by_error *error);
by_status by__tokenizer_gguf_settings_open(json_t **out, const char *path, by_error *error);
/* Finds out whether a file has a vocabulary; one for models of token ids alone has none. */
by_status by__tokenizer_gguf_vocabulary_exists(bool *out, const char *path, by_error *error);
/* Reads the ids of the tokens that end a text and a turn of a conversation; -1: none. */
by_status by__tokenizer_gguf_ends_open(int64_t out[2], const char *path, by_error *error);

#endif
