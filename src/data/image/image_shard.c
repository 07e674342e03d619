#include "data/image/image_shard.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/paths.h"
#include "formats/shards/shard_file.h"

typedef struct shard_listing {
    by__image_folder *out;
    const char *path;
    const char *name; /* the last part of the path */
    bool labelled;
} shard_listing;

/* Whether a name is that of a shard: "a.tar", "a.mds", "a.tfrecord", "a.tfrecord-0-of-9". */
static bool is_shard_name(const char *name)
{
    static const char *const ends[] = {".tar", ".mds", ".tfrecord", ".tfrecords"};
    size_t n = strlen(name);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends); i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcasecmp(name + n - k, ends[i]) == 0) {
            return name[0] != '.';
        }
    }
    return name[0] != '.' && strstr(name, ".tfrecord-") != NULL;
}

/* Whether a name is that of a compressed shard, "a.tar.gz": pictures are read in place. */
static bool is_compressed_name(const char *name)
{
    static const char *const ends[] = {".gz", ".zst", ".xz", ".bz2", ".lz4"};
    char plain[256];
    const char *dot = strrchr(name, '.');
    if (dot == NULL || (size_t)(dot - name) >= sizeof plain) {
        return false;
    }
    if (strcasecmp(dot, ".tgz") == 0) {
        return name[0] != '.';
    }
    (void)snprintf(plain, sizeof plain, "%.*s", (int)(dot - name), name);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends); i++) {
        if (strcasecmp(dot, ends[i]) == 0) {
            return is_shard_name(plain);
        }
    }
    return false;
}

static bool has_shard_name(const char *folder)
{
    char **names;
    size_t count;
    bool found = false;
    if (by__list_dir(&names, &count, folder, NULL) != BY_OK) {
        return false;
    }
    for (size_t i = 0; i < count && !found; i++) {
        found = is_shard_name(names[i]) || is_compressed_name(names[i]);
    }
    by__names_free(names, count);
    return found;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

bool by__image_is_shard(const char *path)
{
    uint8_t head[BY__SHARD_HEAD];
    int file;
    if (by__path_is_dir(path)) {
        return has_shard_name(path);
    }
    if (is_shard_name(name_of(path)) || is_compressed_name(name_of(path))) {
        return true; /* also a damaged one, whose error says so */
    }
    if (by__open_regular(&file, NULL, path, NULL) != BY_OK) {
        return false;
    }
    ssize_t n = pread(file, head, sizeof head, 0);
    (void)close(file);
    return n > 0 && by__format_shard_find(path, head, (size_t)n) != NULL;
}

static by_status refuse_sample(const shard_listing *l, const by__format_shard_sample *s,
                               const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s, sample %.*s: %s", l->path,
                        (int)(s->key_size < 200 ? s->key_size : 200), s->key, what);
}

/* The class of a sample's label. */
static by_status label_of(int32_t *out, const shard_listing *l, const by__format_shard_sample *s,
                          by_error *error)
{
    const by__image_folder *f = l->out;
    *out = -1;
    if (!l->labelled || s->problem != NULL) {
        return BY_OK;
    }
    if (s->has_number && s->number >= 0 && s->number < INT32_MAX) {
        *out = (int32_t)s->number;
        return BY_OK;
    }
    if (s->has_number) {
        char what[96];
        (void)snprintf(what, sizeof what, "its label, %lld, is %s", (long long)s->number,
                       s->number < 0 ? "negative" : "too large");
        return refuse_sample(l, s, what, error);
    }
    if (s->label == NULL) {
        return refuse_sample(l, s,
                             "it has no label: cls or json in a tar archive, in which the files of "
                             "a sample follow each other (tar --sort=name); label or class in a "
                             "TFRecord or MDS",
                             error);
    }
    for (size_t i = 0; i < f->class_count; i++) {
        if (strlen(f->classes[i]) == s->label_size &&
            memcmp(f->classes[i], s->label, s->label_size) == 0) {
            *out = (int32_t)i;
            return BY_OK;
        }
    }
    char what[256];
    (void)snprintf(what, sizeof what, "its label, '%.*s', is %s",
                   (int)(s->label_size < 80 ? s->label_size : 80), s->label,
                   f->class_count > 0 ? "none of the classes"
                                      : "a text: set data.label_names to the names of the classes");
    return refuse_sample(l, s, what, error);
}

