/* Pipeline schedules: what each rank of a pipeline does in a step, in which order, and how long it
 * takes.
 *
 * A model is cut into ranks x chunks stages. Stage s runs on rank s % ranks; a micro-batch passes
 * through the stages in order, and its gradients in reverse. A schedule is a list of actions for
 * each rank: forward and backward passes of a stage for a micro-batch, and transfers between ranks.
 * It is a pure function of the options, so that every rank computes all lists without
 * communication.
 *
 * All lists are consistent with one global order, in which a transfer is placed where the sending
 * pass ends if every pass takes its usual time. Hence no list can block another forever, even if
 * sends wait for their receivers.
 *
 * In every schedule the backward passes of a stage run in the order of the micro-batches, so that
 * the sums of their gradients are those of a single rank.
 *
 * With F, B and W the times of a forward pass, of the gradient of a stage's input and of its
 * weights, p ranks, m micro-batches and v chunks, the idle time of a rank, and the number of
 * micro-batches whose activations it holds, are
 *
 *     gpipe         (p - 1) (F + B + W)        m
 *     1f1b          (p - 1) (F + B + W)        at most p - rank
 *     interleaved   (p - 1) (F + B + W) / v    (if p divides m)
 *     zero_bubble   (p - 1) (F + B - W)        at most p (if F = B = W and m >= 2 p - 1)
 */
#ifndef BANYAN_PIPELINE_H
#define BANYAN_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Schedules. */
typedef enum by_pipeline_kind {
    /* All forward passes, then all backward passes (Huang et al. 2019, "GPipe", section 2). */
    BY_PIPELINE_GPIPE = 0,
    /* Alternating forward and backward passes (PipeDream-flush; Narayanan et al. 2021, "Efficient
     * large-scale language model training on GPU clusters", section 2.2). */
    BY_PIPELINE_1F1B,
    /* The same with several chunks of the model per rank (section 2.3 there). */
    BY_PIPELINE_INTERLEAVED,
    /* Computes the gradient of the weights separately from that of the input, for which alone the
     * previous stage waits (Qi et al. 2023, "Zero bubble pipeline parallelism", ZB-H1). */
    BY_PIPELINE_ZERO_BUBBLE,
    BY_PIPELINE_KINDS
} by_pipeline_kind;

/* Returns "gpipe", "1f1b", "interleaved" or "zero_bubble". */
BY_API const char *by_pipeline_kind_name(by_pipeline_kind kind);
/* Finds a schedule by name. Returns BY_EARG, with a list of names, if there is none. */
BY_API by_status by_pipeline_kind_find(by_pipeline_kind *out, const char *name, by_error *error);

/* Kind of an action. */
typedef enum by_pipeline_action_kind {
    BY_PIPELINE_FORWARD = 0,
    BY_PIPELINE_BACKWARD, /* zero_bubble: without the gradient of the weights */
    BY_PIPELINE_WEIGHT,   /* zero_bubble: the gradient of the weights */
    BY_PIPELINE_SEND,
    BY_PIPELINE_RECEIVE
} by_pipeline_action_kind;

/* One action of a rank. The fields from `to` on are set for transfers only. */
typedef struct by_pipeline_action {
    by_pipeline_action_kind kind;
    int stage;           /* stage that computes or sends */
    int64_t micro_batch; /* index within the step, from 0 */
    int to;              /* stage that receives */
    int peer;            /* rank at the other end */
    int tag;             /* equal at both ends; unique among the transfers of a step */
    bool backward;       /* gradients, not activations */
} by_pipeline_action;

/* A transfer between stages that are not adjacent: activations to a later stage or, with
 * `backward`, gradients to an earlier one. */
typedef struct by_pipeline_link {
    int from;
    int to;
    bool backward;
} by_pipeline_link;

typedef struct by_pipeline_options {
    by_pipeline_kind kind;
    int ranks;             /* 1 to 1024 */
    int chunks;            /* stages per rank, 1 to 64; more than 1 only with interleaved */
    int64_t micro_batches; /* >= 1; ranks x chunks x micro_batches is at most 2^24 */
    /* Transfers for every micro-batch, in addition to those between adjacent stages. */
    const by_pipeline_link *links;
    size_t link_count;
} by_pipeline_options;

/* A schedule. */
typedef struct by_pipeline by_pipeline;

/* Computes a schedule; the links are copied. Returns BY_EARG if an option is out of range. */
BY_API by_status by_pipeline_open(by_pipeline **out, const by_pipeline_options *options,
                                  by_error *error);
BY_API void by_pipeline_close(by_pipeline **pipeline);
/* Returns the schedule's options. */
BY_API const by_pipeline_options *by_pipeline_of(const by_pipeline *pipeline);
/* Returns the actions of a rank in order and sets *count to their number. */
BY_API const by_pipeline_action *by_pipeline_actions(const by_pipeline *pipeline, int rank,
                                                     size_t *count);

/* ---- simulation ---- */

/* Time of each pass of a stage, in any unit, and of a transfer, which delays its receiver but
 * occupies no rank. `backward` is the entire backward pass; `weight` is the part of it for the
 * gradient of the weights. */
typedef struct by_pipeline_costs {
    double forward;
    double backward;
    double weight;
    double transfer;
} by_pipeline_costs;

/* Returns forward 1, backward 2, weight 1, transfer 0. */
BY_API by_pipeline_costs by_pipeline_usual_costs(void);

/* Times of a rank, in the unit of the costs. */
typedef struct by_pipeline_rank_time {
    double busy;
    double idle;  /* makespan minus busy */
    int64_t live; /* maximum of micro-batches whose activations it holds at once, over all of its
                     chunks */
} by_pipeline_rank_time;

/* Result of a simulation. */
typedef struct by_pipeline_time {
    double makespan;              /* from the first action's start to the last action's end */
    double bubble;                /* mean fraction of the makespan that ranks are idle */
    by_pipeline_rank_time *ranks; /* [ranks] */
    /* [ranks][actions] When each action of a rank begins and ends. A send takes no time; a receive
     * ends when the data has arrived. */
    double **begin;
    double **end;
} by_pipeline_time;

/* Simulates a schedule: each rank executes its actions in turn, and a receive waits for its data.
 * Returns BY_ESTATE if ranks block each other forever. Release the result with
 * by_pipeline_time_free. */
BY_API by_status by_pipeline_simulate(by_pipeline_time *out, const by_pipeline *pipeline,
                                      const by_pipeline_costs *costs, by_error *error);
/* Frees a result and zeroes it. */
BY_API void by_pipeline_time_free(by_pipeline_time *time);

/* Draws the schedule as text at the usual costs, one line per rank: F3 is the forward pass of
 * micro-batch 3, B3 its backward pass, W3 the gradient of the weights, followed by a letter for the
 * chunk if there are several; a dash continues a pass of more than one unit, and a dot is an idle
 * unit. Makespan and bubble follow. Free it with free(). */
BY_API by_status by_pipeline_text(char **out, const by_pipeline *pipeline, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
