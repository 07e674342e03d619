#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/threads.h"
#include "plan/plan.h"

/* ---- main memory ---- */

/* Memory to read: so much more than the caches hold that data kept in them between passes is
 * negligible (with 256 MiB, caches of 32 MiB hold an eighth, and memory seemed faster by as much),
 * but no more than a small machine can spare. */
#define MEMORY_BYTES ((size_t)1 << 30)
#define BUDGET       0.3
/* A core reads this many streams at once, a page of each in turn: prefetchers stop at the end of a
 * page, so a single stream would leave the memory idle there. */
#define STREAMS 4
#define PAGE    4096

struct by_memory_probe {
    by__cpu_pages pages; /* zeros; the first half is copied to the second */
    size_t share;        /* bytes for each thread, a multiple of 2 * STREAMS * PAGE */
    int threads;
};

by_status by_memory_probe_open(by_memory_probe **out, size_t bytes, int threads, by_error *error)
{
    by_memory_probe *p;
    threads = by__thread_count(threads);
    by__host_memory memory;
    by__memory_available(&memory);
    size_t most =
        memory.available / 8 < MEMORY_BYTES ? (size_t)(memory.available / 8) : MEMORY_BYTES;
    size_t unit = (size_t)threads * 2 * STREAMS * PAGE;
    if (most < unit) {
        return by_error_set(error, BY_EMEMORY,
                            "memory speed: %d threads need more memory than is free", threads);
    }
    bytes = bytes == 0 || bytes > most ? most : bytes;
    size_t share = (bytes < unit ? 1 : bytes / unit) * (2 * STREAMS * PAGE);
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "the measurement", error));
    p->share = share;
    p->threads = threads;
    by_status status =
        by__cpu_pages_open(&p->pages, share * (size_t)threads, "the measurement", error);
    if (status != BY_OK) {
        free(p);
        return status;
    }
    /* Pages that were never written all map to the same page of zeros. */
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < threads; i++) {
        memset((char *)p->pages.data + (size_t)i * share, 0, share);
    }
    *out = p;
    return BY_OK;
}

void by_memory_probe_close(by_memory_probe **probe)
{
    if (*probe != NULL) {
        by__cpu_pages_close(&(*probe)->pages);
        free(*probe);
        *probe = NULL;
    }
}

/* Reads memory with memchr for a byte that does not occur: the C library uses the widest loads of
 * the machine, whatever the build type of banyan. */
