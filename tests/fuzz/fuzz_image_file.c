/* JPEG and PNG: what is decoded has the wanted size, which the first byte chooses. */
#include <stdlib.h>

#include "data/formats/image_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t pixels[3 * 8 * 8];
    by_error error;
    if (size > 0) {
        (void)by__image_decode(pixels, data[0] % 2 == 0 ? 1 : 3, 8, 8, data + 1, size - 1, &error);
    }
    return 0;
}
