#include "serve/features/features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/table_cell.h"
#include "serve/features/feature_cache.h"
#include "serve/protocol/messages.h"
#include "serve/telemetry/metrics.h"

struct by__features {
    uv_loop_t *loop;
    const by__telemetry_log *log;
    by__feature_map *map;
    const by__feature_store_form *form;
    by__feature_store *store;
    by__feature_cache *cache;
    by__telemetry_histogram seconds; /* durations of fetches that asked the store */
    uint64_t outcomes[BY__FEATURE_OUTCOMES];
    uint64_t answered;
    uint64_t late;
    uint64_t failed;
    uint64_t hits; /* number of entities */
    uint64_t misses;
    bool down;     /* the last fetch failed, which was logged */
    char why[300]; /* with this reason */
};

struct by__feature_fetch {
    by__feature_lookup lookup; /* the part that stores see */
    uv_timer_t timer;
    by__features *features;
    json_t *entities;
    json_t *rows;    /* NULL: none */
    json_t *columns; /* of the model; NULL: not known */
    char *model;
    size_t *row_list;
    size_t *column_list;
    by__feature_done *done;
    void *user;
    double since;
    bool requested; /* the store has the lookup */
    char failure[300];
};

static void clear_slot(by__feature_slot *slot)
{
    json_decref(slot->value);
    *slot = (by__feature_slot){0};
}

/* ---- rows ---- */

static bool is_number_column(const json_t *columns, const char *name)
{
    size_t i;
    json_t *column;
    json_array_foreach(columns, i, column)
    {
        const char *of = by__protocol_get_text(column, "name");
        const char *kind = by__protocol_get_text(column, "kind");
        if (of != NULL && kind != NULL && strcmp(of, name) == 0) {
            return strcmp(kind, "number") == 0;
        }
    }
    return false;
}

/* Discards values that are too old, or a string for a numeric column. */
static void check_value(const by__feature_fetch *f, by__feature_slot *slot,
                        const by__feature_column *column, double now)
{
    double ttl = f->lookup.map->views[column->view].ttl;
    const char *text = json_string_value(slot->value);
    double number;
    if (slot->outcome != BY__FEATURE_PRESENT) {
        return;
    }
    if (ttl > 0.0 && now - slot->time > ttl) {
        slot->outcome = BY__FEATURE_STALE;
    } else if (text != NULL && is_number_column(f->columns, column->column) &&
               !by__table_cell_missing(text, strlen(text)) &&
               !by__table_cell_number(text, strlen(text), '.', &number)) {
        slot->outcome = BY__FEATURE_UNUSABLE;
    }
}

static const char *const outcome_names[BY__FEATURE_OUTCOMES] = {
    "unavailable", "present", "null", "not_found", "outside_max_age", "unusable"};

/* Fills the cells of one row. Returns false if a required value is missing; `message` says
 * which. */
static bool fill_row(by__feature_fetch *f, json_t *row, size_t i, double now,
                     by__feature_outcome *why, char *message, size_t size)
{
    const by__feature_map *map = f->lookup.map;
    by__feature_slot *slots = by__feature_slots(&f->lookup, i);
    for (size_t c = 0; c < f->lookup.column_count; c++) {
        const by__feature_column *column = &map->columns[f->lookup.columns[c]];
        by__feature_slot *slot = &slots[c];
        json_t *cell = NULL;
        if (json_object_get(row, column->column) != NULL) {
            continue;
        }
        check_value(f, slot, column, now);
        f->features->outcomes[slot->outcome]++;
        if (slot->outcome == BY__FEATURE_PRESENT) {
            cell = json_incref(slot->value);
        } else if (column->required) {
            *why = slot->outcome;
            (void)snprintf(message, size, "entity %zu: the feature %.80s:%.80s is required: %s", i,
                           map->views[column->view].name, column->feature,
                           outcome_names[slot->outcome]);
            return false;
        } else if (column->otherwise[0] != '\0') {
            cell = json_string(column->otherwise);
        } else {
            cell = json_null();
        }
        if (json_object_set_new(row, column->column, cell) != 0) {
            return false;
        }
    }
    return true;
}

