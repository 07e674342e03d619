/* Requests that the broker holds, in lists by priority. */
#ifndef BY_SERVE_JOB_LIST_H
#define BY_SERVE_JOB_LIST_H

#include "serve/id_table.h"
#include "serve/task_answer.h"

typedef struct by__peer by__peer;
typedef struct by__pool by__pool;
typedef struct by__version by__version;

typedef struct by__job {
    by__id_entry entry;
    json_t *request;            /* what a worker gets */
    by__gather *gather;         /* of a task: what has come of its answer; NULL: no task */
    by__pool *pool;             /* of its model */
    by__peer *from;             /* the gateway that waits for it; NULL: none */
    by__peer *worker;           /* NULL: it is in the queue */
    by__version *version;       /* that it goes to; NULL: any */
    bool bound;                 /* to that version: the client has text of it, or named it */
    bool told;                  /* something of the answer is out */
    bool alone;                 /* its worker has nothing else */
    bool whole;                 /* the client gets nothing before the end */
    bool promoted;              /* a task that goes in front of requests (task_turn.h) */
    struct by__mirror *mirrors; /* a copy of it runs; NULL: none */
    struct by__mirror *mirror;  /* it is that copy; NULL: it is not */
    int64_t priority;
    int64_t cost;
    int64_t sequences; /* that a worker runs for it; 0: none that clients wait for */
    int attempt;       /* how often it was given to a worker */
    int earlier;       /* the same of a task, by brokers before this one */
    uint32_t delivery; /* number of the last time, among all requests: a worker's events name it */
    double deadline;   /* by__now; 0: none */
    double since;      /* by__now when it came */
    struct by__job *next; /* of its queue, or of its worker's list */
    struct by__job *previous;
} by__job;

typedef struct by__job_list {
    by__job *first;
    by__job *last;
    size_t count;
    int64_t cost;
    int64_t sequences;
} by__job_list;

/* Behind all of its priority and above, requests in front of tasks, and tasks that were promoted in
 * front of all; `front`: in front of those of its priority. */
void by__job_enqueue(by__job_list *list, by__job *job, bool front);
void by__job_unlink(by__job_list *list, by__job *job);
/* Sequences of the list that are in front of a request, or of a task, of this priority. */
int64_t by__job_ahead(const by__job_list *list, int64_t priority, bool task);
/* Promotes the task that has waited longest, at `now` (by__now) for BY__TASK_WAIT or more, of those
 * that are not promoted yet. False: there is none. */
bool by__job_promote(by__job_list *list, double now);
void by__job_free(by__job *job);
/* Of by__job_free: compares the answers of a request and its copy behind the second end. */
void by__mirror_release(by__job *job);

#endif
