/* trainer/pipeline: a trainer that runs stages of a model. pipe_stages.h has its record and
 * describes it, pipeline.h the schedules. */
#ifndef BY_TRAINER_PIPELINE_PIPE_H
#define BY_TRAINER_PIPELINE_PIPE_H

#include "trainer/pipeline/pipe_stages.h"

/* ---- pipe_cut.c ---- */

/* Cuts the whole model into stages; options->like lends its cut where that is the same. */
by_status by__pipeline_cut(by_trainer *t, const by_trainer_options *options, by_error *error);
/* {NULL} is accepted. */
void by__pipeline_cut_close(by__trainer_pipe_cut **cut);

/* ---- pipe_parameters.c ---- */

/* Lists the parameters of this rank's stages, then those that they only read. */
by_status by__pipeline_list_parameters(by_trainer *t, by_error *error);

/* ---- pipe_plan.c ---- */

/* Memory of a stage's gradients of a group in a gradient set; {0} if it has none. */
by_memory by__pipeline_gradients(const by_trainer *t, const by__trainer_pipe_stage *stage,
                                 int group, int set);

/* Cuts the model, makes the schedule and lists the parameters of the rank's stages. */
by_status by__pipeline_open(by_trainer *t, const by_trainer_options *options, by_error *error);
/* {NULL} is accepted. Called after the programs were closed. */
void by__pipeline_close(by_trainer *t);
/* The part of the plan that needs the store: the programs of the rank's stages, and sums of
 * gradient sets. */
by_status by__pipeline_plan(by_trainer *t, const by_trainer_options *options, by_error *error);
by_status by__pipeline_plan_sums(by_trainer *t, by_error *error);
/* Collective. Allocates memory and binds parameters. */
by_status by__pipeline_allocate(by_trainer *t, by_error *error);

/* ---- pipe_slots.c ---- */

/* Plans the values that cross to or from a stage, its rings and their places in the memory of all
 * slots. */
by_status by__pipeline_plan_slots(by_trainer *t, by__trainer_pipe_stage *stage, by_error *error);

/* Bytes of the largest parameter that this rank shares and has a part of. */
size_t by__pipeline_largest_share(const by_trainer *t);
/* Bytes of activations between programs and stages. */
uint64_t by__pipeline_bytes(const by_trainer *t);
/* Bytes of the largest message to or from another rank. */
size_t by__pipeline_exchanged(const by_trainer *t);

/* ---- pipe_share.c ---- */

/* Collective, after an update: sends parameters that several stages read. */
by_status by__pipeline_share(by_trainer *t, by_error *error);

/* ---- pipe_step.c ---- */

/* Stages of a pipeline. */
extern const by__trainer_strategy by__pipeline_strategy;

#endif
