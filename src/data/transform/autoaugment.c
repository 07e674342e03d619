/* autoaugment and autoaugment_cifar: two operations in turn, of a pair drawn from 25 that a search
 * has found on ImageNet or CIFAR-10 (Cubuk et al. 2019, tables 9 and 7), as torchvision's
 * AutoAugment. */
#include <string.h>

#include "data/transform/operations.h"

#define PAIRS 25
#define BINS  10

/* One operation of a pair. */
typedef struct policy_step {
    by__transform_operation operation;
    int tenths; /* its probability */
    int bin;    /* its magnitude, where it has one */
} policy_step;

#define SHEAR_X      BY__OPERATION_SHEAR_X
#define SHEAR_Y      BY__OPERATION_SHEAR_Y
#define TRANSLATE_X  BY__OPERATION_TRANSLATE_X
#define TRANSLATE_Y  BY__OPERATION_TRANSLATE_Y
#define ROTATE       BY__OPERATION_ROTATE
#define BRIGHTNESS   BY__OPERATION_BRIGHTNESS
#define CONTRAST     BY__OPERATION_CONTRAST
#define COLOR        BY__OPERATION_COLOR
#define SHARPNESS    BY__OPERATION_SHARPNESS
#define POSTERIZE    BY__OPERATION_POSTERIZE
#define SOLARIZE     BY__OPERATION_SOLARIZE
#define AUTOCONTRAST BY__OPERATION_AUTOCONTRAST
#define EQUALIZE     BY__OPERATION_EQUALIZE
#define INVERT       BY__OPERATION_INVERT

/* clang-format off: a pair a line */
static const policy_step imagenet[PAIRS][2] = {
    {{POSTERIZE, 4, 8}, {ROTATE, 6, 9}},  {{SOLARIZE, 6, 5}, {AUTOCONTRAST, 6, 0}},
    {{EQUALIZE, 8, 0}, {EQUALIZE, 6, 0}}, {{POSTERIZE, 6, 7}, {POSTERIZE, 6, 6}},
    {{EQUALIZE, 4, 0}, {SOLARIZE, 2, 4}}, {{EQUALIZE, 4, 0}, {ROTATE, 8, 8}},
    {{SOLARIZE, 6, 3}, {EQUALIZE, 6, 0}}, {{POSTERIZE, 8, 5}, {EQUALIZE, 10, 0}},
    {{ROTATE, 2, 3}, {SOLARIZE, 6, 8}},   {{EQUALIZE, 6, 0}, {POSTERIZE, 4, 6}},
    {{ROTATE, 8, 8}, {COLOR, 4, 0}},      {{ROTATE, 4, 9}, {EQUALIZE, 6, 0}},
    {{EQUALIZE, 0, 0}, {EQUALIZE, 8, 0}}, {{INVERT, 6, 0}, {EQUALIZE, 10, 0}},
    {{COLOR, 6, 4}, {CONTRAST, 10, 8}},   {{ROTATE, 8, 8}, {COLOR, 10, 2}},
    {{COLOR, 8, 8}, {SOLARIZE, 8, 7}},    {{SHARPNESS, 4, 7}, {INVERT, 6, 0}},
    {{SHEAR_X, 6, 5}, {EQUALIZE, 10, 0}}, {{COLOR, 4, 0}, {EQUALIZE, 6, 0}},
    {{EQUALIZE, 4, 0}, {SOLARIZE, 2, 4}}, {{SOLARIZE, 6, 5}, {AUTOCONTRAST, 6, 0}},
    {{INVERT, 6, 0}, {EQUALIZE, 10, 0}},  {{COLOR, 6, 4}, {CONTRAST, 10, 8}},
    {{EQUALIZE, 8, 0}, {EQUALIZE, 6, 0}},
};

