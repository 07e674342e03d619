/* Examples in memory as the data of a task: images with labels, or the rows of a table.
 *
 * The config names files and the held-out part. This opens the files, learns from the training part
 * how to convert them to numbers (or loads that from a checkpoint), completes the config, makes
 * sources, and lists the files to keep with a checkpoint. A task adds its own keys, loss and
 * metrics. */
#ifndef BY_TASKS_EXAMPLES_H
#define BY_TASKS_EXAMPLES_H

#include "banyan/table.h"
#include "banyan/tokenizer.h"
#include "base/base.h"
#include "data/image/image_folder.h"
#include "data/loader/damage.h"
#include "data/loader/pixel_scales.h"
#include "formats/image/image_fit.h"
#include "remote/remote.h"
#include "tasks/origin_files.h"
#include "tasks/tasks.h"

/* The largest label that was read, and what has it. */
typedef struct by__task_top_label {
    int64_t label; /* -1: none was read */
    char name[400];
} by__task_top_label;

/* Values of the keys below: the first member of the struct of a kind that has them. */
typedef struct by__task_examples_keys {
    by_string_list images;
    by_string_list labels;
    by_string_list valid_images;
    by_string_list valid_labels;
    by_string_list label_names;
    int64_t unlabelled; /* the class in label maps that is none */
    char *format;
    int64_t shift;
    int64_t flip;
    by_string_list transforms;
    char *decode;
    int64_t shuffle_files;
    char *resize;
    char *resample;
    char *table;
    char *valid_table;
    by_string_list target;
    char *weight;
    by_string_list ignore;
    by_string_list category_columns;
    by_string_list number_columns;
    char *delimiter;
    char *decimal;
    char *split;
    char *train_rows;
    char *valid_rows;
    char *balance;
    char *draws;
    char *text_column;
    char *pair_column;     /* NULL in tasks without this key */
    char *positive_column; /* NULL in tasks without the keys of pairs */
    char *negative_column;
    int64_t max_tokens;
    char *series; /* NULL in tasks without the keys of windows */
    int64_t stride;
} by__task_examples_keys;

extern const by__config_key_list by__task_image_data_keys;
extern const by__config_key_list by__task_table_data_keys;
extern const by__config_key_list by__task_split_keys;
extern const by__config_key_list by__task_text_column_keys;
extern const by__config_key_list by__task_pair_column_keys;
extern const by__config_key_list by__task_window_keys;

/* Texts that have more tokens than a sample, of all that were read; or series with fewer rows than
 * a window. */
typedef struct by__task_examples_cut {
    uint64_t cut;
    uint64_t texts;
} by__task_examples_cut;

/* Texts of a column (examples_text.c). */
typedef struct by__task_examples_texts {
    by_tokenizer *tokenizer; /* NULL: there are none */
    char *json;              /* tokenizer.json */
    size_t json_length;
    char *settings; /* tokenizer_config.json, unless the origin has one */
    by__task_origin_files origin;
    int64_t context;           /* of the model */
    bool last;                 /* the model reads the state of the last token of a text alone */
    size_t before;             /* tokens that the tokenizer adds in front of a text */
    int64_t time;              /* tokens of each text; -1: not known yet */
    by__task_examples_cut cut; /* of files */
    by_array rows;             /* of pairs: the numbers of a micro-batch's rows, */
    int32_t *numbers;          /* and their memory */
} by__task_examples_texts;

/* Windows of series, of a model that reads these (examples_windows.c). */
typedef struct by__task_examples_windows {
    int64_t context; /* rows of one; 0: examples are rows */
    int64_t stride;  /* rows between the beginnings of two */
    bool all;        /* each series has one, as in a request */
    /* Of windows to predict: the table's row that ends each, and its series. */
    uint64_t named;      /* windows */
    uint64_t *last_rows; /* [named] from 0 on */
    int32_t *series_of;  /* [named]; NULL: there is one series */
    char **series;       /* [series_count] their names */
    size_t series_count;
} by__task_examples_windows;

/* The held-out pictures of a shard (examples_parts.c). */
typedef struct by__task_examples_shard by__task_examples_shard;

