/* Hugging Face's index of shards: which file has which tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/storage.h"

void by__checkpoint_index_free(by__checkpoint_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        free(index->items[i].tensor);
        free(index->items[i].file);
    }
    free(index->items);
    *index = (by__checkpoint_index){0};
}

static by_status read_index_items(by__checkpoint_index *out, const char *path, json_t *map,
                                  by_error *error)
{
    if (!json_is_object(map) || json_object_size(map) == 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: expected an object \"weight_map\" from tensor names to files",
                            path);
    }
    BY_TRY(by__alloc((void **)&out->items, json_object_size(map), sizeof *out->items, "shard index",
                     error));
    for (void *i = json_object_iter(map); i != NULL; i = json_object_iter_next(map, i)) {
        const char *tensor = json_object_iter_key(i);
        const char *file = json_string_value(json_object_iter_value(i));
        if (file == NULL || !by__checkpoint_plain_name(file)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: weight_map '%.200s': expected the name of a file next to the "
                                "index",
                                path, tensor);
        }
        by__checkpoint_index_item *item = &out->items[out->count++];
        item->tensor = by__strdup(tensor);
        item->file = by__strdup(file);
        if (item->tensor == NULL || item->file == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: shard index");
        }
    }
    return BY_OK;
}

by_status by__checkpoint_index_parse(by__checkpoint_index *out, const char *path, const char *text,
                                     size_t length, by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, path, text, length, JSON_REJECT_DUPLICATES, error));
    by__checkpoint_index index = {0};
    by_status status = read_index_items(&index, path, json_object_get(root, "weight_map"), error);
    json_decref(root);
    if (status != BY_OK) {
        by__checkpoint_index_free(&index);
        return status;
    }
    *out = index;
    return BY_OK;
}
