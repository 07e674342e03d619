#include "track/mlflow_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "track/sinks/sink.h"

enum { most_reply = 1 << 20, window = 1 << 18 };
/* Seconds until a server counts as away: to connect, and for a whole request. */
enum { connect_seconds = 5, request_seconds = 30 };

struct by__mlflow {
    const by__mlflow_options *options;
    by__mlflow_state state;
    size_t skip; /* metrics of the line at state.offset that were sent */
    CURL *curl;
    struct curl_slist *headers;
    char *state_path;
    char *events_path;
    by__text reply;
    by__text body;
    char problem[CURL_ERROR_SIZE];
};

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: mlflow");
}

/* ---- requests ---- */

static size_t take_reply(char *data, size_t size, size_t n, void *user)
{
    by__text *reply = user;
    if (reply->length + size * n > most_reply) {
        return 0;
    }
    by__text_add_bytes(reply, data, size * n);
    return reply->failed ? 0 : size * n;
}

static int keep_waiting(void *user, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                        curl_off_t up)
{
    const by__mlflow *m = user;
    BY_UNUSED(down_all);
    BY_UNUSED(down);
    BY_UNUSED(up_all);
    BY_UNUSED(up);
    return m->options->stop != NULL && m->options->stop(m->options->user);
}

/* The code of an error of the server ("RESOURCE_DOES_NOT_EXIST") in `error`'s message. */
static by_status refuse(const by__mlflow *m, long code, const json_t *reply, char name[64],
                        by_error *error)
{
    const char *word = json_string_value(json_object_get(reply, "error_code"));
    const char *message = json_string_value(json_object_get(reply, "message"));
    (void)snprintf(name, 64, "%s", word == NULL ? "" : word);
    return by_error_set(error, BY_EIO, "mlflow server %s: status %ld %s: %.200s", m->state.server,
                        code, name, message == NULL ? "" : message);
}

/* Sends m->body (empty: a GET) to an end point; *reply (may be NULL) is the caller's. `refusal`
 * receives the server's error code. */
static by_status request(by__mlflow *m, const char *point, json_t **reply, char refusal[64],
                         by_error *error)
{
    by__text url = {0};
    long code = 0;
    const char *server = m->state.server;
    refusal[0] = '\0';
    by__text_format(&url, "%s/api/2.0/mlflow/%s", server, point);
    if (url.failed || m->body.failed) {
        by__text_free(&url);
        return no_memory(error);
    }
    m->reply.length = 0;
    m->problem[0] = '\0';
    (void)curl_easy_setopt(m->curl, CURLOPT_URL, url.data);
    /* The end of a run does not wait for a name server that does not answer. */
    (void)curl_easy_setopt(m->curl, CURLOPT_QUICK_EXIT, 1L);
    if (m->body.length > 0) {
        (void)curl_easy_setopt(m->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)m->body.length);
        (void)curl_easy_setopt(m->curl, CURLOPT_POSTFIELDS, m->body.data);
    } else {
        (void)curl_easy_setopt(m->curl, CURLOPT_HTTPGET, 1L);
    }
    CURLcode result = curl_easy_perform(m->curl);
    by__text_free(&url);
    m->body.length = 0;
    if (result != CURLE_OK) {
        return by_error_set(error, BY_EIO, "mlflow server %s: %s", server,
                            m->problem[0] != '\0' ? m->problem : curl_easy_strerror(result));
    }
    (void)curl_easy_getinfo(m->curl, CURLINFO_RESPONSE_CODE, &code);
    json_t *root =
        m->reply.length == 0 ? NULL : json_loadb(m->reply.data, m->reply.length, 0, NULL);
    by_status status = BY_OK;
    if (code != 200) {
        status = refuse(m, code, root, refusal, error);
    } else if (!json_is_object(root)) { /* a proxy, or another service */
        status = by_error_set(error, BY_EIO, "mlflow server %s: its reply is no JSON", server);
    }
    if (status != BY_OK || reply == NULL) {
        json_decref(root);
        return status;
    }
    *reply = root;
    return BY_OK;
}

static void add_pair(by__text *out, const char *key, const char *value, size_t n)
{
    by__text_add(out, "{\"key\":");
    by__text_json(out, key, strlen(key));
    by__text_add(out, ",\"value\":");
    by__text_json(out, value, n);
    by__text_add(out, "}");
}

static void add_field(by__text *out, const char *key, const char *value)
{
    by__text_format(out, "%s\"%s\":", out->length == 0 ? "{" : ",", key);
    by__text_json(out, value, strlen(value));
}

