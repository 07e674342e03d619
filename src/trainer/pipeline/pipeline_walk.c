/* Goes through a schedule in time: each rank runs its actions in turn, and a receive waits until
 * its data has arrived. What an action takes is up to the caller. */
#include <stdlib.h>

#include "trainer/pipeline/pipeline.h"

typedef struct pipeline_walk {
    const by_pipeline *pipeline;
    by__pipeline_act *act;
    void *user;
    double *arrival; /* by tag; below 0: not sent */
    double *now;     /* when the last action of each rank was done */
    size_t *next;    /* action of each rank */
} pipeline_walk;

/* Runs a rank until it waits or is done. */
static bool advance(pipeline_walk *w, int rank)
{
    size_t first = w->next[rank];
    for (; w->next[rank] < w->pipeline->counts[rank]; w->next[rank]++) {
        const by_pipeline_action *a = &w->pipeline->actions[rank][w->next[rank]];
        double ready = w->now[rank];
        if (a->kind == BY_PIPELINE_RECEIVE) {
            if (w->arrival[a->tag] < 0.0) {
                break;
            }
            ready = w->arrival[a->tag] > ready ? w->arrival[a->tag] : ready;
        }
        by__pipeline_moment m = w->act(w->user, rank, w->next[rank], w->now[rank], ready);
        w->now[rank] = m.done;
        if (a->kind == BY_PIPELINE_SEND) {
            w->arrival[a->tag] = m.arrival;
        }
    }
    return w->next[rank] > first;
}

static by_status walk(pipeline_walk *w, by_error *error)
{
    const by_pipeline *p = w->pipeline;
    size_t ranks = (size_t)p->options.ranks;
    size_t tags = p->link_count * (size_t)p->options.micro_batches;
    BY_TRY(by__alloc((void **)&w->next, ranks, sizeof *w->next, "pipeline", error));
    BY_TRY(by__alloc((void **)&w->now, ranks, sizeof *w->now, "pipeline", error));
    BY_TRY(by__alloc((void **)&w->arrival, tags, sizeof *w->arrival, "pipeline", error));
    for (size_t k = 0; k < tags; k++) {
        w->arrival[k] = -1.0;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t k = 0; k < ranks; k++) {
            moved = advance(w, (int)k) || moved;
        }
    }
    for (size_t k = 0; k < ranks; k++) {
        if (w->next[k] < p->counts[k]) {
            return by_error_set(error, BY_ESTATE,
                                "pipeline: rank %zu waits for ever at its action %zu", k,
                                w->next[k]);
        }
    }
    return BY_OK;
}

by_status by__pipeline_walk(const by_pipeline *pipeline, by__pipeline_act *act, void *user,
                            by_error *error)
{
    pipeline_walk w = {.pipeline = pipeline, .act = act, .user = user};
    by_status status = walk(&w, error);
    free(w.arrival);
    free(w.now);
    free(w.next);
    return status;
}
