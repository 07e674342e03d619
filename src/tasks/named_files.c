/* Finds files that a config names and that do not exist, before anything is read: like a wrong key,
 * a wrong name is never worth a retry. */
#include <string.h>

#include "banyan/path_hint.h"
#include "banyan/remote.h"
#include "config/schema.h"
#include "formats/npz.h"
#include "tasks/tasks.h"

typedef enum shape {
    PATH,
    PATH_OR_WORD,   /* a word has no slash and no dot */
    PATH_IS_WEIGHT, /* DIR=WEIGHT */
    NAME_IS_PATH    /* NAME=DIR */
} shape;

/* `first`: only a run that is not resumed reads it. `remote`: it may be a URL, which is asked for
 * when it is read. */
static const struct {
    const char *key;
    shape form;
    bool first;
    bool remote;
} keys[] = {
    {"data.text", PATH, false, true},
    {"data.train", PATH, false, false},
    {"data.mix", PATH_IS_WEIGHT, false, false},
    {"data.valid", PATH, false, false},
    {"data.valid_sets", NAME_IS_PATH, false, false},
    {"data.tokenizer", PATH_OR_WORD, true, false},
    {"data.images", PATH, false, true},
    {"data.labels", PATH, false, true},
    {"data.valid_images", PATH, false, true},
    {"data.valid_labels", PATH, false, true},
    {"data.prompts", PATH, false, false},
    {"data.table", PATH, false, true},
    {"data.valid_table", PATH, false, true},
    {"data.token_weights", PATH, false, false},
    {"data.valid_token_weights", PATH, false, false},
    {"data.train_rows", PATH, false, false},
    {"data.valid_rows", PATH, false, false},
    {"data.draws", PATH, false, false},
    {"model.from", PATH, true, false},
    {"lora.from", PATH, true, false},
    {"distill.teacher", PATH, false, false},
    {"distill.logits", PATH, false, false},
};

static by_status check_path(const by__config_entry *entry, shape form, bool remote,
                            const char *value, by_error *error)
{
    char path[4096];
    char near[BY_PATH_HINT];
    const char *equals = form == PATH_IS_WEIGHT ? strrchr(value, '=') : strchr(value, '=');
    const char *begin = form == NAME_IS_PATH && equals != NULL ? equals + 1 : value;
    size_t length =
        form == PATH_IS_WEIGHT && equals != NULL ? (size_t)(equals - value) : strlen(begin);
    if (length == 0 || length >= sizeof path ||
        (form == PATH_OR_WORD && strpbrk(value, "./") == NULL)) {
        return BY_OK;
    }
    memcpy(path, begin, length);
    path[length] = '\0';
    if (by__path_exists(path) || (remote && by_remote_is(path))) {
        return BY_OK;
    }
    size_t archive = by__format_npz_split(path);
    if (archive > 0) { /* whether it has the array is found out when it is read */
        path[archive] = '\0';
        if (by__path_exists(path)) {
            return BY_OK;
        }
    }
    if (by_remote_is(path)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: %s is read from a local path, and not from a URL: texts, tables, "
                            "pictures and their labels may be remote",
                            entry->origin == NULL ? "config" : entry->origin, entry->path);
    }
    return by_error_set(error, BY_ECONFIG, "%s: %s: there is no file or directory %s%s",
                        entry->origin == NULL ? "config" : entry->origin, entry->path, path,
                        by_path_hint(near, path));
}

by_status by__task_named_files_exist(const by_config *config, bool resumed, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        const by__config_entry *entry =
            by__config_entry_at((const by__config *)config, keys[i].key);
        if (entry == NULL || entry->origin == NULL || (resumed && keys[i].first)) {
            continue;
        }
        if (entry->key.type == BY__KEY_TEXT) {
            BY_TRY(
                check_path(entry, keys[i].form, keys[i].remote, *(char *const *)entry->at, error));
            continue;
        }
        const by_string_list *list = entry->at;
        for (size_t k = 0; k < list->count; k++) {
            if (list->items[k][0] == '\0') {
                return by_error_set(error, BY_ECONFIG, "%s: %s: a path in the list is empty",
                                    entry->origin, entry->path);
            }
            BY_TRY(check_path(entry, keys[i].form, keys[i].remote, list->items[k], error));
        }
    }
    return BY_OK;
}
