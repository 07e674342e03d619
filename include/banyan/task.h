/* Tasks: what a model is trained to do.
 *
 * A model delivers values (banyan/model.h). A task says what they should be and what is made of
 * them: it opens the data, completes a config with the sizes that the data has, adds the loss to
 * the graph, counts, measures, and says what is kept with the weights. Trainer, loop, evaluation,
 * checkpoints and commands know nothing else of it. One row a task, in a file of src/train/tasks/
 * or in a program of one's own.
 */
#ifndef BANYAN_TASK_H
#define BANYAN_TASK_H

#include "banyan/checkpoint.h"
#include "banyan/config.h"
#include "banyan/graph.h"
#include "banyan/model.h"
#include "banyan/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_task by_task;
struct by_train_options;

/* A number that tells how good predictions are. */
typedef struct by_metric {
    const char *name; /* "accuracy" */
    bool higher_is_better;
    int decimals; /* that a line of progress shows */
} by_metric;

#define BY_TASK_METRICS 4
#define BY_TASK_SUMS    8
#define BY_TASK_FILES   4

#define BY_TASK_PARTS 16

/* What is held out under a name. */
typedef struct by_task_part {
    const char *name;
    const char *key; /* of its loss: "valid_loss_NAME" */
    uint64_t end;    /* sample behind it, of a pass over all parts */
} by_task_part;

/* The loss over one part. */
typedef struct by_part_loss {
    const by_task_part *part;
    double loss; /* mean */
    uint64_t targets;
} by_part_loss;

/* What evaluation gives. */
typedef struct by_evaluation {
    const by_task *task;
    double loss;                     /* mean over the targets that count */
    double metrics[BY_TASK_METRICS]; /* in the order of the task's; NaN: this data has none */
    uint64_t targets;                /* that counted */
    by_part_loss parts[BY_TASK_PARTS];
    size_t part_count; /* 0: what is held out has no parts */
} by_evaluation;

typedef enum by_task_purpose {
    BY_TASK_TRAIN = 0, /* what to train on, and what is held out */
    BY_TASK_EVALUATE,  /* what is held out alone, or `path` */
    BY_TASK_PREDICT    /* `path`, without targets; or (NULL) examples that by_task.take gets */
} by_task_purpose;

/* What a task is to open. */
typedef struct by_task_request {
    by_task_purpose purpose;
    const by_config *config; /* its sizes need not be known yet */
    const char *path; /* to evaluate or predict on, instead of what the config names; or NULL */
    /* Directory of weights. What was learned from training data (a tokenizer, scales of numbers) is
     * read from the files that the task saved there. NULL: learned now. */
    const char *learned;
    const struct by_train_options *progress; /* hears of long work, may stop it; may be NULL */
} by_task_request;

/* Open data of a task, which makes it the first field of a struct of its own. */
typedef struct by_task_data {
    const by_task *task;
    uint64_t train_examples; /* to train on, counted as by_task.examples says; 0: none are open */
    uint64_t valid_examples; /* held out, or to predict; 0: none */
    uint64_t bytes;          /* memory that it and its sources take; mapped files are not counted */
    uint64_t opening_bytes;  /* the most that it takes while its sources are opened; may be 0 */
    /* Damaged parts that are left out (data.corrupt skip); of their file, places count from its
     * first example. `damaged` examples of `all`. */
    const by_damage *damage;
    size_t damage_count;
    uint64_t damaged;
    uint64_t all;
    /* Parts of what is held out, each with whole micro-batches; by_task.source sets their ends and
     * gives at most train.eval_batches micro-batches of each. 0: there are none. */
    by_task_part parts[BY_TASK_PARTS];
    size_t part_count;
} by_task_data;

/* What a checkpoint keeps for a task. Memory is the task data's. */
typedef struct by_task_kept {
    by_checkpoint_file files[BY_TASK_FILES];
    size_t file_count;
    by_checkpoint_value values[BY_TASK_FILES];
    size_t value_count;
    int64_t eos;               /* id of the end-of-text token; -1: none */
    const char *const *labels; /* names of the outputs; NULL: they have none */
    size_t label_count;
} by_task_kept;

/* A field of a prediction. */
typedef struct by_field {
    const char *name;
    const char *text; /* NULL: a number */
    double number;    /* NaN: there is none */
    bool is_whole;
} by_field;
/* Receives the fields of one example. */
typedef void by_predicted(void *user, const by_field *fields, size_t count);

/* Bits of by_task.knows. */
enum {
    BY_TASK_SIZES = 1,    /* the config has all sizes that its data would say */
    BY_TASK_DATA = 2,     /* the config names data */
    BY_TASK_HOLDS_OUT = 4 /* and some of it is held out */
};

/* A JPEG or PNG in memory. */
typedef struct by_image_bytes {
    const void *data;
    size_t size;
} by_image_bytes;

/* Examples in memory to predict on: one of the three. */
typedef struct by_task_examples {
    const by_table *table;
    const by_array *images;      /* u8 [N, C, H, W] */
    const by_image_bytes *files; /* that are decoded, and resized as the weights were trained */
    size_t file_count;
    int64_t size[3]; /* C, H and W of the model, for `files` */
} by_task_examples;

struct by_task {
    const char *name;
    const char *examples; /* what is counted: "tokens", "images", "rows"; the plural ends in s */
    const by_metric *metrics;
    size_t metric_count;
    bool best_by_metric; /* the first metric decides which checkpoint is the best, not the loss */

