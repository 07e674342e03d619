/* Tasks: what a model is trained to do.
 *
 * A model yields values (banyan/model.h). A task defines their targets and their use: it opens the
 * data, completes a config with the sizes found in the data, adds the loss to the graph, computes
 * metrics, and defines what is stored with the weights. Trainer, loop, evaluation, checkpoints and
 * commands know no more of it. A task is one row, in a file of src/tasks/ or in a program of
 * one's own.
 */
#ifndef BANYAN_TASK_H
#define BANYAN_TASK_H

#include "banyan/checkpoint.h"
#include "banyan/comm.h"
#include "banyan/config.h"
#include "banyan/graph.h"
#include "banyan/model.h"
#include "banyan/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_task by_task;
typedef struct by_task_data by_task_data;
typedef struct by_evaluation by_evaluation;
struct by_train_options;

/* A sum over the held-out examples, from which metrics are made. */
typedef struct by_task_sum {
    const char *name; /* "correct" */
    /* Returns how many values it has, such as one for each class of config->model.outputs. NULL:
     * 1. */
    size_t (*count)(const by_task_data *data, const by_config *config);
} by_task_sum;

/* A measure of the quality of predictions. */
typedef struct by_metric {
    const char *name; /* "accuracy" */
    bool higher_is_better;
    int decimals; /* shown in progress lines */
    /* Computes it from the sums of a pass, in the order of the task's: sums[i] has the values of
     * the i-th. Loss and targets of the evaluation are already set. NaN: not defined for this
     * data. */
    double (*value)(const by_task_data *data, const double *const *sums,
                    const by_evaluation *evaluation);
} by_metric;

/* A metric of one of several outputs of a model, such as the rmse of one of several targets. */
typedef struct by_output_metric {
    const char *name; /* "rmse_price", also in events */
    size_t metric;    /* index in by_task.metrics */
    size_t output;
    double value; /* of the last evaluation; NaN: not defined for this data */
} by_output_metric;

/* Limits: metrics of a task, and files or values in a checkpoint. */
#define BY_TASK_METRICS 16
#define BY_TASK_FILES   8

/* Maximum number of named held-out parts. */
#define BY_TASK_PARTS 16

/* A named part of the held-out data. */
typedef struct by_task_part {
    const char *name;
    const char *key; /* name of its loss in events: "valid_loss_NAME" */
    uint64_t end;    /* index after its last sample in a pass over all parts */
    /* name in events of the task's first metric over it; NULL: that is not computed */
    const char *metric_key;
} by_task_part;

/* Loss over one part. */
typedef struct by_part_loss {
    const by_task_part *part;
    double loss;      /* mean over its targets */
    uint64_t targets; /* number of targets */
    double metric;    /* the task's first; NaN: not computed, or not defined */
} by_part_loss;

/* Result of an evaluation. */
struct by_evaluation {
    const by_task *task;
    double loss;                     /* mean over the targets that count; nats for cross-entropy */
    double metrics[BY_TASK_METRICS]; /* in the order of the task's;
                                        NaN: not defined for this data */
    uint64_t targets;                /* number of targets that counted */
    by_part_loss parts[BY_TASK_PARTS];
    size_t part_count;                      /* 0: the held-out data has no named parts */
    const by_output_metric *output_metrics; /* those of the data; NULL: there is one output */
    size_t output_metric_count;
};

/* What data is opened for. */
typedef enum by_task_purpose {
    BY_TASK_TRAIN = 0, /* training and held-out data */
    BY_TASK_EVALUATE,  /* held-out data only, or `path` */
    BY_TASK_PREDICT    /* `path`, without targets; NULL: for by_task.open_examples */
} by_task_purpose;

