/* Any bytes as model.slices.json: refused or taken, and what is taken prints to text that is taken
 * again and means the same. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__checkpoint_slice_index first;
    by__checkpoint_slice_index second;
    by_error error;
    char *printed;
    size_t length;
    if (by__checkpoint_slice_index_parse(&first, "model.slices.json", (const char *)data, size,
                                         &error) != BY_OK) {
        return 0;
    }
    if (by__checkpoint_slice_index_print(&first, &printed, &length, &error) != BY_OK ||
        by__checkpoint_slice_index_parse(&second, "model.slices.json", printed, length, &error) !=
            BY_OK ||
        second.count != first.count || second.slice_count != first.slice_count) {
        abort();
    }
    free(printed);
    by__checkpoint_slice_index_free(&second);
    by__checkpoint_slice_index_free(&first);
    return 0;
}
