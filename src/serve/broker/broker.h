/* broker: the process between gateways and workers: queues, admission, delivery and retries of
 * requests, versions of models, and tasks on disk.
 *
 * A request is a job: it waits in the queue of its model's pool until a worker of a suitable
 * version has a free slot, and is delivered again if that worker is lost. Events are forwarded to
 * the gateway as they arrive. Except for tasks, all state is in memory and is rebuilt when peers
 * reconnect.
 *
 * This header has the internal records and functions that broker.c (the process) and broker_*.c
 * share.
 *
 * Types: by__broker_peer, a connected process; by__broker_pool, the workers and the queue of one
 * model; by__broker_version, a version of a model; by__broker_job (job_list.h), a request;
 * by__broker_tasks (task_store.h), the file of tasks.
 *
 * Who owns what: the broker owns peers, pools and jobs, and closes its links. A job is in the queue
 * of its pool or in the list of its worker, and in the broker's table of ids. Everything is used by
 * one loop.
 *
 * Never put here: HTTP, keys and limits of clients, what a model computes. */
#ifndef BY_SERVE_BROKER_BROKER_H
#define BY_SERVE_BROKER_BROKER_H

#include "serve/broker/job_list.h"
#include "serve/broker/task_store.h"
#include "serve/link/core/link.h"
#include "serve/protocol/admission.h"
#include "serve/protocol/event_list.h"
#include "serve/protocol/messages.h"
#include "serve/telemetry/log.h"
#include "serve/telemetry/metrics.h"

typedef enum by__broker_role {
    BY__NOBODY,
    BY__GATEWAY,
    BY__WORKER,
    BY__SUPERVISOR
} by__broker_role;

/* Seconds after its start in which a broker accepts requests for models that no worker has named
 * yet but that a gateway has seen: after a restart, workers and gateways reconnect in any order. */
#define BY__GATHERING 10.0

/* One version of a model. An answer is a function of the request and the version. */
struct by__broker_version {
    char name[65];
    double share; /* share of new requests; those of a pool's versions sum to 1, or to 0 */
    bool shadow;  /* it gets copies of requests */
    bool listed;  /* listed in the supervisor's route */
    bool serves;  /* the first one there */
    json_t *info; /* as reported by its workers; NULL: none has connected yet */
    size_t workers;
    double seen;       /* by__now when it last had a worker */
    uint64_t requests; /* requests that ended */
    uint64_t
        errors; /* requests that ended with an error of the version (by__protocol_event_is_fault) */
    by__telemetry_histogram first; /* seconds from a request to its first text */
    by__telemetry_histogram whole; /* seconds from a request to its end */
    uint64_t mirrored;             /* copies that were made */
    uint64_t same;                 /* copies whose answer was the client's */
    uint64_t different;
    uint64_t mirror_failed;
    size_t copies; /* copies in flight */
    by__broker_version *next;
};

/* A connection of a gateway, a worker or a supervisor. */
struct by__broker_peer {
    by__link *link; /* NULL: it has disconnected and is freed soon */
    by__broker_role role;
    char name[65];
    int64_t pid;
    by__broker_peer *next;
    by_string batch;     /* events for a gateway that are sent together (event_list.h) */
    json_t *uncommitted; /* answers about tasks that wait for the commit to disk */
    char tag[65];        /* of a gateway that takes feedback; "": it does not */
    /* id of the last refused request of this gateway, without the number of its part */
    char refused[65];
    char bound[256]; /* model of the only workers that may connect here; "": any process may */
    /* Of a worker: */
    by__broker_pool *pool;
    by__broker_version *version;
    int64_t slots;
    int64_t sessions;         /* sequences that it runs at a time */
    by__broker_job_list jobs; /* requests that it was given */
    json_t *beat;             /* its last message "beat" */
    double last_message_at;   /* by__now of that message */
    double moved;             /* by__now when its step counter last increased, or it was idle */
    int64_t steps;
    double given; /* by__now of the last request that it was given */
    bool leaving; /* a worker that takes no more work, or a gateway no more requests */
    bool hangs;   /* it had work and completed no step: counts as lost until it completes one */
};

