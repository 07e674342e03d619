/* Serving: an HTTP gateway, workers with an engine, and a broker between them.
 *
 * Each of the three is a separate process. A `run` call occupies the calling thread until it is
 * told to stop by SIGTERM or SIGINT, or what it depends on ends. The first signal drains (accepted
 * requests are answered, new ones refused); a second one ends at once.
 *
 * Nothing is printed: events are passed to `log`, each as one line of JSON.
 */
#ifndef BANYAN_SERVE_H
#define BANYAN_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/infer.h"
#include "banyan/serve_config.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives one line without line break: {"time": ..., "event": ..., ...}, with control bytes
 * escaped. */
typedef void by_serve_log(void *user, const char *line);

/* ---- secrets ---- */

/* Reports with the event `file_exposed` that other users of the machine can read a file, if they
 * can. holds: what is in it, "the keys of clients". The processes of a server do so for the files
 * that they read or write; a program does for its own. */
BY_API void by_serve_log_exposed(const char *path, const char *holds, by_serve_log *log,
                                 void *user);

typedef enum by_serve_process {
    BY_SERVE_BROKER,
    BY_SERVE_GATEWAY,
    BY_SERVE_WORKER,
    BY_SERVE_SUPERVISOR /* of by_serve_run, whose environment the others inherit */
} by_serve_process;

/* Removes from this process's environment, and wipes, every variable that a process of this kind
 * does not use, such as passwords (docs/security.md lists those that are kept), and closes files
 * that it has inherited beside standard input, output and error, except for the supervisor. redis:
 * the broker is a Redis server. To be called before there are other threads or files. */
BY_API void by_serve_clean_environment(by_serve_process process, bool redis);

/* ---- the log ---- */

/* Converts such a line for people, "10:22:03 process role=worker pid=17"; free it with free().
 * NULL: it is no line of a log, or memory is exhausted. */
BY_API char *by_serve_log_text(const char *line);
/* Makes a line of an event with one member; free it with free(). NULL when memory is exhausted, or
 * the text is not UTF-8. */
BY_API char *by_serve_log_event(const char *event, const char *name, const char *text);

/* ---- the broker ---- */

typedef struct by_broker_options {
    const char *socket;    /* path of the socket that gateways and workers connect to */
    const char *tasks;     /* file of tasks, created if necessary; NULL: tasks are not kept */
    size_t queue_requests; /* maximum of requests waiting for a worker; 0: 1024 */
    int64_t queue_tokens;  /* maximum of estimated prompt and answer tokens waiting; 0: 4,000,000 */
    /* Maximum of tasks, and of responses, stored for each key name; 0: 100,000. Beyond it new tasks
     * are refused, and the oldest responses that have ended are deleted. */
    int64_t stored;
    int64_t stored_bytes; /* the same in bytes; 0: 256 MiB */
    /* Maximum seconds of waiting: a request that would wait longer, by recent measurements, is
     * refused at once; tasks are not. 0: the time of 8 sequences (0.1 to 2 s), and an eighth of
     * that while more than a quarter of the requests are refused. */
    double queue_wait;
    int attempts;           /* workers that a request is given to, one after another; 0: 3 */
    double silence_seconds; /* without heartbeat after which a worker counts as dead; 0: 5 */
    double hang_seconds;    /* with work but without a step, after which it counts as hung; 0: 60 */
    bool supervised;        /* by_serve_run decides which versions of workers get requests */
    /* Run without a sandbox. Otherwise it can start no program, and reach no files but those of its
     * directories (docs/security.md). */
    bool open;
    bool child;        /* standard input is a pipe from the parent; end when it closes */
    by_serve_log *log; /* NULL: events are not reported */
    void *user;
} by_broker_options;

/* Runs a broker. Returns BY_EIO if the socket cannot be opened. */
BY_API by_status by_broker_run(const by_broker_options *options, by_error *error);

/* ---- a worker ---- */

