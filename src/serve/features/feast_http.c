/* Feature store that queries a running `feast serve`: POST /get-online-features, whose answer has a
 * list for each feature. libcurl's multi interface runs on the gateway's loop
 * (https://curl.se/libcurl/c/libcurl-multi.html). */
#include <curl/curl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/wire/authorities.h"
#include "base/wire/http_client.h"
#include "serve/features/feature_store.h"

/* Most bytes of an answer, and most connections. */
#define MAX_ANSWER      ((size_t)16 << 20)
#define MAX_CONNECTIONS 64L

typedef struct http_store {
    by__feature_store base;
    CURLM *multi;
    uv_timer_t timer; /* timer requested by libcurl */
    struct curl_slist *headers;
    by_string url;
} http_store;

/* A lookup in flight. */
typedef struct feast_transfer {
    http_store *store;
    by__feature_lookup *lookup;
    CURL *curl;
    char *request;
    by_string answer;
    char why[CURL_ERROR_SIZE];
} feast_transfer;

/* A socket of libcurl that is polled. */
typedef struct watched_socket {
    uv_poll_t poll;
    http_store *store;
    curl_socket_t socket;
} watched_socket;

static void free_transfer(feast_transfer *t)
{
    if (t->curl != NULL) {
        (void)curl_multi_remove_handle(t->store->multi, t->curl);
        curl_easy_cleanup(t->curl);
    }
    by_string_free(&t->answer);
    free(t->request);
    free(t);
}

/* ---- the answer ---- */

/* Parses "2026-01-31T10:20:30.25Z" to seconds since 1970; 0: malformed. */
static double time_of(const char *text)
{
    struct tm tm = {0};
    char *end = text == NULL ? NULL : strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    double fraction = 0.0;
    if (end == NULL) {
        return 0.0;
    }
    if (*end == '.') {
        fraction = strtod(end, &end);
    }
    time_t seconds = timegm(&tm);
    return strcmp(end, "Z") == 0 || strcmp(end, "+00:00") == 0 ? (double)seconds + fraction : 0.0;
}

static void put_value(by__feature_slot *slot, const json_t *value, const char *status,
                      const char *time)
{
    status = status == NULL ? "" : status;
    if (strcmp(status, "OUTSIDE_MAX_AGE") == 0) {
        slot->outcome = BY__FEATURE_STALE;
    } else if (strcmp(status, "NOT_FOUND") == 0) {
        slot->outcome = BY__FEATURE_NOT_FOUND;
    } else if (value == NULL || json_is_null(value)) {
        slot->outcome = BY__FEATURE_NULL;
    } else if (json_is_boolean(value)) {
        by__feature_put(slot, json_integer(json_is_true(value)), time_of(time));
    } else {
        by__feature_put(slot, json_incref((json_t *)(uintptr_t)value), time_of(time));
    }
}

/* Index of a feature in the answer, where it is named VIEW__FEATURE; the number of names if it is
 * missing. */
static size_t find_name(const json_t *names, const by__feature_map *map,
                        const by__feature_column *column)
{
    const char *view = map->views[column->view].name;
    size_t length = strlen(view);
    size_t i = 0;
    for (; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name != NULL && strncmp(name, view, length) == 0 &&
            strncmp(name + length, "__", 2) == 0 &&
            strcmp(name + length + 2, column->feature) == 0) {
            break;
        }
    }
    return i;
}

static bool read_answer(const by__feature_lookup *lookup, const json_t *answer)
{
    const json_t *names = json_object_get(json_object_get(answer, "metadata"), "feature_names");
    const json_t *results = json_object_get(answer, "results");
    if (!json_is_array(names) || json_array_size(names) != json_array_size(results)) {
        return false;
    }
    for (size_t c = 0; c < lookup->column_count; c++) {
        const by__feature_column *column = &lookup->map->columns[lookup->columns[c]];
        const json_t *result = json_array_get(results, find_name(names, lookup->map, column));
        const json_t *values = json_object_get(result, "values");
        const json_t *statuses = json_object_get(result, "statuses");
        const json_t *times = json_object_get(result, "event_timestamps");
        if (json_array_size(values) != lookup->row_count) {
            return false;
        }
        for (size_t i = 0; i < lookup->row_count; i++) {
            by__feature_slot *slot = &by__feature_slots(lookup, lookup->rows[i])[c];
            const json_t *value = json_array_get(values, i);
            put_value(slot, value, json_string_value(json_array_get(statuses, i)),
                      json_string_value(json_array_get(times, i)));
            if (slot->outcome == BY__FEATURE_PRESENT && json_is_integer(slot->value) &&
                column->time_unit != 1.0) {
                json_int_t seconds = json_integer_value(slot->value);
                json_decref(slot->value);
                by__feature_put_time(slot, column, (int64_t)seconds, slot->time);
            }
        }
    }
    return true;
}

