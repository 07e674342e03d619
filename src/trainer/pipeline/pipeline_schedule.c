/* Schedules: checks the options, times the passes, and makes the list of actions of each rank. */
#include <stdlib.h>
#include <string.h>

#include "trainer/pipeline/pipeline.h"

#define MAX_RANKS  1024
#define MAX_CHUNKS 64
#define MAX_PASSES ((int64_t)1 << 24)

static const char *const kind_names[BY_PIPELINE_KINDS] = {"gpipe", "1f1b", "interleaved",
                                                          "zero_bubble"};

const char *by_pipeline_kind_name(by_pipeline_kind kind)
{
    return kind_names[kind];
}

by_status by_pipeline_kind_find(by_pipeline_kind *out, const char *name, by_error *error)
{
    for (int i = 0; i < BY_PIPELINE_KINDS; i++) {
        if (strcmp(name, kind_names[i]) == 0) {
            *out = (by_pipeline_kind)i;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG,
                        "there is no pipeline schedule '%s'; one of gpipe, 1f1b, interleaved, "
                        "zero_bubble",
                        name);
}

/* ---- the options ---- */

static by_status check_links(const by_pipeline_options *o, by_error *error)
{
    int stages = o->ranks * o->chunks;
    for (size_t i = 0; i < o->link_count; i++) {
        const by_pipeline_link *link = &o->links[i];
        int low = link->backward ? link->to : link->from;
        int high = link->backward ? link->from : link->to;
        if (low < 0 || high >= stages || low >= high) {
            return by_error_set(
                error, BY_EARG, "pipeline: no %s transfer goes from stage %d to %d of %d",
                link->backward ? "backward" : "forward", link->from, link->to, stages);
        }
    }
    return BY_OK;
}

static by_status check(const by_pipeline_options *o, by_error *error)
{
    if (o->kind < 0 || o->kind >= BY_PIPELINE_KINDS || o->ranks < 1 || o->ranks > MAX_RANKS ||
        o->chunks < 1 || o->chunks > MAX_CHUNKS || o->micro_batches < 1) {
        return by_error_set(error, BY_EARG,
                            "pipeline: %d ranks (1 to %d), %d chunks (1 to %d), %lld micro-batches "
                            "(at least 1)",
                            o->ranks, MAX_RANKS, o->chunks, MAX_CHUNKS,
                            (long long)o->micro_batches);
    }
    if (o->chunks > 1 && o->kind != BY_PIPELINE_INTERLEAVED) {
        return by_error_set(error, BY_EARG,
                            "pipeline: schedule %s runs 1 chunk on a rank, not %d; interleaved "
                            "runs several",
                            kind_names[o->kind], o->chunks);
    }
    if (o->micro_batches > MAX_PASSES / (o->ranks * o->chunks)) {
        return by_error_set(error, BY_EARG,
                            "pipeline: %d ranks x %d chunks x %lld micro-batches are more than "
                            "%lld passes; larger micro-batches are fewer",
                            o->ranks, o->chunks, (long long)o->micro_batches,
                            (long long)MAX_PASSES);
    }
    return check_links(o, error);
}

static by_status list_links(by_pipeline *p, const by_pipeline_options *o, by_error *error)
{
    int stages = o->ranks * o->chunks;
    size_t most = 2 * (size_t)stages + o->link_count;
    BY_TRY(by__alloc((void **)&p->links, most, sizeof *p->links, "pipeline", error));
    for (int s = 0; s + 1 < stages; s++) {
        p->links[p->link_count++] = (by_pipeline_link){s, s + 1, false};
        p->links[p->link_count++] = (by_pipeline_link){s + 1, s, true};
    }
    for (size_t i = 0; i < o->link_count; i++) {
        p->links[p->link_count++] = o->links[i];
    }
    p->options.links = NULL; /* owned by the caller */
    p->options.link_count = 0;
    return (int64_t)p->link_count <= INT32_MAX / o->micro_batches
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "pipeline: %zu transfers of each of %lld micro-batches are too many",
                              p->link_count, (long long)o->micro_batches);
}

/* ---- start times of passes ---- */

/* A pass with its time at the default costs. */
typedef struct timed {
    by__pipeline_pass_unit pass;
    double begin;
    double end;
} timed;

typedef struct clock {
    by_pipeline *pipeline;
    timed **passes; /* list of each rank */
    /* of the forward pass of each stage and micro-batch, then of the backward pass; -1: not run */
    double *ended;
    int stages;
} clock;

static double *ended_at(const clock *c, bool backward, int stage, int64_t i)
{
    int64_t row = (backward ? c->stages : 0) + stage;
    return &c->ended[row * c->pipeline->options.micro_batches + i];
}

