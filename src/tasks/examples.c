/* Examples in memory: opens images or a table, completes the config, and makes sources. */
#include "tasks/examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/train_events.h"
#include "data/table/encoding.h"
#include "data/transform/transform.h"
#include "tasks/examples_learned.h"
#include "tasks/held_out.h"
#include "tasks/references.h"

/* clang-format off: one row a key */
static const by__config_key image_keys[] = {
    {"data", "images", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, images), "[]",
     .help =
         "image files: IDX, npy u8 [N, H, W], [N, C, H, W] or [N, H, W, C], CIFAR binary, all "
         "optionally gzipped; single JPEG or PNG files; or folders that have one folder of them "
         "for each class, whose name is the class"},
    {"data", "labels", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, labels), "[]",
     .help = "label files, one per image file (CIFAR files contain their labels)"},
    {"data", "valid_images", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, valid_images), "[]",
     .help = "image files to evaluate on, instead of valid_fraction"},
    {"data", "valid_labels", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, valid_labels), "[]",
     .help = "label files of valid_images"},
    {"data", "label_names", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, label_names), "[]",
     .help = "names of the classes, in order from 0; of folders: the names of theirs, in order"},
    {"data", "format", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, format), "auto",
     .choices = "auto|cifar10|cifar100",
     .help = "file format; auto: IDX or npy, recognized by their first bytes"},
    {"data", "shift", BY__KEY_INT, BY__OWN(by__task_examples_keys, shift), "0", 0, 65535,
     .help = "augmentation: shift training images by up to this many pixels along each axis, at "
             "random"},
    {"data", "flip", BY__KEY_SWITCH, BY__OWN(by__task_examples_keys, flip), "false",
     .help = "augmentation: mirror half of the training images left to right, at random"},
    {"data", "transforms", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, transforms), "[]",
     .later = true,
     .help = "augmentation of training images, in this order, instead of shift and flip: a list of "
             "NAME or NAME=VALUE:VALUE..., such as `[shift=2, flip=0.5]`; docs/images.md has the "
             "names"},
    {"data", "resize", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, resize), "none",
     .choices = "none|crop|stretch",
     .help = "resize images to model.image_height x model.image_width, here and wherever the model "
             "is used: crop scales the shorter side to the larger of the two and takes the center; "
             "stretch scales each side separately"},
    {"data", "resample", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, resample), "bilinear",
     .choices = "bilinear|bicubic", .help = "resampling filter, antialiased as Pillow's"},
};
const by__config_key_list by__task_image_data_keys = BY__KEY_LIST(image_keys);

static const by__config_key table_keys[] = {
    {"data", "table", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, table), "\"\"",
     .help =
         "CSV file (optionally gzipped) whose first row has the column names, a Parquet file, "
         "JSON lines of rows (.jsonl, .ndjson), or a directory of Parquet files or of JSON lines"},
    {"data", "valid_table", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, valid_table), "\"\"",
     .help = "table to evaluate on, instead of valid_fraction"},
    {"data", "target", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, target), "\"\"",
     .help = "column to predict"},
    {"data", "weight", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, weight), "\"\"", .later = true,
     .help =
         "column of numbers of at least 0, the weights of rows in loss and metrics: the loss of "
         "a batch is divided by the sum of its weights; empty: all weigh 1"},
    {"data", "ignore", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, ignore), "[]",
     .help = "columns that are not used as features"},
    {"data", "category_columns", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, category_columns),
     "[]", .help = "numeric columns to treat as categories"},
    {"data", "number_columns", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, number_columns), "[]",
     .help = "columns to treat as numbers whatever share of their cells is: any other text is an "
             "error, or with corrupt: skip a damaged row"},
    {"data", "delimiter", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, delimiter), "auto",
     .choices = "auto|comma|semicolon|tab|pipe",
     .help = "separator of the cells of CSV files; auto: found in their first rows"},
    {"data", "decimal", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, decimal), "auto",
     .choices = "auto|point|comma",
     .help = "mark in front of the fraction of a number in CSV files; auto: a comma where the "
             "separator is another one and the numbers show it"},
};
const by__config_key_list by__task_table_data_keys = BY__KEY_LIST(table_keys);