/* ---- files of the run ---- */

static by_status save_state(const by__mlflow *m, by_error *error)
{
    by__text text = {0};
    by__mlflow_state_print(&text, &m->state);
    by_status status = text.failed ? no_memory(error)
                                   : by__file_write(m->state_path, text.data, text.length, error);
    by__text_free(&text);
    return status;
}

static by_status read_inside(char **out, const by__mlflow *m, const char *name, by_error *error)
{
    size_t length;
    char *path = by__path_join(m->options->run, name);
    by_status status =
        path == NULL ? no_memory(error) : by__file_read(out, &length, path, 1 << 20, error);
    free(path);
    return status;
}

/* With and without a slash at the end an address is the same. */
static size_t address_length(const char *server)
{
    size_t n = strlen(server);
    while (n > 0 && server[n - 1] == '/') {
        n--;
    }
    return n;
}

static bool is_same_server(const char *a, const char *b)
{
    size_t n = address_length(a);
    return n == address_length(b) && memcmp(a, b, n) == 0;
}

static by_status set_server(by__mlflow *m, by_error *error)
{
    free(m->state.server);
    m->state.server = by__strndup(m->options->server, address_length(m->options->server));
    return m->state.server == NULL ? no_memory(error) : BY_OK;
}

static by_status load_state(by__mlflow *m, by_error *error)
{
    char *text;
    size_t length;
    struct stat info;
    if (!by__path_exists(m->state_path)) {
        return set_server(m, error);
    }
    BY_TRY(by__file_read(&text, &length, m->state_path, 1 << 16, error));
    by_status status = by__mlflow_state_parse(&m->state, m->state_path, text, length, error);
    free(text);
    if (status == BY_OK && !is_same_server(m->state.server, m->options->server)) {
        by__mlflow_state_free(&m->state); /* another server: all of it is news there */
    }
    status = status == BY_OK ? set_server(m, error) : status;
    /* A file that somebody has cut. */
    if (status == BY_OK && stat(m->events_path, &info) == 0 &&
        m->state.offset > (uint64_t)info.st_size) {
        m->state.offset = (uint64_t)info.st_size;
    }
    return status;
}

/* ---- the run on the server ---- */

static by_status take_text(char **out, const json_t *value, const by__mlflow *m, by_error *error)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        return by_error_set(error, BY_EIO, "mlflow server %s: its reply lacks an id",
                            m->state.server);
    }
    *out = by__strdup(text);
    return *out == NULL ? no_memory(error) : BY_OK;
}

/* One of several runs that begin at once makes the experiment. */
static by_status find_experiment(by__mlflow *m, by_error *error)
{
    char refusal[64];
    json_t *reply = NULL;
    by__text point = {0};
    char *name = curl_easy_escape(m->curl, m->options->project, 0);
    by__text_format(&point, "experiments/get-by-name?experiment_name=%s", name == NULL ? "" : name);
    curl_free(name);
    by_status status = point.failed ? no_memory(error) : BY_OK;
    for (int attempt = 0; status == BY_OK && attempt < 2; attempt++) {
        m->body.length = 0;
        status = request(m, point.data, &reply, refusal, error);
        if (status == BY_OK || strcmp(refusal, "RESOURCE_DOES_NOT_EXIST") != 0 || attempt == 1) {
            break;
        }
        add_field(&m->body, "name", m->options->project);
        by__text_add(&m->body, "}");
        status = request(m, "experiments/create", NULL, refusal, error);
        if (strcmp(refusal, "RESOURCE_ALREADY_EXISTS") == 0) {
            status = BY_OK;
        }
    }
    by__text_free(&point);
    if (status == BY_OK) {
        const json_t *found = json_object_get(reply, "experiment");
        status = take_text(&m->state.experiment, json_object_get(found, "experiment_id"), m, error);
        json_decref(reply);
    }
    return status;
}

static const char *run_name(const by__mlflow *m)
{
    const char *slash = strrchr(m->options->run, '/');
    return slash == NULL ? m->options->run : slash + 1;
}

/* Milliseconds since 1970 of "2026-01-31T23:59:59Z". */
static long long milliseconds(const char *utc)
{
    struct tm parts = {0};
    return strptime(utc, "%Y-%m-%dT%H:%M:%SZ", &parts) == NULL ? 0
                                                               : (long long)timegm(&parts) * 1000;
}

