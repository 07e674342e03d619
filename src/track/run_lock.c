/* The lock of a run: an open-file-description lock on RUN/.lock while a process trains it. Unlike a
 * pid file it ends with the process, however that ends. Unlike flock it can be queried without
 * being taken, so that a reader never blocks a run that is starting. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "track/track.h"

static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

/* Reads the holder's description, "process 1234 on node7", as the holder wrote it. */
static void read_holder(char out[128], int fd)
{
    char text[96];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    (void)snprintf(out, 128, "%s", text[0] == '\0' ? "another process" : text);
}

static by_status write_holder(int fd, const char *path, by_error *error)
{
    char host[64] = "";
    char text[128];
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        return by__io_error(error, "write", path);
    }
    return BY_OK;
}

by_status by__track_run_lock(int *out, const char *run, by_error *error)
{
    char *path;
    BY_TRY(by__path_make(&path, run, ".lock", error));
    by_status status = BY_OK;
    struct flock lock = whole_file();
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = by__io_error(error, "open", path);
    } else if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        status = write_holder(fd, path, error);
    } else if (errno == EAGAIN || errno == EACCES) {
        char holder[128];
        read_holder(holder, fd);
        status = by_error_set(error, BY_ESTATE,
                              "%s is being trained by %s; wait for it to finish, or stop it", run,
                              holder);
    } /* else a file system without locks: the run goes on without one */
    free(path);
    if (status != BY_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    *out = fd;
    return BY_OK;
}

void by__track_run_unlock(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* Returns true if the last holder of the lock was on another host: not every file system shows
 * remote locks, and a copied directory has none. */
static bool is_of_another_host(int fd)
{
    char holder[128];
    char host[64] = "";
    char mine[96];
    read_holder(holder, fd);
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(mine, sizeof mine, " on %s", host);
    const char *on = strstr(holder, " on ");
    return on != NULL && strcmp(on, mine) != 0;
}

bool by__track_run_is_held(const char *run)
{
    char *path = by__path_join(run, ".lock");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    struct flock lock = whole_file();
    lock.l_type = F_RDLCK; /* all that a descriptor opened for reading may ask for */
    bool held = fd >= 0 && (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK ||
                            is_of_another_host(fd));
    if (fd >= 0) {
        (void)close(fd);
    }
    free(path);
    return held;
}