/* The workers of one model, and the requests that wait for them. */
struct by__broker_pool {
    char model[256];
    json_t *info;     /* of the version that serves; NULL: no worker has connected yet */
    json_t *restarts; /* as reported by a supervisor; NULL: not yet */
    by__broker_version *versions;
    bool routed;      /* a supervisor says which versions get requests */
    bool elastic;     /* workers are started on demand: requests are accepted while there is none */
    uint64_t arrived; /* requests that arrived, including refused ones */
    uint64_t refused;
    int64_t ended; /* sequences that have left the workers */
    int given;     /* requests given to workers since the last task, or since one was promoted */
    by__protocol_admission admission;
    by__broker_job_list queue;
    size_t workers;
    by__broker_pool *next;
};

typedef struct by__broker {
    by_broker_options options;
    by__telemetry_log log;
    uv_loop_t loop;
    uv_timer_t timer;
    uv_check_t check; /* runs after input was read: sends the gathered events */
    by__link_listener *listener;
    by__broker_peer *peers;
    by__broker_pool *pools;
    by__serve_id_table jobs; /* by__broker_job */
    by__broker_tasks *tasks; /* NULL: tasks are not kept */
    double tasks_swept;
    double tasks_failed; /* by__now of a failed write; 0: none since the tasks were last loaded */
    double began;        /* by__now */
    double checked;      /* by__now when workers were last checked for silence */
    uint32_t deliveries; /* counter that numbers deliveries to workers */
    uint64_t retried;
    uint64_t expired;
    uint64_t dead; /* requests dropped after losing too many workers */
} by__broker;

/* ---- peers (broker_peers.c) ---- */

/* Adds a peer whose role is not known yet; the caller keeps the link, whose user pointer
 * (by__link_get) becomes the peer. Returns false when memory is exhausted. */
bool by__broker_add_peer(by__broker *b, by__link *link);
/* Handles a message of a peer. A message that its role does not send closes the link. */
void by__broker_message(by__broker *b, by__broker_peer *p, const json_t *message);
/* Handles a list of events (by__protocol_events_valid) of a peer in the same way. */
void by__broker_event_list(by__broker *b, by__broker_peer *p, const char *list, size_t length);
/* Releases everything that a peer holds; nothing is sent to it any more. The caller closes its
 * link. */
void by__broker_remove_peer(by__broker *b, by__broker_peer *p, const char *why);
/* Drops workers that are silent, or have work but complete no step; both count as dead. */
void by__broker_check_workers(by__broker *b);
/* The message "state"; a new reference. */
json_t *by__broker_state(const by__broker *b);
/* Frees peers that have disconnected. This is delayed because sending to a peer while the list is
 * walked may break its link. */
void by__broker_free_peers(by__broker *b);
/* Closes all links and frees the broker's memory. */
void by__broker_release(by__broker *b);

/* ---- jobs (broker_jobs.c) ---- */

/* Finds or creates the pool of a model. Returns NULL when memory is exhausted or the name is too
 * long. */
by__broker_pool *by__broker_find_pool(by__broker *b, const char *model);
/* The pool of a model that a worker has named, or that one is expected to name soon: `seen` means
 * that the gateway knows the model. Returns NULL for any other: clients cannot create pools. */
by__broker_pool *by__broker_known_pool(by__broker *b, const char *model, bool seen);
/* The request with an id; NULL: there is none. */
by__broker_job *by__broker_find_job(const by__broker *b, const char *id);
/* Handles a request of a gateway; errors are reported by an event. */
void by__broker_submit(by__broker *b, by__broker_peer *from, const json_t *message);
void by__broker_cancel(by__broker *b, const char *name);
/* Forwards a worker's list of events to the waiting gateways. */
void by__broker_events(by__broker *b, by__broker_peer *worker, const char *list, size_t length);
/* Gives queued requests to workers with free slots. */
void by__broker_dispatch(by__broker *b, by__broker_pool *pool);
/* Requeues or fails the requests of a worker that is gone. */
void by__broker_requeue(by__broker *b, by__broker_peer *worker, const char *why);
/* Cancels the requests of a gateway that is gone. */
void by__broker_drop_gateway(by__broker *b, by__broker_peer *gateway);
/* Fails requests whose deadline has passed. */
void by__broker_expire(by__broker *b);
/* Sends the events that were gathered for gateways. */
void by__broker_flush(by__broker *b);
/* Ends a queued request with an error. */
void by__broker_fail(by__broker *b, by__broker_job *job, int status, const char *code,
                     const char *message);