static const by__config_key split_keys[] = {
    {"data", "split", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, split), "last",
     .choices = "last|random",
     .help = "examples that valid_fraction holds out: the last ones, or random ones drawn with the "
             "seed"},
    {"data", "train_rows", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, train_rows), "\"\"",
     .later = true,
     .help = "file with the numbers, from 0, of the examples to train on: one a line, or an npy "
             "array of integers; empty: all that are not held out"},
    {"data", "valid_rows", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, valid_rows), "\"\"",
     .later = true,
     .help = "the same of the examples to evaluate on, instead of valid_fraction and split"},
};
const by__config_key_list by__task_split_keys = BY__KEY_LIST(split_keys);
/* clang-format on */

/* The row of a config's task, whose first member the kind is; NULL: the config was not opened with
 * the tasks' keys. Not looked up in the table of tasks, which is above. */
static const by__task_row *row_of(const by_config *config)
{
    return (const void *)by__config_kind_named(config->task.own, config->task.kind);
}

static bool has_images(const by__task_examples_keys *keys)
{
    return keys->images.count > 0;
}

unsigned by__task_examples_knows(const by_config *config)
{
    const by__task_examples_keys *keys =
        by__config_kind_own(config->task.own, &row_of(config)->kind);
    const by_model_config *m = &config->model;
    bool is_image = strcmp(by_model_reads(m), "images") == 0;
    bool sized = is_image ? m->channels > 0 && m->image_height > 0 && m->image_width > 0
                          : m->numbers > 0 || (m->numbers == 0 && m->categories.count > 0);
    bool named = has_images(keys) || keys->table[0] != '\0';
    bool held_out = keys->valid_images.count > 0 || keys->valid_table[0] != '\0' ||
                    keys->valid_rows[0] != '\0' || config->data.valid_fraction > 0.0;
    return (sized && m->outputs > 0 ? (unsigned)BY_TASK_SIZES : 0) |
           (named ? (unsigned)BY_TASK_DATA : 0) |
           (named && held_out ? (unsigned)BY_TASK_HOLDS_OUT : 0);
}

static void assume_size(int64_t *size, int64_t value)
{
    *size = *size < 0 ? value : *size;
}

void by__task_examples_assume(by_config *config)
{
    by_model_config *m = &config->model;
    assume_size(&m->outputs, row_of(config)->classes ? 10 : 1);
    assume_size(&m->channels, 1);
    assume_size(&m->image_height, 28);
    assume_size(&m->image_width, 28);
    assume_size(&m->numbers, m->categories.count > 0 ? 0 : 8);
}

/* ---- sets ---- */

static uint64_t bytes_of(const by_array_set *set)
{
    size_t count;
    uint64_t bytes = 0;
    const by_array *arrays = set == NULL ? NULL : by_array_set_arrays(set, &count);
    for (size_t i = 0; arrays != NULL && i < count; i++) {
        bytes += (uint64_t)by_shape_count(&arrays[i].shape) * by_dtype_size(arrays[i].dtype);
    }
    return bytes;
}

/* What a thread of the loader of training data needs to transform images. */
static uint64_t scratch_bytes(const by__task_examples *d)
{
    const by__task_examples_keys *k = d->keys;
    const by_array *images = d->train == NULL ? NULL : by_array_set_find(d->train, "images");
    if (images == NULL || (k->transforms.count == 0 && k->shift == 0 && k->flip == 0)) {
        return 0;
    }
    by__transform_chain chain = {.size = {.channels = (size_t)images->shape.dim[1],
                                          .height = (size_t)images->shape.dim[2],
                                          .width = (size_t)images->shape.dim[3]}};
    (void)by__transform_add(&chain, by__task_examples_mixes(k) ? "mixup" : "flip", NULL);
    return by__transform_scratch(&chain);
}

/* Adds the skipped examples of a file of which `kept` were read. */
static by_status add_damage(by__task_examples *d, const by_damage *damage, size_t count,
                            uint64_t kept, by_error *error)
{
    uint64_t before = d->damage.total;
    for (size_t i = 0; i < count; i++) {
        BY_TRY(by__loader_damage_add(&d->damage, &damage[i], error));
    }
    d->base.damage = d->damage.items;
    d->base.damage_count = d->damage.count;
    d->base.damaged = d->damage.total;
    d->base.all += kept + d->damage.total - before;
    return BY_OK;
}

