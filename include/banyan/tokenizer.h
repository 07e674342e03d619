/* Tokenizers: conversion between text and token ids.
 *
 * Supported, with the same ids as Hugging Face `tokenizers`, are byte-level BPE (Sennrich et al.
 * 2016, Radford et al. 2019) with the split patterns of GPT-2, Llama 3, GPT-4, GPT-4o, Qwen and
 * related models; character-level BPE with byte fallback as made by SentencePiece (Llama 2,
 * Mistral, Gemma); WordPiece (BERT); Unigram (T5, ALBERT, XLM-R); and plain characters, one id per
 * Unicode code point. All are read from and written to Hugging Face's tokenizer.json;
 * docs/tokenizers.md lists the supported features.
 *
 * Text may be any sequence of bytes. Byte-level BPE and byte fallback encode all of them: a byte
 * that is not part of valid UTF-8 counts as one symbol character (neither letter, digit nor space),
 * and decoding restores the original bytes, apart from the tokenizer's own normalization. A
 * character tokenizer rejects characters outside its vocabulary.
 *
 * Unicode classes (\p{L}, \p{N}, \s) are those of Unicode 16.0, as in tokenizers 0.23 and tiktoken
 * 0.14.
 *
 * A tokenizer is immutable, and any number of threads may use one. Scratch memory and caches for
 * encoding are in a by_encoder, one per thread.
 */
#ifndef BANYAN_TOKENIZER_H
#define BANYAN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"
#include "banyan/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_tokenizer by_tokenizer;

/* ---- opening and training ---- */

/* Opens a tokenizer.json; a directory with tokenizer.json, with GPT-2's encoder.json and vocab.bpe,
 * or with BERT's vocab.txt and, if there is one, tokenizer_config.json; a file of tiktoken ranks
 * (*.tiktoken), with GPT-2's pre-tokenization; or a GGUF file. Returns BY_EIO if it cannot be read,
 * BY_EFORMAT if it is malformed or uses an unsupported feature (named in the message). */
BY_API by_status by_tokenizer_open(by_tokenizer **out, const char *path, by_error *error);
/* Parses the text of a tokenizer.json. `name` stands for the file in messages. Returns BY_EFORMAT
 * as by_tokenizer_open. */
BY_API by_status by_tokenizer_from_json(by_tokenizer **out, const char *text, size_t length,
                                        const char *name, by_error *error);
BY_API void by_tokenizer_close(by_tokenizer **tokenizer);

/* Progress callback: `done` is the fraction of the work, in [0, 1]. Never called by two threads at
 * once. Returning false stops the work with BY_ESTOPPED. */
typedef bool (*by_tokenizer_progress)(void *user, double done);

typedef struct by_bpe_options {
    /* Number of tokens, at least 257 (<|endoftext|> and 256 bytes). Fewer result if the text has no
     * more pairs to merge. */
    size_t vocab;
    uint64_t min_frequency;         /* rarer pairs are not merged; 0 and 1: merge all */
    size_t threads;                 /* for counting words; 0: one per core. Does not affect the
                                       result */
    by_tokenizer_progress progress; /* may be NULL */
    void *user;
} by_bpe_options;

/* Trains a byte-level BPE. <|endoftext|> is id 0, the 256 bytes follow in the order of their
 * printable stand-ins, then one token per merge: the most frequent pair first, ties broken by
 * smaller ids. The merges equal those of Hugging Face's BpeTrainer. Returns BY_EARG if vocab is
 * below 257, BY_ESTOPPED. */
BY_API by_status by_tokenizer_train_bpe(by_tokenizer **out, const by_bpe_options *options,
                                        const by_text *texts, size_t count, by_error *error);
/* Makes a character tokenizer: the distinct characters of the texts in code point order get ids 0,
 * 1, 2, ... It has neither an end-of-text nor an unknown token. Returns BY_EFORMAT, with the
 * position, if a text is not valid UTF-8 or contains U+0000. */
BY_API by_status by_tokenizer_char(by_tokenizer **out, const by_text *texts, size_t count,
                                   by_error *error);

/* Writes a tokenizer.json atomically. Hugging Face `tokenizers` loads it and produces the same
 * ids. */
BY_API by_status by_tokenizer_save(const by_tokenizer *tokenizer, const char *path,
                                   by_error *error);
/* Makes the same text in memory; free it with free(). */
BY_API by_status by_tokenizer_to_json(const by_tokenizer *tokenizer, char **out, size_t *length,
                                      by_error *error);

/* ---- properties ---- */

/* Returns the vocabulary size, including added tokens; ids are below it. */
BY_API uint32_t by_tokenizer_vocab(const by_tokenizer *tokenizer);
/* Returns the token that ends a document: the special token "<|endoftext|>", or else
 * "<|end_of_text|>", "</s>" or "<eos>"; of WordPiece and Unigram, "[SEP]" last. -1 if none. */
