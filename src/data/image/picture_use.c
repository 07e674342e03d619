#include "data/image/picture_use.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/name_table.h"
#include "base/paths.h"
#include "base/threads.h"
#include "formats/array_file.h"
#include "formats/image/image_file.h"
#include "formats/image/image_resample.h"

/* Bytes at the begin of a file that tell it from others. */
enum { HEAD = 4096 };

/* Threads that look at remote files. */
enum { REMOTE_THREADS = 16 };

/* A file, as it was when the set was opened. */
typedef struct used_file {
    char *path;
    by__remote_file *remote; /* NULL: the path is local */
    uint64_t size;
    struct timespec changed;
    uint64_t head; /* hash of its first bytes */
} used_file;

typedef struct used_picture {
    size_t file;
    by_image_range range; /* with texts of its own */
} used_picture;

typedef struct used_pictures {
    used_picture *items;
    size_t count;
    used_file *files; /* each once */
    size_t file_count;
    size_t file_capacity;
    by__remote *remote; /* reads paths that are URLs */
    by__image_pages *pages;
    size_t threads; /* that look at the files */
    by_image_fit fit;
    int64_t channels;
    bool may_skip; /* damaged pictures could be left out, and are not */
} used_pictures;

/* Reads a remote file, or `n` bytes of it from `begin` on. */
static by_status remote_bytes(uint8_t **data, size_t *size, by__remote *remote, const char *url,
                              uint64_t begin, uint64_t n, by_error *error)
{
    by__remote_file *file;
    BY_TRY(by__remote_find(&file, remote, url, error));
    n = n == 0 ? by__remote_size(file) : n;
    if (n > BY__ARRAY_FILE_LIMIT) {
        return by_error_set(error, BY_EFORMAT, "%s: the picture is too large", url);
    }
    BY_TRY(by__alloc((void **)data, (size_t)n + 1, 1, "a picture", error));
    by_status status = by__remote_read(file, begin, *data, (size_t)n, error);
    if (status != BY_OK) {
        free(*data);
        return status;
    }
    *size = (size_t)n;
    return BY_OK;
}

/* Reads a range of a file. */
static by_status read_range(uint8_t **data, by__remote *remote, const char *path,
                            const by_image_range *range, by_error *error)
{
    int file;
    size_t size;
    if (remote != NULL && by_remote_is(path)) {
        return remote_bytes(data, &size, remote, path, range->begin, range->size, error);
    }
    BY_TRY(by__alloc((void **)data, (size_t)range->size, 1, "a picture", error));
    by_status status = by__open_regular(&file, NULL, path, error);
    if (status == BY_OK) {
        status = by__read_at(file, path, range->begin, *data, (size_t)range->size, error);
        (void)close(file);
    }
    if (status != BY_OK) {
        free(*data);
    }
    return status;
}

/* Reads a picture of a page that is compressed as a whole. */
static by_status read_of_page(uint8_t **data, size_t *size, by__remote *remote,
                              by__image_pages *pages, const char *path, const by_image_range *range,
                              by_error *error)
{
    uint8_t *stored = NULL;
    uint8_t *out;
    *size = (size_t)range->page.length;
    BY_TRY(by__alloc((void **)&out, *size, 1, "a picture", error));
    by_status status = BY_OK;
    if (!by__image_pages_take(pages, out, path, range)) {
        status = read_range(&stored, remote, path, range, error);
        if (status == BY_OK) {
            status = by__image_pages_add(pages, out, path, range, stored, error);
            free(stored);
        }
    }
    if (status != BY_OK) {
        free(out);
        return status;
    }
    *data = out;
    return BY_OK;
}

