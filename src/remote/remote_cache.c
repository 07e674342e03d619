#include "remote/remote_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/paths.h"

#define DEFAULT_LIMIT ((uint64_t)20 << 30)
/* Where the locks of ids begin in the file of locks. */
#define ID_LOCKS ((uint64_t)1 << 20)
/* Seconds after which what a killed process left is removed. */
#define LEFT_OVER 3600

static const char magic[8] = "BYREMOT1";
enum { AT_BLOCK = 8, AT_SIZE = 16, AT_TAG = 24, AT_HASH = BY__REMOTE_HEAD - 8 };

/* ---- heads ---- */

void by__remote_head_print(uint8_t head[BY__REMOTE_HEAD], const by__remote_version *version)
{
    uint64_t block = BY__REMOTE_BLOCK;
    memset(head, 0, BY__REMOTE_HEAD);
    memcpy(head, magic, sizeof magic);
    memcpy(head + AT_BLOCK, &block, sizeof block);
    memcpy(head + AT_SIZE, &version->size, sizeof version->size);
    memcpy(head + AT_TAG, version->tag, strnlen(version->tag, BY__REMOTE_TAG - 1));
    uint64_t hash = by__hash64(head, AT_HASH);
    memcpy(head + AT_HASH, &hash, sizeof hash);
}

bool by__remote_head_parse(by__remote_version *out, const uint8_t head[BY__REMOTE_HEAD])
{
    uint64_t block;
    uint64_t hash;
    memcpy(&block, head + AT_BLOCK, sizeof block);
    memcpy(&hash, head + AT_HASH, sizeof hash);
    if (memcmp(head, magic, sizeof magic) != 0 || block != BY__REMOTE_BLOCK ||
        hash != by__hash64(head, AT_HASH) || head[AT_TAG + BY__REMOTE_TAG - 1] != 0) {
        return false;
    }
    memcpy(&out->size, head + AT_SIZE, sizeof out->size);
    memcpy(out->tag, head + AT_TAG, BY__REMOTE_TAG);
    return true;
}

/* ---- locks ---- */

/* Waits for a lock, and asks `stop` a hundred times a second. */
static by_status await_lock(int fd, struct flock *range, const char *path, by__remote_stop *stop,
                            by_error *error)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    while (fcntl(fd, stop == NULL ? F_OFD_SETLKW : F_OFD_SETLK, range) != 0) {
        bool held = stop != NULL && (errno == EAGAIN || errno == EACCES);
        if (!held && errno != EINTR) {
            return by__io_error(error, "lock", path);
        }
        if (held && by__remote_stops(stop)) {
            return by_error_set(error, BY_ESTOPPED,
                                "stopped while another process fetched what this one needs");
        }
        if (held) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return BY_OK;
}

by_status by__remote_lock(int *out, const char *path, uint64_t begin, uint64_t count,
                          by__remote_stop *stop, by_error *error)
{
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)begin, .l_len = (off_t)count};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return by__io_error(error, "open", path);
    }
    by_status status = await_lock(fd, &range, path, stop, error);
    if (status != BY_OK) {
        (void)close(fd);
        return status;
    }
    *out = fd;
    return BY_OK;
}

by_status by__remote_cache_lock_id(int *out, const by__remote_cache *cache, const char *id,
                                   by__remote_stop *stop, by_error *error)
{
    uint64_t place = ID_LOCKS + (by__hash64(id, strlen(id)) >> 24);
    return by__remote_lock(out, cache->lock, place, 1, stop, error);
}

/* ---- the directory ---- */

by_status by__remote_cache_open(by__remote_cache *cache, const by_remote_options *options,
                                by_error *error)
{
    const char *directory = options->cache;
    *cache = (by__remote_cache){.limit = options->bytes == 0 ? DEFAULT_LIMIT : options->bytes};
    if (directory != NULL && directory[0] != '\0') {
        cache->directory = by__strdup(directory);
        if (cache->directory == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a cache");
        }
    } else {
        BY_TRY(by__cache_path(&cache->directory, "remote", error));
    }
    by_status status = by__make_dirs(cache->directory, error);
    if (status == BY_OK) {
        status = by__path_make(&cache->lock, cache->directory, "lock", error);
    }
    if (status != BY_OK) {
        by__remote_cache_close(cache);
    }
    return status;
}

void by__remote_cache_close(by__remote_cache *cache)
{
    free(cache->directory);
    free(cache->lock);
    *cache = (by__remote_cache){0};
}

/* An entry, as far as it matters to what gives way. */
typedef struct held_entry {
    char *name;
    uint64_t bytes;
    struct timespec used;
} held_entry;

