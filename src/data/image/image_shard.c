#include "data/image/image_shard.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/paths.h"
#include "base/threads.h"
#include "data/image/image_index.h"
#include "data/image/image_names.h"
#include "formats/shards/shard_file.h"

/* Threads that ask for remote shards, and how many one range may name. */
enum { FINDERS = 16, MOST_SHARDS = 1000000 };

typedef struct shard_listing {
    by__image_shard_found *found;
    const by__image_folder *classes; /* that has them */
    const char *path;
    const char *name; /* the last part of the path */
    bool labelled;
    const char *labels; /* what has the label of a sample, for messages */
} shard_listing;

static bool is_shard_name(const char *name)
{
    static const char *const ends[] = {".tar", ".mds", ".tfrecord", ".tfrecords", ".parquet"};
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
    static const char *const ends[] = {".gz",  ".zst", ".zstd",   ".xz",
                                       ".bz2", ".lz4", ".snappy", ".br"};
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
    char name[200];
    int file;
    if (by_remote_is(path)) {
        by__remote_file_name(name, path);
        return is_shard_name(name) || is_compressed_name(name);
    }
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

/* The class of a sample's label, which is there. */
static by_status label_of(int32_t *out, const shard_listing *l, const by__format_shard_sample *s,
                          by_error *error)
{
    const by__image_folder *f = l->classes;
    l->found->numbers = l->found->numbers || s->has_number;
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
    for (size_t i = 0; i < f->class_count; i++) {
        if (strlen(f->classes[i]) == s->label_size &&
            memcmp(f->classes[i], s->label, s->label_size) == 0) {
            *out = (int32_t)i;
            l->found->folder.fixed = true; /* it numbers labels as these classes are */
            return BY_OK;
        }
    }
    if (f->collects && f->class_count == 0) {
        by_error why = {0};
        by_status status = by__image_names_class(out, l->found, s->label, s->label_size, &why);
        return status == BY_EFORMAT ? refuse_sample(l, s, why.message, error)
               : status == BY_OK    ? BY_OK
                                    : by_error_set(error, status, "%s", why.message);
    }
    char what[256];
    (void)snprintf(what, sizeof what, "its label, '%.*s', is %s",
                   (int)(s->label_size < 80 ? s->label_size : 80), s->label,
                   f->class_count > 0
                       ? "none of the classes"
                       : "a text: set data.label_names to the names of the classes, or "
                         "pack the shards (banyan pack --images), which lists them");
    return refuse_sample(l, s, what, error);
}

static by_status take(void *user, const by__format_shard_sample *s, by_error *error)
{
    const shard_listing *l = user;
    by__image_folder *f = &l->found->folder;
    int32_t label = -1;
    char lacks[160];
    const char *problem = s->problem;
    if (problem == NULL && l->labelled && !s->has_number && s->label == NULL) {
        (void)snprintf(lacks, sizeof lacks, "it has no label: that is %s", l->labels);
        problem = lacks;
    }
    if (problem == NULL && l->labelled) {
        BY_TRY(label_of(&label, l, s, error));
    }
    BY_TRY(by__reserve((void **)&f->files, &f->capacity, f->count + 1, sizeof *f->files, error));
    by__image_picture_file *file = &f->files[f->count];
    *file = (by__image_picture_file){
        .path = by__strdup(l->path),
        .label = label,
        .order = by__hash64(l->name, strlen(l->name)) ^ by__hash64(s->key, s->key_size),
        .number = f->count,
        .range = {.begin = s->begin,
                  .size = s->size,
                  .page = s->page,
                  .problem = problem == NULL ? NULL : by__strdup(problem),
                  .sample = by__strndup(s->key, s->key_size)}};
    f->count++;
    return file->path == NULL || file->range.sample == NULL ||
                   (problem != NULL && file->range.problem == NULL)
               ? by_error_set(error, BY_EMEMORY, "out of memory: a sample")
               : BY_OK;
}

/* Takes the names of the classes, which the file has. */
static by_status take_classes(void *user, const char *names, size_t size, by_error *error)
{
    const shard_listing *l = user;
    for (size_t at = 0; at < size; at += strlen(names + at) + 1) {
        BY_TRY(by__image_folder_add_class(&l->found->folder, names + at, error));
    }
    l->found->declares = true;
    return BY_OK;
}

/* Whether a file is compressed as a whole, by its name or its first bytes. */
static bool is_compressed(const char *path, const by__map *map)
{
    static const uint8_t gzip[] = {0x1f, 0x8b};
    static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    return is_compressed_name(name_of(path)) ||
           (map->size > 4 && (memcmp(map->data, gzip, sizeof gzip) == 0 ||
                              memcmp(map->data, zstd, sizeof zstd) == 0));
}

/* Refuses a file that is no shard. */
static by_status refuse_file(const char *path, const by__map *map, by_error *error)
{
    if (map->size == 0) {
        return by_error_set(error, BY_EFORMAT, "%s is an empty file, and no shard of pictures",
                            path);
    }
    return by_error_set(error, BY_EFORMAT,
                        is_compressed(path, map)
                            ? "%s is compressed: pictures are read where they lie in a shard, so "
                              "convert it (banyan pack --images, of a tar.gz) or decompress it "
                              "(gunzip, unzstd, ...); MDS shards are written so without "
                              "`compression`"
                            : "%s is no shard of pictures: a tar archive, a TFRecord, an MDS shard "
                              "or a Parquet file",
                        path);
}

/* ---- shards, several at a time ---- */

/* A shard, and what is in it. */
typedef struct listed_shard {
    char *path;
    by__remote_file *remote; /* NULL: it is local */
    by__image_shard_found found;
    by_status status;
    by_error error;
} listed_shard;

typedef struct shard_list {
    by__image_folder *out;
    bool labelled;
    listed_shard *items;
    size_t count;
    size_t capacity;
    atomic_size_t next;
    atomic_bool failed;
} shard_list;

static by_status map_shard(by__map *map, const listed_shard *s, by_error *error)
{
    return s->remote != NULL ? by__remote_map(map, s->remote, error)
                             : by__map_open(map, s->path, error);
}

/* Takes a sample for the index, too. */
typedef struct indexed_take {
    shard_listing *listing;
    by__format_shard_index *index;
} indexed_take;

static by_status take_indexed(void *user, const by__format_shard_sample *s, by_error *error)
{
    const indexed_take *t = user;
    BY_TRY(take(t->listing, s, error));
    by__format_shard_index_add(t->index, s);
    return BY_OK;
}

static by_status take_indexed_classes(void *user, const char *names, size_t size, by_error *error)
{
    const indexed_take *t = user;
    by__format_shard_index_classes(t->index, names, size);
    return take_classes(t->listing, names, size, error);
}

/* Reads what is in a shard, and keeps that as its index if it has a key. */
static by_status read_content(const listed_shard *s, shard_listing *l, const char *directory,
                              const char *key, by_error *error)
{
    by__map map;
    by__format_shard_index index = {0};
    indexed_take both = {l, &index};
    BY_TRY(map_shard(&map, s, error));
    by__format_shard shard = {.path = s->path,
                              .data = map.data,
                              .size = map.size,
                              .image_field = "",
                              .label_field = "",
                              .take = key == NULL ? take : take_indexed,
                              .classes = key == NULL ? take_classes : take_indexed_classes};
    shard.user = key == NULL ? (void *)l : (void *)&both;
    const by__format_shard_row *row = by__format_shard_find(s->path, map.data, map.size);
    l->labels = row == NULL ? NULL : row->labels;
    by_status status = row == NULL ? refuse_file(s->path, &map, error) : row->read(&shard, error);
    if (status == BY_EFORMAT && row != NULL && is_compressed(s->path, &map)) {
        status = refuse_file(s->path, &map, error); /* under the name of one that is not */
    }
    if (status == BY_OK && l->found->folder.count == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s: %s without samples", s->path, row->name);
    }
    if (status == BY_OK && key != NULL) {
        by__image_index_save(&index, directory, key);
    }
    by_string_free(&index.text);
    by__map_close(&map);
    return status;
}

/* The size of a shard; 0: it is not known. */
static uint64_t size_of(const listed_shard *s)
{
    struct stat info;
    return s->remote != NULL           ? by__remote_size(s->remote)
           : stat(s->path, &info) == 0 ? (uint64_t)info.st_size
                                       : 0;
}

static by_status read_shard(listed_shard *s, const shard_list *list, by_error *error)
{
    char *key = NULL;
    by__map map;
    const char *directory = list->out->indexes;
    char name[200];
    by__remote_file_name(name, s->path);
    shard_listing l = {.found = &s->found,
                       .classes = list->out,
                       .path = s->path,
                       .name = s->remote != NULL ? name : name_of(s->path),
                       .labelled = list->labelled,
                       .labels = "what the shard's format names label or class"};
    if (directory != NULL) {
        BY_TRY(by__image_index_key(&key, s->path, s->remote, error));
    }
    by_status status = BY_OK;
    if (key != NULL && by__image_index_open(&map, directory, key, size_of(s))) {
        const by__format_shard shard = {.path = s->path,
                                        .data = map.data,
                                        .size = map.size,
                                        .take = take,
                                        .classes = take_classes,
                                        .user = &l};
        status = by__format_shard_index_read(&shard, error);
        by__map_close(&map);
    } else {
        status = read_content(s, &l, directory, key, error);
    }
    free(key);
    return status;
}

/* Takes shards until there are no more, or one is wrong: those before it are read, so that the
 * first that is wrong is always the same. */
static by_status read_shards(void *context, size_t thread, by_error *error)
{
    shard_list *list = context;
    BY_UNUSED(thread);
    BY_UNUSED(error);
    while (!atomic_load(&list->failed)) {
        size_t i = atomic_fetch_add(&list->next, 1);
        if (i >= list->count) {
            break;
        }
        listed_shard *s = &list->items[i];
        s->status = read_shard(s, list, &s->error);
        if (s->status != BY_OK) {
            atomic_store(&list->failed, true);
        }
    }
    return BY_OK;
}

static by_status find_shards(void *context, size_t thread, by_error *error)
{
    shard_list *list = context;
    BY_UNUSED(thread);
    for (;;) {
        size_t i = atomic_fetch_add(&list->next, 1);
        if (i >= list->count) {
            return BY_OK;
        }
        listed_shard *s = &list->items[i];
        if (list->out->remote != NULL && by_remote_is(s->path)) {
            BY_TRY(by__remote_find(&s->remote, list->out->remote, s->path, error));
        }
    }
}

/* How many shards are read at a time: as many as the cache holds, of those that are remote. */
static size_t threads_of(const shard_list *list)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < list->count; i++) {
        uint64_t size = list->items[i].remote == NULL ? 0 : by__remote_size(list->items[i].remote);
        largest = size > largest ? size : largest;
    }
    size_t threads = (size_t)by__thread_count(0);
    size_t most = largest == 0 ? threads : by__remote_at_once(list->out->remote, largest);
    threads = most < threads ? most : threads;
    return threads < list->count ? threads : list->count;
}

