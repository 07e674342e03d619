#include "serve/base/socket_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

int by__serve_socket_lock(int *out, const char *path)
{
    by_string name = {0};
    int code = 0;
    *out = -1;
    by_string_format(&name, "%s.lock", path);
    if (name.failed) {
        return UV_ENOMEM;
    }
    int lock = open(name.data, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    by_string_free(&name);
    if (lock < 0) {
        return uv_translate_sys_error(errno);
    }
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        code = errno == EWOULDBLOCK ? UV_EADDRINUSE : uv_translate_sys_error(errno);
        (void)close(lock);
        return code;
    }
    *out = lock;
    return 0;
}
