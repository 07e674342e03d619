/* The output directory of a pack: created as OUTPUT.partial, locked, and renamed when it is
 * complete.
 *
 * OUTPUT.partial was created by this program if it contains the file MARKER, which is written
 * first. Only such a directory is emptied: any other of that name, or a symbolic link, is
 * refused. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "data/pack/pack.h"

#define MARKER      ".banyan-partial"
#define MARKER_TEXT "An unfinished directory of banyan pack; the next pack to it replaces it.\n"

static by_status parent_of(char **out, const char *path, by_error *error)
{
    const char *slash = strrchr(path, '/');
    *out = slash == NULL ? by__strdup(".")
                         : by__strndup(path, slash == path ? 1 : (size_t)(slash - path));
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: path");
}

/* ---- the lock ---- */

/* Waits a short time for the process that holds the lock, and asks the caller's progress function
 * whether to continue. */
static by_status wait_for_lock(const by__data_pack *pack, const char *output, bool *noted,
                               by_error *error)
{
    const by_pack_options *o = &pack->options;
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    by_pack_progress progress = {"waiting", 0, pack->source.bytes, 0};
    if (!*noted) {
        *noted = true;
        by__data_pack_note(pack, "waiting for another process that packs into %s", output);
    }
    if (o->progress != NULL && !o->progress(o->user, &progress)) {
        return by_error_set(error, BY_ESTOPPED,
                            "stopped while waiting for another process that packs into %s", output);
    }
    (void)nanosleep(&pause, NULL);
    return BY_OK;
}

static by_status acquire_lock(const by__data_pack *pack, int lock, const char *partial,
                              const char *output, bool wait, bool *noted, by_error *error)
{
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EINTR && errno != EWOULDBLOCK) {
            return by__io_error(error, "lock", partial);
        }
        if (errno == EWOULDBLOCK && !wait) {
            return by_error_set(error, BY_EARG, "another process is packing into %s", output);
        }
        if (errno == EWOULDBLOCK) {
            BY_TRY(wait_for_lock(pack, output, noted, error));
        }
    }
    return BY_OK;
}

/* Creates and locks the directory that will become `output`. The lock is on the directory itself,
 * so it ends with the process and leaves nothing. *fd is -1 if output exists. */
