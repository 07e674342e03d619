/* Sets of images and labels from the usual file formats. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/host/file_kind.h"
#include "base/paths.h"
#include "data/image/image_folder.h"
#include "data/image/label_maps.h"
#include "data/image/picture_set.h"
#include "data/loader/array_set.h"
#include "formats/array_file.h"
#include "formats/cifar.h"
#include "formats/image/image_file.h"
#include "formats/npz.h"
#include "remote/remote.h"

/* A set under construction, extended file by file. */
typedef struct images {
    uint8_t *pixels;
    int32_t *labels;
    uint8_t *maps;           /* [N, H, W]; NULL: none */
    by_shape shape;          /* of all images: [N, C, H, W] */
    const by_image_fit *fit; /* NULL: images keep their size */
    int64_t channels;        /* of a JPEG or PNG */
    by__remote *remote;      /* reads paths that are URLs */
    bool skip;
    by__loader_damage damage; /* records that were skipped */
} images;

/* Reads a file of arrays, or an array of an archive; a remote one is fetched first. */
static by_status read_array_file(uint8_t **data, size_t *size, images *s, const char *path,
                                 by_error *error)
{
    const char *local;
    size_t archive = by__format_npz_split(path);
    char *file = by__strndup(path, archive > 0 ? archive : strlen(path));
    if (file == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = by__remote_path(&local, &s->remote, NULL, file, error);
    if (status == BY_OK && archive > 0) {
        status = by__format_npz_file_read(data, size, local, path + archive + 1,
                                          BY__ARRAY_FILE_LIMIT, error);
    } else if (status == BY_OK) {
        status = by__format_array_file_read(data, size, local, BY__ARRAY_FILE_LIMIT, error);
    }
    free(file);
    return status;
}

static by_status grow(images *s, const by_shape *more, bool labels, const char *path,
                      by_error *error)
{
    by_shape all = *more;
    size_t bytes;
    char have[128];
    char want[128];
    if (s->shape.rank > 0) {
        all.dim[0] = s->shape.dim[0];
        if (!by_shape_equal(&all, &s->shape)) {
            return by_error_set(error, BY_EFORMAT, "%s: images %s do not go with those before, %s",
                                path, by_shape_print(more, have), by_shape_print(&s->shape, want));
        }
        all.dim[0] += more->dim[0]; /* extents of files in memory: the sum fits */
    }
    BY_TRY(by__loader_array_bytes(&bytes, BY_U8, &all, path, error));
    uint8_t *pixels = realloc(s->pixels, bytes);
    if (pixels == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu bytes of %s", bytes, path);
    }
    s->pixels = pixels;
    if (labels) {
        int32_t *grown = realloc(s->labels, (size_t)all.dim[0] * sizeof *grown);
        if (grown == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: labels of %s", path);
        }
        s->labels = grown;
    }
    s->shape = all;
    return BY_OK;
}

/* ---- IDX and npy ---- */

/* The shape of a file's images in the set. *last: channels are the last axis. */
static by_status image_shape(by_shape *out, bool *last, const by__format_array_view *view,
                             const char *path, by_error *error)
{
    const int64_t *d = view->shape.dim;
    bool is_small = d[3] == 1 || d[3] == 3 || d[3] == 4;
    *last = view->shape.rank == 4 && is_small && !(d[1] == 1 || d[1] == 3 || d[1] == 4);
    if (view->shape.rank == 3) {
        *out = BY_SHAPE(d[0], 1, d[1], d[2]);
    } else if (view->shape.rank == 4) {
        *out = *last ? BY_SHAPE(d[0], d[3], d[1], d[2]) : view->shape;
    }
    if ((view->shape.rank != 3 && view->shape.rank != 4) || by_shape_count(&view->shape) == 0) {
        char shape[128];
        return by_error_set(error, BY_EFORMAT,
                            "%s: images are [N, H, W] or [N, C, H, W] with extents of at least 1, "
                            "not %s",
                            path, by_shape_print(&view->shape, shape));
    }
    return BY_OK;
}

static by_status to_channels_first(uint8_t *pixels, const by_shape *shape, const char *path,
                                   by_error *error)
{
    size_t channels = (size_t)shape->dim[1];
    size_t plane = (size_t)(shape->dim[2] * shape->dim[3]);
    uint8_t *image;
    BY_TRY(by__alloc((void **)&image, channels * plane, 1, path, error));
    for (int64_t n = 0; n < shape->dim[0]; n++) {
        uint8_t *at = pixels + (size_t)n * channels * plane;
        memcpy(image, at, channels * plane);
        for (size_t i = 0; i < plane; i++) {
            for (size_t c = 0; c < channels; c++) {
                at[c * plane + i] = image[i * channels + c];
            }
        }
    }
    free(image);
    return BY_OK;
}

static by_status add_arrays(images *s, const char *path, const uint8_t *data, size_t size,
                            bool labels, by_error *error)
{
    by__format_array_view view;
    by_shape shape;
    bool last = false;
    size_t before = s->shape.rank == 0 ? 0 : (size_t)by_shape_count(&s->shape);
    BY_TRY(by__format_array_file_parse(&view, path, data, size, error));
    BY_TRY(image_shape(&shape, &last, &view, path, error));
    BY_TRY(grow(s, &shape, labels, path, error));
    BY_TRY(by__format_array_convert(s->pixels + before, BY_U8, &view, path, error));
    return last ? to_channels_first(s->pixels + before, &shape, path, error) : BY_OK;
}

/* ---- pictures ---- */

static by_status add_picture(images *s, const char *path, const uint8_t *data, size_t size,
                             bool labels, by_error *error)
{
    static const by_image_fit own = {.resize = BY_RESIZE_NONE};
    uint8_t *pixels;
    int64_t height;
    int64_t width;
    by_error why;
    size_t before = s->shape.rank == 0 ? 0 : (size_t)by_shape_count(&s->shape);
    by_status status = by__format_image_decode(&pixels, &height, &width, s->channels,
                                               s->fit == NULL ? &own : s->fit, data, size, &why);
    if (status != BY_OK) {
        return by_error_set(error, status, "%s: %s", path, why.message);
    }
    by_shape shape = BY_SHAPE(1, s->channels, height, width);
    status = grow(s, &shape, labels, path, error);
    if (status == BY_OK) {
        memcpy(s->pixels + before, pixels, (size_t)by_shape_count(&shape));
    }
    free(pixels);
    return status;
}

/* Says what a file is that is neither a picture nor an array. */
static by_status refuse_file(const char *path, const uint8_t *data, size_t size, by_error *error)
{
    const char *kind = size == 0 ? "empty" : by__file_kind(data, size);
    if (kind != NULL) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s is %s: images are JPEG, PNG or WebP files, or arrays as npy or IDX files", path,
            kind);
    }
    return by__image_is_picture_name(path)
               ? by_error_set(error, BY_EFORMAT,
                              "%s does not begin as a JPEG, PNG or WebP does: it is damaged, or no "
                              "picture",
                              path)
               : by_error_set(
                     error, BY_EFORMAT,
                     "%s is none of the files that images are read from: JPEG, PNG, WebP, or "
                     "arrays as npy or IDX",
                     path);
}