static by_status open_images(by_array_set **out, by__task_examples *d, const by_string_list *images,
                             const by_string_list *labels, bool classes, by_error *error)
{
    size_t count;
    const by_image_files files = {.format = d->keys->format,
                                  .images = (const char *const *)images->items,
                                  .image_count = images->count,
                                  .labels = (const char *const *)labels->items,
                                  .label_count = labels->count,
                                  .skip = d->skip,
                                  .fit = d->fit.height > 0 ? &d->fit : NULL,
                                  .channels = d->channels};
    if (by__task_examples_are_folders(images) && labels->count > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is a folder, whose folders are the classes: leave data.labels out",
                            images->items[0]);
    }
    BY_TRY(by__task_examples_are_folders(images)
               ? by__task_examples_open_folders(out, d, images, classes, error)
               : by_image_set_open(out, &files, error));
    const by_damage *damage = by_array_set_damage(*out, &count);
    return add_damage(d, damage, count, by_array_set_examples(*out), error);
}

/* Opens files and folders to predict. */
static by_status open_image_paths(by_array_set **out, by__task_examples *d,
                                  const by_task_request *r, by_error *error)
{
    char **paths;
    BY_TRY(by__alloc((void **)&paths, r->more_count + 1, sizeof *paths, "paths", error));
    paths[0] = (char *)(uintptr_t)r->path;
    for (size_t i = 0; i < r->more_count; i++) {
        paths[i + 1] = (char *)(uintptr_t)r->more[i];
    }
    const by_string_list all = {paths, r->more_count + 1};
    by_status status = by__task_examples_open_folders(out, d, &all, false, error);
    free(paths);
    BY_TRY(status);
    size_t count;
    const by_damage *damage = by_array_set_damage(*out, &count);
    return add_damage(d, damage, count, by_array_set_examples(*out), error);
}

/* Opens "IMAGES" or "IMAGES,LABELS". */
static by_status open_image_path(by_array_set **out, by__task_examples *d, const char *path,
                                 by_error *error)
{
    char *images = by__strdup(path);
    if (images == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    char *comma = by__path_exists(path) ? NULL : strchr(images, ',');
    char *labels = comma == NULL ? NULL : comma + 1;
    if (comma != NULL) {
        *comma = '\0';
    }
    const by_string_list first = {&images, 1};
    const by_string_list second = {&labels, labels == NULL ? 0 : 1};
    by_status status = open_images(out, d, &first, &second, true, error);
    free(images);
    return status;
}

/* Lists the columns whose kinds the config declares. The list has room for two more. */
static by_status list_types(by_column_type **out, size_t *count, const by__task_examples_keys *keys,
                            by_error *error)
{
    const by_string_list *lists[] = {&keys->category_columns, &keys->number_columns};
    static const by_column_kind kinds[] = {BY_COLUMN_CATEGORY, BY_COLUMN_NUMBER};
    size_t all = lists[0]->count + lists[1]->count;
    BY_TRY(by__alloc((void **)out, all + 2, sizeof **out, "column types", error));
    *count = 0;
    for (size_t l = 0; l < BY_ARRAY_LENGTH(lists); l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            (*out)[(*count)++] = (by_column_type){lists[l]->items[i], kinds[l]};
        }
    }
    return BY_OK;
}

static char separator_of(const by__task_examples_keys *keys)
{
    return strcmp(keys->delimiter, "comma") == 0       ? ','
           : strcmp(keys->delimiter, "semicolon") == 0 ? ';'
           : strcmp(keys->delimiter, "tab") == 0       ? '\t'
           : strcmp(keys->delimiter, "pipe") == 0      ? '|'
                                                       : '\0';
}

/* Opens a table: as it was learned or, before anything is, with the kinds that the config
 * declares, since weights may come without the config of their run. `own`: a file of the config,
 * whose separator that names; others may have another one. */
