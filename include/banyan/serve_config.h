/* The configuration of a server: one YAML file, `base:` inheritance and `section.key=value`
 * overrides, as that of a run (banyan/config.h). docs/serve_config.md lists the keys. */
#ifndef BANYAN_SERVE_CONFIG_H
#define BANYAN_SERVE_CONFIG_H

#include <stdint.h>

#include "banyan/config.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_serve_gateway_config {
    char *listen;                    /* HOST:PORT or unix:PATH */
    char *keys;                      /* file of keys; "": none is asked for */
    int64_t insecure;                /* 1: addresses beyond this machine are served without keys */
    int64_t body;                    /* bytes of a request, at most */
    int64_t connections;             /* at most */
    int64_t connections_per_address; /* of a client, at most; 0: no limit */
    by_string_list proxies;          /* networks of proxies that say who the client is; "unix" */
    double deadline;                 /* seconds of a request */
    double drain;                    /* seconds for what was accepted, after SIGTERM */
    char *metrics_names;             /* of /metrics: "banyan" or "vllm" */
    int64_t page;                    /* 1: "/" is a page for browsers */
    double head_timeout;             /* seconds, as the next three */
    double body_timeout;
    double idle_timeout;
    double output_timeout;
    int64_t output;       /* bytes of a stream that are kept for a slow reader */
    int64_t output_total; /* of all streams */
} by_serve_gateway_config;

typedef struct by_serve_worker_config {
    char *model;   /* a run or a directory; "": the command line names it */
    char *name;    /* "": the last part of `model` */
    int64_t count; /* processes; with scaling.most at least, and 0 only then */
    char *precision;
    int64_t sessions; /* 0: the engine's own default; so with the next two */
    int64_t context;
    int64_t threads;
    int64_t nice;         /* 0 to 19; the gateway and the broker have 0 */
    int64_t drift_window; /* requests */
    int64_t sandbox;      /* 0: none */
    double max_rate;      /* requests a second that a worker begins; 0: as many as come */
    double grace;         /* seconds that a process has to end, after SIGTERM */
} by_serve_worker_config;

/* How many workers there are. */
typedef struct by_serve_scaling_config {
    int64_t most;      /* processes, by load; 0: worker.count, whatever the load is */
    double target_p95; /* seconds to the first text */
    double calm;       /* seconds before workers that are not needed go */
    double idle;       /* seconds without requests before the last one goes, where count is 0 */
} by_serve_scaling_config;

typedef struct by_serve_broker_config {
    char *address; /* "redis://HOST": Redis is the broker; "": one is started */
    int64_t queue; /* requests that wait, at most */
    double wait;   /* seconds that one may wait; 0: by the load */
    char *tasks;   /* file; "": DIR/tasks.sqlite */
} by_serve_broker_config;

/* What a key may use; 0: no limit. */
typedef struct by_limit_config {
    char *name; /* of keys in the file of keys; NULL in the limits of all others */
    int64_t requests_per_minute;
    int64_t tokens_per_minute;
    int64_t tokens_per_day;
} by_limit_config;

typedef struct by_serve_limits_config {
    int64_t requests_per_minute; /* of each key that `keys` does not name */
    int64_t tokens_per_minute;
    int64_t tokens_per_day;
    by_record_list keys; /* by_limit_config */
} by_serve_limits_config;

typedef struct by_serve_cors_config {
    by_string_list origins; /* "https://app.example.com", or "*" */
    int64_t max_age;        /* seconds that a browser may remember an answer */
} by_serve_cors_config;

/* Requests and answers that are kept. */
typedef struct by_serve_payload_config {
    char *directory;     /* "": none are */
    double fraction;     /* of requests */
    int64_t bytes;       /* of a file */
    int64_t files;       /* of which the newest are kept */
    by_string_list drop; /* fields that are left out */
    by_string_list hash; /* fields of which a hash is kept */
    int64_t redact;      /* 1: e-mail addresses and long numbers are taken out of texts */
} by_serve_payload_config;

typedef struct by_serve_feedback_config {
    char *directory; /* "": none is kept */
} by_serve_feedback_config;

