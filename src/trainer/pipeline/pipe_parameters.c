/* Assigns the parameters of a pipeline to ranks: who trains them, and who only reads them. */
#include <stdlib.h>
#include <string.h>

#include "trainer/pipeline/pipe.h"

/* Adds a parameter that a stage reads and another rank trains. */
static by_status share(by__trainer_pipe *pipe, by_value parameter, int from, int stage,
                       by_error *error)
{
    const by__graph_value *value = &pipe->cut->train.whole->values[parameter];
    by__trainer_pipe_share next = {value->name, by__pipe_rank_of(pipe, from),
                                   by__pipe_rank_of(pipe, stage)};
    if (next.from == next.to) {
        return BY_OK;
    }
    if (next.to == pipe->rank) {
        BY_TRY(by__trainer_list_parameter(pipe->parameters, value, true, error));
    }
    if (value->frozen) {
        return BY_OK; /* it never changes */
    }
    by__trainer_pipe_share *grown =
        realloc(pipe->shares, (pipe->share_count + 1) * sizeof *pipe->shares);
    if (grown == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu parameters",
                            pipe->share_count + 1);
    }
    pipe->shares = grown;
    for (size_t i = 0; i < pipe->share_count; i++) {
        if (pipe->shares[i].to == next.to && strcmp(pipe->shares[i].name, next.name) == 0) {
            return BY_OK;
        }
    }
    pipe->shares[pipe->share_count++] = next;
    return BY_OK;
}

/* Refuses, on all ranks, a rank that would have nothing to train. */
static by_status check_trained(const by__trainer_pipe *pipe, by_error *error)
{
    const by_graph *whole = pipe->cut->train.whole;
    const int *stage_of = pipe->cut->stage_of;
    for (int rank = 0; rank < pipe->ranks; rank++) {
        bool has = false;
        bool trains = false;
        for (size_t v = 0; v < whole->value_count && !trains; v++) {
            bool here = stage_of[v] >= 0 && stage_of[v] % pipe->ranks == rank;
            has = has || here;
            trains = here && !whole->values[v].frozen;
        }
        if (!has) {
            return by_error_set(error, BY_EARG,
                                "rank %d of the pipeline has no parameters, because the model has "
                                "no blocks for it: use fewer ranks",
                                rank);
        }
        if (!trains) {
            return by_error_set(error, BY_EARG,
                                "all parameters of rank %d of the pipeline are frozen: use fewer "
                                "ranks, or freeze fewer blocks in optimizer.groups",
                                rank);
        }
    }
    return BY_OK;
}

by_status by__pipeline_list_parameters(by_trainer *t, by_error *error)
{
    by__trainer_pipe *pipe = t->pipe;
    const by__trainer_pipe_cut *cut = pipe->cut;
    BY_TRY(check_trained(pipe, error));
    BY_TRY(by__trainer_list_trained(&pipe->parameters, t, pipe->rank, error));
    for (size_t i = 0; i < cut->reading_count; i++) {
        const by__trainer_pipe_reading *r = &cut->readings[i];
        if (cut->stage_of[r->parameter] >= 0) {
            BY_TRY(share(pipe, r->parameter, cut->stage_of[r->parameter], r->stage, error));
        }
    }
    return BY_OK;
}