static by_status add_images(images *s, const char *path, bool labels, bool *decoded,
                            by_error *error)
{
    uint8_t *data;
    size_t size;
    BY_TRY(read_array_file(&data, &size, s, path, error));
    *decoded = by__format_image_is_file(data, size);
    by_status status = *decoded ? add_picture(s, path, data, size, labels, error)
                       : by__format_array_is_file(data, size) || by__format_npz_is(data, size)
                           ? add_arrays(s, path, data, size, labels, error)
                           : refuse_file(path, data, size, error);
    free(data);
    return status;
}

/* Adds labels for the newest `count` images. */
static by_status add_labels(images *s, const char *path, int64_t count, by_error *error)
{
    uint8_t *data;
    size_t size;
    by__format_array_view view;
    BY_TRY(read_array_file(&data, &size, s, path, error));
    by_status status = by__format_array_file_parse(&view, path, data, size, error);
    /* One label an image, also as a column. */
    if (status == BY_OK && (view.shape.rank < 1 || view.shape.dim[0] != count ||
                            by_shape_count(&view.shape) != count)) {
        char shape[128];
        status = by_error_set(error, BY_EFORMAT, "%s: labels %s, but there are %lld images", path,
                              by_shape_print(&view.shape, shape), (long long)count);
    }
    if (status == BY_OK) {
        status = by__format_array_convert(s->labels + s->shape.dim[0] - count, BY_I32, &view, path,
                                          error);
    }
    free(data);
    return status;
}

