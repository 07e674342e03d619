/* tags.json of a run directory: tags that people give a run, {"KEY": "VALUE", ...}. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "track/track.h"

enum { max_tags_file = 1 << 20 };

static by_status tags_path(char **out, const char *run, by_error *error)
{
    *out = by__path_join(run, "tags.json");
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path") : BY_OK;
}

static by_status parse_tags(json_t **out, const char *path, const char *text, size_t length,
                            by_error *error)
{
    json_t *root;
    const char *key;
    json_t *value;
    BY_TRY(by__json_parse(&root, path, text, length, JSON_REJECT_DUPLICATES, error));
    bool good = json_is_object(root);
    json_object_foreach(root, key, value)
    {
        good = good && json_is_string(value);
    }
    if (!good) {
        json_decref(root);
        return by_error_set(error, BY_EFORMAT,
                            "%s: expected an object of strings; remove the file to lose the tags",
                            path);
    }
    *out = root;
    return BY_OK;
}

/* Reads the tags of a run; an empty object if there are none. */
static by_status read_tags(json_t **out, const char *path, by_error *error)
{
    char *text = NULL;
    size_t length;
    if (!by__path_exists(path)) {
        *out = json_object();
        return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: tags") : BY_OK;
    }
    BY_TRY(by__file_read(&text, &length, path, max_tags_file, error));
    by_status status = parse_tags(out, path, text, length, error);
    free(text);
    return status;
}

by_status by_tags_read(by_tag_list *out, const char *run, by_error *error)
{
    by_tag_list list = {0};
    char *path;
    json_t *root = NULL;
    const char *key;
    json_t *value;
    BY_TRY(tags_path(&path, run, error));
    by_status status = read_tags(&root, path, error);
    free(path);
    BY_TRY(status);
    status =
        by__alloc((void **)&list.items, json_object_size(root), sizeof *list.items, "tags", error);
    json_object_foreach(root, key, value)
    {
        if (status == BY_OK) {
            by_tag *tag = &list.items[list.count++];
            tag->key = by__strdup(key);
            tag->value = by__strdup(json_string_value(value));
            status = tag->key == NULL || tag->value == NULL
                         ? by_error_set(error, BY_EMEMORY, "out of memory: tags")
                         : BY_OK;
        }
    }
    json_decref(root);
    if (status != BY_OK) {
        by_tag_list_free(&list);
        return status;
    }
    *out = list;
    return BY_OK;
}

by_status by_tags_set(const char *run, const char *key, const char *value, by_error *error)
{
    char *path;
    json_t *root = NULL;
    if (key[0] == '\0' || !by__utf8_valid(key, strlen(key)) ||
        (value != NULL && !by__utf8_valid(value, strlen(value)))) {
        return by_error_set(error, BY_EARG, "a tag needs a name, and both are UTF-8");
    }
    BY_TRY(tags_path(&path, run, error));
    int lock = by__track_directory_lock(run); /* against others that change tags */
    by_status status = read_tags(&root, path, error);
    if (status == BY_OK) {
        int failed = 0;
        if (value == NULL) {
            (void)json_object_del(root, key);
        } else {
            failed = json_object_set_new(root, key, json_string(value));
        }
        char *text = failed != 0 ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
        status = text == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: tags")
                              : by__file_write(path, text, strlen(text), error);
        free(text);
        json_decref(root);
    }
    by__track_directory_unlock(lock);
    free(path);
    return status;
}

void by_tag_list_free(by_tag_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].key);
        free(list->items[i].value);
    }
    free(list->items);
    *list = (by_tag_list){0};
}