by_status by__image_picture_bytes(uint8_t **data, size_t *size, by__remote *remote,
                                  by__image_pages *pages, const char *path,
                                  const by_image_range *range, by_error *error)
{
    if (range == NULL || (range->size == 0 && range->problem == NULL)) {
        return remote != NULL && by_remote_is(path)
                   ? remote_bytes(data, size, remote, path, 0, 0, error)
                   : by__format_array_file_read(data, size, path, BY__ARRAY_FILE_LIMIT, error);
    }
    if (range->problem != NULL || range->size > BY__ARRAY_FILE_LIMIT) {
        by_error told = {.status = BY_EFORMAT};
        (void)snprintf(told.message, sizeof told.message, "%s",
                       range->problem != NULL ? range->problem : "the picture is too large");
        return by__image_picture_refuse(path, range, &told, "", error);
    }
    if (range->page.size > 0) {
        return read_of_page(data, size, remote, pages, path, range, error);
    }
    BY_TRY(read_range(data, remote, path, range, error));
    *size = (size_t)range->size;
    return BY_OK;
}

const char *by__image_picture_name(char out[BY__IMAGE_NAME], const char *path,
                                   const by_image_range *range)
{
    char place[40] = "";
    if (range == NULL || (range->size == 0 && range->problem == NULL)) {
        return path;
    }
    if (range->begin > 0) {
        (void)snprintf(place, sizeof place, " (byte %llu)", (unsigned long long)range->begin);
    }
    (void)snprintf(out, BY__IMAGE_NAME, "%.300s, sample %.150s%s", path,
                   range->sample == NULL ? "" : range->sample, place);
    return out;
}

by_status by__image_picture_refuse(const char *path, const by_image_range *range,
                                   const by_error *why, const char *advice, by_error *error)
{
    char name[BY__IMAGE_NAME];
    return by_error_set(error, why->status, "%s: %s%s", by__image_picture_name(name, path, range),
                        why->message, advice);
}

/* ---- files ---- */

static by_status look_at_remote(used_file *f, by__remote *remote, by_error *error)
{
    uint8_t head[HEAD];
    BY_TRY(by__remote_find(&f->remote, remote, f->path, error));
    f->size = by__remote_size(f->remote);
    size_t size = f->size < sizeof head ? (size_t)f->size : sizeof head;
    BY_TRY(by__remote_read(f->remote, 0, head, size, error));
    f->head = by__hash64(head, size);
    return BY_OK;
}

static by_status look_at(used_file *f, by__remote *remote, by_error *error)
{
    int file;
    struct stat info;
    uint8_t head[HEAD];
    if (remote != NULL && by_remote_is(f->path)) {
        return look_at_remote(f, remote, error);
    }
    BY_TRY(by__open_regular(&file, NULL, f->path, error));
    by_status status = fstat(file, &info) == 0 ? BY_OK : by__io_error(error, "stat", f->path);
    if (status == BY_OK) {
        f->size = (uint64_t)info.st_size;
        f->changed = info.st_mtim;
        size_t size = f->size < sizeof head ? (size_t)f->size : sizeof head;
        status = by__read_at(file, f->path, 0, head, size, error);
        f->head = status == BY_OK ? by__hash64(head, size) : 0;
    }
    (void)close(file);
    return status;
}

static by_status look_at_some(void *context, size_t thread, by_error *error)
{
    used_pictures *u = context;
    for (size_t i = thread; i < u->file_count; i += u->threads) {
        BY_TRY(look_at(&u->files[i], u->remote, error));
    }
    return BY_OK;
}

/* Batches are a function of the seed only while the files are what they were. */
static by_status check_same(const used_file *f, by_error *error)
{
    struct stat info;
    if (f->remote != NULL) {
        return BY_OK; /* each answer says which version it is of */
    }
    if (stat(f->path, &info) != 0) {
        return by__io_error(error, "read", f->path);
    }
    if ((uint64_t)info.st_size == f->size && info.st_mtim.tv_sec == f->changed.tv_sec &&
        info.st_mtim.tv_nsec == f->changed.tv_nsec) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s has changed since it was opened: files whose pictures are decoded when "
                        "they are used stay as they are meanwhile (data.decode=ahead reads them "
                        "once)",
                        f->path);
}

