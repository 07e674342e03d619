/* The inside of by_profile, shared by program_profile.c (recording, sums), profile_trace.c,
 * rank_times.c and rank_profile.c. */
#ifndef BY_PLAN_RECORDER_H
#define BY_PLAN_RECORDER_H

#include <pthread.h>

#include "banyan/profile.h"
#include "plan/plan.h"

typedef struct by__watched {
    by_profile *profile;
    by_program *program;
    int index;
    char *name;
    by_profile_work work;
} by__watched;

/* One run of a node, or a span of the caller's. */
typedef struct by__node_run {
    int program; /* index of a by__watched; -1: a span */
    int node;    /* index of a node, or of a span's name */
    double begin;
    double end;
} by__node_run;

/* A by_comm_call. */
typedef struct by__exchanged {
    const char *kind;
    char what[64];
    uint64_t bytes;
    double begin;
    double met;
    double end;
} by__exchanged;

struct by_profile {
    by__watched **watched; /* hooks point at them */
    size_t watched_count;
    size_t watched_capacity;
    by__node_run *events; /* in the order in which they ended */
    size_t count;
    size_t capacity;
    char **span_names;
    size_t span_count;
    size_t span_capacity;
    by_comm *comm; /* NULL: no rank's exchanges */
    pthread_mutex_t mutex;
    by__exchanged *exchanges; /* guarded: several threads tell of them */
    size_t exchange_count;
    size_t exchange_capacity;
    bool lost; /* memory ran out in a hook, and events are missing; guarded */
};

/* BY_EMEMORY when events are missing. */
by_status by__profile_check(const by_profile *profile, by_error *error);
/* Records a run of a node, or an exchange, as hooks do. */
by_status by__profile_add(by_profile *profile, const by__node_run *event, by_error *error);
void by__profile_exchanged(void *profile, const by_comm_call *call);
/* Whether an event is a span of that name. */
bool by__is_span(const by_profile *profile, const by__node_run *event, const char *name);

/* A run of a program that is being put together: its nodes may be told in any order. */
typedef struct by__program_run {
    int nodes;
    double begin;
    double end;
} by__program_run;

/* Adds a node; true when it was the last one of the run, which the caller then sets to {0}. */
bool by__program_run_add(by__program_run *run, const by__watched *watched,
                         const by__node_run *event);

/* ---- rank_times.c ---- */

/* A rank's part of a step in a pipeline: its first pass began, its last one ended, and programs ran
 * for so long in between. */
typedef struct by__pipe_window {
    double begin;
    double end;
    double busy;
} by__pipe_window;

/* What this rank recorded; arrays of `steps`. */
typedef struct by__rank_times {
    by_profile_step *steps; /* without bubbles */
    by__pipe_window *windows;
    size_t count;
} by__rank_times;

by_status by__rank_times_make(by__rank_times *out, const by_profile *profile, by_error *error);
void by__rank_times_free(by__rank_times *times);

/* ---- rank_profile.c ---- */

/* Collective: *out, what this rank's clock `now` is ahead of that of rank 0; 0 for ranks that are
 * near to it, unless `all`. */
by_status by__clock_ahead(double *out, by_comm *comm, double (*now)(void *user), void *user,
                          bool all, by_error *error);

/* ---- profile_trace.c ---- */

/* Events of this rank, for the list of a trace. */
by_status by__trace_rank(char **out, size_t *length, const by_profile *profile,
                         const by_profile_ranks *ranks, int rank, double origin, by_error *error);
by_status by__trace_write(const char *path, const by__text *events, by_error *error);

#endif
