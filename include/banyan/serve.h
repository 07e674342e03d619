/* Serving: a gateway that speaks HTTP, workers with an engine, and a broker between them.
 *
 * Each of the three is a process of its own. A `run` call takes over the calling thread until it is
 * told to stop: by SIGTERM or SIGINT (the first one drains: what was accepted is answered, new
 * requests are refused; the second one ends at once), and by the end of what it depends on.
 *
 * Nothing is printed: what happens is given to `log` as one JSON object a line. */
#ifndef BANYAN_SERVE_H
#define BANYAN_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/serve_config.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One line without its end: {"time": ..., "event": ..., ...}, control bytes escaped. */
typedef void by_serve_log(void *user, const char *line);

/* ---- the broker ---- */

typedef struct by_broker_options {
    const char *socket;    /* path of the socket that gateways and workers connect to */
    const char *tasks;     /* file of tasks, made where there is none; NULL: none are kept */
    size_t queue_requests; /* that may wait for a worker; 0: 1024 */
    int64_t queue_tokens;  /* prompts and answers that wait, by guess; 0: 4,000,000 */
    /* seconds that a request may wait: one that would wait longer, by what was measured, is refused
     * at once; tasks are not. 0: what 8 sequences take (0.1 to 2 s), and an eighth of that while
     * more than a quarter of the requests are refused */
    double queue_wait;
    int attempts;           /* times that a request is given to a worker, at most; 0: 3 */
    double silence_seconds; /* without a beat after which a worker counts as dead; 0: 5 */
    double hang_seconds;    /* with work, but without a step; 0: 60 */
    bool supervised;        /* workers get requests when by_serve_run says which versions do */
    bool child;             /* standard input is a pipe of the parent: its end ends this process */
    by_serve_log *log;      /* NULL: nothing is told */
    void *user;
} by_broker_options;

/* BY_EIO: the socket cannot be had. */
BY_API by_status by_broker_run(const by_broker_options *options, by_error *error);

/* ---- a worker ---- */

typedef struct by_worker_options {
    const char *broker;     /* as by_gateway_options has it; it is waited for, and found again */
    const char *model;      /* a run or a Hugging Face directory */
    const char *name;       /* under which clients ask for it; NULL: the last part of `model` */
    const char *version;    /* an id; NULL: the last part of the weights' directory and a hash of
                               their checksums (or, where there are none, of samples) and of
                               `precision` */
    const char *checkpoint; /* of the run `model`, a directory; NULL: its newest one */
    const char *adapter;    /* a directory as PEFT writes it (docs/lora.md); NULL: none */
    const char *precision;  /* as by_engine_options has it */
    bool pool_last;         /* embeddings are the last token's state, not the mean of all */
    double delay;           /* seconds that an example waits for others of its batch; 0: 0.002 */
    int64_t batch;          /* rows or images of a batch, at most; 0: 16 */
    int64_t context;
    int64_t sessions;
    int64_t rows;
    uint64_t pool_bytes;
    int threads;
    int nice;        /* added to the process' own: 0 to 19, the less of a busy machine */
    double max_rate; /* requests a second that it begins, at most; 0: as many as come */
    /* not empty while the model is warm and the broker is reached, for who watches processes by
     * files; NULL: none */
    const char *ready_file;
    /* that are compared at a time with the training data (banyan/drift.h), where the checkpoint has
     * a reference; 0: 500 */
    size_t drift_requests;
    double hang_seconds; /* 0: those of the address of a Redis server, else 60 */
    /* Called on a thread of its own when the worker has work and made no step for so long, or its
     * loop did not turn: nothing of the process can be relied on, and it should end at once
     * (BY_EXIT_HANG), to be started again. NULL: nobody looks */
    void (*hangs)(void *user, double seconds);
    bool open; /* without a sandbox; else it can start no program, reach no other machine and write
                  no file once it is warm */
    bool child;
    by_serve_log *log;
    void *user;
} by_worker_options;

/* Retention of the run (banyan/checkpoint.h) leaves its checkpoint while it runs. */
BY_API by_status by_worker_run(const by_worker_options *options, by_error *error);

