#include "data/image/coco_maps.h"

#include <stdlib.h>
#include <string.h>

/* Most bytes of annotations: those of COCO's training images have half of it. */
#define MOST_BYTES ((size_t)1 << 30)

/* Bytes of the path of a label; 0: it is none of COCO's. */
static size_t path_length(const char *label)
{
    const char *end = strstr(label, ".json#");
    return end == NULL ? 0 : (size_t)(end - label) + 5;
}

bool by__image_coco_is(const char *label)
{
    return path_length(label) > 0;
}

static const by__image_coco_file *find(const by__image_coco_files *files, const char *label)
{
    size_t length = path_length(label);
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->items[i].path;
        if (strlen(path) == length && memcmp(path, label, length) == 0) {
            return &files->items[i];
        }
    }
    return NULL;
}

static by_status read_file(by__format_coco **out, const char *path, by_error *error)
{
    char *text;
    size_t size;
    BY_TRY(by__file_read(&text, &size, path, MOST_BYTES, error));
    by_status status = by__format_coco_open(out, path, text, size, error);
    free(text);
    return status;
}

by_status by__image_coco_open(by__image_coco_files *files, const char *label, by_error *error)
{
    if (find(files, label) != NULL) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&files->items, &files->capacity, files->count + 1,
                       sizeof *files->items, error));
    by__image_coco_file file = {.path = by__strndup(label, path_length(label))};
    if (file.path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = read_file(&file.coco, file.path, error);
    if (status != BY_OK) {
        free(file.path);
        return status;
    }
    files->items[files->count++] = file;
    return BY_OK;
}

void by__image_coco_close(by__image_coco_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        by__format_coco_close(&files->items[i].coco);
        free(files->items[i].path);
    }
    free(files->items);
    *files = (by__image_coco_files){0};
}

by_status by__image_coco_draw(uint8_t **out, int64_t *height, int64_t *width,
                              const by__image_coco_files *files, const char *label, by_error *error)
{
    const by__image_coco_file *file = find(files, label);
    const char *name = label + path_length(label) + 1;
    size_t image;
    if (!by__format_coco_find(&image, file->coco, name)) {
        return by_error_set(error, BY_EFORMAT, "%s: there is no image with the file_name '%.200s'",
                            file->path, name);
    }
    by__format_coco_size(file->coco, image, height, width);
    BY_TRY(by__alloc((void **)out, (size_t)*height, (size_t)*width, "classes", error));
    by_status status = by__format_coco_draw(*out, file->coco, image, error);
    if (status != BY_OK) {
        free(*out);
    }
    return status;
}

by_status by__image_coco_keep(by__image_folder *folder, size_t first, size_t root,
                              const char *annotations, by_error *error)
{
    by__format_coco *coco;
    size_t kept = first;
    BY_TRY(read_file(&coco, annotations, error));
    for (size_t i = first; i < folder->count; i++) {
        by__image_picture_file file = folder->files[i];
        size_t image;
        const char *name = file.path + root;
        if (by__format_coco_find(&image, coco, name + strspn(name, "/"))) {
            folder->files[kept++] = file;
        } else {
            by__image_folder_free_file(&file);
            folder->ignored++;
        }
    }
    folder->count = kept;
    by__format_coco_close(&coco);
    return kept > first ? BY_OK
                        : by_error_set(error, BY_EFORMAT,
                                       "%s: none of its images is in the folder, by its file_name",
                                       annotations);
}
