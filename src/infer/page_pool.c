#include "infer/page_pool.h"

#include <assert.h>
#include <stdlib.h>

/* Returns the number of hash buckets: a power of two, at least the number of pages. */
static int64_t lists_for(int64_t pages)
{
    int64_t lists = 16;
    while (lists < pages) {
        lists *= 2;
    }
    return lists;
}

size_t by__infer_pool_bytes(int64_t pages)
{
    return (size_t)pages * sizeof(by__infer_page) + (size_t)lists_for(pages) * sizeof(int32_t);
}

static void link_free(by__infer_page_pool *pool, int32_t page)
{
    by__infer_page *p = &pool->pages[page];
    p->older = BY__NO_PAGE;
    p->newer = pool->free;
    if (pool->free != BY__NO_PAGE) {
        pool->pages[pool->free].older = page;
    }
    pool->free = page;
    pool->free_count++;
}

static void unlink_free(by__infer_page_pool *pool, int32_t page)
{
    const by__infer_page *p = &pool->pages[page];
    *(p->older == BY__NO_PAGE ? &pool->free : &pool->pages[p->older].newer) = p->newer;
    if (p->newer != BY__NO_PAGE) {
        pool->pages[p->newer].older = p->older;
    }
    pool->free_count--;
}

by_status by__infer_pool_open(by__infer_page_pool *out, int64_t pages, by_error *error)
{
    by__infer_page_pool pool = {.count = pages,
                                .table_size = lists_for(pages),
                                .free = BY__NO_PAGE,
                                .oldest = BY__NO_PAGE,
                                .newest = BY__NO_PAGE};
    BY_TRY(by__alloc((void **)&pool.pages, (size_t)pages, sizeof *pool.pages, "pages", error));
    by_status status = by__alloc((void **)&pool.table, (size_t)pool.table_size, sizeof *pool.table,
                                 "pages", error);
    if (status != BY_OK) {
        free(pool.pages);
        return status;
    }
    for (int64_t i = 0; i < pool.table_size; i++) {
        pool.table[i] = BY__NO_PAGE;
    }
    for (int64_t i = pages; i-- > 0;) { /* so that page 0 is taken first */
        link_free(&pool, (int32_t)i);
    }
    *out = pool;
    return BY_OK;
}

void by__infer_pool_close(by__infer_page_pool *pool)
{
    free(pool->pages);
    free(pool->table);
    *pool = (by__infer_page_pool){0};
}

/* Removes a page from the list of unused cached pages. */
static void unlink_kept(by__infer_page_pool *pool, int32_t page)
{
    by__infer_page *p = &pool->pages[page];
    *(p->older == BY__NO_PAGE ? &pool->oldest : &pool->pages[p->older].newer) = p->newer;
    *(p->newer == BY__NO_PAGE ? &pool->newest : &pool->pages[p->newer].older) = p->older;
    pool->kept_count--;
}

static void append_newest(by__infer_page_pool *pool, int32_t page)
{
    by__infer_page *p = &pool->pages[page];
    p->older = pool->newest;
    p->newer = BY__NO_PAGE;
    *(pool->newest == BY__NO_PAGE ? &pool->oldest : &pool->pages[pool->newest].newer) = page;
    pool->newest = page;
    pool->kept_count++;
}

int32_t by__infer_pool_allocate(by__infer_page_pool *pool)
{
    int32_t page = pool->free;
    if (page != BY__NO_PAGE) {
        unlink_free(pool, page);
    } else if (pool->oldest != BY__NO_PAGE) {
        page = pool->oldest;
        unlink_kept(pool, page);
        by__infer_prefix_remove(pool, page);
        pool->evictions++;
    } else {
        return BY__NO_PAGE;
    }
    pool->pages[page].uses = 1;
    return page;
}

int32_t by__infer_pool_allocate_at(by__infer_page_pool *pool, int64_t page)
{
    if (page < 0 || page >= pool->count || pool->pages[page].uses > 0 || pool->pages[page].cached) {
        return by__infer_pool_allocate(pool);
    }
    unlink_free(pool, (int32_t)page);
    pool->pages[page].uses = 1;
    return (int32_t)page;
}

int64_t by__infer_pool_stretch(by__infer_page_pool *pool, int64_t pages)
{
    int64_t begin = pool->stretch + pages <= pool->count ? pool->stretch : 0;
    pool->stretch = begin + pages;
    return begin;
}

void by__infer_pool_share(by__infer_page_pool *pool, int32_t page)
{
    if (pool->pages[page].uses++ == 0) {
        assert(pool->pages[page].cached);
        unlink_kept(pool, page);
    }
}

void by__infer_pool_release(by__infer_page_pool *pool, int32_t page)
{
    by__infer_page *p = &pool->pages[page];
    assert(p->uses > 0);
    if (--p->uses > 0) {
        return;
    }
    if (p->cached) {
        append_newest(pool, page);
        return;
    }
    link_free(pool, page);
}

int64_t by__infer_pool_available(const by__infer_page_pool *pool)
{
    return pool->free_count + pool->kept_count;
}

void by__infer_pool_forget(by__infer_page_pool *pool)
{
    while (pool->oldest != BY__NO_PAGE) {
        int32_t page = pool->oldest;
        unlink_kept(pool, page);
        by__infer_prefix_remove(pool, page);
        link_free(pool, page);
    }
}