static void report_rows(by__feature_fetch *f)
{
    char message[300];
    double now = by__serve_wall_clock();
    by__feature_outcome why = BY__FEATURE_PRESENT;
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(f->entities); i++) {
        const json_t *given = json_array_get(f->rows, i);
        json_t *row = given == NULL ? json_object() : by__protocol_copy_object(given);
        (void)snprintf(message, sizeof message, "no memory for the features of a request");
        why = BY__FEATURE_UNAVAILABLE;
        if (json_array_append_new(rows, row) != 0 ||
            !fill_row(f, row, i, now, &why, message, sizeof message)) {
            bool theirs = why != BY__FEATURE_UNAVAILABLE;
            f->done(f->user, &(by__feature_result){.status = theirs ? 422 : 503,
                                                   .code = theirs ? "feature_missing"
                                                                  : "features_unavailable",
                                                   .message = message});
            json_decref(rows);
            return;
        }
    }
    f->done(f->user, &(by__feature_result){.rows = rows});
}

/* ---- end of a fetch ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void free_fetch(by__feature_fetch *f)
{
    size_t count = json_array_size(f->entities) * f->lookup.column_count;
    for (size_t i = 0; i < count && f->lookup.slots != NULL; i++) {
        json_decref(f->lookup.slots[i].value);
    }
    json_decref(f->entities);
    json_decref(f->rows);
    json_decref(f->columns);
    free(f->lookup.slots);
    free(f->row_list);
    free(f->column_list);
    free(f->model);
    uv_close((uv_handle_t *)&f->timer, on_timer_closed);
}

/* Logs when a store fails, when the reason changes, and when it recovers, but not every fetch. */
static void note(by__features *s, const char *failure)
{
    if (failure != NULL && (!s->down || strncmp(s->why, failure, sizeof s->why - 1) != 0)) {
        by__telemetry_log_event(s->log, "features_unavailable", "{ss}", "reason", failure);
    } else if (failure == NULL && s->down) {
        by__telemetry_log_event(s->log, "features_available", NULL);
    }
    s->down = failure != NULL;
    (void)snprintf(s->why, sizeof s->why, "%s", failure == NULL ? "" : failure);
}

static char *print_name(const by__feature_fetch *f, size_t row)
{
    by_string text = {0};
    by_string_json(&text, f->model, strlen(f->model));
    by__json_write(&text, json_array_get(f->entities, row), JSON_COMPACT | JSON_SORT_KEYS);
    if (text.failed) {
        by_string_free(&text);
    }
    return text.data;
}

static void cache_rows(by__feature_fetch *f)
{
    for (size_t i = 0; i < f->lookup.row_count && f->features->cache != NULL; i++) {
        size_t row = f->lookup.rows[i];
        char *name = print_name(f, row);
        if (name != NULL) {
            by__feature_cache_put(f->features->cache, name, by__feature_slots(&f->lookup, row),
                                  f->lookup.column_count);
        }
        free(name);
    }
}

static void finish(by__feature_fetch *f, const char *failure)
{
    by__features *s = f->features;
    f->requested = false;
    if (f->lookup.row_count > 0) {
        by__telemetry_histogram_add(&s->seconds, by__now() - f->since);
        note(s, failure);
        s->answered += failure == NULL;
    }
    if (failure == NULL) {
        cache_rows(f);
    }
    if (failure != NULL && strcmp(s->map->config->fallback, "error") == 0) {
        /* The reason names hosts and is only logged. */
        s->outcomes[BY__FEATURE_UNAVAILABLE] += f->lookup.row_count * f->lookup.column_count;
        f->done(f->user, &(by__feature_result){
                             .status = 503,
                             .code = "features_unavailable",
                             .message = "the features cannot be fetched now; try again later"});
    } else {
        for (size_t i = 0; i < f->lookup.row_count && failure != NULL; i++) {
            by__feature_slot *slots = by__feature_slots(&f->lookup, f->lookup.rows[i]);
            for (size_t c = 0; c < f->lookup.column_count; c++) {
                clear_slot(&slots[c]); /* from a partial answer */
            }
        }
        report_rows(f);
    }
    free_fetch(f);
}

