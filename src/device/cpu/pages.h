/* pages: memory of the CPU device: whole zeroed pages from the system, huge pages if available,
 * because matrix products touch many pages and TLB misses are expensive.
 *
 * Never put here: the layout of what the pages hold.
 */
#ifndef BY_DEVICE_CPU_PAGES_H
#define BY_DEVICE_CPU_PAGES_H

#include <stddef.h>

#include "banyan/status.h"

typedef struct by__cpu_pages {
    void *data;
    size_t bytes;
} by__cpu_pages;

/* Maps zeroed pages that are already resident. bytes 0 gives a NULL range. */
by_status by__cpu_pages_open(by__cpu_pages *out, size_t bytes, const char *what, by_error *error);
/* Maps zeroed pages, each of which becomes resident when it is first written. */
by_status by__cpu_pages_reserve(by__cpu_pages *out, size_t bytes, const char *what,
                                by_error *error);
void by__cpu_pages_close(by__cpu_pages *pages);

#endif