/* ---- the address of a Redis server ---- */

#define BY_SERVE_PASSWORD_BYTES 256

/* Takes the password out of "redis://[USER]:PASSWORD@HOST...", in place: the text becomes shorter.
 * True: there was one, and `password` has it, ended by NUL, with %XX decoded. */
BY_API bool by_serve_take_password(char *address, char password[BY_SERVE_PASSWORD_BYTES]);

/* ---- the gateway ---- */

typedef struct by_gateway_options {
    /* Path of the broker's socket, or the address of a Redis server that is the broker, by which
     * gateways and workers on any number of hosts meet:
     * "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=VALUE[&...]]", with the options
     * queue, queue_tokens, wait, silence, hang and attempts (see by_broker_options; those of
     * gateways and workers should agree) and password_file, whose first line is the password.
     * Without either it is that of the environment's BANYAN_REDIS_PASSWORD, else REDISCLI_AUTH. */
    const char *broker;
    const char *listen;   /* "127.0.0.1:8080", "[::1]:8080", "unix:PATH" */
    const char *keys;     /* file of keys, one "SHA-256 NAME" a line; NULL: none is asked for */
    bool insecure;        /* serve addresses beyond this machine without keys */
    size_t body;          /* bytes of a request; 0: 8 MiB */
    size_t connections;   /* 0: 20000 */
    double drain_seconds; /* for what was accepted, after SIGTERM; 0: 45 */
    double deadline;      /* seconds of a request; 0: 600 */
    const by_serve_config *config; /* limits and origins; NULL: none. The fields above count. */
    const char *traces;            /* URL of a collector of traces; NULL: as `config` says */
    const char *control;           /* as by_serve_options has it: routes of the scope admin ask
                                      there; NULL: they answer 501 */
    const char *quota;             /* file that keeps what keys have used today; NULL: nowhere */
    bool child;
    by_serve_log *log; /* events, and every request: the access log */
    void *user;
    /* Called once with the address when it listens, "http://127.0.0.1:8080"; may be NULL. */
    void (*ready)(void *user, const char *url);
} by_gateway_options;

/* Whether the address can be one, whether others reach it without keys, and whether the keys can be
 * read and the broker's address (NULL: not looked at) is one: what by_gateway_run refuses before it
 * listens. BY_ECONFIG says what is wrong. */
BY_API by_status by_gateway_check(const by_gateway_options *options, by_error *error);
/* Raises the process' soft limit of open files to what its connections need. */
BY_API by_status by_gateway_run(const by_gateway_options *options, by_error *error);

/* ---- all of it on one machine ---- */

/* A model that is served with others. */
typedef struct by_serve_other {
    const char *const *worker; /* as that of by_serve_options, with a name of its own */
    const char *model;
    const char *name;
    const char *settings;
    size_t workers; /* processes; at least 1 */
} by_serve_other;

typedef struct by_serve_options {
    /* Command lines that end with NULL, of the program that calls by_broker_run (with
     * `supervised`), by_gateway_run and by_worker_run with `address`. That of a worker goes on with
     * --version V, for a run with --checkpoint DIRECTORY, and with the path of the model. A child
     * writes its log to its standard error. */
    const char *const *broker; /* NULL: none is started, since Redis is it */
    const char *const *gateway;
    const char *const *worker;
    const char *model;    /* what to serve: the path of a run, a directory or a GGUF file */
    const char *name;     /* under which clients ask for it, whatever is deployed later */
    const char *settings; /* what else than the weights decides answers; NULL: nothing */
    /* Models that are served with it, by other workers, whose number and versions stay. */
    const by_serve_other *others;
    size_t other_count;
    size_t workers;    /* processes, at least; 0: none while there are no requests */
    size_t most;       /* processes, at most, by load; less than `workers`: as many as these. One of
                          the two is above 0 */
    double target_p95; /* seconds to the first text that 95 % of the requests are to have; 0: 0.2 */
    double calm;       /* seconds in which workers were not needed before they go; 0: 15 */
    double idle;       /* seconds without a request before the last worker goes; 0: 60 */
    double grace;      /* seconds that a worker, or the broker, has to end after SIGTERM; 0: 60 */
    double drain;      /* the gateway's drain_seconds: it is given a little more; 0: 45 */
    const char *address; /* of the broker, as by_gateway_options has it */
    const char *control; /* socket of by_deploy and by_deploy_status_now; NULL: none */
    const char *golden;  /* file of answers to the golden request; NULL: none are kept */
    /* File that the gateway makes once it listens; NULL: its ends count as those of one that never
     * did */
    const char *listening;
    by_serve_log *log;
    void *user;
} by_serve_options;

