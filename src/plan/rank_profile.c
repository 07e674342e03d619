/* Gathers the times of all ranks on one clock. */
#include <stdlib.h>
#include <string.h>

#include "plan/recorder.h"

/* What each rank sends. */
typedef struct rank_summary {
    by_profile_rank rank;
    int32_t pipeline;
    int32_t steps;
} rank_summary;

struct by_profile_ranks {
    int count;
    by_profile_rank *ranks;
    by_profile_step *steps; /* [rank][step] */
    size_t step_count;
};

/* ---- clocks ---- */

/* Round trips of a message; the fastest one was disturbed least. */
enum { ROUNDS = 32 };

static by_status exchange_clocks(double *ahead, by_comm *comm, double (*now)(void *user),
                                 void *user, int rank, by_error *error)
{
    double fastest = 0.0;
    for (int i = 0; i < ROUNDS; i++) {
        double there = 0.0;
        double sent = now(user);
        BY_TRY(by_comm_send(comm, &sent, sizeof sent, BY_U8, rank, 0, "a clock", error));
        BY_TRY(by_comm_receive(comm, &there, sizeof there, BY_U8, rank, 0, "a clock", error));
        double back = now(user);
        if (i == 0 || back - sent < fastest) {
            fastest = back - sent;
            *ahead = there - 0.5 * (sent + back);
        }
    }
    return by_comm_send(comm, ahead, sizeof *ahead, BY_U8, rank, 0, "a clock", error);
}

static by_status answer(double *ahead, by_comm *comm, double (*now)(void *user), void *user,
                        by_error *error)
{
    for (int i = 0; i < ROUNDS; i++) {
        double unused;
        BY_TRY(by_comm_receive(comm, &unused, sizeof unused, BY_U8, 0, 0, "a clock", error));
        double here = now(user);
        BY_TRY(by_comm_send(comm, &here, sizeof here, BY_U8, 0, 0, "a clock", error));
    }
    return by_comm_receive(comm, ahead, sizeof *ahead, BY_U8, 0, 0, "a clock", error);
}

by_status by__plan_clock_ahead(double *out, by_comm *comm, double (*now)(void *user), void *user,
                               bool all, by_error *error)
{
    int rank = by_comm_rank(comm);
    double ahead = 0.0;
    if (rank != 0 && (all || !by_comm_is_near(comm, 0))) {
        BY_TRY(answer(&ahead, comm, now, user, error));
    }
    for (int r = 1; r < by_comm_size(comm) && rank == 0; r++) {
        double its = 0.0;
        BY_TRY(!all && by_comm_is_near(comm, r) ? BY_OK
                                                : exchange_clocks(&its, comm, now, user, r, error));
    }
    *out = ahead;
    return BY_OK;
}

static double clock_now(void *unused)
{
    BY_UNUSED(unused);
    return by__now();
}

/* ---- gathering ---- */

/* Gathers `bytes` from each rank, in rank order. */
static by_status gather(const by_profile *p, const void *mine, void *all, size_t bytes,
                        by_error *error)
{
    size_t *counts;
    int ranks = by_comm_size(p->comm);
    BY_TRY(by__alloc((void **)&counts, (size_t)ranks, sizeof *counts, "profile", error));
    for (int r = 0; r < ranks; r++) {
        counts[r] = bytes;
    }
    by_status status = by_comm_all_gather(p->comm, mine, all, counts, BY_U8, "a profile", error);
    free(counts);
    return status;
}

static void sum_mean(by_profile_rank *rank, const by_profile_step *steps, size_t count)
{
    by_profile_step m = {0};
    for (size_t i = 0; i < count; i++) {
        m.seconds += steps[i].seconds / (double)count;
        m.compute += steps[i].compute / (double)count;
        m.hidden += steps[i].hidden / (double)count;
        m.exposed += steps[i].exposed / (double)count;
        m.waiting += steps[i].waiting / (double)count;
        m.bubble += steps[i].bubble / (double)count;
        for (size_t k = 0; k < BY_ARRAY_LENGTH(m.passes); k++) {
            m.passes[k] += steps[i].passes[k] / (double)count;
        }
    }
    rank->mean = m;
}