/* What a task should open. */
typedef struct by_task_request {
    by_task_purpose purpose;
    const by_config *config; /* sizes need not be known yet */
    const char *path;        /* data to evaluate or predict, instead of the config's; or NULL */
    bool test;               /* evaluate the part that is kept for a test (by_task.keeps_test) */
    /* With `test`: the config that the weights were trained with, if `config` keeps another part
     * for a test. by_task_open then returns BY_ECONFIG if they were trained on some of that
     * part, and tells `progress` if they were validated on some of it. NULL: it is not asked. */
    const by_config *trained;
    const char *const *more; /* [more_count]: further files or folders of images to predict */
    size_t more_count;
    /* To predict, instead of `path`: numbers of the nodes of a graph; NULL: all that there are. */
    const uint64_t *chosen; /* [chosen_count] */
    size_t chosen_count;
    bool graphs; /* to predict what by_task.open_graph opens: no file is read */
    /* Directory of weights from which the task reads what it learned from training data and saved
     * there (a tokenizer, scales of numbers). NULL: learn it now. */
    const char *learned;
    /* To train on: directory of a checkpoint of the run that is resumed. What is learned now is
     * compared with what is there. NULL: none. */
    const char *resumed;
    /* To train on: the ranks of the job, which may hold a part of the data each (by_task.fetch), in
     * use as long as the data is open; NULL: one. To plan memory without them: how many there are;
     * 0: one. */
    by_comm *comm;
    int ranks;
    /* Receives progress of long work and may stop it; may be NULL. */
    const struct by_train_options *progress;
    /* Asked by threads that read data as long as it is open, one at a time; returning true ends
     * what they wait for with BY_ESTOPPED. May be NULL. */
    bool (*stop)(void *user);
    void *user;
} by_task_request;

/* Open data of a task, the first member of the task's own struct. */
struct by_task_data {
    const by_task *task;
    uint64_t train_examples; /* for training, in the unit of by_task.examples; 0: none is open */
    uint64_t valid_examples; /* held out, or to predict; 0: none */
    /* Tokens that the weights to start from know: the others begin as the mean of their embeddings.
     * 0: they know all. */
    int64_t known_tokens;
    uint64_t bytes;         /* memory of it and its sources, without mapped files */
    uint64_t opening_bytes; /* peak memory while its sources are opened; may be 0 */
    /* Damaged parts that are left out (data.corrupt: skip); places in a file count from its first
     * example. `damaged` of `all` examples are affected. */
    const by_damage *damage;
    size_t damage_count;
    uint64_t damaged;
    uint64_t all;
    /* Named parts of the held-out data, each a whole number of micro-batches; by_task.source sets
     * their ends, and yields at most train.eval_batches micro-batches of each. part_count 0: there
     * are none. */
    by_task_part parts[BY_TASK_PARTS];
    size_t part_count;
    const char *summary; /* what the data is, in a line, for people; NULL: nothing to say */
    /* how the held-out examples were chosen, for people; NULL: nothing to say */
    const char *held_out;
    /* Metrics of each of several outputs, whose values by_task_metrics sets. `value` of a metric is
     * then that over all outputs, and the loss determines the best checkpoint, since it weighs
     * outputs alike whatever their units are. */
    by_output_metric *output_metrics;
    size_t output_metric_count; /* 0: there is one output */
    /* Names of several outputs, the fields of a prediction that `predict` reports in this order
     * after "index"; NULL, 0: there is one, "class" or "value". */
    const char *const *outputs;
    size_t output_count;
};

/* What a checkpoint stores for a task. Owned by the task data. */
typedef struct by_task_kept {
    by_checkpoint_file files[BY_TASK_FILES];
    size_t file_count;
    by_checkpoint_value values[BY_TASK_FILES];
    size_t value_count;
    int64_t eos; /* id of the end-of-text token; -1: none */
    /* config.json of the model that the run started from, whose ids of special tokens are kept
     * instead (by_model_config_keep_ids); NULL: none. */
    const char *origin_config;
    const char *const *labels; /* names of the outputs; NULL: none */
    size_t label_count;
} by_task_kept;

/* A field of a prediction: a text, a number, a list of numbers, or a picture. */
typedef struct by_field {
    const char *name;
    const char *text;  /* NULL: a number */
    double number;     /* NaN: none */
    bool is_whole;     /* the number is an integer */
    const float *list; /* [list_count]; NULL: none */
    size_t list_count;
    const void *png; /* [png_size] a PNG in memory; NULL: none */
    size_t png_size;
} by_field;
/* Receives the fields of one example; they are valid during the call. */
typedef void by_predicted(void *user, const by_field *fields, size_t count);

/* Which one an example to predict is. */
typedef struct by_example_name {
    uint64_t index;     /* of it in the data, in which those that are left out count */
    const char *file;   /* that it is, or is in; NULL: all are in one */
    const char *sample; /* its name in a file of many, "" in another file; NULL: none has one */
    const char *column; /* that names the series of a window; NULL: it is none of several series */
    const char *series; /* its name; NULL if column is */
    uint64_t row;       /* of the table, from 1 on, that is the last one of a window; 0: none is */
} by_example_name;

