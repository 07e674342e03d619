/* CIFAR records: whole ones with labels below the number of classes, or refused. */
#include <stdlib.h>

#include "formats/cifar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    for (int classes = 10; classes <= 100; classes += 90) {
        size_t count;
        if (by__format_cifar_count(&count, "f", size, classes, &error) != BY_OK) {
            continue;
        }
        uint8_t *images = malloc(count * BY__CIFAR_IMAGE);
        int32_t *labels = malloc(count * sizeof *labels);
        if (images == NULL || labels == NULL) {
            abort();
        }
        if (by__format_cifar_read(images, labels, "f", data, count, classes, &error) == BY_OK) {
            for (size_t i = 0; i < count; i++) {
                if (labels[i] < 0 || labels[i] >= classes) {
                    abort();
                }
            }
        }
        free(images);
        free(labels);
    }
    return 0;
}