static by_status create_run(by__mlflow *m, by_error *error)
{
    char refusal[64];
    by_run_record record;
    json_t *reply;
    BY_TRY(by__run_read(&record, m->options->run, error));
    m->body.length = 0;
    add_field(&m->body, "experiment_id", m->state.experiment);
    add_field(&m->body, "run_name", run_name(m));
    by__text_format(&m->body, ",\"start_time\":%lld,\"tags\":[", milliseconds(record.started));
    add_pair(&m->body, "mlflow.source.name", "banyan", 6);
    by__text_add(&m->body, ",");
    add_pair(&m->body, "banyan.config_hash", record.config_hash, strlen(record.config_hash));
    by__text_add(&m->body, "]}");
    by__run_free(&record);
    BY_TRY(request(m, "runs/create", &reply, refusal, error));
    const json_t *info = json_object_get(json_object_get(reply, "run"), "info");
    by_status status = take_text(&m->state.run, json_object_get(info, "run_id"), m, error);
    json_decref(reply);
    return status;
}

typedef struct params {
    by__mlflow *mlflow;
    size_t count; /* in the body */
    by_status status;
    by_error *error;
} params;

static void begin_params(by__mlflow *m, const char *list)
{
    m->body.length = 0;
    add_field(&m->body, "run_id", m->state.run);
    by__text_format(&m->body, ",\"%s\":[", list);
}

static void send_params(params *p)
{
    char refusal[64];
    by__text_add(&p->mlflow->body, "]}");
    if (p->status == BY_OK && p->count > 0) {
        p->status = request(p->mlflow, "runs/log-batch", NULL, refusal, p->error);
    }
    p->count = 0;
}

/* Values of the config as the server takes them: text, 500 bytes at most. */
static void add_param(void *user, const char *key, const char *json)
{
    enum { most_value = 500 };
    params *p = user;
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    const char *text = json_is_string(value) ? json_string_value(value) : json;
    size_t n = strlen(text);
    while (n > most_value ||
           (n > 0 && n < strlen(text) && ((unsigned char)text[n] & 0xc0) == 0x80)) {
        n--;
    }
    if (p->count == BY__MLFLOW_PARAMS) {
        send_params(p);
        begin_params(p->mlflow, "params");
    }
    by__text_add(&p->mlflow->body, p->count == 0 ? "" : ",");
    add_pair(&p->mlflow->body, key, text, n);
    p->count++;
    json_decref(value);
}

/* The facts of environment.json that are single values, as tags. */
static by_status send_environment(by__mlflow *m, by_error *error)
{
    char *text = NULL;
    const char *key;
    json_t *value;
    params tags = {.mlflow = m, .error = error};
    BY_TRY(read_inside(&text, m, "environment.json", error));
    json_t *root = json_loads(text, 0, NULL);
    free(text);
    begin_params(m, "tags");
    json_object_foreach(root, key, value)
    {
        char number[40];
        char name[128];
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        (void)snprintf(name, sizeof name, "banyan.%s", key);
        const char *shown = json_is_integer(value) ? number : json_string_value(value);
        if (shown != NULL && tags.count < BY__MLFLOW_PARAMS) {
            by__text_add(&m->body, tags.count == 0 ? "" : ",");
            add_pair(&m->body, name, shown, strlen(shown));
            tags.count++;
        }
    }
    send_params(&tags);
    json_decref(root);
    return tags.status;
}

/* Makes the run on the server and says what it is; what was done is not done again. */
static by_status describe(by__mlflow *m, by_error *error)
{
    char *config = NULL;
    if (m->state.experiment == NULL || m->state.run == NULL) {
        free(m->state.experiment);
        m->state.experiment = NULL;
        BY_TRY(find_experiment(m, error));
        BY_TRY(create_run(m, error));
        BY_TRY(save_state(m, error));
    }
    if (m->state.is_described) {
        return BY_OK;
    }
    params p = {.mlflow = m, .error = error};
    BY_TRY(read_inside(&config, m, "config.yaml", error));
    begin_params(m, "params");
    by__config_items(config, add_param, &p);
    send_params(&p);
    free(config);
    BY_TRY(p.status);
    BY_TRY(send_environment(m, error));
    m->state.is_described = true;
    return save_state(m, error);
}

/* ---- batches ---- */

/* Reads the part of events.jsonl at the offset, from the beginning of a line; at least one whole
 * line where there is one. */