static by_status collect_names(shard_list *list, by_error *error)
{
    by__image_shard_found **found;
    const char **paths = NULL;
    BY_TRY(by__alloc((void **)&found, list->count, sizeof *found, "shards", error));
    by_status status = by__alloc((void **)&paths, list->count, sizeof *paths, "shards", error);
    for (size_t i = 0; i < list->count && status == BY_OK; i++) {
        found[i] = &list->items[i].found;
        paths[i] = list->items[i].path;
    }
    if (status == BY_OK) {
        status = by__image_names_collect(list->out, found, paths, list->count, error);
    }
    free(paths);
    free(found);
    return status;
}

/* Appends what was found, in the order of the shards. */
static by_status take_found(shard_list *list, by_error *error)
{
    by__image_folder *out = list->out;
    for (size_t i = 0; i < list->count; i++) {
        const listed_shard *s = &list->items[i];
        if (s->status != BY_OK) {
            return by_error_set(error, s->status, "%s", s->error.message);
        }
    }
    if (out->collects && out->class_count == 0) {
        BY_TRY(collect_names(list, error));
    }
    for (size_t i = 0; i < list->count; i++) {
        const char *path = list->items[i].path;
        by__image_folder *f = &list->items[i].found.folder;
        BY_TRY(by__image_names_take(out, f, path, error));
        BY_TRY(by__reserve((void **)&out->files, &out->capacity, out->count + f->count,
                           sizeof *out->files, error));
        for (size_t k = 0; k < f->count; k++) {
            out->files[out->count] = f->files[k];
            out->files[out->count].number = out->count;
            out->count++;
        }
        f->count = 0;
    }
    return BY_OK;
}