static void on_done(by__feature_lookup *lookup, const char *failure)
{
    by__feature_fetch *f = (by__feature_fetch *)(void *)lookup;
    f->features->failed += failure != NULL;
    finish(f, failure);
}

static void on_time(uv_timer_t *timer)
{
    by__feature_fetch *f = timer->data;
    by__features *s = f->features;
    char failure[64];
    if (f->requested) {
        s->form->cancel(s->store, &f->lookup);
        s->late++;
        (void)snprintf(failure, sizeof failure, "no answer within %.3g s", s->map->config->timeout);
        finish(f, failure);
    } else {
        s->failed += f->failure[0] != '\0';
        finish(f, f->failure[0] == '\0' ? NULL : f->failure);
    }
}

void by__feature_fetch_cancel(by__feature_fetch *fetch)
{
    if (fetch->requested) {
        fetch->features->form->cancel(fetch->features->store, &fetch->lookup);
    }
    free_fetch(fetch);
}

double by__feature_fetch_since(const by__feature_fetch *fetch)
{
    return fetch->since;
}

/* ---- start of a fetch ---- */

static bool belongs(const by__feature_column *column, const char *model)
{
    return column->model[0] == '\0' || strcmp(column->model, model) == 0;
}

/* Returns true if a view in use has this join key; lists the join keys in use, for a message. */
static bool is_join_key(const by__feature_lookup *lookup, const char *name, const char **names,
                        size_t *count, size_t most)
{
    *count = 0;
    for (size_t v = 0; v < lookup->map->view_count; v++) {
        const by__feature_view *view = &lookup->map->views[v];
        for (size_t k = 0; k < view->key_count && by__feature_uses(lookup, v); k++) {
            if (strcmp(view->keys[k].name, name) == 0) {
                return true;
            }
            if (*count < most) {
                names[(*count)++] = view->keys[k].name;
            }
        }
    }
    return false;
}

/* Checks that an entity has a value of the right type for every join key, and nothing else. */
static by_status check_entity(const by__feature_lookup *lookup, size_t row, by_error *error)
{
    const json_t *entity = json_array_get(lookup->entities, row);
    const char *names[BY__FEATURE_MAX_KEYS];
    const char *name;
    json_t *value;
    size_t count;
    if (!json_is_object(entity)) {
        return by_error_set(error, BY_EARG, "entity %zu must be an object of join keys", row);
    }
    json_object_foreach((json_t *)(uintptr_t)entity, name, value)
    {
        if (!is_join_key(lookup, name, names, &count, BY_ARRAY_LENGTH(names))) {
            const char *near = strlen(name) < 64 ? by_nearest_name(name, names, count) : NULL;
            return by_error_set(error, BY_EARG,
                                "entity %zu: the features have no join key '%.64s'%s%s%s", row,
                                name, near == NULL ? "" : "; did you mean '",
                                near == NULL ? "" : near, near == NULL ? "" : "'?");
        }
    }
    for (size_t v = 0; v < lookup->map->view_count; v++) {
        const by__feature_view *view = &lookup->map->views[v];
        const json_t *values[BY__FEATURE_MAX_KEYS];
        by_string key = {0};
        by_error why = {0};
        if (!by__feature_uses(lookup, v)) {
            continue;
        }
        for (size_t k = 0; k < view->key_count; k++) {
            values[k] = json_object_get(entity, view->keys[k].name);
        }
        by_status status = by__feature_feast_key(&key, view->keys, values, view->key_count,
                                                 (int)lookup->map->config->key_version, "", &why);
        by_string_free(&key);
        if (status != BY_OK) {
            return by_error_set(error, status, "entity %zu: %.300s", row, why.message);
        }
    }
    return BY_OK;
}

