/* form_cache: compiled constraints of formats, shared by all requests that ask for the same format.
 *
 * Applications send one schema with every request, and compiling it may take seconds and tens of
 * MB. Unused constraints are kept until others need their place; the least recently used goes
 * first.
 *
 * Types: by__worker_form_cache. A constraint belongs to the cache; a request borrows it between
 * by__worker_form_acquire and by__worker_form_release.
 *
 * Never put here: names of a request's fields; states of sequences.
 */
#ifndef BY_SERVE_WORKER_FORM_CACHE_H
#define BY_SERVE_WORKER_FORM_CACHE_H

#include "banyan/constraint.h"

typedef enum by__worker_form_kind {
    BY__FORM_OBJECT = 0, /* any JSON object; has no source */
    BY__FORM_REGEX,
    BY__FORM_SCHEMA
} by__worker_form_kind;

typedef struct by__worker_form_cache by__worker_form_cache;

/* Opens a cache of constraints over the bytes of `list`, which must outlive it: at most `most`
 * bytes in total, and at most `idle` bytes of unused ones. */
by_status by__worker_form_cache_open(by__worker_form_cache **out, const by_token_list *list,
                                     size_t most, size_t idle, by_error *error);
/* Everything that was taken must have been given back. */
void by__worker_form_cache_close(by__worker_form_cache **cache);
/* Returns the constraint of a source, valid until it is given back; thread-safe, as is
 * by__worker_form_release. BY_ESTATE: constraints in use leave no room for it. Other errors are
 * those of by_constraint_open_*. */
by_status by__worker_form_acquire(const by_constraint **out, by__worker_form_cache *cache,
                                  by__worker_form_kind kind, const char *source, size_t length,
                                  by_error *error);
/* Number of constraints, used or not. */
size_t by__worker_form_cache_count(by__worker_form_cache *cache);
/* Gives a constraint back; it may be NULL. */
void by__worker_form_release(by__worker_form_cache *cache, const by_constraint *constraint);

#endif
