/* JPEG and PNG: what is decoded has the wanted size, which the first byte chooses together with
 * how the image is resized; what is decoded in part has its size divided; and the classes of pixels
 * are as many as the PNG says. */
#include <stdlib.h>

#include "formats/image/image_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool decode_reduced(int64_t size_out[2], uint8_t choice, unsigned reduction, int64_t rows,
                           const uint8_t *data, size_t size)
{
    uint8_t *pixels = NULL;
    volatile uint8_t last = 0;
    if (by__format_image_decode_reduced(&pixels, &size_out[0], &size_out[1],
                                        choice % 2 == 0 ? 1 : 3, reduction, rows, data, size,
                                        NULL) != BY_OK) {
        return false;
    }
    for (int64_t i = 0; i < size_out[0] * size_out[1]; i++) {
        last = (uint8_t)(last ^ pixels[i]);
    }
    free(pixels);
    return true;
}

static void compare_reduced(uint8_t choice, const uint8_t *data, size_t size)
{
    int64_t whole[2];
    int64_t divided[2];
    int64_t by = 1 << choice / 2 % 4;
    if (!decode_reduced(whole, choice, 1, 1, data, size) ||
        !decode_reduced(divided, choice, (unsigned)by, choice / 8 % 16, data, size)) {
        return;
    }
    bool is_png = divided[0] == whole[0] && divided[1] == whole[1];
    if (!is_png &&
        (divided[0] != (whole[0] + by - 1) / by || divided[1] != (whole[1] + by - 1) / by)) {
        abort();
    }
}

static void decode_classes(const uint8_t *data, size_t size)
{
    uint8_t *classes = NULL;
    volatile uint8_t last = 0;
    int64_t height;
    int64_t width;
    if (by__format_image_decode_classes(&classes, &height, &width, data, size, NULL) == BY_OK) {
        for (int64_t i = 0; i < height * width; i++) {
            last = (uint8_t)(last ^ classes[i]);
        }
    }
    free(classes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *pixels = NULL;
    int64_t height;
    int64_t width;
    by_error error;
    if (size == 0) {
        return 0;
    }
    const by_image_fit fit = {.resize = (by_image_resize)(data[0] / 2 % 3),
                              .resample = (by_image_resample)(data[0] / 6 % 3),
                              .height = 8,
                              .width = data[0] / 18 % 2 == 0 ? 8 : 3};
    if (by__format_image_decode(&pixels, &height, &width, data[0] % 2 == 0 ? 1 : 3, &fit, data + 1,
                                size - 1, &error) == BY_OK &&
        (height != fit.height || width != fit.width)) {
        abort();
    }
    free(pixels);
    compare_reduced(data[0], data + 1, size - 1);
    decode_classes(data + 1, size - 1);
    return 0;
}
