/* Base64: what is decoded is encoded to the same digits. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t length = 0;
    uint8_t *bytes = malloc(BY__BASE64_BYTES(size) + 1);
    if (bytes != NULL && by__read_base64((const char *)data, size, bytes, &length)) {
        by_string digits = {0};
        by__string_add_base64(&digits, bytes, length);
        if (length > BY__BASE64_BYTES(size) || digits.length != size ||
            (size > 0 && memcmp(digits.data, data, size) != 0)) {
            abort();
        }
        by_string_free(&digits);
    }
    free(bytes);
    return 0;
}
