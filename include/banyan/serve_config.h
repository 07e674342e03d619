/* The configuration of a server: a YAML file, with `base:` inheritance and `section.key=value`
 * overrides, as for a run (banyan/config.h). A field has the name of its key and section; comments
 * give meaning, range and default. docs/serve_config.md lists the keys. */
#ifndef BANYAN_SERVE_CONFIG_H
#define BANYAN_SERVE_CONFIG_H

#include <stdint.h>

#include "banyan/config.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The HTTP server. */
typedef struct by_serve_gateway_config {
    char *listen;                    /* HOST:PORT or unix:PATH; default "127.0.0.1:8080" */
    char *keys;                      /* file of keys; default "": none is required */
    int64_t insecure;                /* 1: serve addresses reachable by other machines without
                                        keys; default 0 */
    int64_t body;                    /* maximum bytes of a request; default 8 MiB */
    int64_t connections;             /* maximum number; default 20000 */
    int64_t connections_per_address; /* maximum per client; default 0: no limit */
    by_string_list proxies;          /* networks of proxies whose X-Forwarded-For is trusted;
                                        "unix" */
    double deadline;                 /* seconds per request; default 600 */
    double drain;                    /* seconds for accepted requests after SIGTERM; default 45 */
    char *metrics_names;             /* names in /metrics: "banyan" (default) or "vllm" */
    int64_t page;                    /* 1: "/" is a page for browsers (default) */
    double head_timeout;             /* seconds to receive the head of a request; default 10 */
    double body_timeout;             /* seconds to receive a whole request; default 60 */
    double idle_timeout;   /* seconds a connection may be idle between requests; default 75 */
    double output_timeout; /* seconds in which a client may accept nothing; default 30 */
    int64_t output;        /* bytes buffered per stream for a slow reader; default 256 KiB */
    int64_t output_total;  /* bytes buffered for all streams; default 16 MiB */
} by_serve_gateway_config;

/* The workers. */
typedef struct by_serve_worker_config {
    char *model; /* a run, directory or GGUF file; default "": given on the command line */
    char *name;  /* name for clients; default "": the last part of `model` */
    /* Number of processes; with scaling.most the minimum, and only then may it be 0. Default 1. */
    int64_t count;
    char *precision;      /* as for by_infer_precision; default "": that of the weights */
    char *chat_template;  /* as by_chat_source.file; default "": that of the model */
    char *kv;             /* "int8": as in by_engine_options; default "auto": as `precision` */
    int64_t sessions;     /* as in by_engine_options; default 0: the engine's */
    int64_t context;      /* as in by_engine_options; default 0: the model's */
    char *device;         /* as for by_device_open; default "auto" */
    int64_t threads;      /* compute threads; default 0: one per core */
    int64_t nice;         /* 0 to 19, default 5; gateway and broker have 0 */
    int64_t drift_window; /* requests per window of drift detection; default 500 */
    int64_t sandbox;      /* 1: all processes give up what they do not need (default); 0: none */
    double max_rate;      /* requests per second that a worker begins; default 0: no limit */
    double grace;         /* seconds to end after SIGTERM; default 60 */
} by_serve_worker_config;

/* A model to serve. Where a text is empty or a number 0, by_serve_worker_config holds. */
typedef struct by_served_model_config {
    char *path;          /* a run, directory or GGUF file */
    char *name;          /* name for clients; default "": the last part of the path */
    char *adapter;       /* directory of a LoRA adapter; default "": none */
    char *workers;       /* "2", or "1:8" for autoscaling; default "" */
    char *precision;     /* default "" */
    char *kv;            /* "auto" or "int8"; default "" */
    char *chat_template; /* default "" */
    char *pool;          /* embeddings: "mean" or "last"; default "" */
    char *device;        /* as for by_device_open; default "" */
    int64_t sessions;
    int64_t context;
    int64_t threads;
    int64_t batch; /* table rows or images computed together; default 0: 16 */
    double delay;  /* seconds that an incomplete batch waits; default 0: 0.002 */
    double max_rate;
    int64_t drift_window;
} by_served_model_config;

