/* teacher: a model that another one learns from (section distill). Its forward pass is part of the
 * graph of gradients; its weights are frozen states there, with a store of their own, in the format
 * that programs compute in. They are no parameters: nothing trains, saves, divides or counts them.
 *
 * Instead of a teacher its stored logits may be given (distill.logits): they are inputs of the
 * graph, which the task's data fills.
 *
 * Never put here: the loss of a student (the task's), how logits are stored (data).
 */
#ifndef BY_TRAIN_TEACHER_H
#define BY_TRAIN_TEACHER_H

#include "train/trainer.h"

/* In front of the names of its weights in a graph. */
#define BY__TEACHER "teacher."
/* In front of the names of what a student learns besides, which no other run needs. */
#define BY__DISTILL "distill."

/* Whether the graph of gradients has a teacher. */
bool by__has_teacher(const by_config *config);
/* What a student of tokens learns from: sets model->loss by the section distill, from the teacher
 * that it names, whose graph is added. BY_ECONFIG: the models do not fit. */
by_status by__teacher_loss(const by_config *config, const by_model_request *request,
                           by_graph *graph, by_model *model, by_value targets, by_error *error);
/* The same from the stored logits that it names: inputs as of by_logit_arrays. */
by_status by__stored_loss(const by_config *config, const by_model_request *request, by_graph *graph,
                          by_model *model, by_value targets, by_error *error);
/* Declares its weights, behind the programs of the model. */
by_status by__teacher_plan(by_trainer *t, by_error *error);
/* Bytes of its weights. */
uint64_t by__teacher_bytes(const by_trainer *t);
/* Takes memory, loads the weights and binds programs. */
by_status by__teacher_open(by_trainer *t, by_error *error);
void by__teacher_close(by_trainer *t);
/* Hash of the weights that were loaded; "": there is no teacher. */
const char *by__teacher_hash(const by_trainer *t);

#endif