/* ---- parts ---- */

/* How far a JPEG's sides may be divided before its part is smaller than what is made of it. */
static unsigned reduction_of(const by__transform_box *box, const by_image_fit *fit)
{
    unsigned reduction = 1;
    while (reduction < 8 && box->height >= 2 * (int64_t)reduction * fit->height &&
           box->width >= 2 * (int64_t)reduction * fit->width) {
        reduction *= 2;
    }
    return reduction;
}

static by__format_axis axis_of(int64_t begin, int64_t extent, int64_t have, int64_t reduction,
                               int64_t count)
{
    int64_t high = (begin + extent + reduction - 1) / reduction;
    return (by__format_axis){.filter = BY_RESAMPLE_BILINEAR,
                             .begin = (double)begin / (double)reduction,
                             .extent = (double)extent / (double)reduction,
                             .low = begin / reduction,
                             .high = high > have ? have : high,
                             .whole = count,
                             .count = count};
}

/* Resizes a part of decoded planes, whose sides have been divided. */
static by_status resize_part(uint8_t *out, const used_pictures *u, const by__transform_box *box,
                             const uint8_t *pixels, int64_t height, int64_t width,
                             int64_t reduction, by_error *error)
{
    const by_image_fit *fit = &u->fit;
    by__format_taps y;
    by__format_taps x;
    uint8_t *memory;
    const by__format_axis down = axis_of(box->top, box->height, height, reduction, fit->height);
    const by__format_axis across = axis_of(box->left, box->width, width, reduction, fit->width);
    size_t y_bytes = by__format_taps_bytes(&down);
    size_t x_bytes = by__format_taps_bytes(&across);
    bool rows_first =
        by__format_resample_rows_first(box->height, box->width, fit->height, fit->width);
    size_t between = (size_t)(rows_first ? (down.high - down.low) * fit->width
                                         : fit->height * (across.high - across.low));
    BY_TRY(by__alloc_aligned((void **)&memory, y_bytes + x_bytes + between, "an image", error));
    by__format_taps_make(&y, &down, memory);
    by__format_taps_make(&x, &across, memory + y_bytes);
    for (int64_t c = 0; c < u->channels; c++) {
        by__format_resample_plane(out + c * fit->height * fit->width, fit->height, fit->width,
                                  pixels + c * height * width, width, &y, &x, rows_first,
                                  memory + y_bytes + x_bytes);
    }
    free(memory);
    return BY_OK;
}

static by_status decode_part(uint8_t *out, const used_pictures *u, const by__transform_step *step,
                             const by__transform_draw *draw, const uint8_t *data, size_t size,
                             by_error *error)
{
    int64_t whole[2];
    int64_t height;
    int64_t width;
    uint8_t *pixels;
    by__transform_box box = {0};
    if (!by__format_image_size(&whole[0], &whole[1], data, size) || whole[0] < 1 || whole[1] < 1) {
        /* Says what it is instead. */
        BY_TRY(by__format_image_decode_reduced(&pixels, &height, &width, u->channels, 1, 0, data,
                                               size, error));
        free(pixels);
        return by_error_set(error, BY_EFORMAT, "its head is damaged");
    }
    BY_TRY(by__format_image_fit_check(&u->fit, whole[0], whole[1], error));
    step->row->crop(step->parameters, draw, whole[0], whole[1], &box);
    unsigned reduction = reduction_of(&box, &u->fit);
    int64_t rows = (box.top + box.height + reduction - 1) / reduction;
    BY_TRY(by__format_image_decode_reduced(&pixels, &height, &width, u->channels, reduction, rows,
                                           data, size, error));
    /* Only a JPEG is reduced. */
    reduction = height == whole[0] && width == whole[1] ? 1 : reduction;
    bool fits = height == (whole[0] + reduction - 1) / reduction &&
                width == (whole[1] + reduction - 1) / reduction;
    by_status status = fits ? resize_part(out, u, &box, pixels, height, width, reduction, error)
                            : by_error_set(error, BY_EFORMAT, "its head is damaged");
    free(pixels);
    return status;
}

