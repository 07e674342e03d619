/* The internals of by_profile, shared by program_profile.c (recording, sums), profile_trace.c,
 * rank_times.c and rank_profile.c. */
#ifndef BY_PLAN_RECORDER_H
#define BY_PLAN_RECORDER_H

#include <pthread.h>

#include "banyan/profile.h"
#include "plan/plan.h"

typedef struct by__plan_watched {
    by_profile *profile;
    by_program *program;
    int index;
    char *name;
    by_profile_work work;
} by__plan_watched;

/* One run of a node, or a span that the caller marked. */
typedef struct by__plan_node_run {
    int program; /* index of a by__plan_watched; -1: a span */
    int node;    /* index of a node, or of a span's name */
    double begin;
    double end;
} by__plan_node_run;

/* A by_comm_call. */
typedef struct by__plan_exchanged {
    const char *kind;
    char what[64];
    uint64_t bytes;
    double begin;
    double ready;
    double end;
} by__plan_exchanged;

struct by_profile {
    by__plan_watched **watched; /* hooks keep pointers to them */
    size_t watched_count;
    size_t watched_capacity;
    by__plan_node_run *events; /* in the order of their ends */
    size_t count;
    size_t capacity;
    char **span_names;
    size_t span_count;
    size_t span_capacity;
    by_comm *comm; /* NULL: exchanges are not recorded */
    pthread_mutex_t mutex;
    by__plan_exchanged *exchanges; /* guarded by the lock: several threads add to them */
    size_t exchange_count;
    size_t exchange_capacity;
    bool lost; /* memory ran out in a hook and events are missing; guarded by the lock */
};

/* Returns BY_EMEMORY if events are missing. */
by_status by__plan_profile_check(const by_profile *profile, by_error *error);
/* Records a run of a node, or an exchange, as the hooks do. */
by_status by__plan_profile_add(by_profile *profile, const by__plan_node_run *event,
                               by_error *error);
void by__plan_profile_exchanged(void *profile, const by_comm_call *call);
/* Returns true if an event is a span of that name. */
bool by__plan_is_span(const by_profile *profile, const by__plan_node_run *event, const char *name);

/* A run of a program that is being assembled; its nodes may be added in any order. */
typedef struct by__plan_program_run {
    int nodes;
    double begin;
    double end;
} by__plan_program_run;

/* Adds a node. Returns true if it completes the run, which the caller then resets to {0}. */
bool by__plan_program_run_add(by__plan_program_run *run, const by__plan_watched *watched,
                              const by__plan_node_run *event);

/* ---- rank_times.c ---- */

/* A rank's part of a step in a pipeline: the begin of its first pass, the end of its last one, and
 * the time that programs ran in between. */
typedef struct by__plan_pipe_window {
    double begin;
    double end;
    double busy;
} by__plan_pipe_window;

/* What this rank recorded, in arrays of `steps` entries. */
typedef struct by__plan_rank_times {
    by_profile_step *steps; /* bubbles are not set */
    by__plan_pipe_window *windows;
    size_t count;
} by__plan_rank_times;

by_status by__plan_rank_times_make(by__plan_rank_times *out, const by_profile *profile,
                                   by_error *error);
void by__plan_rank_times_free(by__plan_rank_times *times);

/* ---- rank_profile.c ---- */

/* Collective: sets *out to how far this rank's clock `now` is ahead of rank 0's, or to 0 for small
 * differences unless `all`. */
by_status by__plan_clock_ahead(double *out, by_comm *comm, double (*now)(void *user), void *user,
                               bool all, by_error *error);

/* ---- profile_trace.c ---- */

/* Prints the events of this rank for the list of a trace. */
by_status by__plan_trace_rank(char **out, size_t *length, const by_profile *profile,
                              const by_profile_ranks *ranks, int rank, double origin,
                              by_error *error);
by_status by__plan_trace_write(const char *path, const by_string *events, by_error *error);

#endif
