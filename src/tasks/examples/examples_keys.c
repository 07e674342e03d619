/* The keys of examples in memory, and what a config tells without data. */
#include <string.h>

#include "tasks/examples/examples_open.h"

/* clang-format off: one row a key */
static const by__config_key image_keys[] = {
    {"data", "images", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, images), "[]",
     .help = "image files: IDX, npy u8 [N, H, W], [N, C, H, W] or [N, H, W, C], CIFAR binary, all "
             "optionally gzipped; an array of an archive, FILE.npz/NAME; single JPEG, PNG or WebP "
             "files; folders that have one folder of them "
             "for each class, whose name is the class; or shards of such pictures with labels: "
             "WebDataset tar, TFRecord of tf.train.Example, MDS"},
    {"data", "labels", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, labels), "[]",
     .help = "label files, one per image file (CIFAR files contain their labels); of task.kind "
             "segment a folder of PNGs for each folder of images, a file of COCO annotations "
             "(.json), SegmentationClass of PASCAL VOC for a list of it in images, or npy [N, H, "
             "W] for each array"},
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
    {"data", "decode", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, decode), "ahead",
     .choices = "ahead|use", .later = true,
     .help = "when pictures of folders and shards are decoded: ahead, into memory; use: each time "
             "they are used, by data.threads, which needs data.resize"},
    {"data", "shuffle_files", BY__KEY_INT, BY__OWN(by__task_examples_keys, shuffle_files), "0", 0,
     1e6, .later = true,
     .help = "with decode: use, draw pictures for a while from about this many files or shards, "
             "which are drawn at random themselves, so that few are in use at a time; 0: always "
             "from all"},
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
    {"data", "target", BY__KEY_TEXTS, BY__OWN(by__task_examples_keys, target), "\"\"",
     .plain_if_one = true, .help = "column to predict; of task.kind regress also a list of them"},
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

static const by__config_key window_keys[] = {
    {"data", "series", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, series), "\"\"", .later = true,
     .help =
         "of a model that reads series: column that tells which series a row belongs to; empty: "
         "there is one. The rows of a series are in the order of time"},
    {"data", "stride", BY__KEY_INT, BY__OWN(by__task_examples_keys, stride), "0", 0, BY__MI20,
     .later = true,
     .help = "rows from a window of model.context rows to the next one, whose target is that of "
             "its last row; 0: model.context, so that windows do not overlap"},
};
const by__config_key_list by__task_window_keys = BY__KEY_LIST(window_keys);

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
    {"data", "balance", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, balance), "none",
     .choices = "none|classes", .later = true,
     .help = "classes: an epoch draws as many training examples of each class, with repetitions"},
    {"data", "draws", BY__KEY_TEXT, BY__OWN(by__task_examples_keys, draws), "\"\"", .later = true,
     .help = "file with a number of at least 0 for each example, one a line, or an npy array of "
             "f32 or f64, in the order of `banyan data show CONFIG --list`: training examples are "
             "drawn "
             "in proportion to it; empty: alike"},
};
const by__config_key_list by__task_split_keys = BY__KEY_LIST(split_keys);
/* clang-format on */

const by__task_row *by__task_examples_row(const by_config *config)
{
    return (const void *)by__config_kind_named(config->task.own, config->task.kind);
}

unsigned by__task_examples_knows(const by_config *config)
{
    const by__task_examples_keys *keys =
        by__config_kind_own(config->task.own, &by__task_examples_row(config)->kind);
    const by_model_config *m = &config->model;
    bool is_image = strcmp(by_model_reads(m), "images") == 0;
    bool is_text = strcmp(by_model_reads(m), "tokens") == 0;
    bool is_series = strcmp(by_model_reads(m), "series") == 0;
    bool sized = is_series  ? m->channels > 0
                 : is_text  ? m->vocab > 0 && keys->max_tokens > 0
                 : is_image ? m->channels > 0 && m->image_height > 0 && m->image_width > 0
                            : m->numbers > 0 || (m->numbers == 0 && m->categories.count > 0);
    bool tables = keys->table != NULL; /* the task has keys of tables */
    bool named = by__task_examples_has_images(keys) || (tables && keys->table[0] != '\0');
    bool held_out = keys->valid_images.count > 0 || (tables && keys->valid_table[0] != '\0') ||
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
    const by__task_row *row = by__task_examples_row(config);
    const by__task_examples_keys *keys = by__config_kind_own(config->task.own, &row->kind);
    int64_t targets = keys->target.count > 1 ? (int64_t)keys->target.count : 1;
    assume_size(&m->outputs, row->classes ? 10 : targets);
    assume_size(&m->channels, 1);
    assume_size(&m->image_height, 28);
    assume_size(&m->image_width, 28);
    assume_size(&m->vocab, 30522);
    assume_size(&m->numbers, m->categories.count > 0 ? 0 : 8);
}
