/* flip: mirrors an image left to right. */
#include "data/transform/transform.h"

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    uint32_t random[4];
    by__transform_random(draw, 0, random);
    /* The share of 2^32 from the top: for 1/2 the upper bit decides. */
    if ((double)random[2] < 4294967296.0 * (1.0 - parameters[0])) {
        return false;
    }
    for (size_t y = 0; y < size->channels * size->height; y++) {
        for (size_t x = 0; x < size->width; x++) {
            out[y * size->width + size->width - 1 - x] = in[y * size->width + x];
        }
    }
    return true;
}

/* Word 2 of the stream of shift. */
const by__transform_row by__transform_flip = {
    .name = "flip",
    .parameters = {{.name = "probability", .fallback = 0.5, .min = 0, .max = 1}},
    .stream = 0x61756775u, /* "augu" in ASCII */
    .moves = true,
    .apply = apply};
