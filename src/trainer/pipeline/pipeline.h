/* trainer/pipeline: pipeline schedules, and (pipe.h) a trainer that runs stages of a model.
 *
 * This header has the internals of schedules: orders of passes (pipeline_orders.c), the resulting
 * lists of actions (pipeline_schedule.c), their time (pipeline_walk.c, and pipeline_simulate.c at
 * given costs), and their drawing as text (pipeline_text.c). They are functions of the options
 * alone, without any rank running.
 *
 * Types: by_pipeline, a schedule with the list of actions of each rank; by__pipeline_pass_unit, one
 * pass of a stage on a micro-batch.
 *
 * Who owns what: a schedule owns its lists and a copy of the links; options are copied.
 *
 * Never put here: graphs, memory, communication; these are in pipe.h. */
#ifndef BY_TRAINER_PIPELINE_PIPELINE_H
#define BY_TRAINER_PIPELINE_PIPELINE_H

#include "banyan/pipeline.h"
#include "base/base.h"

/* A pass of a stage on a micro-batch. */
typedef struct by__pipeline_pass_unit {
    by_pipeline_action_kind kind; /* not a transfer */
    int stage;
    int64_t micro_batch;
} by__pipeline_pass_unit;

struct by_pipeline {
    by_pipeline_options options;
    by_pipeline_link *links; /* those between neighbours, then those of the options */
    size_t link_count;
    by_pipeline_action **actions; /* list of each rank */
    size_t *counts;
};

static inline bool by__is_transfer(const by_pipeline_action *action)
{
    return action->kind == BY_PIPELINE_SEND || action->kind == BY_PIPELINE_RECEIVE;
}

/* Number of passes of one rank. */
size_t by__pipeline_order_count(const by_pipeline_options *options);
/* Writes the order in which rank `rank` runs its passes to `out`. `slack`: forward passes that an
 * interleaved schedule runs before its first backward pass in addition to the usual number. */
void by__pipeline_order(const by_pipeline_options *options, int rank, int64_t slack,
                        by__pipeline_pass_unit *out);

/* When an action is done and, of a send, when its data arrives. */
typedef struct by__pipeline_moment {
    double done;
    double arrival;
} by__pipeline_moment;

/* Runs an action, given when its turn came and when it could begin: for a receive, once its data
 * had arrived. */
typedef by__pipeline_moment by__pipeline_act(void *user, int rank, size_t action, double begin,
                                             double ready);

/* Has `act` run all actions, those of a rank in order. BY_ESTATE: a rank waits for ever. */
by_status by__pipeline_walk(const by_pipeline *pipeline, by__pipeline_act *act, void *user,
                            by_error *error);
/* by_pipeline_simulate at the usual costs. */
by_status by__pipeline_simulate_usual(by_pipeline_time *out, const by_pipeline *pipeline,
                                      by_error *error);
/* Adds one line that describes a schedule and its time. */
void by__pipeline_summarize(by_string *text, const by_pipeline *p, const by_pipeline_time *time);

#endif
