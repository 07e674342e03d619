/* Predictions for examples in memory: the same as by_predict for the examples of a file, but for
 * rows and images that a program has, in batches that may combine those of several callers.
 *
 * Numbers, categories and pixels are transformed as in training, and computed by the same program,
 * so that an example gets the prediction of by_predict bit for bit, regardless of the rest of its
 * batch.
 */
#ifndef BANYAN_PREDICTOR_H
#define BANYAN_PREDICTOR_H

#include "banyan/task.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_predictor by_predictor;

typedef struct by_predictor_options {
    /* maximum number of examples computed together; 0: the config's micro-batch, or 5 if that is
     * less. With less than 5, the last digits may differ. */
    int64_t batch;
    int threads; /* compute threads; 0: config.train.threads */
} by_predictor_options;

/* Opens a model of tables, images or graphs, allocates its memory and runs one empty batch.
 * `config` is the resolved config of the weights; `learned` is the directory with what was learned
 * from the training data, such as scales. `options` may be NULL. All of these may be closed
 * afterwards. Returns BY_EARG if the model's task cannot predict examples in memory or an option is
 * out of range, and errors as by_task.open. */
BY_API by_status by_predictor_open(by_predictor **out, const by_config *config,
                                   const by_weights *weights, const char *learned,
                                   const by_predictor_options *options, by_error *error);
BY_API void by_predictor_close(by_predictor **predictor);
/* Returns the maximum number of examples per run. */
BY_API int64_t by_predictor_batch(const by_predictor *predictor);
/* Gets channels, height and width of the model's images; all 0 if it reads tables. */
BY_API void by_predictor_image(const by_predictor *predictor, int64_t size[3]);
/* Gets name and type of the i-th column of the model's tables, excluding the target. Returns false
 * past the last. */
BY_API bool by_predictor_column(const by_predictor *predictor, size_t i, by_column_type *out);

/* Makes a table with the model's columns, in their order, from cells [rows][columns], in the
 * notation of CSV files; NULL: missing. Returns BY_EFORMAT if a cell of a numeric column is not a
 * number, or there are no rows. */
BY_API by_status by_predictor_table(by_table **out, const by_predictor *predictor,
                                    const char *const *cells, size_t rows, by_error *error);

/* Examples ready to be computed. */
typedef struct by_predictor_input by_predictor_input;

/* Copies and transforms examples. Any number of threads may call it. Returns BY_EARG if the images
 * have another size and cannot be resized (they are arrays, or the model was trained without
 * data.resize), and errors as by_task.open_examples. */
BY_API by_status by_predictor_input_open(by_predictor_input **out, const by_predictor *predictor,
                                         const by_task_examples *examples, by_error *error);
/* The same of a graph, for a model that reads graphs as samples; of each, all nodes are reported,
 * or it as a whole, as by_predict does it. Returns errors as by_task.open_graph. */
BY_API by_status by_predictor_graph_open(by_predictor_input **out, const by_predictor *predictor,
                                         const by_task_graph *graph, by_error *error);
BY_API void by_predictor_input_close(by_predictor_input **input);
/* Returns the number of examples. */
BY_API size_t by_predictor_input_count(const by_predictor_input *input);

/* An example of an input. */
typedef struct by_predictor_place {
    const by_predictor_input *input;
    size_t example; /* index within the input */
} by_predictor_place;

/* Computes 1 to by_predictor_batch examples and calls `report` for each in order; the field "index"
 * is the position in the batch. Returns BY_EARG for another number of examples. */
BY_API by_status by_predictor_run(by_predictor *predictor, const by_predictor_place *places,
                                  size_t count, by_predicted *report, void *user, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
