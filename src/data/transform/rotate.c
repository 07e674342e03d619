/* rotate: turns an image around its middle: torchvision's RandomRotation with the nearest pixel. */
#include "data/transform/operations.h"

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    uint32_t random[4];
    by__transform_random(draw, 0, random);
    by__transform_move(BY__OPERATION_ROTATE,
                       by__transform_between(random[0], -parameters[0], parameters[0]), size, in,
                       out);
    return true;
}

const by__transform_row by__transform_rotate = {
    .name = "rotate",
    .parameters = {{.name = "degrees", .fallback = 15, .min = 0, .max = 180}},
    .stream = 0x726f7461u, /* "rota" in ASCII */
    .moves = true,
    .apply = apply};
