/* IDX and npy arrays of any shape: what is taken describes exactly the file, and converts or is
 * refused. */
#include <stdlib.h>

#include "formats/array_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const by_dtype dtypes[] = {BY_U8, BY_I32, BY_F32};
    by_error error;
    by__format_array_view view;
    if (by__format_array_file_parse(&view, "f", data, size, &error) != BY_OK) {
        return 0;
    }
    size_t count = (size_t)by_shape_count(&view.shape);
    if (count * by__format_element_size(view.element) != (size_t)(data + size - view.data)) {
        abort();
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(dtypes); i++) {
        void *out = malloc(count * by_dtype_size(dtypes[i]) + 1);
        by_status status = by__format_array_convert(out, dtypes[i], &view, "f", &error);
        if (out == NULL || (status != BY_OK && (status != BY_EFORMAT || dtypes[i] == BY_F32))) {
            abort();
        }
        free(out);
    }
    return 0;
}