/* Autoscaling of workers. */
typedef struct by_serve_scaling_config {
    int64_t most;      /* maximum of processes of a model; default 0: worker.count, fixed */
    int64_t total;     /* maximum of processes of all models together; default 0: no limit */
    double target_p95; /* target of the 95th percentile of time to first text, seconds;
                          default 0.2 */
    double calm;       /* seconds before workers that are not needed are stopped; default 15 */
    double idle; /* seconds without requests before the last one stops, if count is 0; default 60 */
} by_serve_scaling_config;

/* The queue between gateway and workers. */
typedef struct by_serve_broker_config {
    char *address;  /* "redis://HOST": use Redis; default "": start a broker */
    int64_t queue;  /* maximum number of waiting requests; default 1024 */
    int64_t stored; /* maximum of tasks, and of responses, for each key name; default 100,000 */
    int64_t stored_bytes; /* the same in bytes; default 256 MiB */
    double wait;          /* maximum seconds of waiting; default 0: by load */
    char *tasks;          /* file of tasks; default "": DIR/tasks.sqlite */
} by_serve_broker_config;

/* The log on standard error. */
typedef struct by_serve_log_config {
    char *format; /* "json" lines, "text" for people, or "auto" (default): text on a terminal */
} by_serve_log_config;

/* Limits of a key; 0 (default): none. */
typedef struct by_limit_config {
    char *name; /* of keys in the file of keys; NULL in the limits of all others */
    int64_t requests_per_minute;
    int64_t tokens_per_minute; /* of prompts and answers */
    int64_t tokens_per_day;    /* of prompts and answers, per day in UTC */
} by_limit_config;

/* Limits of all keys. */
typedef struct by_serve_limits_config {
    int64_t requests_per_minute; /* of each key that `keys` does not name; 0 (default): no limit */
    int64_t tokens_per_minute;   /* the same */
    int64_t tokens_per_day;      /* the same */
    by_record_list keys;         /* by_limit_config: keys with limits of their own */
} by_serve_limits_config;

/* Cross-origin requests. */
typedef struct by_serve_cors_config {
    by_string_list origins; /* permitted origins, "https://app.example.com" or "*"; default: none */
    double max_age;         /* seconds a browser may cache the permission; default 600 */
} by_serve_cors_config;

/* Log of requests and answers. */
typedef struct by_serve_payload_config {
    char *directory;     /* default "": none is kept */
    double fraction;     /* of requests, 0 to 1; default 0.01 */
    int64_t bytes;       /* per file; default 64 MiB */
    int64_t files;       /* number of files kept, the newest; default 16 */
    by_string_list drop; /* fields to leave out; default: none */
    by_string_list hash; /* fields to replace by a hash; default: none */
    int64_t redact;      /* 1: replace e-mail addresses and long numbers in texts (default) */
} by_serve_payload_config;

/* Log of feedback. */
typedef struct by_serve_feedback_config {
    char *directory; /* default "": none is kept */
    int64_t bytes;   /* per file; default 64 MiB */
    int64_t files;   /* number of files kept, the newest; default 64 */
} by_serve_feedback_config;

/* Messages about completed tasks. */
typedef struct by_serve_webhooks_config {
    by_string_list origins;  /* permitted origins of URLs, "https://hooks.example.com";
                                default: none */
    by_string_list networks; /* private networks that may be contacted, "10.0.0.0/8";
                                default: none */
    char *secret;            /* file of secrets that sign messages */
    char *certificates;      /* PEM file of authorities; default "": the system's */
    int64_t attempts;        /* per message; 1 to 100, default 10 */
    double pause;            /* seconds between the first two attempts, then doubled; default 5 */
    double timeout;          /* seconds per attempt; default 10 */
} by_serve_webhooks_config;

/* OpenTelemetry traces. */
typedef struct by_serve_tracing_config {
    char *endpoint;  /* URL of a collector (OTLP over HTTP); default "": none */
    char *service;   /* service.name of this server; default "banyan" */
    double fraction; /* sampled fraction of traces that begin here; default 1 */
    int64_t queue;   /* maximum of spans waiting to be sent; default 4096 */
} by_serve_tracing_config;

