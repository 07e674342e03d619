#include "serve/http/query.h"

#include <string.h>

#include "base/hex.h"

/* One byte of a parameter, decoded; moves *at behind it. -1: at its end; -2: malformed. */
static int next_byte(const char **at)
{
    const char *s = *at;
    if (*s == '\0' || *s == '&') {
        return -1;
    }
    int byte = *s == '+' ? ' ' : (unsigned char)*s;
    if (*s == '%') {
        int high = by__hex_digit(s[1]);
        int low = high < 0 ? -1 : by__hex_digit(s[2]);
        byte = low < 0 ? -2 : high * 16 + low;
        s += byte < 0 ? 0 : 2;
    }
    *at = s + 1;
    return byte == 0 ? -2 : byte;
}

/* A byte of a name, as next_byte; it ends at an unescaped '=', too. */
static int name_byte(const char **at)
{
    return **at == '=' ? -1 : next_byte(at);
}

static bool is_same_name(const char *a, const char *b)
{
    int left;
    int right;
    do {
        left = name_byte(&a);
        right = name_byte(&b);
    } while (left == right && left >= 0);
    return left == right;
}

bool by__http_query_valid(const char *query)
{
    const char *names[BY__QUERY_MAX];
    size_t count = 0;
    for (const char *at = query; *at != '\0'; at += *at == '&') {
        int byte;
        if (count == BY__QUERY_MAX) {
            return false;
        }
        names[count] = at;
        bool empty = *at == '&';
        while ((byte = next_byte(&at)) >= 0) {
        }
        if (byte == -2) {
            return false;
        }
        for (size_t i = 0; i < count && !empty; i++) {
            if (is_same_name(names[i], names[count])) {
                return false;
            }
        }
        count += !empty;
    }
    return true;
}

long by__http_query_value(char *out, size_t size, const char *query, const char *name)
{
    size_t length = 0;
    const char *at = query;
    while (*at != '\0' && !is_same_name(at, name)) {
        at += strcspn(at, "&");
        at += *at == '&';
    }
    if (*at == '\0') {
        return -1;
    }
    at += strcspn(at, "=&");
    at += *at == '=';
    int byte;
    while ((byte = next_byte(&at)) >= 0) {
        if (length + 1 >= size) {
            return -1;
        }
        out[length++] = (char)byte;
    }
    out[length] = '\0';
    return (long)length;
}
