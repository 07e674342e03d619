/* Blocks of remote files: whether they are there, and how they come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/threads.h"
#include "remote/remote_files.h"

/* Blocks of one request, where many are wanted, and requests at a time. */
#define RUN     32
#define THREADS 8

static size_t block_size(const by__remote_file *f, size_t block)
{
    uint64_t left = f->version.size - (uint64_t)block * BY__REMOTE_BLOCK;
    return left < BY__REMOTE_BLOCK ? (size_t)left : BY__REMOTE_BLOCK;
}

static off_t hash_place(size_t block)
{
    return (off_t)(BY__REMOTE_HEAD + block * sizeof(uint64_t));
}

/* 0 stands for a block that is missing. */
static uint64_t hash_of(const uint8_t *data, size_t size)
{
    uint64_t hash = by__hash64(data, size);
    return hash == 0 ? 1 : hash;
}

static bool read_all(int fd, void *out, size_t n, off_t place)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, place + (off_t)done);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t n, off_t place)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)data + done, n - done, place + (off_t)done);
        if (put < 0 && errno != EINTR) {
            return false;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

bool by__remote_has(by__remote_file *f, size_t block, uint8_t *scratch)
{
    uint64_t hash;
    size_t size = block_size(f, block);
    if (atomic_load_explicit(&f->checked[block], memory_order_acquire) != 0) {
        return true;
    }
    if (!read_all(f->entry.blocks, &hash, sizeof hash, hash_place(block)) || hash == 0 ||
        !read_all(f->entry.data, scratch, size, (off_t)(block * BY__REMOTE_BLOCK)) ||
        hash_of(scratch, size) != hash) {
        return false;
    }
    atomic_store_explicit(&f->checked[block], 1, memory_order_release);
    return true;
}

by_status by__remote_put_block(by__remote_file *f, size_t block, const uint8_t *data, size_t size,
                               by_error *error)
{
    uint64_t hash = hash_of(data, size);
    BY_TRY(by__remote_cache_reserve(&f->remote->cache, f->id, by__round_up(size, 4096), error));
    if (!write_all(f->entry.data, data, size, (off_t)(block * BY__REMOTE_BLOCK)) ||
        !write_all(f->entry.blocks, &hash, sizeof hash, hash_place(block))) {
        return by__io_error(error, "write", f->entry.path);
    }
    atomic_store_explicit(&f->checked[block], 1, memory_order_release);
    return BY_OK;
}

/* Fetches blocks that are missing, whose hashes are locked. */
static by_status fetch_missing(by__remote_file *f, size_t first, size_t count, uint8_t *buffer,
                               by_error *error)
{
    by__remote_got got;
    uint64_t begin = (uint64_t)first * BY__REMOTE_BLOCK;
    size_t size = (count - 1) * BY__REMOTE_BLOCK + block_size(f, first + count - 1);
    uint64_t hashes[RUN];
    const by__remote_ask ask = {.url = f->url,
                                .target = &f->target,
                                .begin = begin,
                                .size = size,
                                .tag = f->version.tag,
                                .total = f->version.size,
                                .out = buffer};
    BY_TRY(by__remote_get(&f->remote->client, &ask, &got, NULL, error));
    for (size_t i = 0; i < count; i++) {
        hashes[i] = hash_of(buffer + i * BY__REMOTE_BLOCK, block_size(f, first + i));
    }
    BY_TRY(by__remote_cache_reserve(&f->remote->cache, f->id, by__round_up(size, 4096), error));
    if (!write_all(f->entry.data, buffer, size, (off_t)begin) ||
        !write_all(f->entry.blocks, hashes, count * sizeof *hashes, hash_place(first))) {
        return by__io_error(error, "write", f->entry.path);
    }
    for (size_t i = 0; i < count; i++) {
        atomic_store_explicit(&f->checked[first + i], 1, memory_order_release);
    }
    return BY_OK;
}

/* Locks the hashes of blocks, also where the entry has lost its name. */
static by_status lock_blocks(int *out, by__remote_file *f, size_t first, size_t count,
                             by_error *error)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", f->entry.blocks);
    return by__remote_lock(out, path, (uint64_t)hash_place(first), count * sizeof(uint64_t),
                           &f->remote->client.stop, error);
}

static by_status fetch_run(by__remote_file *f, size_t first, size_t count, by_error *error)
{
    int lock = -1;
    uint8_t *buffer = NULL;
    BY_TRY(lock_blocks(&lock, f, first, count, error));
    by_status status = by__alloc_aligned((void **)&buffer, count * BY__REMOTE_BLOCK,
                                         "parts of a remote file", error);
    for (size_t i = 0; i < count && status == BY_OK;) {
        size_t n = 0;
        while (i + n < count && !by__remote_has(f, first + i + n, buffer + n * BY__REMOTE_BLOCK)) {
            n++;
        }
        if (n > 0) {
            status = fetch_missing(f, first + i, n, buffer, error);
        }
        i += n > 0 ? n : 1;
    }
    (void)close(lock);
    free(buffer);
    return status;
}

by_status by__remote_fetch_blocks(by__remote_file *f, size_t first, size_t count, by_error *error)
{
    while (count > 0) {
        size_t n = count < RUN ? count : RUN;
        BY_TRY(fetch_run(f, first, n, error));
        first += n;
        count -= n;
    }
    return BY_OK;
}