static by_status check_lists(const by__feature_request *r, const char **param, by_error *error)
{
    size_t count = json_array_size(r->entities);
    *param = "entities";
    if (count < 1 || count > BY__FEATURE_MAX_ROWS) {
        return by_error_set(error, BY_EARG, "'entities' must be a list of 1 to %d objects",
                            BY__FEATURE_MAX_ROWS);
    }
    *param = "rows";
    if (r->rows != NULL && json_array_size(r->rows) != count) {
        return by_error_set(error, BY_EARG, "'rows' has %zu rows and 'entities' %zu",
                            json_array_size(r->rows), count);
    }
    for (size_t i = 0; i < count && r->rows != NULL; i++) {
        if (!json_is_object(json_array_get(r->rows, i))) {
            return by_error_set(error, BY_EARG,
                                "row %zu must be an object: beside 'entities' cells have names", i);
        }
    }
    *param = "entities";
    return BY_OK;
}

static by_status fill_lookup(by__feature_fetch *f, const by__feature_request *r, by_error *error)
{
    by__feature_lookup *l = &f->lookup;
    size_t rows = json_array_size(r->entities);
    size_t slots;
    l->map = f->features->map;
    l->done = on_done;
    l->entities = f->entities;
    BY_TRY(by__alloc((void **)&f->column_list, l->map->column_count + 1, sizeof *f->column_list,
                     "a lookup", error));
    BY_TRY(by__alloc((void **)&f->row_list, rows, sizeof *f->row_list, "a lookup", error));
    for (size_t c = 0; c < l->map->column_count; c++) {
        if (belongs(&l->map->columns[c], r->model)) {
            f->column_list[l->column_count++] = c;
        }
    }
    l->columns = f->column_list;
    l->rows = f->row_list;
    if (l->column_count == 0) {
        return by_error_set(error, BY_EARG,
                            "the configuration of the server has no features of this model");
    }
    if (!by__size_mul(rows, l->column_count, &slots)) {
        return by_error_set(error, BY_EARG, "%zu entities are too many", rows);
    }
    BY_TRY(by__alloc((void **)&l->slots, slots, sizeof *l->slots, "a lookup", error));
    for (size_t i = 0; i < rows; i++) {
        BY_TRY(check_entity(l, i, error));
    }
    return BY_OK;
}

/* Fills rows that are cached, which need not be requested. */
static void read_cache(by__feature_fetch *f)
{
    by__features *s = f->features;
    by__feature_lookup *l = &f->lookup;
    for (size_t i = 0; i < json_array_size(f->entities); i++) {
        char *name = s->cache == NULL ? NULL : print_name(f, i);
        bool found = name != NULL && by__feature_cache_find(s->cache, name, by__feature_slots(l, i),
                                                            l->column_count);
        free(name);
        s->hits += found;
        s->misses += s->cache != NULL && !found;
        if (!found) {
            f->row_list[l->row_count++] = i;
        }
    }
}

static void ask(by__feature_fetch *f)
{
    by__features *s = f->features;
    by_error why = {0};
    read_cache(f);
    if (f->lookup.row_count > 0) {
        f->requested = s->form->ask(s->store, &f->lookup, &why);
    }
    if (!f->requested && f->lookup.row_count > 0) {
        (void)snprintf(f->failure, sizeof f->failure, "%.290s", why.message);
    }
    uv_update_time(s->loop);
    (void)uv_timer_start(&f->timer, on_time,
                         f->requested ? (uint64_t)ceil(s->map->config->timeout * 1e3) : 0, 0);
}