static by_status open_table(by_table **out, by__task_examples *d, const char *path,
                            const by_column_type *target, bool own, by_error *error)
{
    by_column_type *types;
    size_t count;
    const by__task_examples_keys *k = d->keys;
    BY_TRY(list_types(&types, &count, k, error));
    count = d->encoding == NULL ? count : 0;
    if (target != NULL) {
        types[count++] = *target;
    }
    if (target != NULL && own && k->weight[0] != '\0') {
        types[count++] = (by_column_type){k->weight, BY_COLUMN_NUMBER};
    }
    const by_table_options options = {.separator = own ? separator_of(k) : '\0',
                                      .decimal = strcmp(k->decimal, "comma") == 0   ? ','
                                                 : strcmp(k->decimal, "point") == 0 ? '.'
                                                                                    : '\0',
                                      .types = types,
                                      .type_count = count,
                                      .learned = d->encoding != NULL ? d->encoding : d->before,
                                      .relearn = d->encoding == NULL,
                                      .ignore = (const char *const *)k->ignore.items,
                                      .ignore_count = d->encoding == NULL ? k->ignore.count : 0,
                                      .skip = d->skip,
                                      .required = target == NULL ? NULL : target->name};
    by_status status = by_table_open(out, path, &options, error);
    free(types);
    if (status == BY_OK) {
        size_t parts;
        const by_damage *damage = by_table_damage(*out, &parts);
        status = add_damage(d, damage, parts, by_table_rows(*out), error);
        if (status != BY_OK) {
            by_table_close(out);
        }
    }
    return status;
}

/* ---- opening ---- */

/* Takes the size of images from the keys, unless a checkpoint sets it. */
static by_status take_fit(by__task_examples *d, const by_model_config *m, by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    if (d->learned != NULL || strcmp(k->resize, "none") == 0) {
        return BY_OK;
    }
    if (m->image_height < 1 || m->image_width < 1) {
        return by_error_set(
            error, BY_ECONFIG,
            "data.resize %s: set model.image_height and model.image_width, to which "
            "images are resized",
            k->resize);
    }
    d->fit = (by_image_fit){.resize =
                                strcmp(k->resize, "crop") == 0 ? BY_RESIZE_CROP : BY_RESIZE_STRETCH,
                            .resample = strcmp(k->resample, "bicubic") == 0 ? BY_RESAMPLE_BICUBIC
                                                                            : BY_RESAMPLE_BILINEAR,
                            .height = m->image_height,
                            .width = m->image_width};
    return BY_OK;
}

/* Refuses data.transforms that are unknown, or that are not all there is. */
static by_status check_transforms(const by__task_examples_keys *k, const by_config *config,
                                  by_error *error)
{
    by__transform_chain chain = {.count = 0};
    const char *where = by__config_where(config, "data.transforms", "data.transforms");
    if (k->transforms.count > 0 && (k->shift > 0 || k->flip != 0)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.transforms lists all augmentation: move data.%s into it, as "
                            "%s",
                            where, k->shift > 0 ? "shift" : "flip",
                            k->shift > 0 ? "shift=PIXELS" : "flip");
    }
    for (size_t i = 0; i < k->transforms.count; i++) {
        by_error why = {0};
        if (by__transform_add(&chain, k->transforms.items[i], &why) != BY_OK) {
            return by_error_set(error, BY_ECONFIG, "%s: data.transforms: %s", where, why.message);
        }
    }
    return BY_OK;
}

bool by__task_examples_mixes(const by__task_examples_keys *k)
{
    by__transform_chain chain = {.count = 0};
    for (size_t i = 0; i < k->transforms.count; i++) {
        if (by__transform_add(&chain, k->transforms.items[i], NULL) != BY_OK) {
            return false; /* refused where the data is opened */
        }
    }
    return by__transform_mixes(&chain);
}

static by_status open_config_images(by__task_examples *d, const by_task_request *r, by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    bool apart = k->valid_images.count > 0;
    BY_TRY(check_transforms(k, r->config, error));
    BY_TRY(take_fit(d, &r->config->model, error));
    BY_TRY(open_images(&d->train, d, &k->images, &k->labels, true, error));
    BY_TRY(by__task_examples_split(d, r->config, by_array_set_examples(d->train), apart, error));
    if (d->folder.class_count > 0) {
        BY_TRY(by__task_examples_describe_folders(d, error));
    }
    if (apart) {
        BY_TRY(open_images(&d->valid, d, &k->valid_images, &k->valid_labels, true, error));
        d->valid_part = by_part_whole(by_array_set_examples(d->valid));
    }
    return BY_OK;
}