static by_status read_window(const by__mlflow *m, by__text *out, bool *more, by_error *error)
{
    int fd = open(m->events_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return by__io_error(error, "open", m->events_path);
    }
    by_status status = BY_OK;
    bool has_line = false;
    off_t at = (off_t)m->state.offset;
    char block[65536];
    ssize_t n = 1;
    while (n > 0 && (out->length < window || !has_line)) {
        n = pread(fd, block, sizeof block, at);
        if (n > 0) {
            by__text_add_bytes(out, block, (size_t)n);
            has_line = has_line || memchr(block, '\n', (size_t)n) != NULL;
            at += n;
        }
    }
    if (n < 0) {
        status = by__io_error(error, "read", m->events_path);
    } else if (out->failed) {
        status = no_memory(error);
    }
    *more = n > 0;
    (void)close(fd);
    return status;
}

uint64_t by__mlflow_waiting(const by__mlflow *m)
{
    struct stat info;
    bool known = stat(m->events_path, &info) == 0 && (uint64_t)info.st_size > m->state.offset;
    return known ? (uint64_t)info.st_size - m->state.offset : 0;
}

/* A run that had ended on the server, and has more to send, is running again. */
static by_status begin_again(by__mlflow *m, by_error *error)
{
    char refusal[64];
    if (!m->state.is_ended || by__mlflow_waiting(m) == 0) {
        return BY_OK;
    }
    m->body.length = 0;
    add_field(&m->body, "run_id", m->state.run);
    add_field(&m->body, "status", "RUNNING");
    by__text_add(&m->body, "}");
    BY_TRY(request(m, "runs/update", NULL, refusal, error));
    m->state.is_ended = false;
    return save_state(m, error);
}

by_status by__mlflow_send(by__mlflow *m, bool *more, by_error *error)
{
    char refusal[64];
    by__text text = {0};
    size_t used;
    size_t next;
    size_t count;
    *more = true;
    BY_TRY(describe(m, error));
    BY_TRY(begin_again(m, error));
    by_status status = read_window(m, &text, more, error);
    if (status == BY_OK) {
        m->body.length = 0;
        status = by__mlflow_batch(&m->body, m->state.run, m->events_path,
                                  text.data == NULL ? "" : text.data, text.length, m->skip, &used,
                                  &next, &count, error);
    }
    if (status == BY_OK && count > 0) {
        by__text_add(&m->body, "]}");
        status = request(m, "runs/log-batch", NULL, refusal, error);
    }
    if (status == BY_OK && text.length > 0) {
        m->skip = next;
        m->state.offset += used;
        *more = *more || memchr(text.data + used, '\n', text.length - used) != NULL;
        status = used > 0 ? save_state(m, error) : BY_OK;
    }
    by__text_free(&text);
    return status;
}

