/* Requests held by the broker, in lists ordered by priority. */
#ifndef BY_SERVE_BROKER_JOB_LIST_H
#define BY_SERVE_BROKER_JOB_LIST_H

#include "serve/base/id_table.h"
#include "serve/protocol/task_answer.h"

typedef struct by__broker_peer by__broker_peer;
typedef struct by__broker_pool by__broker_pool;
typedef struct by__broker_version by__broker_version;

typedef struct by__broker_job {
    by__serve_id_entry entry;
    json_t *request;             /* sent to a worker as it is */
    by__protocol_gather *gather; /* of a task: the answer so far; NULL: not a task */
    by__broker_pool *pool;       /* the pool of its model */
    by__broker_peer *from;       /* the gateway that waits for it; NULL: none */
    by__broker_peer *worker;     /* NULL: it is queued */
    by__broker_version *version; /* the version it must go to; NULL: any */
    bool bound;    /* only to that version: the client has text of it, or asked for it */
    bool answered; /* part of the answer has been sent */
    bool alone;    /* its worker has no other request */
    bool whole;    /* the client receives nothing before the end */
    bool promoted; /* a task that goes in front of requests (task_turn.h) */
    struct by__broker_mirror *mirrors; /* a copy of it is running; NULL: none */
    struct by__broker_mirror *mirror;  /* it is a copy; NULL: it is not */
    int64_t priority;
    int64_t cost;
    int64_t sequences; /* sequences that a worker runs for it; 0: none that clients wait for */
    int attempt;       /* how often it was given to a worker */
    int earlier;       /* the same of a task, by brokers before this one */
    uint32_t delivery; /* number of the last time, among all requests: a worker's events name it */
    double deadline;   /* by__now; 0: none */
    double since;      /* by__now when it came */
    struct by__broker_job *next; /* of its queue, or of its worker's list */
    struct by__broker_job *previous;
} by__broker_job;

typedef struct by__broker_job_list {
    by__broker_job *first;
    by__broker_job *last;
    size_t count;
    int64_t cost;
    int64_t sequences;
} by__broker_job_list;

/* Inserts a job after all of its priority and above, requests before tasks of the same priority,
 * and promoted tasks before everything. `front`: before those of its priority. */
void by__broker_job_enqueue(by__broker_job_list *list, by__broker_job *job, bool front);
void by__broker_job_unlink(by__broker_job_list *list, by__broker_job *job);
/* Number of sequences in the list ahead of a request or task of this priority. */
int64_t by__broker_job_ahead(const by__broker_job_list *list, int64_t priority, bool task);
/* Promotes the task that has waited longest, if it has waited for BY__TASK_WAIT or more at `now`
 * (by__now) and is not promoted yet. Returns false if there is none. */
bool by__broker_job_promote(by__broker_job_list *list, double now);
void by__broker_job_free(by__broker_job *job);
/* Called by by__broker_job_free: compares the answers of a request and its copy once both have
 * ended. */
void by__broker_mirror_release(by__broker_job *job);

#endif