/* Time when a pass has its inputs; -1: not yet. */
static double ready_at(const clock *c, const by__pipeline_pass_unit *pass)
{
    bool backward = pass->kind != BY_PIPELINE_FORWARD;
    double ready = 0.0;
    if (backward) {
        bool weight = pass->kind == BY_PIPELINE_WEIGHT;
        ready = *ended_at(c, weight, pass->stage, pass->micro_batch);
    }
    for (size_t k = 0; k < c->pipeline->link_count && ready >= 0.0; k++) {
        const by_pipeline_link *link = &c->pipeline->links[k];
        if (link->to == pass->stage && link->backward == backward) {
            double end = *ended_at(c, backward, link->from, pass->micro_batch);
            ready = end < 0.0 || end > ready ? end : ready;
        }
    }
    return ready;
}

static double usual_time(const by_pipeline *p, by_pipeline_action_kind kind)
{
    by_pipeline_costs usual = by_pipeline_usual_costs();
    bool apart = p->options.kind == BY_PIPELINE_ZERO_BUBBLE;
    return kind == BY_PIPELINE_FORWARD  ? usual.forward
           : kind == BY_PIPELINE_WEIGHT ? usual.weight
                                        : usual.backward - (apart ? usual.weight : 0.0);
}

/* Runs every rank's passes as far as possible. *done: all have run. */
static by_status time_passes(clock *c, bool *done, by_error *error)
{
    const by_pipeline_options *o = &c->pipeline->options;
    size_t count = by__pipeline_order_count(o);
    size_t *next;
    size_t left = (size_t)o->ranks * count;
    bool moved = true;
    BY_TRY(by__alloc((void **)&next, (size_t)o->ranks, sizeof *next, "pipeline", error));
    while (left > 0 && moved) {
        moved = false;
        for (int r = 0; r < o->ranks; r++) {
            while (next[r] < count) {
                timed *t = &c->passes[r][next[r]];
                double before = next[r] == 0 ? 0.0 : t[-1].end;
                double ready = ready_at(c, &t->pass);
                if (ready < 0.0) {
                    break;
                }
                t->begin = before > ready ? before : ready;
                t->end = t->begin + usual_time(c->pipeline, t->pass.kind);
                if (t->pass.kind != BY_PIPELINE_WEIGHT) {
                    *ended_at(c, t->pass.kind == BY_PIPELINE_BACKWARD, t->pass.stage,
                              t->pass.micro_batch) = t->end;
                }
                next[r]++;
                left--;
                moved = true;
            }
        }
    }
    free(next);
    *done = left == 0;
    return BY_OK;
}

/* Chooses the order with the least waiting: an interleaved schedule whose last group of
 * micro-batches is smaller than the others may need more forward passes before its first backward
 * pass. With all of them first it always runs. */
static by_status order_passes(clock *c, by_error *error)
{
    const by_pipeline_options *o = &c->pipeline->options;
    size_t count = by__pipeline_order_count(o);
    size_t cells = 2 * (size_t)c->stages * (size_t)o->micro_batches;
    by__pipeline_pass_unit *order;
    bool done = false;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&order, count, sizeof *order, "pipeline", error));
    for (int64_t slack = 0; !done && status == BY_OK; slack++) {
        for (size_t i = 0; i < cells; i++) {
            c->ended[i] = -1.0;
        }
        for (int r = 0; r < o->ranks; r++) {
            by__pipeline_order(o, r, slack, order);
            for (size_t i = 0; i < count; i++) {
                c->passes[r][i].pass = order[i];
            }
        }
        status = time_passes(c, &done, error);
    }
    free(order);
    return status;
}

/* ---- the lists ---- */

/* An action and its position in the total order. */
typedef struct placed {
    by_pipeline_action action;
    double at;
} placed;

/* Passes are ordered by their start; transfers at the end of the pass that produces their data,
 * before passes that start then. */
static int by_place(const void *a, const void *b)
{
    const placed *x = a;
    const placed *y = b;
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    if (by__is_transfer(&x->action) != by__is_transfer(&y->action)) {
        return by__is_transfer(&x->action) ? -1 : 1;
    }
    return x->action.tag < y->action.tag ? -1 : x->action.tag > y->action.tag;
}