static void end(feast_transfer *t, CURLcode result)
{
    by__feature_lookup *lookup = t->lookup;
    long code = 0;
    char failure[CURL_ERROR_SIZE + 64] = "";
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (result != CURLE_OK) {
        (void)snprintf(failure, sizeof failure, "feast serve: %.200s",
                       t->why[0] != '\0' ? t->why : curl_easy_strerror(result));
    } else if (code != 200) {
        (void)snprintf(failure, sizeof failure, "feast serve answers with status %ld", code);
    } else {
        json_t *answer = by_json_load(t->answer.data == NULL ? "" : t->answer.data,
                                      t->answer.length, JSON_REJECT_DUPLICATES, NULL);
        if (!read_answer(lookup, answer)) {
            (void)snprintf(failure, sizeof failure, "feast serve does not answer what was asked");
        }
        json_decref(answer);
    }
    free_transfer(t);
    lookup->done(lookup, failure[0] == '\0' ? NULL : failure);
}

/* ---- libcurl on the loop ---- */

static void collect_finished(http_store *s)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(s->multi, &left)) != NULL) {
        void *t = NULL;
        if (message->msg == CURLMSG_DONE) {
            CURLcode result = message->data.result;
            (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            end(t, result);
        }
    }
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    const watched_socket *w = poll->data;
    http_store *s = w->store;
    int flags = (status < 0 ? CURL_CSELECT_ERR : 0) |
                ((events & UV_READABLE) != 0 ? CURL_CSELECT_IN : 0) |
                ((events & UV_WRITABLE) != 0 ? CURL_CSELECT_OUT : 0);
    int running;
    (void)curl_multi_socket_action(s->multi, w->socket, flags, &running);
    collect_finished(s);
}

static void on_timer(uv_timer_t *timer)
{
    http_store *s = timer->data;
    int running;
    (void)curl_multi_socket_action(s->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect_finished(s);
}

static int set_timer(CURLM *multi, long milliseconds, void *user)
{
    http_store *s = user;
    BY_UNUSED(multi);
    if (milliseconds < 0) {
        (void)uv_timer_stop(&s->timer);
    } else {
        uv_update_time(s->base.loop);
        (void)uv_timer_start(&s->timer, on_timer, (uint64_t)milliseconds, 0);
    }
    return 0;
}

static void on_watch_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static int set_socket(CURL *curl, curl_socket_t socket, int what, void *user, void *own)
{
    http_store *s = user;
    watched_socket *w = own;
    BY_UNUSED(curl);
    if (what == CURL_POLL_REMOVE) {
        if (w != NULL) {
            (void)curl_multi_assign(s->multi, socket, NULL);
            uv_close((uv_handle_t *)&w->poll, on_watch_closed);
        }
        return 0;
    }
    if (w == NULL) {
        w = calloc(1, sizeof *w);
        if (w == NULL || uv_poll_init_socket(s->base.loop, &w->poll, socket) < 0) {
            free(w);
            return -1;
        }
        w->poll.data = w;
        w->store = s;
        w->socket = socket;
        (void)curl_multi_assign(s->multi, socket, w);
    }
    int events = ((what & CURL_POLL_IN) != 0 ? UV_READABLE : 0) |
                 ((what & CURL_POLL_OUT) != 0 ? UV_WRITABLE : 0);
    return uv_poll_start(&w->poll, events, on_socket) < 0 ? -1 : 0;
}

/* ---- requests ---- */

static char *print_request(const by__feature_lookup *lookup)
{
    const by__feature_map *map = lookup->map;
    json_t *features = json_array();
    json_t *entities = json_object();
    for (size_t c = 0; c < lookup->column_count; c++) {
        const by__feature_column *column = &map->columns[lookup->columns[c]];
        json_t *name = json_sprintf("%s:%s", map->views[column->view].name, column->feature);
        (void)json_array_append_new(features, name);
    }
    for (size_t v = 0; v < map->view_count; v++) {
        const by__feature_view *view = &map->views[v];
        for (size_t k = 0; k < view->key_count && by__feature_uses(lookup, v); k++) {
            json_t *values = json_array();
            for (size_t i = 0; i < lookup->row_count; i++) {
                const json_t *entity = json_array_get(lookup->entities, lookup->rows[i]);
                (void)json_array_append(values, json_object_get(entity, view->keys[k].name));
            }
            (void)json_object_set_new(entities, view->keys[k].name, values);
        }
    }
    json_t *request = json_pack("{so so sb}", "features", features, "entities", entities,
                                "full_feature_names", 1);
    char *text =
        request == NULL ? NULL : by__json_dump(request, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(request);
    return text;
}

static size_t receive_bytes(char *data, size_t size, size_t count, void *user)
{
    feast_transfer *t = user;
    size_t bytes = size * count;
    if (t->answer.length + bytes > MAX_ANSWER) {
        return 0;
    }
    by_string_add(&t->answer, data, bytes);
    return t->answer.failed ? 0 : bytes;
}

static bool set_up(feast_transfer *t)
{
    const http_store *s = t->store;
    long timeout = (long)ceil(s->base.map->config->timeout * 1e3);
    const char *authorities = by__authorities();
    CURL *c = t->curl;
    return c != NULL && t->request != NULL && by__http_client_prepare(c) &&
           curl_easy_setopt(c, CURLOPT_URL, s->url.data) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HTTPHEADER, s->headers) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_POSTFIELDS, t->request) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, timeout) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, receive_bytes) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEDATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->why) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PRIVATE, t) == CURLE_OK &&
           (authorities == NULL || curl_easy_setopt(c, CURLOPT_CAINFO, authorities) == CURLE_OK) &&
           curl_multi_add_handle(s->multi, c) == CURLM_OK;
}