/* Adds the classes of the pixels of the newest `count` images. */
static by_status add_maps(images *s, const by_image_files *files, const char *path, int64_t count,
                          by_error *error)
{
    uint8_t *data;
    size_t size;
    int32_t *classes = NULL;
    by__format_array_view view;
    size_t plane = (size_t)(s->shape.dim[2] * s->shape.dim[3]);
    size_t before = (size_t)(s->shape.dim[0] - count) * plane;
    size_t more = (size_t)count * plane;
    const by_shape want = BY_SHAPE(count, s->shape.dim[2], s->shape.dim[3]);
    BY_TRY(read_array_file(&data, &size, s, path, error));
    by_status status = by__format_array_is_file(data, size)
                           ? by__format_array_file_parse(&view, path, data, size, error)
                           : by_error_set(error, BY_EFORMAT,
                                          "%s: the classes of the pixels of an array of images are "
                                          "an array, npy or IDX",
                                          path);
    if (status == BY_OK && !by_shape_equal(&view.shape, &want)) {
        char have[128];
        char wanted[128];
        status =
            by_error_set(error, BY_EFORMAT, "%s: classes of pixels %s, but the images need %s",
                         path, by_shape_print(&view.shape, have), by_shape_print(&want, wanted));
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&classes, more, sizeof *classes, path, error);
    }
    if (status == BY_OK) {
        status = by__format_array_convert(classes, BY_I32, &view, path, error);
    }
    free(data);
    uint8_t *grown = status == BY_OK ? realloc(s->maps, before + more) : NULL;
    if (grown != NULL) {
        s->maps = grown;
        status = by__image_maps_convert(grown + before, classes, more, files->ignore, path, error);
    } else if (status == BY_OK) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: %s", path);
    }
    free(classes);
    return status;
}

