#include "data/image/image_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/paths.h"
#include "formats/gzip.h"
#include "remote/remote.h"

/* A local file that begins as gzip's do; *map has it then. */
static bool is_stream(by__map *map, const char *path)
{
    if (by_remote_is(path) || by__path_is_dir(path) || by__map_open(map, path, NULL) != BY_OK) {
        return false;
    }
    if (by__format_gzip_is(map->data, map->size)) {
        return true;
    }
    by__map_close(map);
    return false;
}

/* The path of what input `i` decompresses to: its name without the ending, which decides the order
 * of its pictures, in a folder of its own. */
static by_status path_of(char **out, char **folder, const char *directory, size_t i,
                         const char *input, by_error *error)
{
    by_string path = {0};
    const char *slash = strrchr(input, '/');
    const char *name = slash == NULL ? input : slash + 1;
    size_t length = strlen(name);
    bool tgz = by__ends_with(name, ".tgz");
    length -= by__ends_with(name, ".gz") ? 3 : tgz ? 4 : 0;
    by_string_format(&path, "%s/streams/%zu", directory, i);
    BY_TRY(by__string_release(&path, folder, error));
    path = (by_string){0};
    by_string_format(&path, "%s/%.*s%s", *folder, (int)length, name, tgz ? ".tar" : "");
    by_status status = by__string_release(&path, out, error);
    if (status != BY_OK) {
        free(*folder);
    }
    return status;
}

static by_status write_stream(const char *path, const by__map *map, const char *name,
                              by_error *error)
{
    by_string own = {0};
    char *partial;
    by_string_format(&own, "%s.%ld.tmp", path, (long)getpid());
    BY_TRY(by__string_release(&own, &partial, error));
    int file = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    by_status status =
        file < 0 ? by__io_error(error, "create", partial)
                 : by__format_gzip_to_file(file, partial, name, map->data, map->size, error);
    if (file >= 0 && close(file) != 0 && status == BY_OK) {
        status = by__io_error(error, "write", partial);
    }
    if (status == BY_OK && rename(partial, path) != 0) {
        status = by__io_error(error, "rename", partial);
    }
    if (status != BY_OK) {
        (void)unlink(partial);
    }
    free(partial);
    return status;
}

static by_status convert(char **out, const char *directory, size_t i, const by__map *map,
                         const char *input, by_error *error)
{
    char *folder;
    char *path;
    BY_TRY(path_of(&path, &folder, directory, i, input, error));
    by_status status = by__make_dirs(folder, error);
    int lock = status == BY_OK ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (status == BY_OK && lock < 0) {
        status = by__io_error(error, "open", folder);
    }
    while (status == BY_OK && flock(lock, LOCK_EX) != 0) {
        status = errno == EINTR ? BY_OK : by__io_error(error, "lock", folder);
    }
    if (status == BY_OK && !by__path_exists(path)) {
        status = write_stream(path, map, input, error);
    }
    if (lock >= 0) {
        (void)close(lock);
    }
    free(folder);
    if (status != BY_OK) {
        free(path);
        return status;
    }
    *out = path;
    return BY_OK;
}

by_status by__image_streams_open(char **out, const char *const *inputs, size_t count,
                                 const char *directory, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        by__map map;
        if (is_stream(&map, inputs[i])) {
            by_status status = convert(&out[i], directory, i, &map, inputs[i], error);
            by__map_close(&map);
            BY_TRY(status);
            continue;
        }
        out[i] = by__strdup(inputs[i]);
        if (out[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: inputs");
        }
    }
    return BY_OK;
}
