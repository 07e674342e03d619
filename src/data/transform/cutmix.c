/* cutmix: a rectangle of another image in this one, whose share of the label is that of the area
 * (Yun et al. 2019). */
#include <math.h>
#include <string.h>

#include "data/transform/mix.h"

/* The part [*begin, *end) of a side that a cut of `length`, centred at a random place, covers. */
static void cut(uint32_t bits, size_t side, size_t length, size_t *begin, size_t *end)
{
    size_t center = (size_t)((uint64_t)bits * side >> 32);
    *begin = center > length / 2 ? center - length / 2 : 0;
    *end = center + (length + 1) / 2 < side ? center + (length + 1) / 2 : side;
}

static double mix(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, const uint8_t *other,
                  uint8_t *out)
{
    uint32_t random[4];
    uint32_t share = by__transform_mix_share(parameters, draw);
    if (share == BY__MIX_PARTS) {
        return 1.0;
    }
    double side = sqrt((double)(BY__MIX_PARTS - share) / BY__MIX_PARTS);
    size_t y;
    size_t x;
    size_t bottom;
    size_t right;
    by__transform_random(draw, 0, random);
    cut(random[0], size->height, (size_t)((double)size->height * side), &y, &bottom);
    cut(random[1], size->width, (size_t)((double)size->width * side), &x, &right);
    memcpy(out, in, size->channels * size->height * size->width);
    for (size_t c = 0; c < size->channels; c++) {
        for (size_t row = y; row < bottom; row++) {
            size_t at = (c * size->height + row) * size->width + x;
            memcpy(out + at, other + at, right - x);
        }
    }
    return 1.0 - (double)((bottom - y) * (right - x)) / (double)(size->height * size->width);
}

const by__transform_row by__transform_cutmix = {
    .name = "cutmix",
    .parameters = {[BY__MIX_ALPHA] = {.name = "alpha", .fallback = 1, .min = 0.01, .max = 1},
                   [BY__MIX_PROBABILITY] = {.name = "probability", .fallback = 1, .max = 1}},
    .stream = 0x6375746du, /* "cutm" in ASCII */
    .mix = mix};