/* Resizes the classes of pixels as fit_all resizes the images. */
static by_status fit_maps(images *s, const char *path, by_error *error)
{
    uint8_t *fitted;
    size_t from = (size_t)(s->shape.dim[2] * s->shape.dim[3]);
    size_t to = (size_t)(s->fit->height * s->fit->width);
    BY_TRY(by__alloc((void **)&fitted, (size_t)s->shape.dim[0], to, path, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < (size_t)s->shape.dim[0] && status == BY_OK; i++) {
        status = by__format_image_fit_classes(fitted + i * to, s->fit, s->maps + i * from,
                                              s->shape.dim[2], s->shape.dim[3], error);
    }
    free(s->maps);
    s->maps = fitted;
    return status;
}

/* Resizes images of arrays, which have one size, to that of `fit`. */
static by_status fit_all(images *s, const char *path, by_error *error)
{
    by_shape shape = s->shape;
    uint8_t *fitted;
    size_t bytes;
    by_error why;
    if (s->fit == NULL || s->fit->resize == BY_RESIZE_NONE) {
        by_status same = s->fit == NULL ? BY_OK
                                        : by__format_image_fit_check(s->fit, s->shape.dim[2],
                                                                     s->shape.dim[3], &why);
        return same == BY_OK ? BY_OK : by_error_set(error, same, "%s: %s", path, why.message);
    }
    if (s->maps != NULL) {
        BY_TRY(fit_maps(s, path, error));
    }
    shape.dim[2] = s->fit->height;
    shape.dim[3] = s->fit->width;
    BY_TRY(by__loader_array_bytes(&bytes, BY_U8, &shape, path, error));
    BY_TRY(by__alloc((void **)&fitted, bytes, 1, path, error));
    by_status status = BY_OK;
    for (int64_t i = 0; i < shape.dim[0] && status == BY_OK; i++) {
        status = by__format_image_fit(
            fitted + i * shape.dim[1] * shape.dim[2] * shape.dim[3], s->fit, shape.dim[1],
            s->pixels + i * shape.dim[1] * s->shape.dim[2] * s->shape.dim[3], s->shape.dim[2],
            s->shape.dim[3], &why);
    }
    if (status != BY_OK) {
        free(fitted);
        return by_error_set(error, status, "%s: %s", path, why.message);
    }
    free(s->pixels);
    s->pixels = fitted;
    s->shape = shape;
    return BY_OK;
}

static by_status read_pairs(images *s, const by_image_files *files, by_error *error)
{
    if (files->label_count != 0 && files->label_count != files->image_count) {
        return by_error_set(error, BY_EARG, "%zu label files for %zu image files",
                            files->label_count, files->image_count);
    }
    bool fitted = false;
    for (size_t i = 0; i < files->image_count; i++) {
        int64_t before = s->shape.dim[0];
        bool decoded;
        bool labels = files->label_count > 0 && !files->maps;
        BY_TRY(add_images(s, files->images[i], labels, &decoded, error));
        fitted = i == 0 ? decoded : fitted;
        if (decoded != fitted) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: arrays of images, and a JPEG or PNG each, are not mixed",
                                files->images[i]);
        }
        if (files->label_count > 0 && files->maps) {
            BY_TRY(add_maps(s, files, files->labels[i], s->shape.dim[0] - before, error));
        } else if (files->label_count > 0) {
            BY_TRY(add_labels(s, files->labels[i], s->shape.dim[0] - before, error));
        }
    }
    return fitted ? BY_OK : fit_all(s, files->images[0], error);
}

/* ---- CIFAR ---- */

static by_status add_damage(images *s, const char *path, size_t record, const char *reason,
                            by_error *error)
{
    const by_damage item = {
        .path = path, .place = record, .begin = record, .count = 1, .reason = reason};
    return by__loader_damage_add(&s->damage, &item, error);
}

/* Adds the undamaged records of a file; `before` records precede them. */
static by_status add_records(images *s, const char *path, const uint8_t *data, size_t count,
                             size_t before, int classes, by_error *error)
{
    size_t record = BY__CIFAR_IMAGE + (classes == 100 ? 2 : 1);
    size_t kept = before;
    for (size_t i = 0; i < count; i++) {
        by_status status =
            by__format_cifar_read(s->pixels + kept * BY__CIFAR_IMAGE, s->labels + kept, path,
                                  data + i * record, 1, classes, NULL);
        kept += status == BY_OK;
        BY_TRY(status == BY_OK ? BY_OK
                               : add_damage(s, path, i, "its label is none of the classes", error));
    }
    s->shape.dim[0] = (int64_t)kept;
    return BY_OK;
}

static by_status add_cifar(images *s, const char *path, int classes, by_error *error)
{
    uint8_t *data;
    size_t size;
    size_t count;
    size_t before = (size_t)s->shape.dim[0];
    BY_TRY(read_array_file(&data, &size, s, path, error));
    size_t tail = s->skip ? size % (BY__CIFAR_IMAGE + (classes == 100 ? 2 : 1)) : 0;
    by_status status = by__format_cifar_count(&count, path, size - tail, classes, error);
    if (status == BY_OK) {
        status = grow(s, &BY_SHAPE((int64_t)count, 3, 32, 32), true, path, error);
    }
    if (status == BY_OK && s->skip) {
        status = add_records(s, path, data, count, before, classes, error);
        if (status == BY_OK && tail > 0) {
            status = add_damage(s, path, count, "the file ends within it", error);
        }
    } else if (status == BY_OK) {
        status = by__format_cifar_read(s->pixels + before * BY__CIFAR_IMAGE, s->labels + before,
                                       path, data, count, classes, error);
    }
    free(data);
    return status;
}

