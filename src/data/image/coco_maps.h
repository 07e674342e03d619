/* Label maps that are drawn from COCO annotations. A label "FILE.json#NAME" is the map of the image
 * of that file_name (coco_maps.c). */
#ifndef BY_DATA_IMAGE_COCO_MAPS_H
#define BY_DATA_IMAGE_COCO_MAPS_H

#include "data/image/image_folder.h"
#include "formats/coco.h"

typedef struct by__image_coco_file {
    char *path;
    by__format_coco *coco;
} by__image_coco_file;

/* Files of annotations that are open. {0} is empty. */
typedef struct by__image_coco_files {
    by__image_coco_file *items;
    size_t count;
    size_t capacity;
} by__image_coco_files;

bool by__image_coco_is(const char *label);
/* Opens the file of a label, unless it is open. */
by_status by__image_coco_open(by__image_coco_files *files, const char *label, by_error *error);
void by__image_coco_close(by__image_coco_files *files);
/* Draws the map of a label whose file is open; freed with free(). */
by_status by__image_coco_draw(uint8_t **out, int64_t *height, int64_t *width,
                              const by__image_coco_files *files, const char *label,
                              by_error *error);
/* Takes the pictures from `first` on out of a list of which the annotations have none; `root` are
 * the bytes of the paths that are not of their names. BY_EFORMAT: none is left. */
by_status by__image_coco_keep(by__image_folder *folder, size_t first, size_t root,
                              const char *annotations, by_error *error);

#endif
