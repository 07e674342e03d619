#include "base/paths.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool by__ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    size_t m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

bool by__is_json_lines(const char *path)
{
    return by__ends_with(path, ".jsonl") || by__ends_with(path, ".ndjson");
}

by_status by__path_make(char **out, const char *a, const char *b, by_error *error)
{
    char *path = by__path_join(a, b);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    *out = path;
    return BY_OK;
}

by_status by__cache_path(char **out, const char *name, by_error *error)
{
    by_string text = {0};
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    /* The XDG base directory specification requires that a relative path be ignored. */
    if (cache != NULL && cache[0] == '/') {
        by_string_format(&text, "%s/banyan/%s", cache, name);
    } else if (home != NULL && home[0] == '/') {
        by_string_format(&text, "%s/.cache/banyan/%s", home, name);
    } else {
        return by_error_set(error, BY_EIO,
                            "no place for a cache: set XDG_CACHE_HOME or HOME to an absolute path");
    }
    return by__string_release(&text, out, error);
}

const char *by__temporary_dir(void)
{
    const char *directory = getenv("TMPDIR");
    return directory == NULL || directory[0] == '\0' ? "/tmp" : directory;
}

by_status by__open_nameless(int *out, const char *directory, const char *name, by_error *error)
{
    by_string text = {0};
    char *path;
    by_string_format(&text, "%s/%s-XXXXXX", directory, name);
    BY_TRY(by__string_release(&text, &path, error));
    int fd = mkostemp(path, O_CLOEXEC);
    by_status status = fd < 0 ? by__io_error(error, "create", path) : BY_OK;
    if (status == BY_OK && unlink(path) != 0) {
        status = by__io_error(error, "unlink", path);
        (void)close(fd);
    }
    free(path);
    if (status == BY_OK) {
        *out = fd;
    }
    return status;
}
