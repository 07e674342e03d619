/* pages: the CPU's memory: whole pages from the system, zeroed, huge pages where the system has
 * them, because matrix products walk far and the page table is a cost.
 *
 * Never put here: the layout of what the pages hold.
 */
#ifndef BY_DEVICE_CPU_PAGES_H
#define BY_DEVICE_CPU_PAGES_H

#include <stddef.h>

#include "banyan/status.h"

typedef struct by__pages {
    void *data;
    size_t bytes;
} by__pages;

/* Zeroed pages, in memory already. bytes 0 gives a NULL range. */
by_status by__pages_open(by__pages *out, size_t bytes, const char *what, by_error *error);
void by__pages_close(by__pages *pages);

#endif
