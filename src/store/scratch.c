#include "store/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/worker_thread.h"

/* Concurrent requests to the disk, and bytes of each: solid-state disks need several to reach full
 * speed. */
#define THREADS     4
#define PIECE_BYTES ((size_t)1 << 20)

struct by__store_scratch {
    int fd;
    char *path; /* name that the file had, without its random suffix */
    uint64_t bytes;
    pthread_mutex_t mutex;
    pthread_cond_t work;       /* wakes the threads */
    pthread_cond_t done;       /* wakes waiting callers */
    by__store_transfer *first; /* queue of transfers with bytes not assigned to a thread */
    by__store_transfer *last;
    size_t under_way; /* transfers that are not done */
    bool reserves;    /* a thread must reserve the file's space */
    bool closes;
    int failed; /* errno of the first error; 0: none */
    by__store_transfer_kind failed_kind;
    uint64_t version;
    char *bounce; /* PIECE_BYTES; for by__store_scratch_read and by__store_scratch_write */
    pthread_t threads[THREADS];
    int thread_count;
};

/* ---- on the threads ---- */

/* Moves one piece. Returns 0 or an errno. */
static int move(const by__store_scratch *s, by__store_transfer_kind kind, uint64_t offset,
                char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        /* Read before the call, because another thread may switch off direct I/O during it. */
        int flags = fcntl(s->fd, F_GETFL);
        ssize_t n = kind == BY__TRANSFER_READ
                        ? pread(s->fd, data + done, bytes - done, (off_t)(offset + done))
                        : pwrite(s->fd, data + done, bytes - done, (off_t)(offset + done));
        if (n > 0) {
            /* After a short transfer the rest must begin at an aligned offset again. */
            done += (size_t)n == bytes - done ? (size_t)n
                                              : (size_t)n & ~(size_t)(BY__SCRATCH_ALIGNMENT - 1);
        }
        if (n == 0 || (n > 0 && (size_t)n < BY__SCRATCH_ALIGNMENT)) {
            return EIO;
        }
        if (n < 0 && errno == EINVAL && (flags & O_DIRECT) != 0) {
            /* The disk's blocks are larger than BY__SCRATCH_ALIGNMENT: from now on all threads use
             * the page cache. */
            (void)fcntl(s->fd, F_SETFL, flags & ~O_DIRECT);
        } else if (n < 0 && errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* Processes the next piece of the queue; called with the mutex held. */
static void serve_piece(by__store_scratch *s)
{
    by__store_transfer *t = s->first;
    size_t begin = t->given;
    size_t bytes = t->bytes - begin < PIECE_BYTES ? t->bytes - begin : PIECE_BYTES;
    int failed = s->failed;
    t->given += bytes;
    if (t->given == t->bytes) {
        s->first = t->next;
        s->last = s->first == NULL ? NULL : s->last;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    if (failed == 0) {
        failed = move(s, t->kind, t->offset + begin, t->data + begin, bytes);
    }
    (void)pthread_mutex_lock(&s->mutex);
    if (failed != 0 && s->failed == 0) {
        s->failed = failed;
        s->failed_kind = t->kind;
    }
    t->left -= bytes;
    if (t->left == 0) {
        s->under_way--;
        (void)pthread_cond_broadcast(&s->done);
    }
}

static void reserve(by__store_scratch *s)
{
    (void)pthread_mutex_unlock(&s->mutex);
    int failed = posix_fallocate(s->fd, 0, (off_t)s->bytes);
    /* A file system that does not support it uses the page cache. */
    (void)fcntl(s->fd, F_SETFL, fcntl(s->fd, F_GETFL) | O_DIRECT);
    (void)pthread_mutex_lock(&s->mutex);
    s->failed = failed;
    s->failed_kind = BY__TRANSFER_WRITE;
    s->under_way--;
    (void)pthread_cond_broadcast(&s->done);
}

static void *serve(void *argument)
{
    by__store_scratch *s = argument;
    (void)pthread_mutex_lock(&s->mutex);
    while (!s->closes || s->first != NULL) {
        if (s->reserves) {
            s->reserves = false;
            reserve(s);
        } else if (s->first != NULL) {
            serve_piece(s);
        } else {
            (void)pthread_cond_wait(&s->work, &s->mutex);
        }
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- the file ---- */

static by_status make_file(by__store_scratch *s, const char *directory, by_error *error)
{
    by_string path = {0};
    BY_TRY(by__make_dirs(directory, error));
    by_string_format(&path, "%s/.scratch-%ld", directory, (long)getpid());
    BY_TRY(by__string_release(&path, &s->path, error));
    return by__open_nameless(&s->fd, directory, s->path + strlen(directory) + 1, error);
}

static by_status start_threads(by__store_scratch *s, by_error *error)
{
    for (; s->thread_count < THREADS; s->thread_count++) {
        BY_TRY(by__thread_create(&s->threads[s->thread_count], serve, s,
                                 "a thread of the scratch file", error));
    }
    return BY_OK;
}

static by_status reserve_space(by__store_scratch *s, const char *directory, by_error *error)
{
    char wanted[32];
    char has[32];
    struct statvfs disk = {0};
    (void)pthread_mutex_lock(&s->mutex);
    s->reserves = true;
    s->under_way++;
    (void)pthread_cond_signal(&s->work);
    while (s->under_way > 0) {
        (void)pthread_cond_wait(&s->done, &s->mutex);
    }
    int failed = s->failed;
    (void)pthread_mutex_unlock(&s->mutex);
    if (failed == 0) {
        return BY_OK;
    }
    (void)fstatvfs(s->fd, &disk);
    return by_error_set(
        error, BY_EIO, "cannot reserve %s in %s, which has %s free: %s%s",
        by_format_bytes(wanted, s->bytes), directory,
        by_format_bytes(has, (uint64_t)disk.f_bavail * (uint64_t)disk.f_frsize), strerror(failed),
        failed == EFBIG ? " (the limit of file sizes, ulimit -f, or that of the file system)" : "");
}

static by_status open_scratch(by__store_scratch *s, const char *directory, by_error *error)
{
    void *bounce;
    BY_TRY(make_file(s, directory, error));
    if (posix_memalign(&bounce, BY__SCRATCH_ALIGNMENT, PIECE_BYTES) != 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory: transfers of %s", s->path);
    }
    s->bounce = bounce;
    memset(s->bounce, 0, PIECE_BYTES);
    BY_TRY(start_threads(s, error));
    return reserve_space(s, directory, error);
}

by_status by__store_scratch_open(by__store_scratch **out, const char *directory, uint64_t bytes,
                                 by_error *error)
{
    by__store_scratch *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "scratch file", error));
    s->fd = -1;
    s->bytes = bytes;
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_cond_init(&s->work, NULL);
    (void)pthread_cond_init(&s->done, NULL);
    by_status status = open_scratch(s, directory, error);
    if (status != BY_OK) {
        by__store_scratch_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by__store_scratch_close(by__store_scratch **scratch)
{
    if (scratch == NULL || *scratch == NULL) {
        return;
    }
    by__store_scratch *s = *scratch;
    (void)pthread_mutex_lock(&s->mutex);
    s->closes = true;
    (void)pthread_cond_broadcast(&s->work);
    (void)pthread_mutex_unlock(&s->mutex);
    for (int i = 0; i < s->thread_count; i++) {
        (void)pthread_join(s->threads[i], NULL);
    }
    if (s->fd >= 0) {
        (void)close(s->fd);
    }
    (void)pthread_cond_destroy(&s->done);
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s->bounce);
    free(s->path);
    free(s);
    *scratch = NULL;
}

/* ---- transfers ---- */

/* Called with the mutex held. */
static by_status check(const by__store_scratch *s, by_error *error)
{
    if (s->failed == 0) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_EIO, "cannot %s the scratch file %s (it has no name any more): %s",
        s->failed_kind == BY__TRANSFER_READ ? "read" : "write", s->path, strerror(s->failed));
}

by_status by__store_scratch_start(by__store_scratch *s, by__store_transfer *transfer,
                                  by_error *error)
{
    transfer->given = 0;
    transfer->left = 0;
    transfer->next = NULL;
    (void)pthread_mutex_lock(&s->mutex);
    by_status status = check(s, error);
    if (status == BY_OK && transfer->bytes > 0) {
        transfer->left = transfer->bytes;
        s->under_way++;
        if (s->last == NULL) {
            s->first = transfer;
        } else {
            s->last->next = transfer;
        }
        s->last = transfer;
        (void)pthread_cond_broadcast(&s->work);
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return status;
}

by_status by__store_scratch_wait(by__store_scratch *s, by__store_transfer *transfer,
                                 by_error *error)
{
    (void)pthread_mutex_lock(&s->mutex);
    while (transfer->left > 0) {
        (void)pthread_cond_wait(&s->done, &s->mutex);
    }
    by_status status = check(s, error);
    (void)pthread_mutex_unlock(&s->mutex);
    return status;
}

bool by__store_scratch_is_done(by__store_scratch *s, const by__store_transfer *transfer)
{
    (void)pthread_mutex_lock(&s->mutex);
    bool done = transfer->left == 0;
    (void)pthread_mutex_unlock(&s->mutex);
    return done;
}

/* ---- unaligned ranges ---- */

static by_status finish(by__store_scratch *s, by_error *error)
{
    (void)pthread_mutex_lock(&s->mutex);
    while (s->under_way > 0) {
        (void)pthread_cond_wait(&s->done, &s->mutex);
    }
    by_status status = check(s, error);
    (void)pthread_mutex_unlock(&s->mutex);
    return status;
}

/* Moves an aligned range from or to the bounce buffer. */
static by_status bounce(by__store_scratch *s, by__store_transfer_kind kind, uint64_t offset,
                        size_t bytes, by_error *error)
{
    by__store_transfer t = {.kind = kind, .offset = offset, .data = s->bounce, .bytes = bytes};
    BY_TRY(by__store_scratch_start(s, &t, error));
    return by__store_scratch_wait(s, &t, error);
}

/* The part of [offset, offset + bytes) within the aligned piece that contains its beginning. */
typedef struct scratch_part {
    uint64_t begin; /* offset of the piece */
    size_t size;    /* size of the piece */
    size_t skip;    /* offset of the part in the piece */
    size_t bytes;
} scratch_part;

static scratch_part part_at(uint64_t offset, size_t bytes)
{
    uint64_t begin = offset & ~(uint64_t)(BY__SCRATCH_ALIGNMENT - 1);
    size_t skip = (size_t)(offset - begin);
    size_t end = bytes < PIECE_BYTES - skip ? skip + bytes : PIECE_BYTES;
    return (scratch_part){begin, by__round_up(end, BY__SCRATCH_ALIGNMENT), skip, end - skip};
}

by_status by__store_scratch_read(by__store_scratch *s, uint64_t offset, void *out, size_t bytes,
                                 by_error *error)
{
    BY_TRY(finish(s, error));
    for (size_t done = 0; done < bytes;) {
        scratch_part p = part_at(offset + done, bytes - done);
        BY_TRY(bounce(s, BY__TRANSFER_READ, p.begin, p.size, error));
        memcpy((char *)out + done, s->bounce + p.skip, p.bytes);
        done += p.bytes;
    }
    return BY_OK;
}

by_status by__store_scratch_write(by__store_scratch *s, uint64_t offset, const void *data,
                                  size_t bytes, by_error *error)
{
    s->version++;
    BY_TRY(finish(s, error));
    for (size_t done = 0; done < bytes;) {
        scratch_part p = part_at(offset + done, bytes - done);
        if (p.bytes < p.size) { /* the bytes around it must be kept */
            BY_TRY(bounce(s, BY__TRANSFER_READ, p.begin, p.size, error));
        }
        if (data == NULL) {
            memset(s->bounce + p.skip, 0, p.bytes);
        } else {
            memcpy(s->bounce + p.skip, (const char *)data + done, p.bytes);
        }
        BY_TRY(bounce(s, BY__TRANSFER_WRITE, p.begin, p.size, error));
        done += p.bytes;
    }
    return BY_OK;
}

uint64_t by__store_scratch_version(const by__store_scratch *s)
{
    return s->version;
}

size_t by__store_scratch_memory(void)
{
    return PIECE_BYTES;
}
