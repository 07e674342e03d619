/* Where features come from: a Redis that Feast has filled (feast_redis.c), or a `feast serve`
 * (feast_http.c). A store answers lookups on the gateway's loop and never waits. */
#ifndef BY_SERVE_FEATURE_STORE_H
#define BY_SERVE_FEATURE_STORE_H

#include "serve/features/feature_map.h"

typedef enum by__feature_outcome {
    BY__FEATURE_UNAVAILABLE, /* the store has not said */
    BY__FEATURE_PRESENT,
    BY__FEATURE_NULL,
    BY__FEATURE_NOT_FOUND, /* it has no such entity or feature */
    BY__FEATURE_STALE,     /* older than its view's ttl */
    BY__FEATURE_UNUSABLE   /* a value that no cell of the column holds */
} by__feature_outcome;
#define BY__FEATURE_OUTCOMES 6

/* What a store has of one column of one row. */
typedef struct by__feature_slot {
    by__feature_outcome outcome;
    json_t *value; /* of PRESENT: a number or a text */
    double time;   /* when it was observed, in seconds since 1970; 0: not known */
} by__feature_slot;

/* Bytes of a text of a feature, at most. */
#define BY__FEATURE_MOST_TEXT ((size_t)64 << 10)

typedef struct by__feature_lookup {
    const by__feature_map *map;
    const json_t *entities; /* a list of objects, whose values are of their types */
    const size_t *rows;     /* [row_count], of `entities`, that are asked for */
    size_t row_count;
    const size_t *columns; /* [column_count], of the map */
    size_t column_count;
    by__feature_slot *slots; /* [rows of entities][column_count], which the store fills */
    /* Called once, never from within `ask`. failure: a sentence; NULL: the store has answered. */
    void (*done)(struct by__feature_lookup *lookup, const char *failure);
    void *own; /* the store's */
} by__feature_lookup;

typedef struct by__feature_store by__feature_store;

typedef struct by__feature_store_form {
    by_status (*open)(by__feature_store **out, uv_loop_t *loop, const by__feature_map *map,
                      by_error *error);
    /* False, with a sentence: nothing was asked, and `done` is not called. */
    bool (*ask)(by__feature_store *store, by__feature_lookup *lookup, by_error *error);
    /* `done` of a lookup that was asked is not called any more. */
    void (*forget)(by__feature_store *store, by__feature_lookup *lookup);
    /* No lookup is asked any more; the loop frees it when its handles are closed. */
    void (*close)(by__feature_store *store);
} by__feature_store_form;

extern const by__feature_store_form by__feast_redis_form;
extern const by__feature_store_form by__feast_http_form;

/* The places of a row of `entities`. */
static inline by__feature_slot *by__feature_slots(const by__feature_lookup *lookup, size_t row)
{
    return lookup->slots + row * lookup->column_count;
}
/* Whether a column of a lookup is of a view. */
bool by__feature_uses(const by__feature_lookup *lookup, size_t view);
/* Fills a place with a finite number or a text, else as UNUSABLE; takes the value, which may be
 * NULL. */
void by__feature_put(by__feature_slot *slot, json_t *value, double time);
/* The same of a timestamp of so many seconds, in the unit of the column. */
void by__feature_put_time(by__feature_slot *slot, const by__feature_column *column, int64_t seconds,
                          double time);
/* The same of a message feast.types.Value. */
void by__feature_put_message(by__feature_slot *slot, const by__feature_column *column,
                             const void *data, size_t size, double time);

#endif
