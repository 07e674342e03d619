/* text/tokenizer: converts text to ids and back.
 *
 * What it is for: by_tokenizer holds a vocabulary (bytes of each token, merges, added tokens); the
 * readers (tokenizer_json.c, gpt2_files.c, wordpiece_files.c, tiktoken.c), the trainer
 * (bpe_train.c) and the character vocabulary (characters.c) build one with the by__tokenizer_add_*
 * calls below and seal it with by__tokenizer_finish. added_tokens.c finds added tokens;
 * text_pipeline.h describes the processing before and after the model: normalize.c rewrites the
 * text, split.h cuts it into pieces; encoder.c gives pieces to the model (model.h, a file and a
 * row for each), which turns them into ids; decode.c and text_stream.c turn ids into text.
 *
 * Models: BPE, byte-level (a symbol is a byte) or over characters as SentencePiece makes it (a
 * symbol is a character, or its bytes where the vocabulary lacks it), WordPiece, Unigram, and
 * plain characters.
 *
 * Who owns what: a tokenizer owns all of its arrays and is read-only once finished, so threads
 * share it. State that changes during encoding is in a by_encoder, one per thread.
 *
 * Ids: model tokens are 0 .. model_vocab - 1, added tokens that the model lacks follow. The rank
 * of a merge is its index in the list; a pair has one rank.
 *
 * Never put here: files of tokens, models, guesses: an unsupported feature of a file is refused by
 * name. */
#ifndef BY_TEXT_TOKENIZER_VOCABULARY_H
#define BY_TEXT_TOKENIZER_VOCABULARY_H

#include "banyan/tokenizer.h"
#include "base/base.h"
#include "text/tokenizer/text_pipeline.h"

#define BY__NO_TOKEN    UINT32_MAX
#define BY__END_OF_TEXT "<|endoftext|>"
/* Ids and ranks stay below this, so that a rank and a position fit in 64 bits. */
#define BY__MAX_TOKENS ((size_t)1 << 30)

/* The pair left, right merges to id. */
typedef struct by__tokenizer_merge {
    uint32_t left;
    uint32_t right;
    uint32_t id;
} by__tokenizer_merge;

/* A slot of the open-addressing table from pairs to ranks; rank BY__NO_TOKEN: free. */
typedef struct by__tokenizer_pair_slot {
    uint32_t left;
    uint32_t right;
    uint32_t rank;
} by__tokenizer_pair_slot;

typedef struct by__tokenizer_added_token {
    char *content;
    size_t length;
    /* the string to search for: the content, normalized if the token is `normalized` */
    char *match;
    size_t match_length;
    uint32_t id;
    bool single_word; /* matches only where no \w is adjacent */
    bool lstrip;      /* includes the spaces before it */
    bool rstrip;      /* includes the spaces after it */
    bool normalized;  /* searched for in the normalized text, after the others */
    bool special;
} by__tokenizer_added_token;

typedef struct by__tokenizer_model by__tokenizer_model; /* model.h */

struct by_tokenizer {
    const by__tokenizer_model *model;
    void *model_state;  /* the model's own, owned; NULL: all of it is here */
    bool characters;    /* one id per code point, no merges */
    bool byte_level;    /* BPE over bytes */
    bool ignore_merges; /* a piece that is a token as a whole is not split */
    bool byte_fallback; /* a character without a token becomes the tokens <0x..> of its bytes */
    bool fuse_unk;      /* consecutive unknown symbols become one unknown token */
    uint32_t unk;       /* the unknown token; BY__NO_TOKEN: unknown characters are an error */
    by__tokenizer_pipeline pipeline;
    uint32_t model_vocab;
    uint32_t vocab;
    char *bytes;       /* bytes of all tokens, concatenated */
    size_t *offsets;   /* [vocab + 1] offsets into bytes */
    uint8_t *verbatim; /* [vocab]: the token is written literally, not in byte-level letters */
    size_t bytes_capacity;
    size_t offsets_capacity;
    size_t verbatim_capacity;
    by__tokenizer_merge *merges;
    size_t merge_count;
    size_t merge_capacity;
    by__tokenizer_added_token *added;
    size_t added_count;
    size_t added_capacity;
    /* Built by by__tokenizer_finish: */
    uint32_t *slots; /* hash table of tokens by bytes; BY__NO_TOKEN: free */
    size_t slot_mask;
    by__tokenizer_pair_slot *pairs;
    unsigned pair_shift;
    size_t pair_mask;
    uint32_t byte_ids[256];       /* the token of a single byte; BY__NO_TOKEN: none */
    bool all_bytes;               /* each byte has a token */
    uint32_t fallback_ids[256];   /* with byte_fallback: the token <0x..>; BY__NO_TOKEN: none */
    char *pieces;                 /* decoded tokens, if they differ from `bytes` */
    size_t *piece_offsets;        /* [vocab + 1] offsets into pieces */
    uint32_t *added_order;        /* added tokens by pass, first byte, then longest first */
    uint32_t added_start[2][257]; /* [pass][first byte]: index of its first token in added_order */
    int64_t eos;
    char hash[33];
};

/* Creates a tokenizer: byte-level with GPT-2's pattern, or characters only. */
by_status by__tokenizer_new(by_tokenizer **out, bool characters, by_error *error);
/* Appends the next token of the model. */
by_status by__tokenizer_add_token(by_tokenizer *tokenizer, const char *data, size_t length,
                                  bool verbatim, by_error *error);
