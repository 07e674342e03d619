/* supervisor: the process of `banyan serve` that starts broker, gateway and workers, keeps them
 * running, scales and deploys, and answers operators at its control socket.
 *
 * This header has the internal records shared by served_models.c (models and their versions),
 * serve_processes.c (processes), serve_state.c (the broker's state and the decisions based on it)
 * and serve_control.c (operators' requests).
 *
 * Types: by__supervisor; by__serve_model, a model; by__serve_group, the workers of one of its
 * versions; by__serve_child, a process.
 *
 * Who owns what: the supervisor owns models, groups and children and its link to the broker. A
 * child process ends when the pipe that is its standard input is closed, so that none outlives the
 * supervisor.
 *
 * Never put here: the state machines of deploy, the work of the processes that are started. */
#ifndef BY_SERVE_SUPERVISOR_SERVE_PROCESSES_H
#define BY_SERVE_SUPERVISOR_SERVE_PROCESSES_H

#include "process/process.h"
#include "serve/link/broker_link.h"
#include "serve/protocol/messages.h"
#include "serve/protocol/served_version.h"
#include "serve/rollout/autoscale.h"
#include "serve/rollout/golden.h"
#include "serve/rollout/rollout.h"
#include "serve/telemetry/log.h"

/* Number of the broker's states that a measurement covers: 2.5 s. */
#define BY__WINDOW    10
#define BY__ARGUMENTS 64
/* Most connections of operators. */
#define BY__OPERATORS 16

typedef struct by__supervisor by__supervisor;
typedef struct by__serve_model by__serve_model;

/* The workers of one version. */
typedef struct by__serve_group {
    by__protocol_served_version version;
    by__serve_model *model;
    const char *command[BY__ARGUMENTS];
    size_t wanted;
    size_t exits;      /* exits of workers that were not told to end */
    bool config_error; /* one exited with BY_EXIT_CONFIG */
    char *failure;     /* FAILURE.PID: the file in which a worker says why it fails; NULL: none */
    char why[400];     /* what the last one said, or its exit; "": none has exited */
    bool was_ready;    /* one of its workers has registered at the broker */
    double retire;     /* by__now when it stops getting requests and ends; 0: not planned */
    struct by__serve_group *next;
} by__serve_group;

typedef struct by__serve_child {
    by__process process;
    by__supervisor *all;
    by__serve_group *group; /* NULL: the broker or the gateway */
    const char *role;
    const char *const *command;
    struct by__serve_child *next;
    double restart;  /* by__now of its next start; 0: it is running, or is not to be started */
    unsigned exits;  /* consecutive exits, each soon after its start */
    double known;    /* by__now when the broker last listed it; 0: never */
    unsigned failed; /* consecutive exits before any process of its kind was ready */
    bool was_ready;  /* of broker and gateway: it was ready once */
    bool served;     /* of a worker: the broker has listed it since it was started */
    bool silent;     /* killed by the supervisor because it was silent or made no step */
    bool wanted;     /* it should be running */
} by__serve_child;

/* Totals at a point in time. */
typedef struct by__serve_totals {
    double now;
    uint64_t arrived;
    uint64_t refused;
    uint64_t ended;
    by__telemetry_histogram first;
} by__serve_totals;

/* A model: its versions, the deployment of one, and its load. */
struct by__serve_model {
    by__supervisor *all;
    const char *name;
    const char *const *worker; /* as in by_serve_model, and the next */
    const char *settings;
    size_t least; /* as in by_serve_options, and the next */
    size_t most;
    by__serve_group *current; /* the group that serves */
    by__serve_group *coming;  /* the group of a rollout in progress; NULL: none */
    /* The versions served before `current`, the last one first: what roll-backs return to. Only
     * the last one's weights are kept from removal. */
    by__protocol_served_version former[BY__FORMER_VERSIONS];
    size_t former_count;
    bool returns; /* the rollout in progress is a roll-back to former[0] */
    by__rollout rollout;
    by__rollout_golden_run golden;
    by__rollout_version_load before;
    by__rollout_version_load after;
    char last[65]; /* version and outcome of the last completed rollout */
    char outcome[16];
    char reason[512];
    json_t *info;                        /* as reported by workers; NULL: not known yet */
    bool is_routed;                      /* the broker's last state has all requests at `current` */
    char *routed;                        /* the last "route" that was sent */
    by__rollout_autoscale *scale;        /* one of by__supervisor's `scales` */
    by__serve_totals window[BY__WINDOW]; /* a ring buffer */
    size_t window_count;
    by__rollout_autoscale_input load; /* the last measurement */
};

