/* Constrained generation: masks tokens so that the generated text conforms to a given form.
 *
 * The form is a regular expression, a JSON schema, or any JSON value. It is compiled once, in
 * bounded time and memory (exceeding a bound is an error), and shared by any number of sequences,
 * each with a state of its own. A constraint never fails open: text that reaches its end conforms,
 * and a call reports an error where no token can follow.
 *
 * The method is that of Willard and Louf (2023, "Efficient Guided Generation for Large Language
 * Models"): byte-level automata with a stack for nesting. The tokens permitted in a state are found
 * by one walk over the sorted vocabulary that shares prefixes. All sequences of a constraint share
 * the walked states and the token sets found, and a walk can be divided into parts of bounded cost.
 *
 * Text for a JSON schema is JSON according to RFC 8259 with at most one line break and 20 spaces
 * between two JSON tokens, so that white space cannot continue forever. Properties appear in the
 * order of the schema.
 */
#ifndef BANYAN_CONSTRAINT_H
#define BANYAN_CONSTRAINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokens ---- */

/* The tokens of a vocabulary sorted by their bytes, without special and empty tokens. Immutable;
 * any number of states and threads may share one. */
typedef struct by_token_list by_token_list;

/* Callback that yields the bytes of token `id`, or sets *length to 0 for a token that no constraint
 * may choose. */
typedef by_status by_token_bytes(void *user, uint32_t id, const char **data, size_t *length,
                                 by_error *error);

/* Makes a list of tokens 0 to vocab - 1 with the bytes that `bytes` yields, which are copied.
 * Returns the callback's error. */
BY_API by_status by_token_list_open(by_token_list **out, by_token_bytes *bytes, void *user,
                                    uint32_t vocab, by_error *error);
/* Makes a list of all ordinary tokens of a tokenizer, which may be closed afterwards. */
BY_API by_status by_token_list_of(by_token_list **out, const by_tokenizer *tokenizer,
                                  by_error *error);
BY_API void by_token_list_close(by_token_list **list);

/* ---- constraints ---- */

/* A compiled form. Any number of threads may share one. The `list` given when it is made
 * is not needed later; if it is not NULL, texts with bytes that no token of the list contains are
 * excluded, since they could be begun but not completed. BY_EFORMAT then means that no text of the
 * form is left. */
typedef struct by_constraint by_constraint;

/* Compiles a regular expression that the whole text must match: literals, `.`, classes, \d \w \s \D
 * \W \S, groups, alternatives and repetition, in the syntax common to ECMA-262 and Python's re. ^
 * and $ are permitted at the ends. Returns BY_EARG, with the place, for an unsupported feature
 * (look-around, back-references), an exceeded bound, or an expression that matches nothing;
 * BY_EFORMAT as above. */
BY_API by_status by_constraint_open_regex(by_constraint **out, const char *pattern, size_t length,
                                          const by_token_list *list, by_error *error);
/* Compiles a JSON Schema (draft 2020-12). Supports everything that OpenAI's structured output
 * accepts: type (one or several), properties, required, additionalProperties (false, also if
 * absent), items, minItems, maxItems, enum, const, anyOf, allOf of one schema, $ref and $defs
 * (including recursion), pattern, format, minLength, maxLength, minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum, multipleOf, and annotations. Returns BY_EARG, with the place, for any other
 * keyword, which is never ignored, or an exceeded bound; BY_EFORMAT as above. */
BY_API by_status by_constraint_open_schema(by_constraint **out, const char *schema, size_t length,
                                           const by_token_list *list, by_error *error);
/* Makes the constraint for any JSON value or, with `object`, any JSON object, nested up to 64
 * levels deep. Returns BY_EFORMAT as above. */
BY_API by_status by_constraint_open_json(by_constraint **out, bool object,
                                         const by_token_list *list, by_error *error);
BY_API void by_constraint_close(by_constraint **constraint);
/* Tests whether a complete text conforms. */
BY_API by_status by_constraint_matches(const by_constraint *constraint, const char *text,
                                       size_t length, bool *matches, by_error *error);
/* Returns the bytes of memory it takes. */
BY_API size_t by_constraint_bytes(const by_constraint *constraint);

/* ---- states ---- */

/* The position of one sequence in a constraint. */
typedef struct by_constraint_state by_constraint_state;

/* Opens a state at the beginning of a text. The constraint and the list must outlive it. */
BY_API by_status by_constraint_state_open(by_constraint_state **out,
                                          const by_constraint *constraint,
                                          const by_token_list *list, by_error *error);
BY_API void by_constraint_state_close(by_constraint_state **state);
/* Returns to the beginning of a text. */
BY_API void by_constraint_state_reset(by_constraint_state *state);
/* Copies the position of `from` to `to`; both must have the same constraint and list. */
BY_API void by_constraint_state_copy(by_constraint_state *to, const by_constraint_state *from);
/* Works on the set of tokens that may follow, and returns true once it is complete, so that the
 * calls below take no time. Spends about *work elementary steps of a few nanoseconds, and subtracts
 * what it spent; stops when *work is not positive. */
BY_API bool by_constraint_state_prepare(by_constraint_state *state, int64_t *work);
/* Returns the set of tokens that may follow, [(vocab + 63) / 64] words: bit id % 64 of word id / 64
 * is set if token `id` may. Valid until the next call with this state. */
BY_API const uint64_t *by_constraint_state_allowed(by_constraint_state *state);
/* Returns whether the text so far conforms, so that it may end here. */
BY_API bool by_constraint_state_can_end(const by_constraint_state *state);
/* Returns whether the text conforms and nothing can follow. */
BY_API bool by_constraint_state_is_complete(const by_constraint_state *state);
/* Sets the logits [vocab] of tokens that may not follow to -inf. The caller's end tokens `ends` (at
 * most 16) keep their logits if the text may end here and get -inf otherwise. Returns BY_EFORMAT if
 * no token is left. */
BY_API by_status by_constraint_state_mask(by_constraint_state *state, float *logits, int64_t vocab,
                                          const int32_t *ends, size_t end_count, by_error *error);
/* Advances by a token. Returns BY_EARG if it may not follow; the state is then unchanged. */
BY_API by_status by_constraint_state_accept(by_constraint_state *state, uint32_t token,
                                            by_error *error);

#ifdef __cplusplus
}
#endif
#endif
