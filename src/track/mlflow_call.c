/* Requests to an MLflow server. */
#include "track/mlflow_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/wire/authorities.h"

enum { max_reply = 1 << 20 };
/* Seconds after which a server counts as unreachable: to connect, and for a whole request. */
enum { connect_seconds = 5, request_seconds = 30 };

by_status by__track_mlflow_no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: mlflow");
}

static size_t append_reply(char *data, size_t size, size_t n, void *user)
{
    by_string *reply = user;
    if (reply->length + size * n > max_reply) {
        return 0;
    }
    by_string_add(reply, data, size * n);
    return reply->failed ? 0 : size * n;
}

/* Sends the request, and looks ten times a second whether to stop. */
static CURLcode perform(by__track_mlflow *m)
{
    CURLcode result = CURLE_FAILED_INIT;
    int running = 1;
    int left;
    if (curl_multi_add_handle(m->multi, m->curl) != CURLM_OK) {
        return result;
    }
    while (running > 0 && curl_multi_perform(m->multi, &running) == CURLM_OK) {
        if (running > 0 && m->options->stop != NULL && m->options->stop(m->options->user)) {
            (void)snprintf(m->problem, sizeof m->problem, "no answer so far");
            result = CURLE_ABORTED_BY_CALLBACK;
            break;
        }
        if (running > 0) {
            (void)curl_multi_poll(m->multi, NULL, 0, 100, NULL);
        }
    }
    for (CURLMsg *message; (message = curl_multi_info_read(m->multi, &left)) != NULL;) {
        result = message->msg == CURLMSG_DONE ? message->data.result : result;
    }
    (void)curl_multi_remove_handle(m->multi, m->curl);
    return result;
}

/* Turns an error reply of the server into an error; its code ("RESOURCE_DOES_NOT_EXIST") goes to
 * `name`. */
static by_status refuse(const by__track_mlflow *m, long code, const json_t *reply, char name[64],
                        by_error *error)
{
    const char *word = json_string_value(json_object_get(reply, "error_code"));
    const char *message = json_string_value(json_object_get(reply, "message"));
    (void)snprintf(name, 64, "%s", word == NULL ? "" : word);
    return by_error_set(error, BY_EIO, "mlflow server %s: status %ld %s: %.200s", m->state.server,
                        code, name, message == NULL ? "" : message);
}

by_status by__track_mlflow_request(by__track_mlflow *m, const char *point, json_t **reply,
                                   char refusal[64], by_error *error)
{
    by_string url = {0};
    long code = 0;
    const char *server = m->state.server;
    refusal[0] = '\0';
    by_string_format(&url, "%s/api/2.0/mlflow/%s", server, point);
    if (url.failed || m->body.failed) {
        by_string_free(&url);
        return by__track_mlflow_no_memory(error);
    }
    m->reply.length = 0;
    m->problem[0] = '\0';
    (void)curl_easy_setopt(m->curl, CURLOPT_URL, url.data);
    if (m->body.length > 0) {
        (void)curl_easy_setopt(m->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)m->body.length);
        (void)curl_easy_setopt(m->curl, CURLOPT_POSTFIELDS, m->body.data);
    } else {
        (void)curl_easy_setopt(m->curl, CURLOPT_HTTPGET, 1L);
    }
    /* On a connection of before, libcurl would send a request again whose answer did not come. */
    (void)curl_easy_setopt(m->curl, CURLOPT_FRESH_CONNECT,
                           strcmp(point, "runs/create") == 0 ? 1L : 0L);
    CURLcode result = perform(m);
    by_string_free(&url);
    m->body.length = 0;
    if (result != CURLE_OK) {
        return by_error_set(error, BY_EIO, "mlflow server %s: %s", server,
                            m->problem[0] != '\0' ? m->problem : curl_easy_strerror(result));
    }
    (void)curl_easy_getinfo(m->curl, CURLINFO_RESPONSE_CODE, &code);
    json_t *root =
        m->reply.length == 0 ? NULL : by_json_load(m->reply.data, m->reply.length, 0, NULL);
    by_status status = BY_OK;
    if (code != 200) {
        status = refuse(m, code, root, refusal, error);
    } else if (!json_is_object(root)) { /* a proxy, or another service */
        status = by_error_set(error, BY_EIO, "mlflow server %s: its reply is not JSON", server);
    }
    if (status != BY_OK || reply == NULL) {
        json_decref(root);
        return status;
    }
    *reply = root;
    return BY_OK;
}

void by__track_mlflow_add_pair(by_string *out, const char *key, const char *value, size_t n)
{
    by__string_append(out, "{\"key\":");
    by_string_json(out, key, strlen(key));
    by__string_append(out, ",\"value\":");
    by_string_json(out, value, n);
    by__string_append(out, "}");
}

void by__track_mlflow_add_field(by_string *out, const char *key, const char *value)
{
    by_string_format(out, "%s\"%s\":", out->length == 0 ? "{" : ",", key);
    by_string_json(out, value, strlen(value));
}

static void set_secrets(by__track_mlflow *m)
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

void by__track_mlflow_prepare(by__track_mlflow *m)
{
    const char *authorities = by__authorities();
    (void)by__http_client_prepare(m->curl);
    if (authorities != NULL) {
        (void)curl_easy_setopt(m->curl, CURLOPT_CAINFO, authorities);
    }
    (void)curl_easy_setopt(m->curl, CURLOPT_CONNECTTIMEOUT, (long)connect_seconds);
    (void)curl_easy_setopt(m->curl, CURLOPT_TIMEOUT, (long)request_seconds);
    (void)curl_easy_setopt(m->curl, CURLOPT_HTTPHEADER, m->headers);
    (void)curl_easy_setopt(m->curl, CURLOPT_ERRORBUFFER, m->problem);
    (void)curl_easy_setopt(m->curl, CURLOPT_WRITEFUNCTION, append_reply);
    (void)curl_easy_setopt(m->curl, CURLOPT_WRITEDATA, &m->reply);
    set_secrets(m);
}

const char *by__track_mlflow_library(void)
{
    return curl_version_info(CURLVERSION_NOW)->version;
}
