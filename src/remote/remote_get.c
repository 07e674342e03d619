#include "remote/remote_get.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "remote/remote_signature.h"

/* Attempts without a byte of progress, and those while no server has answered at all. */
#define TRIES       10
#define FIRST_TRIES 4
/* Seconds: the bound of the first delay, the largest bound, and the most that a server may ask for.
 * Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ */
#define FIRST_DELAY   0.1
#define LARGEST_DELAY 10.0
#define LONGEST_WAIT  60.0

#define HEADERS 8

by_status by__remote_client_open(by__remote_client *client, by_error *error)
{
    BY_TRY(by__remote_transfers_begin(error));
    BY_TRY(by__remote_access_read(&client->access, error));
    if (pthread_mutex_init(&client->lock, NULL) != 0) {
        by__remote_access_free(&client->access);
        return by_error_set(error, BY_EMEMORY, "out of memory: a lock");
    }
    atomic_init(&client->stop.set, false);
    atomic_init(&client->reached, false);
    atomic_init(&client->draws, 0);
    return BY_OK;
}

void by__remote_client_close(by__remote_client *client)
{
    for (size_t i = 0; i < client->idle_count; i++) {
        by__remote_transfer_close(&client->idle[i]);
    }
    free(client->idle);
    by__remote_access_free(&client->access);
    (void)pthread_mutex_destroy(&client->lock);
}

/* ---- connections ---- */

static by_status take_transfer(by__remote_transfer **out, by__remote_client *c, by_error *error)
{
    *out = NULL;
    (void)pthread_mutex_lock(&c->lock);
    if (c->idle_count > 0) {
        *out = c->idle[--c->idle_count];
    }
    (void)pthread_mutex_unlock(&c->lock);
    return *out != NULL ? BY_OK : by__remote_transfer_open(out, &c->stop, error);
}

static void give_transfer(by__remote_client *c, by__remote_transfer *t)
{
    (void)pthread_mutex_lock(&c->lock);
    if (by__reserve((void **)&c->idle, &c->idle_capacity, c->idle_count + 1, sizeof *c->idle,
                    NULL) == BY_OK) {
        c->idle[c->idle_count++] = t;
        t = NULL;
    }
    (void)pthread_mutex_unlock(&c->lock);
    by__remote_transfer_close(&t);
}

/* ---- headers ---- */

/* The headers of a request; texts are freed by free_headers. */
typedef struct header_list {
    char *lines[HEADERS + 1];
    size_t count;
    bool failed;
} header_list;

static void add_header(header_list *list, const char *name, const char *value)
{
    by_string text = {0};
    by_string_format(&text, "%s: %s", name, value);
    if (list->failed || by__string_release(&text, &list->lines[list->count], NULL) != BY_OK) {
        list->failed = true;
        by_string_free(&text);
        return;
    }
    list->count++;
}

static void free_headers(header_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        explicit_bzero(list->lines[i], strlen(list->lines[i]));
        free(list->lines[i]);
    }
}

static void put_pair(const char *pair[2], const char *name, const char *value)
{
    pair[0] = name;
    pair[1] = value;
}

/* Signs a request of S3: its range, its host and the time. */
static by_status add_signature(header_list *list, const by__remote_client *c,
                               const by__remote_ask *ask, const char *range, by_error *error)
{
    char date[17];
    by_string text = {0};
    const char *headers[HEADERS][2] = {{"host", ask->target->host}};
    size_t n = 1;
    time_t now = time(NULL);
    by__remote_date(date, now);
    if (range[0] != '\0') {
        put_pair(headers[n++], "range", range);
    }
    put_pair(headers[n++], "x-amz-content-sha256", BY__REMOTE_NO_BODY);
    put_pair(headers[n++], "x-amz-date", date);
    if (c->access.token[0] != '\0') {
        put_pair(headers[n++], "x-amz-security-token", c->access.token);
    }
    const by__remote_signed request = {.method = "GET",
                                       .path = ask->target->path,
                                       .query = ask->query == NULL ? "" : ask->query,
                                       .headers = headers,
                                       .header_count = n,
                                       .body = BY__REMOTE_NO_BODY,
                                       .service = "s3",
                                       .time = now};
    BY_TRY(by__remote_sign(&text, &request, &c->access, error));
    add_header(list, "Authorization", text.failed || text.data == NULL ? "" : text.data);
    add_header(list, "x-amz-content-sha256", BY__REMOTE_NO_BODY);
    add_header(list, "x-amz-date", date);
    if (c->access.token[0] != '\0') {
        add_header(list, "x-amz-security-token", c->access.token);
    }
    by_string_free(&text);
    return BY_OK;
}