typedef struct by_worker_options {
    const char *broker;        /* as in by_gateway_options; waited for, and reconnected to */
    const char *model;         /* a run, Hugging Face directory or GGUF file */
    const char *name;          /* name for clients; NULL: the last part of `model` */
    const char *chat_template; /* as by_chat_source.file; NULL: that of the model */
    /* Id of the version. NULL: the last part of the weights' directory and a hash of their
     * checksums (or, without these, of samples) and of by_worker_settings. */
    const char *version;
    const char *checkpoint; /* checkpoint directory of the run `model`; NULL: the newest */
    const char *adapter;    /* PEFT directory (docs/lora.md); NULL: none */
    const char *precision;  /* as in by_engine_options */
    const char *kv;         /* as in by_engine_options; of no effect on models without a cache */
    by_pooling pooling;     /* of embeddings */
    double delay;           /* seconds an example waits for others to share a batch; 0: 0.002 */
    int64_t batch;          /* maximum of rows or images per batch; 0: 16 */
    int64_t context;        /* as in by_engine_options, as the next three */
    int64_t sessions;
    int64_t rows;
    uint64_t pool_bytes;
    const char *device; /* as for by_device_open; NULL: "auto" */
    int threads;        /* compute threads; 0: config.train.threads */
    int nice;           /* added to the process's nice value: 0 to 19 */
    double max_rate;    /* maximum requests per second to begin; 0: no limit */
    /* File that is not empty while the model is warm and the broker is connected, for supervision
     * by files; NULL: none. */
    const char *ready_file;
    /* Requests per window that is compared with the training data (banyan/drift.h), if the
     * checkpoint has a reference; 0: 500. */
    size_t drift_requests;
    double hang_seconds; /* 0: as in the address of a Redis server, else 60 */
    /* Called on a separate thread if the worker has work but has made no step for `hang_seconds`,
     * or its event loop is stuck. The process should then end immediately (BY_EXIT_HANG) and be
     * restarted. NULL: not monitored. */
    void (*hangs)(void *user, double seconds);
    /* Run without a sandbox. Otherwise, once warm, it can start no program, connect to no other
     * machine and write no file. */
    bool open;
    bool child;        /* as in by_broker_options */
    by_serve_log *log; /* NULL: events are not reported */
    void *user;
} by_worker_options;

/* Runs a worker. While it runs, retention (banyan/checkpoint.h) keeps its checkpoint. Returns
 * BY_EARG for an invalid option, errors of opening the model or of the engine, or BY_ESTATE if the
 * broker refuses the connection. */
BY_API by_status by_worker_run(const by_worker_options *options, by_error *error);
/* Checks what by_worker_run checks before it builds an engine: the model and its adapter can be
 * opened, and the model supports `context`. Verifies the checkpoint of a run, if none is given, and
 * thereby reads all of it. Errors as by_worker_run. */
BY_API by_status by_worker_check(const by_worker_options *options, by_error *error);
/* Writes what determines answers besides the weights, precision, kv and chat
 * template, as a text for the name of
 * the version; freed with free(). */
BY_API by_status by_worker_settings(char **out, const by_worker_options *options, by_error *error);

/* ---- Redis addresses ---- */

/* Size of a password's buffer. */
#define BY_SERVE_PASSWORD_BYTES 256

/* Removes the password from "redis://[USER]:PASSWORD@HOST..." in place, and stores it in
 * `password`, NUL-terminated and with %XX decoded. Returns whether there was one. */
BY_API bool by_serve_extract_password(char *address, char password[BY_SERVE_PASSWORD_BYTES]);

/* ---- the gateway ---- */

typedef struct by_gateway_options {
    /* Path of the broker's socket, or the address of a Redis server through which gateways and
     * workers on any number of hosts meet:
     * "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=VALUE[&...]]", with options queue,
     * queue_tokens, stored, stored_bytes, wait, silence, hang and attempts (see by_broker_options;
     * gateways and workers should use the same) and password_file, whose first line is the
     * password. Without either, the password is BANYAN_REDIS_PASSWORD or REDISCLI_AUTH of the
     * environment. */
    const char *broker;
    const char *listen;            /* "127.0.0.1:8080", "[::1]:8080", "unix:PATH" */
    const char *keys;              /* file of keys, one "SHA-256 NAME" per line;
                                      NULL: none is required */
    bool insecure;                 /* serve addresses reachable by other machines without keys */
    size_t body;                   /* maximum bytes of a request; 0: 8 MiB */
    size_t connections;            /* maximum number; 0: 20000 */
    double drain_seconds;          /* for accepted requests after SIGTERM; 0: 45 */
    double deadline;               /* seconds per request; 0: 600 */
    const by_serve_config *config; /* limits, origins, ...; NULL: none. The fields above take
                                      precedence */
    const char *traces;            /* URL of a collector of traces; NULL: as in `config` */
    /* As in by_serve_options, to which admin routes are forwarded; NULL: they answer 501. */
    const char *control;
    const char *quota; /* file that persists what keys have used today; NULL: not persisted */
    bool open;         /* as in by_broker_options: a sandbox restricts the whole process */
    bool child;        /* as in by_broker_options */
    by_serve_log *log; /* events, including every request (access log) */
    void *user;
    /* Called once with its URL when it listens, "http://127.0.0.1:8080"; may be NULL. */
    void (*ready)(void *user, const char *url);
    const char *ready_file; /* file that `ready` writes, which the sandbox lets it; NULL: none */
} by_gateway_options;

