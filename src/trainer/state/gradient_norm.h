/* The global norm of gradients when ranks hold parts of them (gradient_norm.c). */
#ifndef BY_TRAINER_STATE_GRADIENT_NORM_H
#define BY_TRAINER_STATE_GRADIENT_NORM_H

#include "exec/exec.h"
#include "nn/nn.h"
#include "store/store.h"
#include "trainer/state/train.h"

/* A part of the gradients of the whole model, in the memory of one rank. */
typedef struct by__trainer_norm_run {
    by__store_part
        part;      /* of a group of the whole model; it begins at a multiple of BY_SUM_BLOCK */
    int owner;     /* rank along `pipeline` and `shard` */
    size_t bucket; /* bucket that it is a slice of; 0: ranks hold whole tensors */
    int64_t at;    /* index in the owner's group */
} by__trainer_norm_run;

/* Computes the norm of gradients of which ranks hold parts (gradient_norm.c). Runs of whole blocks
 * are squared by their owners; blocks of which several ranks have pieces are squared by every rank,
 * after an exchange of the pieces. */
typedef struct by__trainer_gradient_norm {
    by__trainer_norm_run *runs;
    size_t run_count;
    by__trainer_norm_run *pieces; /* of fewer than BY_SUM_BLOCK elements; they begin anywhere */
    size_t piece_count;
    by__trainer_norm_run
        *shared; /* blocks assembled from pieces; owner -1, at: index in `blocks` */
    size_t shared_count;
    int64_t elements[BY__TRAINED_GROUPS]; /* of the whole model */
    size_t *piece_elements;               /* elements of each rank's pieces */
    size_t *run_blocks;
    /* in this order: pieces of all ranks; shared blocks; squares of all ranks' runs; of shared
     * blocks; of all blocks in order */
    by_memory memory;
    char *copy;       /* of `memory` on the host, during an exchange */
    size_t unit;      /* of offsets (by__device_unit) */
    size_t blocks_at; /* byte offsets */
    size_t run_squares_at;
    size_t shared_squares_at;
    size_t squares_at;
    size_t bytes;
    by_comm *comm; /* owned by the mesh */
    int ranks;     /* size of comm */
    int rank;
    by__exec_program_row *row;     /* the program of the norm */
    by__exec_program_row *squares; /* program that squares this rank's runs and the shared blocks */
    int bound_set;                 /* gradient set it is bound to; -1: none */
    by__exec_program_row *micro;   /* program of track.noise_every; NULL: there is none */
    bool has_micro;                /* it ran in the step that is being submitted */
} by__trainer_gradient_norm;

#endif