static by_status make_headers(header_list *list, const by__remote_client *c,
                              const by__remote_ask *ask, uint64_t begin, uint64_t end,
                              by_error *error)
{
    char range[64] = "";
    if (ask->size > 0) {
        (void)snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, begin, end - 1);
        add_header(list, "Range", range);
    }
    /* Weak tags and times are compared here. */
    if (ask->tag != NULL && ask->tag[0] == '"') {
        add_header(list, "If-Match", ask->tag);
    }
    if (ask->unless != NULL && ask->unless[0] == '"') {
        add_header(list, "If-None-Match", ask->unless);
    }
    if (ask->target->is_s3 && c->access.key[0] != '\0') {
        BY_TRY(add_signature(list, c, ask, range, error));
    }
    return list->failed ? by_error_set(error, BY_EMEMORY, "out of memory: headers") : BY_OK;
}

/* ---- answers ---- */

static by_status changed(const by__remote_ask *ask, by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    return by_error_set(error, BY_EFORMAT,
                        "%s has changed since it was opened: it has another tag (ETag) or size. A "
                        "run reads one version of its data; start it again to use the new one",
                        by__remote_shown(shown, ask->url));
}

/* The code of an error of S3, "<Code>AccessDenied</Code>"; nothing else of it, since it may repeat
 * parts of the request. */
static void read_code(char out[64], const by_string *text)
{
    const char *begin = text->data == NULL || text->failed ? NULL : strstr(text->data, "<Code>");
    size_t n = begin == NULL ? 0
                             : strspn(begin + 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                 "abcdefghijklmnopqrstuvwxyz0123456789");
    (void)snprintf(out, 64, "%.*s", (int)(n < 63 ? n : 63), begin == NULL ? "" : begin + 6);
}

static by_status refuse_access(const by__remote_client *c, const by__remote_ask *ask, long status,
                               const char *code, by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    bool is_s3 = ask->target->is_s3;
    const char *advice =
        !is_s3 ? "the server does not let this machine read it"
        : c->access.key[0] == '\0'
            ? "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a "
              "profile of ~/.aws/credentials"
        : strcmp(code, "RequestTimeTooSkewed") == 0
            ? "set the clock of this machine"
            : "look at the credentials, the region and the bucket's policy";
    return by_error_set(error, BY_EIO, "%s: access is denied (status %ld%s%s): %s",
                        by__remote_shown(shown, ask->url), status, code[0] == '\0' ? "" : ", ",
                        code, advice);
}

static by_status refuse_status(const by__remote_client *c, const by__remote_ask *ask,
                               const by__remote_answer *a, by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    char code[64];
    read_code(code, &a->text);
    (void)by__remote_shown(shown, ask->url);
    switch (a->status) {
    case 401:
    case 403:
        return refuse_access(c, ask, a->status, code, error);
    case 404:
    case 410:
        if (strcmp(code, "NoSuchBucket") == 0) {
            return by_error_set(error, BY_EIO,
                                "%s: there is no such bucket at the endpoint %s (status %ld, %s): "
                                "look at its name, and at AWS_ENDPOINT_URL",
                                shown, ask->target->host, a->status, code);
        }
        return by_error_set(error, BY_EIO, "%s: the server has no such file (status %ld%s%s)",
                            shown, a->status, code[0] == '\0' ? "" : ", ", code);
    case 407:
        return by_error_set(error, BY_EIO,
                            "%s: a proxy wants credentials (status 407): put them into its URL, in "
                            "https_proxy or http_proxy",
                            shown);
    case 412:
        return changed(ask, error);
    default:
        if (a->region[0] != '\0' && a->status >= 300 && a->status < 500) {
            return by_error_set(error, BY_EIO,
                                "%s: the bucket is in the region %s: set AWS_REGION to it", shown,
                                a->region);
        }
        return by_error_set(error, BY_EIO, "%s: the server answers with status %ld%s%s", shown,
                            a->status, code[0] == '\0' ? "" : ", ", code);
    }
}

static bool is_passing(long status)
{
    return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
           status == 503 || status == 504;
}

