/* SentencePiece's precompiled map of characters ("precompiled_charsmap"): what a text becomes
 * before it is tokenized, as Hugging Face's normalizer Precompiled applies it. */
#ifndef BY_TEXT_TOKENIZER_CHARSMAP_H
#define BY_TEXT_TOKENIZER_CHARSMAP_H

#include "text/tokenizer/text_pipeline.h"

/* Longest text that a character may become. */
#define BY__MAX_MAPPED 64u

/* Makes the map of n bytes: a u32 count of bytes, a double array (darts-clone) of that many, and
 * the texts that its values are offsets of, each with a NUL behind it. `name` is the file in
 * messages. */
by_status by__tokenizer_charsmap_make(by__tokenizer_charsmap **out, const uint8_t *data, size_t n,
                                      const char *name, by_error *error);
void by__tokenizer_charsmap_free(by__tokenizer_charsmap *map);
/* Most bytes that a character becomes. */
size_t by__tokenizer_charsmap_longest(const by__tokenizer_charsmap *map);
/* Appends what the map makes of s. */
by_status by__tokenizer_charsmap_apply(const by__tokenizer_charsmap *map, const uint8_t *s,
                                       size_t n, by__tokenizer_target *target, by_error *error);

#endif
