/* Pre-tokenization: splits text into pieces; merges happen only within a piece.
 *
 * GPT-2's pattern (Radford et al. 2019):
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * In words: a contraction; or a run of letters, of numbers or of symbols, with one space in front
 * if there is one; or a run of spaces up to the end of the text; or a run of spaces without its
 * last, which belongs to what follows; or a single space that no other alternative matches.
 *
 * Later patterns are variations of cl100k's (GPT-4, Llama 3):
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 *   \s*[\r\n]+|\s+(?!\S)|\s+
 * A run of letters includes any one symbol or space before it; numbers are split into groups;
 * symbols include the newlines after them; spaces up to the last newline of a run are a piece. A
 * rule describes a variation and is identified by the text of its pattern: there is no general
 * regular-expression matcher.
 *
 * Under every rule, a position between a non-space and a space is a border, whatever surrounds it,
 * except between a symbol and a newline: text may be cut there and its parts encoded independently.
 */
#ifndef BY_TEXT_TOKENIZER_SPLIT_H
#define BY_TEXT_TOKENIZER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum by__tokenizer_letters {
    BY__LETTERS,       /* \p{L}+ */
    BY__LETTERS_MARKS, /* [\p{L}\p{M}]+, and marks are not symbols */
    BY__LETTERS_CASED  /* a word ends where upper case starts again (o200k) */
} by__tokenizer_letters;

typedef enum by__tokenizer_contractions {
    BY__CONTRACTIONS_NONE,
    BY__CONTRACTIONS_APART, /* separate pieces */
    BY__CONTRACTIONS_BEHIND /* part of the preceding word */
} by__tokenizer_contractions;

/* A published pattern. */
typedef struct by__tokenizer_split_rule {
    const char *name; /* llama.cpp's name for it ("tokenizer.ggml.pre") */
    const char *pattern;
    bool gpt2; /* GPT-2's pattern; else a variation of cl100k's, with: */
    by__tokenizer_letters letters;
    by__tokenizer_contractions contractions;
    size_t digits; /* most numbers in a piece */
    bool slash;    /* symbols also include '/' after their newlines */
} by__tokenizer_split_rule;

/* The rule for the text of a pattern; NULL if it is unknown. */
const by__tokenizer_split_rule *by__tokenizer_split_rule_find(const char *pattern);
/* The first rule with llama.cpp's name; NULL if it is unknown. */
const by__tokenizer_split_rule *by__tokenizer_split_rule_named(const char *name);

typedef enum by__tokenizer_splitter_kind {
    BY__SPLIT_GPT2,
    BY__SPLIT_RULE,
    BY__SPLIT_NUMBERS, /* runs of at most `digits` numbers are pieces; 0: of any length */
    BY__SPLIT_ALONE,   /* each literal is a piece (Hugging Face's Isolated) */
    BY__SPLIT_BEFORE,  /* a literal ends the preceding piece (MergedWithPrevious) */
    BY__SPLIT_BEHIND,  /* a literal begins the following piece (MergedWithNext) */
    BY__SPLIT_WORDS,   /* a run of literals begins a piece */
    BY__SPLIT_SPACES,  /* what is between spaces is a piece (WhitespaceSplit) */
    BY__SPLIT_BERT     /* the same, and each punctuation character is one */
} by__tokenizer_splitter_kind;

typedef struct by__tokenizer_splitter {
    by__tokenizer_splitter_kind kind;
    const by__tokenizer_split_rule *rule;
    size_t digits;
    uint8_t literal[8];
    size_t literal_length;
} by__tokenizer_splitter;

/* Length of the piece that begins at s, with n >= 1 bytes to the end of the text. */
size_t by__tokenizer_splitter_next(const by__tokenizer_splitter *splitter, const uint8_t *s,
                                   size_t n);
/* Returns true if pieces of spaces, which are part of no word, are dropped. */
static inline bool by__tokenizer_splitter_drops_spaces(const by__tokenizer_splitter *splitter)
{
    return splitter->kind == BY__SPLIT_SPACES || splitter->kind == BY__SPLIT_BERT;
}
/* Returns true if the piece at s begins with a space. */
bool by__tokenizer_is_space(const uint8_t *s, size_t n);
/* The same as by__tokenizer_splitter_next for GPT-2's pattern. */
size_t by__tokenizer_split_next(const uint8_t *s, size_t n);
/* Length of a first part of s (n >= 1 bytes) that can be encoded independently: up to the first
 * border from `wanted` bytes on, else to the end. */
size_t by__tokenizer_split_chunk(const uint8_t *s, size_t n, size_t wanted);

#endif
