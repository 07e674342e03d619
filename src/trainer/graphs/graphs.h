/* trainer/graphs: the graphs of a trainer and their programs: the model with its loss and
 * adapters, the teacher of a distillation, the FLOPs of training. */
#ifndef BY_TRAINER_GRAPHS_GRAPHS_H
#define BY_TRAINER_GRAPHS_GRAPHS_H

#include "trainer/state/trainer.h"

/* ---- adapter_graph.c ---- */

/* Returns true if any of the weights belongs to an adapter. */
bool by__trainer_has_adapters(const by_weights *weights);
/* Adds the adapters that config.lora asks for, if any, to the forward graph of a model. */
by_status by__trainer_adapters_apply(by_graph *graph, by_model *model, const by_config *config,
                                     by_model_mode mode, by_error *error);
/* After by__optim_groups_apply: BY_ECONFIG if that has frozen an adapter. */
by_status by__trainer_adapters_check(const by_graph *graph, const by_config *config,
                                     by_error *error);

/* ---- teacher_weights.c ---- */

/* Declares its weights, after the programs of the model. */
by_status by__trainer_teacher_plan(by_trainer *t, by_error *error);
/* Bytes of its weights. */
uint64_t by__trainer_teacher_bytes(const by_trainer *t);
/* Allocates memory, loads the weights and binds programs. */
by_status by__trainer_teacher_open(by_trainer *t, by_error *error);
void by__trainer_teacher_close(by_trainer *t);
/* Hash of the loaded weights; "": there is no teacher. */
const char *by__trainer_teacher_hash(const by_trainer *t);

/* ---- train_graph.c ---- */

/* Number of examples, as the task counts them, in one sample of a batch. */
int64_t by__trainer_per_sample(const by_task *task, const by_config *config);
/* Builds the graph of one micro-batch in `mode`, with its loss, before any pass. */
by_status by__trainer_forward_graph(by_graph **out, by_model *model, const by_config *config,
                                    const by__trainer_recipe *recipe, by_model_mode mode,
                                    by_error *error);
/* Builds the graph that adds one token to a sequence, with caches of `cache` positions. */
by_status by__trainer_decode_forward(by_graph **out, by_model *model, const by_config *config,
                                     const by__trainer_recipe *recipe, int64_t cache,
                                     by_error *error);
/* The pass options given by a config; model (may be NULL) has the loss to differentiate. */
by_pass_options by__trainer_graph_pass_options(const by_config *config, const by_model *model);

/* ---- trainer_flops.c ---- */

/* Sets t->plan.size, except for frozen parameters, from a graph whose products show which
 * parameters they read. */
by_status by__trainer_measure(by_trainer *t, const by_graph *graph, by_error *error);

/* ---- trainer_programs.c ---- */

/* Builds one of the graphs that follow the gradients. */
typedef by_status by__trainer_update_builder(const by_trainer *t, by_graph *graph, by_error *error);

/* The pass options for a graph of `model`. */
by_pass_options by__trainer_pass_options(const by_trainer *t, const by_model *model);
/* Builds one of the graphs that follow the gradients and adds its program; *out: its row. */
by_status by__trainer_add_update(by_trainer *t, const char *name, by__trainer_update_builder *build,
                                 by__exec_program_row **out, by_error *error);

#endif
