/* Pages of Parquet files that have been decompressed: many pictures share one, and are drawn at
 * random (image_pages.c). */
#ifndef BY_DATA_IMAGE_IMAGE_PAGES_H
#define BY_DATA_IMAGE_IMAGE_PAGES_H

#include "banyan/array_set.h"
#include "base/base.h"

/* Keeps pages while there is room; for many threads at once. */
typedef struct by__image_pages by__image_pages;

by_status by__image_pages_open(by__image_pages **out, by_error *error);
void by__image_pages_close(by__image_pages **pages);
/* Copies a picture of a page that is kept to out[range->page.length]; false: it is not kept. The
 * path is that of the file. */
bool by__image_pages_take(by__image_pages *pages, uint8_t *out, const char *path,
                          const by_image_range *range);
/* Decompresses what is stored of the page of the range, copies the picture, and keeps the page. The
 * path is borrowed until the pages are closed. BY_EFORMAT: it is damaged. */
by_status by__image_pages_add(by__image_pages *pages, uint8_t *out, const char *path,
                              const by_image_range *range, const uint8_t *stored, by_error *error);

#endif
