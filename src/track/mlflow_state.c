/* RUN/mlflow.json, and the conversion of events.jsonl to requests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "track/mlflow_client.h"

/* ---- mlflow.json ---- */

void by__track_mlflow_state_free(by__track_mlflow_state *state)
{
    free(state->server);
    free(state->experiment);
    free(state->run);
    free(state->key);
    *state = (by__track_mlflow_state){0};
}

void by__track_mlflow_state_print(by_string *out, const by__track_mlflow_state *state)
{
    const char *const keys[] = {"server", "experiment", "run", "key"};
    const char *const values[] = {state->server, state->experiment, state->run, state->key};
    by__string_append(out, "{\n");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        by_string_format(out, "  \"%s\": ", keys[i]);
        by_string_json(out, values[i] == NULL ? "" : values[i],
                       values[i] == NULL ? 0 : strlen(values[i]));
        by__string_append(out, ",\n");
    }
    by_string_format(out,
                     "  \"creations\": %lld,\n  \"offset\": %llu,\n  \"described\": %s,\n"
                     "  \"ended\": %s\n}\n",
                     (long long)state->creations, (unsigned long long)state->offset,
                     state->is_described ? "true" : "false", state->is_ended ? "true" : "false");
}

/* Copies a text; "" stands for none. */
static bool copy_text(char **out, const char *text)
{
    *out = text[0] == '\0' ? NULL : by__strdup(text);
    return text[0] == '\0' || *out != NULL;
}

static bool read_state(by__track_mlflow_state *state, const json_t *root)
{
    const char *server = json_string_value(json_object_get(root, "server"));
    const char *experiment = json_string_value(json_object_get(root, "experiment"));
    const char *run = json_string_value(json_object_get(root, "run"));
    const json_t *offset = json_object_get(root, "offset");
    const json_t *described = json_object_get(root, "described");
    const json_t *ended = json_object_get(root, "ended");
    if (server == NULL || experiment == NULL || run == NULL || !json_is_integer(offset) ||
        json_integer_value(offset) < 0 || !json_is_boolean(described) || !json_is_boolean(ended)) {
        return false;
    }
    /* Earlier versions had neither. */
    const char *key = json_string_value(json_object_get(root, "key"));
    json_int_t creations = json_integer_value(json_object_get(root, "creations"));
    state->creations = creations < 0 ? 0 : creations > 1000 ? 1000 : creations;
    state->offset = (uint64_t)json_integer_value(offset);
    state->is_described = json_is_true(described);
    state->is_ended = json_is_true(ended);
    return (state->server = by__strdup(server)) != NULL &&
           copy_text(&state->experiment, experiment) && copy_text(&state->run, run) &&
           copy_text(&state->key, key == NULL ? "" : key);
}

by_status by__track_mlflow_state_parse(by__track_mlflow_state *out, const char *path,
                                       const char *text, size_t length, by_error *error)
{
    by__track_mlflow_state state = {0};
    json_t *root = by_json_load(text, length, JSON_REJECT_DUPLICATES, NULL);
    bool is_good = root != NULL && read_state(&state, root);
    json_decref(root);
    if (!is_good) {
        by__track_mlflow_state_free(&state);
        return by_error_set(error, BY_EFORMAT,
                            "%s is damaged: remove it, and the whole run is sent again", path);
    }
    *out = state;
    return BY_OK;
}

double by__track_mlflow_patience(double seconds)
{
    return fmin(fmax(seconds, 1), 5);
}

by_status by__track_mlflow_check(const char *server, by_error *error)
{
    size_t scheme = strncmp(server, "http://", 7) == 0    ? 7
                    : strncmp(server, "https://", 8) == 0 ? 8
                                                          : 0;
    size_t host = scheme == 0 ? 0 : strcspn(server + scheme, "/");
    if (host == 0) {
        return by_error_set(error, BY_ECONFIG,
                            "track.mlflow: '%s' is not the URL of a server: write "
                            "http://127.0.0.1:5000",
                            server);
    }
    if (memchr(server + scheme, '@', host) != NULL) {
        return by_error_set(
            error, BY_ECONFIG,
            "track.mlflow: a config is stored and printed, so it must not contain a password: set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in the environment");
    }
    return BY_OK;
}