static by_status read_list(shard_list *list, by_error *error)
{
    atomic_init(&list->next, 0);
    atomic_init(&list->failed, false);
    if (list->out->remote != NULL) {
        size_t threads = list->count < FINDERS ? list->count : FINDERS;
        BY_TRY(by__threads_run(threads, find_shards, list, error));
        atomic_store(&list->next, 0);
    }
    BY_TRY(by__threads_run(threads_of(list), read_shards, list, error));
    return take_found(list, error);
}

/* ---- which shards ---- */

/* Takes the path. */
static by_status list_shard(shard_list *list, char *path, by_error *error)
{
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                    : by__reserve((void **)&list->items, &list->capacity,
                                                  list->count + 1, sizeof *list->items, error);
    if (status != BY_OK) {
        free(path);
        return status;
    }
    list->items[list->count++] = (listed_shard){.path = path};
    return BY_OK;
}

/* Lists what "NAME-{000..123}.tar" stands for, as WebDataset writes it. */
static by_status list_range(shard_list *list, const char *url, by_error *error)
{
    const char *open = strchr(url, '{');
    unsigned long first;
    unsigned long last;
    int begin = 0;
    int dots = 0;
    int end = 0;
    if (open == NULL) {
        return list_shard(list, by__strdup(url), error);
    }
    if (sscanf(open, "{%n%9lu%n..%9lu}%n", &begin, &first, &dots, &last, &end) != 2 || end == 0 ||
        last < first || last - first >= MOST_SHARDS || strchr(open + end, '{') != NULL) {
        return by_error_set(error, BY_ECONFIG, "%s: write a range of shards as NAME-{000..123}.tar",
                            url);
    }
    for (unsigned long i = first; i <= last; i++) {
        by_string path = {0};
        char *text;
        by_string_format(&path, "%.*s%0*lu%s", (int)(open - url), url, dots - begin, i, open + end);
        BY_TRY(by__string_release(&path, &text, error));
        BY_TRY(list_shard(list, text, error));
    }
    return BY_OK;
}

