/* npy headers: what is taken describes exactly the file. */
#include <stdlib.h>

#include "formats/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__format_npy_info info;
    if (by__format_npy_parse(&info, "f", data, size, &error) == BY_OK &&
        (info.offset > size || info.count * info.width != size - info.offset)) {
        abort();
    }
    return 0;
}