/* ---- metrics ---- */

/* Accepts numbers, and the strings that represent numbers which JSON cannot express. */
static bool read_number(char out[40], const json_t *value)
{
    static const char *const words[][2] = {
        {"nan", "\"NaN\""}, {"inf", "\"Infinity\""}, {"-inf", "\"-Infinity\""}};
    if (json_is_integer(value)) {
        (void)snprintf(out, 40, "%lld", (long long)json_integer_value(value));
        return true;
    }
    if (json_is_real(value)) {
        by__format_f64(out, json_real_value(value));
        return true;
    }
    const char *text = json_string_value(value);
    for (size_t i = 0; text != NULL && i < BY_ARRAY_LENGTH(words); i++) {
        if (strcmp(text, words[i][0]) == 0) {
            (void)snprintf(out, 40, "%s", words[i][1]);
            return true;
        }
    }
    return false;
}

/* Appends a name, replacing characters that the server refuses and limiting its length. */
static void add_name(by_string *out, const char *event, const char *key)
{
    char name[BY__MLFLOW_KEY + 1];
    (void)snprintf(name, sizeof name, "%s/%s", event, key);
    for (char *c = name; *c != '\0'; c++) {
        bool is_word = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                       (*c >= '0' && *c <= '9') || strchr("_-./ ", *c) != NULL;
        *c = is_word ? *c : '_';
    }
    by_string_json(out, name, strlen(name));
}

/* Adds the metrics of one event after the first `skip`, up to BY__MLFLOW_BATCH in all. *seen
 * receives the number of the event's metrics added or skipped. Returns false if there is no room
 * for the rest. */
static bool add_metrics(by_string *out, json_t *root, size_t skip, size_t *count, size_t *seen)
{
    const char *event = json_string_value(json_object_get(root, "event"));
    long long step = (long long)json_integer_value(json_object_get(root, "step"));
    double time = json_number_value(json_object_get(root, "time"));
    const char *key;
    json_t *value;
    *seen = 0;
    json_object_foreach(root, key, value)
    {
        char number[40];
        if (strcmp(key, "event") == 0 || strcmp(key, "step") == 0 || strcmp(key, "time") == 0 ||
            !read_number(number, value) || (*seen)++ < skip) {
            continue;
        }
        if (*count == BY__MLFLOW_BATCH) {
            (*seen)--;
            return false;
        }
        by_string_format(out, "%s{\"key\":", *count == 0 ? "" : ",");
        add_name(out, event == NULL ? "" : event, key);
        by_string_format(out, ",\"value\":%s,\"timestamp\":%lld,\"step\":%lld}", number,
                         (long long)llround(fmin(fmax(time, 0.0), 1e12) * 1000.0), step);
        (*count)++;
    }
    return true;
}

by_status by__track_mlflow_batch(by_string *out, const char *run, const char *path,
                                 const char *text, size_t length, size_t skip, size_t *used,
                                 size_t *next, size_t *count, by_error *error)
{
    *used = 0;
    *next = 0;
    *count = 0;
    by__string_append(out, "{\"run_id\":");
    by_string_json(out, run, strlen(run));
    by__string_append(out, ",\"metrics\":[");
    while (*used < length) {
        const char *line = text + *used;
        const char *end = memchr(line, '\n', length - *used);
        if (end == NULL) {
            break; /* the line is still being written */
        }
        json_t *root = by_json_load(line, (size_t)(end - line), 0, NULL);
        if (!json_is_object(root)) {
            json_decref(root);
            return by_error_set(error, BY_EFORMAT, "%s: a line is not an event: %.60s", path, line);
        }
        size_t seen;
        bool is_whole = add_metrics(out, root, skip, count, &seen);
        json_decref(root);
        if (!is_whole) {
            *next = seen;
            break;
        }
        skip = 0;
        *used = (size_t)(end + 1 - text);
    }
    return out->failed ? by_error_set(error, BY_EMEMORY, "out of memory: a batch of metrics")
                       : BY_OK;
}
