#include "base/wire/url_hide.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* What ends a URL in a text. */
#define ENDS " \t\r\n\""

/* Removes the characters from `begin` up to `end`. */
static void cut(char *begin, const char *end)
{
    memmove(begin, end, strlen(end) + 1);
}

/* Whether the last part of HOST:PORT is a port, or there is none. */
static bool has_port(const char *host, size_t n)
{
    size_t digits = 0;
    while (digits < n && host[n - 1 - digits] >= '0' && host[n - 1 - digits] <= '9') {
        digits++;
    }
    return memchr(host, ':', n) == NULL || host[n - 1] == ']' ||
           (digits > 0 && digits < n && host[n - 1 - digits] == ':');
}

/* Removes USER:PASSWORD@, which begins at `host`. */
static void hide_user(char *host)
{
    size_t n = strcspn(host, "/?#" ENDS);
    if (memchr(host, '@', n) == NULL && !has_port(host, n)) {
        n = strcspn(host, ENDS); /* the password may have a character that must be escaped */
    }
    for (size_t i = n; i > 0; i--) {
        if (host[i - 1] == '@') {
            cut(host, host + i);
            return;
        }
    }
}

/* Removes the query of a URL whose host begins at `host`; what may follow it as a mark of the text,
 * as in "URL: why", stays. */
static void hide_query(char *host)
{
    char *query = host + strcspn(host, "?#" ENDS);
    if (*query != '?' && *query != '#') {
        return;
    }
    const char *end = query + strcspn(query, ENDS);
    while (end > query + 1 && strchr(".,:;')]}>", end[-1]) != NULL) {
        end--;
    }
    cut(query, end);
}

/* Whether a scheme ends at `end`. */
static bool has_scheme(const char *text, const char *end, const char *scheme)
{
    size_t n = strlen(scheme);
    return (size_t)(end - text) >= n && strncasecmp(end - n, scheme, n) == 0;
}

void by__url_hide(char *text)
{
    for (char *p = strstr(text, "://"); p != NULL; p = strstr(p, "://")) {
        bool is_web = has_scheme(text, p, "http") || has_scheme(text, p, "https");
        bool is_s3 = has_scheme(text, p, "s3");
        p += strlen("://");
        if (is_web || is_s3) {
            hide_user(p);
        }
        if (is_web) {
            hide_query(p);
        }
    }
}