static by_status lock_partial(const by__data_pack *pack, const char *partial, const char *output,
                              bool wait, bool quiet, int *fd, by_error *error)
{
    bool noted = quiet;
    for (;;) {
        struct stat held;
        struct stat named;
        if (by__path_exists(output)) {
            *fd = -1;
            return BY_OK;
        }
        if (mkdir(partial, 0777) != 0 && errno != EEXIST) {
            return by__io_error(error, "create directory", partial);
        }
        int lock = open(partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (lock < 0 && errno == ENOENT) {
            continue; /* it was just renamed */
        }
        if (lock < 0 && (errno == ELOOP || errno == ENOTDIR)) {
            return by_error_set(error, BY_EARG,
                                "%s exists and was not made by banyan pack: move it, or name "
                                "another output directory",
                                partial);
        }
        if (lock < 0) {
            return by__io_error(error, "open", partial);
        }
        by_status status = acquire_lock(pack, lock, partial, output, wait, &noted, error);
        if (status != BY_OK) {
            (void)close(lock);
            return status;
        }
        bool same = fstat(lock, &held) == 0 && lstat(partial, &named) == 0 &&
                    held.st_ino == named.st_ino && held.st_dev == named.st_dev;
        if (same && !by__path_exists(output)) {
            *fd = lock;
            return BY_OK;
        }
        if (same) {
            /* Another process had renamed its own to output before this one was made. */
            (void)rmdir(partial);
        }
        (void)close(lock); /* of one that is renamed or removed */
    }
}

by_status by__data_pack_lock(const by__data_pack *pack, const char *partial, const char *output,
                             int *fd, by_error *error)
{
    return lock_partial(pack, partial, output, true, true, fd, error);
}

/* ---- the content ---- */

/* Creates the marker in an empty directory. */
static by_status mark(int fd, const char *partial, by_error *error)
{
    const char text[] = MARKER_TEXT;
    int file = openat(fd, MARKER, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        return by__io_error(error, "write into", partial);
    }
    bool good = write(file, text, sizeof text - 1) == (ssize_t)(sizeof text - 1);
    by_status status = good ? BY_OK : by__io_error(error, "write into", partial);
    (void)close(file);
    return status;
}

/* The marker stays. */
by_status by__data_pack_clear(int fd, const char *partial, by_error *error)
{
    char **names;
    size_t count;
    struct stat info;
    BY_TRY(by__list_dir(&names, &count, partial, error));
    bool ours = fstatat(fd, MARKER, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
    by_status status = BY_OK;
    if (count == 0) {
        status = mark(fd, partial, error);
    } else if (!ours) {
        status = by_error_set(error, BY_EARG,
                              "%s contains files that banyan pack did not make: move it, or name "
                              "another output directory",
                              partial);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        if (strcmp(names[i], MARKER) != 0) {
            char *path = by__path_join(partial, names[i]);
            status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                  : by__remove_tree(path, error);
            free(path);
        }
    }
    by__names_free(names, count);
    return status;
}

/* Renames the directory. The marker is removed last: after a crash there is either an unfinished
 * directory that is still recognized as such, or a complete one. */
static by_status publish(int fd, const char *partial, const char *output, by_error *error)
{
    char *parent;
    if (rename(partial, output) != 0) {
        return by__io_error(error, "rename to", output);
    }
    (void)unlinkat(fd, MARKER, 0);
    BY_TRY(parent_of(&parent, output, error));
    by_status status = by__sync_dir(parent, error);
    free(parent);
    return status;
}

by_status by__data_pack_write_locked(const by__data_pack *pack, const by_tokenizer *tokenizer,
                                     int fd, const char *partial, const char *output,
                                     by_pack_result *result, by_error *error)
{
    BY_TRY(by__data_pack_clear(fd, partial, error));
    by_status status = by__data_pack_encode(pack, tokenizer, partial, result, error);
    if (status == BY_OK) {
        return publish(fd, partial, output, error);
    }
    (void)by__remove_tree(partial, NULL);
    return status;
}

by_status by__data_pack_names(char **clean, char **partial, const char *output, by_error *error)
{
    by_string name = {0};
    size_t n = strlen(output);
    while (n > 1 && output[n - 1] == '/') {
        n--;
    }
    by_string_add(&name, output, n);
    by__string_append(&name, ".partial");
    BY_TRY(by__string_release(&name, partial, error));
    *clean = by__strndup(output, n);
    return *clean != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: path");
}

by_status by__data_pack_write(const by__data_pack *pack, const by_tokenizer *tokenizer,
                              const char *output, bool wait, by_pack_result *result,
                              by_error *error)
{
    int fd = -1;
    char *partial = NULL;
    char *clean = NULL;
    char *parent = NULL;
    by_status status = by__data_pack_names(&clean, &partial, output, error);
    if (status == BY_OK) {
        status = parent_of(&parent, clean, error);
    }
    if (status == BY_OK) {
        status = by__make_dirs(parent, error);
    }
    if (status == BY_OK) {
        status = lock_partial(pack, partial, clean, wait, false, &fd, error);
    }
    if (status == BY_OK && fd < 0 && !wait) {
        status = by_error_set(
            error, BY_EARG, "%s already exists: remove it or name another output directory", clean);
    } else if (status == BY_OK && fd >= 0) {
        status = by__data_pack_write_locked(pack, tokenizer, fd, partial, clean, result, error);
        (void)close(fd);
    }
    free(parent);
    free(partial);
    free(clean);
    return status;
}