/* Checks what by_gateway_run checks before listening: the address is valid and not reachable by
 * others without keys, the keys are readable, and the addresses of the broker (may be NULL) and of
 * the collector of traces are valid. Returns BY_ECONFIG. */
BY_API by_status by_gateway_check(const by_gateway_options *options, by_error *error);
/* Runs a gateway, and raises the process's soft limit of open files to what its connections need.
 * Errors as by_gateway_check; BY_EIO if it cannot listen. */
BY_API by_status by_gateway_run(const by_gateway_options *options, by_error *error);

/* ---- a complete server ---- */

/* A model to serve, by workers of its own. */
typedef struct by_serve_model {
    /* Command line of its workers, terminated by NULL, of a program that calls by_worker_run with
     * `address`. It is extended by --version V, for a run --checkpoint DIRECTORY, and `path`; an
     * --adapter DIRECTORY in it is part of the first version, and replaced by those of later
     * ones. */
    const char *const *worker;
    const char *path;     /* run, directory or GGUF file */
    const char *name;     /* name for clients, whatever is deployed later */
    const char *settings; /* of by_worker_settings; NULL: none */
    /* As in by_serve_options, of this model; both 0: as there. */
    size_t workers, most;
} by_serve_model;

typedef struct by_serve_options {
    /* Command lines like those of workers, of a program that calls by_broker_run (with
     * `supervised`) or by_gateway_run. Children write their log to standard error. broker NULL:
     * none is started, because Redis is used. */
    const char *const *broker;
    const char *const *gateway;
    const by_serve_model *models;
    size_t model_count; /* >= 1 */
    size_t workers;     /* minimum of processes of each model; 0: none while it has no requests */
    /* Maximum of processes of each model, by its load; if less than `workers`, that many. One of
     * the two must be > 0. */
    size_t most;
    /* Maximum of processes of all models together, where loads compete; those of versions that are
     * being deployed are not counted. At least `workers`, or 1, of each model; 0: no limit. */
    size_t total;
    double target_p95;   /* target of the 95th percentile of time to first text, seconds; 0: 0.2 */
    double calm;         /* seconds before workers that are not needed are stopped; 0: 15 */
    double idle;         /* seconds without requests before the last worker stops; 0: 60 */
    double grace;        /* seconds for a worker or broker to end after SIGTERM; 0: 60 */
    double drain;        /* the gateway's drain_seconds, plus a margin; 0: 45 */
    const char *address; /* of the broker, as in by_gateway_options */
    const char *control; /* socket for by_deploy and by_deploy_status_now; NULL: none */
    const char *golden;  /* file of answers to the golden request; NULL: none is kept */
    /* File that the gateway creates when it listens; NULL: it then never counts as having been
     * ready. */
    const char *listening;
    by_serve_log *log;
    void *user;
} by_serve_options;

/* Starts a broker, a gateway and workers, and restarts those that end, after a pause that doubles
 * up to 10 s while they end soon after their start. Kills workers that the broker has given up.
 * Adapts the number of workers of each model to its load if `most` exceeds `workers`. SIGHUP
 * deploys the current version of each model (as by_deploy). When told to stop, ends the gateway
 * first, then workers, then the broker. Returns BY_EARG if no worker may run. A child that was
 * ready once is restarted whatever its exit code. Until then restarting does not help: returns
 * BY_ECONFIG if the broker, the gateway or every worker ends with BY_EXIT_CONFIG, and BY_ESTATE if
 * one of them ends five times. */
