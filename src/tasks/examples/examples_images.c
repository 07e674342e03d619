/* Opens images: array files, folders of JPEG and PNG files, and those to predict. */
#include <stdlib.h>
#include <string.h>

#include "data/transform/transform.h"
#include "tasks/examples/examples_open.h"

bool by__task_examples_mixes(const by__task_examples_keys *k)
{
    by__transform_chain chain = {.count = 0};
    for (size_t i = 0; i < k->transforms.count; i++) {
        if (by__transform_add(&chain, k->transforms.items[i], NULL) != BY_OK) {
            return false; /* refused where the data is opened */
        }
    }
    return by__transform_mixes(&chain);
}

uint64_t by__task_examples_scratch_bytes(const by__task_examples *d)
{
    const by__task_examples_keys *k = d->keys;
    const by_array *images = d->train == NULL ? NULL : by_array_set_find(d->train, "images");
    if (images == NULL) {
        return 0;
    }
    uint64_t bytes = (uint64_t)by_shape_count(&images->shape) / (uint64_t)images->shape.dim[0];
    by__transform_chain chain = {.size = {.channels = (size_t)images->shape.dim[1],
                                          .height = (size_t)images->shape.dim[2],
                                          .width = (size_t)images->shape.dim[3]}};
    if (k->shift > 0 || k->flip != 0) {
        (void)by__transform_add(&chain, "flip", NULL);
    }
    for (size_t i = 0; i < k->transforms.count; i++) {
        (void)by__transform_add(&chain, k->transforms.items[i], NULL);
    }
    return by__transform_scratch(&chain) + (images->data == NULL ? 2 * bytes : 0);
}

static by_status open_images(by_array_set **out, by__task_examples *d, const by_string_list *images,
                             const by_string_list *labels, bool classes, by_error *error)
{
    size_t count;
    BY_TRY(by__task_examples_reach(d, images, error));
    BY_TRY(by__task_examples_reach(d, labels, error));
    const by_image_files files = {.format = d->keys->format,
                                  .images = (const char *const *)images->items,
                                  .image_count = images->count,
                                  .labels = (const char *const *)labels->items,
                                  .label_count = labels->count,
                                  .skip = d->skip,
                                  .fit = d->fit.height > 0 ? &d->fit : NULL,
                                  .channels = d->channels,
                                  .remote = d->remote};
    if (by__task_row_of(d->base.task)->maps && !d->is_predicted) {
        BY_TRY(by__task_examples_open_maps(out, d, images, labels, error));
        const by_damage *left_out = by_array_set_damage(*out, &count);
        return by__task_examples_add_damage(d, left_out, count, by_array_set_examples(*out), error);
    }
    if (by__task_examples_are_folders(images) && labels->count > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is a folder, whose folders are the classes: leave data.labels out",
                            images->items[0]);
    }
    if (by__task_examples_are_folders(images) && images == &d->keys->images &&
        strcmp(d->keys->format, "auto") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is no file of data.format %s, but a folder or a shard: leave "
                            "data.format out, or name the binary files",
                            images->items[0], d->keys->format);
    }
    BY_TRY(by__task_examples_are_folders(images)
               ? by__task_examples_open_folders(out, d, images, classes, error)
               : by_image_set_open(out, &files, error));
    by__task_examples_keep_top(d, *out, labels);
    const by_damage *damage = by_array_set_damage(*out, &count);
    return by__task_examples_add_damage(d, damage, count, by_array_set_examples(*out), error);
}

by_status by__task_examples_image_paths(by_array_set **out, by__task_examples *d,
                                        const by_task_request *r, by_error *error)
{
    char **paths;
    BY_TRY(by__alloc((void **)&paths, r->more_count + 1, sizeof *paths, "paths", error));
    paths[0] = (char *)(uintptr_t)r->path;
    for (size_t i = 0; i < r->more_count; i++) {
        paths[i + 1] = (char *)(uintptr_t)r->more[i];
    }
    const by_string_list all = {paths, r->more_count + 1};
    by_status status = by__task_examples_open_folders(out, d, &all, false, error);
    free(paths);
    BY_TRY(status);
    size_t count;
    const by_damage *damage = by_array_set_damage(*out, &count);
    return by__task_examples_add_damage(d, damage, count, by_array_set_examples(*out), error);
}