static by_status apply_table(by_array_set **out, by__task_examples *d, const char *path,
                             const by_column_type *target, bool own, by_error *error)
{
    by_table *table;
    BY_TRY(open_table(&table, d, path, target, own, error));
    const char *weight =
        target != NULL && own && d->keys->weight[0] != '\0' ? d->keys->weight : NULL;
    by_status status =
        by__table_encoding_apply(d->encoding, table, target != NULL, weight, out, error);
    by_table_close(&table);
    return status;
}

/* Learns the encoding. That of the checkpoint which is resumed is kept if it is the same but for
 * how it spells values, as those of earlier versions are. */
static by_status learn_table(by__task_examples *d, const by_table *table,
                             const by_encoding_options *options, by_error *error)
{
    BY_TRY(by_encoding_learn(&d->encoding, table, &d->train_part, options, error));
    if (d->before != NULL && by__table_encoding_same(d->encoding, d->before)) {
        by_encoding_close(&d->encoding);
        d->encoding = d->before;
        d->before = NULL;
    }
    return BY_OK;
}

/* Gives a remark to who trains. */
static void remark(const by_task_request *r, const char *text)
{
    const by_train_options *to = r->progress;
    if (text[0] != '\0' && to != NULL && to->event != NULL) {
        const by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
        to->event(to->user, &event);
    }
}

/* Tells what the columns are, and which cells decided that. */
static by_status describe_table(by__task_examples *d, const by_table *table,
                                const by_encoding_options *options, const by_task_request *r,
                                by_error *error)
{
    char *doubts;
    BY_TRY(by_table_summary(table, options, &d->summary, error));
    d->base.summary = d->summary;
    BY_TRY(by_table_doubts(table, options, &doubts, error));
    remark(r, doubts);
    free(doubts);
    return BY_OK;
}

/* Lists the columns that are no features beside the target. */
static by_status list_ignored(const char ***out, size_t *count, const by__task_examples_keys *k,
                              by_error *error)
{
    BY_TRY(by__alloc((void **)out, k->ignore.count + 1, sizeof **out, "columns", error));
    *count = k->ignore.count;
    for (size_t i = 0; i < *count; i++) {
        (*out)[i] = k->ignore.items[i];
    }
    if (k->weight[0] != '\0') {
        (*out)[(*count)++] = k->weight;
    }
    return BY_OK;
}

static by_status open_config_table(by__task_examples *d, const by_task_request *r,
                                   const by_column_type *target, by_error *error)
{
    by_table *table;
    const char **ignored;
    by_encoding_options options = {.target = d->keys->target};
    const by__task_examples_keys *k = d->keys;
    bool apart = k->valid_table[0] != '\0';
    if (k->table[0] == '\0' || k->target[0] == '\0') {
        return by_error_set(
            error, BY_ECONFIG,
            "no data: set data.images=FILE and data.labels=FILE, or data.table=FILE "
            "and data.target=COLUMN");
    }
    if (r->resumed != NULL && d->encoding == NULL) {
        d->before = by__task_examples_read_encoding(r->resumed);
    }
    BY_TRY(open_table(&table, d, k->table, target, true, error));
    by_status status = list_ignored(&ignored, &options.ignore_count, k, error);
    if (status != BY_OK) {
        by_table_close(&table);
        return status;
    }
    options.ignore = ignored;
    status = by__task_examples_split(d, r->config, by_table_rows(table), apart, error);
    if (status == BY_OK && d->encoding == NULL) {
        status = learn_table(d, table, &options, error);
    }
    if (status == BY_OK && r->purpose == BY_TASK_TRAIN) {
        status = describe_table(d, table, &options, r, error);
    }
    if (status == BY_OK && r->purpose == BY_TASK_TRAIN) {
        status = by__task_reference_of_table(&d->reference, table, &d->train_part, ignored,
                                             options.ignore_count, error);
    }
    if (status == BY_OK) {
        status = by__table_encoding_apply(
            d->encoding, table, true, k->weight[0] == '\0' ? NULL : k->weight, &d->train, error);
    }
    by_table_close(&table);
    free(ignored);
    if (status == BY_OK && apart) {
        status = apply_table(&d->valid, d, k->valid_table, target, true, error);
        if (status == BY_OK) {
            d->valid_part = by_part_whole(by_array_set_examples(d->valid));
        }
    }
    return status;
}

