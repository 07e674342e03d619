/* mixup: a weighted mean of two images, whose labels have the same weights (Zhang et al. 2018). */
#include "data/transform/mix.h"

static double mix(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, const uint8_t *other,
                  uint8_t *out)
{
    uint32_t share = by__transform_mix_share(parameters, draw);
    size_t count = share == BY__MIX_PARTS ? 0 : size->channels * size->height * size->width;
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = share * in[i] + (BY__MIX_PARTS - share) * other[i];
        out[i] = (uint8_t)((sum + BY__MIX_PARTS / 2) / BY__MIX_PARTS);
    }
    return (double)share / BY__MIX_PARTS;
}

const by__transform_row by__transform_mixup = {
    .name = "mixup",
    .parameters = {[BY__MIX_ALPHA] = {.name = "alpha", .fallback = 0.2, .min = 0.01, .max = 1},
                   [BY__MIX_PROBABILITY] = {.name = "probability", .fallback = 1, .max = 1}},
    .stream = 0x6d697875u, /* "mixu" in ASCII */
    .mix = mix};
