/* Pipeline schedules: what each rank of a pipeline does in a step, in which order, and what that
 * costs.
 *
 * A model is cut into ranks x chunks stages; stage s runs on rank s % ranks, and a micro-batch goes
 * through the stages in order and its gradients back. A schedule is a list of actions for each
 * rank: forward and backward passes of a stage on a micro-batch, and the transfers between ranks.
 * It is a pure function of the options, so every rank makes all lists without a message.
 *
 * The lists have one global order that each of them keeps, in which a transfer stands in both lists
 * where the sending pass ends when every pass takes its usual time. So no list can block another
 * one for ever, even where a send waits for its receiver.
 *
 * Backward passes of a stage run in the order of the micro-batches in every schedule, so the sums
 * of their gradients are those of one rank.
 *
 * With F, B and W the times of a forward pass, of the gradient of a stage's input and of its
 * weights, p ranks, m micro-batches and v chunks, a rank is idle for
 *
 *     gpipe         (p - 1) (F + B + W)        and holds m micro-batches
 *     1f1b          (p - 1) (F + B + W)        and holds at most p - rank
 *     interleaved   (p - 1) (F + B + W) / v    when p divides m
 *     zero_bubble   (p - 1) (F + B - W)        and holds at most p; F = B = W, m >= 2 p - 1
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

typedef enum by_pipeline_kind {
    /* All forward passes, then all backward passes (Huang et al. 2019, "GPipe", section 2). */
    BY_PIPELINE_GPIPE = 0,
    /* One forward, one backward pass in turn (Narayanan et al. 2021, "Efficient large-scale
     * language model training on GPU clusters", section 2.2; PipeDream-flush). */
    BY_PIPELINE_1F1B,
    /* The same with several chunks of the model on each rank (section 2.3 there). */
    BY_PIPELINE_INTERLEAVED,
    /* The gradient of the weights apart from that of the input, which alone is waited for (Qi et
     * al. 2023, "Zero bubble pipeline parallelism", schedule ZB-H1). */
    BY_PIPELINE_ZERO_BUBBLE,
    BY_PIPELINE_KINDS
} by_pipeline_kind;

/* "gpipe", "1f1b", "interleaved", "zero_bubble". */
BY_API const char *by_pipeline_kind_name(by_pipeline_kind kind);
/* BY_EARG lists the names. */
BY_API by_status by_pipeline_kind_find(by_pipeline_kind *out, const char *name, by_error *error);

typedef enum by_pipeline_action_kind {
    BY_PIPELINE_FORWARD = 0,
    BY_PIPELINE_BACKWARD, /* zero_bubble: without the gradient of the weights */
    BY_PIPELINE_WEIGHT,   /* zero_bubble: the gradient of the weights */
    BY_PIPELINE_SEND,
    BY_PIPELINE_RECEIVE
} by_pipeline_action_kind;

typedef struct by_pipeline_action {
    by_pipeline_action_kind kind;
    int stage;           /* that computes; of a transfer: that sends */
    int64_t micro_batch; /* of the step, from 0 */
    /* of a transfer: */
    int to;        /* stage that receives */
    int peer;      /* rank at the other end */
    int tag;       /* equal at both ends, of no other transfer of the step */
    bool backward; /* gradients, not activations */
} by_pipeline_action;

/* A transfer between two stages that are not neighbours: forward, activations from a stage to a
 * later one; backward, gradients from a stage to an earlier one. */
typedef struct by_pipeline_link {
    int from;
    int to;
    bool backward;
} by_pipeline_link;

typedef struct by_pipeline_options {
    by_pipeline_kind kind;
    int ranks;             /* 1 to 1024 */
    int chunks;            /* stages of a rank, 1 to 64; more than 1 only for interleaved */
    int64_t micro_batches; /* at least 1; ranks x chunks x micro_batches is at most 2^24 */
    /* of every micro-batch, in addition to those between neighbours */
    const by_pipeline_link *links;
    size_t link_count;
} by_pipeline_options;

typedef struct by_pipeline by_pipeline;

/* BY_EARG names both numbers and what would do. The links are copied. */
BY_API by_status by_pipeline_open(by_pipeline **out, const by_pipeline_options *options,
                                  by_error *error);
BY_API void by_pipeline_close(by_pipeline **pipeline);
BY_API const by_pipeline_options *by_pipeline_of(const by_pipeline *pipeline);
/* What a rank does, in order; owned by the pipeline. */
BY_API const by_pipeline_action *by_pipeline_actions(const by_pipeline *pipeline, int rank,
                                                     size_t *count);

/* ---- time ---- */

/* Time of each pass of a stage, in any unit, and of a transfer, which delays its receiver but keeps
 * nobody busy. `backward` is the whole backward pass, of which `weight` is the gradient of the
 * weights, where they are apart. */
typedef struct by_pipeline_costs {
    double forward;
    double backward;
    double weight;
    double transfer;
} by_pipeline_costs;

/* Forward 1, backward 2, half of it for the weights, transfers 0. */
BY_API by_pipeline_costs by_pipeline_usual_costs(void);

typedef struct by_pipeline_rank_time {
    double busy;
    double idle;  /* the rest of the makespan */
    int64_t live; /* most micro-batches whose activations it holds at once, over its chunks */
} by_pipeline_rank_time;

typedef struct by_pipeline_time {
    double makespan;
    double bubble; /* share of the makespan that ranks are idle, on average */
    by_pipeline_rank_time *ranks;
    /* For each rank, when each of its actions begins and ends. A send takes no time; a receive ends
     * when the data is there. */
    double **begin;
    double **end;
} by_pipeline_time;

/* Runs the lists on a clock: a rank does its actions one after another, a receive waits for its
 * data. BY_ESTATE when they block each other for ever. Released with by_pipeline_time_free. */
BY_API by_status by_pipeline_simulate(by_pipeline_time *out, const by_pipeline *pipeline,
                                      const by_pipeline_costs *costs, by_error *error);
BY_API void by_pipeline_time_free(by_pipeline_time *time);

/* ---- pictures ---- */

/* The schedule as text, one line a rank, at the usual costs: F3 is the forward pass of micro-batch
 * 3, B3 its backward pass, W3 its weights' gradient, followed by a letter of the chunk where there
 * are several; a dash fills a pass that takes more than one unit and a dot is an idle one. Below
 * it, makespan and bubble. Freed with free(). */
BY_API by_status by_pipeline_text(char **out, const by_pipeline *pipeline, by_error *error);
/* The same as a picture, to a name in .svg or .png, written atomically. BY_EARG: another name, or
 * more than 4000 units of time or 64 ranks. */
BY_API by_status by_pipeline_draw(const by_pipeline *pipeline, const char *path, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
