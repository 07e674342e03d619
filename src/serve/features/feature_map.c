#include "serve/features/feature_map.h"

#include <stdlib.h>
#include <string.h>

#include "config/kind.h"

/* Position of a key in the file, as the start of a message. */
static const char *where(const by_serve_config *c, const char *key)
{
    return by__config_where(c->config, key, key);
}

/* ---- views ---- */

static const by_feature_entity_config *find_entity(const by_serve_features_config *f,
                                                   const char *name, size_t length)
{
    const by_feature_entity_config *rows = f->entities.items;
    for (size_t i = 0; i < f->entities.count; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const by__feature_feast_join_key *)a)->name,
                  ((const by__feature_feast_join_key *)b)->name);
}

/* Parses the join keys of a view: names separated by commas and blanks. */
static by_status read_keys(by__feature_view *view, const by_serve_config *c, const char *names,
                           by_error *error)
{
    const by_serve_features_config *f = &c->features;
    BY_TRY(by__alloc((void **)&view->keys, BY__FEATURE_MAX_KEYS, sizeof *view->keys, "join keys",
                     error));
    for (names += strspn(names, ", "); *names != '\0'; names += strspn(names, ", ")) {
        size_t length = strcspn(names, ", ");
        const by_feature_entity_config *entity = find_entity(f, names, length);
        if (entity == NULL) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: the view %s has the entity \"%.*s\", which features.entities "
                                "does not name",
                                where(c, "features.views"), view->name, (int)length, names);
        }
        for (size_t i = 0; i < view->key_count; i++) {
            if (view->keys[i].name == entity->name) {
                return by_error_set(error, BY_ECONFIG, "%s: the view %s has the entity %s twice",
                                    where(c, "features.views"), view->name, entity->name);
            }
        }
        if (view->key_count == BY__FEATURE_MAX_KEYS) {
            return by_error_set(error, BY_ECONFIG, "%s: the view %s has more than %d entities",
                                where(c, "features.views"), view->name, BY__FEATURE_MAX_KEYS);
        }
        by__feature_feast_join_key *key = &view->keys[view->key_count++];
        key->name = entity->name;
        if (!by__feature_feast_type_named(&key->type, entity->type)) {
            return by_error_set(error, BY_ECONFIG, "%s: \"%s\" is not an entity type",
                                where(c, "features.entities"), entity->type);
        }
        names += length;
    }
    if (view->key_count == 0) {
        return by_error_set(error, BY_ECONFIG, "%s: the view %s has no entity",
                            where(c, "features.views"), view->name);
    }
    qsort(view->keys, view->key_count, sizeof *view->keys, compare_keys);
    return BY_OK;
}

static size_t find_view(const by__feature_map *m, const char *name, size_t length)
{
    size_t i = 0;
    while (i < m->view_count &&
           (strlen(m->views[i].name) != length || memcmp(m->views[i].name, name, length) != 0)) {
        i++;
    }
    return i;
}

static by_status read_views(by__feature_map *m, const by_serve_config *c, by_error *error)
{
    const by_feature_view_config *rows = c->features.views.items;
    size_t count = c->features.views.count;
    const by_feature_entity_config *entities = c->features.entities.items;
    for (size_t i = 0; i < c->features.entities.count; i++) {
        if (find_entity(&c->features, entities[i].name, strlen(entities[i].name)) != &entities[i]) {
            return by_error_set(error, BY_ECONFIG, "%s: features.entities names %s twice",
                                where(c, "features.entities"), entities[i].name);
        }
    }
    BY_TRY(by__alloc((void **)&m->views, count + 1, sizeof *m->views, "feature views", error));
    for (size_t i = 0; i < count; i++) {
        if (find_view(m, rows[i].name, strlen(rows[i].name)) < m->view_count) {
            return by_error_set(error, BY_ECONFIG, "%s: features.views names %s twice",
                                where(c, "features.views"), rows[i].name);
        }
        by__feature_view *view = &m->views[m->view_count++];
        *view = (by__feature_view){.name = rows[i].name, .ttl = rows[i].ttl};
        BY_TRY(read_keys(view, c, rows[i].entities, error));
    }
    return BY_OK;
}

/* ---- columns ---- */

static double unit_named(const char *name)
{
    return strcmp(name, "ms") == 0   ? 1e3
           : strcmp(name, "us") == 0 ? 1e6
           : strcmp(name, "ns") == 0 ? 1e9
                                     : 1.0;
}

static bool is_twice(const by__feature_map *m, const by__feature_column *column)
{
    for (size_t i = 0; i < m->column_count; i++) {
        const by__feature_column *other = &m->columns[i];
        if (strcmp(other->column, column->column) == 0 &&
            (other->model[0] == '\0' || column->model[0] == '\0' ||
             strcmp(other->model, column->model) == 0)) {
            return true;
        }
    }
    return false;
}

