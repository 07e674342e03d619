/* Constrained generation: only tokens that lead to a text of a given form may be chosen.
 *
 * The form is a regular expression, a JSON schema or any JSON value. It is compiled once, with
 * bounded time and memory (a schema or an expression over the bounds is an error), and used by any
 * number of sequences, each with a state of its own. A constraint never fails open: a text that
 * reaches its end fits the form, and where no token can follow, the call says so.
 *
 * The method is that of Willard and Louf (2023, "Efficient Guided Generation for Large Language
 * Models"): automata over bytes with a stack for what nests; the tokens that may follow a state are
 * found in one walk over the sorted vocabulary that shares prefixes, and kept for the next time.
 *
 * Texts of a JSON schema are JSON as RFC 8259 has it, with at most one line break and 20 spaces
 * between two tokens, so that white space cannot go on forever. Properties come in the order of the
 * schema.
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

/* The tokens of a tokenizer sorted by their bytes; read-only, for any number of states. Special
 * tokens and tokens without bytes are not among them. */
typedef struct by_token_list by_token_list;

/* Bytes of token `id` of a list, or *length 0 for a token that no constraint may choose. */
typedef by_status by_token_bytes(void *user, uint32_t id, const char **data, size_t *length,
                                 by_error *error);

/* The first `vocab` tokens that `bytes` knows; what it gives is copied. */
BY_API by_status by_token_list_open(by_token_list **out, by_token_bytes *bytes, void *user,
                                    uint32_t vocab, by_error *error);
/* All ordinary tokens of a tokenizer, which may be closed afterwards. */
BY_API by_status by_token_list_of(by_token_list **out, const by_tokenizer *tokenizer,
                                  by_error *error);
BY_API void by_token_list_close(by_token_list **list);

/* ---- forms ---- */

/* Read-only after it is made: any number of threads may use one. With a list (NULL: none), which is
 * not needed later, texts with bytes that no token of the list has are left out: they could only be
 * begun. BY_EFORMAT: there is no other text of the form. */
typedef struct by_constraint by_constraint;

/* The whole text matches a regular expression: literals, `.`, classes, \d \w \s \D \W \S, groups,
 * alternatives, repeats; the syntax is what ECMA-262 and Python's re share. ^ and $ are allowed at
 * the ends. BY_EARG names what is not supported (look-around, back-references) and where, or the
 * bound that is passed; also when no text matches. */
BY_API by_status by_constraint_open_regex(by_constraint **out, const char *pattern, size_t length,
                                          const by_token_list *list, by_error *error);
/* The text is JSON that is valid for a JSON Schema (draft 2020-12), of which all that OpenAI's
 * structured output accepts is supported: type (one or several), properties, required,
 * additionalProperties (false; absent means the same), items, minItems, maxItems, enum, const,
 * anyOf, allOf of one schema, $ref and $defs (recursive ones too), pattern, format, minLength,
 * maxLength, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, and annotations. A
 * keyword that is not supported is BY_EARG with its place: it is never left out. */
BY_API by_status by_constraint_open_schema(by_constraint **out, const char *schema, size_t length,
                                           const by_token_list *list, by_error *error);
/* The text is any JSON value, or (object) any JSON object; nested up to 64 deep. */
BY_API by_status by_constraint_open_json(by_constraint **out, bool object,
                                         const by_token_list *list, by_error *error);
BY_API void by_constraint_close(by_constraint **constraint);
/* Whether a whole text has the form. */
BY_API by_status by_constraint_matches(const by_constraint *constraint, const char *text,
                                       size_t length, bool *matches, by_error *error);
/* Bytes that it takes. */
BY_API size_t by_constraint_bytes(const by_constraint *constraint);

/* ---- the state of a sequence ---- */

typedef struct by_constraint_state by_constraint_state;

/* At the beginning of a text. The constraint and the list must outlive the state. All memory is
 * taken here. */
BY_API by_status by_constraint_state_open(by_constraint_state **out,
                                          const by_constraint *constraint,
                                          const by_token_list *list, by_error *error);
BY_API void by_constraint_state_close(by_constraint_state **state);
/* Back to the beginning of a text. */
BY_API void by_constraint_state_reset(by_constraint_state *state);
/* Makes `to` what `from` is; both are of one constraint and list. */
BY_API void by_constraint_state_copy(by_constraint_state *to, const by_constraint_state *from);
/* Bit id % 64 of word id / 64: token `id` may follow. [(vocab + 63) / 64] words, valid until the
 * next call with this state. */
BY_API const uint64_t *by_constraint_state_allowed(by_constraint_state *state);
/* The text so far has the form, and may end here. */
BY_API bool by_constraint_state_can_end(const by_constraint_state *state);
/* Nothing can follow: the text can only end. */
BY_API bool by_constraint_state_is_complete(const by_constraint_state *state);
/* Puts -inf where a token may not follow: logits [vocab]. The end tokens are the caller's: they are
 * among `ends` and are kept when the text may end here. BY_EFORMAT: no token can follow and the
 * text may not end. */
BY_API by_status by_constraint_state_mask(by_constraint_state *state, float *logits, int64_t vocab,
                                          const int32_t *ends, size_t end_count, by_error *error);
/* Goes on with a token. BY_EARG: it may not follow; the state is as it was. */
BY_API by_status by_constraint_state_accept(by_constraint_state *state, uint32_t token,
                                            by_error *error);

#ifdef __cplusplus
}
#endif
#endif
