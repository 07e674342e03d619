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
    const char *socket;     /* path of the socket that gateways and workers connect to */
    const char *tasks;      /* file of tasks, made where there is none; NULL: none are kept */
    size_t queue_requests;  /* that may wait for a worker; 0: 1024 */
    int64_t queue_tokens;   /* prompts and answers that wait, by guess; 0: 4,000,000 */
    int attempts;           /* times that a request is given to a worker, at most; 0: 3 */
    double silence_seconds; /* without a beat after which a worker counts as dead; 0: 5 */
    double hang_seconds;    /* with work, but without a step; 0: 60 */
    bool child;             /* standard input is a pipe of the parent: its end ends this process */
    by_serve_log *log;      /* NULL: nothing is told */
    void *user;
} by_broker_options;

/* BY_EIO: the socket cannot be had. */
BY_API by_status by_broker_run(const by_broker_options *options, by_error *error);

/* ---- a worker ---- */

typedef struct by_worker_options {
    const char *broker;    /* as by_gateway_options has it; it is waited for, and found again */
    const char *model;     /* a run or a Hugging Face directory */
    const char *name;      /* under which clients ask for it; NULL: the last part of `model` */
    const char *version;   /* NULL: the hash of the weights' manifest, or "1" */
    const char *precision; /* as by_engine_options has it */
    int64_t context;
    int64_t sessions;
    int64_t rows;
    uint64_t pool_bytes;
    int threads;
    bool child;
    by_serve_log *log;
    void *user;
} by_worker_options;

BY_API by_status by_worker_run(const by_worker_options *options, by_error *error);

/* ---- the gateway ---- */

typedef struct by_gateway_options {
    /* Path of the broker's socket, or the address of a Redis server that is the broker, by which
     * gateways and workers on any number of hosts meet:
     * "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?OPTION=VALUE[&...]]", with the options
     * queue, queue_tokens, silence and attempts (see by_broker_options; those of gateways and
     * workers should agree). The environment's REDISCLI_AUTH may have the password instead. */
    const char *broker;
    const char *listen;   /* "127.0.0.1:8080", "[::1]:8080", "unix:PATH" */
    const char *keys;     /* file of keys, one "SHA-256 NAME" a line; NULL: none is asked for */
    bool insecure;        /* serve addresses beyond this machine without keys */
    size_t body;          /* bytes of a request; 0: 8 MiB */
    size_t connections;   /* 0: 20000 */
    double drain_seconds; /* for what was accepted, after SIGTERM; 0: 45 */
    double deadline;      /* seconds of a request; 0: 600 */
    const by_serve_config *config; /* limits and origins; NULL: none. The fields above count. */
    const char *quota;             /* file that keeps what keys have used today; NULL: nowhere */
    bool child;
    by_serve_log *log; /* events, and every request: the access log */
    void *user;
    /* Called once with the address when it listens, "http://127.0.0.1:8080"; may be NULL. */
    void (*ready)(void *user, const char *url);
} by_gateway_options;

BY_API by_status by_gateway_run(const by_gateway_options *options, by_error *error);

/* ---- all of it on one machine ---- */

typedef struct by_serve_options {
    /* Command lines that end with NULL, of the program that calls by_broker_run, by_gateway_run and
     * by_worker_run with `address`. A child writes its log to its standard error. */
    const char *const *broker; /* NULL: none is started, since Redis is it */
    const char *const *gateway;
    const char *const *worker;
    size_t workers;      /* processes; at least 1 */
    const char *address; /* of the broker, as by_gateway_options has it */
    by_serve_log *log;
    void *user;
} by_serve_options;

/* Starts a broker, a gateway and workers, and starts again what ends: after a pause that doubles,
 * up to 10 s, while it ends soon after its start. A worker that the broker has given up is killed.
 * Ends when it is told to (the gateway first, then workers, then the broker), and with BY_ECONFIG
 * when the broker, the gateway or every worker ends with BY_EXIT_CONFIG: a restart is no help. */
BY_API by_status by_serve_run(const by_serve_options *options, by_error *error);

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
    bool failed;    /* also by an error inside a stream */
} by_load_sample;

typedef struct by_load_report {
    by_load_sample *samples; /* [count] */
    size_t count;
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