/* Finds bubbles: times in which a rank runs no pass while its pipeline is in its passes. */
static void find_bubbles(by_profile_ranks *r, const rank_summary *all,
                         const by__plan_pipe_window *windows)
{
    for (int rank = 0; rank < r->count; rank++) {
        for (size_t s = 0; s < r->step_count && all[rank].pipeline >= 0; s++) {
            const by__plan_pipe_window *own = &windows[(size_t)rank * r->step_count + s];
            double begin = own->begin;
            double end = own->end;
            for (int k = 0; k < r->count; k++) {
                const by__plan_pipe_window *other = &windows[(size_t)k * r->step_count + s];
                if (all[k].pipeline == all[rank].pipeline) {
                    begin = other->begin < begin ? other->begin : begin;
                    end = other->end > end ? other->end : end;
                }
            }
            r->steps[(size_t)rank * r->step_count + s].bubble = end - begin - own->busy;
        }
    }
}

static by_status gather_times(by_profile_ranks *r, const by_profile *p, const rank_summary *all,
                              by__plan_rank_times *times, by_error *error)
{
    by__plan_pipe_window *windows;
    size_t count = r->step_count;
    BY_TRY(by__alloc((void **)&r->steps, (size_t)r->count * count + 1, sizeof *r->steps, "profile",
                     error));
    BY_TRY(by__alloc((void **)&windows, (size_t)r->count * count + 1, sizeof *windows, "profile",
                     error));
    double ahead = all[by_comm_rank(p->comm)].rank.clock;
    for (size_t s = 0; s < count; s++) {
        times->windows[s].begin -= ahead;
        times->windows[s].end -= ahead;
    }
    by_status status = gather(p, times->steps, r->steps, count * sizeof *r->steps, error);
    if (status == BY_OK) {
        status = gather(p, times->windows, windows, count * sizeof *windows, error);
    }
    if (status == BY_OK) {
        find_bubbles(r, all, windows);
        for (int k = 0; k < r->count; k++) {
            r->ranks[k] = all[k].rank;
            sum_mean(&r->ranks[k], r->steps + (size_t)k * count, count);
        }
    }
    free(windows);
    return status;
}

static by_status gather_all(by_profile_ranks *r, const by_profile *p, const rank_summary *mine,
                            by__plan_rank_times *times, by_error *error)
{
    rank_summary *all;
    BY_TRY(by__alloc((void **)&r->ranks, (size_t)r->count, sizeof *r->ranks, "profile", error));
    BY_TRY(by__alloc((void **)&all, (size_t)r->count, sizeof *all, "profile", error));
    by_status status = gather(p, mine, all, sizeof *all, error);
    for (int k = 1; k < r->count && status == BY_OK; k++) {
        if (all[k].steps != all[0].steps) {
            status = by_error_set(error, BY_ESTATE,
                                  "rank %d has recorded %d steps and rank 0 %d: a profile of all "
                                  "ranks needs as many of each",
                                  k, (int)all[k].steps, (int)all[0].steps);
        }
    }
    if (status == BY_OK) {
        status = gather_times(r, p, all, times, error);
    }
    free(all);
    return status;
}

by_status by_profile_gather(by_profile_ranks **out, by_profile *profile,
                            const by_profile_place *place, by_error *error)
{
    by__plan_rank_times times = {0};
    by_profile_ranks *r = NULL;
    rank_summary mine = {.pipeline = place->pipeline,
                         .rank = {.planned = place->planned, .resident = place->resident}};
    if (profile->comm == NULL) {
        return by_error_set(error, BY_ESTATE, "a profile of ranks watches no communicator");
    }
    by_comm_watch(profile->comm, NULL, NULL);
    BY_TRY(by__plan_rank_times_make(&times, profile, error));
    int rank = by_comm_rank(profile->comm);
    mine.steps = (int32_t)times.count;
    (void)snprintf(mine.rank.host, sizeof mine.rank.host, "%s", by_comm_host(profile->comm, rank));
    (void)snprintf(mine.rank.place, sizeof mine.rank.place, "%s", place->place);
    by_status status =
        by__plan_clock_ahead(&mine.rank.clock, profile->comm, clock_now, NULL, false, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r, 1, sizeof *r, "profile", error);
    }
    if (status == BY_OK) {
        r->count = by_comm_size(profile->comm);
        r->step_count = times.count;
        status = gather_all(r, profile, &mine, &times, error);
    }
    by__plan_rank_times_free(&times);
    if (status != BY_OK) {
        by_profile_ranks_close(&r);
        return status;
    }
    *out = r;
    return BY_OK;
}

