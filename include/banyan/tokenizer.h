/* Tokenizers: text to token ids and back.
 *
 * Three kinds, id for id equal to Hugging Face `tokenizers`: byte-level BPE (Radford et al. 2019;
 * Sennrich et al. 2016) with the split patterns of GPT-2, Llama 3, GPT-4, GPT-4o, Qwen and their
 * relatives; BPE over characters with byte fallback, as SentencePiece makes it (Llama 2, Mistral,
 * Gemma); and characters, one id a Unicode code point. All are read from and written to Hugging
 * Face's tokenizer.json; docs/tokenizers.md lists what of it is supported.
 *
 * Any bytes are text. Byte-level BPE and byte fallback encode them all: a byte that is not part of
 * valid UTF-8 counts as one symbol character (neither letter, digit nor space), and decoding gives
 * back the bytes that were encoded, up to what the tokenizer's own normalisation changes. A
 * character tokenizer refuses what is not in its vocabulary.
 *
 * Unicode classes (\p{L}, \p{N}, \s) are those of Unicode 16.0, as in tokenizers 0.23 and tiktoken
 * 0.14.
 *
 * A tokenizer is read-only after it is made: any number of threads may use one. The state of
 * encoding (scratch, cache) is a by_encoder, one a thread.
 */
#ifndef BANYAN_TOKENIZER_H
#define BANYAN_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_tokenizer by_tokenizer;

/* ---- making one ---- */

/* Opens what `path` is: a tokenizer.json; a directory with tokenizer.json, or with encoder.json and
 * vocab.bpe (GPT-2's files); a tiktoken ranks file (*.tiktoken) that goes with GPT-2's
 * pre-tokenisation; or a GGUF file. BY_EIO: cannot be read; BY_EFORMAT: broken, or it uses a
 * feature that is not supported (the message names it). */
BY_API by_status by_tokenizer_open(by_tokenizer **out, const char *path, by_error *error);
/* A tokenizer.json from memory; `name` stands for the file in messages. */
BY_API by_status by_tokenizer_from_json(by_tokenizer **out, const char *text, size_t length,
                                        const char *name, by_error *error);
BY_API void by_tokenizer_close(by_tokenizer **tokenizer);

/* A text of `length` bytes, borrowed. */
typedef struct by_text {
    const char *data;
    size_t length;
} by_text;

/* Called now and then with the share of the work done, in [0, 1], never from two threads at once;
 * returns false to stop (BY_ESTOPPED). */
typedef bool (*by_tokenizer_progress)(void *user, double done);

typedef struct by_bpe_options {
    size_t vocab;           /* tokens wanted, at least 257: <|endoftext|> and 256 bytes; fewer come
                               out when the text has no more pairs to merge */
    uint64_t min_frequency; /* a pair rarer than this is not merged; 0 and 1: every pair */
    size_t threads;         /* that count words; 0: one a core. The result does not depend on it */
    by_tokenizer_progress progress; /* may be NULL */
    void *user;
} by_bpe_options;

/* Learns a byte-level BPE: <|endoftext|> is id 0, then the 256 bytes in the order of their letters,
 * then a merge at a time, the most frequent pair first, equal counts by smaller ids. Equals Hugging
 * Face's BpeTrainer merge for merge. BY_EARG: vocab is below 257; BY_ESTOPPED. */
BY_API by_status by_tokenizer_train_bpe(by_tokenizer **out, const by_bpe_options *options,
                                        const by_text *texts, size_t count, by_error *error);
/* The characters of the texts, sorted by code point: ids 0, 1, 2, ... There is no end-of-text and
 * no unknown token. BY_EFORMAT: a text is not valid UTF-8 or holds U+0000 (says where). */
BY_API by_status by_tokenizer_char(by_tokenizer **out, const by_text *texts, size_t count,
                                   by_error *error);

/* Writes tokenizer.json in Hugging Face's format, atomically. `tokenizers` loads it and gives the
 * same ids. */
BY_API by_status by_tokenizer_save(const by_tokenizer *tokenizer, const char *path,
                                   by_error *error);
/* The same as a string that the caller frees with free(). */
BY_API by_status by_tokenizer_to_json(const by_tokenizer *tokenizer, char **out, size_t *length,
                                      by_error *error);

/* ---- what it is ---- */

