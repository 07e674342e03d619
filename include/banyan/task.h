/* Tasks: what a model is trained to do.
 *
 * A model delivers values (banyan/model.h), a task says what they should be: it adds the loss and
 * what else its metrics need to the graph. One row a task, in a file of src/train/tasks/ or in a
 * program of one's own.
 */
#ifndef BANYAN_TASK_H
#define BANYAN_TASK_H

#include "banyan/config.h"
#include "banyan/graph.h"
#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_task {
    const char *name;
    const char *example; /* what is counted, in the plural: "tokens", "images" */
    /* Adds inputs for the targets and the loss to the graph of one micro-batch in the mode train
     * or loss: sets model->loss to an f32 [1], the sum over the targets that count, which the
     * trainer divides by their number in the whole batch. In the mode loss it may set
     * model->evaluated, f32 [batch, ...]. Neither is declared an output here. BY_ECONFIG: the
     * model does not deliver what the task is about. */
    by_status (*loss)(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error);
} by_task;

/* The task that config->task.kind names. */
BY_API by_status by_task_find(const by_task **out, const by_config *config, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
