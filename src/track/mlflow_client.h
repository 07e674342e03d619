/* A run's way to an MLflow server: what events.jsonl has, sent over REST in batches.
 *
 * events.jsonl is the queue, however long the server is away: RUN/mlflow.json says how far it was
 * sent, and to which run of which server. A batch that the server took but did not confirm is sent
 * again with the same time stamps, so that the server sees the same numbers twice and keeps one.
 *
 * Secrets come from the environment: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or
 * MLFLOW_TRACKING_TOKEN. */
#ifndef BY_TRACK_MLFLOW_CLIENT_H
#define BY_TRACK_MLFLOW_CLIENT_H

#include "track/track.h"

#define BY__MLFLOW_BATCH  1000 /* the server's limits: metrics of a request, ... */
#define BY__MLFLOW_PARAMS 100  /* ... parameters, ... */
#define BY__MLFLOW_KEY    250  /* ... bytes of a name */

typedef struct by__mlflow_state {
    char *server;
    char *experiment;
    char *run;         /* the server's name of this run */
    uint64_t offset;   /* bytes of events.jsonl that were sent */
    bool is_described; /* config and environment were sent */
    bool is_ended;     /* ... and how the run ended, once it had */
} by__mlflow_state;

/* Reads what by__mlflow_state_print has written; BY_EFORMAT otherwise. */
by_status by__mlflow_state_parse(by__mlflow_state *out, const char *path, const char *text,
                                 size_t length, by_error *error);
void by__mlflow_state_print(by__text *out, const by__mlflow_state *state);
void by__mlflow_state_free(by__mlflow_state *state);

/* The metrics of whole lines of an events file, as the body of a request for `run` without its end:
 * at most BY__MLFLOW_BATCH of them, from metric number `skip` of the first line on. *used: bytes of
 * lines that are in it whole; *next: metrics of the line behind these that are in it too. */
by_status by__mlflow_batch(by__text *out, const char *run, const char *path, const char *text,
                           size_t length, size_t skip, size_t *used, size_t *next, size_t *count,
                           by_error *error);

/* The events of a run were cut: what is behind them is news again. */
by_status by__mlflow_rewind(const char *run, by_error *error);

/* BY_ECONFIG unless it is the URL of a server, without a name and password in it. */
by_status by__mlflow_check(const char *server, by_error *error);

typedef struct by__mlflow by__mlflow;

typedef struct by__mlflow_options {
    const char *run; /* its directory */
    const char *server;
    const char *project;
    /* Asked about once a second while the server is waited for. NULL: never. */
    bool (*stop)(void *user);
    void *user;
} by__mlflow_options;

/* Nothing is sent yet. The options must live as long as the handle does. */
by_status by__mlflow_open(by__mlflow **out, const by__mlflow_options *options, by_error *error);
void by__mlflow_close(by__mlflow **mlflow);
/* Sends one batch, before the first the run and what it is. *more: there is something left. */
by_status by__mlflow_send(by__mlflow *mlflow, bool *more, by_error *error);
/* When all is sent: how the run has ended, as run.json says. */
by_status by__mlflow_end(by__mlflow *mlflow, by_error *error);
/* Bytes of events.jsonl that wait. */
uint64_t by__mlflow_waiting(const by__mlflow *mlflow);

#endif
