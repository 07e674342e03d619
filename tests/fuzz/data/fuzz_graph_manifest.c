/* Manifests of packed graphs. */
#include "data/nodes/packed_arrays.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__nodes_manifest manifest;
    char page[BY__NODES_PAGE];
    if (by__nodes_manifest_parse(&manifest, "f", (const char *)data, size, &error) == BY_OK) {
        for (size_t i = 0; i < BY__NODES_ARRAYS; i++) {
            by__nodes_array_header(page, &manifest, (by__nodes_array)i);
        }
    }
    by__nodes_manifest_free(&manifest);
    return 0;
}
