#include "comm/process_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Precedes the data of a region. */
typedef struct process_region {
    _Alignas(BY_CACHE_LINE) int64_t pid; /* of the creator, which keeps the file open */
    int fd;
    uint64_t token;
    _Alignas(BY_CACHE_LINE) unsigned char data[];
} process_region;

static by_status map_region(int fd, size_t bytes, process_region **out, by_error *error)
{
    void *p = mmap(NULL, sizeof(process_region) + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        return by_error_set(error, BY_EMEMORY, "cannot map the ranks' shared memory of %zu bytes",
                            bytes);
    }
    *out = p;
    return BY_OK;
}

by_status by__comm_shared_create(size_t bytes, uint64_t token, void **out,
                                 by__comm_region_handle *handle, by_error *error)
{
    process_region *made = NULL;
    int fd = memfd_create("banyan ranks", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(sizeof(process_region) + bytes)) != 0) {
        by_status status =
            by_error_set(error, BY_EMEMORY, "cannot make the ranks' shared memory of %zu bytes: %s",
                         bytes, strerror(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    by_status status = map_region(fd, bytes, &made, error);
    if (status != BY_OK) {
        (void)close(fd);
        return status;
    }
    made->pid = getpid();
    made->fd = fd;
    made->token = token;
    *handle = (by__comm_region_handle){{(uint64_t)getpid(), (uint64_t)fd, made->token}};
    *out = made->data;
    return BY_OK;
}

by_status by__comm_shared_attach(const by__comm_region_handle *handle, size_t bytes, void **out,
                                 by_error *error)
{
    char path[64];
    process_region *its = NULL;
    struct stat info;
    (void)snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)handle->words[0],
                   (unsigned long long)handle->words[1]);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return by__io_error(error, "open the ranks' shared memory", path);
    }
    if (fstat(fd, &info) != 0 || (uint64_t)info.st_size != sizeof(process_region) + bytes) {
        (void)close(fd);
        return by_error_set(error, BY_EPEER, "%s is not the ranks' shared memory", path);
    }
    by_status status = map_region(fd, bytes, &its, error);
    (void)close(fd);
    BY_TRY(status);
    if (its->token != handle->words[2]) {
        (void)munmap(its, sizeof *its + bytes);
        return by_error_set(error, BY_EPEER, "%s is not the ranks' shared memory", path);
    }
    *out = its->data;
    return BY_OK;
}

void by__comm_shared_release(void *data, size_t bytes)
{
    process_region *its =
        (process_region *)(void *)((unsigned char *)data - offsetof(process_region, data));
    if (its->pid == getpid()) {
        (void)close(its->fd);
    }
    (void)munmap(its, sizeof *its + bytes);
}

by_status by__comm_process_copy(pid_t pid, void *here, uint64_t address, size_t bytes, bool to)
{
    while (bytes > 0) {
        struct iovec local = {here, bytes};
        struct iovec remote = {(void *)(uintptr_t)address, bytes};
        ssize_t n = to ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                       : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (n <= 0) {
            return BY_EPEER;
        }
        here = (unsigned char *)here + n;
        address += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return BY_OK;
}
