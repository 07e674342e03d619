/* Examples in memory, for prediction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/image/image_file.h"
#include "tasks/examples/examples_open.h"

/* Classes of pixels, all unknown. */
static by_status add_maps(by_array_set **set, by_error *error)
{
    const by_array *images = by_array_set_find(*set, "images");
    uint8_t *none;
    by_array_set *with;
    const by_shape shape =
        BY_SHAPE(images->shape.dim[0], images->shape.dim[2], images->shape.dim[3]);
    BY_TRY(by__alloc((void **)&none, (size_t)by_shape_count(&shape), 1, "targets", error));
    const by_array arrays[2] = {*images, {"labels", BY_U8, shape, none}};
    by_status status = by_array_set_open(&with, by_array_set_name(*set), arrays, 2, error);
    free(none);
    BY_TRY(status);
    by_array_set_close(set);
    *set = with;
    return BY_OK;
}

by_status by__task_examples_replace_targets(by_array_set **set, size_t numbers, bool maps,
                                            by_error *error)
{
    if (maps) {
        return add_maps(set, error);
    }

    size_t count;
    const by_array *have = by_array_set_arrays(*set, &count);
    by_array arrays[4];
    size_t kept = 0;
    int32_t *made;
    uint64_t examples = by_array_set_examples(*set);
    const char *target = numbers == 0 ? "labels" : "targets";
    size_t row = (numbers == 0 ? 1 : numbers) * sizeof *made;
    const by_array *tags = by_array_set_find(*set, "labels");
    if (numbers == 0 && tags != NULL && tags->shape.rank > 1) {
        return BY_OK; /* which tell the words apart */
    }
    BY_TRY(by__alloc((void **)&made, (size_t)examples, row, "targets", error));
    memset(made, numbers == 0 ? 0xff : 0, (size_t)examples * row);
    for (size_t i = 0; i < count && kept < BY_ARRAY_LENGTH(arrays) - 1; i++) {
        if (strcmp(have[i].name, target) != 0) {
            arrays[kept++] = have[i];
        }
    }
    arrays[kept++] = (by_array){.name = target,
                                .dtype = numbers == 0 ? BY_I32 : BY_F32,
                                .shape = BY_SHAPE((int64_t)examples),
                                .data = made};
    if (numbers > 1) {
        arrays[kept - 1].shape = BY_SHAPE((int64_t)examples, (int64_t)numbers);
    }
    by_array_set *with;
    by_status status = by_array_set_open(&with, by_array_set_name(*set), arrays, kept, error);
    free(made);
    if (status == BY_OK) {
        by_array_set_close(set);
        *set = with;
    }
    return status;
}

static const char *target_of(const by_array_set *set)
{
    return by_array_set_find(set, "labels") != NULL ? "labels" : "targets";
}

by_status by__task_examples_source_of(by_source **out, const by__task_examples *d,
                                      const by_array_set *set, const by_part *part, bool training,
                                      by_error *error)
{
    const by_array_source_options options = {
        .shuffle = training,
        .shuffle_files = (size_t)d->keys->shuffle_files,
        .target = target_of(set),
        .balance = training && strcmp(d->keys->balance, "classes") == 0,
        .draws = training ? d->draws : NULL,
        .shift = (int)d->keys->shift,
        .flip = d->keys->flip != 0,
        .transforms = (const char *const *)d->keys->transforms.items,
        .transform_count = d->keys->transforms.count,
        .mean = d->scales.mean,
        .deviation = d->scales.deviation};
    return by_array_source_open(out, set, part, &options, error);
}

by_status by__task_examples_plain(by_source **out, by_task_data *data, by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    const by_array_source_options options = {.shuffle = true,
                                             .shuffle_files = (size_t)d->keys->shuffle_files,
                                             .balance = strcmp(d->keys->balance, "classes") == 0,
                                             .draws = d->draws,
                                             .numbers = true,
                                             .target = target_of(d->train)};
    return by_array_source_open(out, d->train, &d->train_part, &options, error);
}

