/* Random parts of an image: of a share of its area and of a ratio of sides. */
#ifndef BY_DATA_TRANSFORM_BOX_H
#define BY_DATA_TRANSFORM_BOX_H

#include "data/transform/transform.h"

/* What a part may be: `wide` / `high`, the ratio of its sides, is drawn evenly in the logarithm. */
typedef struct by__transform_box_range {
    double area[2]; /* least and most share of the image's area */
    double ratio[2];
    bool whole; /* a side may be as long as the image's */
} by__transform_box_range;

/* Draws a part of an image of height x width as torchvision does: up to ten times, from blocks 0 to
 * 9 of the draw. Returns false if none of these fits. */
bool by__transform_box_draw(by__transform_box *out, const by__transform_box_range *range,
                            const by__transform_draw *draw, int64_t height, int64_t width);

#endif