typedef struct by__task_examples {
    by_task_data base;
    const by__task_examples_keys *keys; /* of the config that was opened, which must outlive it */
    by_array_set *train;                /* all examples, or only those to train on */
    /* held-out examples if they are a separate set; NULL: they are part of train */
    by_array_set *valid;
    by_part train_part;
    by_part valid_part;
    uint64_t *train_rows; /* of these, if lists name them */
    uint64_t *valid_rows;
    double *draws;           /* of all examples of `train`: how often they are drawn; NULL: alike */
    char train_hash[33];     /* of all examples, the list of those to train on, and the draws */
    by_encoding *before;     /* of the checkpoint that is resumed; NULL: none */
    by_encoding *encoding;   /* of tables; NULL: images */
    by_column_type *targets; /* of tables: columns to predict, */
    const char **target_names; /* and their names alone */
    size_t target_count;
    by_output_metric *metrics;      /* of each of several targets */
    char **metric_names;            /* of these */
    by__loader_pixel_scales scales; /* of images */
    by_image_fit fit;               /* learned from their size, or set by the config */
    int64_t channels;               /* of a JPEG or PNG; 0: not fixed by the model */
    char *summary;                  /* of a table; NULL: none */
    char *learned;                  /* what was learned, as JSON */
    char learned_hash[33];
    char *reference;          /* of a table: the text of BY_DRIFT_FILE; NULL: none */
    by_string_list described; /* class names that config.json beside the weights has */
    const char **labels;      /* class names; NULL: none */
    size_t label_count;
    by__task_top_label top;
    char label_names[2][304];        /* of what has the labels of both sets, for messages */
    by__image_folder folder;         /* of images that were read from folders, or file by file; */
    by__image_folder others;         /* of the set that was opened second, to evaluate on */
    by__task_examples_shard *shards; /* of held-out pictures, each a part of base; or NULL */
    bool skip;                       /* damaged examples are skipped, */
    bool skip_files;                 /* and pictures that are files of their own */
    by__loader_damage damage;        /* and listed here */
    by__remote *remote;              /* reads paths that are URLs; NULL: none is */
    by_remote_options remote_options;
    char *indexes;     /* directory for those of shards; NULL: none are kept */
    bool on_use;       /* pictures are decoded when they are used */
    bool is_predicted; /* targets are placeholders, and do not count */
    bool has_samples;  /* some of the folder's files are in shards */
    by__task_examples_texts texts;
    by__task_examples_windows windows;
} by__task_examples;

/* Opens folders and files of images (examples_folders.c). Of the config's folders, each has one of
 * each class; of others only if `classes`. d->folder then has the files and classes of the first
 * set that was opened, d->others those of the second. */
bool by__task_examples_are_folders(const by_string_list *images);
by_status by__task_examples_open_folders(by_array_set **out, by__task_examples *d,
                                         const by_string_list *images, bool classes,
                                         by_error *error);
/* Sets where remote files are kept, and who is told how much of them has come
 * (examples_remote.c). */
void by__task_examples_set_remote(by__task_examples *d, const by_task_request *request);
/* Opens d->remote if one of the paths is a URL. */
by_status by__task_examples_reach(by__task_examples *d, const by_string_list *paths,
                                  by_error *error);
/* Opens a table, which may be remote. */
by_status by__task_examples_open_table(by_table **out, by__task_examples *d, const char *path,
                                       const by_table_options *options, by_error *error);
/* Opens images with the classes of their pixels: folders of pictures and of PNGs of equal names, or
 * files of both (examples_maps.c). */
by_status by__task_examples_open_maps(by_array_set **out, by__task_examples *d,
                                      const by_string_list *images, const by_string_list *labels,
                                      by_error *error);
/* Sets the summary to what is in the folders of the training data. */
by_status by__task_examples_describe_folders(by__task_examples *d, by_error *error);
/* Puts the classes of folders into the config, as data.label_names. */
by_status by__task_examples_keep_classes(const by__task_examples *d, by_config *config,
                                         by_error *error);
void by__task_examples_name(const by_task_data *data, uint64_t index, by_example_name *out);
/* Names a window to predict, below d->windows.named (examples_windows.c). */
void by__task_examples_name_window(by_example_name *out, const by__task_examples *d,
                                   uint64_t index);
/* Keeps the files of a set, less those that were left out of it; takes `files`. */
void by__task_examples_keep_folder(by__task_examples *d, by__image_folder *files,
                                   const by_array_set *set);
void by__task_examples_name_trained(const by_task_data *data, uint64_t index, by_example_name *out);
by_status by__task_examples_list(by_task_data *data, const by_config *config, uint64_t epoch,
                                 by_example_listed *report, void *user, by_error *error);
/* Makes the parts to train on and to evaluate on (examples_rows.c). valid_apart: the latter is a
 * set of its own. */
by_status by__task_examples_split(by__task_examples *d, const by_config *config, uint64_t examples,
                                  bool valid_apart, by_error *error);
/* Reads how often examples are drawn, if data.draws says it. */
by_status by__task_examples_read_draws(by__task_examples *d, uint64_t examples, by_error *error);
/* Sets d->train_hash. */
by_status by__task_examples_hash(by__task_examples *d, by_error *error);
/* Makes each of 2 to BY_TASK_PARTS shards of held-out pictures a part (examples_parts.c). */
by_status by__task_examples_find_parts(by__task_examples *d, by_error *error);
void by__task_examples_close_parts(by__task_examples *d);
/* Opens one pass over the parts, each in whole micro-batches. */
by_status by__task_examples_source_parts(by_source **out, by__task_examples *d,
                                         const by_config *config, by_error *error);
