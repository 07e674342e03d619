#include <sched.h>
#include <sys/mman.h>

#include "exec/exec.h"

by_status by__pages_open(by__pages *out, size_t bytes, const char *what, by_error *error)
{
    char text[32];
    by__pages pages = {.bytes = bytes};
    if (bytes > 0) {
        pages.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages.data == MAP_FAILED) {
            return by_error_set(error, BY_EMEMORY,
                                "out of memory: %s needs %s; a smaller micro_batch, recompute: block "
                                "or a smaller model needs less",
                                what, by__format_bytes(text, bytes));
        }
        /* Advice only: without huge pages everything still works, a little slower. */
        (void)madvise(pages.data, bytes, MADV_HUGEPAGE);
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