/* Whether what came is of the file that is asked for. */
static by_status check_version(const by__remote_ask *ask, by__remote_got *got,
                               const by__remote_answer *a, uint64_t total, by_error *error)
{
    if (ask->tag != NULL && (strcmp(ask->tag, a->tag) != 0 || total != ask->total)) {
        return changed(ask, error);
    }
    /* Of the parts of one answer that was cut. */
    if (got->total != UINT64_MAX && (strcmp(got->tag, a->tag) != 0 || total != got->total)) {
        return changed(ask, error);
    }
    (void)snprintf(got->tag, sizeof got->tag, "%s", a->tag);
    got->total = total;
    return BY_OK;
}

static by_status refuse_whole(const by__remote_ask *ask, by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    return by_error_set(error, BY_EIO,
                        "%s: the server does not send parts of files (it ignores Range): fetch the "
                        "file, or use a server that does, such as nginx or one of S3",
                        by__remote_shown(shown, ask->url));
}

/* Refuses an answer to Range that is not the part that was asked for. */
static by_status refuse_part(const by__remote_ask *ask, const by__remote_answer *a, uint64_t at,
                             by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    char why[160];
    if (!a->has_range) {
        (void)snprintf(why, sizeof why, "without Content-Range, which tells the part");
    } else if (a->first != at) {
        (void)snprintf(why, sizeof why, "with byte %" PRIu64 " on, and not %" PRIu64 " as asked",
                       a->first, at);
    } else if (a->total == UINT64_MAX) {
        (void)snprintf(why, sizeof why, "without the size of the file (Content-Range: .../*)");
    } else {
        (void)snprintf(why, sizeof why, "with more bytes than the %" PRIu64 " that were asked for",
                       (uint64_t)a->capacity);
    }
    return by_error_set(error, BY_EIO,
                        "%s: the server answers a request for a part of it (Range, status 206) %s: "
                        "fetch the file, or use another server or proxy",
                        by__remote_shown(shown, ask->url), why);
}

/* Takes an answer with bytes of the file. *done: all that there is has come. */
static by_status take_bytes(const by__remote_ask *ask, by__remote_got *got,
                            const by__remote_answer *a, bool *done, by_error *error)
{
    uint64_t at = ask->begin + got->size;
    if (a->status == 200) {
        /* The whole file, which is good if it is no more than the range. */
        if (a->overflow || at > 0) {
            return refuse_whole(ask, error);
        }
        if (a->failure != BY__REMOTE_ANSWERED) {
            return BY_OK; /* again from its begin */
        }
        BY_TRY(check_version(ask, got, a, a->got, error));
        got->size = a->got;
        *done = true;
        return BY_OK;
    }
    if (!a->has_range || a->first != at || a->total == UINT64_MAX || a->overflow) {
        return refuse_part(ask, a, at, error);
    }
    BY_TRY(check_version(ask, got, a, a->total, error));
    got->size += a->got;
    uint64_t end = ask->begin + ask->size < a->total ? ask->begin + ask->size : a->total;
    *done = ask->begin + got->size >= end;
    return BY_OK;
}

/* Takes an answer. *done: there is nothing more to ask for; otherwise it may be asked for again. */
static by_status take_answer(const by__remote_client *c, const by__remote_ask *ask,
                             by__remote_got *got, by__remote_answer *a, bool *done, by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    bool empty = ask->size > 0 && a->status == 416 && ask->begin == 0 && a->total == 0;
    *done = false;
    if (ask->size > 0 && (a->status == 206 || a->status == 200)) {
        return take_bytes(ask, got, a, done, error);
    }
    if (a->failure == BY__REMOTE_HOPELESS) {
        return by_error_set(error, BY_EIO, "%s: %s", by__remote_shown(shown, ask->url), a->why);
    }
    if (a->failure != BY__REMOTE_ANSWERED || is_passing(a->status)) {
        return BY_OK;
    }
    *done = true;
    if (a->status == 304 && ask->unless != NULL) {
        got->same = true;
        return BY_OK;
    }
    if (empty) {
        return check_version(ask, got, a, 0, error);
    }
    if (a->status == 416 && ask->size > 0) {
        return changed(ask, error);
    }
    return ask->size == 0 && a->status == 200 ? BY_OK : refuse_status(c, ask, a, error);
}

/* ---- attempts ---- */

static double draw(by__remote_client *c)
{
    uint32_t bits[4];
    uint32_t key[2];
    by__philox_key(key, (uint64_t)getpid(), (uint64_t)time(NULL));
    by__philox(bits, key, (const uint32_t[4]){atomic_fetch_add(&c->draws, 1), 0, 0, 0});
    return (double)by__unit_float(bits[0]);
}