static by_status read_columns(by__feature_map *m, const by_serve_config *c, by_error *error)
{
    const by_feature_column_config *rows = c->features.columns.items;
    size_t count = c->features.columns.count;
    const char *at = where(c, "features.columns");
    BY_TRY(by__alloc((void **)&m->columns, count + 1, sizeof *m->columns, "columns", error));
    for (size_t i = 0; i < count; i++) {
        const char *colon = strchr(rows[i].feature, ':');
        size_t length = colon == NULL ? 0 : (size_t)(colon - rows[i].feature);
        by__feature_column *column = &m->columns[m->column_count];
        *column = (by__feature_column){.column = rows[i].column,
                                       .model = rows[i].model,
                                       .otherwise = rows[i].otherwise,
                                       .required = rows[i].required != 0,
                                       .time_unit = unit_named(rows[i].time_unit)};
        if (length == 0 || colon[1] == '\0') {
            return by_error_set(error, BY_ECONFIG,
                                "%s: the feature \"%s\" of column %s is not VIEW:FEATURE", at,
                                rows[i].feature, rows[i].column);
        }
        column->feature = colon + 1;
        column->view = find_view(m, rows[i].feature, length);
        if (column->view == m->view_count) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: the feature %s is of a view that features.views does not name",
                                at, rows[i].feature);
        }
        if (is_twice(m, column)) {
            return by_error_set(error, BY_ECONFIG, "%s: features.columns names %s twice", at,
                                column->column);
        }
        if (column->required && column->otherwise[0] != '\0') {
            return by_error_set(error, BY_ECONFIG,
                                "%s: the column %s is required and has a default; give one of both",
                                at, column->column);
        }
        BY_TRY(by__feature_feast_field(column->field, m->views[column->view].name, column->feature,
                                       error));
        m->column_count++;
    }
    return BY_OK;
}

/* ---- the store ---- */

/* The password is read from a file: process lists show arguments, and configurations are read by
 * many. */
static by_status read_password(by__feature_map *m, const by_serve_config *c, by_error *error)
{
    static const char *const variables[] = {"BANYAN_FEATURES_PASSWORD", NULL};
    const char *at = where(c, "features.password_file");
    by__link_redis_address *a = &m->address;
    size_t length = strlen(c->features.password_file);
    by_error why = {0};
    if (length >= sizeof a->password_file) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: features.password_file has %zu bytes; %zu are possible", at,
                            length, sizeof a->password_file - 1);
    }
    memcpy(a->password_file, c->features.password_file, length + 1);
    return by__link_redis_address_login(a, variables, &why) == BY_OK
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "%s: features.password_file: %.300s", at,
                              why.message);
}

static by_status read_store(by__feature_map *m, const by_serve_config *c, by_error *error)
{
    const char *url = c->features.store;
    const char *at = where(c, "features.store");
    by_error why = {0};
    m->is_redis = by__link_redis_is_address(url);
    if (!m->is_redis) {
        return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0
                   ? BY_OK
                   : by_error_set(error, BY_ECONFIG,
                                  "%s: features.store must be redis://HOST[:PORT][/DATABASE] or "
                                  "http://HOST:PORT",
                                  at);
    }
    if (strchr(url, '?') != NULL) {
        return by_error_set(error, BY_ECONFIG, "%s: features.store takes no options (?...)", at);
    }
    if (by__link_redis_address_read(&m->address, url, &why) != BY_OK) {
        return by_error_set(error, BY_ECONFIG, "%s: features.store: %.300s", at, why.message);
    }
    const char *login = strrchr(url, '@');
    if (login != NULL &&
        memchr(url + strlen("redis://"), ':', (size_t)(login - url) - strlen("redis://")) != NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: features.store has a password: put it into "
                            "features.password_file or BANYAN_FEATURES_PASSWORD",
                            at);
    }
    return read_password(m, c, error);
}

by_status by__feature_map_open(by__feature_map **out, const by_serve_config *config,
                               by_error *error)
{
    by__feature_map *m;
    *out = NULL;
    if (config->features.store[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "features", error));
    m->config = &config->features;
    by_status status = read_store(m, config, error);
    if (status == BY_OK) {
        status = read_views(m, config, error);
    }
    if (status == BY_OK) {
        status = read_columns(m, config, error);
    }
    if (status != BY_OK) {
        by__feature_map_close(&m);
        return status;
    }
    *out = m;
    return BY_OK;
}

void by__feature_map_close(by__feature_map **map)
{
    by__feature_map *m = *map;
    *map = NULL;
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->view_count; i++) {
        free(m->views[i].keys);
    }
    free(m->views);
    free(m->columns);
    explicit_bzero(&m->address, sizeof m->address);
    free(m);
}
