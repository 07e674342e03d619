/* The broker's own records, for broker.c (the process) and broker_*.c. */
#ifndef BY_SERVE_BROKER_H
#define BY_SERVE_BROKER_H

#include "serve/admission.h"
#include "serve/broker/job_list.h"
#include "serve/broker/task_store.h"
#include "serve/event_list.h"
#include "serve/link/link.h"
#include "serve/messages.h"
#include "serve/observe/log.h"
#include "serve/observe/metrics.h"

typedef enum by__role { BY__NOBODY, BY__GATEWAY, BY__WORKER, BY__SUPERVISOR } by__role;

/* Seconds after its start in which a broker takes requests for models that no worker has named, but
 * that a gateway has seen: behind a restart both come back in any order. */
#define BY__GATHERING 10.0

/* One version of a model: an answer is a function of the request and of it. */
struct by__version {
    char name[65];
    double share; /* of new requests; those of a pool's versions sum to 1, or to 0 */
    bool shadow;  /* it gets copies of requests */
    bool listed;  /* by the supervisor */
    size_t workers;
    double seen;         /* by__now when it last had a worker */
    uint64_t requests;   /* that ended */
    uint64_t errors;     /* of them, with an error that is the version's (by__event_is_fault) */
    by__histogram first; /* seconds from a request to its first text */
    by__histogram whole; /* to its end */
    uint64_t mirrored;   /* copies that were made */
    uint64_t same;       /* copies with the client's answer */
    uint64_t different;
    uint64_t mirror_failed;
    size_t copies; /* that run */
    by__version *next;
};

/* What is connected. */
struct by__peer {
    by__link *link; /* NULL: it has parted, and is freed soon */
    by__role role;
    char name[65];
    int64_t pid;
    by__peer *next;
    by__text batch;   /* events for a gateway that are sent together (event_list.h) */
    json_t *held;     /* answers about tasks that wait for the disk */
    char refused[65]; /* the last request of a gateway that was refused, without its part */
    /* of a worker */
    by__pool *pool;
    by__version *version;
    int64_t slots;
    int64_t sessions;  /* sequences that it runs at a time */
    by__job_list jobs; /* that it has */
    json_t *beat;      /* the last one */
    double heard;      /* by__now of it */
    double moved;      /* when its steps last went on, or it was idle */
    int64_t steps;
    double given; /* by__now of the last request that it was given */
    bool leaving;
    bool hangs; /* it had work and made no step: it counts as lost until it makes one */
};

/* Workers of one model, and what waits for them. */
struct by__pool {
    char model[256];
    json_t *info;     /* NULL: no worker has had it yet */
    json_t *restarts; /* as a supervisor has told them; NULL: none has */
    by__version *versions;
    bool routed;      /* a supervisor says which versions get requests */
    bool elastic;     /* workers are started for requests: none is no reason to refuse them */
    uint64_t arrived; /* requests, with those that were refused */
    uint64_t refused;
    int64_t ended; /* sequences that have left workers */
    int given;     /* requests given to workers since the last task, or since one was promoted */
    by__admission admission;
    by__job_list queue;
    size_t workers;
    by__pool *next;
};

typedef struct by__broker {
    by_broker_options options;
    by__log log;
    uv_loop_t loop;
    uv_timer_t timer;
    uv_check_t check; /* behind what was read: gathered events are sent */
    by__link_listener *listener;
    by__peer *peers;
    by__pool *pools;
    by__id_table jobs; /* by__job */
    by__tasks *tasks;  /* NULL: none are kept */
    double tasks_swept;
    double tasks_failed; /* by__now of a write that failed; 0: none since they were read again */
    double began;        /* by__now */
    double looked;       /* by__now when workers were last looked at */
    uint32_t deliveries; /* numbers what workers are given */
    uint64_t retried;
    uint64_t expired;
    uint64_t dead; /* requests that lost too many workers */
} by__broker;

/* ---- peers (broker_peers.c) ---- */

/* A new peer without a role; the link stays its caller's, and knows the peer (by__link_get). False:
 * memory is exhausted. */
bool by__broker_join(by__broker *b, by__link *link);
/* A message of a peer. One that nobody of its role sends ends its link. */
void by__broker_message(by__broker *b, by__peer *p, const json_t *message);
/* The same of a list of events (by__events_valid). */
void by__broker_list(by__broker *b, by__peer *p, const char *list, size_t length);
/* Ends what a peer had; it gets nothing any more. Its link is closed by the caller. */
void by__broker_part(by__broker *b, by__peer *p, const char *why);
/* Ends workers that say nothing, or have work and make no step: they count as dead. */
void by__broker_look(by__broker *b);
/* "state", a new reference. */
json_t *by__broker_state(const by__broker *b);
/* Frees peers that have parted. Not before: who walks over the list may send to one whose link
 * breaks just then. */