/* Messages about the ends of tasks. */
typedef struct by_serve_webhooks_config {
    by_string_list origins; /* that URLs may have, "https://hooks.example.com"; none: no messages */
    by_string_list networks; /* that are not public and may be sent to, "10.0.0.0/8" */
    char *secret;            /* file of secrets that sign them */
    char *certificates;      /* file of authorities; "": the system's */
    int64_t attempts;        /* for a message */
    double pause;            /* seconds between the first two attempts */
    double timeout;          /* seconds of an attempt */
} by_serve_webhooks_config;

/* Spans for a collector of OpenTelemetry. */
typedef struct by_serve_tracing_config {
    char *endpoint;  /* URL; "": none are sent */
    char *service;   /* name of the server there */
    double fraction; /* of traces that begin here */
    int64_t queue;   /* spans that wait, at most */
} by_serve_tracing_config;

/* What an entity of the feature store is named by. */
typedef struct by_feature_entity_config {
    char *name; /* join key */
    char *type; /* int64, int32, string, bytes, unix_timestamp */
} by_feature_entity_config;

typedef struct by_feature_view_config {
    char *name;
    char *entities; /* names of its entities, with commas between them */
    double ttl;     /* seconds after which a feature counts as missing; 0: never */
} by_feature_view_config;

/* A column of a model that the store has. */
typedef struct by_feature_column_config {
    char *column;
    char *feature;    /* VIEW:FEATURE */
    char *model;      /* whose column it is; "": of every model that is asked */
    char *otherwise;  /* the cell where the store has no value; "": a missing one */
    int64_t required; /* 1: without a value the request is refused */
    char *time_unit;  /* s, ms, us, ns: of the numbers that a timestamp becomes */
} by_feature_column_config;

/* A Feast online store, from which features of entities are fetched. */
typedef struct by_serve_features_config {
    char *store;         /* redis://HOST[:PORT][/DATABASE] or http://HOST:PORT; "": there is none */
    char *password_file; /* "": the environment's BANYAN_FEATURES_PASSWORD, if any */
    char *project;       /* of Feast */
    int64_t key_version; /* Feast's entity_key_serialization_version */
    double timeout;      /* seconds of a fetch */
    char *fallback;      /* "missing" or "error": what a fetch that fails makes of a request */
    int64_t cache;       /* entities that are remembered; 0: none */
    double cache_time;   /* seconds for which they are */
    by_record_list entities; /* by_feature_entity_config */
    by_record_list views;    /* by_feature_view_config */
    by_record_list columns;  /* by_feature_column_config */
} by_serve_features_config;

typedef struct by_serve_config {
    by_config *config; /* whose keys the fields are; NULL in one that is not open */
    by_serve_gateway_config gateway;
    by_serve_worker_config worker;
    by_serve_scaling_config scaling;
    by_serve_broker_config broker;
    by_serve_limits_config limits;
    by_serve_cors_config cors;
    by_serve_payload_config payload;
    by_serve_feedback_config feedback;
    by_serve_webhooks_config webhooks;
    by_serve_tracing_config tracing;
    by_serve_features_config features;
} by_serve_config;

/* Reads a file (NULL: all keys have their defaults) and overrides. BY_ECONFIG with file and line.
 */
BY_API by_status by_serve_config_open(by_serve_config **out, const char *path,
                                      const char *const *overrides, size_t count, by_error *error);
/* Reads it from text; `name` stands for the file in messages. */
BY_API by_status by_serve_config_parse(by_serve_config **out, const char *name, const char *text,
                                       size_t length, by_error *error);
BY_API void by_serve_config_close(by_serve_config **config);
/* What the keys of one section cannot say alone: the file of keys can be read, limits are for keys
 * that it has, features are of views and entities that are named, a public address has keys, and
 * there can be a worker. */
BY_API by_status by_serve_config_check(const by_serve_config *config, by_error *error);
/* docs/serve_config.md. Freed with free(). */
BY_API by_status by_serve_config_reference(char **out, by_error *error);

#ifdef __cplusplus
}
#endif

#endif