/* Waits before the next attempt, unless requests are to end. */
static void wait_before(by__remote_client *c, int attempt, double asked)
{
    double bound = FIRST_DELAY;
    for (int i = 1; i < attempt && bound < LARGEST_DELAY; i++) {
        bound *= 2;
    }
    double delay = draw(c) * (bound < LARGEST_DELAY ? bound : LARGEST_DELAY);
    asked = asked < LONGEST_WAIT ? asked : LONGEST_WAIT;
    delay = asked > delay ? asked : delay;
    while (delay > 0 && !by__remote_stops(&c->stop)) {
        double slice = delay < 0.05 ? delay : 0.05;
        const struct timespec time = {0, (long)(slice * 1e9)};
        (void)nanosleep(&time, NULL);
        delay -= slice;
    }
}

/* The variable that names a proxy for a URL; "" if there is none. */
static const char *proxy_variable(const char *url)
{
    /* In the order of libcurl, which ignores HTTP_PROXY, as a request to a CGI could set it. */
    static const char *const secure[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    static const char *const plain[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    bool is_secure = strncmp(url, "https", 5) == 0;
    const char *const *names = is_secure ? secure : plain;
    for (size_t i = 0; i < (is_secure ? BY_ARRAY_LENGTH(secure) : BY_ARRAY_LENGTH(plain)); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0') {
            return names[i];
        }
    }
    return "";
}

static by_status give_up(const by__remote_ask *ask, const by__remote_answer *a, int tries,
                         by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    const char *proxy = proxy_variable(ask->target->url);
    (void)by__remote_shown(shown, ask->url);
    return a->failure == BY__REMOTE_ANSWERED
               ? by_error_set(error, BY_EIO,
                              "%s: the server answered %d times in a row with an error, the last "
                              "of status %ld",
                              shown, tries, a->status)
               : by_error_set(error, BY_EIO, "%s: %d attempts failed, the last: %s%s%s%s", shown,
                              tries, a->why[0] == '\0' ? "the connection was cut" : a->why,
                              proxy[0] == '\0' ? "" : "; requests go to the proxy that ", proxy,
                              proxy[0] == '\0' ? "" : " names, unless no_proxy names the host");
}

/* One attempt. */
static by_status try_once(by__remote_client *c, const by__remote_ask *ask, by__remote_got *got,
                          by__remote_answer *a, by_error *error)
{
    header_list list = {0};
    by__remote_transfer *t;
    by_string url = {0};
    by__string_append(&url, ask->target->url);
    if (ask->query != NULL && ask->query[0] != '\0') {
        by_string_format(&url, "?%s", ask->query);
    }
    by_status status = url.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a URL")
                                  : make_headers(&list, c, ask, ask->begin + got->size,
                                                 ask->begin + ask->size, error);
    if (status == BY_OK) {
        status = take_transfer(&t, c, error);
    }
    if (status == BY_OK) {
        by__remote_transfer_get(t, url.data, (const char *const *)list.lines, !ask->target->is_s3,
                                a);
        give_transfer(c, t);
    }
    free_headers(&list);
    by_string_free(&url);
    return status;
}

by_status by__remote_get(by__remote_client *c, const by__remote_ask *ask, by__remote_got *got,
                         by_string *text, by_error *error)
{
    *got = (by__remote_got){.total = UINT64_MAX};
    for (int failed = 0;;) {
        size_t before = got->size;
        bool done = false;
        by__remote_answer a = {.out = ask->size == 0 ? NULL : ask->out + got->size,
                               .capacity = ask->size - got->size};
        by_status status = try_once(c, ask, got, &a, error);
        if (status == BY_OK && atomic_load(&c->stop.set)) {
            status = by_error_set(error, BY_ESTOPPED, "stopped while files were fetched");
        }
        if (status == BY_OK) {
            status = take_answer(c, ask, got, &a, &done, error);
        }
        if (status == BY_OK && done && ask->size == 0) {
            *text = a.text;
            a.text = (by_string){0};
        }
        if (a.failure == BY__REMOTE_ANSWERED && a.status > 0) {
            atomic_store(&c->reached, true);
        }
        failed = got->size > before ? 1 : failed + 1;
        int most =
            a.failure == BY__REMOTE_UNREACHABLE && !atomic_load(&c->reached) ? FIRST_TRIES : TRIES;
        if (status == BY_OK && !done && failed >= most) {
            status = give_up(ask, &a, failed, error);
        }
        by_string_free(&a.text);
        if (status != BY_OK || done) {
            return status;
        }
        wait_before(c, failed, a.wait);
    }
}
