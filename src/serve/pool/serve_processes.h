/* The supervisor's own records, for serve_processes.c (processes), serve_state.c (what the broker
 * says, and what follows), and serve_control.c (what operators
 * ask). */
#ifndef BY_SERVE_SERVE_PROCESSES_H
#define BY_SERVE_SERVE_PROCESSES_H

#include "serve/deploy/autoscale.h"
#include "serve/deploy/golden.h"
#include "serve/deploy/rollout.h"
#include "serve/link/broker_link.h"
#include "serve/messages.h"
#include "serve/observe/log.h"
#include "serve/served_version.h"

/* States of the broker that measurements look back over: 2.5 s. */
#define BY__WINDOW    10
#define BY__ARGUMENTS 64
/* Connections of operators at a time, at most. */
#define BY__OPERATORS 16

typedef struct by__supervisor by__supervisor;

/* Workers of one version. */
typedef struct by__group {
    by__served_version version;
    const by_serve_other *other; /* NULL: the model that deployments change */
    bool routed;                 /* of another model: the broker knows its version */
    const char *command[BY__ARGUMENTS];
    size_t wanted;
    size_t exits;  /* of its workers that were not told to end */
    bool hopeless; /* one has ended with BY_EXIT_CONFIG */
    bool proven;   /* the broker has known one of its workers */
    double retire; /* by__now when it gets no requests any more and ends; 0: not */
    struct by__group *next;
} by__group;

typedef struct by__child {
    uv_process_t process;
    uv_timer_t timer; /* until it is started again, or killed */
    by__supervisor *all;
    by__group *group; /* NULL: the broker, the gateway */
    const char *role;
    const char *const *command;
    struct by__child *next;
    double began;
    double pause;
    double known;    /* by__now when the broker last named it; 0: not yet */
    unsigned failed; /* ends in a row before a process of its kind was ready */
    bool proven;     /* of broker and gateway: one has been ready */
    bool running;    /* the process exists */
    bool killed;     /* by this one, since it was silent or made no step */
    bool wanted;     /* it is to run */
} by__child;

/* Totals at one time. */
typedef struct by__totals {
    double now;
    uint64_t arrived;
    uint64_t refused;
    uint64_t ended;
    by__histogram first;
} by__totals;

struct by__supervisor {
    by_serve_options options;
    by__log log;
    uv_loop_t loop;
    uv_signal_t reload; /* SIGHUP */
    by__broker_link link;
    by__child broker;
    by__child gateway;
    by__child *workers;
    by__group *groups;
    by__group *current;          /* that serves */
    by__group *coming;           /* of a rollout that has not ended; NULL: there is none */
    by__served_version previous; /* what served before `current`; path NULL: nothing */
    by__rollout rollout;
    by__golden_run golden;
    by__version_load before;
    by__version_load after;
    bool rolls_back; /* the rollout goes to the previous version */
    char last[65];   /* version of the last rollout that ended, and its end */
    char outcome[16];
    char reason[160];
    char name[BY__ID_BYTES]; /* of this process, for the broker */
    char model[256];         /* its name */
    json_t *info;            /* what workers say of it; NULL: not known yet */
    json_t *restarts;        /* {MODEL: {REASON: workers that were started again}} */
    char *routed;            /* the last "route" that was sent */
    by__autoscale scale;
    by__totals window[BY__WINDOW]; /* a ring */
    size_t window_count;
    by__autoscale_input load; /* the last measurement */
    /* operators */
    by__link_listener *control;
    by__link *operators[BY__OPERATORS]; /* that are connected; NULL: a free place */
    by__link *asker;                    /* who waits for `request`; NULL: nobody does any more */
    uv_work_t finding;                  /* looks for the weights of a request */
    struct by__request_to *request;     /* NULL: none is looked at */
    by_error failure;
    uv_file lifeline[2]; /* a pipe into which nothing is written */
    bool ending;
};

/* ---- processes (serve_processes.c) ---- */

/* A group for a version, which is copied, of another model or (NULL) of the one that deployments
 * change; it wants no workers yet. */
by_status by__group_add(by__supervisor *s, by__group **out, const by__served_version *version,
                        const by_serve_other *other, by_error *error);
/* Starts and ends workers until each group has what it wants. */
void by__supervisor_reconcile(by__supervisor *s);
/* Ends everything by an error of BY_ESTATE. */
void by__supervisor_fail(by__supervisor *s, const char *why);
/* How often workers of the group's model were started again, by reason; NULL: memory is exhausted.
 * A borrowed reference. */
json_t *by__group_restarts(by__supervisor *s, const by__group *group);
/* Workers of a group that the broker knows; all that run. */
size_t by__group_ready(const by__supervisor *s, const by__group *group);
size_t by__group_running(const by__supervisor *s, const by__group *group);

/* ---- what follows from the broker's state (serve_state.c) ---- */

/* Looks for the broker from now on. */
void by__supervisor_connect(by__supervisor *s);
/* Begins a rollout of a version, which is copied. BY_ESTATE: one is under way, or that version
 * serves already. */
by_status by__supervisor_deploy(by__supervisor *s, const by__served_version *version,
                                const by__rollout_options *options, bool back, by_error *error);

/* ---- operators (serve_control.c) ---- */

by_status by__control_open(by__supervisor *s, by_error *error);
void by__control_close(by__supervisor *s);
/* What `banyan deploy --rollback` asks for, by the broker. */
void by__control_rollback(by__supervisor *s);
/* Of SIGHUP: what `path` of the current version stands for now. */
void by__control_reload(by__supervisor *s);

#endif
