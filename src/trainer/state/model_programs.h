/* The graphs and programs of the model and of updates, as the ways of training (strategy.h) make
 * them. Rows of programs are NULL if there is no such program. */
#ifndef BY_TRAINER_STATE_MODEL_PROGRAMS_H
#define BY_TRAINER_STATE_MODEL_PROGRAMS_H

#include "banyan/trainer.h"
#include "exec/exec.h"

/* Set by the strategy. */
typedef struct by__trainer_model {
    by_model values;
    const by_graph *parameters; /* lists the parameters that this rank holds */
    const by_graph *forward;    /* the whole model and its loss */
    const by_graph *whole;      /* the same with the backward pass, if there is one */
    int stages;                 /* that the model is cut into; 1: this rank has all of it */
    const int *stage_of;        /* of each parameter of `whole`, that trains it; NULL: one stage */
    by__exec_program_row *gradients;
    by__exec_program_row *last; /* for a rank's last micro-batch, with collectives */
    by__exec_program_row *loss;
    by__exec_program_row *sum; /* only with two or more gradient sets */
    int bound_set;             /* gradient set that `gradients` writes */
    int last_set;              /* the same for `last` */
} by__trainer_model;

/* Set by the updater of weights in memory. */
typedef struct by__trainer_update {
    by__exec_program_row *row;
    by__exec_program_row *copy_row;   /* only if programs compute in a narrower format than f32 */
    by__exec_program_row *average[3]; /* its step, its swap with the weights, and the way back */
} by__trainer_update;

/* ---- stage_parameters.c ---- */

/* The stage that trains a parameter, or the first that reads it if none does; and its rank along
 * `pipeline`. */
int by__trainer_stage_of(const by_trainer *t, const char *parameter);
int by__trainer_holder_of(const by_trainer *t, const char *parameter);
/* Lists the parameters that a rank of the pipeline trains, stage by stage, and the frozen ones
 * there. */
by_status by__trainer_list_trained(by_graph **out, const by_trainer *t, int rank, by_error *error);
/* Adds a parameter to such a list, if it is not there. */
by_status by__trainer_list_parameter(by_graph *list, const by__graph_value *value, bool frozen,
                                     by_error *error);

#endif
