/* Pages of keys and values: who uses them, and which ones hold the beginnings of earlier sequences.
 *
 * A page is in one of three states: used by one or more sequences; unused but kept by the prefix
 * cache, in the order of last use; or free. Only page numbers are handled here: the keys and values
 * are in the store, indexed by these numbers.
 *
 * The prefix cache finds full pages by their content: 16 tokens that follow a given cached page or,
 * with a given salt, the beginning of a text. Cached pages are identified by serial numbers that
 * are never reused. So a page whose predecessor was evicted is no longer found, and different
 * contents can never be confused, as they could with hashes alone.
 *
 * Never put here: sessions, scheduling, devices.
 */
#ifndef BY_INFER_PAGE_POOL_H
#define BY_INFER_PAGE_POOL_H

#include "banyan/op.h"
#include "base/base.h"

#define BY__NO_PAGE ((int32_t)-1)

/* What a cached page follows: a page, by its serial number, or the beginning, by a salt. */
typedef struct by__infer_prefix {
    uint64_t number;
    bool is_salt;
} by__infer_prefix;

typedef struct by__infer_page {
    int32_t uses;    /* number of sequences that use it */
    bool cached;     /* the prefix cache holds it */
    uint64_t serial; /* identity while it is cached */
    by__infer_prefix behind;
    int32_t tokens[BY_PAGE_TOKENS];
    int32_t next;  /* in its hash bucket */
    int32_t older; /* neighbours in the list of unused cached pages, or of free ones */
    int32_t newer;
} by__infer_page;

typedef struct by__infer_page_pool {
    by__infer_page *pages;
    int64_t count;
    int32_t *table; /* hash buckets: heads of the lists */
    int64_t table_size;
    int32_t free;    /* first free page */
    int64_t stretch; /* where by__infer_pool_stretch continues */
    int32_t oldest;
    int32_t newest;
    int64_t free_count;
    int64_t kept_count; /* number of unused cached pages */
    uint64_t serials;
    uint64_t evictions;
} by__infer_page_pool;

/* Returns the bytes of the records of this many pages. */
size_t by__infer_pool_bytes(int64_t pages);
by_status by__infer_pool_open(by__infer_page_pool *out, int64_t pages, by_error *error);
void by__infer_pool_close(by__infer_page_pool *pool);

/* Takes a page for one sequence: a free one, else the least recently used cached one. Returns
 * BY__NO_PAGE if all are in use. */
int32_t by__infer_pool_allocate(by__infer_page_pool *pool);
/* The same, but takes `page` if it is free (any number is accepted). A sequence with consecutive
 * pages is read faster. */
int32_t by__infer_pool_allocate_at(by__infer_page_pool *pool, int64_t page);
/* Returns where a sequence of up to `pages` pages should begin to stay clear of those that began
 * before it: after them, wrapping around to page 0 at the end. */
int64_t by__infer_pool_stretch(by__infer_page_pool *pool, int64_t pages);
/* Adds a user of the page. */
void by__infer_pool_share(by__infer_page_pool *pool, int32_t page);
/* Removes a user of the page. A page without users becomes free or, if the prefix cache holds it,
 * its most recently used entry. */
void by__infer_pool_release(by__infer_page_pool *pool, int32_t page);
/* Returns how many pages by__infer_pool_allocate can provide. */
int64_t by__infer_pool_available(const by__infer_page_pool *pool);
/* Frees all pages that only the prefix cache holds. */
void by__infer_pool_forget(by__infer_page_pool *pool);

/* ---- the prefix cache (prefix_cache.c) ---- */

/* Returns the page that holds these tokens after the prefix `behind`, or BY__NO_PAGE. */
int32_t by__infer_prefix_find(const by__infer_page_pool *pool, by__infer_prefix behind,
                              const int32_t tokens[BY_PAGE_TOKENS]);
/* Adds a page in use that holds these tokens after the prefix `behind`. Returns the page that
 * represents them from then on: this one, or another that held them already. */
int32_t by__infer_prefix_insert(by__infer_page_pool *pool, int32_t page, by__infer_prefix behind,
                                const int32_t tokens[BY_PAGE_TOKENS]);
/* Removes the page from the cache. */
void by__infer_prefix_remove(by__infer_page_pool *pool, int32_t page);
/* Returns the prefix for tokens that follow a cached page. */
by__infer_prefix by__infer_prefix_of(const by__infer_page_pool *pool, int32_t page);

#endif
