/* JPEG and PNG: what is decoded has the wanted size, which the first byte chooses together with
 * how the image is resized. */
#include <stdlib.h>

#include "formats/image/image_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
                              .resample = (by_image_resample)(data[0] / 6 % 2),
                              .height = 8,
                              .width = data[0] / 12 % 2 == 0 ? 8 : 3};
    if (by__format_image_decode(&pixels, &height, &width, data[0] % 2 == 0 ? 1 : 3, &fit, data + 1,
                                size - 1, &error) == BY_OK &&
        (height != fit.height || width != fit.width)) {
        abort();
    }
    free(pixels);
    return 0;
}
