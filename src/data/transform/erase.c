/* erase: fills a random rectangle with one value: torchvision's RandomErasing (Zhong et al. 2020),
 * with sides in a ratio of 0.3 to 3.3. */
#include <string.h>

#include "data/transform/box.h"

enum { PROBABILITY, MIN_AREA, MAX_AREA, VALUE };
#define DECIDES 10 /* the block behind those of the rectangle */

static by_status check(const double *parameters, const by__transform_size *size, by_error *error)
{
    BY_UNUSED(size);
    return parameters[MIN_AREA] <= parameters[MAX_AREA]
               ? BY_OK
               : by_error_set(error, BY_EARG, "erase: min_area %g is more than max_area %g",
                              parameters[MIN_AREA], parameters[MAX_AREA]);
}

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    const by__transform_box_range range = {.area = {parameters[MIN_AREA], parameters[MAX_AREA]},
                                           .ratio = {0.3, 3.3}};
    by__transform_box box;
    uint32_t random[4];
    by__transform_random(draw, DECIDES, random);
    if ((double)random[0] >= 4294967296.0 * parameters[PROBABILITY] ||
        !by__transform_box_draw(&box, &range, draw, (int64_t)size->height, (int64_t)size->width)) {
        return false;
    }
    memcpy(out, in, size->channels * size->height * size->width);
    for (size_t c = 0; c < size->channels; c++) {
        for (size_t y = 0; y < (size_t)box.height; y++) {
            size_t row = c * size->height + (size_t)box.top + y;
            memset(out + row * size->width + box.left, (int)parameters[VALUE], (size_t)box.width);
        }
    }
    return true;
}

const by__transform_row by__transform_erase = {
    .name = "erase",
    .parameters = {[PROBABILITY] = {.name = "probability", .fallback = 0.5, .max = 1},
                   [MIN_AREA] = {.name = "min_area", .fallback = 0.02, .min = 0.001, .max = 1},
                   [MAX_AREA] = {.name = "max_area", .fallback = 0.33, .min = 0.001, .max = 1},
                   [VALUE] = {.name = "value", .fallback = 0, .max = 255, .whole = true}},
    .stream = 0x65726173u, /* "eras" in ASCII */
    .check = check,
    .apply = apply};