static by_status read_memory(void *user, by_error *error)
{
    const by_memory_probe *p = user;
    int found = 0;
#pragma omp parallel for num_threads(p->threads) reduction(| : found)
    for (int i = 0; i < p->threads; i++) {
        size_t stream = p->share / STREAMS;
        const char *base = (const char *)p->pages.data + (size_t)i * p->share;
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
    const by_memory_probe *p = user;
    size_t half = p->share / 2;
    BY_UNUSED(error);
#pragma omp parallel for num_threads(p->threads)
    for (int i = 0; i < p->threads; i++) {
        char *from = (char *)p->pages.data + (size_t)i * half;
        memcpy(from + (size_t)p->threads * half, from, half);
    }
    return BY_OK;
}

by_status by_memory_probe_read(by_memory_probe *probe, double *gbps, by_error *error)
{
    double began = by__now();
    BY_TRY(read_memory(probe, error));
    *gbps = 1e-9 * (double)probe->pages.bytes / (by__now() - began);
    return BY_OK;
}

by_status by__plan_measure_memory(double *read_gbps, double *copy_gbps, int threads,
                                  by_error *error)
{
    by_memory_probe *probe;
    double read_seconds;
    double copy_seconds;
    BY_TRY(by_memory_probe_open(&probe, 0, threads, error));
    by_status status = by__plan_best_seconds(&read_seconds, BUDGET, read_memory, probe, error);
    if (status == BY_OK) {
        status = by__plan_best_seconds(&copy_seconds, BUDGET, copy_memory, probe, error);
    }
    if (status == BY_OK) {
        double gigabytes = 1e-9 * (double)probe->pages.bytes;
        *read_gbps = gigabytes / read_seconds;
        *copy_gbps = gigabytes / copy_seconds; /* half of it read, half written */
    }
    by_memory_probe_close(&probe);
    return status;
}

/* ---- memory of a device ---- */

/* Of each half: so many that caches keep little. A device for which copying the less takes longer
 * than SLOW_SECONDS is not asked for more. */
static const size_t copied_bytes[] = {(size_t)1 << 20, (size_t)512 << 20};
#define SLOW_SECONDS 1e-3

typedef struct copies {
    by_memory from, to;
    int times;
} copies;

static by_status copy_on_device(void *user, by_error *error)
{
    const copies *c = user;
    for (int i = 0; i < c->times; i++) {
        BY_TRY(by__device_copy(BY__QUEUE_COMPUTE, c->to, c->from, error));
    }
    return by__device_queue_finish(c->from.device, BY__QUEUE_COMPUTE, error);
}

/* The time of one copy of `half` bytes. */
static by_status time_copy(double *seconds, by_device *device, size_t half, by_error *error)
{
    by_memory all;
    BY_TRY(by_device_alloc(&all, device, 2 * half, "the measurement", error));
    copies c = {by_memory_at(all, 0, half), by_memory_at(all, half, half), 1};
    by_status status = by__plan_best_seconds(seconds, BUDGET, copy_on_device, &c, error);
    c.times = by__plan_repeats(device, *seconds);
    if (status == BY_OK && c.times > 1) {
        status = by__plan_best_seconds(seconds, BUDGET, copy_on_device, &c, error);
        *seconds /= c.times;
    }
    by_device_free(&all);
    return status;
}

by_status by__plan_measure_copies(double *gbps, by_device *device, by_error *error)
{
    uint64_t available = by__device_memory_free(device);
    double seconds = 0.0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(copied_bytes) && seconds < SLOW_SECONDS; i++) {
        size_t half = copied_bytes[i];
        while (half > by__device_unit(device) && 8 * half > available) {
            half /= 2;
        }
        BY_TRY(time_copy(&seconds, device, half, error));
        *gbps = 2e-9 * (double)half / seconds; /* read and written */
    }
    return BY_OK;
}

/* ---- disk ---- */

#define DISK_BYTES   ((size_t)256 << 20)
#define DISK_BLOCK   ((size_t)4 << 20)
#define DISK_SECONDS 1.0

static by_status disk_error(by_error *error, const char *verb, const char *directory)
{
    return by_error_set(error, BY_EIO, "disk speed: cannot %s a file in %s: %s", verb, directory,
                        strerror(errno));
}

static by_status write_file(by_machine *machine, int file, char *block, size_t *written,
                            const char *directory, by_error *error)
{
    double began = by__now();
    size_t done = 0;
    while (done < DISK_BYTES && by__now() - began < DISK_SECONDS) {
        ssize_t n = pwrite(file, block, DISK_BLOCK, (off_t)done);
        if (n < 0 && errno == EINVAL && machine->disk_direct) {
            /* The file system accepts O_DIRECT at open but refuses such writes. */
            machine->disk_direct = false;
            (void)fcntl(file, F_SETFL, 0);
            continue;
        }
        if (n != (ssize_t)DISK_BLOCK) {
            errno = n >= 0 ? ENOSPC : errno;
            return disk_error(error, "write", directory);
        }
        done += DISK_BLOCK;
    }
    if (fsync(file) != 0) {
        return disk_error(error, "sync", directory);
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
            return disk_error(error, "read", directory);
        }
        done += DISK_BLOCK;
    }
    machine->disk_read_gbps = 1e-9 * (double)done / (by__now() - began);
    return BY_OK;
}

by_status by_machine_measure_disk(by_machine *machine, const char *directory, by_error *error)
{
    by_machine measured = *machine;
    by__cpu_pages pages;
    size_t size = 0;
    int file = -1;
    BY_TRY(by__cpu_pages_open(&pages, DISK_BLOCK, "the measurement", error));
    by_status status = by__open_nameless(&file, directory, ".banyan-disk", error);
    if (status == BY_OK) {
        /* Neither zeros nor repeated within a block, for disks that compress. */
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
    by__cpu_pages_close(&pages);
    if (status == BY_OK) {
        *machine = measured;
    }
    return status;
}
