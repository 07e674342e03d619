/* Any bytes as a safetensors file, and as a shard index: refused or taken, and what is taken is
 * within the bytes. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const by__checkpoint_tensor_entry *const *)a)->name,
                  (*(const by__checkpoint_tensor_entry *const *)b)->name);
}

/* Weights in codes: whatever is taken can be read from end to end. */
static void read_codes(const by__checkpoint_safetensors *list)
{
    const by__checkpoint_tensor_entry **entries = calloc(list->count + 1, sizeof *entries);
    by__checkpoint_coded_entries coded = {0};
    by_error error;
    if (entries == NULL) {
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        entries[i] = &list->entries[i];
    }
    qsort(entries, list->count, sizeof *entries, by_name);
    if (by__checkpoint_coded_entries_make(&coded, entries, list->count, "fuzz", NULL, &error) ==
        BY_OK) {
        for (size_t i = 0; i < coded.own_count; i++) {
            const by__coded *c = &coded.coded[i].coded;
            float sum = by__coded_at(c, 0, 0) + by__coded_at(c, c->n - 1, c->k - 1);
            if (sum > 3e38f && sum < 2e38f) { /* so that it is computed */
                abort();
            }
        }
        by__checkpoint_coded_entries_free(&coded);
    }
    free(entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__checkpoint_safetensors list = {0};
    by__checkpoint_index index = {0};
    by_error error;
    if (by__checkpoint_safetensors_parse(&list, "fuzz.safetensors", data, size, &error) == BY_OK) {
        const uint8_t *end = data + size;
        for (size_t i = 0; i < list.count; i++) {
            uint64_t bytes = list.entries[i].end - list.entries[i].begin;
            if (list.entries[i].data < data || bytes > (uint64_t)(end - list.entries[i].data)) {
                abort();
            }
        }
        read_codes(&list);
        by__checkpoint_safetensors_free(&list);
    }
    if (by__checkpoint_index_parse(&index, "fuzz.index.json", (const char *)data, size, &error) ==
        BY_OK) {
        for (size_t i = 0; i < index.count; i++) {
            if (strchr(index.items[i].file, '/') != NULL) {
                abort();
            }
        }
        by__checkpoint_index_free(&index);
    }
    return 0;
}
