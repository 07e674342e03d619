/* GPT-2's pre-tokenisation: text cut into pieces, inside which merges happen.
 *
 * The pattern (Radford et al. 2019):
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * In words: a contraction; or a run of letters, of numbers or of symbols, with one space in front
 * if there is one; or a run of spaces up to the end of the text; or a run of spaces without its
 * last, which belongs to what follows; or a lone space that nothing can take.
 *
 * So a place between a character that is no space and a space is always a border, whatever is
 * around it: text may be cut there and its parts encoded apart.
 */
#ifndef BY_DATA_TOKENIZER_SPLIT_H
#define BY_DATA_TOKENIZER_SPLIT_H

#include <stddef.h>
#include <stdint.h>

/* Length of the piece that begins at s, of n >= 1 bytes up to the end of the text. */
size_t by__split_next(const uint8_t *s, size_t n);
/* Length of a first part of s, of n >= 1 bytes, to encode apart: it ends at such a border, at the
 * first one from `wanted` bytes on, else at the end. */
size_t by__split_chunk(const uint8_t *s, size_t n, size_t wanted);

#endif
