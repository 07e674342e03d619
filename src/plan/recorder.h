/* The inside of by_profile, shared by program_profile.c (recording, sums) and profile_trace.c. */
#ifndef BY_PLAN_RECORDER_H
#define BY_PLAN_RECORDER_H

#include "banyan/profile.h"
#include "plan/plan.h"

#define BY__MAX_WATCHED 8

typedef struct by__watched {
    by_profile *profile;
    by_program *program;
    char *name;
    bool model;
} by__watched;

/* One run of a node, or a span of the caller's. */
typedef struct by__node_run {
    int program; /* index of a by__watched; -1: a span */
    int node;    /* index of a node, or of a span's name */
    double begin;
    double end;
} by__node_run;

struct by_profile {
    by__watched watched[BY__MAX_WATCHED]; /* hooks point at them */
    int watched_count;
    by__node_run *events; /* in the order in which they ended */
    size_t count;
    size_t capacity;
    char **span_names;
    size_t span_count;
    size_t span_capacity;
    bool lost; /* memory ran out in a hook, and events are missing */
};

/* BY_EMEMORY when events are missing. */
by_status by__profile_check(const by_profile *profile, by_error *error);

#endif
