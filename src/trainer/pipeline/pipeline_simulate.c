/* Simulates a schedule: the time at which each action begins and ends, given costs of passes and
 * transfers. */
#include <stdlib.h>

#include "trainer/pipeline/pipeline.h"

by_pipeline_costs by_pipeline_usual_costs(void)
{
    return (by_pipeline_costs){.forward = 1.0, .backward = 2.0, .weight = 1.0, .transfer = 0.0};
}

typedef struct simulated_run {
    const by_pipeline *pipeline;
    const by_pipeline_costs *costs;
    by_pipeline_time *time;
} simulated_run;

/* Time of a pass; 0 for a transfer. */
static double duration(const simulated_run *r, by_pipeline_action_kind kind)
{
    const by_pipeline_costs *c = r->costs;
    bool apart = r->pipeline->options.kind == BY_PIPELINE_ZERO_BUBBLE;
    return kind == BY_PIPELINE_FORWARD    ? c->forward
           : kind == BY_PIPELINE_BACKWARD ? c->backward - (apart ? c->weight : 0.0)
           : kind == BY_PIPELINE_WEIGHT   ? c->weight
                                          : 0.0;
}

static by__pipeline_moment act(void *user, int rank, size_t action, double begin, double ready)
{
    const simulated_run *r = user;
    const by_pipeline_action *a = &r->pipeline->actions[rank][action];
    const by__pipeline_moment moment = {.done = ready + duration(r, a->kind),
                                        .arrival = ready + r->costs->transfer};
    r->time->begin[rank][action] = begin;
    r->time->end[rank][action] = moment.done;
    return moment;
}

static void measure_rank(const simulated_run *r, int rank)
{
    by_pipeline_rank_time *out = &r->time->ranks[rank];
    bool apart = r->pipeline->options.kind == BY_PIPELINE_ZERO_BUBBLE;
    by_pipeline_action_kind last = apart ? BY_PIPELINE_WEIGHT : BY_PIPELINE_BACKWARD;
    int64_t live = 0;
    for (size_t i = 0; i < r->pipeline->counts[rank]; i++) {
        by_pipeline_action_kind kind = r->pipeline->actions[rank][i].kind;
        out->busy += duration(r, kind);
        live += kind == BY_PIPELINE_FORWARD;
        out->live = live > out->live ? live : out->live;
        live -= kind == last;
    }
    out->idle = r->time->makespan - out->busy;
}

static by_status simulate_all(simulated_run *r, by_error *error)
{
    const by_pipeline *p = r->pipeline;
    by_pipeline_time *t = r->time;
    size_t ranks = (size_t)p->options.ranks;
    BY_TRY(by__alloc((void **)&t->ranks, ranks, sizeof *t->ranks, "pipeline", error));
    /* One extra, ended by NULL: by_pipeline_time_free needs no count. */
    BY_TRY(by__alloc((void **)&t->begin, ranks + 1, sizeof *t->begin, "pipeline", error));
    BY_TRY(by__alloc((void **)&t->end, ranks + 1, sizeof *t->end, "pipeline", error));
    for (size_t k = 0; k < ranks; k++) {
        BY_TRY(by__alloc((void **)&t->begin[k], p->counts[k] + 1, sizeof **t->begin, "pipeline",
                         error));
        BY_TRY(
            by__alloc((void **)&t->end[k], p->counts[k] + 1, sizeof **t->end, "pipeline", error));
    }
    BY_TRY(by__pipeline_walk(p, act, r, error));
    for (size_t k = 0; k < ranks; k++) {
        double end = t->end[k][p->counts[k] - 1];
        t->makespan = end > t->makespan ? end : t->makespan;
    }
    double idle = 0.0;
    for (size_t k = 0; k < ranks; k++) {
        measure_rank(r, (int)k);
        idle += t->ranks[k].idle;
    }
    t->bubble = t->makespan > 0.0 ? idle / (t->makespan * (double)ranks) : 0.0;
    return BY_OK;
}

by_status by_pipeline_simulate(by_pipeline_time *out, const by_pipeline *pipeline,
                               const by_pipeline_costs *costs, by_error *error)
{
    by_pipeline_time time = {0};
    simulated_run r = {.pipeline = pipeline, .costs = costs, .time = &time};
    by_status status = simulate_all(&r, error);
    if (status != BY_OK) {
        by_pipeline_time_free(&time);
        return status;
    }
    *out = time;
    return BY_OK;
}

void by_pipeline_time_free(by_pipeline_time *time)
{
    for (size_t k = 0; time->begin != NULL && time->begin[k] != NULL; k++) {
        free(time->begin[k]);
    }
    for (size_t k = 0; time->end != NULL && time->end[k] != NULL; k++) {
        free(time->end[k]);
    }
    free(time->begin);
    free(time->end);
    free(time->ranks);
    *time = (by_pipeline_time){0};
}
