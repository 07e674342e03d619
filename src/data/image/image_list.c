#include "data/image/image_list.h"

#include "data/image/image_remote.h"
#include "data/image/image_shard.h"

static by_status add_file(by__image_folder *f, const char *path, by_error *error)
{
    BY_TRY(by__reserve((void **)&f->files, &f->capacity, f->count + 1, sizeof *f->files, error));
    f->files[f->count] =
        (by__image_picture_file){.path = by__strdup(path), .label = -1, .number = f->count};
    if (f->files[f->count].path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    f->count++;
    return BY_OK;
}

by_status by__image_list(by__image_folder *f, const char *const *paths, size_t count, bool classes,
                         by_error *error)
{
    size_t shards;
    for (size_t i = 0; i<count; i += shards> 0 ? shards : 1) {
        const char *path = paths[i];
        bool is_remote = by__remote_is_folder(path);
        bool is_folder = is_remote || by__path_is_dir(path);
        shards = 0;
        while (!is_remote && i + shards < count && by__image_is_shard(paths[i + shards])) {
            shards++;
        }
        bool is_shard = shards > 0;
        if (classes && !is_folder && !is_shard) {
            return by_error_set(error, BY_ECONFIG,
                                "%s is no folder and no shard: folders of classes or shards, such "
                                "as %s, and files are not mixed",
                                path, paths[0]);
        }
        BY_TRY(is_remote    ? by__image_remote_add(f, path, classes, error)
               : is_shard   ? by__image_shard_add_all(f, paths + i, shards, classes, error)
               : !is_folder ? add_file(f, path, error)
               : classes    ? by__image_folder_add_classes(f, path, error)
                            : by__image_folder_add(f, path, error));
    }
    if (classes) {
        by__image_folder_mix(f);
    }
    return f->count > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s has no picture (.png, .jpg, .jpeg, .webp)%s",
                              paths[0], f->ignored > 0 ? ", but other files" : "");
}
