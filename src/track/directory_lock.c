/* A lock of a directory itself, for changes that read what is there first: it leaves no file. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "track/track.h"

int by__track_directory_lock(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return fd;
}

void by__track_directory_unlock(int fd)
{
    if (fd >= 0) {
        (void)flock(fd, LOCK_UN); /* a child that was forked meanwhile may have the file too */
        (void)close(fd);
    }
}
