/* What is learned from the training part of a set of examples, stored with the weights and loaded
 * from there. */
#include "tasks/examples/examples_learned.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/threads.h"
#include "data/loader/array_set.h"

#define IMAGES_FILE   "preprocessor_config.json"
#define TABLE_FILE    "encoding.json"
#define MODEL_FILE    "config.json"
#define LEARNED_LIMIT ((size_t)64 << 20)

const char *by__task_examples_learned_name(const by__task_examples *d)
{
    return d->encoding == NULL ? IMAGES_FILE : TABLE_FILE;
}

static void set_scale(by__task_examples *d, size_t c, uint64_t sum, uint64_t squares, double count)
{
    double mean = (double)sum / count;
    double variance = (double)squares / count - mean * mean;
    d->scales.mean[c] = (float)(mean / 255.0);
    d->scales.deviation[c] = variance > 0.0 ? (float)(sqrt(variance) / 255.0) : 1.0f;
}

/* Pictures of a training part that are measured, in threads that add whole numbers. */
typedef struct picture_sums {
    const by__task_examples *d;
    const by__loader_pictures *pictures;
    size_t channels;
    size_t plane;
    uint64_t count;
    size_t threads;
    uint64_t *sums; /* [threads][channels][2] */
} picture_sums;

static by_status measure_some(void *context, size_t thread, by_error *error)
{
    const picture_sums *m = context;
    const by_part *part = &m->d->train_part;
    uint8_t *pixels;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&pixels, m->channels, m->plane, "an image", error));
    for (uint64_t i = thread; i < m->count && status == BY_OK; i += m->threads) {
        uint64_t row = by_part_example(part, part->count / m->count * i +
                                                 part->count % m->count * i / m->count);
        status = m->pictures->read(m->pictures->context, row, NULL, NULL, pixels, error);
        for (size_t k = 0; k < m->channels * m->plane && status == BY_OK; k++) {
            uint64_t *sums = m->sums + 2 * (thread * m->channels + k / m->plane);
            sums[0] += pixels[k];
            sums[1] += (uint64_t)pixels[k] * pixels[k];
        }
    }
    free(pixels);
    return status;
}

/* The same of pictures that are decoded when they are used: of so many at most, evenly spaced. */
static by_status measure_pictures(by__task_examples *d, size_t channels, size_t plane,
                                  by_error *error)
{
    enum { MEASURED = 2048 };
    picture_sums m = {.d = d,
                      .pictures = by__loader_array_set_pictures(d->train),
                      .channels = channels,
                      .plane = plane,
                      .count = d->train_part.count < MEASURED ? d->train_part.count : MEASURED,
                      .threads = (size_t)by__thread_count(0)};
    BY_TRY(by__loader_pixel_scales_allocate(&d->scales, channels, error));
    BY_TRY(by__alloc((void **)&m.sums, m.threads * channels * 2, sizeof *m.sums, "sums", error));
    by_status status = by__threads_run(m.threads, measure_some, &m, error);
    for (size_t c = 0; c < channels && status == BY_OK; c++) {
        uint64_t sum = 0;
        uint64_t squares = 0;
        for (size_t t = 0; t < m.threads; t++) {
            sum += m.sums[2 * (t * channels + c)];
            squares += m.sums[2 * (t * channels + c) + 1];
        }
        set_scale(d, c, sum, squares, (double)m.count * (double)plane);
    }
    free(m.sums);
    return status;
}

/* Mean and standard deviation of pixel / 255 in each channel, from exact sums. */
static by_status measure_images(by__task_examples *d, by_error *error)
{
    const by_array *images = by_array_set_find(d->train, "images");
    size_t channels = (size_t)images->shape.dim[1];
    size_t plane = (size_t)(images->shape.dim[2] * images->shape.dim[3]);
    double count = (double)d->train_part.count * (double)plane;
    if (images->data == NULL) {
        return measure_pictures(d, channels, plane, error);
    }
    BY_TRY(by__loader_pixel_scales_allocate(&d->scales, channels, error));
    for (size_t c = 0; c < channels; c++) {
        uint64_t sum = 0;
        uint64_t squares = 0;
        for (uint64_t i = 0; i < d->train_part.count; i++) {
            uint64_t row = by_part_example(&d->train_part, i);
            const uint8_t *pixel =
                (const uint8_t *)images->data + ((size_t)row * channels + c) * plane;
            for (size_t p = 0; p < plane; p++) {
                sum += pixel[p];
                squares += (uint64_t)pixel[p] * pixel[p];
            }
        }
        set_scale(d, c, sum, squares, count);
    }
    return BY_OK;
}

