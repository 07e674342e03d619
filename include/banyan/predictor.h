/* Predictions of examples in memory: what by_predict says of the examples of a file, said of rows
 * and images that a program has, in batches that may hold those of many callers.
 *
 * The transformations of numbers, categories and pixels are those that the weights were trained
 * with, and the program that computes is the same, so that an example has the prediction of
 * by_predict bit for bit, whatever else is in its batch.
 */
#ifndef BANYAN_PREDICTOR_H
#define BANYAN_PREDICTOR_H

#include "banyan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_predictor by_predictor;

typedef struct by_predictor_options {
    int64_t batch; /* examples that are computed together, at most; 0: the config's micro-batch */
    int threads;   /* 0: config.train.threads */
} by_predictor_options;

/* Opens a model of tables or images, takes its memory, and computes a batch of nothing. config:
 * that of the weights, resolved; learned: the directory with what was learned from training data,
 * such as scales. `options` may be NULL. All may go afterwards. BY_EARG: the task of the model
 * predicts nothing of examples in memory. */
BY_API by_status by_predictor_open(by_predictor **out, const by_config *config,
                                   const by_weights *weights, const char *learned,
                                   const by_predictor_options *options, by_error *error);
BY_API void by_predictor_close(by_predictor **predictor);
BY_API int64_t by_predictor_batch(const by_predictor *predictor);
/* Channels, height and width of its images; all 0: it reads tables. */
BY_API void by_predictor_image(const by_predictor *predictor, int64_t size[3]);
/* Name and kind of column i of its tables, the target left out; false: there are no more. */
BY_API bool by_predictor_column(const by_predictor *predictor, size_t i, by_column_type *out);

/* A table of its columns, in their order: cells [rows][columns], texts as a CSV file has them;
 * NULL: missing. BY_EFORMAT: a cell of a column of numbers is none, or there are no rows. */
BY_API by_status by_predictor_table(by_table **out, const by_predictor *predictor,
                                    const char *const *cells, size_t rows, by_error *error);

/* Examples that are ready to be computed. */
typedef struct by_predictor_input by_predictor_input;

/* Copies and transforms examples. Any number of threads may call it. Errors as those of
 * by_task.take; BY_EARG: the images have another size, and are arrays or of a model that was
 * trained without data.resize. */
BY_API by_status by_predictor_take(by_predictor_input **out, const by_predictor *predictor,
                                   const by_task_examples *examples, by_error *error);
BY_API void by_predictor_input_close(by_predictor_input **input);
BY_API size_t by_predictor_input_count(const by_predictor_input *input);

typedef struct by_predictor_place {
    const by_predictor_input *input;
    size_t example;
} by_predictor_place;

/* Computes up to by_predictor_batch examples, and says what is predicted of each, in their order:
 * the field "index" is the place in the batch. One thread at a time. */
BY_API by_status by_predictor_run(by_predictor *predictor, const by_predictor_place *places,
                                  size_t count, by_predicted *say, void *user, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
