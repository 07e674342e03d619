/* Pre-tokenisation: text cut into pieces, inside which merges happen.
 *
 * GPT-2's pattern (Radford et al. 2019):
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * In words: a contraction; or a run of letters, of numbers or of symbols, with one space in front
 * if there is one; or a run of spaces up to the end of the text; or a run of spaces without its
 * last, which belongs to what follows; or a lone space that nothing can take.
 *
 * Later patterns are variations of cl100k's (GPT-4, Llama 3):
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 *   \s*[\r\n]+|\s+(?!\S)|\s+
 * A run of letters takes any one symbol or space in front; numbers come in groups; symbols take the
 * newlines behind them; spaces up to the last newline of a run are a piece. A rule says what a
 * variation does, and is recognised by the pattern's text: there is no general matcher.
 *
 * Under each rule, a place between a character that is no space and a space is a border, whatever
 * is around it, except between a symbol and a newline: text may be cut there and its parts encoded
 * apart.
 */
#ifndef BY_DATA_TOKENIZER_SPLIT_H
#define BY_DATA_TOKENIZER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum by__letters {
    BY__LETTERS,       /* \p{L}+ */
    BY__LETTERS_MARKS, /* [\p{L}\p{M}]+, and marks are no symbols */
    BY__LETTERS_CASED  /* a word ends where upper case begins again (o200k) */
} by__letters;

typedef enum by__contractions {
    BY__CONTRACTIONS_NONE,
    BY__CONTRACTIONS_APART, /* a piece of their own */
    BY__CONTRACTIONS_BEHIND /* part of the word in front */
} by__contractions;

/* A published pattern. */
typedef struct by__split_rule {
    const char *name; /* that llama.cpp has for it ("tokenizer.ggml.pre") */
    const char *pattern;
    bool gpt2; /* GPT-2's; else a variation of cl100k's, with: */
    by__letters letters;
    by__contractions contractions;
    size_t digits; /* numbers at most in a piece */
    bool slash;    /* symbols take '/' behind their newlines too */
} by__split_rule;

/* The rule of a pattern's text, NULL when it is not known. */
const by__split_rule *by__split_rule_find(const char *pattern);
/* The first rule of llama.cpp's name, NULL when it is not known. */
const by__split_rule *by__split_rule_named(const char *name);

typedef enum by__splitter_kind {
    BY__SPLIT_GPT2,
    BY__SPLIT_RULE,
    BY__SPLIT_NUMBERS, /* runs of at most `digits` numbers are pieces; 0: of any length */
    BY__SPLIT_ALONE,   /* each literal is a piece (Hugging Face's Isolated) */
    BY__SPLIT_BEFORE,  /* a literal ends the piece in front (MergedWithPrevious) */
    BY__SPLIT_BEHIND,  /* a literal begins the piece behind (MergedWithNext) */
    BY__SPLIT_WORDS    /* a run of literals begins a piece */
} by__splitter_kind;

typedef struct by__splitter {
    by__splitter_kind kind;
    const by__split_rule *rule;
    size_t digits;
    uint8_t literal[8];
    size_t literal_length;
} by__splitter;

/* Length of the piece that begins at s, of n >= 1 bytes up to the end of the text. */
size_t by__splitter_next(const by__splitter *splitter, const uint8_t *s, size_t n);
/* The same for GPT-2's pattern. */
size_t by__split_next(const uint8_t *s, size_t n);
/* Length of a first part of s, of n >= 1 bytes, to encode apart: it ends at such a border, at the
 * first one from `wanted` bytes on, else at the end. */
size_t by__split_chunk(const uint8_t *s, size_t n, size_t wanted);

#endif