BY_API by_status by_serve_run(const by_serve_options *options, by_error *error);

/* ---- deployment ---- */

/* Deployment of another version of the model. by_deploy_defaults sets everything but `control`. */
typedef struct by_deploy_options {
    const char *control; /* as in by_serve_options */
    const char *model;   /* name of the model; NULL: the only one that is served */
    /* Absolute path of the version to deploy; NULL: what is served now, if its run has a newer
     * checkpoint. */
    const char *path;
    /* Absolute path of an adapter to merge into it (docs/lora.md); NULL: none, or without `path`
     * that of the version that serves. */
    const char *adapter;
    /* Return to the previous version, ending a deployment in progress; the other fields are
     * ignored. */
    bool rollback;
    /* Fraction of requests that the new version gets first, < 1; it then gets 25 %, 50 % and all.
     * 0: all at once. */
    double canary;
    double hold;   /* seconds of each fraction, and of shadow traffic, >= 0; default 30 */
    bool shadow;   /* first send it copies of requests and compare the answers */
    double errors; /* permitted excess of its error rate over the previous version's, 0 to 1;
                      default 0.02 */
    double slower; /* permitted ratio of its 95th percentile of time to first text to the previous
                      version's, >= 1; default 1.5 */
    bool force;    /* deploy it even if it answers other requests than the version that serves */
} by_deploy_options;

/* Sets the defaults: the newest checkpoint of what is served, all requests at once. */
BY_API void by_deploy_defaults(by_deploy_options *out);

/* Deploys a version: starts its workers, sends them the golden request (a fixed prompt, or a row of
 * missing values, whose answer must be finite, equal on all workers, and equal to that of the
 * version's first use on this machine), shifts requests to them, and ends the previous workers when
 * they have answered theirs. Rolls back by itself if the workers do not start, if without `force`
 * the version reads another kind of input or other columns, or has no chat template where the
 * previous one has one, if the golden request fails, or if requests fail or take longer than
 * before. Returns once the workers are being started; by_deploy_status_now reports the progress.
 * Returns BY_EARG for an option out of range, BY_ESTATE if the deployment cannot start (the message
 * says why), BY_EIO if no server answers. */
BY_API by_status by_deploy(const by_deploy_options *options, by_error *error);

/* State of a served model and its deployment. */
typedef struct by_deploy_status {
    char model[256];   /* name under which clients ask for it */
    char version[65];  /* version that serves */
    char previous[65]; /* version that a rollback returns to; "": none */
    /* What these and `coming` were deployed from; "": not known, as by by_deploy_shared_status. */
    char path[1024];
    char previous_path[1024];
    char coming_path[1024];
    size_t workers;  /* its wanted number of workers */
    size_t needed;   /* number that the load needs; > workers if the server's total is used up */
    size_t ready;    /* workers that are ready */
    size_t least;    /* minimum of workers */
    size_t most;     /* maximum of workers */
    size_t waiting;  /* number of waiting requests */
    double p95;      /* 95th percentile of time to first text in the last seconds */
    char coming[65]; /* version being deployed; "": none */
    /* "starting", "checking", "shadow", "canary"; from by_deploy_shared_status also "abandoned":
     * its process has ended, and nobody shifts requests. */
    char phase[16];
    double share;        /* fraction of requests that it gets */
    size_t coming_ready; /* its workers that are ready */
    uint64_t same;       /* shadow copies answered equally to the original request */
    uint64_t different;  /* shadow copies answered differently */
    uint64_t failed;     /* shadow copies that failed */
    char last[65];       /* version of the last completed deployment; "": none */
    char outcome[16];    /* of the last deployment: "deployed" or "rolled_back" */
    char reason[512];    /* of a rollback */
    bool routed;         /* requests and metrics have the shares of what is told here */
} by_deploy_status;

/* Gets the current state of a model (by_deploy_options) from a server's control socket. Returns
 * BY_EIO if no server answers. */
BY_API by_status by_deploy_status_now(by_deploy_status *out, const char *control, const char *model,
                                      by_error *error);

