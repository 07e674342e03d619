/* Any bytes as a safetensors file, and as a shard index: refused or taken, and what is taken is
 * within the bytes. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__safetensors list = {0};
    by__index index = {0};
    by_error error;
    if (by__safetensors_parse(&list, "fuzz.safetensors", data, size, &error) == BY_OK) {
        const uint8_t *end = data + size;
        for (size_t i = 0; i < list.count; i++) {
            uint64_t bytes = list.entries[i].end - list.entries[i].begin;
            if (list.entries[i].data < data || bytes > (uint64_t)(end - list.entries[i].data)) {
                abort();
            }
        }
        by__safetensors_free(&list);
    }
    if (by__index_parse(&index, "fuzz.index.json", (const char *)data, size, &error) == BY_OK) {
        for (size_t i = 0; i < index.count; i++) {
            if (strchr(index.items[i].file, '/') != NULL) {
                abort();
            }
        }
        by__index_free(&index);
    }
    return 0;
}
