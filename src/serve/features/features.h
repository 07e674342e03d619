/* Features of entities, which a request names: fetched from a store, remembered for a while, and
 * put into rows as a client would send them. A fetch ends in time, whatever the store does, and
 * never holds up the loop. */
#ifndef BY_SERVE_FEATURES_H
#define BY_SERVE_FEATURES_H

#include "serve/features/feature_map.h"
#include "serve/observe/log.h"

typedef struct by__features by__features;
typedef struct by__feature_fetch by__feature_fetch;

/* Entities of a request, at most. */
#define BY__FEATURE_MOST_ROWS 1024

/* *out is NULL where the configuration has no store. The configuration and the log are borrowed. */
by_status by__features_open(by__features **out, uv_loop_t *loop, const by_serve_config *config,
                            const by__log *log, by_error *error);
/* All fetches have ended or are cancelled. Its handles close on the loop, which frees it. */
void by__features_close(by__features **features);

/* How a fetch has ended. */
typedef struct by__feature_result {
    json_t *rows; /* objects of cells by column, the caller's own; NULL: it failed */
    int status;   /* of HTTP, where it failed, with a code and a sentence for the client */
    const char *code;
    const char *message;
} by__feature_result;

typedef void by__feature_done(void *user, const by__feature_result *result);

typedef struct by__feature_request {
    const char *model;
    const json_t *entities; /* a list of objects: the value of each join key */
    const json_t *rows;    /* NULL, or an object for each entity with columns that the client gives,
                               which are not fetched */
    const json_t *columns; /* of the model: [{"name", "kind"}], as a worker tells them; NULL: not
                               known */
} by__feature_request;

/* Begins a fetch; `done` is called once, never from within, at latest when the timeout is over.
 * BY_EARG: a sentence for the client; *param is the field that it is about. `features` may be NULL:
 * that is such a sentence. */
by_status by__feature_fetch_begin(by__feature_fetch **out, by__features *features,
                                  const by__feature_request *request, by__feature_done *done,
                                  void *user, const char **param, by_error *error);
/* `done` is not called any more. */
void by__feature_fetch_cancel(by__feature_fetch *fetch);
/* Seconds since it began. */
double by__feature_fetch_since(const by__feature_fetch *fetch);

/* Counters and a histogram of it. features may be NULL. */
void by__features_print(const by__features *features, by__text *out);

#endif
