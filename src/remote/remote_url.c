#include "remote/remote_url.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char unreserved[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";

static bool begins(const char *text, const char *with)
{
    return strncasecmp(text, with, strlen(with)) == 0;
}

bool by__remote_is_s3(const char *url)
{
    return begins(url, "s3://");
}

bool by_remote_is(const char *path)
{
    return path != NULL &&
           (by__remote_is_s3(path) || begins(path, "https://") || begins(path, "http://"));
}

bool by__remote_is_folder(const char *url)
{
    return by_remote_is(url) &&
           (url[strlen(url) - 1] == '/' || (by__remote_is_s3(url) && strchr(url + 5, '/') == NULL));
}

/* Bytes of a URL before its query. The key of an object of S3 may have any character. */
static size_t span(const char *url)
{
    return by__remote_is_s3(url) ? strlen(url) : strcspn(url, "?#");
}

const char *by__remote_shown(char out[BY__REMOTE_SHOWN], const char *url)
{
    size_t length = span(url);
    const char *rest = strstr(url, "://");
    size_t scheme = rest == NULL ? 0 : (size_t)(rest - url) + 3;
    size_t host = scheme + strcspn(url + scheme, "/?#");
    size_t begin = scheme;
    for (size_t i = scheme; i < host; i++) {
        begin = url[i] == '@' ? i + 1 : begin; /* a user, and maybe a password, are before it */
    }
    by_string text = {0};
    by_string_add(&text, url, scheme);
    by__string_add_valid(&text, url + begin, length > begin ? length - begin : 0);
    (void)snprintf(out, BY__REMOTE_SHOWN, "%s", text.data == NULL || text.failed ? "" : text.data);
    for (char *c = out; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? '?' : *c;
    }
    by_string_free(&text);
    return out;
}

void by__remote_escape(by_string *out, const char *text, size_t n, bool slashes)
{
    for (size_t i = 0; i < n; i++) {
        bool plain =
            (slashes && text[i] == '/') || (text[i] != '\0' && strchr(unreserved, text[i]) != NULL);
        if (plain) {
            by_string_add(out, text + i, 1);
        } else {
            by_string_format(out, "%%%02X", (unsigned)(unsigned char)text[i]);
        }
    }
}

void by__remote_file_name(char out[200], const char *url)
{
    size_t end = span(url);
    size_t begin = end;
    while (begin > 0 && url[begin - 1] != '/') {
        begin--;
    }
    size_t n = end - begin;
    const char *from = url + begin;
    if (n > 150) { /* its end says what it is */
        from += n - 150;
        n = 150;
    }
    if (n == 0 || from[0] == '.') {
        (void)snprintf(out, 200, "data%.*s", (int)n, from);
    } else {
        (void)snprintf(out, 200, "%.*s", (int)n, from);
    }
}

/* ---- where a URL leads ---- */

static by_status refuse(const char *url, const char *what, by_error *error)
{
    char shown[BY__REMOTE_SHOWN];
    return by_error_set(error, BY_ECONFIG, "%s: %s", by__remote_shown(shown, url), what);
}

/* Scheme and host of http://HOST:PORT/..., and what is behind them. */
static by_status split(const char *url, const char **host, size_t *host_size, const char **rest,
                       by_error *error)
{
    const char *begin = strstr(url, "://") + 3;
    size_t n = strcspn(begin, "/?#");
    if (memchr(begin, '@', n) != NULL) {
        return refuse(url,
                      "a URL with a user or password would be kept with the run: take them out of "
                      "it, or use s3:// with credentials of the environment",
                      error);
    }
    if (n == 0) {
        return refuse(url, "the URL names no host", error);
    }
    for (const char *c = url; *c != '\0'; c++) {
        if ((unsigned char)*c <= ' ' || (unsigned char)*c == 0x7f) {
            return refuse(url, "the URL has a blank or a control character: write it as %20",
                          error);
        }
    }
    *host = begin;
    *host_size = n;
    *rest = begin + n;
    const char *port = memrchr(begin, ':', n);
    const char *usual = begins(url, "https") ? ":443" : ":80";
    if (port != NULL && strlen(usual) == (size_t)(begin + n - port) &&
        memcmp(port, usual, strlen(usual)) == 0) {
        *host_size = (size_t)(port - begin); /* as libcurl leaves it out */
    }
    return BY_OK;
}

static by_status finish(by__remote_target *t, by_string *url, by_string *host, by_string *path,
                        by_error *error)
{
    by_status status = by__string_release(url, &t->url, error);
    if (status == BY_OK) {
        status = by__string_release(host, &t->host, error);
    }
    if (status == BY_OK) {
        status = by__string_release(path, &t->path, error);
    }
    by_string_free(url);
    by_string_free(host);
    by_string_free(path);
    if (status != BY_OK) {
        by__remote_target_free(t);
    }
    return status;
}

/* By path, as every server of the protocol takes it: ENDPOINT/BUCKET/KEY. */
static by_status make_s3(by__remote_target *out, const char *url, const by__remote_access *access,
                         by_error *error)
{
    const char *name = url + strlen("s3://");
    const char *host;
    const char *rest;
    size_t host_size;
    by_string full = {0};
    by_string place = {0};
    by_string path = {0};
    if (strcspn(name, "/") == 0) {
        return refuse(url, "the URL names no bucket: s3://BUCKET/KEY", error);
    }
    if (strncmp(access->endpoint, "http://", 7) != 0 &&
        strncmp(access->endpoint, "https://", 8) != 0) {
        char shown[BY__REMOTE_SHOWN];
        (void)by__remote_shown(shown, access->endpoint);
        return by_error_set(error, BY_ECONFIG,
                            "the endpoint of S3 is '%.150s', and no URL: set AWS_ENDPOINT_URL (or "
                            "endpoint_url of the profile) to https://HOST or http://HOST:PORT",
                            shown);
    }
    BY_TRY(split(access->endpoint, &host, &host_size, &rest, error));
    size_t n = strcspn(rest, "?#");
    n -= n > 0 && rest[n - 1] == '/';
    by_string_add(&path, rest, n);
    by__string_append(&path, "/");
    by__remote_escape(&path, name, strlen(name), true);
    by_string_add(&place, host, host_size);
    by_string_add(&full, access->endpoint, (size_t)(rest - access->endpoint));
    by__string_append(&full, path.data == NULL ? "" : path.data);
    *out = (by__remote_target){.is_s3 = true};
    return finish(out, &full, &place, &path, error);
}

by_status by__remote_target_make(by__remote_target *out, const char *url,
                                 const by__remote_access *access, by_error *error)
{
    const char *host;
    const char *rest;
    size_t host_size;
    by_string full = {0};
    by_string place = {0};
    by_string path = {0};
    if (by__remote_is_s3(url)) {
        return make_s3(out, url, access, error);
    }
    BY_TRY(split(url, &host, &host_size, &rest, error));
    by__string_append(&full, url);
    by_string_add(&place, host, host_size);
    by_string_add(&path, rest, strcspn(rest, "?#"));
    *out = (by__remote_target){0};
    return finish(out, &full, &place, &path, error);
}

void by__remote_target_free(by__remote_target *target)
{
    free(target->url);
    free(target->host);
    free(target->path);
    *target = (by__remote_target){0};
}
