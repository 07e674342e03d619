/* gzip: inflated within the limit, or refused. */
#include <stdlib.h>

#include "formats/gzip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LIMIT = 1 << 20 };
    by_error error;
    uint8_t *out;
    size_t length;
    if (by__format_gzip_is(data, size) &&
        by__format_gzip_inflate(&out, &length, "f", data, size, LIMIT, &error) == BY_OK) {
        if (length > LIMIT) {
            abort();
        }
        free(out);
    }
    return 0;
}
