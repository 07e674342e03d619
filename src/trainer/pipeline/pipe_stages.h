/* A trainer that holds some stages of a model, on one rank of a pipeline (mesh axis `pipeline`).
 *
 * The whole training graph is made as on one rank, and cut (passes/stages.h) into a forward, a
 * backward and possibly a weight-gradient program for each of the rank's stages. Values that a
 * program leaves for a later one of the same micro-batch, and values that go to other stages, are
 * in a slot; a stage has as many slots as the schedule has micro-batches in flight there. A step
 * runs the schedule's list of actions (banyan/pipeline.h).
 *
 * The bits are the same as without a pipeline. Nodes are those of one rank; gradients of
 * micro-batches are added in the order of the sum tree, stage by stage; the squares of the gradient
 * norm are summed over the blocks that the gradients of the whole model have on one rank
 * (gradient_norm.c). A parameter that several stages read (a tied embedding) is trained by the
 * stage that computes its gradient, which sends it to the others after each update. */
#ifndef BY_TRAINER_PIPELINE_PIPE_STAGES_H
#define BY_TRAINER_PIPELINE_PIPE_STAGES_H

#include "banyan/pipeline.h"
#include "passes/stages.h"
#include "trainer/state/trainer.h"

/* A value that outlives a program, in one of the stage's rings. */
typedef struct by__trainer_pipe_value {
    by_value source;             /* in the whole graph */
    by_value in[BY__PART_KINDS]; /* in the graph of each part; BY_NONE: not there */
    /* the parameter whose gradient it is, until the weight-gradient part runs */
    by__store_handle gradient;
    int ring;
    size_t offset; /* offset in a slot of the ring */
} by__trainer_pipe_value;

/* A value sent from one stage to another. */
typedef struct by__trainer_pipe_move {
    by_value value; /* in the whole graph */
    int from;
    int to;
} by__trainer_pipe_move;

/* The graph of a model, cut into stages. */
typedef struct by__trainer_pipe_graph {
    by_graph *whole;
    int *part;
    by__pass_crossing *crossings;
    size_t crossing_count;
    by__trainer_pipe_move *moves; /* of all stages, ascending by value */
    size_t move_count;
} by__trainer_pipe_graph;

/* Slots used in turn by micro-batches. */
typedef struct by__trainer_pipe_ring {
    int64_t slots;
    size_t slot_bytes;
    size_t offset; /* offset in the memory of all slots */
} by__trainer_pipe_ring;

/* Values that a stage computes are kept from its forward pass on, those that it receives from
 * before that. */
enum { BY__RING_MADE = 0, BY__RING_RECEIVED, BY__RINGS };

/* A stage held by this rank. */
typedef struct by__trainer_pipe_stage {
    int stage;
    /* names of the programs, then of those for loss and gradient sum */
    char name[BY__PART_KINDS + 2][24];
    by__exec_program_row *row[BY__PART_KINDS]; /* NULL: it has no nodes */
    by__exec_program_row *loss;                /* for evaluation */
    by__exec_program_row *sum;                 /* adds two gradient sets of the stage */
    by__trainer_pipe_value *values;
    size_t value_count;
    by__trainer_pipe_ring rings[BY__RINGS];
    by__store_part gradients[BY__TRAINED_GROUPS]; /* of each group */
    by__trainer_pipe_value
        *loss_values; /* at the beginning of the first ring, during an evaluation */
    size_t loss_count;
    by__sum_tree tree;
} by__trainer_pipe_stage;

/* A parameter that one rank trains and another reads. */
typedef struct by__trainer_pipe_share {
    const char *name;
    int from; /* ranks of the pipeline */
    int to;
} by__trainer_pipe_share;

/* A parameter that a stage reads. */
typedef struct by__trainer_pipe_reading {
    by_value parameter; /* in the whole training graph */
    int stage;
} by__trainer_pipe_reading;

/* A model, cut into stages. Ranks whose positions on the axes that split tensors are the same cut
 * alike, so plans of several of them can have one cut, which the last of them closes. */
typedef struct by__trainer_pipe_cut {
    size_t users;
    int place[BY_MESH_AXES]; /* of the rank that made it */
    size_t arena_bytes;      /* with which it chose what is recomputed */
    by_model values;
    by__pass_stage_map map;
    by__trainer_pipe_graph train;
    by__trainer_pipe_graph loss;
    int *stage_of; /* for each value of the whole graph: the stage that trains it; -1: none */
    by__trainer_pipe_reading *readings; /* ascending by parameter, then stage */
    size_t reading_count;
} by__trainer_pipe_cut;

struct by__trainer_pipe {
    int ranks;
    int rank;
    int chunks;
    bool apart; /* weight gradients have separate programs */
    by_pipeline *schedule;
    by__trainer_pipe_cut *cut;
    by_graph *parameters; /* the parameters that this rank holds; no nodes */
    by__trainer_pipe_share *shares;
    size_t share_count;
    by__trainer_pipe_stage *stages; /* of this rank, ascending */
    by_memory memory;               /* memory of all slots */
    size_t bytes;
    void *shared;  /* buffer for a parameter that is divided over ranks of `shard` */
    by_comm *comm; /* of the pipeline; owned by the mesh */
};

/* Rank of a stage. */
static inline int by__pipe_rank_of(const by__trainer_pipe *pipe, int stage)
{
    return stage % pipe->ranks;
}

#endif
