#include "data/image/label_maps.h"

#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "data/image/coco_maps.h"
#include "formats/array_file.h"
#include "formats/image/image_file.h"

by_status by__image_maps_convert(uint8_t *out, const int32_t *classes, size_t count, int64_t ignore,
                                 const char *path, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        int32_t c = classes[i];
        if (c < 0 || c == ignore) {
            out[i] = 0;
        } else if (c < BY__LABEL_CLASSES) {
            out[i] = (uint8_t)(c + 1);
        } else {
            return by_error_set(error, BY_EFORMAT,
                                "%s: a pixel has class %d; classes are 0 to %d, and pixels without "
                                "one have the number of task.ignore",
                                path, (int)c, BY__LABEL_CLASSES - 1);
        }
    }
    return BY_OK;
}

void by__image_maps_count(float *out, const uint8_t *maps, size_t count, size_t plane)
{
    for (size_t i = 0; i < count; i++) {
        size_t some = 0;
        for (size_t p = 0; p < plane; p++) {
            some += maps[i * plane + p] != 0;
        }
        out[i] = (float)some;
    }
}

/* ---- of pictures ---- */

typedef struct map_reader {
    const by_image_files *files;
    const int32_t *kept;
    by_image_fit fit; /* with the size of the images */
    size_t count;
    size_t threads;
    uint8_t *maps;
    by__image_coco_files coco;
} map_reader;

static by_status refuse_size(const char *map, const char *picture, int64_t height, int64_t width,
                             int64_t high, int64_t wide, by_error *error)
{
    return by_error_set(
        error, BY_EFORMAT, "%s has %lld x %lld pixels, and its picture %s %lld x %lld", map,
        (long long)width, (long long)height, picture, (long long)wide, (long long)high);
}

/* A map that is fitted must be as large as its picture: the two would not match. */
static by_status check_size(const char *map, const char *picture, int64_t height, int64_t width,
                            by_error *error)
{
    uint8_t *data;
    size_t size;
    int64_t high = 0;
    int64_t wide = 0;
    BY_TRY(by__format_array_file_read(&data, &size, picture, BY__ARRAY_FILE_LIMIT, error));
    bool known = by__format_image_size(&high, &wide, data, size);
    free(data);
    return !known || (high == height && wide == width)
               ? BY_OK
               : refuse_size(map, picture, height, width, high, wide, error);
}

/* The classes of a label as they are stored, freed with free(). */
static by_status read_stored(uint8_t **stored, int64_t *height, int64_t *width, const map_reader *r,
                             const char *path, by_error *error)
{
    uint8_t *data;
    size_t size;
    by_error why = {0};
    if (by__image_coco_is(path)) {
        return by__image_coco_draw(stored, height, width, &r->coco, path, error);
    }
    BY_TRY(by__format_array_file_read(&data, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by__format_image_decode_classes(stored, height, width, data, size, &why);
    free(data);
    return status == BY_OK ? BY_OK : by_error_set(error, status, "%s: %s", path, why.message);
}

static by_status read_map(const map_reader *r, size_t i, by_error *error)
{
    uint8_t *stored = NULL;
    int32_t *classes = NULL;
    int64_t height = 0;
    int64_t width = 0;
    size_t plane = (size_t)(r->fit.height * r->fit.width);
    uint8_t *out = r->maps + i * plane;
    const char *path = r->files->labels[r->kept[i]];
    BY_TRY(read_stored(&stored, &height, &width, r, path, error));
    const char *picture = r->files->images[r->kept[i]];
    bool fits = height == r->fit.height && width == r->fit.width;
    by_status status =
        r->fit.resize != BY_RESIZE_NONE ? check_size(path, picture, height, width, error)
        : fits                          ? BY_OK
               : refuse_size(path, picture, height, width, r->fit.height, r->fit.width, error);
    if (status == BY_OK) {
        status = by__format_image_fit_classes(out, &r->fit, stored, height, width, error);
    }
    free(stored);
    BY_TRY(status);
    BY_TRY(by__alloc((void **)&classes, plane, sizeof *classes, "classes", error));
    for (size_t p = 0; p < plane; p++) {
        classes[p] = out[p];
    }
    status = by__image_maps_convert(out, classes, plane, r->files->ignore, path, error);
    free(classes);
    return status;
}

static by_status work(void *context, size_t thread, by_error *error)
{
    const map_reader *r = context;
    for (size_t i = thread; i < r->count; i += r->threads) {
        BY_TRY(read_map(r, i, error));
    }
    return BY_OK;
}

by_status by__image_maps_read(uint8_t **out, const by_image_files *files, const int32_t *kept,
                              const by_shape *shape, by_error *error)
{
    map_reader r = {.files = files,
                    .kept = kept,
                    .count = (size_t)shape->dim[0],
                    .threads = (size_t)by__thread_count(0)};
    if (files->fit != NULL) {
        r.fit = *files->fit;
    }
    r.fit.height = shape->dim[2];
    r.fit.width = shape->dim[3];
    BY_TRY(by__alloc((void **)&r.maps, r.count, (size_t)(shape->dim[2] * shape->dim[3]), "classes",
                     error));
    by_status status = BY_OK;
    for (size_t i = 0; i < r.count && status == BY_OK; i++) {
        const char *label = files->labels[kept[i]];
        status = by__image_coco_is(label) ? by__image_coco_open(&r.coco, label, error) : BY_OK;
    }
    if (status == BY_OK) {
        status = by__threads_run(r.threads, work, &r, error);
    }
    by__image_coco_close(&r.coco);
    if (status != BY_OK) {
        free(r.maps);
        return status;
    }
    *out = r.maps;
    return BY_OK;
}
