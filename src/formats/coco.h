/* COCO's annotations (cocodataset.org, "Data format"): a JSON object with the images, the
 * categories, and for each object its category and where it is: polygons, or runs of pixels (RLE).
 *
 * The classes are 0, the background, and from 1 on the categories in the order of their ids. */
#ifndef BY_FORMATS_COCO_H
#define BY_FORMATS_COCO_H

#include "base/base.h"

typedef struct by__format_coco by__format_coco;

/* Reads the annotations of a JSON text; `name` is for messages, and copied. BY_EFORMAT names what
 * is wrong: an image, a category or an annotation, by its id. */
by_status by__format_coco_open(by__format_coco **out, const char *name, const char *text,
                               size_t size, by_error *error);
void by__format_coco_close(by__format_coco **coco);
size_t by__format_coco_images(const by__format_coco *coco);
/* The number of the image with this file_name; false: there is none. */
bool by__format_coco_find(size_t *out, const by__format_coco *coco, const char *file_name);
void by__format_coco_size(const by__format_coco *coco, size_t image, int64_t *height,
                          int64_t *width);
/* Draws the classes of an image's pixels, [height, width], object over object in the order of the
 * file. A pixel is in a polygon if its centre is (even-odd rule). For many threads at once.
 * BY_EFORMAT: a segmentation is damaged. */
by_status by__format_coco_draw(uint8_t *out, const by__format_coco *coco, size_t image,
                               by_error *error);

#endif