/* The functions of by_task that all tasks on examples have. */
by_status by__task_examples_open(by_task_data **out, const by_task_request *request,
                                 by_error *error);
void by__task_examples_close(by_task_data *data);
unsigned by__task_examples_knows(const by_config *config);
/* Sets sizes for timing without data: images of 1 x 28 x 28, or rows of 8 numbers, whichever the
 * model reads; 10 classes. */
void by__task_examples_assume(by_config *config);
/* Completes the sizes of an example and, unless given, of the model's output. */
by_status by__task_examples_complete(by_task_data *data, by_config *config, by_error *error);
by_status by__task_examples_source(by_source **out, by_task_data *data, const by_config *config,
                                   bool training, by_error *error);
by_status by__task_examples_set(const by_task_data *data, const by_task_examples *examples,
                                by_array_set **set, by_source **source, by_error *error);
by_status by__task_examples_plain(by_source **out, by_task_data *data, by_error *error);
void by__task_examples_pixels(const by_task_data *data, const by_array *images, size_t example,
                              uint8_t *out);
by_status by__task_examples_count_classes(by_task_data *data, const by_config *config,
                                          uint64_t epoch, size_t classes, uint64_t *trained,
                                          uint64_t *held_out, uint64_t *drawn, by_error *error);
by_status by__task_examples_order(by_task_data *data, const by_config *config, uint64_t epoch,
                                  by_epoch_order *out, by_error *error);
bool by__task_examples_column(const by_task_data *data, size_t i, by_column_type *out);
const by_encoding *by__task_examples_encoding(const by_task_data *data);
by_status by__task_examples_keep(by_task_data *data, const by_config *config, by_task_kept *out,
                                 by_error *error);
by_status by__task_examples_check(const by_task_data *data, const by_checkpoint *checkpoint,
                                  by_error *error);
/* The functions of a row of such a task that are the same for all; `open_examples` needs a
 * `predict`. */
#define BY__TASK_EXAMPLES                                                                          \
    .open = by__task_examples_open, .close = by__task_examples_close,                              \
    .knows = by__task_examples_knows, .assume = by__task_examples_assume,                          \
    .complete = by__task_examples_complete, .source = by__task_examples_source,                    \
    .plain = by__task_examples_plain, .pixels = by__task_examples_pixels,                          \
    .keep = by__task_examples_keep, .check = by__task_examples_check,                              \
    .name_example = by__task_examples_name, .name_trained = by__task_examples_name_trained,        \
    .list = by__task_examples_list, .order = by__task_examples_order,                              \
    .open_examples = by__task_examples_set, .column = by__task_examples_column,                    \
    .encoding = by__task_examples_encoding
/* by__task_examples_source for a part of a set. */
by_status by__task_examples_source_of(by_source **out, const by__task_examples *data,
                                      const by_array_set *set, const by_part *part, bool training,
                                      by_error *error);
/* Gives the arrays of a set to be predicted placeholder targets, "targets" of so many numbers or
 * (0) "labels", with `maps` one of each pixel. */
by_status by__task_examples_replace_targets(by_array_set **set, size_t numbers, bool maps,
                                            by_error *error);
/* Numbers that are predicted of an example. */
static inline size_t by__task_examples_numbers(const by__task_examples *d)
{
    return d->target_count > 1 ? d->target_count : 1;
}
/* Makes room for the metrics of each of several targets (examples_table.c). */
by_status by__task_examples_name_metrics(by__task_examples *d, by_error *error);
/* Returns true if training samples have two labels (data.transforms). */
bool by__task_examples_mixes(const by__task_examples_keys *keys);
/* Number of classes of the open labels: the largest plus one. 0: there are no labels. */
int64_t by__task_examples_classes(const by__task_examples *data);
/* Keeps the largest label of a set that was opened, and what has its labels (examples_labels.c).
 * `labels`: its files; none: those of the folder of the set. */
void by__task_examples_keep_top(by__task_examples *d, const by_array_set *set,
                                const by_string_list *labels);
/* Refuses a label of an image that is negative or none of the model's classes, or if their number
 * is to be that of the labels (outputs below 1), one so far from all others that it is no class. */
by_status by__task_examples_check_labels(const by__task_examples *d, int64_t outputs,
                                         by_error *error);
/* Says how many classes have no example, "" if all have some. */
by_status by__task_examples_doubt_labels(const by__task_examples *d, char **out, by_error *error);
/* Counts the targets of a batch for a model with an auxiliary loss, such as that of routers. */
void by__task_examples_count(by_graph *graph, const by_model_request *request, by_model *model);
/* BY_ECONFIG unless the model ends in an output. */
by_status by__task_examples_needs_output(const by_config *config, const by_model *model,
                                         by_error *error);

#endif
