/* Interface to the source of features: a Redis that Feast has filled (feast_redis.c), or a `feast
 * serve` (feast_http.c). A store answers lookups on the gateway's loop and never blocks it. */
#ifndef BY_SERVE_FEATURES_FEATURE_STORE_H
#define BY_SERVE_FEATURES_FEATURE_STORE_H

#include "serve/features/feature_map.h"

typedef enum by__feature_outcome {
    BY__FEATURE_UNAVAILABLE, /* the store did not answer */
    BY__FEATURE_PRESENT,
    BY__FEATURE_NULL,
    BY__FEATURE_NOT_FOUND, /* the store has no such entity or feature */
    BY__FEATURE_STALE,     /* older than its view's ttl */
    BY__FEATURE_UNUSABLE   /* a value that a cell of the column cannot hold */
} by__feature_outcome;
#define BY__FEATURE_OUTCOMES 6

/* A store's answer for one column of one row. */
typedef struct by__feature_slot {
    by__feature_outcome outcome;
    json_t *value; /* if PRESENT: a number or a string */
    double time;   /* time of observation in seconds since 1970; 0: not known */
} by__feature_slot;

/* Bytes of a text of a feature, at most. */
#define BY__FEATURE_MAX_TEXT ((size_t)64 << 10)

typedef struct by__feature_lookup {
    const by__feature_map *map;
    const json_t *entities; /* a list of objects whose values have the declared types */
    const size_t *rows;     /* [row_count] indices into `entities` of the rows that are looked up */
    size_t row_count;
    const size_t *columns; /* [column_count] indices into the map */
    size_t column_count;
    by__feature_slot *slots; /* [rows of entities][column_count], filled by the store */
    /* Called once, never from within `ask`. failure: a sentence; NULL: the store has answered. */
    void (*done)(struct by__feature_lookup *lookup, const char *failure);
    void *own; /* owned by the store */
} by__feature_lookup;

/* What all stores have; each kind has a record of its own that begins with it. */
typedef struct by__feature_store {
    uv_loop_t *loop;
    const by__feature_map *map;
} by__feature_store;

typedef struct by__feature_store_form {
    by_status (*open)(by__feature_store **out, uv_loop_t *loop, const by__feature_map *map,
                      by_error *error);
    /* Starts a lookup. Returns false, with a sentence, if it was not started; `done` is then not
     * called. */
    bool (*ask)(by__feature_store *store, by__feature_lookup *lookup, by_error *error);
    /* Cancels a lookup: its `done` is not called any more. */
    void (*cancel)(by__feature_store *store, by__feature_lookup *lookup);
    /* Called when no lookup is in flight; the memory is freed once its handles are closed. */
    void (*close)(by__feature_store *store);
} by__feature_store_form;

extern const by__feature_store_form by__feature_feast_redis_form;
extern const by__feature_store_form by__feature_feast_http_form;

/* The slots of a row of `entities`. */
static inline by__feature_slot *by__feature_slots(const by__feature_lookup *lookup, size_t row)
{
    return lookup->slots + row * lookup->column_count;
}
/* Returns true if a column of the lookup belongs to the view. */
bool by__feature_uses(const by__feature_lookup *lookup, size_t view);
/* Stores a finite number or a string in a slot; any other value makes it UNUSABLE. Takes the value,
 * which may be NULL. */
void by__feature_put(by__feature_slot *slot, json_t *value, double time);
/* Stores a timestamp in seconds, converted to the unit of the column. */
void by__feature_put_time(by__feature_slot *slot, const by__feature_column *column, int64_t seconds,
                          double time);
/* Stores the value of an encoded feast.types.Value. */
void by__feature_put_message(by__feature_slot *slot, const by__feature_column *column,
                             const void *data, size_t size, double time);

#endif