static bool ask(by__feature_store *store, by__feature_lookup *lookup, by_error *error)
{
    http_store *s = (http_store *)store;
    feast_transfer *t;
    if (by__alloc((void **)&t, 1, sizeof *t, "a lookup", error) != BY_OK) {
        return false;
    }
    *t = (feast_transfer){.store = s, .lookup = lookup, .curl = curl_easy_init()};
    t->request = print_request(lookup);
    if (!set_up(t)) {
        free_transfer(t);
        (void)by_error_set(error, BY_EMEMORY, "a request to feast serve cannot be made");
        return false;
    }
    lookup->own = t;
    return true;
}

static void cancel_lookup(by__feature_store *store, by__feature_lookup *lookup)
{
    BY_UNUSED(store);
    free_transfer(lookup->own);
}

static void on_timer_closed(uv_handle_t *handle)
{
    http_store *s = handle->data;
    curl_slist_free_all(s->headers);
    by_string_free(&s->url);
    free(s);
}

static void close_store(by__feature_store *store)
{
    http_store *s = (http_store *)store;
    (void)curl_multi_cleanup(s->multi); /* closes its sockets, which are no longer polled */
    (void)uv_timer_stop(&s->timer);
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

static by_status open_store(by__feature_store **out, uv_loop_t *loop, const by__feature_map *map,
                            by_error *error)
{
    http_store *s;
    const char *url = map->config->store;
    size_t length = strlen(url);
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a store of features", error));
    s->base.loop = loop;
    s->base.map = map;
    s->multi = curl_multi_init();
    s->headers = curl_slist_append(NULL, "Content-Type: application/json");
    by_string_add(&s->url, url, length - (url[length - 1] == '/'));
    by__string_append(&s->url, "/get-online-features");
    if (s->multi == NULL || s->headers == NULL || s->url.failed ||
        curl_multi_setopt(s->multi, CURLMOPT_SOCKETFUNCTION, set_socket) != CURLM_OK ||
        curl_multi_setopt(s->multi, CURLMOPT_SOCKETDATA, s) != CURLM_OK ||
        curl_multi_setopt(s->multi, CURLMOPT_TIMERFUNCTION, set_timer) != CURLM_OK ||
        curl_multi_setopt(s->multi, CURLMOPT_TIMERDATA, s) != CURLM_OK ||
        curl_multi_setopt(s->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, MAX_CONNECTIONS) != CURLM_OK) {
        (void)curl_multi_cleanup(s->multi);
        curl_slist_free_all(s->headers);
        by_string_free(&s->url);
        free(s);
        return by_error_set(error, BY_EMEMORY, "out of memory: a store of features");
    }
    (void)uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    *out = &s->base;
    return BY_OK;
}

const by__feature_store_form by__feature_feast_http_form = {
    .open = open_store, .ask = ask, .cancel = cancel_lookup, .close = close_store};