BY_API int64_t by_tokenizer_eos(const by_tokenizer *tokenizer);
/* Maximum number of tokens that by_end_tokens returns. */
#define BY_END_TOKENS 16
/* Collects the tokens that end generation for the model in a directory, whatever generates: the
 * tokenizer's end-of-text; eos_token_id, a number or a list, of generation_config.json or else
 * config.json; eos_token of tokenizer_config.json or else special_tokens_map.json; by_chat_end of
 * its chat template. For a GGUF file, the end of text and the end of turn that it names take the
 * place of those files. `tokenizer` may be NULL: ids alone are known then. Ids outside the
 * tokenizer's vocabulary or "vocab_size" of config.json, which the model cannot produce, and those
 * beyond the first BY_END_TOKENS are dropped. Returns BY_EFORMAT if a file is not JSON, or an id is
 * negative or no integer. */
BY_API by_status by_end_tokens(int32_t ids[BY_END_TOKENS], size_t *count, const char *directory,
                               const by_tokenizer *tokenizer, by_error *error);
/* Returns whether it is a character tokenizer. */
BY_API bool by_tokenizer_is_char(const by_tokenizer *tokenizer);
/* Returns 32 hex digits that hash everything that determines the ids: tokenizers with equal hashes
 * encode equally. */
BY_API const char *by_tokenizer_hash(const by_tokenizer *tokenizer);
/* Gets the bytes that a token contributes within a text (for an added token, its text); they may be
 * an incomplete UTF-8 sequence. They belong to the tokenizer. Returns BY_EARG if `id` is not below
 * the vocabulary size. */
BY_API by_status by_tokenizer_token_bytes(const by_tokenizer *tokenizer, uint32_t id,
                                          const char **data, size_t *length, by_error *error);
/* Returns whether a token is special, i.e. controls the model and is not part of the text. */
BY_API bool by_tokenizer_is_special(const by_tokenizer *tokenizer, uint32_t id);
/* Returns the id of the token with these bytes, or -1. For character-level BPE the bytes are the
 * token's name in the file, or a single byte. */
BY_API int64_t by_tokenizer_token_id(const by_tokenizer *tokenizer, const char *data,
                                     size_t length);

/* ---- encoding and decoding ---- */

/* A growing list of ids. Initialize it with {0}. */
typedef struct by_token_buffer {
    uint32_t *ids;
    size_t count;
    size_t capacity;
} by_token_buffer;

/* Frees the ids and empties the buffer, which may be used again. */
BY_API void by_token_buffer_free(by_token_buffer *buffer);

/* Flags of encoding functions; combine with |. */
typedef enum by_encode_flags {
    /* Text that looks like a special token is ordinary text, as in tiktoken's encode_ordinary.
     * Added tokens that are not special are always recognized. */
    BY_ENCODE_ORDINARY = 0,
    /* Recognize special tokens, as `tokenizers` does by default. */
    BY_ENCODE_SPECIAL = 1,
    /* Add the tokens that the file specifies before and after a text, such as Llama's
     * begin-of-text: add_special_tokens of `tokenizers`. */
    BY_ENCODE_ADD_SPECIAL = 2,
    /* Add only those before it: for a text that is to be continued, which a token after it, such as
     * BERT's [SEP], would end. */
    BY_ENCODE_ADD_BEFORE = 4
} by_encode_flags;

/* Appends the ids of a text to `out`; on failure its count is unchanged. Returns BY_EFORMAT if a
 * character is neither in the vocabulary nor covered by bytes or an unknown token (with the
 * character and its byte offset), BY_EARG for an unknown flag. */
BY_API by_status by_tokenizer_encode(const by_tokenizer *tokenizer, const char *text, size_t length,
                                     by_token_buffer *out, unsigned flags, by_error *error);

/* Scratch memory and a word cache for encoding many texts. Used by one thread at a time. */
typedef struct by_encoder by_encoder;

/* Opens an encoder. The tokenizer must outlive it. */
BY_API by_status by_encoder_open(by_encoder **out, const by_tokenizer *tokenizer, by_error *error);
BY_API void by_encoder_close(by_encoder **encoder);
/* Same as by_tokenizer_encode, but faster for many texts. */
BY_API by_status by_encoder_encode(by_encoder *encoder, const char *text, size_t length,
                                   by_token_buffer *out, unsigned flags, by_error *error);

/* Decodes ids to the bytes of a complete text. *out is NUL-terminated, the NUL not included in
 * *length; free it with free(). To decode incrementally use by_text_stream (banyan/text_stream.h).
 * Returns BY_EARG if an id is not below the vocabulary size. */
BY_API by_status by_tokenizer_decode(const by_tokenizer *tokenizer, const uint32_t *ids,
                                     size_t count, char **out, size_t *length, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