/* Lists an entry of a folder that has shards. Pictures, or folders of them, beside these would be
 * left out silently. Takes the path. */
static by_status list_entry(shard_list *list, const char *folder, const char *name, char *path,
                            by_error *error)
{
    if (is_shard_name(name) || is_compressed_name(name)) {
        return list_shard(list, path, error);
    }
    bool is_picture = name[0] != '.' && (by__path_is_dir(path) || by__image_is_picture_name(name));
    free(path);
    if (is_picture) {
        return by_error_set(error, BY_EFORMAT,
                            "%s has shards of pictures, and also %s: name the shards, or move one "
                            "of them out",
                            folder, name);
    }
    list->out->ignored++;
    return BY_OK;
}

static by_status list_folder(shard_list *list, const char *folder, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, folder, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *path;
        status = by__path_make(&path, folder, names[i], error);
        if (status == BY_OK) {
            status = list_entry(list, folder, names[i], path, error);
        }
    }
    by__names_free(names, count);
    return status;
}

by_status by__image_shard_add_all(by__image_folder *out, const char *const *paths, size_t count,
                                  bool labelled, by_error *error)
{
    shard_list list = {.out = out, .labelled = labelled};
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by_remote_is(paths[i])      ? list_range(&list, paths[i], error)
                 : by__path_is_dir(paths[i]) ? list_folder(&list, paths[i], error)
                                             : list_shard(&list, by__strdup(paths[i]), error);
    }
    if (status == BY_OK && list.count > 0) {
        status = read_list(&list, error);
    }
    for (size_t i = 0; i < list.count; i++) {
        by__image_shard_found_free(&list.items[i].found);
        free(list.items[i].path);
    }
    free(list.items);
    return status;
}

by_status by__image_shard_add(by__image_folder *out, const char *path, bool labelled,
                              by_error *error)
{
    return by__image_shard_add_all(out, &path, 1, labelled, error);
}