void by__broker_sweep(by__broker *b);
/* Closes all links, and frees what the broker has. */
void by__broker_release(by__broker *b);

/* ---- jobs (broker_jobs.c) ---- */

/* The pool of a model, made where there is none yet; info (NULL: as it is) is copied. NULL when
 * memory is exhausted or the name is too long. */
by__pool *by__broker_pool(by__broker *b, const char *model, const json_t *info);
/* The pool of a model that a worker has named, or that one may name soon: `seen` says that the
 * gateway has heard of it. NULL for none: clients make no pools. */
by__pool *by__broker_known_pool(by__broker *b, const char *model, bool seen);
/* The request with an id, NULL for none. */
by__job *by__broker_job(const by__broker *b, const char *id);
/* A request of a gateway; what is wrong with it is told by an event. */
void by__broker_submit(by__broker *b, by__peer *from, const json_t *message);
void by__broker_cancel(by__broker *b, const char *name);
/* A list of events of a worker: to the gateways that wait. */
void by__broker_events(by__broker *b, by__peer *worker, const char *list, size_t length);
/* Gives what waits to workers that have room. */
void by__broker_give(by__broker *b, by__pool *pool);
/* The worker is gone: what it had is run again elsewhere, or fails. */
void by__broker_orphans(by__broker *b, by__peer *worker, const char *why);
/* The gateway is gone: nobody waits for its requests. */
void by__broker_forsaken(by__broker *b, by__peer *gateway);
/* Ends what has waited past its deadline. */
void by__broker_expire(by__broker *b);
/* Sends what was gathered for gateways. */
void by__broker_flush(by__broker *b);
/* Ends a request that waits by an error. */
void by__broker_fail(by__broker *b, by__job *job, int status, const char *code,
                     const char *message);

/* ---- what is taken (broker_admission.c) ---- */

/* Why a request, or a task, of a gateway with `left` seconds (0: no bound) cannot be taken, and
 * after how many seconds to try again; NULL: it can. Counts it as one that came. */
const by__refusal *by__broker_refusal(by__broker *b, by__peer *from, by__pool *pool,
                                      const json_t *request, double left, bool task,
                                      double *seconds);
/* The same where by__broker_known_pool gives none: no model is served yet, or not this one. */
const by__refusal *by__broker_no_pool(const by__broker *b, double *seconds);
/* Whether a worker takes new requests of a model; others do not count as its capacity. */
bool by__broker_open(const by__pool *pool, const by__peer *p);
/* Measures, every BY__BEAT and when other workers get requests. */
void by__broker_measure(by__broker *b);
/* Of the state: sequences that run at a time, and the wait of a request that would come now. */
int64_t by__broker_sessions(const by__broker *b, const by__pool *pool);
double by__broker_wait(const by__broker *b, const by__pool *pool);

/* ---- versions (broker_versions.c) ---- */

/* A version of the pool; made where there is none, if `make`. NULL for none. */
by__version *by__broker_version(by__pool *pool, const char *name, bool make);
void by__broker_versions_free(by__pool *pool);
/* The version that a new request with this id goes to by shares; NULL: none has one. */
by__version *by__broker_pick(const by__pool *pool, const char *id);
/* Requests that wait for a version which gets none any more go to another one, and fail where the
 * client has a part of the answer and no worker of its version is left. */
void by__broker_reroute(by__broker *b, by__pool *pool);
/* That for all models, and forgets versions that are no more. */
void by__broker_versions_tend(by__broker *b);
/* "route" of the supervisor. */
void by__broker_route(by__broker *b, const json_t *message);
/* The first text of a request is about to go out; its last event has, which is this error (NULL: it
 * ended well). */
void by__broker_count_first(by__job *job);
void by__broker_count_end(const by__job *job, const json_t *error);
json_t *by__broker_versions_state(const by__pool *pool);

/* ---- shadow traffic (broker_shadow.c) ---- */

/* Puts a copy of a new request into the queue where a version asks for it. */
void by__broker_mirror(by__broker *b, by__job *job);
/* An event of a request that has a copy, or is one. */
void by__mirror_event(by__job *job, const json_t *event);

/* ---- tasks (broker_tasks.c) ---- */

/* A message of a gateway about tasks; false: it is about something else. */
bool by__broker_task(by__broker *b, by__peer *from, const char *kind, const json_t *message);
/* A worker has the task, or says something of it. */
void by__broker_task_started(by__broker *b, const by__job *job);
void by__broker_task_event(by__broker *b, by__job *job, const json_t *event);
/* Makes what was written durable, and sends the answers that wait for it. */
void by__broker_tasks_commit(by__broker *b);
/* Opens the file, and puts what has no end into the queue. */
by_status by__broker_tasks_load(by__broker *b, by_error *error);
/* Now and then: forgets what has expired, and runs again what could not be written. */
void by__broker_tasks_tend(by__broker *b);

#endif
