/* The norm of gradients of which ranks have parts (gradient_norm.c). */
#ifndef BY_TRAIN_GRADIENT_NORM_H
#define BY_TRAIN_GRADIENT_NORM_H

#include "exec/exec.h"
#include "nn/nn.h"
#include "store/store.h"
#include "train/train.h"

/* Neighbouring elements of the gradients of one group of the whole model, in the memory of one
 * rank. */
typedef struct by__norm_run {
    int owner; /* rank of `pipeline` and `shard` */
    int group;
    size_t bucket; /* that it is a slice of; 0: ranks hold whole tensors */
    int64_t first; /* element of the group in the whole model; a multiple of BY_SUM_BLOCK */
    int64_t count;
    int64_t at; /* element of the owner's group */
} by__norm_run;

/* The gradient's norm where ranks have parts of the gradients (gradient_norm.c). It is made from
 * runs of whole blocks, which their owners square, and blocks that several ranks have pieces of,
 * which every rank does. */
typedef struct by__gradient_norm {
    by__norm_run *runs;
    size_t run_count;
    by__norm_run *pieces; /* count below BY_SUM_BLOCK, and first any element */
    size_t piece_count;
    by__norm_run *shared; /* blocks that pieces make up; owner -1, at: in `blocks` */
    size_t shared_count;
    int64_t elements[BY__TRAINED_GROUPS]; /* of the whole model */
    size_t *piece_elements;               /* of each rank */
    size_t *run_blocks;
    by_memory memory; /* pieces of all ranks; shared blocks; squares of all ranks' runs; of shared
                         blocks; of all blocks in order */
    size_t blocks_at; /* bytes */
    size_t run_squares_at;
    size_t shared_squares_at;
    size_t squares_at;
    size_t bytes;
    by_comm *comm; /* the mesh's */
    int ranks;     /* of it */
    int rank;
    by__program_row *squares; /* program: of this rank's runs and of shared blocks */
    int bound_set;            /* gradient set that it reads; -1: none */
} by__gradient_norm;

/* ---- gradient_norm.c ---- */

/* Whether ranks of a pipeline or of `shard` have parts of the sum of gradients. The rest is for
 * these. */
bool by__norm_is_divided(const by_trainer *t);
/* Adds the programs. */
by_status by__norm_plan(by_trainer *t, by_error *error);
size_t by__norm_bytes(const by_trainer *t);
/* Collective: takes memory and binds what does not depend on the gradient set. */
by_status by__norm_open(by_trainer *t, by_error *error);
void by__norm_close(by_trainer *t);
/* Collective: the squares that the norm's program adds up. */
by_status by__norm_squares(by_trainer *t, by_error *error);

#endif