by_status by__feature_fetch_begin(by__feature_fetch **out, by__features *features,
                                  const by__feature_request *request, by__feature_done *done,
                                  void *user, const char **param, by_error *error)
{
    by__feature_fetch *f;
    const by__feature_request *r = request;
    *param = "entities";
    if (features == NULL) {
        return by_error_set(error, BY_EARG,
                            "this server fetches no features: its configuration has no "
                            "features.store");
    }
    BY_TRY(check_lists(r, param, error));
    BY_TRY(by__alloc((void **)&f, 1, sizeof *f, "a lookup", error));
    *f = (by__feature_fetch){.features = features,
                             .entities = json_incref((json_t *)(uintptr_t)r->entities),
                             .rows = json_incref((json_t *)(uintptr_t)r->rows),
                             .columns = json_incref((json_t *)(uintptr_t)r->columns),
                             .model = by__strdup(r->model),
                             .done = done,
                             .user = user,
                             .since = by__now()};
    (void)uv_timer_init(features->loop, &f->timer);
    f->timer.data = f;
    by_status status = f->model == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a lookup")
                                        : fill_lookup(f, r, error);
    if (status != BY_OK) {
        free_fetch(f);
        return status;
    }
    ask(f);
    *out = f;
    return BY_OK;
}

/* ---- all ---- */

by_status by__features_open(by__features **out, uv_loop_t *loop, const by_serve_config *config,
                            const by__telemetry_log *log, by_error *error)
{
    by__features *s;
    by__feature_map *map;
    *out = NULL;
    BY_TRY(by__feature_map_open(&map, config, error));
    if (map == NULL) {
        return BY_OK;
    }
    by_status status = by__alloc((void **)&s, 1, sizeof *s, "features", error);
    if (status != BY_OK) {
        by__feature_map_close(&map);
        return status;
    }
    *s = (by__features){.loop = loop,
                        .log = log,
                        .map = map,
                        .form = map->is_redis ? &by__feature_feast_redis_form
                                              : &by__feature_feast_http_form};
    status = by__feature_cache_open(&s->cache, (size_t)map->config->cache, map->config->cache_time,
                                    error);
    if (status == BY_OK) {
        status = s->form->open(&s->store, loop, map, error);
    }
    if (status != BY_OK) {
        by__features_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by__features_close(by__features **features)
{
    by__features *s = *features;
    *features = NULL;
    if (s != NULL) {
        if (s->store != NULL) {
            s->form->close(s->store);
        }
        by__feature_cache_close(&s->cache);
        by__feature_map_close(&s->map);
        free(s);
    }
}

void by__features_print(const by__features *features, by_string *out)
{
    const by__features *s = features;
    if (s == NULL) {
        return;
    }
    by__telemetry_metrics_histogram(out, "banyan_feature_fetch_seconds",
                                    "From a request's entities to their features.", &s->seconds);
    by__telemetry_metrics_family(out, "banyan_feature_fetches_total",
                                 "Fetches from the store, by their end.", "counter");
    by__telemetry_metrics_sample(out, "banyan_feature_fetches_total", "result=\"answered\"",
                                 (double)s->answered);
    by__telemetry_metrics_sample(out, "banyan_feature_fetches_total", "result=\"timeout\"",
                                 (double)s->late);
    by__telemetry_metrics_sample(out, "banyan_feature_fetches_total", "result=\"failed\"",
                                 (double)s->failed);
    by__telemetry_metrics_family(out, "banyan_feature_values_total",
                                 "Values of features in requests, by what the store had.",
                                 "counter");
    for (size_t i = 0; i < BY__FEATURE_OUTCOMES; i++) {
        char label[64];
        (void)snprintf(label, sizeof label, "outcome=\"%s\"", outcome_names[i]);
        by__telemetry_metrics_sample(out, "banyan_feature_values_total", label,
                                     (double)s->outcomes[i]);
    }
    by__telemetry_metrics_family(out, "banyan_feature_cache_total",
                                 "Entities that were looked up in the cache.", "counter");
    by__telemetry_metrics_sample(out, "banyan_feature_cache_total", "result=\"hit\"",
                                 (double)s->hits);
    by__telemetry_metrics_sample(out, "banyan_feature_cache_total", "result=\"miss\"",
                                 (double)s->misses);
}
