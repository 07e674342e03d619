/* What tells that a file has changed without reading it (file_stamp.c). */
#ifndef BY_BASE_HOST_FILE_STAMP_H
#define BY_BASE_HOST_FILE_STAMP_H

#include <stdbool.h>

#define BY__FILE_STAMP_SIZE 160

/* Writes a file's device, inode, size, and the times at which its content and its inode changed.
 * *age (NULL: not wanted) is the seconds since the latter: what has just changed may change again
 * within the same tick of the file system's clock, with an equal stamp. Returns false, with errno
 * set, if there is no such file. */
bool by__file_stamp(char out[BY__FILE_STAMP_SIZE], double *age, const char *path);

#endif