/* An example that the data of training has, and what an epoch does with it. */
typedef struct by_example_use {
    by_example_name name; /* its index is the number by which data.draws and lists of rows count */
    int64_t label;        /* its class; -1: it has none, or one of each word or pixel */
    bool trained;
    bool held_out;
    double draws;   /* data.draws of it; 1 if there are none */
    uint64_t drawn; /* how often it is a sample of the epoch */
} by_example_use;
/* Receives one example; it is valid during the call. */
typedef void by_example_listed(void *user, const by_example_use *use);

/* The order of an epoch, and what it is compared with. */
typedef struct by_epoch_order {
    uint64_t samples;
    uint64_t batch;            /* samples */
    uint64_t window;           /* samples among which it shuffles at a time; 0: all */
    uint64_t files;            /* in which the examples are; 1: all are in one */
    by_order_quality drawn;    /* of the order in which they are drawn */
    by_order_quality shuffled; /* of a random order of all, by the same seed */
} by_epoch_order;

/* Bits of by_task.knows. */
enum {
    BY_TASK_SIZES = 1,    /* the config has all sizes that the data would determine */
    BY_TASK_DATA = 2,     /* the config names data */
    BY_TASK_HOLDS_OUT = 4 /* part of it is held out */
};

/* A JPEG or PNG in memory. */
typedef struct by_image_bytes {
    const void *data;
    size_t size;
} by_image_bytes;

/* Examples in memory to predict: a table, images, or image files. */
typedef struct by_task_examples {
    const by_table *table;
    const by_array *images;      /* u8 [N, C, H, W] */
    const by_image_bytes *files; /* [file_count], decoded, and resized as in training */
    size_t file_count;
    int64_t size[3]; /* C, H and W of the model, for `files` */
} by_task_examples;

/* A graph in memory: edges lead from the first node to the second one. */
typedef struct by_task_graph {
    const float *features; /* [nodes, width] */
    size_t nodes;
    size_t width;
    const int32_t (*edges)[2]; /* [edge_count] */
    size_t edge_count;
    const float *edge_features; /* [edge_count, edge_width]; NULL: there are none */
    size_t edge_width;
    const float *graph_features; /* [graph_width] of the graph as a whole; NULL: there are none */
    size_t graph_width;
} by_task_graph;

/* Numbers of a sample that the weights at the start determine. */
#define BY_REFERENCE_VALUES 2

/* For a task that compares a model with the weights that it starts from (model.from): what these
 * make of the samples is computed once, before the first step. */
typedef struct by_task_reference {
    /* Returns the number of data sets whose samples are compared; 0: none. */
    size_t (*sets)(const by_task_data *data, const by_config *config);
    /* Opens one pass over a set and writes a hash of its content as 32 hex digits. The first
     * BY_REFERENCE_VALUES of a sample's model->evaluated are what is kept. *out is NULL if the set
     * needs nothing. */
    by_status (*source)(by_source **out, char content[33], by_task_data *data,
                        const by_config *config, size_t set, by_error *error);
    /* Gives the values [samples, BY_REFERENCE_VALUES] of a set to the data, which owns them from
     * then on and frees them with free(): sources that are opened later have them. */
    void (*keep)(by_task_data *data, size_t set, float *values);
} by_task_reference;

/* A task. Functions may be NULL where stated. */
struct by_task {
    const char *name;         /* value of config.task.kind */
    const char *examples;     /* what is counted, a plural in s: "tokens", "images", "rows" */
    const by_metric *metrics; /* [metric_count], at most BY_TASK_METRICS */
    size_t metric_count;
    const by_task_sum *sums; /* [sum_count], what the metrics are made from */
    size_t sum_count;
    bool keeps_test;     /* data may have a part that neither training nor validation sees */
    bool best_by_metric; /* the first metric, not the loss, determines the best checkpoint */
    /* What a step learns from is made by the weights that it changes: batches of the source name
     * examples, and by_train_options.rollouts writes the graph's inputs. */
    bool rolls_out;
    /* Returns what the loss is, for the axis of a chart: "cross-entropy (nats per token)". NULL: a
     * chart says "loss". */
    const char *(*loss_label)(const by_config *config);

