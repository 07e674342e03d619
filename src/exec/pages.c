#include <sched.h>
#include <sys/mman.h>

#include "exec/exec.h"

/* Bytes that one thread brings in at a time. */
#define POPULATE_BYTES ((size_t)32 << 20)

/* Brings all pages in now and with all cores: the first step does not stop at a fault for each page, and
 * memory that the system does not have is missed here. Kernels before 5.14 refuse, and bring pages in at
 * the first touch as ever. */
static void populate(const by__pages *pages)
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

by_status by__pages_open(by__pages *out, size_t bytes, const char *what, by_error *error)
{
    char text[32];
    by__pages pages = {.bytes = bytes};
    if (bytes > 0) {
        pages.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages.data == MAP_FAILED) {
            return by_error_set(error, BY_EMEMORY,
                                "out of memory: %s needs %s", what, by__format_bytes(text, bytes));
        }
        /* Advice only: without huge pages everything still works, a little slower. */
        (void)madvise(pages.data, bytes, MADV_HUGEPAGE);
        populate(&pages);
    }
    *out = pages;
    return BY_OK;
}

void by__pages_close(by__pages *pages)
{
    if (pages->data != NULL) {
        (void)munmap(pages->data, pages->bytes);
    }
    *pages = (by__pages){0};
}

int by__thread_count(int threads)
{
    cpu_set_t set;
    if (threads >= 1) {
        return threads;
    }
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1) {
        return 1;
    }
    return CPU_COUNT(&set);
}
