/* npz archives: an array is a view of the archive or of what was unpacked, or refused; names of
 * arrays fit into their room. */
#include <stdlib.h>
#include <string.h>

#include "formats/npz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { LIMIT = 1 << 20 };
    static const char *const names[] = {"a", "labels"};
    by_error error;
    char listed[64];
    by__format_npz_names(listed, sizeof listed, data, size);
    if (strlen(listed) >= sizeof listed) {
        abort();
    }
    for (size_t i = 0; i < 2; i++) {
        by__format_array_view view;
        uint8_t *memory = NULL;
        if (by__format_npz_read(&view, &memory, "f", data, size, names[i], LIMIT, &error) !=
            BY_OK) {
            continue;
        }
        uint64_t sum = 0;
        size_t bytes = (size_t)by_shape_count(&view.shape) * by__format_element_size(view.element);
        for (size_t k = 0; k < bytes; k++) {
            sum += view.data[k];
        }
        if (bytes > LIMIT || sum > (uint64_t)bytes * 255) {
            abort();
        }
        free(memory);
    }
    return 0;
}