static void add_scales(by_string *text, const char *name, const float *scales, size_t count)
{
    by_string_format(text, "  \"%s\": [", name);
    for (size_t i = 0; i < count; i++) {
        by_string_format(text, "%s%.9g", i == 0 ? "" : ", ", (double)scales[i]);
    }
    by__string_append(text, "],\n");
}

/* In transformers' format: ViT's processor stretches, CLIP's crops. */
static void add_fit(by_string *text, const by_image_fit *fit)
{
    bool crops = fit->resize == BY_RESIZE_CROP;
    by_string_format(text, "{\n  \"image_processor_type\": \"%s\",\n",
                     crops ? "CLIPImageProcessor" : "ViTImageProcessor");
    if (fit->resize == BY_RESIZE_NONE) {
        by__string_append(text, "  \"do_resize\": false,\n");
        return;
    }
    by_string_format(text, "  \"do_resize\": true,\n  \"resample\": %d,\n",
                     fit->resample == BY_RESAMPLE_BICUBIC ? 3 : 2);
    by__string_append(text, crops ? "  \"do_center_crop\": true,\n" : "");
}

static by_status print_images(by__task_examples *d, by_error *error)
{
    by_string text = {0};
    const by_shape *shape = &by_array_set_find(d->train, "images")->shape;
    add_fit(&text, &d->fit);
    by__string_append(&text, "  \"do_rescale\": true,\n"
                             "  \"rescale_factor\": 0.00392156862745098,\n"
                             "  \"do_normalize\": true,\n");
    add_scales(&text, "image_mean", d->scales.mean, (size_t)shape->dim[1]);
    add_scales(&text, "image_std", d->scales.deviation, (size_t)shape->dim[1]);
    if (d->fit.resize == BY_RESIZE_CROP) {
        int64_t edge = shape->dim[2] > shape->dim[3] ? shape->dim[2] : shape->dim[3];
        by_string_format(&text, "  \"size\": {\"shortest_edge\": %lld},\n  \"crop_size\"",
                         (long long)edge);
    } else {
        by__string_append(&text, "  \"size\"");
    }
    by_string_format(&text, ": {\"height\": %lld, \"width\": %lld}\n}\n", (long long)shape->dim[2],
                     (long long)shape->dim[3]);
    return by__string_release(&text, &d->learned, error);
}

by_status by__task_examples_learn(by__task_examples *d, by_error *error)
{
    if (d->encoding != NULL) {
        BY_TRY(by_encoding_print(d->encoding, &d->learned, error));
    } else {
        BY_TRY(measure_images(d, error));
        BY_TRY(print_images(d, error));
    }
    by__hash128_hex(d->learned_hash, d->learned, strlen(d->learned));
    return BY_OK;
}

/* ---- reading ---- */

/* Images are of the model's size: a file that does not resize them need not know it. */
static by_status fit_model(by_image_fit *fit, const by_model_config *m, const char *path,
                           by_error *error)
{
    if (m->image_height < 1 || m->image_width < 1) {
        return BY_OK;
    }
    if (fit->resize == BY_RESIZE_NONE) {
        fit->height = m->image_height;
        fit->width = m->image_width;
    }
    return fit->height == m->image_height && fit->width == m->image_width
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s: its \"size\" and what is cropped of it are %lld x %lld pixels, "
                              "but the model reads %lld x %lld: set them to that, or if the model "
                              "reads any size, set \"image_size\" of its " MODEL_FILE " to theirs",
                              path, (long long)fit->width, (long long)fit->height,
                              (long long)m->image_width, (long long)m->image_height);
}

