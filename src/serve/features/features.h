/* features: fetches the features of the entities that a request names: from a store or from the
 * cache, merged into rows as a client would send them. A fetch ends within its timeout, whatever
 * the store does, and never blocks the loop.
 *
 * Types: by__features, the configured store, the map of columns (feature_map.h) and the cache
 * (feature_cache.h); by__feature_fetch, a fetch in progress; by__feature_store (feature_store.h),
 * the interface to a Redis or a server of Feast.
 *
 * Who owns what: by__features owns the store and the cache and borrows configuration and log. A
 * fetch belongs to it and is freed when `done` was called or the fetch was cancelled.
 *
 * Never put here: HTTP of clients, the encoding of rows for a model. */
#ifndef BY_SERVE_FEATURES_FEATURES_H
#define BY_SERVE_FEATURES_FEATURES_H

#include "serve/features/feature_map.h"
#include "serve/telemetry/log.h"

typedef struct by__features by__features;
typedef struct by__feature_fetch by__feature_fetch;

/* Most entities in a request. */
#define BY__FEATURE_MAX_ROWS 1024

/* *out is NULL if the configuration has no store. The configuration and the log are borrowed. */
by_status by__features_open(by__features **out, uv_loop_t *loop, const by_serve_config *config,
                            const by__telemetry_log *log, by_error *error);
/* Called when all fetches have ended or are cancelled. The memory is freed once its handles are
 * closed. */
void by__features_close(by__features **features);

/* The outcome of a fetch. */
typedef struct by__feature_result {
    json_t *rows; /* objects of cells by column, owned by the caller; NULL: the fetch failed */
    int status;   /* HTTP status of a failure, with a code and a sentence for the client */
    const char *code;
    const char *message;
} by__feature_result;

typedef void by__feature_done(void *user, const by__feature_result *result);

typedef struct by__feature_request {
    const char *model;
    const json_t *entities; /* a list of objects: the value of each join key */
    /* NULL, or an object for each entity with columns that the client supplies, which are not
     * fetched */
    const json_t *rows;
    /* columns of the model: [{"name", "kind"}], as a worker reports them; NULL: not known */
    const json_t *columns;
} by__feature_request;

/* Starts a fetch; `done` is called once, never from within this call, at the latest when the
 * timeout has passed. BY_EARG: a sentence for the client; *param is the field that it is about.
 * `features` may be NULL: that is an error of this kind. */
by_status by__feature_fetch_begin(by__feature_fetch **out, by__features *features,
                                  const by__feature_request *request, by__feature_done *done,
                                  void *user, const char **param, by_error *error);
/* Cancels a fetch: `done` is not called any more. */
void by__feature_fetch_cancel(by__feature_fetch *fetch);
/* Seconds since the fetch started. */
double by__feature_fetch_since(const by__feature_fetch *fetch);

/* Prints the counters and the histogram of fetches for Prometheus. features may be NULL. */
void by__features_print(const by__features *features, by_string *out);

#endif