static by_status read_picture(const void *context, uint64_t row, const by__transform_step *step,
                              const by__transform_draw *draw, uint8_t *out, by_error *error)
{
    const used_pictures *u = context;
    const used_picture *p = &u->items[row];
    const used_file *f = &u->files[p->file];
    uint8_t *data = NULL;
    size_t size = 0;
    by_error why = {0};
    BY_TRY(check_same(f, error));
    BY_TRY(by__image_picture_bytes(&data, &size, u->remote, u->pages, f->path, &p->range, error));
    by_status status;
    if (step != NULL) {
        status = decode_part(out, u, step, draw, data, size, &why);
    } else {
        uint8_t *pixels;
        int64_t height;
        int64_t width;
        status = by__format_image_decode(&pixels, &height, &width, u->channels, &u->fit, data, size,
                                         &why);
        if (status == BY_OK) {
            memcpy(out, pixels, (size_t)(u->channels * height * width));
            free(pixels);
        }
    }
    free(data);
    bool may_skip = status == BY_EFORMAT && u->may_skip;
    return status == BY_OK ? BY_OK
                           : by__image_picture_refuse(f->path, &p->range, &why,
                                                      may_skip ? BY__IMAGE_MAY_SKIP : "", error);
}

static void place_of(const void *context, uint64_t row, uint64_t *file, uint64_t *begin)
{
    const used_pictures *u = context;
    *file = u->items[row].file;
    *begin = u->items[row].range.begin;
}

/* ---- opening ---- */

static void close_pictures(void *context)
{
    used_pictures *u = context;
    for (size_t i = 0; i < u->file_count; i++) {
        free(u->files[i].path);
    }
    for (size_t i = 0; i < u->count; i++) {
        free((void *)(uintptr_t)u->items[i].range.problem);
        free((void *)(uintptr_t)u->items[i].range.sample);
    }
    by__image_pages_close(&u->pages);
    free(u->files);
    free(u->items);
    free(u);
}

/* Finds a file, or adds it: pictures of several shards are mixed. numbers: of the files by path. */
static by_status find_file(size_t *out, used_pictures *u, by__name_table *numbers, const char *path,
                           by_error *error)
{
    int32_t known = by__name_table_find(numbers, path);
    if (known >= 0) {
        *out = (size_t)known;
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&u->files, &u->file_capacity, u->file_count + 1, sizeof *u->files,
                       error));
    char *copy = by__strdup(path);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    *out = u->file_count++;
    u->files[*out] = (used_file){.path = copy};
    return by__name_table_add(numbers, copy, (int32_t)*out, error);
}

/* Which pictures there are: names and places, and sizes and first bytes of the files. Reading all
 * of them takes as long as an epoch. */