/* Adds the transfers of a link at this rank: sends or receives. */
static size_t add_transfers(const clock *c, size_t link, int rank, placed *out)
{
    const by_pipeline_options *o = &c->pipeline->options;
    const by_pipeline_link *l = &c->pipeline->links[link];
    int from = l->from % o->ranks;
    int to = l->to % o->ranks;
    if (from == to || (rank != from && rank != to)) {
        return 0;
    }
    for (int64_t i = 0; i < o->micro_batches; i++) {
        out[i].action = (by_pipeline_action){
            .kind = rank == from ? BY_PIPELINE_SEND : BY_PIPELINE_RECEIVE,
            .stage = l->from,
            .micro_batch = i,
            .to = l->to,
            .peer = rank == from ? to : from,
            .tag = (int)((int64_t)link * o->micro_batches + i),
            .backward = l->backward,
        };
        out[i].at = *ended_at(c, l->backward, l->from, i);
    }
    return (size_t)o->micro_batches;
}

static by_status list_rank(const clock *c, int rank, by_error *error)
{
    by_pipeline *p = c->pipeline;
    size_t passes = by__pipeline_order_count(&p->options);
    size_t count = 0;
    placed *all;
    size_t most = passes;
    for (size_t k = 0; k < p->link_count; k++) {
        bool ends_here = p->links[k].from % p->options.ranks == rank ||
                         p->links[k].to % p->options.ranks == rank;
        most += ends_here ? (size_t)p->options.micro_batches : 0;
    }
    BY_TRY(by__alloc((void **)&all, most, sizeof *all, "pipeline", error));
    for (; count < passes; count++) {
        const timed *t = &c->passes[rank][count];
        all[count].action = (by_pipeline_action){
            .kind = t->pass.kind, .stage = t->pass.stage, .micro_batch = t->pass.micro_batch};
        all[count].at = t->begin;
    }
    for (size_t k = 0; k < p->link_count; k++) {
        count += add_transfers(c, k, rank, &all[count]);
    }
    qsort(all, count, sizeof *all, by_place);
    by_status status =
        by__alloc((void **)&p->actions[rank], count, sizeof *p->actions[rank], "pipeline", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        p->actions[rank][i] = all[i].action;
    }
    p->counts[rank] = count;
    free(all);
    return status;
}

static by_status list_all(clock *c, by_error *error)
{
    const by_pipeline_options *o = &c->pipeline->options;
    size_t count = by__pipeline_order_count(o);
    size_t cells = 2 * (size_t)c->stages * (size_t)o->micro_batches;
    BY_TRY(by__alloc((void **)&c->ended, cells, sizeof *c->ended, "pipeline", error));
    BY_TRY(by__alloc((void **)&c->passes, (size_t)o->ranks, sizeof *c->passes, "pipeline", error));
    for (int r = 0; r < o->ranks; r++) {
        BY_TRY(by__alloc((void **)&c->passes[r], count, sizeof *c->passes[r], "pipeline", error));
    }
    BY_TRY(order_passes(c, error));
    for (int r = 0; r < o->ranks; r++) {
        BY_TRY(list_rank(c, r, error));
    }
    return BY_OK;
}

static by_status build(by_pipeline *p, const by_pipeline_options *options, by_error *error)
{
    size_t ranks = (size_t)options->ranks;
    clock c = {.pipeline = p, .stages = options->ranks * options->chunks};
    p->options = *options;
    BY_TRY(list_links(p, options, error));
    BY_TRY(by__alloc((void **)&p->actions, ranks, sizeof *p->actions, "pipeline", error));
    BY_TRY(by__alloc((void **)&p->counts, ranks, sizeof *p->counts, "pipeline", error));
    by_status status = list_all(&c, error);
    for (size_t r = 0; r < ranks && c.passes != NULL; r++) {
        free(c.passes[r]);
    }
    free(c.passes);
    free(c.ended);
    return status;
}

by_status by_pipeline_open(by_pipeline **out, const by_pipeline_options *options, by_error *error)
{
    by_pipeline *p;
    BY_TRY(check(options, error));
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pipeline", error));
    by_status status = build(p, options, error);
    if (status != BY_OK) {
        by_pipeline_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by_pipeline_close(by_pipeline **pipeline)
{
    if (pipeline == NULL || *pipeline == NULL) {
        return;
    }
    by_pipeline *p = *pipeline;
    for (int r = 0; r < p->options.ranks && p->actions != NULL; r++) {
        free(p->actions[r]);
    }
    free(p->actions);
    free(p->counts);
    free(p->links);
    free(p);
    *pipeline = NULL;
}

const by_pipeline_options *by_pipeline_of(const by_pipeline *pipeline)
{
    return &pipeline->options;
}

const by_pipeline_action *by_pipeline_actions(const by_pipeline *pipeline, int rank, size_t *count)
{
    *count = pipeline->counts[rank];
    return pipeline->actions[rank];
}
