/* plan/search: the best layout of a job.
 *
 * Types: by__search_key is what local shapes depend on, by__search_profile what
 * was compiled for one key, by__search_block what a model's parts take at one
 * key and micro-batch.
 *
 * Files: block_profile.c compiles profiles and evaluates them, choice_cost.c
 * tells what a layout takes, layout_search.c goes through all of them,
 * choice_plan.c makes a config of one and compiles it as a whole.
 *
 * Never put here: a graph of the whole model. A model of thousands of blocks
 * costs as much as one of four. */
#ifndef BY_PLAN_SEARCH_SEARCH_H
#define BY_PLAN_SEARCH_SEARCH_H

#include "banyan/layout_search.h"
#include "plan/layout/layout.h"

/* Parts of a model: what is before the blocks, a block, what is after them. */
typedef enum by__search_section {
    BY__SECTION_BEGIN = 0,
    BY__SECTION_FIRST, /* block */
    BY__SECTION_MIDDLE,
    BY__SECTION_LAST, /* block, which may keep what others compute again */
    BY__SECTION_END,
    BY__SECTIONS
} by__search_section;

/* A division along `sequence` is not compiled: its graphs grow with the ranks
 * of the ring. All but attention works on rows, so q ranks of a sequence
 * compute what one computes on a q-th of the examples, attention too if it is
 * divided evenly; the shifts of keys and values come on top. */
typedef struct by__search_key {
    int tensor;
    int expert;
    by_search_recompute recompute;
    bool sequence_parallel; /* with tensor */
} by__search_key;

/* Bytes of one rank, without `shard`. */
typedef struct by__search_bytes {
    double elements; /* trained */
    double matrices; /* that zero 3 gathers one by one */
    double weights;  /* masters and copies */
    double gradients;
    double optimizer;
} by__search_bytes;

/* A model of three blocks at a micro-batch of 2^k units. */
#define BY__SEARCH_POINTS 5

typedef struct by__search_point {
    by__layout_work work;
    unsigned char *section; /* of each item */
    double arena[2];        /* bytes, of models of three and of four blocks */
    double workspace;
    by__layout_time passes[BY__SECTIONS][2]; /* forward, backward */
} by__search_point;

typedef struct by__search_profile {
    by__search_key key;
    int64_t unit; /* micro-batches are multiples of this */
    by__search_point points[BY__SEARCH_POINTS];
    by__search_bytes bytes[BY__SECTIONS];
    double tied;  /* elements that the last stage reads and the first one trains */
    double fixed; /* bytes of inputs and loaders */
    /* Shifts of a block's forward and backward pass on a ring of two ranks, and
   * bytes of one for a micro-batch of 1 unit. */
    double shifts[2];
    double shifted[2];
    bool rings;                  /* the model can be divided along `sequence` */
    by__layout_work ring_work;   /* of the computation of the middle block on a ring
                                of two ranks */
    double ring_step[2];         /* seconds that it computes more, forward and backward,
                          for one unit */
    by__layout_work update_work; /* of the update of a model of three blocks, */
    double elements;             /* and its trained elements */
    double update;               /* seconds of the update, an element */
    double sum;                  /* seconds to add two gradient sets, an element */
} by__search_profile;

/* What the parts of a model take at a micro-batch. */
typedef struct by__search_block {
    by__layout_time passes[BY__SECTIONS][2]; /* forward, backward */
    double kept;                             /* bytes that a block keeps of a micro-batch */
    double base;                             /* bytes of activations besides those */
    double workspace;
} by__search_block;

/* ---- block_profile.c ---- */

by_status by__search_profile_make(by__search_profile *out, const by_config *config,
                                  const by__search_key *key, const by_cluster *cluster,
                                  by_error *error);
/* Sets what depends on rates alone, for a cluster. */
by_status by__search_profile_rates(by__search_profile *profile, const by_cluster *cluster,
                                   by_error *error);
void by__search_profile_free(by__search_profile *profile);
void by__search_profile_evaluate(by__search_block *out, const by__search_profile *profile,
                                 const by_cluster *cluster, int64_t micro_batch, int sequence);

/* ---- layout_search.c ---- */

/* What a search makes least: seconds of a step, or devices x seconds. */
double by__search_goal(const by_search_options *options, const by_search_choice *choice);

/* ---- choice_cost.c ---- */

/* What does not depend on the layout. */
typedef struct by__search_model {
    const by_cluster *cluster;
    int64_t layers;
    int64_t batch;
    double hidden;        /* bytes of the hidden state of one example */
    double weight;        /* bytes of an element that programs compute with */
    double master;        /* bytes of an element that the update writes besides, 0
                    without copies */
    double bucket;        /* elements of a bucket of gradients; 0: chosen */
    bool overlap;         /* sums of gradients with the backward pass */
    bool overlaps_sends;  /* of a pipeline with computation */
    bool overlaps_tensor; /* exchanges along `tensor` with products */
    bool splits_sends;    /* ranks along `tensor` each send a part */
    double gradient;      /* bytes of an element of gradients as they are exchanged */
    bool adds;            /* sets of gradients are added up; false: products add to them in
                 place */
    /* Sets of gradients with the micro-batch and replicas of the choice: */
    double whole_sets;
    double divided_sets; /* with zero 2 and 3, which hold sums of several rounds */
    bool saves;          /* checkpoints while training goes on, of what `shard` divides
                 from a buffer */
} by__search_model;

/* The slowest stage of a pipeline. */
typedef struct by__search_stages {
    int64_t blocks;         /* of the stage with most */
    double inner;           /* of one between the first and the last */
    double slowest;         /* seconds of its passes, forward and backward */
    double mean;            /* of all stages */
    by__layout_time time;   /* of the slowest */
    double backward;        /* seconds of the backward pass of the slowest */
    by__search_bytes bytes; /* of the rank that holds most */
    double gathered;        /* elements of the largest block, gathered for zero 3 */
} by__search_stages;

/* Fills in what a search knows of a model. */
void by__search_describe(by__search_model *out, const by_config *config, const by_cluster *cluster);
/* Divides the model among ranks that hold `chunks` stages each. */
void by__search_rank_stages(by__search_stages *out, const by__search_model *model,
                            const by__search_profile *profile, const by__search_block *block,
                            int64_t ranks, int64_t chunks);
/* Sets the memory of a choice. */
void by__search_memory(by_search_choice *choice, const by__search_model *model,
                       const by__search_profile *profile, const by__search_block *block,
                       const by__search_stages *stages);
/* Sets seconds and terms of a choice. */
void by__search_cost(by_search_choice *choice, const by__search_model *model,
                     const by__search_profile *profile, const by__search_block *block,
                     const by__search_stages *stages);

#endif
