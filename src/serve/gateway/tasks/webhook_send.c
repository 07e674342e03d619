#include "serve/gateway/tasks/webhook_send.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire/authorities.h"
#include "base/wire/http_client.h"

/* status 410: the receiver wants no more messages */
#define STATUS_GONE 410
/* Longest time in milliseconds that the thread waits. */
#define POLL_MS 1000

/* A message in the thread. */
typedef struct webhook_transfer {
    by__gateway_webhook_message *message;
    const by__gateway_webhook_rules *rules;
    CURL *curl;
    struct curl_slist *headers;
    size_t answered; /* bytes of the answer */
    bool forbidden;  /* an address was refused */
    bool allowed;    /* another one was not */
    struct webhook_transfer *next;
} webhook_transfer;

struct by__gateway_webhook_sender {
    const by__gateway_webhook_rules *rules;
    const by_serve_webhooks_config *config;
    void (*ended)(void *user, by__gateway_webhook_message *message);
    void *user;
    uv_thread_t thread;
    uv_async_t async;
    CURLM *multi;
    uv_mutex_t mutex; /* protects the following members */
    by__gateway_webhook_message *coming;
    by__gateway_webhook_message *disconnected;
    bool closing;
    /* Used by the thread only: */
    webhook_transfer *transfers;
};

void by__gateway_webhook_message_free(by__gateway_webhook_message *message)
{
    if (message != NULL) {
        free(message->url);
        free(message->body);
        free(message);
    }
}

static void free_list(by__gateway_webhook_message *list)
{
    while (list != NULL) {
        by__gateway_webhook_message *next = list->next;
        by__gateway_webhook_message_free(list);
        list = next;
    }
}

/* ---- callbacks of libcurl ---- */

/* The final check, on the address of the connection, however its name was resolved. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    webhook_transfer *t = user;
    if (purpose != CURLSOCKTYPE_IPCXN ||
        !by__gateway_webhook_check_address(t->rules, &address->addr)) {
        t->forbidden = true;
        return CURL_SOCKET_BAD;
    }
    t->allowed = true;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Discards the head and body of the answer; returning 0 ends the transfer. */
static size_t discard_answer(char *data, size_t size, size_t count, void *user)
{
    webhook_transfer *t = user;
    BY_UNUSED(data);
    t->answered += size * count;
    return t->answered > BY__WEBHOOK_ANSWER ? 0 : size * count;
}

/* ---- one message ---- */

static void add_header(webhook_transfer *t, const char *name, const char *value, bool *good)
{
    by_string line = {0};
    by_string_format(&line, "%s: %s", name, value);
    struct curl_slist *list = line.failed ? NULL : curl_slist_append(t->headers, line.data);
    *good = *good && list != NULL;
    t->headers = list != NULL ? list : t->headers;
    by_string_free(&line);
}

static bool add_headers(webhook_transfer *t)
{
    const by__gateway_webhook_message *m = t->message;
    int64_t now = (int64_t)by__serve_wall_clock();
    by_string signature = {0};
    char text[24];
    bool good = true;
    (void)snprintf(text, sizeof text, "%lld", (long long)now);
    by__gateway_webhook_sign(t->rules, m->id, now, m->body, strlen(m->body), &signature);
    good = !signature.failed;
    add_header(t, "Content-Type", "application/json", &good);
    add_header(t, "User-Agent", "banyan/" BY_VERSION, &good);
    add_header(t, "webhook-id", m->id, &good);
    add_header(t, "webhook-timestamp", text, &good);
    add_header(t, "webhook-signature", signature.failed ? "" : signature.data, &good);
    by_string_free(&signature);
    return good;
}

static bool set_up(const by__gateway_webhook_sender *s, webhook_transfer *t)
{
    CURL *c = t->curl;
    by__gateway_webhook_message *m = t->message;
    long milliseconds = (long)(s->config->timeout * 1e3);
    const char *authorities =
        s->config->certificates[0] != '\0' ? s->config->certificates : by__authorities();
    return c != NULL && add_headers(t) && by__http_client_prepare(c) &&
           curl_easy_setopt(c, CURLOPT_URL, m->url) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, milliseconds) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, discard_answer) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEDATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, discard_answer) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HEADERDATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_POST, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(m->body)) ==
               CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_POSTFIELDS, m->body) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_ERRORBUFFER, m->reason) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PRIVATE, t) == CURLE_OK &&
           (authorities == NULL || curl_easy_setopt(c, CURLOPT_CAINFO, authorities) == CURLE_OK);
}

static void free_transfer(by__gateway_webhook_sender *s, webhook_transfer *t)
{
    if (t->curl != NULL) {
        (void)curl_multi_remove_handle(s->multi, t->curl);
        curl_easy_cleanup(t->curl);
    }
    curl_slist_free_all(t->headers);
    free(t);
}

/* Returns a message to the loop. */
static void return_message(by__gateway_webhook_sender *s, by__gateway_webhook_message *m)
{
    uv_mutex_lock(&s->mutex);
    m->next = s->disconnected;
    s->disconnected = m;
    uv_mutex_unlock(&s->mutex);
    (void)uv_async_send(&s->async);
}

static void begin(by__gateway_webhook_sender *s, by__gateway_webhook_message *m)
{
    webhook_transfer *t = calloc(1, sizeof *t);
    m->next = NULL;
    if (t != NULL) {
        t->message = m;
        t->rules = s->rules;
        t->curl = curl_easy_init();
    }
    if (t == NULL || !set_up(s, t) || curl_multi_add_handle(s->multi, t->curl) != CURLM_OK) {
        (void)snprintf(m->reason, sizeof m->reason, "out of memory");
        if (t != NULL) {
            free_transfer(s, t);
        }
        return_message(s, m);
        return;
    }
    t->next = s->transfers;
    s->transfers = t;
}

