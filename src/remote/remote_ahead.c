/* A thread that fetches files before they are read. */
#include <stdlib.h>

#include "remote/remote_files.h"

/* Fetches what is in the queue. Errors are those of who reads the file later. */
static void *fetch_all(void *user)
{
    by__remote *r = user;
    by__base_worker_lock(&r->ahead);
    for (size_t i = 0; i < r->queue_count && !r->ahead.stop; i++) {
        by__remote_file *f = r->queue[i];
        by__base_worker_unlock(&r->ahead);
        (void)by__remote_fetch(f, NULL);
        by__base_worker_lock(&r->ahead);
    }
    by__base_worker_unlock(&r->ahead);
    return NULL;
}

by_status by__remote_ahead(by__remote *r, by__remote_file *const *files, size_t count,
                           by_error *error)
{
    uint64_t room = r->cache.limit - r->cache.limit / 10;
    uint64_t total = 0;
    by__remote_quiet(r); /* nobody waits for it */
    if (r->ahead.is_open) {
        return BY_OK; /* it has its files */
    }
    BY_TRY(by__alloc((void **)&r->queue, count + 1, sizeof *r->queue, "remote files", error));
    for (size_t i = 0; i < count; i++) {
        uint64_t size = files[i]->version.size;
        if (size <= room - total) {
            total += size;
            r->queue[r->queue_count++] = files[i];
        }
    }
    if (r->queue_count < count) {
        return BY_OK; /* what does not fit as a whole is fetched where it is needed */
    }
    return by__base_worker_start(&r->ahead, fetch_all, r, "the thread that fetches files", error);
}