    /* Opens data. NULL: by_train and by_evaluate cannot be used. */
    by_status (*open)(by_task_data **out, const by_task_request *request, by_error *error);
    /* Closes data. NULL: there is nothing to free. */
    void (*close)(by_task_data *data);
    /* Returns the examples per sample: tokens of a sequence. NULL: 1. */
    int64_t (*per_sample)(const by_config *config);
    /* Returns which BY_TASK_SIZES, BY_TASK_DATA, BY_TASK_HOLDS_OUT apply to a config. */
    unsigned (*knows)(const by_config *config);
    /* Fills in unknown sizes, for timing without data. */
    void (*assume)(by_config *config);
    /* Fills in the sizes found in the data, and checks those that are given. May be NULL. */
    by_status (*complete)(by_task_data *data, by_config *config, by_error *error);
    /* Opens a source of training data, or of one pass over the held-out data (or the data to
     * predict). */
    by_status (*source)(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error);
    /* Writes into a batch of a loader what other ranks hold of the data. Collective: all ranks of
     * by_task_request.comm call it equally often, with batch->batch 0 where there is none. NULL:
     * each rank holds all data. */
    by_status (*fetch)(by_task_data *data, const by_batch *batch, by_error *error);

    /* Opens a source of the training data, in the order and with the arrays of `source`, as it is
     * before augmentation and normalization: "images" are u8; and "example", i32, is the number of
     * a sample's example. NULL: the task does not augment. */
    by_status (*plain)(by_source **out, by_task_data *data, by_error *error);
    /* Turns an image of a batch, [channels, height, width] normalized, back into pixels. NULL: the
     * task has no images. */
    void (*pixels)(const by_task_data *data, const by_array *images, size_t example, uint8_t *out);
    /* Adds up how many examples of each of `classes` classes are trained on, are held out, and are
     * drawn in an epoch; arrays [classes]. NULL: there are no classes. */
    by_status (*classes)(by_task_data *data, const by_config *config, uint64_t epoch,
                         size_t classes, uint64_t *trained, uint64_t *held_out, uint64_t *drawn,
                         by_error *error);

    /* Measures how the order of an epoch mixes the training data. NULL: it is not known of the
     * task. Returns BY_EMEMORY. */
    by_status (*order)(by_task_data *data, const by_config *config, uint64_t epoch,
                       by_epoch_order *out, by_error *error);

    /* Lists the examples among which data.draws and lists of rows choose, in the order in which
     * they count them: training data, and what is held out of it. NULL: the task has no such
     * list. */
    by_status (*list)(by_task_data *data, const by_config *config, uint64_t epoch,
                      by_example_listed *report, void *user, by_error *error);
    /* Tells which one a training example is, by its number there. NULL, if there is no `list`. */
    void (*name_trained)(const by_task_data *data, uint64_t index, by_example_name *out);

    /* Gets the arrays of the graph's constant inputs (by_graph_constant_input), which the data
     * owns. NULL: it has none. */
    by_status (*constants)(by_task_data *data, const by_config *config, const by_array **out,
                           size_t *count, by_error *error);

    /* Adds inputs for the targets and the loss to the graph of a micro-batch in mode train or loss:
     * sets model->loss to an f32 [1], the sum over the targets that count, which the trainer
     * divides by their number in the whole batch; and model->counted if there is model->auxiliary.
     * In mode loss it may set model->evaluated, f32 [batch, ...]. Does not declare them as outputs.
     * Returns BY_ECONFIG if the model does not yield what the task needs. */
    by_status (*loss)(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error);
    /* Adds a micro-batch to the sums: sums[i] has the values of the i-th, which are 0 at first.
     * Counts only examples that are not padding. `values` are those of model->evaluated, `width`
     * per example. NULL: there are no sums. */
    void (*measure)(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width);

    /* Computes metric `metric` of one of several outputs (by_task_data.output_metrics) like
     * by_metric.value. NULL: single outputs have none. */
    double (*output_metric)(const by_task_data *data, const double *const *sums, size_t metric,
                            size_t output);

    const by_task_reference *reference; /* NULL: it compares with no other weights */

