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
    by__remote_file **queue;
    by__remote_quiet(r); /* nobody waits for it */
    if (r->ahead.is_open) {
        return BY_OK; /* it has its files */
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t size = files[i]->version.size;
        if (size > room - total) {
            return BY_OK; /* what does not fit as a whole is fetched where it is needed */
        }
        total += size;
    }
    BY_TRY(by__alloc((void **)&queue, count, sizeof *queue, "remote files", error));
    for (size_t i = 0; i < count; i++) {
        queue[i] = files[i];
    }
    free(r->queue); /* of a call whose thread did not start */
    r->queue = queue;
    r->queue_count = count;
    return by__base_worker_start(&r->ahead, fetch_all, r, "the thread that fetches files", error);
}
