/* Operations on images that transforms choose from: those of Pillow's ImageEnhance and ImageOps and
 * its affine transform with the nearest pixel, with the same bits (operations.c, affine.c). */
#ifndef BY_DATA_TRANSFORM_OPERATIONS_H
#define BY_DATA_TRANSFORM_OPERATIONS_H

#include "data/transform/transform.h"

typedef enum by__transform_operation {
    BY__OPERATION_IDENTITY,
    BY__OPERATION_SHEAR_X,      /* amount: shift of a row for each row above it */
    BY__OPERATION_SHEAR_Y,      /* likewise of columns */
    BY__OPERATION_TRANSLATE_X,  /* pixels to the right, whole */
    BY__OPERATION_TRANSLATE_Y,  /* pixels down, whole */
    BY__OPERATION_ROTATE,       /* degrees, counter-clockwise around the middle */
    BY__OPERATION_BRIGHTNESS,   /* factor: 0 is black, 1 the image */
    BY__OPERATION_CONTRAST,     /* 0 is its mean grey */
    BY__OPERATION_COLOR,        /* 0 is grey; images without three channels stay as they are */
    BY__OPERATION_SHARPNESS,    /* 0 is smoothed */
    BY__OPERATION_HUE,          /* turn of the circle of hues, -0.5 to 0.5; as color */
    BY__OPERATION_POSTERIZE,    /* bits that are kept */
    BY__OPERATION_SOLARIZE,     /* pixels of at least this are inverted */
    BY__OPERATION_AUTOCONTRAST, /* no amount, like those below */
    BY__OPERATION_EQUALIZE,
    BY__OPERATION_INVERT
} by__transform_operation;

/* Applies an operation to an image, planes u8; `spare` is another one that is overwritten. */
void by__transform_operate(by__transform_operation operation, double amount,
                           const by__transform_size *size, uint8_t *pixels, uint8_t *spare);

/* Those that move pixels: what comes from beyond the image is 0. */
void by__transform_move(by__transform_operation operation, double amount,
                        const by__transform_size *size, const uint8_t *in, uint8_t *out);

/* Amounts of AutoAugment and RandAugment. */
typedef struct by__transform_magnitude {
    double amount;
    bool is_signed; /* either direction */
} by__transform_magnitude;

/* The amount of magnitude `bin` of `bins`, as in torchvision.transforms.autoaugment; it is not a
 * factor yet: by__transform_augment adds 1. */
by__transform_magnitude by__transform_magnitude_of(by__transform_operation operation, int bin,
                                                   int bins, const by__transform_size *size);
/* Applies an operation with such an amount, whose sign was drawn; to a plane of classes only those
 * that move pixels. */
void by__transform_augment(by__transform_operation operation, double amount,
                           const by__transform_size *size, uint8_t *pixels, uint8_t *spare);
/* Room for `spare`. */
size_t by__transform_spare_bytes(const by__transform_size *size);

#endif
