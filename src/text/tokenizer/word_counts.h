/* Counts of the pieces (words) in texts: the input of BPE training. */
#ifndef BY_TEXT_TOKENIZER_WORD_COUNTS_H
#define BY_TEXT_TOKENIZER_WORD_COUNTS_H

#include "base/hash_table.h"
#include "text/tokenizer/vocabulary.h"

typedef struct by__tokenizer_word {
    size_t start; /* offset in bytes */
    size_t length;
    uint64_t hash;
    uint64_t count;
} by__tokenizer_word;

/* Words and a table of them; {0} is empty. Not thread-safe. */
typedef struct by__tokenizer_word_counts {
    by__tokenizer_word *words;
    size_t count;
    size_t capacity;
    char *bytes;
    size_t used;
    size_t bytes_capacity;
    by__base_table table;
} by__tokenizer_word_counts;

/* Counts the pieces of a text. */
by_status by__tokenizer_word_counts_add(by__tokenizer_word_counts *counts, const char *text,
                                        size_t length, by_error *error);
/* Adds the counts of another table. */
by_status by__tokenizer_word_counts_merge(by__tokenizer_word_counts *counts,
                                          const by__tokenizer_word_counts *other, by_error *error);
void by__tokenizer_word_counts_free(by__tokenizer_word_counts *counts);

/* Learns merges from word counts (see by_tokenizer_train_bpe). Leaves the counts unchanged. */
by_status by__tokenizer_bpe_learn(by_tokenizer **out, const by__tokenizer_word_counts *counts,
                                  const by_bpe_options *options, by_error *error);

#endif
