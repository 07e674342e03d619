/* Layouts: what a training run takes on a number of ranks, before it starts: the memory of every
 * stage of its pipeline, and the time of a step with the share and the origin of each part.
 *
 * Memory is not modelled. The plan of a rank of each stage is compiled as that rank compiles it,
 * without its peers (banyan/trainer.h), so it is the memory that it will use.
 *
 * Time is a sum over the same compiled graphs. An operation of F operations and B bytes takes
 *
 *     launch + max(F / (peak share), B / bandwidth)
 *
 * (the roofline of Williams, Waterman and Patterson 2009), with the figures of a cluster file
 * (banyan/cluster.h) and local shapes, once the host has issued it; the host issues one after
 * another, ahead of the device where that is slower. Attention of S scores that are kept takes S
 * score_bytes / bandwidth besides. Collectives run on a queue of their own, in the order of the
 * graph, beside the computation; while both queues are busy each is slower by a factor of the
 * cluster file, and what a node waits for is exposed. A pipeline is simulated action by action with
 * the times of each stage's passes, by the lists of actions that its ranks run
 * (banyan/pipeline.h).
 */
#ifndef BANYAN_LAYOUT_H
#define BANYAN_LAYOUT_H

#include "banyan/cluster.h"
#include "banyan/pipeline.h"
#include "banyan/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parts of a step's time. */
typedef enum by_layout_part {
    BY_LAYOUT_PRODUCTS = 0, /* matrix products in blocks */
    BY_LAYOUT_ATTENTION,
    BY_LAYOUT_OTHER,     /* other operations in blocks: norms, activations, ... */
    BY_LAYOUT_ENDS,      /* outside blocks: embedding, head, loss */
    BY_LAYOUT_SUMS,      /* of gradients of micro-batches */
    BY_LAYOUT_UPDATE,    /* the optimizer's step, and the norm of the gradient */
    BY_LAYOUT_TENSOR,    /* exchanges along `tensor`, */
    BY_LAYOUT_SEQUENCE,  /* `sequence` */
    BY_LAYOUT_EXPERT,    /* and `expert` */
    BY_LAYOUT_GRADIENTS, /* sums of gradients over replicas and `shard` */
    BY_LAYOUT_WEIGHTS,   /* gathers of parameters: zero 3, and those after an update */
    BY_LAYOUT_PIPELINE,  /* sends between stages */
    BY_LAYOUT_BUBBLE,    /* a stage waits for another */
    BY_LAYOUT_PARTS
} by_layout_part;

/* Returns "products", "attention", "other operations", ... */
BY_API const char *by_layout_part_name(by_layout_part part);

/* A part of the time of a step. */
typedef struct by_layout_term {
    double seconds; /* that it adds to the step */
    double hidden;  /* of exchanges: seconds behind computation */
    by_origin origin;
} by_layout_term;

/* A rank that was planned: one of each stage, and of each position whose plan may differ. */
typedef struct by_layout_rank {
    int rank;
    char place[96]; /* "pipeline 0, data 0" */
    /* Without the process itself, whose code and libraries are not the same everywhere. */
    by_memory_report memory;
    double busy; /* seconds of a step that it computes */
    double idle; /* seconds of a step that it waits for other stages */
} by_layout_rank;

/* What one of a rank's two queues does from one time of the predicted step to another. */
typedef struct by_layout_span {
    int rank;
    bool exchange;       /* on the queue of communication; false: of computation */
    by_layout_part part; /* of a pass of a pipeline: products */
    int pass;            /* of a pipeline, a by_pipeline_action_kind; -1: none */
    int64_t micro_batch; /* of a pass; -1: none */
    int block;           /* of the model; -1: outside, or several */
    bool backward;
    double begin; /* seconds from the beginning of the step */
    double end;
} by_layout_span;

typedef struct by_layout_plan {
    int ranks; /* of the job */
    int sizes[BY_MESH_AXES];
    int64_t micro_batch;
    int64_t micro_batches; /* of a replica */
    by_layout_rank *planned;
    size_t planned_count;
    uint64_t memory;  /* bytes of the planned rank that needs most */
    uint64_t limit;   /* bytes that its plan may take: of the device, on this machine of a share of
                         its free memory, and of memory.budget what the process leaves */
    double seconds;   /* of a step */
    double low, high; /* an 80 % interval of it, from the errors of the terms' origins */
    /* On this machine: what measured runs multiply the plan by, its terms too, and their number; 1
     * and 0 without any. */
    double correction;
    size_t corrected_by;
    by_layout_term terms[BY_LAYOUT_PARTS]; /* of the rank with most to do; they add to `seconds` */
    double bubble;                         /* share of the step that ranks idle, in the mean */
    double flops;    /* of a step, of the whole job: by_model_size's flops_per_example */
    double share;    /* of the peak of all devices */
    double examples; /* of a step, as the task counts them */
    /* With options->trace: spans of planned ranks, of a pipeline the first of each stage; those of
     * one rank and queue are ascending and apart. */
    by_layout_span *spans;
    size_t span_count;
} by_layout_plan;

typedef struct by_layout_options {
    int ranks;                 /* 0: the product of the axes, or 1 with data: -1 */
    const by_cluster *cluster; /* NULL: this machine, whose cores the ranks divide */
    uint64_t data_bytes;       /* as in by_trainer_options */
    bool trace;                /* records the spans of the step */
} by_layout_options;

/* Plans a resolved config, of which it chooses train.micro_batch where that is open. Free the
 * result with by_layout_plan_free. Returns BY_ECONFIG as by_trainer_open. */
BY_API by_status by_layout_plan_make(by_layout_plan *out, by_config *config,
                                     const by_layout_options *options, by_error *error);
/* Predicts the step of a run from the programs that its trainer has compiled, corrected by the runs
 * that were measured on this machine (for by_train_options.forecaster). These are kept in a file
 * beside that of by_machine_cache_path: planned and measured seconds of a step, by machine,
 * model.kind, precision.compute, number of ranks and layout. A plan is corrected by the ratios of
 * those of its kind and layout that are next to it, between two of them by powers; if there are
 * none, by those of other layouts. */
BY_API const by_forecaster *by_layout_forecaster(void);
/* The path of that file; free it with free(). */
BY_API by_status by_layout_corrections_path(char **out, by_error *error);

/* Writes the spans of a plan as JSON for chrome://tracing or ui.perfetto.dev: a process for each
 * rank, a thread for each of its queues, times in microseconds. Atomic. */
BY_API by_status by_layout_write_trace(const by_layout_plan *plan, const char *path,
                                       by_error *error);
/* Frees a result and zeroes it. */
BY_API void by_layout_plan_free(by_layout_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