static by_status read_cifar(images *s, const by_image_files *files, int classes, by_error *error)
{
    if (files->label_count != 0) {
        return by_error_set(error, BY_EARG,
                            "CIFAR files contain their labels: give no label files");
    }
    for (size_t i = 0; i < files->image_count; i++) {
        BY_TRY(add_cifar(s, files->images[i], classes, error));
    }
    return fit_all(s, files->images[0], error);
}

/* ---- files of one picture each, without label files ---- */

/* One that cannot be opened is an error. */
static by_status begins_as_picture(bool *out, by__remote *remote, const char *path, by_error *error)
{
    uint8_t head[16];
    int file;
    by__remote_file *far;
    if (by__format_npz_split(path) > 0) {
        *out = false;
        return BY_OK;
    }
    if (by_remote_is(path)) {
        BY_TRY(by__remote_find(&far, remote, path, error));
        size_t size =
            by__remote_size(far) < sizeof head ? (size_t)by__remote_size(far) : sizeof head;
        BY_TRY(by__remote_read(far, 0, head, size, error));
        *out = by__format_image_is_file(head, size);
        return BY_OK;
    }
    BY_TRY(by__open_regular(&file, NULL, path, error));
    ssize_t n = pread(file, head, sizeof head, 0);
    (void)close(file);
    *out = by__format_image_is_file(head, n < 0 ? 0 : (size_t)n);
    return BY_OK;
}

/* Whether the files are pictures: the first one is, or where some may be left out any. */
static by_status has_picture(bool *out, const by_image_files *files, by_error *error)
{
    size_t count = files->skip ? files->image_count : 1;
    *out = false;
    for (size_t i = 0; i < count && !*out; i++) {
        BY_TRY(begins_as_picture(out, files->remote, files->images[i], error));
    }
    return BY_OK;
}

/* Pictures with the classes of their pixels: those that are left out take theirs along. */
static by_status read_mapped(images *s, const by_image_files *files, by_error *error)
{
    by__image_pictures all;
    by_image_files numbered = *files;
    int32_t *numbers;
    if (files->label_count != files->image_count) {
        return by_error_set(error, BY_EARG, "%zu files of classes for %zu pictures",
                            files->label_count, files->image_count);
    }
    BY_TRY(by__alloc((void **)&numbers, files->image_count, sizeof *numbers, "pictures", error));
    for (size_t i = 0; i < files->image_count; i++) {
        numbers[i] = (int32_t)i;
    }
    numbered.classes = numbers;
    by_status status = by__image_pictures_read(&all, &numbered, &s->damage, error);
    free(numbers);
    BY_TRY(status);
    s->pixels = all.pixels;
    s->shape = all.shape;
    status = by__image_maps_read(&s->maps, files, all.labels, &all.shape, error);
    free(all.labels);
    return status;
}

static by_status read_pictures(images *s, const by_image_files *files, by_error *error)
{
    by__image_pictures all;
    if (files->maps && files->label_count > 0) {
        return read_mapped(s, files, error);
    }
    BY_TRY(by__image_pictures_read(&all, files, &s->damage, error));
    s->pixels = all.pixels;
    s->labels = all.labels;
    s->shape = all.shape;
    return BY_OK;
}

/* The first file that has not been left out names the set. */
static const char *first_kept(const images *s, const by_image_files *files)
{
    size_t i = 0;
    while (i < s->damage.count && i + 1 < files->image_count &&
           strcmp(s->damage.items[i].path, files->images[i]) == 0) {
        i++;
    }
    return files->images[i];
}