/* An entity of the feature store. */
typedef struct by_feature_entity_config {
    char *name; /* join key */
    char *type; /* "int64" (default), "int32", "string", "bytes" or "unix_timestamp" */
} by_feature_entity_config;

/* A feature view. */
typedef struct by_feature_view_config {
    char *name;
    char *entities; /* its join keys, separated by commas */
    double ttl;     /* seconds after which a feature counts as missing; default 0: never */
} by_feature_view_config;

/* A column of a model that the store provides. */
typedef struct by_feature_column_config {
    char *column;     /* name of the column */
    char *feature;    /* VIEW:FEATURE */
    char *model;      /* whose column it is; default "": of every model */
    char *otherwise;  /* cell to use if the store has no value; default "": missing */
    int64_t required; /* 1: reject the request if there is no value; default 0 */
    char *time_unit;  /* unit of numbers made from timestamps: "s" (default), "ms", "us", "ns" */
} by_feature_column_config;

/* A Feast online store from which features of entities are fetched. */
typedef struct by_serve_features_config {
    /* "redis://HOST[:PORT][/DATABASE]" or "http://HOST:PORT"; default "": none. */
    char *store;
    char *password_file;     /* default "": BANYAN_FEATURES_PASSWORD in the environment, if set */
    char *project;           /* Feast project */
    int64_t key_version;     /* Feast's entity_key_serialization_version: 2 or 3 (default) */
    double timeout;          /* seconds per fetch; default 0.1 */
    char *fallback;          /* if a fetch fails: "error" (default) or "missing" values */
    int64_t cache;           /* entities to cache; default 0: none */
    double cache_time;       /* seconds they stay cached; default 1 */
    by_record_list entities; /* by_feature_entity_config */
    by_record_list views;    /* by_feature_view_config */
    by_record_list columns;  /* by_feature_column_config */
} by_serve_features_config;

/* A server configuration. */
typedef struct by_serve_config {
    by_config *config;     /* the config that owns the fields; NULL in one that was not opened */
    by_record_list models; /* by_served_model_config; default: none */
    by_serve_gateway_config gateway;
    by_serve_worker_config worker;
    by_serve_scaling_config scaling;
    by_serve_broker_config broker;
    by_serve_log_config log;
    by_serve_limits_config limits;
    by_serve_cors_config cors;
    by_serve_payload_config payload;
    by_serve_feedback_config feedback;
    by_serve_webhooks_config webhooks;
    by_serve_tracing_config tracing;
    by_serve_features_config features;
} by_serve_config;

/* Reads a file (NULL: all defaults) and applies overrides. Returns BY_ECONFIG with file and line,
 * BY_EIO. */
BY_API by_status by_serve_config_open(by_serve_config **out, const char *path,
                                      const char *const *overrides, size_t count, by_error *error);
/* Reads a configuration from memory; `name` stands for the file in messages. */
BY_API by_status by_serve_config_parse(by_serve_config **out, const char *name, const char *text,
                                       size_t length, by_error *error);
/* Sets a key, such as "worker.threads", to what a flag says. The value is taken as it is, not as
 * YAML; `where` ("--threads") starts messages. Returns BY_ECONFIG if the key does not accept it,
 * BY_EARG if there is no such key. */
BY_API by_status by_serve_config_set(by_serve_config *config, const char *key, const char *value,
                                     const char *where, by_error *error);
BY_API void by_serve_config_close(by_serve_config **config);
/* Checks what single keys cannot: the file of keys is readable, limits are for keys it contains,
 * features refer to named views and entities, a public address has keys, there can be a worker, the
 * addresses of the broker and of the collector of traces are valid, and files can be created in the
 * directories. Returns BY_ECONFIG. by_worker_check (banyan/serve.h) checks models. */
BY_API by_status by_serve_config_check(const by_serve_config *config, by_error *error);
/* Generates docs/serve_config.md; free it with free(). */
BY_API by_status by_serve_config_reference(char **out, by_error *error);

#ifdef __cplusplus
}
#endif

#endif