struct by__supervisor {
    by_serve_options options;
    by__telemetry_log log;
    uv_loop_t loop;
    uv_signal_t reload; /* SIGHUP */
    uv_signal_t child;  /* SIGCHLD */
    uv_timer_t due;     /* for what is due next for a process */
    by__link_broker link;
    by__serve_child broker;
    by__serve_child gateway;
    by__serve_child *workers;
    by__serve_group *groups;
    by__serve_model *models;       /* [model_count] */
    by__rollout_autoscale *scales; /* [model_count] */
    size_t model_count;
    char name[BY__ID_BYTES]; /* name of this process at the broker */
    json_t *restarts;        /* {MODEL: {REASON: number of restarted workers}} */
    /* Operators: */
    by__link_listener *control;
    by__link *operators[BY__OPERATORS]; /* connected operators; NULL: a free slot */
    by__link
        *waiting_operator; /* the operator that waits for `request`; NULL: it has disconnected */
    uv_async_t found;      /* the weights of a request were found, or not, by its thread */
    uv_timer_t late;       /* gives it up */
    struct by__serve_request_to *request; /* NULL: none in progress */
    size_t reloaded;                      /* models that the last SIGHUP has looked at */
    by_error failure;
    uv_file lifeline[2]; /* a pipe that is never written to */
    bool ending;
    bool forced; /* while ending: what still ran was killed on request */
};

/* ---- models (served_models.c) ---- */

/* Adds the models of the options, with a group for the first version of each. */
by_status by__supervisor_add_models(by__supervisor *s, by_error *error);
/* Adds a group for a version, which is copied, of a model; it has no workers yet. */
by_status by__serve_group_add(by__serve_model *model, by__serve_group **out,
                              const by__protocol_served_version *version, by_error *error);

void by__serve_group_free(by__serve_group *group);

/* ---- processes (serve_processes.c) ---- */

/* Starts and ends workers until each group has the wanted number; at the limit of all models, a
 * worker starts once another one has ended. */
void by__supervisor_reconcile(by__supervisor *s);
/* Ends everything with an error of BY_ESTATE. */
void by__supervisor_fail(by__supervisor *s, const char *why);
/* Restarts of workers of a model, by reason; a borrowed reference. NULL: memory is exhausted. */
json_t *by__serve_model_restarts(by__serve_model *model);
/* Number of a group's workers that the broker knows. */
size_t by__serve_group_ready(const by__supervisor *s, const by__serve_group *group);

/* ---- decisions based on the broker's state (serve_state.c) ---- */

/* Starts to connect to the broker. */
void by__supervisor_connect(by__supervisor *s);
/* Begins a rollout of a version, which is copied. BY_ESTATE: one is in progress, or that version is
 * already served. */
by_status by__serve_model_deploy(by__serve_model *model, const by__protocol_served_version *version,
                                 const by__rollout_options *options, by_error *error);
/* Forgets former[0], and those before it whose weights have been removed since. */
void by__serve_model_drop_former(by__serve_model *model);
/* The model with a name; NULL: there is none. */
by__serve_model *by__supervisor_model(by__supervisor *s, const char *name);

/* ---- operators (serve_control.c) ---- */

by_status by__serve_control_open(by__supervisor *s, by_error *error);
void by__serve_control_close(by__supervisor *s);
/* Handles `banyan deploy --rollback` received through the broker. */
void by__serve_control_rollback(by__serve_model *model);
/* Handles SIGHUP: deploys, one model after the other, what the path of the live version refers to
 * now. */
void by__serve_control_reload(by__supervisor *s);

#endif
