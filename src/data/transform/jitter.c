/* jitter: changes brightness, contrast, saturation and hue, in an order that is drawn, too:
 * torchvision's ColorJitter. Grey images have no saturation and no hue to change. */
#include <string.h>

#include "data/transform/operations.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, KINDS };

static const by__transform_operation operations[KINDS] = {
    [BRIGHTNESS] = BY__OPERATION_BRIGHTNESS,
    [CONTRAST] = BY__OPERATION_CONTRAST,
    [SATURATION] = BY__OPERATION_COLOR,
    [HUE] = BY__OPERATION_HUE,
};

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    uint32_t amounts[4];
    uint32_t random[4];
    int order[KINDS] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    by__transform_random(draw, 0, amounts);
    by__transform_random(draw, 1, random);
    for (uint32_t i = KINDS - 1; i > 0; i--) {
        uint32_t k = by__transform_below(random[i], i + 1);
        int other = order[k];
        order[k] = order[i];
        order[i] = other;
    }
    memcpy(out, in, size->channels * size->height * size->width);
    for (int i = 0; i < KINDS; i++) {
        int kind = order[i];
        double most = parameters[kind];
        double least = kind == HUE ? -most : most < 1.0 ? 1.0 - most : 0.0;
        double amount =
            by__transform_between(amounts[kind], least, kind == HUE ? most : 1.0 + most);
        if (most > 0.0) {
            by__transform_operate(operations[kind], amount, size, out, NULL);
        }
    }
    return true;
}

const by__transform_row by__transform_jitter = {
    .name = "jitter",
    .parameters = {[BRIGHTNESS] = {.name = "brightness", .fallback = 0.4, .max = 10},
                   [CONTRAST] = {.name = "contrast", .fallback = 0.4, .max = 10},
                   [SATURATION] = {.name = "saturation", .fallback = 0.4, .max = 10},
                   [HUE] = {.name = "hue", .fallback = 0.1, .max = 0.5}},
    .stream = 0x6a697474u, /* "jitt" in ASCII */
    .apply = apply};
