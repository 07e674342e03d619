#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve/base/serve.h"

by_status by__serve_uv_error(by_error *error, const char *verb, const char *name, int code)
{
    return by_error_set(error, BY_EIO, "cannot %s %s: %s", verb, name, uv_strerror(code));
}

by_status by__serve_random_bytes(void *out, size_t count, by_error *error)
{
    return getrandom(out, count, 0) == (ssize_t)count
               ? BY_OK
               : by__io_error(error, "read", "the system's random numbers");
}

by_status by__serve_request_id(char out[BY__ID_BYTES], const char *prefix, by_error *error)
{
    unsigned char random[BY__ID_DIGITS / 2];
    size_t length = strlen(prefix);
    BY_TRY(by__serve_random_bytes(random, sizeof random, error));
    memcpy(out, prefix, length);
    for (size_t i = 0; i < sizeof random; i++) {
        static const char digits[] = "0123456789abcdef";
        out[length + 2 * i] = digits[random[i] >> 4];
        out[length + 2 * i + 1] = digits[random[i] & 15];
    }
    out[length + 2 * sizeof random] = '\0';
    return BY_OK;
}

bool by__serve_id_valid(const char *id)
{
    size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return n >= 1 && n <= 64 && id[n] == '\0';
}

const char *by__serve_path_id(char out[65], const char *path)
{
    size_t length = strcspn(path, "/");
    if (length >= 65) {
        return NULL;
    }
    memcpy(out, path, length);
    out[length] = '\0';
    return by__serve_id_valid(out) ? path + length : NULL;
}

double by__serve_wall_clock(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
