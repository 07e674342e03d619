#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/plan.h"

/* ---- main memory ---- */

/* Larger than any cache, and no more than a small machine can spare. */
#define MEMORY_BYTES ((size_t)256 << 20)
#define BUDGET       0.3
/* A core reads this many streams at once, a page of each in turn: its prefetchers stop at the end
 * of a page, and one stream leaves the memory waiting there. */
#define STREAMS 4
#define PAGE    4096

typedef struct blocks {
    char *from; /* zeros */
    char *to;
    size_t share; /* bytes of a thread, a multiple of STREAMS * PAGE */
    int threads;
} blocks;

/* memchr for a byte that is not there: the C library reads everything with the widest loads of the
 * machine, whatever the build type of banyan. */
static by_status read_memory(void *user, by_error *error)
{
    const blocks *b = user;
    int found = 0;
#pragma omp parallel for num_threads(b->threads) reduction(| : found)
    for (int i = 0; i < b->threads; i++) {
        size_t stream = b->share / STREAMS;
        const char *base = b->from + (size_t)i * b->share;
        for (size_t at = 0; at < stream; at += PAGE) {
            for (size_t s = 0; s < STREAMS; s++) {
                found |= memchr(base + s * stream + at, 1, PAGE) != NULL;
            }
        }
    }
    return found ? by_error_set(error, BY_EDEVICE, "memory changed while it was read") : BY_OK;
}

static by_status copy_memory(void *user, by_error *error)
{
    const blocks *b = user;
    BY_UNUSED(error);
#pragma omp parallel for num_threads(b->threads)
    for (int i = 0; i < b->threads; i++) {
        size_t at = (size_t)i * b->share;
        memcpy(b->to + at, b->from + at, b->share);
    }
    return BY_OK;
}

by_status by__measure_memory(double *read_gbps, double *copy_gbps, int threads, by_error *error)
{
    by__pages pages;
    double read_seconds;
    double copy_seconds;
    size_t available = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = available / 8 < MEMORY_BYTES ? available / 8 : MEMORY_BYTES;
    size_t share = bytes / (size_t)threads / (STREAMS * PAGE) * (STREAMS * PAGE);
    if (share == 0) {
        return by_error_set(error, BY_EMEMORY,
                            "memory speed: %d threads need more memory than is free", threads);
    }
    bytes = share * (size_t)threads;
    BY_TRY(by__pages_open(&pages, 2 * bytes, "the measurement", error));
    blocks b = {
        .from = pages.data, .to = (char *)pages.data + bytes, .share = share, .threads = threads};
    /* Untouched pages are all the same page of zeros. */
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; i++) {
        memset(b.from + (size_t)i * share, 0, share);
    }
    by_status status = by__best_seconds(&read_seconds, BUDGET, read_memory, &b, error);
    if (status == BY_OK) {
        status = by__best_seconds(&copy_seconds, BUDGET, copy_memory, &b, error);
    }
    by__pages_close(&pages);
    if (status == BY_OK) {
        *read_gbps = 1e-9 * (double)bytes / read_seconds;
        *copy_gbps = 2e-9 * (double)bytes / copy_seconds;
    }
    return status;
}

/* ---- disk ---- */

#define DISK_BYTES   ((size_t)256 << 20)
#define DISK_BLOCK   ((size_t)4 << 20)
#define DISK_SECONDS 1.0

static by_status system_error(by_error *error, const char *verb, const char *directory)
{
    return by_error_set(error, BY_EIO, "disk speed: cannot %s a file in %s: %s", verb, directory,
                        strerror(errno));
}

/* Opens a file that is removed when it is closed, whatever happens to this process. */
static by_status open_nameless(int *out, const char *directory, by_error *error)
{
    char *path = by__path_join(directory, ".banyan-disk-XXXXXX");
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    int file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) {
        (void)unlink(path);
    }
    free(path);
    *out = file;
    return file < 0 ? system_error(error, "make", directory) : BY_OK;
}

static by_status write_file(by_machine *machine, int file, char *block, size_t *written,
                            const char *directory, by_error *error)
{
    double began = by__now();
    size_t done = 0;
    while (done < DISK_BYTES && by__now() - began < DISK_SECONDS) {
        ssize_t n = pwrite(file, block, DISK_BLOCK, (off_t)done);
        if (n < 0 && errno == EINVAL && machine->disk_direct) {
            /* Accepted the flag, refuses the write. */
            machine->disk_direct = false;
            (void)fcntl(file, F_SETFL, 0);
            continue;
        }
        if (n != (ssize_t)DISK_BLOCK) {
            errno = n >= 0 ? ENOSPC : errno;
            return system_error(error, "write", directory);
        }
        done += DISK_BLOCK;
    }
    if (fsync(file) != 0) {
        return system_error(error, "sync", directory);
    }
    machine->disk_write_gbps = 1e-9 * (double)done / (by__now() - began);
    *written = done;
    return BY_OK;
}

static by_status read_file(by_machine *machine, int file, char *block, size_t size,
                           const char *directory, by_error *error)
{
    size_t done = 0;
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    double began = by__now();
    while (done < size && (done == 0 || by__now() - began < DISK_SECONDS)) {
        if (pread(file, block, DISK_BLOCK, (off_t)done) != (ssize_t)DISK_BLOCK) {
            return system_error(error, "read", directory);
        }
        done += DISK_BLOCK;
    }
    machine->disk_read_gbps = 1e-9 * (double)done / (by__now() - began);
    return BY_OK;
}

by_status by_machine_measure_disk(by_machine *machine, const char *directory, by_error *error)
{
    by_machine measured = *machine;
    by__pages pages;
    size_t size = 0;
    int file = -1;
    BY_TRY(by__pages_open(&pages, DISK_BLOCK, "the measurement", error));
    by_status status = open_nameless(&file, directory, error);
    if (status == BY_OK) {
        /* Not zeros and not repeating within a block, for disks that compress. */
        uint32_t *words = pages.data;
        for (uint32_t i = 0; i < DISK_BLOCK / sizeof *words; i++) {
            words[i] = (i + 1) * 2654435761u;
        }
        measured.disk_direct = fcntl(file, F_SETFL, O_DIRECT) == 0;
        status = write_file(&measured, file, pages.data, &size, directory, error);
        if (status == BY_OK) {
            status = read_file(&measured, file, pages.data, size, directory, error);
        }
        (void)close(file);
    }
    by__pages_close(&pages);
    if (status == BY_OK) {
        *machine = measured;
    }
    return status;
}