static bool is_id(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

static int compare_use(const void *a, const void *b)
{
    const held_entry *x = a;
    const held_entry *y = b;
    return x->used.tv_sec != y->used.tv_sec
               ? (x->used.tv_sec > y->used.tv_sec) - (x->used.tv_sec < y->used.tv_sec)
               : (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

/* Bytes on disk of what is in a directory, and when its blocks were used. */
static bool look_at(held_entry *out, const char *path)
{
    char **names;
    size_t count;
    struct stat info;
    bool found = false;
    if (by__list_dir(&names, &count, path, NULL) != BY_OK) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        char *file = by__path_join(path, names[i]);
        if (file != NULL && stat(file, &info) == 0) {
            out->bytes += (uint64_t)info.st_blocks * 512;
            if (strcmp(names[i], ".blocks") == 0) {
                out->used = info.st_mtim;
                found = true;
            }
        }
        free(file);
    }
    by__names_free(names, count);
    return found;
}

/* Removes a directory of the cache: it loses its name at once. */
static void remove_entry(const by__remote_cache *cache, const char *name)
{
    by_string gone = {0};
    char *path = by__path_join(cache->directory, name);
    by_string_format(&gone, "%s/.gone-%ld-%s", cache->directory, (long)getpid(), name);
    if (path != NULL && !gone.failed && rename(path, gone.data) == 0) {
        (void)by__remove_tree(gone.data, NULL);
    }
    by_string_free(&gone);
    free(path);
}

/* Removes an entry, unless it is in use. */
static bool evict(const by__remote_cache *cache, const char *name)
{
    by_string path = {0};
    by_string_format(&path, "%s/%s/.blocks", cache->directory, name);
    int fd = path.failed ? -1 : open(path.data, O_RDONLY | O_CLOEXEC);
    bool is_free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (is_free) {
        remove_entry(cache, name);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    by_string_free(&path);
    return is_free;
}

/* What a process that was killed left behind. */
static void remove_left_over(const by__remote_cache *cache, const char *name)
{
    struct stat info;
    char *path = by__path_join(cache->directory, name);
    if (path != NULL && stat(path, &info) == 0 && time(NULL) - info.st_mtime > LEFT_OVER) {
        (void)by__remove_tree(path, NULL);
    }
    free(path);
}

/* Counts what the entries hold, and removes some until `bytes` fit with a tenth to spare, or no
 * other is left. */
static by_status make_room(const by__remote_cache *cache, const char *id, uint64_t bytes,
                           uint64_t *held, by_error *error)
{
    char **names;
    size_t count;
    held_entry *entries;
    size_t n = 0;
    uint64_t total = 0;
    uint64_t wanted = cache->limit - cache->limit / 10;
    BY_TRY(by__list_dir(&names, &count, cache->directory, error));
    by_status status = by__alloc((void **)&entries, count + 1, sizeof *entries, "a cache", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *path = by__path_join(cache->directory, names[i]);
        if (path != NULL && is_id(names[i]) && look_at(&entries[n], path)) {
            total += entries[n].bytes;
            entries[n++].name = names[i];
        } else if (strncmp(names[i], ".new-", 5) == 0 || strncmp(names[i], ".gone-", 6) == 0) {
            remove_left_over(cache, names[i]);
        }
        free(path);
    }
    if (status == BY_OK && total + bytes > cache->limit) {
        qsort(entries, n, sizeof *entries, compare_use);
        for (size_t i = 0; i < n && total + bytes > wanted; i++) {
            if (strcmp(entries[i].name, id) != 0 && evict(cache, entries[i].name)) {
                total -= entries[i].bytes;
            }
        }
    }
    if (status == BY_OK) {
        free(entries);
    }
    by__names_free(names, count);
    *held = total;
    return status;
}

static by_status refuse_full(const by__remote_cache *cache, by_error *error)
{
    char limit[32];
    return by_error_set(error, BY_EIO,
                        "the cache of remote files, %s, is full of files that are in use: let it "
                        "hold more than %s (data.remote_cache_size; banyan pack: "
                        "--remote-cache-size)",
                        cache->directory, by_format_bytes(limit, cache->limit));
}

by_status by__remote_cache_reserve(const by__remote_cache *cache, const char *id, uint64_t bytes,
                                   by_error *error)
{
    int lock = -1;
    uint64_t held = UINT64_MAX;
    BY_TRY(by__remote_lock(&lock, cache->lock, 0, sizeof held, NULL, error));
    if (pread(lock, &held, sizeof held, 0) != (ssize_t)sizeof held) {
        held = UINT64_MAX; /* it is counted the first time */
    }
    by_status status = BY_OK;
    if (held > cache->limit || bytes > cache->limit - held) {
        status = make_room(cache, id, bytes, &held, error);
        if (status == BY_OK && (held > cache->limit || bytes > cache->limit - held)) {
            status = refuse_full(cache, error);
        }
    }
    held = status == BY_OK ? held + bytes : held;
    if (status == BY_OK && pwrite(lock, &held, sizeof held, 0) != (ssize_t)sizeof held) {
        status = by__io_error(error, "write", cache->lock);
    }
    (void)close(lock);
    return status;
}

/* ---- entries ---- */

static by_status entry_paths(by_string *blocks, by_string *data, const by__remote_cache *cache,
                             const char *id, const char *name, by_error *error)
{
    by_string_format(blocks, "%s/%s/.blocks", cache->directory, id);
    by_string_format(data, "%s/%s/%s", cache->directory, id, name);
    return blocks->failed || data->failed ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                          : BY_OK;
}

static bool read_version(by__remote_version *out, int blocks)
{
    uint8_t head[BY__REMOTE_HEAD];
    return pread(blocks, head, sizeof head, 0) == (ssize_t)sizeof head &&
           by__remote_head_parse(out, head);
}

bool by__remote_entry_version(by__remote_version *out, const by__remote_cache *cache,
                              const char *id)
{
    by_string path = {0};
    by_string_format(&path, "%s/%s/.blocks", cache->directory, id);
    int fd = path.failed ? -1 : open(path.data, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && read_version(out, fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    by_string_free(&path);
    return good;
}

/* Opens an entry if it is there and of this version. */
static bool open_existing(by__remote_entry *out, const char *blocks, const char *data,
                          const by__remote_version *version)
{
    by__remote_version found;
    struct stat info;
    out->blocks = open(blocks, O_RDWR | O_CLOEXEC);
    out->data = out->blocks < 0 ? -1 : open(data, O_RDWR | O_CLOEXEC);
    bool good = out->data >= 0 && read_version(&found, out->blocks) &&
                found.size == version->size && strcmp(found.tag, version->tag) == 0 &&
                fstat(out->data, &info) == 0 && (uint64_t)info.st_size == version->size;
    if (!good) {
        by__remote_entry_close(out);
    }
    return good;
}

/* Makes the files of an entry in a directory. */
static by_status make_files(const char *directory, const char *name,
                            const by__remote_version *version, by_error *error)
{
    uint8_t head[BY__REMOTE_HEAD];
    by_string blocks = {0};
    by_string data = {0};
    size_t count = (size_t)((version->size + BY__REMOTE_BLOCK - 1) / BY__REMOTE_BLOCK);
    by__remote_head_print(head, version);
    by_string_format(&blocks, "%s/.blocks", directory);
    by_string_format(&data, "%s/%s", directory, name);
    if (blocks.failed || data.failed) {
        by_string_free(&blocks);
        by_string_free(&data);
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = BY_OK;
    int fd = open(data.data, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)version->size) != 0) {
        status = by__io_error(error, "create", data.data);
    }
    int second = open(blocks.data, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (status == BY_OK &&
        (second < 0 || pwrite(second, head, sizeof head, 0) != (ssize_t)sizeof head ||
         ftruncate(second, (off_t)(sizeof head + count * sizeof(uint64_t))) != 0)) {
        status = by__io_error(error, "create", blocks.data);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (second >= 0) {
        (void)close(second);
    }
    by_string_free(&blocks);
    by_string_free(&data);
    return status;
}

/* Makes an entry, in the place of what has its name. */
static by_status make_entry(const by__remote_cache *cache, const char *id, const char *name,
                            const by__remote_version *version, by_error *error)
{
    by_string made = {0};
    by_string place = {0};
    by_string_format(&made, "%s/.new-%ld-%s", cache->directory, (long)getpid(), id);
    by_string_format(&place, "%s/%s", cache->directory, id);
    by_status status = made.failed || place.failed
                           ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                           : by__remove_tree(made.data, error);
    if (status == BY_OK && mkdir(made.data, 0700) != 0) {
        status = by__io_error(error, "create directory", made.data);
    }
    if (status == BY_OK) {
        status = make_files(made.data, name, version, error);
    }
    if (status == BY_OK && rename(made.data, place.data) != 0) {
        remove_entry(cache, id);
        status =
            rename(made.data, place.data) == 0 ? BY_OK : by__io_error(error, "rename", made.data);
    }
    if (status != BY_OK && made.data != NULL) {
        (void)by__remove_tree(made.data, NULL);
    }
    by_string_free(&made);
    by_string_free(&place);
    return status;
}

by_status by__remote_entry_open(by__remote_entry *out, const by__remote_cache *cache,
                                const char *id, const char *name, const by__remote_version *version,
                                by_error *error)
{
    by_string blocks = {0};
    by_string data = {0};
    by__remote_entry e = {.data = -1, .blocks = -1};
    by_status status = entry_paths(&blocks, &data, cache, id, name, error);
    if (status == BY_OK && !open_existing(&e, blocks.data, data.data, version)) {
        status = make_entry(cache, id, name, version, error);
        if (status == BY_OK && !open_existing(&e, blocks.data, data.data, version)) {
            status = by__io_error(error, "open", data.data);
        }
    }
    if (status == BY_OK) {
        status = by__string_release(&data, &e.path, error);
    }
    if (status != BY_OK) {
        by__remote_entry_close(&e);
    } else {
        *out = e;
    }
    by_string_free(&blocks);
    by_string_free(&data);
    return status;
}

bool by__remote_entry_is_gone(const by__remote_entry *entry)
{
    struct stat info;
    return fstat(entry->blocks, &info) != 0 || info.st_nlink == 0;
}

void by__remote_entry_close(by__remote_entry *entry)
{
    if (entry->data >= 0) {
        (void)close(entry->data);
    }
    if (entry->blocks >= 0) {
        (void)close(entry->blocks);
    }
    free(entry->path);
    *entry = (by__remote_entry){.data = -1, .blocks = -1};
}