/* Opens the data named by the request, to evaluate or predict. */
static by_status open_path(by__task_examples *d, const by_task_request *r,
                           const by_column_type *target, bool classes, by_error *error)
{
    bool with_targets = r->purpose != BY_TASK_PREDICT;
    const char *name = classes ? "labels" : "targets";
    bool folder = by__path_is_dir(r->path) || r->more_count > 0;
    if (d->encoding == NULL) {
        BY_TRY(folder && !with_targets ? open_image_paths(&d->valid, d, r, error)
                                       : open_image_path(&d->valid, d, r->path, error));
    } else {
        BY_TRY(apply_table(&d->valid, d, r->path, with_targets ? target : NULL, false, error));
    }
    d->valid_part = by_part_whole(by_array_set_examples(d->valid));
    d->is_predicted = !with_targets;
    return with_targets ? BY_OK : by__task_examples_replace_targets(&d->valid, name, error);
}

static by_status open_set(by__task_examples *d, const by_task_request *r, bool classes,
                          by_error *error)
{
    by_column_type target = {d->keys->target, classes ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER};
    bool images = has_images(d->keys);
    if (r->path != NULL && r->learned == NULL) {
        return by_error_set(error, BY_EARG,
                            "%s: other data than that of the config needs what the weights were "
                            "trained with (learned)",
                            r->path);
    }
    if (r->learned != NULL) {
        BY_TRY(by__task_examples_read_learned(d, r->learned, images, error));
        images = d->encoding == NULL;
    }
    if (d->encoding != NULL && target.name[0] == '\0' && by_encoding_target(d->encoding) != NULL) {
        target.name = by_encoding_target(d->encoding); /* weights without their run's config */
    }
    if (r->purpose == BY_TASK_PREDICT && r->path == NULL) {
        return r->learned != NULL
                   ? by__task_examples_name_labels(d, error)
                   : by_error_set(error, BY_EARG, "examples in memory need what was learned");
    }
    if (r->path != NULL) {
        BY_TRY(open_path(d, r, &target, classes, error));
    } else if (images) {
        BY_TRY(open_config_images(d, r, error));
    } else {
        BY_TRY(open_config_table(d, r, &target, error));
    }
    if (d->learned == NULL) {
        BY_TRY(by__task_examples_learn(d, error));
    }
    const char *array = classes ? "labels" : "targets";
    const by_array_set *set = d->train != NULL ? d->train : d->valid;
    return by_array_set_find(set, array) != NULL
               ? by__task_examples_name_labels(d, error)
               : by_error_set(
                     error, BY_ECONFIG, "%s: there are no labels: %s", by_array_set_name(set),
                     r->path == NULL ? "set data.labels=FILE" : "name both files, IMAGES,LABELS");
}

static by_status describe_held_out(by__task_examples *d, const by_task_request *r, by_error *error)
{
    char *doubts;
    BY_TRY(by__task_train_classes_check(d, error));
    d->base.held_out = by__task_train_held_out_how(d);
    BY_TRY(by__task_train_held_out_doubts(d, &doubts, error));
    remark(r, doubts);
    free(doubts);
    return BY_OK;
}

