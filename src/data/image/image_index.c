#include "data/image/image_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Local shards below this are read at once. */
#define SMALLEST (1 << 20)

by_status by__image_index_key(char **out, const char *path, const by__remote_file *remote,
                              by_error *error)
{
    by_string key = {0};
    struct stat info;
    *out = NULL;
    if (remote != NULL) {
        if (by__remote_tag(remote)[0] == '\0') {
            return BY_OK;
        }
        by_string_format(&key, "%s\n%" PRIu64 "\n%s", by__remote_id(remote),
                         by__remote_size(remote), by__remote_tag(remote));
        return by__string_release(&key, out, error);
    }
    if (stat(path, &info) != 0 || info.st_size < SMALLEST) {
        return BY_OK;
    }
    char *real = realpath(path, NULL);
    by_string_format(&key, "%s\n%lld\n%lld.%09ld", real == NULL ? path : real,
                     (long long)info.st_size, (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    free(real);
    return by__string_release(&key, out, error);
}

/* DIRECTORY/HASH.index, of the first line of the key: an index of an earlier version gives way. */
static char *path_of(const char *directory, const char *key)
{
    by_string path = {0};
    char hash[33];
    char *text = NULL;
    by__hash128_hex(hash, key, strcspn(key, "\n"));
    by_string_format(&path, "%s/%s.index", directory, hash);
    return by__string_release(&path, &text, NULL) == BY_OK ? text : NULL;
}

bool by__image_index_open(by__map *out, const char *directory, const char *key, uint64_t size)
{
    by__map map;
    char *path = path_of(directory, key);
    bool good = path != NULL && by__map_open(&map, path, NULL) == BY_OK;
    free(path);
    if (good && !by__format_shard_index_is(map.data, map.size, key, size)) {
        by__map_close(&map);
        return false;
    }
    if (good) {
        *out = map;
    }
    return good;
}

void by__image_index_save(by__format_shard_index *index, const char *directory, const char *key)
{
    by_string own = {0};
    char *path = path_of(directory, key);
    if (path != NULL && by__format_shard_index_finish(index, key, NULL) == BY_OK &&
        by__make_dirs(directory, NULL) == BY_OK) {
        by_string_format(&own, "%s.%ld", path, (long)getpid());
        if (!own.failed &&
            by__file_write(own.data, index->text.data, index->text.length, NULL) == BY_OK &&
            rename(own.data, path) != 0) {
            (void)unlink(own.data);
        }
    }
    by_string_free(&own);
    free(path);
}