/* Number of tokens, added ones included: ids are below it. */
BY_API uint32_t by_tokenizer_vocab(const by_tokenizer *tokenizer);
/* The token that ends a document, -1 if there is none: the special token "<|endoftext|>", or else
 * "<|end_of_text|>", "</s>" or "<eos>". */
BY_API int64_t by_tokenizer_eos(const by_tokenizer *tokenizer);
#define BY_END_TOKENS 16
/* Tokens that end a text of the model in a directory: that of the tokenizer, and eos_token_id, one
 * or a list, of generation_config.json or else of config.json, as transformers takes it; of a GGUF
 * file, the ends of a text and of a turn that it names. The first BY_END_TOKENS of them; ids that
 * are not below the tokenizer's vocabulary are left out. tokenizer may be NULL. BY_EFORMAT: a file
 * is not JSON. */
BY_API by_status by_end_tokens(int32_t ids[BY_END_TOKENS], size_t *count, const char *directory,
                               const by_tokenizer *tokenizer, by_error *error);
/* True for a character vocabulary. */
BY_API bool by_tokenizer_is_char(const by_tokenizer *tokenizer);
/* 32 hex digits over all that decides the ids: equal hashes encode equally. Lives as long as the
 * tokenizer. */
BY_API const char *by_tokenizer_hash(const by_tokenizer *tokenizer);
/* The bytes that a token stands for inside a text (of an added token: its text). They may be part
 * of a UTF-8 sequence only. BY_EARG: id is not below the vocabulary. They live as long as the
 * tokenizer. */
BY_API by_status by_tokenizer_token_bytes(const by_tokenizer *tokenizer, uint32_t id,
                                          const char **data, size_t *length, by_error *error);
/* Whether a token is special: it steers the model, and is no part of a text. */
BY_API bool by_tokenizer_is_special(const by_tokenizer *tokenizer, uint32_t id);
/* The id of the token with these bytes, -1 if there is none. BPE over characters: with this name in
 * the file, or of this byte. */
BY_API int64_t by_tokenizer_token_id(const by_tokenizer *tokenizer, const char *data,
                                     size_t length);

/* ---- encoding and decoding ---- */

/* Ids that grow as they are added to. {0} is empty; the caller frees it with by_token_buffer_free.
 */
typedef struct by_token_buffer {
    uint32_t *ids;
    size_t count;
    size_t capacity;
} by_token_buffer;

BY_API void by_token_buffer_free(by_token_buffer *buffer);

typedef enum by_encode_flags {
    BY_ENCODE_ORDINARY = 0, /* the text of a special token is ordinary text (tiktoken's
                               encode_ordinary); other added tokens are recognised */
    BY_ENCODE_SPECIAL = 1,  /* special tokens are recognised too, as `tokenizers` does by default */
    BY_ENCODE_AROUND = 2    /* the file's ids in front of a text and behind it are added (the
                               begin-of-text of Llama): add_special_tokens of `tokenizers` */
} by_encode_flags;

/* Appends the ids of a text to `out`. A failed call leaves `out` as it was. BY_EFORMAT: a character
 * is not in a vocabulary that has neither bytes to fall back to nor an unknown token (names it, its
 * byte offset and the size of the vocabulary). */
BY_API by_status by_tokenizer_encode(const by_tokenizer *tokenizer, const char *text, size_t length,
                                     by_token_buffer *out, unsigned flags, by_error *error);

/* The same with kept scratch and a cache of words: for many texts. One thread at a time. */
typedef struct by_encoder by_encoder;

/* The tokenizer must outlive the encoder. */
BY_API by_status by_encoder_open(by_encoder **out, const by_tokenizer *tokenizer, by_error *error);
BY_API void by_encoder_close(by_encoder **encoder);
BY_API by_status by_encoder_encode(by_encoder *encoder, const char *text, size_t length,
                                   by_token_buffer *out, unsigned flags, by_error *error);

/* The bytes that `count` ids stand for as a whole text, with a NUL behind them that is not counted;
 * freed with free(). by_text_stream (banyan/text_stream.h) decodes tokens as they come. BY_EARG: an
 * id is not below the vocabulary. */
BY_API by_status by_tokenizer_decode(const by_tokenizer *tokenizer, const uint32_t *ids,
                                     size_t count, char **out, size_t *length, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