/* ---- parts of files ---- */

by_status by__remote_read(by__remote_file *f, uint64_t offset, void *out, size_t n, by_error *error)
{
    uint8_t *scratch = NULL;
    if (n == 0) {
        return BY_OK;
    }
    if (offset > f->version.size || n > f->version.size - offset) {
        char shown[BY__REMOTE_SHOWN];
        return by_error_set(error, BY_EFORMAT, "%s ends before byte %llu",
                            by__remote_shown(shown, f->url), (unsigned long long)(offset + n));
    }
    BY_TRY(by__remote_acquire(f, error));
    size_t first = (size_t)(offset / BY__REMOTE_BLOCK);
    size_t last = (size_t)((offset + n - 1) / BY__REMOTE_BLOCK);
    by_status status =
        by__alloc_aligned((void **)&scratch, BY__REMOTE_BLOCK, "a part of a remote file", error);
    for (size_t i = first; i <= last && status == BY_OK; i++) {
        size_t missing = 0;
        while (i + missing <= last && !by__remote_has(f, i + missing, scratch)) {
            missing++;
        }
        if (missing > 0) {
            status = by__remote_fetch_blocks(f, i, missing, error);
            i += missing - 1;
        }
    }
    if (status == BY_OK && !read_all(f->entry.data, out, n, (off_t)offset)) {
        status = by__io_error(error, "read", f->entry.path);
    }
    free(scratch);
    by__remote_release(f);
    return status;
}

/* ---- whole files ---- */

/* Tells how much is there, under the lock. */
static bool tell_locked(by__remote *r)
{
    r->told = by__now();
    const by_remote_options *o = &r->options;
    r->stopped = r->stopped ||
                 (o->progress != NULL && !o->progress(o->user, r->fetched, r->wanted)) ||
                 (o->stop != NULL && o->stop(o->stop_user));
    return r->stopped;
}

bool by__remote_poll(void *user)
{
    by__remote *r = user;
    if (pthread_mutex_trylock(&r->telling) != 0) {
        return false; /* somebody tells */
    }
    bool stopped = by__now() - r->told < 0.5 ? r->stopped : tell_locked(r);
    (void)pthread_mutex_unlock(&r->telling);
    return stopped;
}

/* Tells how much has come. */
static by_status tell(by__remote *r, uint64_t bytes, by_error *error)
{
    (void)pthread_mutex_lock(&r->telling);
    r->fetched += bytes;
    bool stopped = tell_locked(r);
    (void)pthread_mutex_unlock(&r->telling);
    return stopped ? by_error_set(error, BY_ESTOPPED, "stopped while files were fetched") : BY_OK;
}

/* What the threads of a fetch share. */
typedef struct whole_fetch {
    by__remote_file *file;
    size_t blocks;
    atomic_size_t next;
    atomic_bool failed;
} whole_fetch;

static by_status fetch_some(void *context, size_t thread, by_error *error)
{
    whole_fetch *w = context;
    by__remote_file *f = w->file;
    BY_UNUSED(thread);
    while (!atomic_load(&w->failed)) {
        size_t first = atomic_fetch_add(&w->next, RUN);
        if (first >= w->blocks) {
            return BY_OK;
        }
        size_t count = w->blocks - first < RUN ? w->blocks - first : RUN;
        uint64_t end = (uint64_t)(first + count) * BY__REMOTE_BLOCK;
        end = end < f->version.size ? end : f->version.size;
        by_status status = by__remote_fetch_blocks(f, first, count, error);
        if (status == BY_OK) {
            status = tell(f->remote, end - (uint64_t)first * BY__REMOTE_BLOCK, error);
        }
        if (status != BY_OK) {
            atomic_store(&w->failed, true);
            return status;
        }
    }
    return BY_OK;
}

/* Fetches what is missing of an acquired file. */
static by_status fetch_whole(by__remote_file *f, by_error *error)
{
    by__remote *r = f->remote;
    whole_fetch w = {.file = f, .blocks = by__remote_blocks(f)};
    size_t runs = (w.blocks + RUN - 1) / RUN;
    atomic_init(&w.next, 0);
    atomic_init(&w.failed, false);
    (void)pthread_mutex_lock(&r->telling);
    r->wanted += f->version.size;
    (void)pthread_mutex_unlock(&r->telling);
    return by__threads_run(runs < THREADS ? (runs == 0 ? 1 : runs) : THREADS, fetch_some, &w,
                           error);
}

by_status by__remote_fetch(by__remote_file *f, by_error *error)
{
    BY_TRY(by__remote_acquire(f, error));
    by_status status = fetch_whole(f, error);
    by__remote_release(f);
    return status;
}

by_status by__remote_map(by__map *out, by__remote_file *f, by_error *error)
{
    by__map map = {.size = (size_t)f->version.size};
    BY_TRY(by__remote_acquire(f, error));
    by_status status = fetch_whole(f, error);
    if (status == BY_OK && map.size > 0) {
        void *p = mmap(NULL, map.size, PROT_READ, MAP_PRIVATE, f->entry.data, 0);
        if (p == MAP_FAILED) {
            status = by__io_error(error, "map", f->entry.path);
        } else {
            map.data = p;
        }
    }
    by__remote_release(f);
    if (status == BY_OK) {
        *out = map;
    }
    return status;
}