/* Starts a broker, a gateway and workers, and starts again what ends: after a pause that doubles,
 * up to 10 s, while it ends soon after its start. A worker that the broker has given up is killed.
 * The number of workers follows the load where `most` is above `workers`. SIGHUP deploys what
 * `model` is by then (as by_deploy does). Ends when it is told to (the gateway first, then workers,
 * then the broker). Before one has ever been ready, it ends with BY_ECONFIG when the broker, the
 * gateway or every worker ends with BY_EXIT_CONFIG, and with BY_ESTATE when one of them ends five
 * times: a restart is no help. What was ready once is started again whatever its code is. BY_EARG:
 * no worker may run. */
BY_API by_status by_serve_run(const by_serve_options *options, by_error *error);

/* ---- another version of the model ---- */

typedef struct by_deploy_options {
    const char *control; /* as by_serve_options has it */
    const char *path; /* absolute; NULL: what is served now, whose run may have a new checkpoint */
    bool rollback;    /* to what served before; ends a deployment that is under way. The rest is
                            not looked at then */
    double canary;    /* share of requests that the new version gets first, below 1; then it gets
                            25 %, 50 % and all. 0: all at once */
    double hold;      /* seconds of each share, and of shadow traffic; 0: 30 */
    bool shadow;      /* at first it gets copies of requests, whose answers are compared */
    double errors;    /* by which its error rate may be above the former one's; 0: 0.02 */
    double slower;    /* times the former version's 95th percentile of the time to the first text
                            that its own may be; 0: 1.5 */
} by_deploy_options;

/* Starts workers of the version that `path` stands for, sends them the golden request (a fixed
 * prompt, whose answer must be finite, the same from all workers, and that of the version's first
 * use on this machine), gives them requests, and ends the former workers when what they have is
 * answered. It rolls back by itself when the workers do not start, the golden request fails, or
 * requests fail or take longer than those of the former version. Returns when the workers are being
 * started: by_deploy_status_now tells the rest. BY_ESTATE says why not; BY_EIO: nobody serves. */
BY_API by_status by_deploy(const by_deploy_options *options, by_error *error);

typedef struct by_deploy_status {
    char model[256];
    char version[65];  /* that serves */
    char previous[65]; /* that a rollback goes to; "": none */
    size_t workers;    /* of it, wanted */
    size_t ready;
    size_t least;
    size_t most;
    size_t waiting;  /* requests */
    double p95;      /* seconds to the first text, of the last seconds */
    char coming[65]; /* version that is being deployed; "": none */
    char phase[16];  /* "starting", "checking", "shadow", "canary"; of by_deploy_shared_status
                        "abandoned": its process has ended, and nobody shifts requests */
    double share;    /* of requests that it gets */
    size_t coming_ready;
    uint64_t same; /* copies of requests: with the client's answer, with another one, failed */
    uint64_t different;
    uint64_t failed;
    char last[65];    /* version of the last deployment that has ended; "": none has */
    char outcome[16]; /* of it: "deployed", "rolled_back" */
    char reason[160]; /* of a roll-back */
} by_deploy_status;

/* BY_EIO: nobody serves there. */
BY_API by_status by_deploy_status_now(by_deploy_status *out, const char *control, by_error *error);

