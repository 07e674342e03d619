#include "data/image/image_pages.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/parquet.h"

/* Most pages, and most bytes in them, beyond the newest. */
enum { MOST_PAGES = 256, MOST_BYTES = 1 << 27 };

typedef struct kept_page {
    const char *path; /* NULL: the place is free */
    uint64_t begin;   /* in the file */
    uint8_t *bytes;
    uint64_t size;
    uint64_t used; /* when it was last used */
} kept_page;

struct by__image_pages {
    pthread_mutex_t lock; /* protects all that follows */
    kept_page pages[MOST_PAGES];
    uint64_t bytes;
    uint64_t uses;
};

by_status by__image_pages_open(by__image_pages **out, by_error *error)
{
    BY_TRY(by__alloc((void **)out, 1, sizeof **out, "pages", error));
    (void)pthread_mutex_init(&(*out)->lock, NULL);
    return BY_OK;
}

static void drop(by__image_pages *p, kept_page *page)
{
    p->bytes -= page->size;
    free(page->bytes);
    *page = (kept_page){0};
}

void by__image_pages_close(by__image_pages **pages)
{
    by__image_pages *p = *pages;
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < MOST_PAGES; i++) {
        drop(p, &p->pages[i]);
    }
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
    *pages = NULL;
}

static kept_page *find(by__image_pages *p, const char *path, uint64_t begin)
{
    for (size_t i = 0; i < MOST_PAGES; i++) {
        kept_page *page = &p->pages[i];
        if (page->path != NULL && page->begin == begin && strcmp(page->path, path) == 0) {
            return page;
        }
    }
    return NULL;
}

bool by__image_pages_take(by__image_pages *p, uint8_t *out, const char *path,
                          const by_image_range *range)
{
    (void)pthread_mutex_lock(&p->lock);
    kept_page *page = find(p, path, range->begin);
    /* Of a damaged index, two samples may disagree on the size of their page. */
    bool found = page != NULL && page->size == range->page.size;
    if (found) {
        page->used = ++p->uses;
        memcpy(out, page->bytes + range->page.begin, (size_t)range->page.length);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return found;
}

/* A free place, for which those that were used longest ago give way. */
static kept_page *make_room(by__image_pages *p, uint64_t size)
{
    for (;;) {
        kept_page *unused = NULL;
        kept_page *oldest = NULL;
        for (size_t i = 0; i < MOST_PAGES; i++) {
            kept_page *page = &p->pages[i];
            if (page->path == NULL) {
                unused = page;
            } else if (oldest == NULL || page->used < oldest->used) {
                oldest = page;
            }
        }
        if (unused != NULL && (oldest == NULL || p->bytes + size <= MOST_BYTES)) {
            return unused;
        }
        drop(p, oldest);
    }
}

by_status by__image_pages_add(by__image_pages *p, uint8_t *out, const char *path,
                              const by_image_range *range, const uint8_t *stored, by_error *error)
{
    uint8_t *bytes;
    size_t size = (size_t)range->page.size;
    BY_TRY(by__alloc((void **)&bytes, size, 1, "a page", error));
    by_status status = by__format_parquet_decompress(range->page.codec, bytes, size, stored,
                                                     (size_t)range->size, path, error);
    if (status != BY_OK) {
        free(bytes);
        return status;
    }
    memcpy(out, bytes + range->page.begin, (size_t)range->page.length);
    (void)pthread_mutex_lock(&p->lock);
    if (find(p, path, range->begin) == NULL) {
        *make_room(p, size) = (kept_page){
            .path = path, .begin = range->begin, .bytes = bytes, .size = size, .used = ++p->uses};
        p->bytes += size;
        bytes = NULL;
    }
    (void)pthread_mutex_unlock(&p->lock);
    free(bytes);
    return BY_OK;
}
