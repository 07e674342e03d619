/* Creates a run on an MLflow server: its experiment, parameters and tags. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/json.h"
#include "track/mlflow_call.h"
#include "track/sinks/sink.h"

static by_status read_inside(char **out, const by__track_mlflow *m, const char *name,
                             by_error *error)
{
    size_t length;
    char *path = by__path_join(m->options->run, name);
    by_status status = path == NULL ? by__track_mlflow_no_memory(error)
                                    : by__file_read(out, &length, path, 1 << 20, error);
    free(path);
    return status;
}

static by_status copy_text(char **out, const json_t *value, const by__track_mlflow *m,
                           by_error *error)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        return by_error_set(error, BY_EIO, "mlflow server %s: its reply lacks an id",
                            m->state.server);
    }
    *out = by__strdup(text);
    return *out == NULL ? by__track_mlflow_no_memory(error) : BY_OK;
}

/* Finds the experiment or creates it; of several runs that start at once, one succeeds. */
static by_status find_experiment(by__track_mlflow *m, by_error *error)
{
    char refusal[64];
    json_t *reply = NULL;
    by_string point = {0};
    char *name = curl_easy_escape(m->curl, m->options->project, 0);
    by_string_format(&point, "experiments/get-by-name?experiment_name=%s",
                     name == NULL ? "" : name);
    curl_free(name);
    by_status status = point.failed ? by__track_mlflow_no_memory(error) : BY_OK;
    for (int attempt = 0; status == BY_OK && attempt < 2; attempt++) {
        m->body.length = 0;
        status = by__track_mlflow_request(m, point.data, &reply, refusal, error);
        if (status == BY_OK || strcmp(refusal, "RESOURCE_DOES_NOT_EXIST") != 0 || attempt == 1) {
            break;
        }
        by__track_mlflow_add_field(&m->body, "name", m->options->project);
        by__string_append(&m->body, "}");
        status = by__track_mlflow_request(m, "experiments/create", NULL, refusal, error);
        if (strcmp(refusal, "RESOURCE_ALREADY_EXISTS") == 0) {
            status = BY_OK;
        }
    }
    by_string_free(&point);
    if (status == BY_OK) {
        const json_t *found = json_object_get(reply, "experiment");
        status = copy_text(&m->state.experiment, json_object_get(found, "experiment_id"), m, error);
        json_decref(reply);
    }
    return status;
}

static const char *run_name(const by__track_mlflow *m)
{
    const char *slash = strrchr(m->options->run, '/');
    return slash == NULL ? m->options->run : slash + 1;
}

long long by__track_mlflow_milliseconds(const char *utc)
{
    struct tm parts = {0};
    return strptime(utc, "%Y-%m-%dT%H:%M:%SZ", &parts) == NULL ? 0
                                                               : (long long)timegm(&parts) * 1000;
}

/* A tag that the run has on the server, and no other run. */
#define KEY_TAG "banyan.run"

static by_status make_key(by__track_mlflow *m, by_error *error)
{
    unsigned char random[16];
    by_string text = {0};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return by_error_set(error, BY_EIO, "no random numbers");
    }
    for (size_t i = 0; i < sizeof random; i++) {
        by_string_format(&text, "%02x", random[i]);
    }
    return by__string_release(&text, &m->state.key, error);
}

/* Asks for the runs on the server with the key of this one. The caller owns *reply. */
static by_status search(by__track_mlflow *m, json_t **reply, by_error *error)
{
    char refusal[64];
    m->body.length = 0;
    by__string_append(&m->body, "{\"experiment_ids\":[");
    by_string_json(&m->body, m->state.experiment, strlen(m->state.experiment));
    by_string_format(&m->body, "],\"filter\":\"tags.`" KEY_TAG "` = '%s'\",\"max_results\":100}",
                     m->state.key);
    return by__track_mlflow_request(m, "runs/search", reply, refusal, error);
}

static const json_t *id_of(const json_t *run)
{
    return json_object_get(json_object_get(run, "info"), "run_id");
}

/* Takes a run that the server created, although its ID did not arrive. */
static by_status resume_run(by__track_mlflow *m, by_error *error)
{
    json_t *reply;
    BY_TRY(search(m, &reply, error));
    const json_t *run = json_array_get(json_object_get(reply, "runs"), 0);
    by_status status = run == NULL ? BY_OK : copy_text(&m->state.run, id_of(run), m, error);
    json_decref(reply);
    return status;
}

by_status by__track_mlflow_sweep(by__track_mlflow *m, by_error *error)
{
    char refusal[64];
    json_t *reply;
    json_t *run;
    size_t i;
    if (m->state.creations < 2) {
        return BY_OK;
    }
    BY_TRY(search(m, &reply, error));
    by_status status = BY_OK;
    json_array_foreach(json_object_get(reply, "runs"), i, run)
    {
        const char *id = json_string_value(id_of(run));
        if (status == BY_OK && id != NULL && strcmp(id, m->state.run) != 0) {
            m->body.length = 0;
            by__track_mlflow_add_field(&m->body, "run_id", id);
            by__string_append(&m->body, "}");
            status = by__track_mlflow_request(m, "runs/delete", NULL, refusal, error);
        }
    }
    json_decref(reply);
    return status;
}