void by__task_examples_pixels(const by_task_data *data, const by_array *images, size_t example,
                              uint8_t *out)
{
    const by__task_examples *d = (const by__task_examples *)data;
    size_t channels = (size_t)images->shape.dim[1];
    size_t plane = (size_t)(images->shape.dim[2] * images->shape.dim[3]);
    size_t begin = example * channels * plane;
    for (size_t i = 0; i < channels * plane; i++) {
        if (images->dtype == BY_U8) {
            out[i] = ((const uint8_t *)images->data)[begin + i];
            continue;
        }
        size_t c = d->scales.channels == channels ? i / plane : 0;
        float value = ((const float *)images->data)[begin + i];
        float pixel = roundf((value * d->scales.deviation[c] + d->scales.mean[c]) * 255.0f);
        out[i] = pixel < 0.0f ? 0 : pixel > 255.0f ? 255 : (uint8_t)pixel;
    }
}

/* The conversion of images to a model of this size, the same as in training. */
static by_image_fit fit_of(const by__task_examples *d, int64_t height, int64_t width)
{
    by_image_fit fit = {.height = height, .width = width};
    return d->fit.height == height && d->fit.width == width ? d->fit : fit;
}

/* Decodes JPEG and PNG like the files of a config: the same function resizes them. */
static by_status decode(by_array_set **out, const by__task_examples *d,
                        const by_task_examples *examples, by_error *error)
{
    const int64_t *size = examples->size;
    const by_image_fit fit = fit_of(d, size[1], size[2]);
    by_array images = {.name = "images",
                       .dtype = BY_U8,
                       .shape = BY_SHAPE((int64_t)examples->file_count, size[0], size[1], size[2])};
    size_t bytes = (size_t)(size[0] * size[1] * size[2]);
    uint8_t *all;
    BY_TRY(by__alloc((void **)&all, examples->file_count, bytes, "images", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < examples->file_count && status == BY_OK; i++) {
        uint8_t *pixels;
        int64_t height;
        int64_t width;
        status = by__format_image_decode_request(&pixels, &height, &width, size[0], &fit,
                                                 examples->files[i].data, examples->files[i].size,
                                                 error);
        if (status == BY_OK) {
            memcpy(all + i * bytes, pixels, bytes);
            free(pixels);
        }
    }
    if (status == BY_OK) {
        images.data = all;
        status = by_array_set_open(out, "the images", &images, 1, error);
    }
    free(all);
    return status;
}

static by_status make_set(by_array_set **out, const by__task_examples *d,
                          const by_task_examples *examples, by_error *error)
{
    if (d->encoding != NULL) {
        by__task_examples_cut cut = {0};
        return examples->table != NULL
                   ? by__task_examples_apply_encoding(out, d, examples->table, false, NULL, &cut,
                                                      error)
                   : by_error_set(error, BY_EARG, "the model predicts rows of a table, not images");
    }
    if (examples->files != NULL) {
        return decode(out, d, examples, error);
    }
    if (examples->images == NULL) {
        return by_error_set(error, BY_EARG, "the model predicts images, not rows of a table");
    }
    by_array images = *examples->images;
    images.name = "images";
    return by_array_set_open(out, "the images", &images, 1, error);
}

by_status by__task_examples_set(const by_task_data *data, const by_task_examples *examples,
                                by_array_set **set, by_source **source, by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    bool classes = by__task_row_of(data->task)->classes;
    by_array_set *made = NULL;
    BY_TRY(make_set(&made, d, examples, error));
    by_status status =
        by__task_examples_replace_targets(&made, classes ? 0 : by__task_examples_numbers(d),
                                          by__task_row_of(data->task)->maps, error);
    if (status == BY_OK) {
        const by_part whole = by_part_whole(by_array_set_examples(made));
        status = by__task_examples_source_of(source, d, made, &whole, false, error);
    }
    if (status != BY_OK) {
        by_array_set_close(&made);
        return status;
    }
    *set = made;
    return BY_OK;
}

bool by__task_examples_column(const by_task_data *data, size_t i, by_column_type *out)
{
    const by__task_examples *d = (const by__task_examples *)data;
    bool named = d->windows.context > 0 && d->keys->series[0] != '\0';
    if (named && i == by_encoding_numbers(d->encoding)) {
        *out = (by_column_type){d->keys->series, BY_COLUMN_CATEGORY};
        return true;
    }
    out->name = d->encoding == NULL ? NULL : by_encoding_feature(d->encoding, i, &out->kind);
    return out->name != NULL;
}

const by_encoding *by__task_examples_encoding(const by_task_data *data)
{
    return ((const by__task_examples *)data)->encoding;
}