    /* Opens data. NULL: by_train and by_evaluate cannot be used. */
    by_status (*open)(by_task_data **out, const by_task_request *request, by_error *error);
    void (*close)(by_task_data *data); /* NULL: there is nothing to free */
    /* Examples of a sample, where that is not 1: tokens of a sequence. */
    int64_t (*per_sample)(const by_config *config);
    unsigned (*knows)(const by_config *config);
    /* Fills sizes that are not known, for timing without data. */
    void (*assume)(by_config *config);
    /* Fills the sizes that the data has, and checks those that are given. May be NULL. */
    by_status (*complete)(by_task_data *data, by_config *config, by_error *error);
    /* A source of what to train on, or one pass over what is held out (or to predict). */
    by_status (*source)(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error);

    /* Adds inputs for the targets and the loss to the graph of one micro-batch in the mode train
     * or loss: sets model->loss to an f32 [1], the sum over the targets that count, which the
     * trainer divides by their number in the whole batch; and where there is model->auxiliary,
     * model->counted. In the mode loss it may set model->evaluated, f32 [batch, ...]. None is
     * declared an output here. BY_ECONFIG: the model does not deliver what the task is about. */
    by_status (*loss)(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error);
    /* Adds a micro-batch to sums[BY_TASK_SUMS]: only examples that count. `values` are those of
     * model->evaluated, `width` for each example. NULL: the metrics need no values. */
    void (*measure)(const by_task_data *data, double *sums, const by_batch *batch,
                    const float *values, size_t width);
    /* Fills out->metrics; loss and targets are there. NULL: there are no metrics. */
    void (*metric)(const by_task_data *data, const double *sums, by_evaluation *out);

    /* What checkpoints keep. NULL: nothing. */
    by_status (*keep)(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error);
    /* Refuses to go on from a checkpoint that was trained on other data. NULL: takes any. */
    by_status (*check)(const by_task_data *data, const by_checkpoint *checkpoint, by_error *error);
    /* Says what was predicted for a micro-batch, example by example in order. `loss` is its sum.
     * NULL: there is nothing to predict. Where there is `take`, what is held out is predicted too
     * while the model trains: "index", "class" and "probability", or "value", are kept as a
     * reference for drift. */
    by_status (*predict)(by_task_data *data, const by_batch *batch, double loss,
                         const float *values, size_t width, by_predicted *say, void *user,
                         by_error *error);
    /* Of data that were opened to predict without a path: */
    /* A source of examples in memory, which are copied into *set, to be closed behind the source.
     * Any number of threads may call it. BY_EFORMAT: a column is missing or of the other kind, or
     * an image is damaged; BY_EARG: they are of the other sort, or of a size that is not resized.
     * NULL: the task takes files alone. */
    by_status (*take)(const by_task_data *data, const by_task_examples *examples,
                      by_array_set **set, by_source **source, by_error *error);
    /* Name and kind of column i of the tables that it takes; false: there are no more. */
    bool (*column)(const by_task_data *data, size_t i, by_column_type *out);
    /* Of a task about text, whose data are open to train on: the ids of a text, freed with free(),
     * and below what number ids are tokens; and the bytes that ids stand for, with a NUL behind
     * them, freed with free(). NULL: the task has no text. */
    by_status (*encode)(by_task_data *data, const char *text, int32_t **ids, size_t *count,
                        int64_t *vocab, by_error *error);
    by_status (*decode)(by_task_data *data, const int32_t *ids, size_t count, char **text,
                        size_t *length, by_error *error);
};

/* The task that config->task.kind names. */
BY_API by_status by_task_find(const by_task **out, const by_config *config, by_error *error);
/* Opens data of a task (NULL: the config's). Damaged parts that are left out are notes of
 * request->progress. BY_EFORMAT: more than data.corrupt_budget is damaged; names the file with the
 * most. */
BY_API by_status by_task_open(by_task_data **out, const by_task *task,
                              const by_task_request *request, by_error *error);
BY_API void by_task_close(by_task_data **data);
/* Takes the sizes of model.from, where weights are to start from, and of the data, and resolves the
 * config. */
BY_API by_status by_task_complete(by_task_data *data, by_config *config, by_error *error);
/* A loader of batches to train on (in random order, from sample 0 on), or of micro-batches of what
 * is held out. The data must outlive it. */
BY_API by_status by_task_loader(by_loader **out, by_task_data *data, const by_config *config,
                                bool training, by_error *error);

/* Mean loss and metrics of weights over what the data holds out, or over the first `batches`
 * micro-batches of it (-1: all). The config is complete (by_task_complete). `stop` is asked once a
 * micro-batch, returns true to stop (BY_ESTOPPED), and may be NULL. */
BY_API by_status by_evaluate(by_evaluation *out, const by_config *config, const by_weights *weights,
                             by_task_data *data, int64_t batches, bool (*stop)(void *user),
                             void *user, by_error *error);
/* Says what the weights predict for each example of data that was opened to predict on. The config
 * is complete. `stop` as above. */
BY_API by_status by_predict(const by_config *config, const by_weights *weights, by_task_data *data,
                            by_predicted *say, bool (*stop)(void *user), void *user,
                            by_error *error);

#ifdef __cplusplus
}
#endif
#endif
