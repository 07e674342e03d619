/* Pages of keys and values: who uses them, and which hold the beginnings of earlier sequences.
 *
 * A page is in one of three states: used by one or more sequences; unused but kept by the prefix
 * cache, in the order of its last use; or free. Only numbers live here: the keys and values are in
 * the store, at these numbers.
 *
 * The prefix cache finds full pages by what they hold: 16 tokens behind a page that was found, or
 * behind nothing, under a salt. A page's identity is a serial number that is never given again, so
 * a page behind one that was evicted is not found any more, and no two contents can be mistaken for
 * each other as they could by a hash alone.
 *
 * Never put here: sessions, scheduling, devices.
 */
#ifndef BY_INFER_PAGE_POOL_H
#define BY_INFER_PAGE_POOL_H

#include "banyan/op.h"
#include "base/base.h"

#define BY__NO_PAGE ((int32_t)-1)

/* What a cached page is behind: a page's serial number, or the beginning under a salt. */
typedef struct by__prefix {
    uint64_t number;
    bool is_salt;
} by__prefix;

typedef struct by__page {
    int32_t uses;    /* sequences that have it */
    bool cached;     /* the prefix cache has it */
    uint64_t serial; /* while it is cached */
    by__prefix behind;
    int32_t tokens[BY_PAGE_TOKENS];
    int32_t next;  /* in its list of the hash table */
    int32_t older; /* neighbours among unused cached pages, or among free ones */
    int32_t newer;
} by__page;

typedef struct by__page_pool {
    by__page *pages;
    int64_t count;
    int32_t *table; /* heads of the lists of the hash table */
    int64_t table_size;
    int32_t free;    /* first free page */
    int64_t stretch; /* where by__pool_stretch goes on */
    int32_t oldest;
    int32_t newest;
    int64_t free_count;
    int64_t kept_count; /* unused cached pages */
    uint64_t serials;
    uint64_t evictions;
} by__page_pool;

/* Bytes of the records of so many pages. */
size_t by__pool_bytes(int64_t pages);
by_status by__pool_open(by__page_pool *out, int64_t pages, by_error *error);
void by__pool_close(by__page_pool *pool);

/* A page for one sequence: a free one, else the cached one whose last use is longest ago.
 * BY__NO_PAGE when all are in use. */
int32_t by__pool_take(by__page_pool *pool);
/* The same, but `page` if it is free (any number may be asked for). A sequence whose pages follow
 * each other is read faster. */
int32_t by__pool_take_at(by__page_pool *pool, int64_t page);
/* Where a sequence of up to `pages` pages should begin, so that it does not meet those that began
 * before it: behind them, and in the end from page 0 on. */
int64_t by__pool_stretch(by__page_pool *pool, int64_t pages);
/* One sequence more uses it. */
void by__pool_share(by__page_pool *pool, int32_t page);
/* One sequence less. Unused, it is free, or the newest of those that the prefix cache keeps. */
void by__pool_release(by__page_pool *pool, int32_t page);
/* Pages that by__pool_take can give. */
int64_t by__pool_available(const by__page_pool *pool);

/* ---- the prefix cache (prefix_cache.c) ---- */

/* The page that holds these tokens behind `behind`; BY__NO_PAGE: none does. */
int32_t by__prefix_find(const by__page_pool *pool, by__prefix behind,
                        const int32_t tokens[BY_PAGE_TOKENS]);
/* A page in use holds these tokens behind `behind`. Returns what stands for them from now on: the
 * page, or another one that held them already. */
int32_t by__prefix_insert(by__page_pool *pool, int32_t page, by__prefix behind,
                          const int32_t tokens[BY_PAGE_TOKENS]);
/* The cache no longer has the page. */
void by__prefix_remove(by__page_pool *pool, int32_t page);
/* What follows a cached page is behind this. */
by__prefix by__prefix_of(const by__page_pool *pool, int32_t page);

#endif
