#include "serve/link/core/redis_address.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/hex.h"
#include "base/utf8.h"

#define MAX_FILE ((size_t)4096)

static const char scheme[] = "redis://";
static const char encrypted[] = "rediss://";

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool by__link_redis_is_address(const char *broker)
{
    return begins(broker, scheme) || begins(broker, encrypted);
}

static by_status wrong(const char *what, by_error *error)
{
    return by_error_set(
        error, BY_ECONFIG,
        "the address of Redis: %s; it is redis://[[USER]:PASSWORD@]HOST[:PORT]"
        "[/"
        "DATABASE][?queue=N&queue_tokens=N&stored=N&stored_bytes=N&wait=SECONDS&silence=SECONDS&"
        "hang=SECONDS&attempts=N&password_file=FILE]",
        what);
}

/* Copies text, decoding %XX. Returns false if it does not fit, or contains a zero byte. */
static bool copy_decoded(char *out, size_t room, const char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 2 < length ? by__hex_digit(text[i + 1]) : -1;
            int low = high >= 0 ? by__hex_digit(text[i + 2]) : -1;
            if (low < 0) {
                return false;
            }
            c = (char)(unsigned char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || n + 1 >= room) {
            return false;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

/* Parses an integer from least to most that is the whole text. */
static bool read_integer(int64_t *out, const char *text, size_t length, int64_t least, int64_t most)
{
    int64_t value = 0;
    if (length == 0 || length > 15) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (text[i] - '0');
    }
    *out = value;
    return value >= least && value <= most;
}

static by_status read_login(by__link_redis_address *a, const char *text, size_t length,
                            by_error *error)
{
    const char *colon = memchr(text, ':', length);
    size_t user = colon == NULL ? length : (size_t)(colon - text);
    if (!copy_decoded(a->user, sizeof a->user, text, user) ||
        (colon != NULL &&
         !copy_decoded(a->password, sizeof a->password, colon + 1, length - user - 1))) {
        return wrong("its user or password is too long, or has a wrong %XX", error);
    }
    return BY_OK;
}

static by_status read_host(by__link_redis_address *a, const char *text, size_t length,
                           by_error *error)
{
    const char *end = text[0] == '[' ? memchr(text, ']', length) : memchr(text, ':', length);
    bool bracket = text[0] == '[';
    size_t host = end == NULL ? length : (size_t)(end - text);
    if (bracket && end == NULL) {
        return wrong("its host has no ]", error);
    }
    size_t used = bracket ? host + 1 : host;
    const char *name = bracket ? text + 1 : text;
    host = bracket ? host - 1 : host;
    if (host == 0 || host >= sizeof a->host) {
        return wrong("it has no host, or one that is too long", error);
    }
    memcpy(a->host, name, host);
    a->host[host] = '\0';
    if (used < length) {
        int64_t port;
        if (text[used] != ':' ||
            !read_integer(&port, text + used + 1, length - used - 1, 1, 65535)) {
            return wrong("its port is not a number from 1 to 65535", error);
        }
        a->port = (int)port;
    }
    return BY_OK;
}

static by_status read_option(by__link_redis_address *a, const char *text, size_t length,
                             by_error *error)
{
    static const char silence[] = "silence and hang are from 0.5 to 3600 seconds";
    const struct {
        const char *name;
        int64_t *value;
        int64_t most;
    } integers[] = {{"queue=", &a->queue, 1000000000},
                    {"queue_tokens=", &a->queue_tokens, 1000000000000},
                    {"stored=", &a->stored, 1000000000},
                    {"stored_bytes=", &a->stored_bytes, INT64_C(1) << 40},
                    {"attempts=", &a->attempts, 100}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(integers); i++) {
        size_t n = strlen(integers[i].name);
        if (length > n && memcmp(text, integers[i].name, n) == 0) {
            return read_integer(integers[i].value, text + n, length - n, 1, integers[i].most)
                       ? BY_OK
                       : wrong("a number in its options is not valid or too large", error);
        }
    }
    static const char file[] = "password_file=";
    if (length >= sizeof file && memcmp(text, file, sizeof file - 1) == 0) {
        return copy_decoded(a->password_file, sizeof a->password_file, text + sizeof file - 1,
                            length - sizeof file + 1)
                   ? BY_OK
                   : wrong("the name of its password_file is too long, or has a wrong %XX", error);
    }
    const struct {
        const char *name;
        double *value;
        double least;
        double most;
        const char *wrong;
    } numbers[] = {{"silence=", &a->silence, 0.5, 3600.0, silence},
                   {"hang=", &a->hang, 0.5, 3600.0, silence},
                   {"wait=", &a->wait, 0.001, 86400.0, "wait is from 0.001 to 86400 seconds"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(numbers); i++) {
        char number[16] = "";
        size_t n = strlen(numbers[i].name);
        if (length > n && length - n < sizeof number && memcmp(text, numbers[i].name, n) == 0) {
            char *end;
            memcpy(number, text + n, length - n);
            *numbers[i].value = strtod(number, &end);
            return *end == '\0' && *numbers[i].value >= numbers[i].least &&
                           *numbers[i].value <= numbers[i].most
                       ? BY_OK
                       : wrong(numbers[i].wrong, error);
        }
    }
    return wrong("it has an unknown option", error);
}

by_status by__link_redis_address_read(by__link_redis_address *out, const char *url, by_error *error)
{
    if (!by_build_has(BY_BUILD_REDIS)) {
        return by__build_lacks(BY_BUILD_REDIS, "redis://", error);
    }
    by__link_redis_address a = {.port = 6379,
                                .queue = 1024,
                                .queue_tokens = 4000000,
                                .stored = 100000,
                                .stored_bytes = INT64_C(256) << 20,
                                .silence = 5.0,
                                .hang = 60.0,
                                .attempts = 3};
    if (begins(url, encrypted)) {
        return by_error_set(
            error, BY_ECONFIG,
            "the address of Redis: rediss:// needs TLS, which banyan does not support: run stunnel "
            "on this host, and use the redis:// address on which it listens");
    }
    if (!begins(url, scheme)) {
        return wrong("it does not begin with redis://", error);
    }
    const char *text = url + strlen(scheme);
    const char *query = text + strcspn(text, "?");
    const char *slash = memchr(text, '/', (size_t)(query - text));
    const char *end = slash == NULL ? query : slash;
    const char *at = memrchr(text, '@', (size_t)(end - text));
    if (at != NULL) {
        BY_TRY(read_login(&a, text, (size_t)(at - text), error));
        text = at + 1;
    }
    BY_TRY(read_host(&a, text, (size_t)(end - text), error));
    if (slash != NULL && slash + 1 < query) {
        int64_t database;
        if (!read_integer(&database, slash + 1, (size_t)(query - slash) - 1, 0, 1000000)) {
            return wrong("its database is not a number", error);
        }
        a.database = (int)database;
    }
    while (*query != '\0') {
        size_t n = strcspn(query + 1, "&");
        BY_TRY(read_option(&a, query + 1, n, error));
        query += 1 + n;
    }
    if (a.password[0] != '\0' && a.password_file[0] != '\0') {
        return wrong("it has a password and a password_file", error);
    }
    *out = a;
    return BY_OK;
}

/* Takes the first line of a text as the password; `source` is named in the message. */
static by_status extract_password(by__link_redis_address *a, const char *text, size_t least,
                                  const char *source, by_error *error)
{
    size_t length = strcspn(text, "\r\n");
    if (length < least || length >= sizeof a->password) {
        return by_error_set(error, BY_ECONFIG,
                            "the first line of %s is not a password of 1 to %zu bytes", source,
                            sizeof a->password - 1);
    }
    memcpy(a->password, text, length);
    a->password[length] = '\0';
    return BY_OK;
}

static by_status read_password(by__link_redis_address *a, by_error *error)
{
    char *text = NULL;
    size_t length = 0;
    /* A missing file is a wrong configuration: a restart would not help. */
    by_status status = by__path_exists(a->password_file)
                           ? by__file_read_text(&text, &length, a->password_file, MAX_FILE, error)
                           : by_error_set(error, BY_ECONFIG,
                                          "there is no file %s with the "
                                          "password of Redis",
                                          a->password_file);
    BY_TRY(status);
    status = extract_password(a, text, 1, a->password_file, error);
    explicit_bzero(text, length);
    free(text);
    return status;
}

void by__link_redis_log_exposed(const char *broker, const by__telemetry_log *log)
{
    by__link_redis_address address;
    by_error ignored = {0};
    if (by__link_redis_is_address(broker) &&
        by__link_redis_address_read(&address, broker, &ignored) == BY_OK) {
        by__telemetry_log_exposed(log, address.password_file, "the password of Redis");
    }
}

const char *const by__link_redis_broker_login[] = {"BANYAN_REDIS_PASSWORD", "REDISCLI_AUTH", NULL};

by_status by__link_redis_address_login(by__link_redis_address *address,
                                       const char *const *variables, by_error *error)
{
    if (address->password[0] != '\0') {
        return BY_OK;
    }
    if (address->password_file[0] != '\0') {
        return read_password(address, error);
    }
    for (size_t i = 0; variables[i] != NULL; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL) {
            return extract_password(address, value, 0, variables[i], error);
        }
    }
    return BY_OK;
}

bool by_serve_extract_password(char *address, char password[BY_SERVE_PASSWORD_BYTES])
{
    if (!by__link_redis_is_address(address)) {
        return false;
    }
    char *text = address + strlen(begins(address, scheme) ? scheme : encrypted);
    const char *at = memrchr(text, '@', strcspn(text, "/?"));
    char *colon = at == NULL ? NULL : memchr(text, ':', (size_t)(at - text));
    if (colon == NULL ||
        !copy_decoded(password, BY_SERVE_PASSWORD_BYTES, colon + 1, (size_t)(at - colon) - 1)) {
        return false;
    }
    size_t rest = strlen(at);
    size_t taken = (size_t)(at - colon);
    memmove(colon, at, rest);
    memset(colon + rest, 0, taken); /* including the bytes after it */
    return true;
}
