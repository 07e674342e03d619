/* teacher: the model that a student is distilled from (section distill). Its forward pass is part
 * of the graph of gradients; its weights are frozen states there, in a separate store, in the
 * format that programs compute with. They are not parameters: nothing trains, saves, shards or
 * counts them.
 *
 * Instead of a teacher the config may give its stored logits (distill.logits): they are inputs of
 * the graph, filled from the task's data.
 *
 * Never put here: the loss of a student (the task's), how logits are stored (data).
 */
#ifndef BY_TASKS_TEACHER_H
#define BY_TASKS_TEACHER_H

#include "banyan/checkpoint.h"
#include "banyan/config.h"
#include "banyan/model.h"
#include "base/base.h"

/* Prefix of the names of its weights in a graph. */
#define BY__TEACHER "teacher."
/* Prefix of the names of parameters that a student learns only for distillation. */
#define BY__DISTILL "distill."

/* Returns true if the graph of gradients contains a teacher: that of a distillation, or the weights
 * at the start that preferences are compared with. */
bool by__task_has_teacher(const by_config *config);
/* BY_ECONFIG if the teacher has a tokenizer and its hash is not that of the training data. */
by_status by__task_teacher_check_tokenizer(const by_config *config, const char *hash,
                                           by_error *error);
/* The key that names the teacher. */
const char *by__task_teacher_key(const by_config *config);
/* Adds the teacher's graph, and gets its last hidden state and its head. BY_ECONFIG: the models do
 * not fit. */
by_status by__task_teacher_states(by_value *hidden, by_value *head, const by_config *config,
                                  const by_model_request *request, by_graph *graph,
                                  by_error *error);
/* Sets model->loss of a student of tokens according to the section distill, relative to the
 * teacher, whose graph is added. BY_ECONFIG: the models do not fit. */
by_status by__task_teacher_loss(const by_config *config, const by_model_request *request,
                                by_graph *graph, by_model *model, by_value targets,
                                by_error *error);
/* The same relative to the stored logits: inputs as in by_logit_arrays. */
by_status by__task_stored_loss(const by_config *config, const by_model_request *request,
                               by_graph *graph, by_model *model, by_value targets, by_error *error);
/* Opens the teacher's weights, with its adapter; and reads the config of its model only. */
by_status by__task_teacher_open_weights(by_weights **out, const by_config *config, by_error *error);
by_status by__task_teacher_config(by_config **out, const by_config *config, by_error *error);

#endif
