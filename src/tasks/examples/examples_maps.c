/* Images with the classes of their pixels. */
#include <stdlib.h>
#include <string.h>

#include "data/image/image_shard.h"
#include "tasks/examples/examples.h"

/* The PNG of the classes of a picture's pixels: of the same name in the other folder. */
static by_status map_of(char **out, const char *picture, const char *folder, const char *maps,
                        by_error *error)
{
    const char *within = picture + strlen(folder);
    within += strspn(within, "/");
    const char *slash = strrchr(within, '/');
    const char *dot = strrchr(slash == NULL ? within : slash, '.');
    size_t stem = dot == NULL ? strlen(within) : (size_t)(dot - within);
    by_string text = {0};
    by_string_format(&text, "%s/%.*s.png", maps, (int)stem, within);
    BY_TRY(by__string_release(&text, out, error));
    if (by__path_exists(*out)) {
        return BY_OK;
    }
    by_status status = by_error_set(
        error, BY_EFORMAT, "%s has no classes of its pixels: there is no %s", picture, *out);
    free(*out);
    *out = NULL;
    return status;
}

/* Lists the pictures of folder number `number`. */
static by_status list_folder(by__image_folder *f, const char *folder, int32_t number,
                             by_error *error)
{
    size_t before = f->count;
    if (by__image_is_shard(folder)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is a shard: the classes of pixels are read of folders of pictures, "
                            "single pictures and arrays",
                            folder);
    }
    if (!by__path_is_dir(folder)) {
        return by_error_set(error, BY_ECONFIG, "%s is no folder: folders and files are not mixed",
                            folder);
    }
    BY_TRY(by__image_folder_add(f, folder, error));
    for (size_t i = before; i < f->count; i++) {
        f->files[i].label = number;
    }
    return f->count > before
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s has no picture (.png, .jpg, .jpeg)", folder);
}

static by_status open_files(by_array_set **out, const by__task_examples *d,
                            const char *const *images, const char *const *maps, size_t count,
                            by_error *error)
{
    const by_image_files files = {.format = d->keys->format,
                                  .images = images,
                                  .image_count = count,
                                  .labels = maps,
                                  .label_count = count,
                                  .maps = true,
                                  .ignore = d->keys->unlabelled,
                                  .skip = d->skip,
                                  .fit = d->fit.height > 0 ? &d->fit : NULL,
                                  .channels = d->channels,
                                  .remote = d->remote};
    return by_image_set_open(out, &files, error);
}

static by_status open_folders(by_array_set **out, const by__task_examples *d,
                              const by__image_folder *f, const by_string_list *images,
                              const by_string_list *labels, by_error *error)
{
    const char **pictures;
    char **maps = NULL;
    by_status status = by__alloc((void **)&pictures, f->count, sizeof *pictures, "paths", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&maps, f->count, sizeof *maps, "paths", error);
    }
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        int32_t number = f->files[i].label;
        pictures[i] = f->files[i].path;
        status = map_of(&maps[i], pictures[i], images->items[number], labels->items[number], error);
    }
    if (status == BY_OK) {
        status = open_files(out, d, pictures, (const char *const *)maps, f->count, error);
    }
    for (size_t i = 0; maps != NULL && i < f->count; i++) {
        free(maps[i]);
    }
    free(maps);
    free(pictures);
    return status;
}

by_status by__task_examples_open_maps(by_array_set **out, by__task_examples *d,
                                      const by_string_list *images, const by_string_list *labels,
                                      by_error *error)
{
    by__image_folder f = {0};
    by_status status = BY_OK;
    if (labels->count != images->count) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: there are no classes of pixels for all images: data.labels has a "
                            "folder for each folder of data.images, or a file for each file",
                            images->items[0]);
    }
    if (!by__task_examples_are_folders(images)) {
        return open_files(out, d, (const char *const *)images->items,
                          (const char *const *)labels->items, images->count, error);
    }
    for (size_t i = 0; i < images->count && status == BY_OK; i++) {
        status = list_folder(&f, images->items[i], (int32_t)i, error);
    }
    if (status == BY_OK) {
        by__image_folder_mix(&f);
        status = open_folders(out, d, &f, images, labels, error);
    }
    if (status == BY_OK) {
        by__task_examples_keep_folder(d, &f, *out);
    }
    by__image_folder_free(&f);
    return status;
}
