#include <assert.h>
#include <string.h>

#include "infer/page_pool.h"

static int64_t list_of(const by__infer_page_pool *pool, by__infer_prefix behind,
                       const int32_t *tokens)
{
    struct {
        uint64_t number;
        uint64_t is_salt;
        int32_t tokens[BY_PAGE_TOKENS];
    } key = {behind.number, behind.is_salt, {0}};
    memcpy(key.tokens, tokens, sizeof key.tokens);
    return (int64_t)(by__hash64(&key, sizeof key) & (uint64_t)(pool->table_size - 1));
}

int32_t by__infer_prefix_find(const by__infer_page_pool *pool, by__infer_prefix behind,
                              const int32_t tokens[BY_PAGE_TOKENS])
{
    int32_t page = pool->table[list_of(pool, behind, tokens)];
    for (; page != BY__NO_PAGE; page = pool->pages[page].next) {
        const by__infer_page *p = &pool->pages[page];
        if (p->behind.number == behind.number && p->behind.is_salt == behind.is_salt &&
            memcmp(p->tokens, tokens, sizeof p->tokens) == 0) {
            break;
        }
    }
    return page;
}

int32_t by__infer_prefix_insert(by__infer_page_pool *pool, int32_t page, by__infer_prefix behind,
                                const int32_t tokens[BY_PAGE_TOKENS])
{
    int32_t found = by__infer_prefix_find(pool, behind, tokens);
    if (found != BY__NO_PAGE) {
        return found;
    }
    by__infer_page *p = &pool->pages[page];
    int32_t *list = &pool->table[list_of(pool, behind, tokens)];
    assert(p->uses > 0 && !p->cached);
    p->cached = true;
    p->serial = ++pool->serials;
    p->behind = behind;
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->next = *list;
    *list = page;
    return page;
}

void by__infer_prefix_remove(by__infer_page_pool *pool, int32_t page)
{
    by__infer_page *p = &pool->pages[page];
    int32_t *link = &pool->table[list_of(pool, p->behind, p->tokens)];
    while (*link != page) {
        link = &pool->pages[*link].next;
    }
    *link = p->next;
    p->cached = false;
}

by__infer_prefix by__infer_prefix_of(const by__infer_page_pool *pool, int32_t page)
{
    return (by__infer_prefix){.number = pool->pages[page].serial};
}
