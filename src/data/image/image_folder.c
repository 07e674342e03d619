#include "data/image/image_folder.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/paths.h"

#define MAX_DEPTH 64 /* of nested folders */

bool by__image_is_picture_name(const char *name)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg", ".webp"};
    size_t n = strlen(name);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends); i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcasecmp(name + n - k, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A folder that is listed. */
typedef struct listing {
    by__image_folder *out;
    size_t root; /* bytes of the path that are not of the folder */
    int32_t label;
} listing;

by_status by__image_folder_add_file(by__image_folder *f, char *path, const char *within,
                                    int32_t label, by_error *error)
{
    by_status status =
        by__reserve((void **)&f->files, &f->capacity, f->count + 1, sizeof *f->files, error);
    if (status != BY_OK) {
        free(path);
        return status;
    }
    f->files[f->count] = (by__image_picture_file){.path = path,
                                                  .label = label,
                                                  .order = by__hash64(within, strlen(within)),
                                                  .number = f->count};
    f->count++;
    return BY_OK;
}

static by_status list(const listing *l, const char *path, int depth, by_error *error);

/* Adds the files of a folder, or what is in its folders. */
static by_status list_kind(const listing *l, const char *path, char **names, size_t count,
                           bool folders, int depth, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char *child;
        BY_TRY(by__path_make(&child, path, names[i], error));
        bool hidden = names[i][0] == '.';
        bool is_folder = !hidden && by__path_is_dir(child);
        by_status status = BY_OK;
        if (is_folder && folders) {
            status = list(l, child, depth + 1, error);
        } else if (!is_folder && !folders && !hidden && by__image_is_picture_name(names[i])) {
            BY_TRY(by__image_folder_add_file(l->out, child, child + l->root, l->label, error));
            continue;
        }
        l->out->ignored += !is_folder && !folders;
        free(child);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status list(const listing *l, const char *path, int depth, by_error *error)
{
    char **names;
    size_t count;
    if (depth > MAX_DEPTH) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: folders are nested over %d deep: does a link lead back?", path,
                            MAX_DEPTH);
    }
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = list_kind(l, path, names, count, false, depth, error);
    if (status == BY_OK) {
        status = list_kind(l, path, names, count, true, depth, error);
    }
    by__names_free(names, count);
    return status;
}

by_status by__image_folder_add(by__image_folder *out, const char *path, by_error *error)
{
    const listing l = {.out = out, .root = strlen(path), .label = -1};
    return list(&l, path, 0, error);
}

/* ---- classes ---- */

by_status by__image_folder_add_class(by__image_folder *f, const char *name, by_error *error)
{
    BY_TRY(by__reserve((void **)&f->classes, &f->class_capacity, f->class_count + 1,
                       sizeof *f->classes, error));
    f->classes[f->class_count] = by__strdup(name);
    if (f->classes[f->class_count] == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a class");
    }
    f->class_count++;
    return BY_OK;
}

by_status by__image_folder_fix(by__image_folder *out, char *const *names, size_t count,
                               by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        BY_TRY(by__image_folder_add_class(out, names[i], error));
    }
    out->fixed = true;
    return BY_OK;
}

by_status by__image_folder_class(int32_t *out, by__image_folder *f, const char *root,
                                 const char *name, by_error *error)
{
    const char *names[64];
    size_t i = 0;
    while (i < f->class_count && strcmp(f->classes[i], name) != 0) {
        i++;
    }
    *out = (int32_t)i;
    if (i < f->class_count) {
        return BY_OK;
    }
    if (!f->fixed) {
        return by__image_folder_add_class(f, name, error);
    }
    size_t count =
        f->class_count < BY_ARRAY_LENGTH(names) ? f->class_count : BY_ARRAY_LENGTH(names);
    for (size_t k = 0; k < count; k++) {
        names[k] = f->classes[k];
    }
    const char *near = strlen(name) < 64 ? by_nearest_name(name, names, count) : NULL;
    return by_error_set(error, BY_EFORMAT,
                        "%s/%s: the folder is none of the %zu classes of the training data%s%s%s",
                        root, name, f->class_count, near == NULL ? "" : "; did you mean '",
                        near == NULL ? "" : near, near == NULL ? "" : "'?");
}

/* Adds the pictures of one class. */
static by_status add_one(by__image_folder *f, const char *root, const char *name, const char *path,
                         by_error *error)
{
    listing l = {.out = f, .root = strlen(root)};
    size_t before = f->count;
    size_t others = f->ignored;
    BY_TRY(by__image_folder_class(&l.label, f, root, name, error));
    BY_TRY(list(&l, path, 1, error));
    if (f->count > before) {
        return BY_OK;
    }
    return f->ignored > others
               ? by_error_set(
                     error, BY_EFORMAT,
                     "%s: the class '%s' has no picture (.png, .jpg, .jpeg, .webp), but %zu other "
                     "files: convert them, or remove the folder",
                     path, name, f->ignored - others)
               : by_error_set(
                     error, BY_EFORMAT,
                     "%s: the class '%s' has no picture (.png, .jpg, .jpeg, .webp): add some, or "
                     "remove its folder",
                     path, name);
}

static by_status add_all(by__image_folder *f, const char *root, char **names, size_t count,
                         by_error *error)
{
    size_t folders = 0;
    for (size_t i = 0; i < count; i++) {
        char *path;
        BY_TRY(by__path_make(&path, root, names[i], error));
        bool is_class = names[i][0] != '.' && by__path_is_dir(path);
        by_status status = is_class ? add_one(f, root, names[i], path, error) : BY_OK;
        free(path);
        BY_TRY(status);
        folders += is_class;
        f->ignored += !is_class;
    }
    return folders > 0 ? BY_OK
                       : by_error_set(error, BY_EFORMAT,
                                      "%s: there are no folders of classes in it: put the pictures "
                                      "of each class into a folder of its own, whose name is the "
                                      "class",
                                      root);
}

by_status by__image_folder_add_classes(by__image_folder *out, const char *path, by_error *error)
{
    char **names;
    size_t count;
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = add_all(out, path, names, count, error);
    by__names_free(names, count);
    out->fixed = true;
    return status;
}

/* ---- order ---- */

static int compare_files(const void *a, const void *b)
{
    const by__image_picture_file *x = a;
    const by__image_picture_file *y = b;
    int names = x->order != y->order ? 0 : strcmp(x->path, y->path);
    return x->order != y->order ? (x->order > y->order) - (x->order < y->order)
           : names != 0         ? names
                                : (x->number > y->number) - (x->number < y->number);
}

void by__image_folder_mix(by__image_folder *folder)
{
    if (folder->count > 1) {
        qsort(folder->files, folder->count, sizeof *folder->files, compare_files);
    }
}

void by__image_folder_free_file(by__image_picture_file *file)
{
    free(file->path);
    free(file->shown);
    free((void *)(uintptr_t)file->range.sample);
    free((void *)(uintptr_t)file->range.problem);
}

void by__image_folder_free(by__image_folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        by__image_folder_free_file(&folder->files[i]);
    }
    by__names_free(folder->classes, folder->class_count);
    free(folder->files);
    *folder = (by__image_folder){0};
}