static void end(by__gateway_webhook_sender *s, CURL *curl, CURLcode code)
{
    webhook_transfer *t = NULL;
    curl_off_t wait = 0;
    (void)curl_easy_getinfo(curl, CURLINFO_PRIVATE, &t);
    by__gateway_webhook_message *m = t->message;
    if (code == CURLE_OK) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &m->status);
        (void)curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait);
        m->retry_after = (double)wait;
        m->reason[0] = '\0';
        m->permanent = m->status == STATUS_GONE;
    } else if (t->forbidden && !t->allowed) {
        m->permanent = true;
        (void)snprintf(m->reason, sizeof m->reason,
                       "its address is not public, nor in webhooks.networks");
    } else if (t->answered > BY__WEBHOOK_ANSWER) {
        m->permanent = true; /* the receiver has the message */
        (void)snprintf(m->reason, sizeof m->reason, "its answer has more than %d bytes",
                       BY__WEBHOOK_ANSWER);
    } else if (m->reason[0] == '\0') {
        (void)snprintf(m->reason, sizeof m->reason, "%s", curl_easy_strerror(code));
    }
    m->permanent = m->permanent || code == CURLE_URL_MALFORMAT;
    for (webhook_transfer **at = &s->transfers; *at != NULL; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            break;
        }
    }
    free_transfer(s, t);
    return_message(s, m);
}

/* ---- the thread ---- */

static void send_messages(void *user)
{
    by__gateway_webhook_sender *s = user;
    for (;;) {
        int running;
        int left;
        uv_mutex_lock(&s->mutex);
        by__gateway_webhook_message *coming = s->coming;
        bool closing = s->closing;
        s->coming = NULL;
        uv_mutex_unlock(&s->mutex);
        if (closing) {
            free_list(coming);
            break;
        }
        while (coming != NULL) {
            by__gateway_webhook_message *next = coming->next;
            begin(s, coming);
            coming = next;
        }
        (void)curl_multi_perform(s->multi, &running);
        for (const CURLMsg *m; (m = curl_multi_info_read(s->multi, &left)) != NULL;) {
            if (m->msg == CURLMSG_DONE) {
                end(s, m->easy_handle, m->data.result);
            }
        }
        (void)curl_multi_poll(s->multi, NULL, 0, POLL_MS, NULL);
    }
    while (s->transfers != NULL) {
        webhook_transfer *t = s->transfers;
        by__gateway_webhook_message *m = t->message;
        s->transfers = t->next;
        free_transfer(s, t); /* libcurl uses parts of the message until then */
        by__gateway_webhook_message_free(m);
    }
}

/* ---- the loop's side ---- */

static void on_ended(uv_async_t *async)
{
    by__gateway_webhook_sender *s = async->data;
    uv_mutex_lock(&s->mutex);
    by__gateway_webhook_message *list = s->disconnected;
    s->disconnected = NULL;
    uv_mutex_unlock(&s->mutex);
    while (list != NULL) {
        by__gateway_webhook_message *next = list->next;
        s->ended(s->user, list);
        list = next;
    }
}

void by__gateway_webhook_send(by__gateway_webhook_sender *sender,
                              by__gateway_webhook_message *message)
{
    uv_mutex_lock(&sender->mutex);
    message->next = sender->coming;
    sender->coming = message;
    uv_mutex_unlock(&sender->mutex);
    (void)curl_multi_wakeup(sender->multi);
}

static void on_closed(uv_handle_t *handle)
{
    by__gateway_webhook_sender *s = handle->data;
    free_list(s->disconnected);
    (void)curl_multi_cleanup(s->multi);
    uv_mutex_destroy(&s->mutex);
    free(s);
}

by_status by__gateway_webhook_sender_open(
    by__gateway_webhook_sender **out, uv_loop_t *loop, const by__gateway_webhook_rules *rules,
    const by_serve_webhooks_config *config,
    void (*ended)(void *user, by__gateway_webhook_message *message), void *user, by_error *error)
{
    by__gateway_webhook_sender *s = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "webhooks", error));
    s->rules = rules;
    s->config = config;
    s->ended = ended;
    s->user = user;
    s->multi = curl_multi_init();
    int code = s->multi == NULL ? UV_ENOMEM : uv_mutex_init(&s->mutex);
    if (code < 0) {
        (void)curl_multi_cleanup(s->multi);
        free(s);
        return by__serve_uv_error(error, "start", "the thread of webhooks", code);
    }
    code = uv_async_init(loop, &s->async, on_ended);
    if (code < 0) {
        (void)curl_multi_cleanup(s->multi);
        uv_mutex_destroy(&s->mutex);
        free(s);
        return by__serve_uv_error(error, "start", "the thread of webhooks", code);
    }
    s->async.data = s;
    code = uv_thread_create(&s->thread, send_messages, s);
    if (code < 0) {
        uv_close((uv_handle_t *)&s->async, on_closed);
        return by__serve_uv_error(error, "start", "the thread of webhooks", code);
    }
    *out = s;
    return BY_OK;
}

void by__gateway_webhook_sender_close(by__gateway_webhook_sender **sender)
{
    by__gateway_webhook_sender *s = *sender;
    if (s == NULL) {
        return;
    }
    *sender = NULL;
    uv_mutex_lock(&s->mutex);
    s->closing = true;
    uv_mutex_unlock(&s->mutex);
    (void)curl_multi_wakeup(s->multi);
    (void)uv_thread_join(&s->thread);
    uv_close((uv_handle_t *)&s->async, on_closed);
}