/* Where gateways and workers meet at a Redis server, and somebody else starts them. */
typedef struct by_shared_deploy_options {
    const char *broker;  /* the address, as by_gateway_options has it */
    const char *model;   /* its name */
    const char *version; /* whose workers run */
    bool rollback;       /* to the version that served before; a deployment that is under way is
                               ended, by its own process where it still runs. `version` and the rest
                               are not looked at then, but for `phase` */
    double canary;       /* as by_deploy_options has these five */
    double hold;
    bool shadow;
    double errors;
    double slower;
    /* Told each phase and share of the version that comes; NULL: nobody is. */
    void (*phase)(void *user, const char *version, const char *phase, double share);
    void *user;
} by_shared_deploy_options;

/* Shifts the requests of a model from the version that serves to another one: waits until as many
 * of its workers are there as a share needs, sends them the golden request, and gives them shares
 * and copies as by_deploy does, by what Redis counts for all gateways. Where no other version has
 * workers, those that come later get nothing until they are deployed. Returns when the version has
 * everything. BY_ESTATE: it was rolled back, and the former version has everything again, or it
 * could not begin; so too when SIGTERM or SIGINT comes. BY_EIO: Redis is not reached. If the
 * process dies, the shares stay as they are until the next deployment. */
BY_API by_status by_deploy_shared(const by_shared_deploy_options *options, by_error *error);

/* The same of a model whose gateways and workers meet at a Redis server, whoever deploys: takes a
 * second, of which it tells the times. Workers are those that are there. BY_ESTATE: Redis knows no
 * model of this name; BY_EIO: it is not reached. */
BY_API by_status by_deploy_shared_status(by_deploy_status *out, const char *broker,
                                         const char *model, by_error *error);

/* ---- load ---- */

typedef struct by_load_options {
    const char *url;    /* "http://HOST:PORT" with an address, or "unix:PATH" */
    const char *key;    /* NULL: none */
    const char *model;  /* that is asked for */
    size_t requests;    /* in all */
    double rate;        /* of a second at random times (a Poisson process, open loop); 0: closed */
    size_t concurrency; /* requests at a time in the closed loop, connections in the open one */
    size_t prompt_tokens; /* random ids below `vocab` */
    size_t tokens;        /* of an answer */
    int64_t vocab;
    uint64_t seed;  /* of prompts and times: a new one for every run, or the server finds the
                              prompts in its cache */
    bool whole;     /* answers that are not streams */
    double seconds; /* after which a request counts as failed; 0: 600 */
    bool (*stop)(void *user); /* asked now and then; may be NULL */
    void *user;
} by_load_options;

/* A request of the load. Times in seconds from the one at which it was to be sent, so that a server
 * that stops all clients does not hide what others would have waited ("coordinated omission"). */
typedef struct by_load_sample {
    double first;   /* to the first text (TTFT) */
    double end;     /* to the end of the answer */
    size_t tokens;  /* of the answer */
    int32_t status; /* of HTTP; 0: the connection broke or the time was over */
    bool failed;    /* also by an error inside a stream, and by an answer without a token */
} by_load_sample;

/* Requests that failed in the same way, also those that were refused (429). */
typedef struct by_load_failure {
    int32_t status;  /* of HTTP; 0: there was no whole answer */
    char reason[64]; /* "HTTP 404", what the connection ended with, or what was wrong inside an
                        answer of status 200 */
    size_t count;
    char *message; /* what the server said to the first of them, one line; "" when it said nothing,
                      NULL when memory was exhausted */
} by_load_failure;

typedef struct by_load_report {
    by_load_sample *samples; /* [count] */
    size_t count;
    by_load_failure *failures; /* [failure_count] in the order of the first of each */
    size_t failure_count;
    double *gaps; /* [gap_count] seconds between two texts of a stream, of all streams (ITL) */
    size_t gap_count;
    double seconds; /* from the first request to the last end */
} by_load_report;

/* Sends requests to a server and takes the times. BY_EIO: it cannot be reached; BY_ESTOPPED: `stop`
 * said so. The report is freed with by_load_report_free. */
BY_API by_status by_load_run(by_load_report *out, const by_load_options *options, by_error *error);
BY_API void by_load_report_free(by_load_report *report);

#ifdef __cplusplus
}
#endif

#endif
