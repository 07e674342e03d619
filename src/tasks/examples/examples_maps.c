/* Images with the classes of their pixels. */
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "data/image/coco_maps.h"
#include "data/image/image_shard.h"
#include "tasks/examples/examples.h"

/* Whether a path of data.images is a list of names, ROOT/ImageSets/Segmentation/train.txt of PASCAL
 * VOC: its pictures are ROOT/JPEGImages/NAME.jpg. */
static bool is_name_list(const char *path)
{
    return by__ends_with(path, ".txt");
}

/* The folder that the names of pictures are within. */
static by_status folder_of(char **out, const char *path, by_error *error)
{
    by_string text = {0};
    const char *end = path + strlen(path);
    if (!is_name_list(path)) {
        by__string_append(&text, path);
        return by__string_release(&text, out, error);
    }
    for (int i = 0; i < 3 && end > path; i++) {
        do {
            end--;
        } while (end > path && *end != '/');
    }
    by_string_format(&text, "%.*s%sJPEGImages", (int)(end - path), path, end > path ? "/" : "");
    return by__string_release(&text, out, error);
}

/* The PNG of the classes of a picture's pixels: of the same name in the other folder; or the name
 * of its image in a file of COCO annotations. */
static by_status map_of(char **out, const char *picture, const char *folder, const char *maps,
                        by_error *error)
{
    const char *within = picture + strlen(folder);
    within += strspn(within, "/");
    const char *slash = strrchr(within, '/');
    const char *dot = strrchr(slash == NULL ? within : slash, '.');
    size_t stem = dot == NULL ? strlen(within) : (size_t)(dot - within);
    by_string text = {0};
    if (by__ends_with(maps, ".json")) {
        by_string_format(&text, "%s#%s", maps, within);
        return by__string_release(&text, out, error);
    }
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

/* Adds the pictures that a list names, one a line. */
static by_status add_names(by__image_folder *f, const char *list, const char *folder,
                           by_error *error)
{
    char *text;
    size_t size;
    BY_TRY(by__file_read(&text, &size, list, (size_t)1 << 28, error));
    by_status status = BY_OK;
    for (char *at = text; *at != '\0' && status == BY_OK;) {
        size_t length = strcspn(at, " \t\r\n"); /* lists of classes have a number behind it */
        by_string path = {0};
        char *taken = NULL;
        if (length > 0) {
            by_string_format(&path, "%s/%.*s.jpg", folder, (int)length, at);
            status = by__string_release(&path, &taken, error);
        }
        if (taken != NULL) {
            status = by__image_folder_add_file(f, taken, taken + strlen(folder), -1, error);
        }
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    free(text);
    return status;
}

/* Lists the pictures of folder number `number`; `names` is a list of them, or NULL, and `labels`
 * where their classes are. */
static by_status list_folder(by__image_folder *f, const char *folder, const char *names,
                             const char *labels, int32_t number, by_error *error)
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
    BY_TRY(names != NULL ? add_names(f, names, folder, error)
                         : by__image_folder_add(f, folder, error));
    if (by__ends_with(labels, ".json") && f->count > before) {
        BY_TRY(by__image_coco_keep(f, before, strlen(folder), labels, error));
    }
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
                              const by__image_folder *f, char *const *folders,
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
        status = map_of(&maps[i], pictures[i], folders[number], labels->items[number], error);
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
    if (!by__task_examples_are_folders(images) && !is_name_list(images->items[0])) {
        return open_files(out, d, (const char *const *)images->items,
                          (const char *const *)labels->items, images->count, error);
    }
    char **folders;
    BY_TRY(by__alloc((void **)&folders, images->count, sizeof *folders, "folders", error));
    for (size_t i = 0; i < images->count && status == BY_OK; i++) {
        const char *path = images->items[i];
        status = folder_of(&folders[i], path, error);
        if (status == BY_OK) {
            status = list_folder(&f, folders[i], is_name_list(path) ? path : NULL, labels->items[i],
                                 (int32_t)i, error);
        }
    }
    if (status == BY_OK) {
        by__image_folder_mix(&f);
        status = open_folders(out, d, &f, folders, labels, error);
    }
    by__names_free(folders, images->count);
    by__image_folder_free(&f);
    return status;
}
