#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/utf8.h"

by_status by__io_error(by_error *error, const char *verb, const char *path)
{
    return by_error_set(error, BY_EIO, "cannot %s %s: %s", verb, path, strerror(errno));
}

by_status by__open_regular(int *out, size_t *size, const char *path, by_error *error)
{
    struct stat info;
    /* O_NONBLOCK keeps open() of a FIFO from waiting for a writer; it has no effect on regular
     * files. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return by__io_error(error, "open", path);
    }
    by_status status = BY_OK;
    if (fstat(fd, &info) != 0) {
        status = by__io_error(error, "stat", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = by_error_set(error, BY_EIO, "cannot read %s: it is not a regular file", path);
    }
    if (status != BY_OK) {
        (void)close(fd);
        return status;
    }
    *out = fd;
    if (size != NULL) {
        *size = (size_t)info.st_size;
    }
    return BY_OK;
}

by_status by__map_open(by__map *out, const char *path, by_error *error)
{
    int fd;
    by__map map = {0};
    BY_TRY(by__open_regular(&fd, &map.size, path, error));
    by_status status = BY_OK;
    if (map.size > 0) {
        void *p = mmap(NULL, map.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            status = by__io_error(error, "map", path);
        } else {
            map.data = p;
        }
    }
    (void)close(fd);
    if (status == BY_OK) {
        *out = map;
    }
    return status;
}

void by__map_close(by__map *map)
{
    if (map->data != NULL) {
        (void)munmap((void *)(uintptr_t)map->data, map->size);
    }
    *map = (by__map){0};
}

by_status by__file_read(char **out, size_t *length, const char *path, size_t max, by_error *error)
{
    int fd;
    size_t size;
    char *copy = NULL;
    BY_TRY(by__open_regular(&fd, &size, path, error));
    by_status status = BY_OK;
    if (size > max) {
        status = by_error_set(error, BY_EFORMAT, "%s: %zu bytes is more than the limit of %zu",
                              path, size, max);
    } else if (size == SIZE_MAX || (copy = malloc(size + 1)) == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: %zu bytes of %s", size, path);
    } else {
        /* Not mapped: if the file were truncated meanwhile, reading a map would raise SIGBUS. */
        status = by__read_at(fd, path, 0, copy, size, error);
    }
    (void)close(fd);
    if (status != BY_OK) {
        free(copy);
        return status;
    }
    copy[size] = '\0';
    *out = copy;
    *length = size;
    return BY_OK;
}

by_status by__file_read_text(char **out, size_t *length, const char *path, size_t max,
                             by_error *error)
{
    BY_TRY(by__file_read(out, length, path, max, error));
    size_t mark = by__mark_span(*out, *length);
    *length -= mark;
    memmove(*out, *out + mark, *length + 1);
    return BY_OK;
}

by_status by__json_parse(json_t **out, const char *name, const char *text, size_t length,
                         size_t flags, by_error *error)
{
    json_error_t problem;
    *out = by_json_load(text, length, flags, &problem);
    return *out != NULL
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s:%d: %s", name, problem.line, problem.text);
}

by_status by__json_file(json_t **out, const char *directory, const char *name, size_t max,
                        size_t flags, by_error *error)
{
    char *path;
    char *text = NULL;
    size_t length;
    *out = NULL;
    BY_TRY(by__path_make(&path, directory, name, error));
    by_status status = BY_OK;
    if (by__path_exists(path)) {
        status = by__file_read_text(&text, &length, path, max, error);
    }
    if (text != NULL) {
        status = by__json_parse(out, path, text, length, flags, error);
    }
    free(text);
    free(path);
    return status;
}

by_status by__read_at(int fd, const char *path, uint64_t offset, void *out, size_t n,
                      by_error *error)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return by__io_error(error, "read", path);
        }
        if (got == 0) {
            return by_error_set(
                error, BY_EFORMAT,
                "%s no longer has byte %llu: the file was truncated while it was in use", path,
                (unsigned long long)(offset + done));
        }
        done += (size_t)got;
    }
    return BY_OK;
}

by_status by__sync_dir(const char *path, by_error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return by__io_error(error, "open directory", path);
    }
    by_status status = BY_OK;
    /* Some file systems cannot sync a directory and return EINVAL; they order renames
     * themselves. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        status = by__io_error(error, "sync directory", path);
    }
    (void)close(fd);
    return status;
}

static by_status write_all(int fd, const char *path, const char *data, size_t length,
                           by_error *error)
{
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return by__io_error(error, "write", path);
        }
        data += n;
        length -= (size_t)n;
    }
    return BY_OK;
}

static by_status sync_parent(const char *path, by_error *error)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL ? by__strdup(".")
                                    : by__strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (directory == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = by__sync_dir(directory, error);
    free(directory);
    return status;
}

/* Whether a path still names an open file; one that may not be read counts as the same. */
static bool names(const char *path, int fd)
{
    struct stat opened;
    struct stat named;
    int other = open(path, O_RDONLY | O_CLOEXEC);
    if (other < 0) {
        return errno != ENOENT;
    }
    bool same = fstat(fd, &opened) == 0 && fstat(other, &named) == 0 &&
                opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
    (void)close(other);
    return same;
}