by_status by__task_examples_open(by_task_data **out, const by_task_request *request,
                                 by_error *error)
{
    by__task_examples *d;
    const by__task_row *row = row_of(request->config);
    if (row == NULL) {
        return by_error_set(error, BY_EARG, "task.kind %s: the config was not opened as one",
                            request->config->task.kind);
    }
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &row->task;
    d->keys = by__config_kind_own(request->config->task.own, &row->kind);
    d->channels = request->config->model.channels > 0 ? request->config->model.channels : 0;
    /* Predictions are matched to rows by number, and to pictures by the names of their files. */
    d->skip_files = strcmp(request->config->data.corrupt, "skip") == 0;
    d->skip = d->skip_files && request->purpose != BY_TASK_PREDICT;
    by_status status = open_set(d, request, row->classes, error);
    if (status == BY_OK && d->train != NULL) {
        status = by__task_examples_hash(d, error);
    }
    if (status == BY_OK && request->purpose == BY_TASK_TRAIN) {
        status = describe_held_out(d, request, error);
    }
    if (status != BY_OK) {
        by__task_examples_close(&d->base);
        return status;
    }
    d->base.train_examples = request->purpose == BY_TASK_TRAIN ? d->train_part.count : 0;
    d->base.valid_examples = d->valid_part.count;
    d->base.bytes = bytes_of(d->train) + bytes_of(d->valid) +
                    by__task_loader_threads(request->config) * scratch_bytes(d);
    *out = &d->base;
    return BY_OK;
}

void by__task_examples_close(by_task_data *data)
{
    by__task_examples *d = (by__task_examples *)data;
    by_array_set_close(&d->train);
    by_array_set_close(&d->valid);
    by_encoding_close(&d->before);
    by_encoding_close(&d->encoding);
    by__loader_damage_free(&d->damage);
    by__image_folder_free(&d->folder);
    for (size_t i = 0; i < d->described.count; i++) {
        free(d->described.items[i]);
    }
    free(d->described.items);
    by__loader_pixel_scales_free(&d->scales);
    free(d->train_rows);
    free(d->valid_rows);
    free(d->summary);
    free(d->learned);
    free(d->reference);
    free(d->labels);
    free(d);
}

/* ---- completion of the config ---- */

static by_status take_size(int64_t *size, int64_t have, const char *key, const char *set,
                           by_error *error)
{
    if (*size > 0 && *size != have) {
        return by_error_set(error, BY_ECONFIG,
                            "model.%s is %lld, but %s has %lld; leave it out to take the data's%s",
                            key, (long long)*size, set, (long long)have,
                            strncmp(key, "image_", 6) == 0 ? ", or resize with data.resize" : "");
    }
    *size = have;
    return BY_OK;
}

static by_status take_categories(by_model_config *m, const by__task_examples *d, const char *set,
                                 by_error *error)
{
    size_t count = by_encoding_categories(d->encoding);
    bool given = m->categories.count > 0;
    if (given && m->categories.count != count) {
        return by_error_set(error, BY_ECONFIG,
                            "model.categories has %zu sizes, but %s has %zu "
                            "columns of categories; leave it out",
                            m->categories.count, set, count);
    }
    if (!given && count > 0) {
        BY_TRY(by__alloc((void **)&m->categories.items, count, sizeof *m->categories.items,
                         "the config", error));
    }
    for (size_t i = 0; i < count; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "%zu", by_encoding_category_size(d->encoding, i));
        if (given && strcmp(m->categories.items[i], text) != 0) {
            return by_error_set(error, BY_ECONFIG,
                                "model.categories: column %zu has %s ids, but %s has %s", i,
                                m->categories.items[i], set, text);
        }
        if (!given) {
            m->categories.items[i] = by__strdup(text);
            m->categories.count = i + 1;
            if (m->categories.items[i] == NULL) {
                m->categories.count = i;
                return by_error_set(error, BY_EMEMORY, "out of memory: the config");
            }
        }
    }
    return BY_OK;
}

int64_t by__task_examples_classes(const by__task_examples *d)
{
    int64_t classes = (int64_t)d->label_count;
    const by_array_set *sets[2] = {d->train, d->valid};
    for (int s = 0; s < 2; s++) {
        const by_array *labels = sets[s] == NULL ? NULL : by_array_set_find(sets[s], "labels");
        for (int64_t i = 0; labels != NULL && i < labels->shape.dim[0]; i++) {
            int64_t label = ((const int32_t *)labels->data)[i];
            classes = label >= classes ? label + 1 : classes;
        }
    }
    return classes;
}