by_status by__mlflow_end(by__mlflow *m, by_error *error)
{
    static const char *const words[][2] = {{"done", "FINISHED"}, {"failed", "FAILED"}};
    char refusal[64];
    by_run_record record;
    const char *status = "KILLED";
    if (m->state.is_ended) {
        return BY_OK;
    }
    BY_TRY(by__run_read(&record, m->options->run, error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(words); i++) {
        status = strcmp(record.status, words[i][0]) == 0 ? words[i][1] : status;
    }
    m->body.length = 0;
    add_field(&m->body, "run_id", m->state.run);
    add_field(&m->body, "status", status);
    by__text_format(&m->body, ",\"end_time\":%lld}", milliseconds(record.updated));
    by__run_free(&record);
    BY_TRY(request(m, "runs/update", NULL, refusal, error));
    m->state.is_ended = true;
    return save_state(m, error);
}

by_status by__mlflow_rewind(const char *run, by_error *error)
{
    struct stat info;
    char *text = NULL;
    size_t length;
    const by__mlflow_options options = {.run = run};
    by__mlflow m = {.options = &options,
                    .state_path = by__path_join(run, "mlflow.json"),
                    .events_path = by__path_join(run, "events.jsonl")};
    by_status status = m.state_path == NULL || m.events_path == NULL ? no_memory(error) : BY_OK;
    uint64_t size = status == BY_OK && stat(m.events_path, &info) == 0 ? (uint64_t)info.st_size : 0;
    /* One that is damaged is for who sends to say. */
    bool is_there = status == BY_OK && by__path_exists(m.state_path) &&
                    by__file_read(&text, &length, m.state_path, 1 << 16, NULL) == BY_OK &&
                    by__mlflow_state_parse(&m.state, m.state_path, text, length, NULL) == BY_OK;
    if (is_there && m.state.offset > size) {
        m.state.offset = size;
        status = save_state(&m, error);
    }
    by__mlflow_state_free(&m.state);
    free(text);
    free(m.state_path);
    free(m.events_path);
    return status;
}

/* ---- opening ---- */

static void set_secrets(by__mlflow *m)
{
    const char *user = getenv("MLFLOW_TRACKING_USERNAME");
    const char *password = getenv("MLFLOW_TRACKING_PASSWORD");
    const char *token = getenv("MLFLOW_TRACKING_TOKEN");
    if (user != NULL) {
        (void)curl_easy_setopt(m->curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
        (void)curl_easy_setopt(m->curl, CURLOPT_USERNAME, user);
        (void)curl_easy_setopt(m->curl, CURLOPT_PASSWORD, password == NULL ? "" : password);
    } else if (token != NULL) {
        (void)curl_easy_setopt(m->curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        (void)curl_easy_setopt(m->curl, CURLOPT_XOAUTH2_BEARER, token);
    }
}

static by_status set_up(by__mlflow *m, by_error *error)
{
    m->state_path = by__path_join(m->options->run, "mlflow.json");
    m->events_path = by__path_join(m->options->run, "events.jsonl");
    m->curl = curl_easy_init();
    m->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (m->state_path == NULL || m->events_path == NULL || m->curl == NULL || m->headers == NULL) {
        return no_memory(error);
    }
    (void)curl_easy_setopt(m->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(m->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(m->curl, CURLOPT_CONNECTTIMEOUT, (long)connect_seconds);
    (void)curl_easy_setopt(m->curl, CURLOPT_TIMEOUT, (long)request_seconds);
    (void)curl_easy_setopt(m->curl, CURLOPT_HTTPHEADER, m->headers);
    (void)curl_easy_setopt(m->curl, CURLOPT_ERRORBUFFER, m->problem);
    (void)curl_easy_setopt(m->curl, CURLOPT_WRITEFUNCTION, take_reply);
    (void)curl_easy_setopt(m->curl, CURLOPT_WRITEDATA, &m->reply);
    (void)curl_easy_setopt(m->curl, CURLOPT_XFERINFOFUNCTION, keep_waiting);
    (void)curl_easy_setopt(m->curl, CURLOPT_XFERINFODATA, m);
    (void)curl_easy_setopt(m->curl, CURLOPT_NOPROGRESS, 0L);
    set_secrets(m);
    return load_state(m, error);
}

by_status by__mlflow_open(by__mlflow **out, const by__mlflow_options *options, by_error *error)
{
    by__mlflow *m;
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "mlflow", error));
    m->options = options;
    by_status status = set_up(m, error);
    if (status != BY_OK) {
        by__mlflow_close(&m);
        return status;
    }
    *out = m;
    return BY_OK;
}

void by__mlflow_close(by__mlflow **mlflow)
{
    by__mlflow *m = *mlflow;
    if (m == NULL) {
        return;
    }
    curl_easy_cleanup(m->curl);
    curl_slist_free_all(m->headers);
    by__mlflow_state_free(&m->state);
    by__text_free(&m->reply);
    by__text_free(&m->body);
    free(m->state_path);
    free(m->events_path);
    free(m);
    *mlflow = NULL;
}

/* ---- a run that is over ---- */

static bool stop_sync(void *user)
{
    const by_mlflow_sync_options *options = user;
    return options->stop != NULL && options->stop(options->user);
}

static by_status send_rest(by__mlflow *m, const by_mlflow_sync_options *options, by_error *error)
{
    bool more = true;
    while (more) {
        if (options->progress != NULL) {
            options->progress(options->user, by__mlflow_waiting(m));
        }
        by_status status = by__mlflow_send(m, &more, error);
        if (stop_sync((void *)(uintptr_t)options)) {
            return by_error_set(error, BY_ESTOPPED, "stopped; the rest can be sent later");
        }
        BY_TRY(status);
    }
    return by__mlflow_end(m, error);
}

by_status by_mlflow_sync(const by_mlflow_sync_options *options, by_error *error)
{
    by__mlflow *m;
    int lock;
    const by__mlflow_options own = {.run = options->run,
                                    .server = options->server,
                                    .project = options->project,
                                    .stop = stop_sync,
                                    .user = (void *)(uintptr_t)options};
    BY_TRY(by__mlflow_check(options->server, error));
    BY_TRY(by__run_lock(&lock, options->run, error));
    by_status status = by__mlflow_open(&m, &own, error);
    if (status == BY_OK) {
        status = send_rest(m, options, error);
        by__mlflow_close(&m);
    }
    by__run_unlock(&lock);
    return status;
}
