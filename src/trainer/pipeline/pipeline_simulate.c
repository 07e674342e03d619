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
    double *arrival; /* by tag, time of arrival; -1: not sent */
    size_t *next;    /* index of the next action of each rank */
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

/* Runs a rank until it waits or is done. */
static bool advance(simulated_run *r, int rank)
{
    size_t first = r->next[rank];
    const double *end = r->time->end[rank];
    for (; r->next[rank] < r->pipeline->counts[rank]; r->next[rank]++) {
        size_t i = r->next[rank];
        const by_pipeline_action *a = &r->pipeline->actions[rank][i];
        double now = i == 0 ? 0.0 : end[i - 1];
        double done = now + duration(r, a->kind);
        if (a->kind == BY_PIPELINE_SEND) {
            r->arrival[a->tag] = now + r->costs->transfer;
        } else if (a->kind == BY_PIPELINE_RECEIVE) {
            if (r->arrival[a->tag] < 0.0) {
                break;
            }
            done = r->arrival[a->tag] > now ? r->arrival[a->tag] : now;
        }
        r->time->begin[rank][i] = now;
        r->time->end[rank][i] = done;
    }
    return r->next[rank] > first;
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
    size_t tags = p->link_count * (size_t)p->options.micro_batches;
    BY_TRY(by__alloc((void **)&r->next, ranks, sizeof *r->next, "pipeline", error));
    BY_TRY(by__alloc((void **)&r->arrival, tags, sizeof *r->arrival, "pipeline", error));
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
    for (size_t k = 0; k < tags; k++) {
        r->arrival[k] = -1.0;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t k = 0; k < ranks; k++) {
            moved = advance(r, (int)k) || moved;
        }
    }
    for (size_t k = 0; k < ranks; k++) {
        if (r->next[k] < p->counts[k]) {
            return by_error_set(error, BY_ESTATE,
                                "pipeline: rank %zu waits for ever at its action %zu", k,
                                r->next[k]);
        }
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
    free(r.arrival);
    free(r.next);
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