static by_status hash_files(char hash[33], const used_pictures *u, size_t count, by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t i = 0; i < count; i++) {
        const used_picture *p = &u->items[i];
        const used_file *f = &u->files[p->file];
        char remote_name[200];
        const char *name = strrchr(f->path, '/');
        name = name == NULL ? f->path : name + 1;
        if (f->remote != NULL) { /* without a query: the data of a local copy is the same */
            by__remote_file_name(remote_name, f->path);
            name = remote_name;
        }
        by__hasher_add(hasher, name, strlen(name) + 1);
        by__hasher_add_u64(hasher, f->size);
        by__hasher_add_u64(hasher, f->head);
        by__hasher_add_u64(hasher, p->range.begin);
        by__hasher_add_u64(hasher, p->range.size);
        if (p->range.page.size > 0) {
            by__hasher_add_u64(hasher, p->range.page.begin);
            by__hasher_add_u64(hasher, p->range.page.length);
        }
    }
    by__hasher_hex(hasher, hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

/* What fits into the cache is fetched while training begins. */
static by_status fetch_ahead(used_pictures *u, by_error *error)
{
    by__remote_file **remote;
    size_t count = 0;
    BY_TRY(by__alloc((void **)&remote, u->file_count, sizeof *remote, "files", error));
    for (size_t i = 0; i < u->file_count; i++) {
        if (u->files[i].remote != NULL) {
            remote[count++] = u->files[i].remote;
        }
    }
    by_status status = by__remote_ahead(u->remote, remote, count, error);
    free(remote);
    return status;
}

/* Whoever lists files may list others before the set is closed. */
static by_status copy_range(by_image_range *out, const by_image_range *range, by_error *error)
{
    *out = *range;
    out->problem = range->problem == NULL ? NULL : by__strdup(range->problem);
    out->sample = range->sample == NULL ? NULL : by__strdup(range->sample);
    return (out->problem == NULL) == (range->problem == NULL) &&
                   (out->sample == NULL) == (range->sample == NULL)
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: a sample");
}

static by_status add_all(used_pictures *u, const by_image_files *files, const size_t *kept,
                         size_t count, char hash[33], by_error *error)
{
    by__name_table numbers = {0};
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = find_file(&u->items[i].file, u, &numbers, files->images[kept[i]], error);
        if (status == BY_OK) {
            u->count = i + 1;
            status = files->ranges == NULL
                         ? BY_OK
                         : copy_range(&u->items[i].range, &files->ranges[kept[i]], error);
        }
    }
    by__name_table_free(&numbers);
    BY_TRY(status);
    u->remote = files->remote;
    u->threads = (size_t)by__thread_count(0);
    if (u->remote != NULL && u->threads < REMOTE_THREADS) {
        u->threads = REMOTE_THREADS; /* which wait for answers */
    }
    BY_TRY(by__threads_run(u->threads, look_at_some, u, error));
    BY_TRY(hash_files(hash, u, count, error));
    return u->remote == NULL ? BY_OK : fetch_ahead(u, error);
}

by_status by__image_pictures_use(by_array_set **out, const by_image_files *files,
                                 const by_image_fit *fit, const size_t *kept, size_t count,
                                 int32_t *labels, by_error *error)
{
    char hash[33] = "";
    used_pictures *u = NULL;
    int64_t channels = files->channels == 0 ? 3 : files->channels;
    by_status status = by__alloc((void **)&u, 1, sizeof *u, "pictures", error);
    if (status == BY_OK) {
        u->fit = *fit;
        u->channels = channels;
        u->may_skip = !files->skip;
        status = by__alloc((void **)&u->items, count, sizeof *u->items, "pictures", error);
    }
    if (status == BY_OK) {
        status = by__image_pages_open(&u->pages, error);
    }
    if (status == BY_OK) {
        status = add_all(u, files, kept, count, hash, error);
    }
    by_array arrays[2] = {{by__strdup("images"), BY_U8,
                           BY_SHAPE((int64_t)count, channels, fit->height, fit->width), NULL},
                          {by__strdup("labels"), BY_I32, BY_SHAPE((int64_t)count), labels}};
    if (status == BY_OK && (arrays[0].name == NULL || arrays[1].name == NULL)) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: name");
    }
    if (status != BY_OK) {
        free((void *)(uintptr_t)arrays[0].name);
        free((void *)(uintptr_t)arrays[1].name);
        free(labels);
        if (u != NULL) {
            close_pictures(u);
        }
        return status;
    }
    const by__loader_pictures pictures = {
        .context = u, .read = read_picture, .place = place_of, .close = close_pictures};
    return by__loader_array_set_own_pictures(out, files->images[kept[0]], arrays, 2, &pictures,
                                             hash, error);
}