/* Deployment to workers that are started by others and meet at a Redis server. */
typedef struct by_shared_deploy_options {
    const char *broker;  /* address, as in by_gateway_options */
    const char *model;   /* name of the model */
    const char *version; /* version to deploy, whose workers are running; of a rollback NULL */
    /* Canary, shadow traffic and limits; paths and `model` are not used. `rollback` returns to
     * the previous version; a deployment in progress is ended, by its own process if that is
     * running. */
    by_deploy_options how;
    /* Reports each phase and share of the new version; may be NULL. */
    void (*phase)(void *user, const char *version, const char *phase, double share);
    void *user;
} by_shared_deploy_options;

/* Shifts the requests of a model from the serving version to another: waits for as many of its
 * workers as a share needs, sends them the golden request, and gives them shares and copies like
 * by_deploy, based on the counts of all gateways in Redis. If no other version has workers, later
 * ones get no requests until they are deployed. Returns when the version gets all requests. Returns
 * BY_ESTATE if it was rolled back (the previous version gets all requests again), could not begin,
 * or on SIGTERM or SIGINT; BY_EARG for an invalid version or option; BY_EIO if Redis cannot be
 * reached. If the process dies, the shares stay until the next deployment. */
BY_API by_status by_deploy_shared(const by_shared_deploy_options *options, by_error *error);

/* Gets the same state for a model whose gateways and workers meet at a Redis server, whoever
 * deploys it. Measures latencies for one second. `workers` are those present. Returns BY_ESTATE if
 * Redis knows no such model, BY_EIO if it cannot be reached. */
BY_API by_status by_deploy_shared_status(by_deploy_status *out, const char *broker,
                                         const char *model, by_error *error);

/* ---- load generation ---- */

/* Load for a benchmark of a server. */
typedef struct by_load_options {
    const char *url;      /* "http://HOST:PORT" with an IP address, or "unix:PATH" */
    const char *key;      /* API key; NULL: none */
    const char *model;    /* name of the model */
    size_t requests;      /* total number */
    double rate;          /* requests per second at random times (Poisson process, open loop);
                             0: closed loop */
    size_t concurrency;   /* closed loop: requests in flight; open loop: connections */
    size_t prompt_tokens; /* tokens of a prompt: random ids below `vocab` */
    size_t tokens;        /* tokens of an answer */
    int64_t vocab;
    /* Of prompts and times. Use a new one for every run, or the prompts hit the server's prefix
     * cache. */
    uint64_t seed;
    bool whole;     /* request complete answers instead of streams */
    double seconds; /* after which a request counts as failed; 0: 600 */
    /* Polled; returning true stops with BY_ESTOPPED; may be NULL. */
    bool (*stop)(void *user);
    void *user;
} by_load_options;

/* One request. Times are in seconds from when it was to be sent, so that a stalled server does not
 * hide the waiting time of requests sent late ("coordinated omission"). */
typedef struct by_load_sample {
    double first;   /* time to first text (TTFT) */
    double end;     /* time to the end of the answer */
    size_t tokens;  /* number of tokens in the answer */
    int32_t status; /* HTTP status; 0: connection lost or timeout */
    bool failed;    /* including errors inside a stream, and answers without a token */
} by_load_sample;

/* Requests that failed in the same way, including refused ones (429). */
typedef struct by_load_failure {
    int32_t status; /* HTTP status; 0: no complete answer */
    /* "HTTP 404", how the connection ended, or what was wrong inside an answer of status 200. */
    char reason[64];
    size_t count; /* number of requests */
    /* What the server said to the first of them, one line; "" if nothing, NULL if memory ran
     * out. */
    char *message;
} by_load_failure;

/* Results. */
typedef struct by_load_report {
    by_load_sample *samples; /* [count] */
    size_t count;
    by_load_failure *failures; /* [failure_count], in order of first occurrence */
    size_t failure_count;
    double *gaps; /* [gap_count] seconds between consecutive texts of a stream, over all streams
                     (ITL) */
    size_t gap_count;
    double seconds; /* from the first request to the last end */
} by_load_report;

/* Sends requests to a server and measures them. Release the report with by_load_report_free.
 * Returns BY_EARG if an option is out of range, BY_EIO if the server cannot be reached,
 * BY_ESTOPPED. */
BY_API by_status by_load_run(by_load_report *out, const by_load_options *options, by_error *error);
/* Frees the report and zeroes it. */
BY_API void by_load_report_free(by_load_report *report);

#ifdef __cplusplus
}
#endif

#endif
