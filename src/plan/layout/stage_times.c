/* Simulates a pipeline whose stages take different times: each rank executes its actions in turn, a
 * send occupies its rank while the bytes leave, and a receive waits for them. */
#include <stdlib.h>

#include "base/base.h"
#include "plan/layout/layout.h"
#include "trainer/pipeline/pipeline.h"

typedef struct stage_run {
    const by_pipeline *schedule;
    const by__layout_stage *stages;
    by__layout_job job;             /* which records nothing, */
    const by__layout_trace *passes; /* unlike that of the passes */
    by__layout_trace *trace;        /* NULL: nothing is recorded */
    by__layout_pipeline *out;
} stage_run;

void by__layout_pipeline_free(by__layout_pipeline *p)
{
    free(p->busy);
    free(p->end);
    *p = (by__layout_pipeline){0};
}

/* Records an action: a pass, with its collectives, or a send. */
static void record(stage_run *r, int rank, const by_pipeline_action *a, double begin, double end)
{
    int each = r->job.ranks / r->out->ranks;
    bool sends = a->kind == BY_PIPELINE_SEND;
    by_layout_span span = {.rank = rank * each,
                           .exchange = sends,
                           .part = sends ? BY_LAYOUT_PIPELINE : BY_LAYOUT_PRODUCTS,
                           .pass = sends ? -1 : (int)a->kind,
                           .micro_batch = a->micro_batch,
                           .block = -1,
                           .backward = a->backward};
    if (r->trace == NULL || a->kind == BY_PIPELINE_RECEIVE) {
        return;
    }
    by__layout_spans unused;
    by__layout_trace_begin(r->trace, &unused);
    by__layout_trace_add(r->trace, span, begin, end);
    const by__layout_spans *inner = sends ? NULL : &r->stages[a->stage].spans[a->kind];
    for (size_t i = 0; inner != NULL && i < inner->count; i++) {
        const by__layout_spans one = {inner->first + i, 1};
        if (r->passes->spans[one.first].exchange) {
            by__layout_trace_copy(r->trace, r->passes, &one, span.rank, begin);
        }
    }
}

static by__pipeline_moment act(void *user, int rank, size_t action, double begin, double ready)
{
    stage_run *r = user;
    const by_pipeline_action *a = &r->schedule->actions[rank][action];
    by__layout_time *busy = &r->out->busy[rank];
    double before = busy->total;
    BY_UNUSED(begin);
    if (a->kind == BY_PIPELINE_SEND) {
        const by__layout_stage *s = &r->stages[a->stage];
        by__layout_add_exchange(busy, &r->job, BY_LAYOUT_PIPELINE, BY_EXCHANGE_SHIFT,
                                a->backward ? s->returned : s->sent, 1u << BY_MESH_PIPELINE);
    } else if (a->kind != BY_PIPELINE_RECEIVE) {
        by__layout_add(busy, &r->stages[a->stage].passes[a->kind], 1.0);
    }
    double done = ready + (busy->total - before);
    record(r, rank, a, ready, done);
    r->out->end[rank] = done;
    return (by__pipeline_moment){.done = done, .arrival = done};
}

static by_status simulate(stage_run *r, by_error *error)
{
    size_t ranks = (size_t)r->out->ranks;
    BY_TRY(by__alloc((void **)&r->out->busy, ranks, sizeof *r->out->busy, "pipeline", error));
    BY_TRY(by__alloc((void **)&r->out->end, ranks, sizeof *r->out->end, "pipeline", error));
    BY_TRY(by__pipeline_walk(r->schedule, act, r, error));
    for (size_t k = 0; k < ranks; k++) {
        double end = r->out->end[k];
        r->out->makespan = end > r->out->makespan ? end : r->out->makespan;
    }
    return BY_OK;
}

by_status by__layout_pipeline_run(by__layout_pipeline *out, const by_pipeline *schedule,
                                  const by__layout_stage *stages, const by__layout_job *job,
                                  by__layout_trace *trace, by_error *error)
{
    by__layout_pipeline p = {.ranks = by_pipeline_of(schedule)->ranks};
    stage_run r = {.schedule = schedule,
                   .stages = stages,
                   .job = *job,
                   .passes = job->trace,
                   .trace = trace,
                   .out = &p};
    r.job.trace = NULL;
    by_status status = simulate(&r, error);
    if (status != BY_OK) {
        by__layout_pipeline_free(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}
