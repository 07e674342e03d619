/* CIFAR-10 and CIFAR-100, binary version: records of one label byte (CIFAR-100: coarse, then fine)
 * and 3072 bytes, 32 x 32 pixels of red, then green, then blue. */
#ifndef BY_FORMATS_CIFAR_H
#define BY_FORMATS_CIFAR_H

#include "base/base.h"

#define BY__CIFAR_IMAGE 3072u /* bytes: [3, 32, 32] */

/* Number of records of a file. `classes` is 10 or 100. BY_EFORMAT: not a whole number of
 * records. */
by_status by__format_cifar_count(size_t *out, const char *name, size_t size, int classes,
                                 by_error *error);
/* Splits the records into images, u8 [count, 3, 32, 32], and labels (the fine ones), i32 [count].
 * BY_EFORMAT: a label is not below `classes`. */
by_status by__format_cifar_read(uint8_t *images, int32_t *labels, const char *name,
                                const uint8_t *data, size_t count, int classes, by_error *error);

#endif
