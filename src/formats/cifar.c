#include "formats/cifar.h"

#include <string.h>

static size_t label_bytes(int classes)
{
    return classes == 100 ? 2 : 1;
}

by_status by__format_cifar_count(size_t *out, const char *name, size_t size, int classes,
                                 by_error *error)
{
    size_t record = label_bytes(classes) + BY__CIFAR_IMAGE;
    if (size == 0 || size % record != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %zu bytes are not a number of CIFAR-%d records of %zu bytes: name "
                            "the files of its binary version, %s, as they are in the archive",
                            name, size, classes, record,
                            classes == 100 ? "train.bin and test.bin"
                                           : "data_batch_1.bin to data_batch_5.bin");
    }
    *out = size / record;
    return BY_OK;
}

by_status by__format_cifar_read(uint8_t *images, int32_t *labels, const char *name,
                                const uint8_t *data, size_t count, int classes, by_error *error)
{
    size_t skip = label_bytes(classes);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = data + i * (skip + BY__CIFAR_IMAGE);
        labels[i] = record[skip - 1];
        if (labels[i] >= classes) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: record %zu has the label %d, not below %d: is it a file of "
                                "CIFAR-%d's binary version?",
                                name, i, labels[i], classes, classes);
        }
        memcpy(images + i * BY__CIFAR_IMAGE, record + skip, BY__CIFAR_IMAGE);
    }
    return BY_OK;
}
