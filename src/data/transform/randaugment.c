/* randaugment: some operations drawn from fourteen, all of one magnitude (Cubuk et al. 2020), as
 * torchvision's RandAugment. */
#include <string.h>

#include "data/transform/operations.h"

enum { OPERATIONS, MAGNITUDE };
#define BINS 31

static const by__transform_operation operations[] = {
    BY__OPERATION_IDENTITY,     BY__OPERATION_SHEAR_X,     BY__OPERATION_SHEAR_Y,
    BY__OPERATION_TRANSLATE_X,  BY__OPERATION_TRANSLATE_Y, BY__OPERATION_ROTATE,
    BY__OPERATION_BRIGHTNESS,   BY__OPERATION_COLOR,       BY__OPERATION_CONTRAST,
    BY__OPERATION_SHARPNESS,    BY__OPERATION_POSTERIZE,   BY__OPERATION_SOLARIZE,
    BY__OPERATION_AUTOCONTRAST, BY__OPERATION_EQUALIZE,
};

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    memcpy(out, in, size->channels * size->height * size->width);
    for (uint64_t i = 0; i < (uint64_t)parameters[OPERATIONS]; i++) {
        uint32_t random[4];
        by__transform_random(draw, i, random);
        by__transform_operation operation =
            operations[by__transform_below(random[0], BY_ARRAY_LENGTH(operations))];
        by__transform_magnitude m =
            by__transform_magnitude_of(operation, (int)parameters[MAGNITUDE], BINS, size);
        double sign = m.is_signed && random[1] >> 31 != 0 ? -1.0 : 1.0;
        by__transform_augment(operation, sign * m.amount, size, out, draw->scratch);
    }
    return true;
}

const by__transform_row by__transform_randaugment = {
    .name = "randaugment",
    .parameters =
        {[OPERATIONS] = {.name = "operations", .fallback = 2, .min = 1, .max = 14, .whole = true},
         [MAGNITUDE] =
             {.name = "magnitude", .fallback = 9, .min = 0, .max = BINS - 1, .whole = true}},
    .stream = 0x72616e64u, /* "rand" in ASCII */
    .scratch = by__transform_spare_bytes,
    .moves = true,
    .apply = apply};