/* Makes the set of what was read, and takes it. */
static by_status make_set(by_array_set **out, images *s, const char *name, by_error *error)
{
    float *weights = NULL;
    by_status status = BY_OK;
    size_t count = 1;
    size_t examples = (size_t)s->shape.dim[0];
    by_array arrays[3] = {{by__strdup("images"), BY_U8, s->shape, s->pixels}};
    if (s->maps != NULL) {
        size_t plane = (size_t)(s->shape.dim[2] * s->shape.dim[3]);
        status = by__alloc((void **)&weights, examples, sizeof *weights, "weights", error);
        if (status == BY_OK) {
            by__image_maps_count(weights, s->maps, examples, plane);
        }
        by_shape shape = BY_SHAPE(s->shape.dim[0], s->shape.dim[2], s->shape.dim[3]);
        arrays[count++] = (by_array){by__strdup("labels"), BY_U8, shape, s->maps};
        arrays[count++] =
            (by_array){by__strdup("weight"), BY_F32, BY_SHAPE(s->shape.dim[0]), weights};
    } else if (s->labels != NULL) {
        arrays[count++] =
            (by_array){by__strdup("labels"), BY_I32, BY_SHAPE(s->shape.dim[0]), s->labels};
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status =
            arrays[i].name != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: name");
    }
    if (status == BY_OK) {
        return by__loader_array_set_own(out, name, arrays, count, error);
    }
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)arrays[i].name);
        free((void *)(uintptr_t)arrays[i].data);
    }
    return status;
}

by_status by_image_set_open(by_array_set **out, const by_image_files *files, by_error *error)
{
    const char *format = files->format == NULL ? "auto" : files->format;
    images s = {.fit = files->fit,
                .channels = files->channels == 0 ? 3 : files->channels,
                .remote = files->remote,
                .skip = files->skip};
    by_status status;
    if (files->image_count == 0) {
        return by_error_set(error, BY_EARG, "no image files were given");
    }
    for (size_t i = 0; i < files->image_count && files->remote == NULL; i++) {
        if (by_remote_is(files->images[i])) {
            return by_error_set(error, BY_EARG, "%s: images that are URLs are opened by a task",
                                files->images[i]);
        }
    }
    bool pictures = strcmp(format, "auto") == 0 && (files->label_count == 0 || files->maps);
    if (pictures && files->on_use && files->classes != NULL) {
        if (files->fit == NULL || files->fit->resize == BY_RESIZE_NONE) {
            return by_error_set(error, BY_EARG,
                                "%s: pictures that are decoded when they are used need a size to "
                                "which they are resized: set data.resize",
                                files->images[0]);
        }
        status = by__image_pictures_later(out, files, &s.damage, error);
        if (status == BY_OK) {
            by__loader_array_set_own_damage(*out, &s.damage);
        }
        by__loader_damage_free(&s.damage);
        return status;
    }
    if (pictures && files->classes == NULL && files->ranges == NULL) {
        BY_TRY(has_picture(&pictures, files, error));
    }
    if (pictures) {
        status = read_pictures(&s, files, error);
    } else if (strcmp(format, "auto") == 0) {
        status = read_pairs(&s, files, error);
    } else if (strcmp(format, "cifar10") == 0) {
        status = read_cifar(&s, files, 10, error);
    } else if (strcmp(format, "cifar100") == 0) {
        status = read_cifar(&s, files, 100, error);
    } else {
        status = by_error_set(error, BY_EARG,
                              "'%s' is not an image format: auto, cifar10, cifar100", format);
    }
    if (status == BY_OK) {
        status = make_set(out, &s, first_kept(&s, files), error);
    } else {
        free(s.pixels);
        free(s.labels);
        free(s.maps);
    }
    if (status == BY_OK) {
        by__loader_array_set_own_damage(*out, &s.damage);
    }
    by__loader_damage_free(&s.damage);
    return status;
}
