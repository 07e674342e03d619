#include "data/image/image_remote.h"

#include <stdlib.h>
#include <string.h>

#include "data/image/image_shard.h"

/* Whether a part of the path within the folder begins with a dot. */
static bool is_hidden(const char *within)
{
    return within[0] == '.' || strstr(within, "/.") != NULL;
}

static bool is_picture(const char *within)
{
    return !is_hidden(within) && by__image_is_picture_name(within);
}

/* Shards that lie directly in the folder, by their names. Pictures beside them would be left out
 * silently. */
static by_status add_shards(by__image_folder *out, const char *url, const by__remote_names *names,
                            size_t root, bool classes, size_t *found, by_error *error)
{
    const char **shards;
    const char *other = NULL;
    BY_TRY(by__alloc((void **)&shards, names->count, sizeof *shards, "shards", error));
    *found = 0;
    for (size_t i = 0; i < names->count; i++) {
        const char *within = names->urls[i] + root;
        if (strchr(within, '/') == NULL && by__image_is_shard(names->urls[i])) {
            shards[(*found)++] = names->urls[i];
        } else if (is_picture(within)) {
            other = within;
        }
    }
    by_status status = BY_OK;
    if (*found > 0 && other != NULL) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s has shards of pictures, and also %s: name the shards, or move "
                              "one of them out",
                              url, other);
    } else if (*found > 0) {
        out->ignored += names->count - *found;
        status = by__image_shard_add_all(out, shards, *found, classes, error);
    }
    free(shards);
    return status;
}

/* The class of a picture: the first folder of its path. -1: it lies beside the folders. */
static by_status class_of(int32_t *label, by__image_folder *out, const char *url,
                          const char *within, by_error *error)
{
    char *name;
    const char *slash = strchr(within, '/');
    *label = -1;
    if (slash == NULL) {
        return BY_OK;
    }
    name = by__strndup(within, (size_t)(slash - within));
    if (name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a class");
    }
    by_status status = by__image_folder_class(label, out, url, name, error);
    free(name);
    return status;
}

static by_status add_pictures(by__image_folder *out, const char *url, const by__remote_names *names,
                              size_t root, bool classes, by_error *error)
{
    size_t before = out->count;
    for (size_t i = 0; i < names->count; i++) {
        const char *within = names->urls[i] + root;
        int32_t label = -1;
        bool wanted = is_picture(within);
        if (wanted && classes) {
            BY_TRY(class_of(&label, out, url, within, error));
        }
        if (!wanted || (classes && label < 0)) {
            out->ignored++;
            continue;
        }
        char *path = by__strdup(names->urls[i]);
        if (path == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a path");
        }
        /* With the slash, as local paths have it: both orders are the same. */
        BY_TRY(by__image_folder_add_file(out, path, path + root - 1, label, error));
    }
    out->fixed = out->fixed || classes;
    return out->count > before || !classes
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s has no shards (.tar, .parquet, .tfrecord, .mds) and no folders "
                              "of pictures "
                              "(.png, .jpg, .jpeg), one for each class",
                              url);
}

by_status by__image_remote_add(by__image_folder *out, const char *url, bool classes,
                               by_error *error)
{
    by__remote_names names = {0};
    size_t shards = 0;
    size_t root = strlen(url) + (url[strlen(url) - 1] != '/');
    by_status status = by__remote_list(&names, out->remote, url, error);
    if (status == BY_OK) {
        status = add_shards(out, url, &names, root, classes, &shards, error);
    }
    if (status == BY_OK && shards == 0) {
        status = add_pictures(out, url, &names, root, classes, error);
    }
    by__remote_names_free(&names);
    return status;
}