static by_status take(void *user, const by__format_shard_sample *s, by_error *error)
{
    const shard_listing *l = user;
    by__image_folder *f = l->out;
    int32_t label;
    BY_TRY(label_of(&label, l, s, error));
    BY_TRY(by__reserve((void **)&f->files, &f->capacity, f->count + 1, sizeof *f->files, error));
    by__image_picture_file *file = &f->files[f->count];
    *file = (by__image_picture_file){
        .path = by__strdup(l->path),
        .label = label,
        .order = by__hash64(l->name, strlen(l->name)) ^ by__hash64(s->key, s->key_size),
        .number = f->count,
        .range = {.begin = s->begin,
                  .size = s->size,
                  .problem = s->problem == NULL ? NULL : by__strdup(s->problem),
                  .sample = by__strndup(s->key, s->key_size)}};
    f->count++;
    return file->path == NULL || file->range.sample == NULL ||
                   (s->problem != NULL && file->range.problem == NULL)
               ? by_error_set(error, BY_EMEMORY, "out of memory: a sample")
               : BY_OK;
}

/* Refuses a file that is no shard. */
static by_status refuse_file(const char *path, const by__map *map, by_error *error)
{
    static const uint8_t gzip[] = {0x1f, 0x8b};
    static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    bool compressed = is_compressed_name(name_of(path)) ||
                      (map->size > 4 && (memcmp(map->data, gzip, sizeof gzip) == 0 ||
                                         memcmp(map->data, zstd, sizeof zstd) == 0));
    return by_error_set(error, BY_EFORMAT,
                        compressed ? "%s is compressed: pictures are read where they lie in a "
                                     "shard, so decompress it (gunzip, unzstd, ...)"
                                   : "%s is no shard of pictures: a tar archive, a TFRecord or an "
                                     "MDS shard",
                        path);
}

static by_status add_file(by__image_folder *out, const char *path, bool labelled, by_error *error)
{
    shard_listing l = {.out = out, .path = path, .name = name_of(path), .labelled = labelled};
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    const by__format_shard shard = {.path = path,
                                    .data = map.data,
                                    .size = map.size,
                                    .image_field = "",
                                    .label_field = "",
                                    .take = take,
                                    .user = &l};
    const by__format_shard_row *row = by__format_shard_find(path, map.data, map.size);
    size_t before = out->count;
    by_status status = row == NULL ? refuse_file(path, &map, error) : row->read(&shard, error);
    if (status == BY_OK && out->count == before) {
        status = by_error_set(error, BY_EFORMAT, "%s: %s without samples", path, row->name);
    }
    by__map_close(&map);
    return status;
}

/* Adds an entry of a folder that has shards. Pictures, or folders of them, beside these would be
 * left out silently. */
static by_status add_entry(by__image_folder *out, const char *folder, const char *name,
                           const char *path, bool labelled, by_error *error)
{
    if (is_shard_name(name) || is_compressed_name(name)) {
        return add_file(out, path, labelled, error);
    }
    if (name[0] != '.' && (by__path_is_dir(path) || by__image_is_picture_name(name))) {
        return by_error_set(error, BY_EFORMAT,
                            "%s has shards of pictures, and also %s: name the shards, or move one "
                            "of them out",
                            folder, name);
    }
    out->ignored++;
    return BY_OK;
}

static by_status add_folder(by__image_folder *out, const char *folder, char **names, size_t count,
                            bool labelled, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char *path;
        BY_TRY(by__path_make(&path, folder, names[i], error));
        by_status status = add_entry(out, folder, names[i], path, labelled, error);
        free(path);
        BY_TRY(status);
    }
    return BY_OK;
}

by_status by__image_shard_add(by__image_folder *out, const char *path, bool labelled,
                              by_error *error)
{
    char **names;
    size_t count;
    if (!by__path_is_dir(path)) {
        return add_file(out, path, labelled, error);
    }
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = add_folder(out, path, names, count, labelled, error);
    by__names_free(names, count);
    return status;
}