static by_status read_file(by__task_examples *d, const by_config *config, const char *path,
                           bool images, by_error *error)
{
    size_t length;
    BY_TRY(by__file_read(&d->learned, &length, path, LEARNED_LIMIT, error));
    by__hash128_hex(d->learned_hash, d->learned, length);
    if (!images) {
        return by_encoding_parse(&d->encoding, path, d->learned, length, error);
    }
    BY_TRY(by__format_image_fit_parse(&d->fit, path, d->learned, length, error));
    BY_TRY(fit_model(&d->fit, &config->model, path, error));
    return by__loader_pixel_scales_parse(&d->scales, path, d->learned, length, d->channels, error);
}

/* Takes the names of "id2label": {"0": "cat", "1": "dog"}; not those that stand for a class without
 * a name, LABEL_0 and so on. */
static by_status read_label_names(by_string_list *out, const json_t *names, by_error *error)
{
    size_t count = json_object_size(names);
    bool is_named = false;
    char id[48] = "";
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(id, sizeof id, "LABEL_%zu", i);
        const char *text = json_string_value(json_object_get(names, id + strlen("LABEL_")));
        if (text == NULL) {
            return BY_OK;
        }
        is_named = is_named || strcmp(text, id) != 0;
    }
    if (!is_named) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&out->items, count, sizeof *out->items, "labels", error));
    for (out->count = 0; out->count < count; out->count++) {
        (void)snprintf(id, sizeof id, "%zu", out->count);
        out->items[out->count] = by__strdup(json_string_value(json_object_get(names, id)));
        if (out->items[out->count] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: labels");
        }
    }
    return BY_OK;
}

/* Weights without their run's config have the names of their classes in config.json. */
static by_status read_names(by__task_examples *d, const char *directory, by_error *error)
{
    char *text = NULL;
    size_t length = 0;
    by_status status = BY_OK;
    char *path = by__path_join(directory, MODEL_FILE);
    if (path != NULL && by__file_read(&text, &length, path, LEARNED_LIMIT, NULL) == BY_OK) {
        json_t *root = by__json_read(text, 0, NULL);
        status = read_label_names(&d->described, json_object_get(root, "id2label"), error);
        json_decref(root);
    }
    free(text);
    free(path);
    return status;
}

by_status by__task_examples_read_learned(by__task_examples *d, const by_task_request *request,
                                         bool images, by_error *error)
{
    const char *directory = request->learned;
    char *paths[2] = {by__path_join(directory, TABLE_FILE), by__path_join(directory, IMAGES_FILE)};
    by_status status = BY_OK;
    if (paths[0] == NULL || paths[1] == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: a path");
    } else {
        int which = by__path_exists(paths[images ? 1 : 0]) ? images : !images;
        status = by__path_exists(paths[which])
                     ? read_file(d, request->config, paths[which], which == 1, error)
                     : by_error_set(error, BY_EFORMAT,
                                    "%s: there is no %s, which says how to scale %s: copy it from "
                                    "where the weights come from, or train on them (model.from)",
                                    directory, images ? IMAGES_FILE : TABLE_FILE,
                                    images ? "pixels" : "the cells of rows");
    }
    if (status == BY_OK && d->encoding == NULL) {
        status = read_names(d, directory, error);
    }
    free(paths[0]);
    free(paths[1]);
    return status;
}

by_encoding *by__task_examples_read_encoding(const char *directory)
{
    by_encoding *encoding = NULL;
    char *text = NULL;
    size_t length = 0;
    char *path = by__path_join(directory, TABLE_FILE);
    if (path != NULL && by__file_read(&text, &length, path, LEARNED_LIMIT, NULL) == BY_OK) {
        (void)by_encoding_parse(&encoding, path, text, length, NULL);
    }
    free(text);
    free(path);
    return encoding;
}

by_status by__task_examples_name_labels(by__task_examples *d, by_error *error)
{
    const by_string_list found = {d->folder.classes, d->folder.class_count};
    const by_string_list *names = found.count > 0                  ? &found
                                  : d->keys->label_names.count > 0 ? &d->keys->label_names
                                                                   : &d->described;
    size_t count = d->encoding == NULL ? names->count : by_encoding_classes(d->encoding);
    if (count == 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&d->labels, count, sizeof *d->labels, "labels", error));
    for (size_t i = 0; i < count; i++) {
        d->labels[i] = d->encoding == NULL ? names->items[i] : by_encoding_class(d->encoding, i);
    }
    d->label_count = count;
    return BY_OK;
}
