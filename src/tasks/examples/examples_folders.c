/* Images from folders, one of each class, and from files that are named one by one. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire/url_hide.h"
#include "data/image/image_list.h"
#include "data/image/image_shard.h"
#include "tasks/examples/examples.h"

bool by__task_examples_are_folders(const by_string_list *images)
{
    return images->count > 0 &&
           (by__path_is_dir(images->items[0]) || by__remote_is_folder(images->items[0]) ||
            by__image_is_shard(images->items[0]));
}

static by_example_name name_of(const by__task_examples *d, const by__image_picture_file *file,
                               uint64_t index)
{
    const char *sample = file->range.sample == NULL ? "" : file->range.sample;
    return (by_example_name){.index = index,
                             .file = file->shown == NULL ? file->path : file->shown,
                             .sample = d->has_samples ? sample : NULL};
}

void by__task_examples_name(const by_task_data *data, uint64_t index, by_example_name *out)
{
    const by__task_examples *d = (const by__task_examples *)data;
    if (d->is_predicted && index < d->folder.count) {
        *out = name_of(d, &d->folder.files[index], d->folder.files[index].number);
    }
    if (index < d->windows.named) {
        by__task_examples_name_window(out, d, index);
    }
}

void by__task_examples_name_trained(const by_task_data *data, uint64_t index, by_example_name *out)
{
    const by__task_examples *d = (const by__task_examples *)data;
    *out = d->train != NULL && index < d->folder.count ? name_of(d, &d->folder.files[index], index)
                                                       : (by_example_name){.index = index};
}

/* The classes: those of the first set, of the config, or of the weights' config.json. */
static by_status fix_classes(by__image_folder *f, const by__task_examples *d, by_error *error)
{
    const by_string_list *own = &d->keys->label_names;
    const by_string_list *names = own->count > 0 ? own : &d->described;
    if (d->folder.class_count > 0) {
        return by__image_folder_fix(f, d->folder.classes, d->folder.class_count, error);
    }
    return names->count > 0 ? by__image_folder_fix(f, names->items, names->count, error) : BY_OK;
}

static by_status open_files(by_array_set **out, const by__task_examples *d,
                            const by__image_folder *f, bool classes, by_error *error)
{
    const char **paths;
    int32_t *labels = NULL;
    by_image_range *ranges = NULL;
    bool in_shards = false;
    by_status status = by__alloc((void **)&paths, f->count, sizeof *paths, "paths", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&labels, f->count, sizeof *labels, "labels", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&ranges, f->count, sizeof *ranges, "ranges", error);
    }
    for (size_t i = 0; i < f->count && status == BY_OK; i++) {
        paths[i] = f->files[i].path;
        ranges[i] = f->files[i].range;
        in_shards = in_shards || ranges[i].size > 0 || ranges[i].problem != NULL;
        labels[i] = f->files[i].label;
    }
    const by_image_files files = {.images = paths,
                                  .image_count = f->count,
                                  .classes = classes ? labels : NULL,
                                  .ranges = in_shards ? ranges : NULL,
                                  .skip = d->skip_files,
                                  .fit = d->fit.height > 0 ? &d->fit : NULL,
                                  .on_use = d->on_use,
                                  .channels = d->channels,
                                  .remote = d->remote};
    if (status == BY_OK) {
        status = by_image_set_open(out, &files, error);
    }
    free(ranges);
    free(labels);
    free(paths);
    return status;
}

/* Takes the files out of the list that were left out of the set, whose damage has them in order. */
static void remove_damaged(by__image_folder *f, const by_array_set *set)
{
    size_t count;
    size_t next = 0;
    size_t kept = 0;
    const by_damage *damage = by_array_set_damage(set, &count);
    for (size_t i = 0; i < f->count; i++) {
        if (next < count && damage[next].begin == i) {
            by__image_folder_free_file(&f->files[i]);
            next++;
        } else {
            f->files[kept++] = f->files[i];
        }
    }
    f->count = kept;
}

/* Keeps how paths are shown that have what must not be. */
static by_status find_shown(by__image_folder *f, by_error *error)
{
    for (size_t i = 0; i < f->count; i++) {
        by__image_picture_file *file = &f->files[i];
        char *shown = by_remote_is(file->path) ? by__strdup(file->path) : NULL;
        if (shown == NULL && by_remote_is(file->path)) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a path");
        }
        if (shown != NULL) {
            by__url_hide(shown);
        }
        if (shown != NULL && strcmp(shown, file->path) == 0) {
            free(shown);
            shown = NULL;
        }
        file->shown = shown;
    }
    return BY_OK;
}

void by__task_examples_keep_folder(by__task_examples *d, by__image_folder *files,
                                   const by_array_set *set)
{
    remove_damaged(files, set);
    by__image_folder *kept = d->train != NULL && d->train != set ? &d->others : &d->folder;
    by__image_folder_free(kept);
    *kept = *files;
    for (size_t i = 0; i < kept->count && !d->has_samples; i++) {
        d->has_samples = kept->files[i].range.sample != NULL;
    }
    *files = (by__image_folder){0};
}

by_status by__task_examples_open_folders(by_array_set **out, by__task_examples *d,
                                         const by_string_list *images, bool classes,
                                         by_error *error)
{
    by__image_folder f = {0};
    by_status status = by__task_examples_reach(d, images, error);
    f.remote = d->remote;
    f.indexes = d->indexes;
    if (status == BY_OK && classes) {
        status = fix_classes(&f, d, error);
    }
    if (status == BY_OK) {
        status =
            by__image_list(&f, (const char *const *)images->items, images->count, classes, error);
    }
    if (status == BY_OK) {
        status = find_shown(&f, error);
    }
    if (status == BY_OK) {
        status = open_files(out, d, &f, classes, error);
    }
    if (status != BY_OK) {
        by__image_folder_free(&f);
        return status;
    }
    by__task_examples_keep_folder(d, &f, *out);
    return BY_OK;
}

by_status by__task_examples_describe_folders(by__task_examples *d, by_error *error)
{
    enum { SHOWN = 12 };
    const by__image_folder *f = &d->folder;
    by_string text = {0};
    by_string_format(&text, "%zu pictures of %zu classes (", f->count, f->class_count);
    for (size_t c = 0; c < f->class_count && c < SHOWN; c++) {
        size_t count = 0;
        for (size_t i = 0; i < f->count; i++) {
            count += f->files[i].label == (int32_t)c;
        }
        by_string_format(&text, "%s%s %zu", c > 0 ? ", " : "", f->classes[c], count);
    }
    by__string_append(&text, f->class_count > SHOWN ? ", ...)" : ")");
    if (f->ignored > 0) {
        by_string_format(&text, "; %zu other files are ignored", f->ignored);
    }
    free(d->summary);
    d->summary = NULL;
    BY_TRY(by__string_release(&text, &d->summary, error));
    d->base.summary = d->summary;
    return BY_OK;
}

by_status by__task_examples_keep_classes(const by__task_examples *d, by_config *config,
                                         by_error *error)
{
    by__task_examples_keys *keys =
        by__config_kind_own(config->task.own, &by__task_row_of(d->base.task)->kind);
    by_string_list *names = &keys->label_names;
    if (d->folder.class_count == 0 || names->count > 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&names->items, d->folder.class_count, sizeof *names->items,
                     "the config", error));
    for (size_t i = 0; i < d->folder.class_count; i++) {
        names->items[i] = by__strdup(d->folder.classes[i]);
        if (names->items[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: the config");
        }
        names->count = i + 1;
    }
    return BY_OK;
}
