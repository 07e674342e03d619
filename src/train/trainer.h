/* The inside of by_trainer, shared by trainer.c (plan, steps) and trainer_weights.c (initial
 * values, loading, views). */
#ifndef BY_TRAIN_TRAINER_H
#define BY_TRAIN_TRAINER_H

#include "train/train.h"

typedef struct by__parameter {
    by_value value;    /* in by__trainer_graph */
    by_value gradient; /* in the gradient graph */
    const char *name;  /* the graph's */
    by_shape shape;
    bool is_vocabulary; /* its rows are the vocabulary */
    int bucket;         /* 0 matrices, 1 vectors */
    int64_t offset;     /* elements from the start of its bucket */
    int64_t flat;       /* elements from the start of the flat block */
    int64_t count;
} by__parameter;

struct by_trainer {
    const by_config *config;
    by__program_set programs;
    by__program_row *gradients; /* rows of the set; NULL where there is no such program */
    by__program_row *loss;
    by__program_row *sum; /* only with two gradient sets or more */
    by__program_row *norm;
    by__program_row *update;
    by_model model;
    by_model loss_model;
    by__parameter *parameters;
    size_t parameter_count;
    by_buckets buckets;
    by_memory_report memory;
    by_model_size size;
    by__pages masters; /* flat f32: matrices, then vectors */
    by__pages copies;  /* bf16 of the matrices */
    by__pages gradient_sets;
    by__pages moments; /* m flat, then v flat */
    by__pages io;
    int32_t *tokens;
    int32_t *targets;
    int64_t micro_batches;
    int64_t updates;
    int sets;
    int bound_set; /* gradient set that the gradient program writes */
    int sum_set;   /* set that holds the last batch's sum */
    by_device *device;
};

/* The graph that the parameters are listed from. */
static inline const by_graph *by__trainer_graph(const by_trainer *t)
{
    return t->gradients != NULL ? t->gradients->graph : t->loss->graph;
}
/* BY_ESTATE before by_trainer_allocate, and for `training` in a trainer that only computes
 * losses. */
by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error);
/* f32 master, gradient in a set, and what the model computes with (bf16 copy or master). */
float *by__trainer_master(const by_trainer *t, const by__parameter *p);
float *by__trainer_gradient(const by_trainer *t, const by__parameter *p, int set);
void *by__trainer_compute(const by_trainer *t, const by__parameter *p);

#endif