    /* Describes what checkpoints store. NULL: nothing. */
    by_status (*keep)(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error);
    /* Rejects resuming from a checkpoint that was trained on other data. NULL: accepts any. */
    by_status (*check)(const by_task_data *data, const by_checkpoint *checkpoint, by_error *error);
    /* Calls `report` with the predictions of a micro-batch, example by example; `loss` is its sum.
     * NULL: there are no predictions. If there are `open_examples` and `encoding`, held-out data is
     * also predicted during training, and "index", "class" and "probability", or "value" or the
     * names of the data's outputs, become part of the reference for drift. */
    by_status (*predict)(by_task_data *data, const by_batch *batch, double loss,
                         const float *values, size_t width, by_predicted *report, void *user,
                         by_error *error);
    /* Tells which one an example to predict is, by its number among those that are predicted; *out
     * has this number as index. NULL: that is all there is to tell. */
    void (*name_example)(const by_task_data *data, uint64_t index, by_example_name *out);
    /* For data opened to predict without a path: makes a source of examples in memory, which are
     * copied to *set, or NULL if the source has them; close the source before the set. A batch of
     * theirs has the valid examples first, and `predict` numbers them by "index" from 0. Any number
     * of threads may call it. Returns BY_EFORMAT if a column is absent or of another type, or an
     * image is malformed; BY_EARG if the examples are of the wrong kind, or of a size that is not
     * resized. NULL: the task only takes files. */
    by_status (*open_examples)(const by_task_data *data, const by_task_examples *examples,
                               by_array_set **set, by_source **source, by_error *error);
    /* The same of one graph, for a model that reads graphs as samples (model.own_graphs), all of
     * whose nodes are predicted, or it as a whole. BY_EARG: the model has no room for it, an
     * edge has a node that there is not, or nodes have other features. NULL: the task has no
     * graphs. */
    by_status (*open_graph)(const by_task_data *data, const by_task_graph *graph,
                            by_source **source, by_error *error);
    /* Gets name and type of the i-th column of the tables that `open_examples` accepts; false past
     * the last. */
    bool (*column)(const by_task_data *data, size_t i, by_column_type *out);
    /* Returns the encoding that `open_examples` applies to tables. NULL: there is none. */
    const by_encoding *(*encoding)(const by_task_data *data);
    /* For text tasks with data opened for training: encodes a text as ids, to be freed with free(),
     * and sets *vocab to their exclusive upper bound. NULL: the task has no text. */
    by_status (*encode)(by_task_data *data, const char *text, int32_t **ids, size_t *count,
                        int64_t *vocab, by_error *error);
    /* The inverse: decodes ids to bytes, NUL-terminated, to be freed with free(). */
    by_status (*decode)(by_task_data *data, const int32_t *ids, size_t count, char **text,
                        size_t *length, by_error *error);
};

/* Sets the colour of a class of pixels, up to 255, in masks: that of PASCAL VOC, in which the bits
 * of a class, from the lowest, three at a time, are the highest bits of red, green and blue. */
BY_API void by_class_color(uint8_t rgb[3], unsigned class_number);
/* Finds the task named by config->task.kind. Returns BY_ECONFIG if there is none. */
BY_API by_status by_task_find(const by_task **out, const by_config *config, by_error *error);
/* Opens data of a task (NULL: the config's). Damaged parts that are left out are reported as notes
 * of request->progress. Returns BY_EFORMAT, with the file that has the most, if more than
 * data.corrupt_budget is damaged; BY_EARG if the task does not support the purpose; BY_ECONFIG if
 * the config does not fit the task or names no data; and errors of the files. */
BY_API by_status by_task_open(by_task_data **out, const by_task *task,
                              const by_task_request *request, by_error *error);
BY_API void by_task_close(by_task_data **data);
/* If model.from is set, takes kind, sizes and vocabulary from its config.json, then resolves the
 * config. With rotary positions, a smaller model.context is kept; if the config does not set it, it
 * is the checkpoint's, at most 1024. Returns BY_ECONFIG if the config contradicts the weights,
 * BY_EFORMAT if there is no config.json. */
BY_API by_status by_config_inherit_model(by_config *config, by_error *error);
/* Completes a config with the sizes of model.from, if set, and of the data, and resolves it.
 * Returns BY_ECONFIG if they contradict sizes in the config. */
BY_API by_status by_task_complete(by_task_data *data, by_config *config, by_error *error);
/* Computes evaluation->metrics from the sums of a pass. Task, loss and targets are already set.
 * sums: those of by_task.sums, in their order; NULL: they were not added up, and metrics that are
 * made from any are NaN. */
BY_API void by_task_metrics(const by_task_data *data, const double *const *sums,
                            by_evaluation *evaluation);
/* Opens a loader of training batches as they are before augmentation (by_task.plain): batch i has
 * the samples of batch i of by_task_loader. Returns BY_EARG if the task does not augment. */
BY_API by_status by_task_plain_loader(by_loader **out, by_task_data *data, const by_config *config,
                                      by_error *error);
/* Opens a loader of training batches (in random order, from sample 0), or of micro-batches of the
 * held-out data. The data must outlive it. */
BY_API by_status by_task_loader(by_loader **out, by_task_data *data, const by_config *config,
                                bool training, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