static const policy_step cifar[PAIRS][2] = {
    {{INVERT, 1, 0}, {CONTRAST, 2, 6}},          {{ROTATE, 7, 2}, {TRANSLATE_X, 3, 9}},
    {{SHARPNESS, 8, 1}, {SHARPNESS, 9, 3}},      {{SHEAR_Y, 5, 8}, {TRANSLATE_Y, 7, 9}},
    {{AUTOCONTRAST, 5, 0}, {EQUALIZE, 9, 0}},    {{SHEAR_Y, 2, 7}, {POSTERIZE, 3, 7}},
    {{COLOR, 4, 3}, {BRIGHTNESS, 6, 7}},         {{SHARPNESS, 3, 9}, {BRIGHTNESS, 7, 9}},
    {{EQUALIZE, 6, 0}, {EQUALIZE, 5, 0}},        {{CONTRAST, 6, 7}, {SHARPNESS, 6, 5}},
    {{COLOR, 7, 7}, {TRANSLATE_X, 5, 8}},        {{EQUALIZE, 3, 0}, {AUTOCONTRAST, 4, 0}},
    {{TRANSLATE_Y, 4, 3}, {SHARPNESS, 2, 6}},    {{BRIGHTNESS, 9, 6}, {COLOR, 2, 8}},
    {{SOLARIZE, 5, 2}, {INVERT, 0, 0}},          {{EQUALIZE, 2, 0}, {AUTOCONTRAST, 6, 0}},
    {{EQUALIZE, 2, 0}, {EQUALIZE, 6, 0}},        {{COLOR, 9, 9}, {EQUALIZE, 6, 0}},
    {{AUTOCONTRAST, 8, 0}, {SOLARIZE, 2, 8}},    {{BRIGHTNESS, 1, 3}, {COLOR, 7, 0}},
    {{SOLARIZE, 4, 5}, {AUTOCONTRAST, 9, 0}},    {{TRANSLATE_Y, 9, 9}, {TRANSLATE_Y, 7, 9}},
    {{AUTOCONTRAST, 9, 0}, {SOLARIZE, 8, 3}},    {{EQUALIZE, 8, 0}, {INVERT, 1, 0}},
    {{TRANSLATE_Y, 7, 9}, {AUTOCONTRAST, 9, 0}},
};
/* clang-format on */

static bool apply_policy(const policy_step policy[PAIRS][2], const by__transform_size *size,
                         const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    uint32_t chosen[4];
    bool changed = false;
    by__transform_random(draw, 0, chosen);
    const policy_step *pair = policy[by__transform_below(chosen[0], PAIRS)];
    for (uint64_t i = 0; i < 2; i++) {
        uint32_t random[4];
        by__transform_random(draw, 1 + i, random);
        if ((double)random[0] * 10.0 < 4294967296.0 * pair[i].tenths) {
            by__transform_magnitude m =
                by__transform_magnitude_of(pair[i].operation, pair[i].bin, BINS, size);
            double sign = m.is_signed && random[1] >> 31 != 0 ? -1.0 : 1.0;
            if (!changed) {
                memcpy(out, in, size->channels * size->height * size->width);
            }
            by__transform_augment(pair[i].operation, sign * m.amount, size, out, draw->scratch);
            changed = true;
        }
    }
    return changed;
}

static bool apply_imagenet(const double *parameters, const by__transform_size *size,
                           const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    BY_UNUSED(parameters);
    return apply_policy(imagenet, size, draw, in, out);
}

static bool apply_cifar(const double *parameters, const by__transform_size *size,
                        const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    BY_UNUSED(parameters);
    return apply_policy(cifar, size, draw, in, out);
}

const by__transform_row by__transform_autoaugment = {.name = "autoaugment",
                                                     .stream = 0x6175746fu, /* "auto" in ASCII */
                                                     .scratch = by__transform_spare_bytes,
                                                     .moves = true,
                                                     .apply = apply_imagenet};

const by__transform_row by__transform_autoaugment_cifar = {.name = "autoaugment_cifar",
                                                           .stream =
                                                               0x61757463u, /* "autc" in ASCII */
                                                           .scratch = by__transform_spare_bytes,
                                                           .moves = true,
                                                           .apply = apply_cifar};