void by_profile_ranks_close(by_profile_ranks **ranks)
{
    if (ranks != NULL && *ranks != NULL) {
        free((*ranks)->ranks);
        free((*ranks)->steps);
        free(*ranks);
        *ranks = NULL;
    }
}

int by_profile_rank_count(const by_profile_ranks *ranks)
{
    return ranks->count;
}

const by_profile_rank *by_profile_rank_of(const by_profile_ranks *ranks, int rank)
{
    return &ranks->ranks[rank];
}

const by_profile_step *by_profile_steps_of(const by_profile_ranks *ranks, int rank, size_t *count)
{
    *count = ranks->step_count;
    return ranks->steps + (size_t)rank * ranks->step_count;
}

/* ---- the trace of all ranks ---- */

/* Finds the earliest event of any rank, on rank 0's clock. */
static by_status find_origin(double *out, const by_profile *p, double ahead, by_error *error)
{
    double mine = by__now();
    double *all;
    int ranks = by_comm_size(p->comm);
    for (size_t e = 0; e < p->count; e++) {
        mine = p->events[e].begin < mine ? p->events[e].begin : mine;
    }
    for (size_t i = 0; i < p->exchange_count; i++) {
        mine = p->exchanges[i].begin < mine ? p->exchanges[i].begin : mine;
    }
    mine -= ahead;
    BY_TRY(by__alloc((void **)&all, (size_t)ranks, sizeof *all, "profile", error));
    by_status status = gather(p, &mine, all, sizeof mine, error);
    *out = mine;
    for (int r = 0; r < ranks && status == BY_OK; r++) {
        *out = all[r] < *out ? all[r] : *out;
    }
    free(all);
    return status;
}

/* Rank 0 appends the text that the other ranks send. */
static by_status collect_text(by_string *text, by_comm *comm, by_error *error)
{
    for (int r = 1; r < by_comm_size(comm); r++) {
        uint64_t length;
        char *its;
        BY_TRY(by_comm_receive(comm, &length, sizeof length, BY_U8, r, 0, "a trace", error));
        BY_TRY(by__alloc((void **)&its, (size_t)length + 1, 1, "a trace", error));
        by_status status =
            by_comm_receive(comm, its, (size_t)length, BY_U8, r, 0, "a trace", error);
        by_string_add(text, its, (size_t)length);
        free(its);
        BY_TRY(status);
    }
    return BY_OK;
}

by_status by_profile_trace_ranks(const by_profile *profile, const by_profile_ranks *ranks,
                                 const char *path, by_error *error)
{
    by_comm *comm = profile->comm;
    char *mine;
    size_t length;
    double origin;
    int rank = by_comm_rank(comm);
    BY_TRY(find_origin(&origin, profile, ranks->ranks[rank].clock, error));
    BY_TRY(by__plan_trace_rank(&mine, &length, profile, ranks, rank, origin, error));
    by_status status = BY_OK;
    if (rank == 0) {
        by_string all = {0};
        by_string_add(&all, mine, length);
        status = collect_text(&all, comm, error);
        status = status == BY_OK ? by__plan_trace_write(path, &all, error) : status;
        by_string_free(&all);
    } else {
        uint64_t bytes = length;
        status = by_comm_send(comm, &bytes, sizeof bytes, BY_U8, 0, 0, "a trace", error);
        if (status == BY_OK) {
            status = by_comm_send(comm, mine, length, BY_U8, 0, 0, "a trace", error);
        }
    }
    free(mine);
    return status;
}