static by_status create_run(by__track_mlflow *m, by_error *error)
{
    char refusal[64];
    by_run_record record;
    json_t *reply;
    BY_TRY(by__track_run_read(&record, m->options->run, error));
    m->body.length = 0;
    by__track_mlflow_add_field(&m->body, "experiment_id", m->state.experiment);
    by__track_mlflow_add_field(&m->body, "run_name", run_name(m));
    by_string_format(&m->body, ",\"start_time\":%lld,\"tags\":[",
                     by__track_mlflow_milliseconds(record.started));
    by__track_mlflow_add_pair(&m->body, "mlflow.source.name", "banyan", 6);
    by__string_append(&m->body, ",");
    by__track_mlflow_add_pair(&m->body, KEY_TAG, m->state.key, strlen(m->state.key));
    by__string_append(&m->body, ",");
    by__track_mlflow_add_pair(&m->body, "banyan.config_hash", record.config_hash,
                              strlen(record.config_hash));
    by__string_append(&m->body, "]}");
    by__track_run_free(&record);
    BY_TRY(by__track_mlflow_request(m, "runs/create", &reply, refusal, error));
    const json_t *info = json_object_get(json_object_get(reply, "run"), "info");
    by_status status = copy_text(&m->state.run, json_object_get(info, "run_id"), m, error);
    json_decref(reply);
    return status;
}

typedef struct params {
    by__track_mlflow *mlflow;
    size_t count; /* number of parameters in the body */
    by_status status;
    by_error *error;
} params;

static void begin_params(by__track_mlflow *m, const char *list)
{
    m->body.length = 0;
    by__track_mlflow_add_field(&m->body, "run_id", m->state.run);
    by_string_format(&m->body, ",\"%s\":[", list);
}

static void send_params(params *p)
{
    char refusal[64];
    by__string_append(&p->mlflow->body, "]}");
    if (p->status == BY_OK && p->count > 0) {
        p->status = by__track_mlflow_request(p->mlflow, "runs/log-batch", NULL, refusal, p->error);
    }
    p->count = 0;
}

/* Adds a value of the config in the server's format: text of at most 500 bytes. */
static void add_param(void *user, const char *key, const char *json)
{
    enum { max_value = 500 };
    params *p = user;
    json_t *value = by__json_read(json, JSON_DECODE_ANY, NULL);
    const char *text = json_is_string(value) ? json_string_value(value) : json;
    size_t n = strlen(text);
    while (n > max_value ||
           (n > 0 && n < strlen(text) && ((unsigned char)text[n] & 0xc0) == 0x80)) {
        n--;
    }
    if (p->count == BY__MLFLOW_PARAMS) {
        send_params(p);
        begin_params(p->mlflow, "params");
    }
    by__string_append(&p->mlflow->body, p->count == 0 ? "" : ",");
    by__track_mlflow_add_pair(&p->mlflow->body, key, text, n);
    p->count++;
    json_decref(value);
}

/* Sends the facts of environment.json that are single values as tags. */
static by_status send_environment(by__track_mlflow *m, by_error *error)
{
    char *text = NULL;
    const char *key;
    json_t *value;
    params tags = {.mlflow = m, .error = error};
    BY_TRY(read_inside(&text, m, "environment.json", error));
    json_t *root = by__json_read(text, 0, NULL);
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
            by__string_append(&m->body, tags.count == 0 ? "" : ",");
            by__track_mlflow_add_pair(&m->body, name, shown, strlen(shown));
            tags.count++;
        }
    }
    send_params(&tags);
    json_decref(root);
    return tags.status;
}

by_status by__track_mlflow_describe(by__track_mlflow *m, by_error *error)
{
    char *config = NULL;
    if (m->state.experiment == NULL || m->state.run == NULL) {
        free(m->state.experiment);
        m->state.experiment = NULL;
        BY_TRY(find_experiment(m, error));
        BY_TRY(m->state.key == NULL ? make_key(m, error) : BY_OK);
        BY_TRY(m->state.creations > 0 ? resume_run(m, error) : BY_OK);
        if (m->state.run == NULL) {
            m->state.creations++; /* on disk before the server knows of it */
            BY_TRY(by__track_mlflow_save(m, error));
            BY_TRY(create_run(m, error));
        }
        BY_TRY(by__track_mlflow_save(m, error));
    }
    if (m->state.is_described) {
        return BY_OK;
    }
    params p = {.mlflow = m, .error = error};
    BY_TRY(read_inside(&config, m, "config.yaml", error));
    begin_params(m, "params");
    by__track_config_items(config, add_param, &p);
    send_params(&p);
    free(config);
    BY_TRY(p.status);
    BY_TRY(send_environment(m, error));
    m->state.is_described = true;
    return by__track_mlflow_save(m, error);
}