by_status by__task_examples_image_path(by_array_set **out, by__task_examples *d, const char *path,
                                       by_error *error)
{
    char *images = by__strdup(path);
    if (images == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    char *comma = by__path_exists(path) ? NULL : strchr(images, ',');
    char *labels = comma == NULL ? NULL : comma + 1;
    if (comma != NULL) {
        *comma = '\0';
    }
    const by_string_list first = {&images, 1};
    const by_string_list second = {&labels, labels == NULL ? 0 : 1};
    by_status status = open_images(out, d, &first, &second, true, error);
    free(images);
    return status;
}

/* What images are to be: as the config says, else as the weights to start from have it. */
typedef struct image_sizes {
    int64_t channels;
    int64_t height;
    int64_t width;
} image_sizes;

static by_status find_sizes(image_sizes *out, const by_config *config, by_error *error)
{
    const by_model_config *m = &config->model;
    by_config *own;
    *out = (image_sizes){m->channels, m->image_height, m->image_width};
    if (m->from[0] == '\0' || (out->channels > 0 && out->height > 0 && out->width > 0)) {
        return BY_OK;
    }
    BY_TRY(by_config_copy(&own, config, error));
    by_status status = by_config_inherit_model(own, error);
    if (status == BY_OK) {
        *out = (image_sizes){own->model.channels, own->model.image_height, own->model.image_width};
    }
    by_config_close(&own);
    return status;
}

/* Takes the size of images from the keys, unless a checkpoint sets it. */
static by_status set_fit(by__task_examples *d, const by_config *config, by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    image_sizes m;
    if (d->learned != NULL) {
        return BY_OK;
    }
    BY_TRY(find_sizes(&m, config, error));
    d->channels = m.channels > 0 ? m.channels : d->channels;
    if (strcmp(k->resize, "none") == 0) {
        return BY_OK;
    }
    if (m.height < 1 || m.width < 1) {
        return by_error_set(
            error, BY_ECONFIG,
            "data.resize %s: set model.image_height and model.image_width, to which "
            "images are resized",
            k->resize);
    }
    d->fit = (by_image_fit){.resize =
                                strcmp(k->resize, "crop") == 0 ? BY_RESIZE_CROP : BY_RESIZE_STRETCH,
                            .resample = strcmp(k->resample, "bicubic") == 0 ? BY_RESAMPLE_BICUBIC
                                                                            : BY_RESAMPLE_BILINEAR,
                            .height = m.height,
                            .width = m.width};
    return BY_OK;
}

/* Refuses data.transforms that are unknown, or that are not all there is. */
static by_status check_transforms(const by__task_examples_keys *k, const by_config *config,
                                  by_error *error)
{
    by__transform_chain chain = {.count = 0};
    const char *where = by__config_where(config, "data.transforms", "data.transforms");
    if (k->transforms.count > 0 && (k->shift > 0 || k->flip != 0)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.transforms lists all augmentation: move data.%s into it, as "
                            "%s",
                            where, k->shift > 0 ? "shift" : "flip",
                            k->shift > 0 ? "shift=PIXELS" : "flip");
    }
    for (size_t i = 0; i < k->transforms.count; i++) {
        by_error why = {0};
        if (by__transform_add(&chain, k->transforms.items[i], &why) != BY_OK) {
            return by_error_set(error, BY_ECONFIG, "%s: data.transforms: %s", where, why.message);
        }
    }
    return BY_OK;
}

by_status by__task_examples_config_images(by__task_examples *d, const by_task_request *r,
                                          by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    bool apart = k->valid_images.count > 0;
    BY_TRY(check_transforms(k, r->config, error));
    BY_TRY(set_fit(d, r->config, error));
    d->on_use = strcmp(k->decode, "use") == 0;
    if (d->on_use && by__task_row_of(d->base.task)->maps) {
        return by_error_set(error, BY_ECONFIG,
                            "data.decode use: pictures whose pixels have classes are decoded "
                            "ahead");
    }
    if (d->on_use && !by__task_examples_are_folders(&k->images)) {
        return by_error_set(error, BY_ECONFIG,
                            "data.decode use: %s is no folder and no shard of pictures",
                            k->images.items[0]);
    }
    if (k->shuffle_files > 0 && !d->on_use) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: data.shuffle_files is for pictures that are read when they are "
            "used: set data.decode=use, or leave it out",
            by__config_where(r->config, "data.shuffle_files", "data.shuffle_files"));
    }
    BY_TRY(open_images(&d->train, d, &k->images, &k->labels, true, error));
    BY_TRY(by__task_examples_split(d, r->config, by_array_set_examples(d->train), apart, error));
    if (d->folder.class_count > 0) {
        BY_TRY(by__task_examples_describe_folders(d, error));
    }
    if (apart) {
        BY_TRY(open_images(&d->valid, d, &k->valid_images, &k->valid_labels, true, error));
        d->valid_part = by_part_whole(by_array_set_examples(d->valid));
    }
    return BY_OK;
}