/* Opens a file for writing, empty, which no other process writes before it is closed: who comes
 * while another does waits, and begins anew if the other has renamed it. A process that dies
 * releases it. Where a file system has no locks, there is none. */
static by_status open_alone(int *out, const char *path, by_error *error)
{
    for (;;) {
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) {
            return by__io_error(error, "create", path);
        }
        while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
        }
        bool same = names(path, fd);
        if (same && ftruncate(fd, 0) == 0) {
            *out = fd;
            return BY_OK;
        }
        by_status status = same ? by__io_error(error, "write", path) : BY_OK;
        (void)close(fd);
        BY_TRY(status);
    }
}

/* Writes a file beside `path` and renames it; durable: before it is renamed it is on the disk. */
static by_status replace_file(const char *path, const void *data, size_t length, bool durable,
                              by_error *error)
{
    by_string temporary = {0};
    char *temporary_path;
    int fd;
    by_string_format(&temporary, "%s.tmp", path);
    BY_TRY(by__string_release(&temporary, &temporary_path, error));
    by_status status = open_alone(&fd, temporary_path, error);
    if (status != BY_OK) {
        free(temporary_path);
        return status;
    }
    status = write_all(fd, temporary_path, data, length, error);
    if (status == BY_OK && durable && fsync(fd) != 0) {
        status = by__io_error(error, "sync", temporary_path);
    }
    if (status == BY_OK && rename(temporary_path, path) != 0) {
        status = by__io_error(error, "rename to", path);
    }
    if (status != BY_OK) {
        (void)unlink(temporary_path);
    }
    if (close(fd) != 0 && status == BY_OK) {
        status = by__io_error(error, "close", temporary_path);
    }
    free(temporary_path);
    return status;
}

by_status by__file_write(const char *path, const void *data, size_t length, by_error *error)
{
    BY_TRY(replace_file(path, data, length, true, error));
    return sync_parent(path, error);
}

by_status by__file_write_unsynced(const char *path, const void *data, size_t length,
                                  by_error *error)
{
    return replace_file(path, data, length, false, error);
}

by_status by__make_dirs(const char *path, by_error *error)
{
    char *partial = by__strdup(path);
    if (partial == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = BY_OK;
    for (char *p = partial + 1; status == BY_OK; p++) {
        if (*p == '/' || *p == '\0') {
            char kept = *p;
            *p = '\0';
            if (mkdir(partial, 0777) != 0 && errno != EEXIST) {
                status = by__io_error(error, "create directory", partial);
            }
            *p = kept;
            if (kept == '\0') {
                break;
            }
        }
    }
    free(partial);
    if (status == BY_OK && !by__path_is_dir(path)) {
        status = by_error_set(error, BY_EIO,
                              "cannot create directory %s: a file of that name exists", path);
    }
    return status;
}

bool by__path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool by__path_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

char *by__path_join(const char *a, const char *b)
{
    by_string text = {0};
    char *joined = NULL;
    by__string_append(&text, a);
    if (text.length > 0 && text.data[text.length - 1] != '/') {
        by__string_append(&text, "/");
    }
    by__string_append(&text, b);
    return by__string_release(&text, &joined, NULL) == BY_OK ? joined : NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

by_status by__list_dir(char ***names, size_t *count, const char *path, by_error *error)
{
    char **list = NULL;
    size_t length = 0;
    size_t capacity = 0;
    by_status status = BY_OK;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return by__io_error(error, "list", path);
    }
    for (struct dirent *entry; status == BY_OK && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        status = by__reserve((void **)&list, &capacity, length + 1, sizeof *list, error);
        if (status == BY_OK && (list[length] = by__strdup(entry->d_name)) == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: listing %s", path);
        } else if (status == BY_OK) {
            length++;
        }
    }
    (void)closedir(dir);
    if (status != BY_OK) {
        by__names_free(list, length);
        return status;
    }
    if (length > 0) {
        qsort(list, length, sizeof *list, compare_names);
    }
    *names = list;
    *count = length;
    return BY_OK;
}

void by__names_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

by_status by__remove_tree(const char *path, by_error *error)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? BY_OK : by__io_error(error, "stat", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return unlink(path) == 0 ? BY_OK : by__io_error(error, "remove", path);
    }
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *child = by__path_join(path, names[i]);
        status = child == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                               : by__remove_tree(child, error);
        free(child);
    }
    by__names_free(names, count);
    if (status == BY_OK && rmdir(path) != 0) {
        status = by__io_error(error, "remove directory", path);
    }
    return status;
}
