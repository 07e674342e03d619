/* Folders of pictures: which files are in them, and in which class (image_folder.c). */
#ifndef BY_DATA_IMAGE_IMAGE_FOLDER_H
#define BY_DATA_IMAGE_IMAGE_FOLDER_H

#include "banyan/array_set.h"
#include "base/base.h"
#include "remote/remote.h"

typedef struct by__image_picture_file {
    char *path;
    char *shown;   /* the path as messages have it; NULL: as it is */
    int32_t label; /* index of its class; -1: none */
    uint64_t order;
    uint64_t number;      /* of it among all that were listed, from 0 */
    by_image_range range; /* in the file; its texts belong to the folder */
} by__image_picture_file;

/* Files of pictures, from one or more folders. {0} is empty. */
typedef struct by__image_folder {
    by__image_picture_file *files;
    size_t count;
    size_t capacity;
    char **classes; /* names */
    size_t class_count;
    size_t class_capacity;
    bool fixed;          /* no class is added to them */
    bool collects;       /* without classes, labels of shards that are texts name them */
    by__remote *remote;  /* reads paths that are URLs; borrowed, NULL: there are none */
    const char *indexes; /* directory for those of shards; borrowed, NULL: none are kept */
    size_t ignored;      /* files that are hidden, or no pictures by their names */
} by__image_folder;

/* Whether a name ends as those of pictures do. */
bool by__image_is_picture_name(const char *name);
/* Adds the pictures of a folder and the folders in it, files before folders, each by name. */
by_status by__image_folder_add(by__image_folder *out, const char *path, by_error *error);
/* Adds the picture of a path; label: the index of its class, -1: none. `within`: the part of the
 * path that decides the order. Takes the path, also on failure. */
by_status by__image_folder_add_file(by__image_folder *out, char *path, const char *within,
                                    int32_t label, by_error *error);
/* Adds a class. */
by_status by__image_folder_add_class(by__image_folder *folder, const char *name, by_error *error);
/* The index of a class by its name, which is added unless they are fixed; `root` is for
 * messages. */
by_status by__image_folder_class(int32_t *out, by__image_folder *folder, const char *root,
                                 const char *name, by_error *error);
/* Adds those of a folder that has one of each class, whose name is the class; the first folder
 * added says which there are, in the order of their names, unless they are fixed. BY_EFORMAT: there
 * are none, one has no picture, or is of no class that is fixed. */
by_status by__image_folder_add_classes(by__image_folder *out, const char *path, by_error *error);
/* Fixes the names of the classes, in order, before any folder is added. */
by_status by__image_folder_fix(by__image_folder *out, char *const *names, size_t count,
                               by_error *error);
/* Puts the files into an order that only their paths within the folders decide and that mixes the
 * classes, so that any stretch of it is a sample of all. */
void by__image_folder_mix(by__image_folder *folder);
void by__image_folder_free(by__image_folder *folder);
/* Frees what a file of the list owns. */
void by__image_folder_free_file(by__image_picture_file *file);

#endif