/* Appends the next merge; the ids must be valid. */
by_status by__tokenizer_add_merge(by_tokenizer *tokenizer, uint32_t left, uint32_t right,
                                  uint32_t id, by_error *error);
/* Appends an added token (content is copied); if token->id is BY__NO_TOKEN it gets the next id
 * after the model's, which must then be complete. */
by_status by__tokenizer_add_added(by_tokenizer *tokenizer, const by__tokenizer_added_token *token,
                                  by_error *error);
/* Adds the special token <|endoftext|> with this id (BY__NO_TOKEN: the next one). */
by_status by__tokenizer_add_end_of_text(by_tokenizer *tokenizer, uint32_t id, by_error *error);
/* Builds the tables, checks that the vocabulary is complete and hashes it. `name` is the source in
 * messages. */
by_status by__tokenizer_finish(by_tokenizer *tokenizer, const char *name, by_error *error);

/* Builds the table of the model's tokens, which are complete, unless it is there. BY_EFORMAT: two
 * are the same. by__tokenizer_finish calls it. */
by_status by__tokenizer_index(by_tokenizer *tokenizer, const char *name, by_error *error);
/* The smallest power of two that is at least twice `count` and at least 16. */
size_t by__tokenizer_table_size(size_t count);
/* The model's token with these bytes; BY__NO_TOKEN if there is none. */
uint32_t by__tokenizer_find(const by_tokenizer *tokenizer, const uint8_t *data, size_t length);

/* Builds added_order and added_start (added_tokens.c). BY_EFORMAT: a token occurs twice. */
by_status by__tokenizer_added_index(by_tokenizer *tokenizer, const char *name, by_error *error);

/* A part of a text: an added token, or ordinary text (id BY__NO_TOKEN). */
typedef struct by__tokenizer_part {
    size_t start;
    size_t end;
    uint32_t id;
    size_t ids; /* of the text up to its end, once it is encoded */
} by__tokenizer_part;

typedef struct by__tokenizer_parts {
    by__tokenizer_part *items;
    size_t count;
    size_t capacity;
} by__tokenizer_parts;

/* Splits text[from, end) at its added tokens, as Hugging Face does text[0, end) whose beginning is
 * split already, and appends the parts. Pass 0 searches for the tokens that are not `normalized`,
 * pass 1 for the others. Special tokens are recognized only with BY_ENCODE_SPECIAL. */
by_status by__tokenizer_added_pass(const by_tokenizer *tokenizer, unsigned pass, unsigned flags,
                                   const uint8_t *text, size_t from, size_t end,
                                   by__tokenizer_parts *parts, by_error *error);
/* False if a pass cannot find any token under these flags. */
bool by__tokenizer_added_any(const by_tokenizer *tokenizer, unsigned pass, unsigned flags);

/* Builds the decoded pieces of a tokenizer that is not byte-level (decode.c). */
by_status by__tokenizer_pieces_make(by_tokenizer *tokenizer, by_error *error);
/* The text of a token, at the beginning of a text or not. *data may point into `scratch`, which
 * must have room for the token's name. */
void by__tokenizer_piece_of(const by_tokenizer *tokenizer, uint32_t id, bool first, char *scratch,
                            const char **data, size_t *length);
/* True if a text may be cut where by__tokenizer_split_chunk does and its parts encoded
 * independently. */
bool by__tokenizer_cuts(const by_tokenizer *tokenizer);

/* Rank of a pair; BY__NO_TOKEN: it does not merge. */
static inline uint32_t by__pair_rank(const by_tokenizer *tokenizer, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> tokenizer->pair_shift);
    for (;; i = (i + 1) & tokenizer->pair_mask) {
        const by__tokenizer_pair_slot *slot = &tokenizer->pairs[i];
        if (slot->rank == BY__NO_TOKEN || (slot->left == left && slot->right == right)) {
            return slot->rank;
        }
    }
}

/* The readers used by by_tokenizer_open. */
by_status by__tokenizer_open_gpt2(by_tokenizer **out, const char *encoder_path,
                                  const char *merges_path, by_error *error);
by_status by__tokenizer_parse_gpt2(by_tokenizer **out, const char *encoder_name,
                                   const char *encoder, size_t encoder_length,
                                   const char *merges_name, const char *merges,
                                   size_t merges_length, by_error *error);
by_status by__tokenizer_open_wordpiece(by_tokenizer **out, const char *vocab_path,
                                       const char *config_path, by_error *error);
/* `config` is the text of tokenizer_config.json; NULL: there is none. */
by_status by__tokenizer_parse_wordpiece(by_tokenizer **out, const char *name, const char *vocab,
                                        size_t length, const char *config, by_error *error);
by_status by__tokenizer_parse_tiktoken(by_tokenizer **out, const char *name, const char *text,
                                       size_t length, by_error *error);

/* Finds out whether a model, a directory or a GGUF file, comes with a tokenizer; one of token ids
 * alone does not. */
by_status by__tokenizer_model_has(bool *out, const char *model, by_error *error);
/* Compares the hash of the tokenizer that a model comes with to another. `found` gets its first
 * digits, or "" if the model has none: its tokens are unknown, and *same is true. */
by_status by__tokenizer_model_has_same(bool *same, char found[9], const char *model,
                                       const char *hash, by_error *error);

#endif