by_status by__task_examples_complete(by_task_data *data, by_config *config, by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    int64_t outputs = by__task_row_of(data->task)->classes ? by__task_examples_classes(d) : 1;
    by_model_config *m = &config->model;
    const by_array_set *set = d->train != NULL ? d->train : d->valid;
    const char *name = by_array_set_name(set);
    const char *reads = d->encoding == NULL ? "images" : "table";
    if (strcmp(by_model_reads(m), reads) != 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "model.kind %s reads %s, but the data is %s: choose a model that reads %s", m->kind,
            by_model_reads(m), d->encoding == NULL ? "images" : "a table", reads);
    }
    if (d->encoding == NULL) {
        const by_shape *shape = &by_array_set_find(set, "images")->shape;
        if ((size_t)shape->dim[1] != d->scales.channels) {
            return by_error_set(error, BY_ECONFIG,
                                "%s has images of %lld channels; those of the weights have %zu",
                                name, (long long)shape->dim[1], d->scales.channels);
        }
        BY_TRY(take_size(&m->channels, shape->dim[1], "channels", name, error));
        BY_TRY(take_size(&m->image_height, shape->dim[2], "image_height", name, error));
        BY_TRY(take_size(&m->image_width, shape->dim[3], "image_width", name, error));
    } else {
        if (m->numbers != 0 || by_encoding_numbers(d->encoding) != 0) {
            BY_TRY(take_size(&m->numbers, (int64_t)by_encoding_numbers(d->encoding), "numbers",
                             name, error));
        }
        BY_TRY(take_categories(m, d, name, error));
    }
    BY_TRY(by__task_examples_keep_classes(d, config, error));
    if (m->outputs < 1) {
        m->outputs = outputs;
    }
    if (m->outputs < outputs) {
        return by_error_set(error, BY_ECONFIG, "model.outputs is %lld, but %s has %lld",
                            (long long)m->outputs, name, (long long)outputs);
    }
    if (d->labels != NULL && (int64_t)d->label_count != m->outputs) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: there are names for %zu classes, but the model has %lld outputs",
                            name, d->label_count, (long long)m->outputs);
    }
    return by_config_resolve(config, error);
}

by_status by__task_examples_needs_output(const by_config *config, const by_model *model,
                                         by_error *error)
{
    return model->output != BY_NONE
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "task.kind %s needs a model of images or tables; model.kind %s reads "
                              "%s",
                              config->task.kind, config->model.kind,
                              by_model_reads(&config->model));
}

/* ---- sources and checkpoints ---- */

by_status by__task_examples_source(by_source **out, by_task_data *data, const by_config *config,
                                   bool training, by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    const by_array_set *set = training || d->valid == NULL ? d->train : d->valid;
    BY_UNUSED(config);
    return by__task_examples_source_of(out, d, set, training ? &d->train_part : &d->valid_part,
                                       training, error);
}

by_status by__task_examples_keep(by_task_data *data, const by_config *config, by_task_kept *out,
                                 by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    size_t files = 1;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = (by_task_kept){
        .files = {{.name = by__task_examples_learned_name(d),
                   .data = d->learned,
                   .size = strlen(d->learned)}},
        .file_count = 1,
        .values = {{.key = "train_hash", .kind = BY_VALUE_STRING, .as.string = d->train_hash},
                   {.key = "learned_hash", .kind = BY_VALUE_STRING, .as.string = d->learned_hash}},
        .value_count = 2,
        .eos = -1,
        .labels = d->labels,
        .label_count = d->label_count};
    if (d->reference != NULL) {
        out->files[files++] = (by_checkpoint_file){
            .name = BY_DRIFT_FILE, .data = d->reference, .size = strlen(d->reference)};
    }
    out->file_count = files;
    return BY_OK;
}

by_status by__task_examples_check(const by_task_data *data, const by_checkpoint *checkpoint,
                                  by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    const char *content;
    const char *learned;
    BY_TRY(by_checkpoint_value_string(checkpoint, "train_hash", &content, error));
    BY_TRY(by_checkpoint_value_string(checkpoint, "learned_hash", &learned, error));
    if (strcmp(content, d->train_hash) != 0 || strcmp(learned, d->learned_hash) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was trained on other data (%.8s, %.8s) than there is now (%.8s, "
                            "%.8s): files or what is held out have changed; restore them, or start "
                            "a new run",
                            by_checkpoint_path(checkpoint), content, learned, d->train_hash,
                            d->learned_hash);
    }
    return BY_OK;
}
