/* Sends the events of a run to an MLflow server over REST, in batches.
 *
 * events.jsonl is the queue, however long the server is unreachable: RUN/mlflow.json records how
 * far it was sent, and to which run of which server. A batch that the server received but did not
 * confirm is sent again with the same time stamps, so that the server can drop the duplicates.
 *
 * Secrets come from the environment: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or
 * MLFLOW_TRACKING_TOKEN. */
#ifndef BY_TRACK_MLFLOW_CLIENT_H
#define BY_TRACK_MLFLOW_CLIENT_H

#include "track/track.h"

#define BY__MLFLOW_BATCH  1000 /* limits of the server: metrics in a request, */
#define BY__MLFLOW_PARAMS 100  /* parameters in a request, */
#define BY__MLFLOW_KEY    250  /* bytes of a name */

typedef struct by__track_mlflow_state {
    char *server;
    char *experiment;
    char *run;         /* the server's ID of this run */
    char *key;         /* a tag of the run there, by which one is found whose ID did not arrive */
    int64_t creations; /* how often its creation was asked for */
    uint64_t offset;   /* bytes of events.jsonl sent so far */
    bool is_described; /* config and environment were sent */
    bool is_ended;     /* the run's final status was sent */
} by__track_mlflow_state;

/* Parses the output of by__track_mlflow_state_print. BY_EFORMAT if it is anything else. */
by_status by__track_mlflow_state_parse(by__track_mlflow_state *out, const char *path,
                                       const char *text, size_t length, by_error *error);
void by__track_mlflow_state_print(by_string *out, const by__track_mlflow_state *state);
void by__track_mlflow_state_free(by__track_mlflow_state *state);

/* Builds the body of a request for `run`, without its end, from the metrics of whole lines of an
 * events file: at most BY__MLFLOW_BATCH of them, starting at metric number `skip` of the first
 * line. *used receives the bytes of lines that are included completely, *next the number of
 * included metrics of the line after them. */
by_status by__track_mlflow_batch(by_string *out, const char *run, const char *path,
                                 const char *text, size_t length, size_t skip, size_t *used,
                                 size_t *next, size_t *count, by_error *error);

/* Seconds that a run which took `seconds` waits at its end for a slow server: no longer than it
 * took itself, at least 1, at most 5. */
double by__track_mlflow_patience(double seconds);

/* Updates the state after the events of a run were truncated, so that what follows is sent
 * again. */
by_status by__track_mlflow_rewind(const char *run, by_error *error);

/* Checks an address: BY_ECONFIG unless it is a URL that contains no user name or password. */
by_status by__track_mlflow_check(const char *server, by_error *error);

typedef struct by__track_mlflow by__track_mlflow;

typedef struct by__track_mlflow_options {
    const char *run; /* its directory */
    const char *server;
    const char *project;
    /* Called about once a second while waiting for the server; true stops. NULL: never. */
    bool (*stop)(void *user);
    void *user;
} by__track_mlflow_options;

/* Opens without sending anything. The options must outlive the handle. */
by_status by__track_mlflow_open(by__track_mlflow **out, const by__track_mlflow_options *options,
                                by_error *error);
void by__track_mlflow_close(by__track_mlflow **mlflow);
/* Sends one batch; before the first one, creates and describes the run. *more: something is
 * left. */
by_status by__track_mlflow_send(by__track_mlflow *mlflow, bool *more, by_error *error);
/* After everything is sent: sends how the run ended, according to run.json. */
by_status by__track_mlflow_end(by__track_mlflow *mlflow, by_error *error);
/* Returns the bytes of events.jsonl not sent yet. */
uint64_t by__track_mlflow_waiting(const by__track_mlflow *mlflow);
/* Returns the version of the library that sends; NULL: there is none. */
const char *by__track_mlflow_library(void);

#endif
