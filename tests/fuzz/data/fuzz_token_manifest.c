/* Manifests of packed tokens. */
#include "data/corpus/token_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__data_token_manifest manifest;
    if (by__data_token_manifest_parse(&manifest, "f", (const char *)data, size, &error) == BY_OK) {
        by__data_token_manifest_free(&manifest);
    }
    return 0;
}
