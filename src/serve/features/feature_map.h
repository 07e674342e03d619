/* Which columns of a model are features of a store, and of which entities: the section `features`
 * of a server's configuration, resolved and checked. */
#ifndef BY_SERVE_FEATURES_FEATURE_MAP_H
#define BY_SERVE_FEATURES_FEATURE_MAP_H

#include "banyan/serve_config.h"
#include "serve/features/feast_key.h"
#include "serve/link/core/redis_address.h"

/* Join keys of a view, at most. */
#define BY__FEATURE_MAX_KEYS 16

/* A feature view and its join keys. */
typedef struct by__feature_view {
    const char *name;
    by__feature_feast_join_key *keys; /* sorted by the bytes of their names, as Feast sorts them */
    size_t key_count;
    double ttl; /* seconds; 0: features never expire */
} by__feature_view;

typedef struct by__feature_column {
    const char *column;
    const char *model; /* the model it applies to; "": any */
    size_t view;
    const char *feature;
    const char *otherwise; /* cell used when there is no value; "": a missing one */
    bool required;
    double time_unit; /* units of the column in one second */
    uint8_t field[4]; /* the feature's field in a hash of Redis */
} by__feature_column;

typedef struct by__feature_map {
    const by_serve_features_config *config; /* borrowed, including all strings */
    by__feature_view *views;
    size_t view_count;
    by__feature_column *columns;
    size_t column_count;
    bool is_redis;
    by__link_redis_address address; /* of Redis, including its password */
} by__feature_map;

/* *out is NULL if the configuration has no store. BY_ECONFIG: a view or an entity is not defined,
 * or defined twice, the address is invalid, or the password file cannot be read. */
by_status by__feature_map_open(by__feature_map **out, const by_serve_config *config,
                               by_error *error);
void by__feature_map_close(by__feature_map **map);

#endif
