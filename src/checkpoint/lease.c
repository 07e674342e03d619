/* Leases, which protect checkpoints in use from retention. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "checkpoint/storage.h"

struct by__checkpoint_lease {
    int fd; /* of the manifest; all copies share its open file, which owns the lock */
};

static by_status make(by__checkpoint_lease **out, int fd, by_error *error)
{
    by_status status = by__alloc((void **)out, 1, sizeof **out, "a lease", error);
    if (status == BY_OK) {
        (*out)->fd = fd;
    } else {
        (void)close(fd);
    }
    return status;
}

/* Returns true if the file still has that name: the directory has not been removed in the
 * meantime. */
static bool has_name(int fd, const char *path)
{
    struct stat own;
    struct stat named;
    return fstat(fd, &own) == 0 && stat(path, &named) == 0 && own.st_ino == named.st_ino &&
           own.st_dev == named.st_dev;
}

static bool lock(int fd, int operation)
{
    int result;
    do {
        result = flock(fd, operation | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

by_status by__checkpoint_lease_open(by__checkpoint_lease **out, const char *directory,
                                    by_error *error)
{
    char *path;
    by_status status = BY_OK;
    *out = NULL;
    BY_TRY(by__path_make(&path, directory, "manifest.json", error));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno != ENOENT || !by__path_is_dir(directory))) {
        status = errno == ENOENT ? by_error_set(error, BY_ESTATE, "%s is gone", directory)
                                 : by__io_error(error, "open", path);
    } else if (fd >= 0 && ((!lock(fd, LOCK_SH) && errno == EWOULDBLOCK) || !has_name(fd, path))) {
        status = by_error_set(error, BY_ESTATE, "%s is being removed", directory);
        (void)close(fd);
    } else if (fd >= 0) {
        status = make(out, fd, error);
    }
    free(path);
    return status;
}

by_status by__checkpoint_lease_share(by__checkpoint_lease **out, const by__checkpoint_lease *from,
                                     by_error *error)
{
    *out = NULL;
    if (from == NULL) {
        return BY_OK;
    }
    int fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? by_error_set(error, BY_EIO, "cannot share a lease: %s", strerror(errno))
                  : make(out, fd, error);
}

bool by__checkpoint_lease_exclusive(by__checkpoint_lease **out, const char *directory)
{
    char *path = by__path_join(directory, "manifest.json");
    *out = NULL;
    if (path == NULL) {
        return false;
    }
    /* A network file system only locks files that are open for writing. */
    int fd = open(path, O_RDWR | O_CLOEXEC);
    fd = fd < 0 && errno != EMFILE ? open(path, O_RDONLY | O_CLOEXEC) : fd;
    free(path);
    if (fd < 0) {
        return false;
    }
    /* Without support for locks nothing is known about leases; any other error is a reason to keep
     * the checkpoint. */
    if (!lock(fd, LOCK_EX) && errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK) {
        (void)close(fd);
        return false;
    }
    return make(out, fd, NULL) == BY_OK;
}

void by__checkpoint_lease_close(by__checkpoint_lease **lease)
{
    if (*lease != NULL) {
        (void)close((*lease)->fd);
        free(*lease);
        *lease = NULL;
    }
}
