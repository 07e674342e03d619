/* form_cache: the constraints of formats, compiled once for all requests that ask for the same.
 *
 * Applications send one schema with every request, and compiling it may take seconds and tens of
 * MB. What no request uses is kept until others need its place, the least recently used goes first.
 *
 * Never put here: what a request's fields are called; states of sequences.
 */
#ifndef BY_SERVE_FORM_CACHE_H
#define BY_SERVE_FORM_CACHE_H

#include "banyan/constraint.h"

typedef enum by__form_kind {
    BY__FORM_OBJECT = 0, /* any JSON object; has no source */
    BY__FORM_REGEX,
    BY__FORM_SCHEMA
} by__form_kind;

typedef struct by__form_cache by__form_cache;

/* Constraints in the bytes of `list`, which outlives the cache: of `most` bytes together at most,
 * and of `idle` those that no request uses. */
by_status by__form_cache_open(by__form_cache **out, const by_token_list *list, size_t most,
                              size_t idle, by_error *error);
/* All that was taken has been given back. */
void by__form_cache_close(by__form_cache **cache);
/* The constraint of a source, valid until it is given back; any thread may do both. BY_ESTATE: what
 * requests use leaves no room for it now. Other errors are those of by_constraint_open_*. */
by_status by__form_take(const by_constraint **out, by__form_cache *cache, by__form_kind kind,
                        const char *source, size_t length, by_error *error);
/* Forms that are kept or used. */
size_t by__form_cache_count(by__form_cache *cache);
/* constraint may be NULL. */
void by__form_give(by__form_cache *cache, const by_constraint *constraint);

#endif
