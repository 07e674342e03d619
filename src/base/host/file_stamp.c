#include "base/host/file_stamp.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

bool by__file_stamp(char out[BY__FILE_STAMP_SIZE], double *age, const char *path)
{
    struct stat info;
    struct timespec now;
    out[0] = '\0';
    if (stat(path, &info) != 0) {
        return false;
    }
    (void)snprintf(out, BY__FILE_STAMP_SIZE, "%llu %llu %llu %lld.%09ld %lld.%09ld",
                   (unsigned long long)info.st_dev, (unsigned long long)info.st_ino,
                   (unsigned long long)info.st_size, (long long)info.st_mtim.tv_sec,
                   info.st_mtim.tv_nsec, (long long)info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
    if (age != NULL) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        *age = (double)(now.tv_sec - info.st_ctim.tv_sec) +
               1e-9 * (double)(now.tv_nsec - info.st_ctim.tv_nsec);
    }
    return true;
}