/* ---- admission (broker_admission.c) ---- */

/* Decides whether a request or task of a gateway with `left` seconds (0: no limit) is accepted.
 * Returns NULL if it is, else the reason, and sets *seconds to the delay before a retry. Counts the
 * request as arrived. */
const by__protocol_refusal *by__broker_refusal(by__broker *b, by__broker_peer *from,
                                               by__broker_pool *pool, const json_t *request,
                                               double left, bool task, double *seconds);
/* The refusal where by__broker_known_pool returns NULL: no model is served yet, or not this one. */
const by__protocol_refusal *by__broker_no_pool(const by__broker *b, double *seconds);
/* Returns true if a worker takes new requests of the model; other workers do not count as
 * capacity. */
bool by__broker_open(const by__broker_pool *pool, const by__broker_peer *p);
/* Updates the measurements of admission: every BY__BEAT, and when the set of workers that get
 * requests changes. */
void by__broker_measure(by__broker *b);
/* For the state: sequences that the workers can run at a time, and the expected wait of a request
 * that arrives now. */
int64_t by__broker_sessions(const by__broker *b, const by__broker_pool *pool);
double by__broker_wait(const by__broker *b, const by__broker_pool *pool);

/* ---- versions (broker_versions.c) ---- */

/* Finds a version of the pool, or creates it if `make`. NULL: there is none. */
by__broker_version *by__broker_find_version(by__broker_pool *pool, const char *name, bool make);
/* Takes what a worker reports of its version, which describes the model if that version serves, or
 * if none does yet. */
void by__broker_describe(by__broker_pool *pool, by__broker_version *version, const json_t *info);
void by__broker_versions_free(by__broker_pool *pool);
/* Picks the version for a new request from the shares and the request's id; NULL: no version has a
 * share. */
by__broker_version *by__broker_pick(const by__broker_pool *pool, const char *id);
/* Moves queued requests away from versions that get none any more. A request fails if part of its
 * answer has been sent to the client and no worker of its version is left. */
void by__broker_reroute(by__broker *b, by__broker_pool *pool);
/* Does this for all models, and forgets versions that are gone. */
void by__broker_versions_maintain(by__broker *b);
/* Handles the message "route" of a supervisor. */
void by__broker_route(by__broker *b, const json_t *message);
/* Record in the version's statistics that the first text of a request is about to be sent, and that
 * its last event has been sent, with this error (NULL: it succeeded). */
void by__broker_count_first(by__broker_job *job);
void by__broker_count_end(const by__broker_job *job, const json_t *error);
json_t *by__broker_versions_state(const by__broker_pool *pool);

/* ---- shadow traffic (broker_shadow.c) ---- */

/* Queues a copy of a new request if a version asks for shadow traffic. */
void by__broker_start_mirror(by__broker *b, by__broker_job *job);
/* Handles an event of a request that has a copy, or is one. */
void by__broker_mirror_event(by__broker_job *job, const json_t *event);

/* ---- tasks (broker_tasks.c) ---- */

/* Handles a message of a gateway about tasks. Returns false if it is about something else. */
bool by__broker_task(by__broker *b, by__broker_peer *from, const char *kind, const json_t *message);
/* A worker has started the task, or has sent an event of it. */
void by__broker_task_started(by__broker *b, const by__broker_job *job);
void by__broker_task_event(by__broker *b, by__broker_job *job, const json_t *event);
/* Commits what was written to disk, and sends the answers that wait for it. */
void by__broker_commit(by__broker *b);
/* Opens the file of tasks and queues those that have not ended. */
by_status by__broker_tasks_load(by__broker *b, by_error *error);
/* Periodic work: forgets expired tasks, and reruns those whose results could not be written. */
void by__broker_tasks_maintain(by__broker *b);

#endif
