#include "device/cpu/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

/* Bytes that one thread populates at a time. */
#define POPULATE_BYTES ((size_t)32 << 20)
/* Size of a huge page, if there are any, on x86-64, and on aarch64 with 4 KiB pages. */
#define HUGE_BYTES ((size_t)2 << 20)

/* Populates all pages now, on all cores: the first step then has no page faults, and a lack of
 * memory is detected here. Kernels before 5.14 do not support this, and populate pages at the first
 * access as usual. */
static void populate(const by__cpu_pages *pages)
{
#ifdef MADV_POPULATE_WRITE
    size_t pieces = (pages->bytes + POPULATE_BYTES - 1) / POPULATE_BYTES;
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t begin = i * POPULATE_BYTES;
        size_t left = pages->bytes - begin;
        (void)madvise((char *)pages->data + begin, left < POPULATE_BYTES ? left : POPULATE_BYTES,
                      MADV_POPULATE_WRITE);
    }
#else
    BY_UNUSED(pages);
#endif
}

/* Maps `bytes` aligned to a huge page, so that all but the end can be in huge pages: memory in
 * small pages is read at a quarter of the speed. MAP_FAILED if there is no memory. */
static void *map_aligned(size_t bytes)
{
    size_t spare = bytes < HUGE_BYTES ? 0 : HUGE_BYTES;
    size_t mapped;
    char *data;
    if (!by__size_add(bytes, spare, &mapped)) {
        return MAP_FAILED;
    }
    data = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || spare == 0) {
        return data;
    }
    size_t before = by__round_up((size_t)data, HUGE_BYTES) - (size_t)data;
    size_t used = by__round_up(before + bytes, (size_t)sysconf(_SC_PAGESIZE));
    if (before > 0) {
        (void)munmap(data, before);
    }
    if (mapped > used) {
        (void)munmap(data + used, mapped - used);
    }
    return data + before;
}

by_status by__cpu_pages_reserve(by__cpu_pages *out, size_t bytes, const char *what, by_error *error)
{
    char text[32];
    by__cpu_pages pages = {.bytes = bytes};
    if (bytes > 0) {
        pages.data = map_aligned(bytes);
        if (pages.data == MAP_FAILED) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %s needs %s", what,
                                by_format_bytes(text, bytes));
        }
        /* A hint only: without huge pages everything still works, a little slower. */
        (void)madvise(pages.data, bytes, MADV_HUGEPAGE);
    }
    *out = pages;
    return BY_OK;
}

by_status by__cpu_pages_open(by__cpu_pages *out, size_t bytes, const char *what, by_error *error)
{
    BY_TRY(by__cpu_pages_reserve(out, bytes, what, error));
    populate(out);
    return BY_OK;
}

void by__cpu_pages_close(by__cpu_pages *pages)
{
    if (pages->data != NULL) {
        (void)munmap(pages->data, pages->bytes);
    }
    *pages = (by__cpu_pages){0};
}
