#include "remote/remote_transfer.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/wire/authorities.h"
#include "base/wire/http_client.h"

/* Most bytes of an answer that is no file: a page of a list has a thousand keys of up to 1 KiB. */
#define TEXT_LIMIT ((size_t)16 << 20)
/* Milliseconds to connect. A transfer of fewer bytes in a second than STILL_BYTES for STILL_SECONDS
 * stands still. */
#define CONNECT_TIME  10000L
#define STILL_BYTES   64L
#define STILL_SECONDS 30L

struct by__remote_transfer {
    CURL *curl;
    by__remote_stop *stop;
    by__remote_answer *answer;
    char why[CURL_ERROR_SIZE];
};

by_status by__remote_transfers_begin(by_error *error)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "libcurl does not start");
}

/* ---- callbacks of libcurl ---- */

/* Takes the value of a header "name: value". */
static bool header_of(const char **value, size_t *size, const char *line, size_t n,
                      const char *name)
{
    size_t length = strlen(name);
    if (n <= length || strncasecmp(line, name, length) != 0 || line[length] != ':') {
        return false;
    }
    *value = line + length + 1;
    *size = n - length - 1;
    by__trim(value, size, BY__WHITE_SPACE);
    return true;
}

/* "bytes 0-9/100", "bytes 0-9" of an unknown whole, "bytes *" of none. */
static void take_range(by__remote_answer *a, const char *value, size_t n)
{
    char text[80];
    char total[32] = "";
    uint64_t last = 0;
    (void)snprintf(text, sizeof text, "%.*s", (int)(n < 79 ? n : 79), value);
    if (sscanf(text, "bytes %" SCNu64 "-%" SCNu64 "/%31s", &a->first, &last, total) == 3) {
        a->has_range = last >= a->first;
    } else if (sscanf(text, "bytes */%31s", total) != 1) {
        return;
    }
    char *end;
    a->total = strtoull(total, &end, 10);
    a->total = end == total || *end != '\0' ? UINT64_MAX : a->total;
}

static size_t take_header(char *line, size_t size, size_t count, void *user)
{
    by__remote_answer *a = ((by__remote_transfer *)user)->answer;
    const char *value;
    size_t n;
    size_t length = size * count;
    if (length > 5 &&
        memcmp(line, "HTTP/", 5) == 0) { /* of the next answer, behind a redirection */
        a->has_range = false;
        a->total = UINT64_MAX;
        a->tag[0] = '\0';
        a->is_etag = false;
    } else if (header_of(&value, &n, line, length, "etag") && n < BY__REMOTE_TAG) {
        (void)snprintf(a->tag, sizeof a->tag, "%.*s", (int)n, value);
        a->is_etag = true;
    } else if (header_of(&value, &n, line, length, "last-modified") && n < BY__REMOTE_TAG &&
               !a->is_etag) {
        (void)snprintf(a->tag, sizeof a->tag, "%.*s", (int)n, value);
    } else if (header_of(&value, &n, line, length, "content-range")) {
        take_range(a, value, n);
    } else if (header_of(&value, &n, line, length, "x-amz-bucket-region") && n < sizeof a->region) {
        (void)snprintf(a->region, sizeof a->region, "%.*s", (int)n, value);
    }
    return length;
}

static size_t take_body(char *data, size_t size, size_t count, void *user)
{
    by__remote_transfer *t = user;
    by__remote_answer *a = t->answer;
    size_t n = size * count;
    long status = 0;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (a->out != NULL && (status == 200 || status == 206)) {
        if (n > a->capacity - a->got) {
            a->overflow = true;
            return 0;
        }
        memcpy(a->out + a->got, data, n);
        a->got += n;
        return n;
    }
    if (n > TEXT_LIMIT - a->text.length) {
        a->overflow = true;
        return 0;
    }
    by_string_add(&a->text, data, n);
    return a->text.failed ? 0 : n;
}

static int look_up(void *user, curl_off_t total, curl_off_t now, curl_off_t up, curl_off_t sent)
{
    const by__remote_transfer *t = user;
    BY_UNUSED(total);
    BY_UNUSED(now);
    BY_UNUSED(up);
    BY_UNUSED(sent);
    return by__remote_stops(t->stop) ? 1 : 0;
}

/* ---- transfers ---- */

static bool set_up(by__remote_transfer *t)
{
    const char *authorities = by__authorities();
    CURL *c = t->curl;
    return by__http_client_prepare(c) &&
           curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIME) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, STILL_BYTES) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, STILL_SECONDS) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_MAXREDIRS, 5L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 1L << 19) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_USERAGENT, "banyan/" BY_VERSION) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, look_up) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_XFERINFODATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HEADERDATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_WRITEDATA, t) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->why) == CURLE_OK &&
           (authorities == NULL || curl_easy_setopt(c, CURLOPT_CAINFO, authorities) == CURLE_OK);
}

by_status by__remote_transfer_open(by__remote_transfer **out, by__remote_stop *stop,
                                   by_error *error)
{
    by__remote_transfer *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a transfer", error));
    t->stop = stop;
    t->curl = curl_easy_init();
    if (t->curl == NULL || !set_up(t)) {
        by__remote_transfer_close(&t);
        return by_error_set(error, BY_EMEMORY, "out of memory: a transfer");
    }
    *out = t;
    return BY_OK;
}

void by__remote_transfer_close(by__remote_transfer **transfer)
{
    if (*transfer != NULL) {
        curl_easy_cleanup((*transfer)->curl);
        free(*transfer);
        *transfer = NULL;
    }
}

static by__remote_failure failure_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return BY__REMOTE_ANSWERED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return BY__REMOTE_UNREACHABLE;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return BY__REMOTE_CUT;
    default:
        return BY__REMOTE_HOPELESS;
    }
}

void by__remote_transfer_get(by__remote_transfer *t, const char *url, const char *const *headers,
                             bool follow, by__remote_answer *answer)
{
    struct curl_slist *list = NULL;
    curl_off_t wait = 0;
    bool good = true;
    for (size_t i = 0; headers[i] != NULL && good; i++) {
        struct curl_slist *longer = curl_slist_append(list, headers[i]);
        good = longer != NULL;
        list = good ? longer : list;
    }
    t->answer = answer;
    t->why[0] = '\0';
    answer->total = UINT64_MAX;
    good = good && curl_easy_setopt(t->curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, list) == CURLE_OK &&
           curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, follow ? 1L : 0L) == CURLE_OK;
    CURLcode code = good ? curl_easy_perform(t->curl) : CURLE_OUT_OF_MEMORY;
    answer->failure = failure_of(code);
    if (code != CURLE_OK) {
        (void)snprintf(answer->why, sizeof answer->why, "%s",
                       t->why[0] != '\0' ? t->why : curl_easy_strerror(code));
    }
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &answer->status);
    (void)curl_easy_getinfo(t->curl, CURLINFO_RETRY_AFTER, &wait);
    answer->wait = (double)wait;
    (void)curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(list);
    t->answer = NULL;
}
