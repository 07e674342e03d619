#include "serve/http/multipart.h"

#include <string.h>

/* RFC 2046, section 5.1.1. */
#define MAX_BOUNDARY 70
#define MAX_HEAD     4096

static by_status broken(by_error *error, const char *what)
{
    return by_error_set(error, BY_EARG, "the multipart body %s", what);
}

/* ---- parameters of a header's value: TYPE; NAME=VALUE; NAME="VALUE" ---- */

typedef struct header_parameter {
    const char *name;
    size_t name_length;
    const char *value; /* without quotes, and with the escapes that it has */
    size_t length;
} header_parameter;

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t')) {
        at++;
    }
    return at;
}

static const char *skip_token(const char *at, const char *end)
{
    while (at < end && (unsigned char)*at > ' ' && *at != 0x7f &&
           strchr("()<>@,;:\\\"/[]?={}", *at) == NULL) {
        at++;
    }
    return at;
}

/* Takes the parameter at *at, which is a ';' or the end, and moves *at behind it. Returns 1; 0:
 * there is none; -1: malformed. */
static int parse_parameter(header_parameter *out, const char **at, const char *end)
{
    const char *s = skip_blanks(*at, end);
    if (s == end) {
        return 0;
    }
    if (*s != ';') {
        return -1;
    }
    out->name = skip_blanks(s + 1, end);
    s = skip_token(out->name, end);
    out->name_length = (size_t)(s - out->name);
    if (out->name_length == 0 || s == end || *s != '=') {
        return -1;
    }
    bool quoted = ++s < end && *s == '"';
    out->value = quoted ? ++s : s;
    if (quoted) {
        while (s < end && *s != '"') {
            s += *s == '\\' && end - s > 1 ? 2 : 1;
        }
        if (s >= end) {
            return -1;
        }
    } else {
        s = skip_token(s, end);
    }
    out->length = (size_t)(s - out->value);
    *at = s + quoted;
    return quoted || out->length > 0 ? 1 : -1;
}

/* Finds the one parameter of a name. Returns false if it is not there, comes twice, or the value is
 * malformed. */
static bool find_parameter(header_parameter *out, const char *at, const char *end, const char *name)
{
    header_parameter next;
    int code;
    size_t count = 0;
    while ((code = parse_parameter(&next, &at, end)) > 0) {
        if (next.name_length == strlen(name) &&
            strncasecmp(next.name, name, next.name_length) == 0) {
            *out = next;
            count++;
        }
    }
    return code == 0 && count == 1;
}

/* Makes "--" and the boundary. */
static by_status find_boundary(char out[MAX_BOUNDARY + 3], const char *type, by_error *error)
{
    const char *end = type + strlen(type);
    header_parameter found = {0};
    bool good = find_parameter(&found, type + strcspn(type, "; \t"), end, "boundary") &&
                found.length >= 1 && found.length <= MAX_BOUNDARY &&
                found.value[found.length - 1] != ' ';
    for (size_t i = 0; good && i < found.length; i++) {
        char c = found.value[i];
        good = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
               strchr("'()+_,-./:=? ", c) != NULL;
    }
    if (!good) {
        return broken(error, "has a Content-Type without one boundary of 1 to 70 characters");
    }
    memcpy(out, "--", 2);
    memcpy(out + 2, found.value, found.length);
    out[found.length + 2] = '\0';
    return BY_OK;
}

/* ---- heads of parts ---- */

/* The value of a header's line, if it is that header; NULL: it is another one. */
static const char *value_of(const char *line, const char *end, const char *name)
{
    size_t length = strlen(name);
    return (size_t)(end - line) > length && line[length] == ':' &&
                   strncasecmp(line, name, length) == 0
               ? skip_blanks(line + length + 1, end)
               : NULL;
}

static bool is_word(const char *at, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - at) >= length && strncasecmp(at, word, length) == 0 &&
           skip_token(at, end) == at + length;
}

/* Finds the name of a part in its Content-Disposition. */
static by_status find_name(char out[64], const char *head, size_t length, by_error *error)
{
    static const char *const codings[] = {"binary", "8bit", "7bit"};
    const char *end = head + length;
    header_parameter name = {0};
    size_t count = 0;
    while (head < end) {
        const char *stop = memmem(head, (size_t)(end - head), "\r\n", 2);
        stop = stop == NULL ? end : stop;
        const char *value = value_of(head, stop, "content-disposition");
        const char *coding = value_of(head, stop, "content-transfer-encoding");
        bool known = coding == NULL;
        if (value != NULL && (!is_word(value, stop, "form-data") ||
                              !find_parameter(&name, value + strlen("form-data"), stop, "name"))) {
            return broken(error, "has a part without one name");
        }
        for (size_t i = 0; i < BY_ARRAY_LENGTH(codings) && !known; i++) {
            known = is_word(coding, stop, codings[i]);
        }
        if (!known) {
            return broken(error, "has a part with a Content-Transfer-Encoding: send it as it is");
        }
        count += value != NULL;
        head = stop + (stop == end ? 0 : 2);
    }
    if (count != 1 || name.length >= 64 || memchr(name.value, '\0', name.length) != NULL) {
        return broken(error, "has a part without one name of at most 63 characters");
    }
    memcpy(out, name.value, name.length);
    out[name.length] = '\0';
    return BY_OK;
}

by_status by__http_multipart_split(by__http_multipart_part parts[BY__MULTIPART_MAX], size_t *count,
                                   const char *type, const char *body, size_t length,
                                   by_error *error)
{
    char mark[MAX_BOUNDARY + 5] = "\r\n";
    const char *end = body + length;
    *count = 0;
    BY_TRY(find_boundary(mark + 2, type, error));
    size_t n = strlen(mark);
    /* The first delimiter needs no preceding line end. */
    bool first = length >= n - 2 && memcmp(body, mark + 2, n - 2) == 0;
    const char *found = first ? body : memmem(body, length, mark, n);
    if (found == NULL) {
        return broken(error, "does not have its boundary");
    }
    const char *at = found + (first ? n - 2 : n);
    while (end - at < 2 || memcmp(at, "--", 2) != 0) {
        if (end - at < 2 || memcmp(at, "\r\n", 2) != 0) {
            return broken(error, "has a boundary without an end of line");
        }
        const char *head = at + 2;
        const char *data = memmem(head - 2, (size_t)(end - head) + 2, "\r\n\r\n", 4);
        const char *next =
            data == NULL ? NULL : memmem(data + 2, (size_t)(end - data) - 2, mark, n);
        if (next == NULL || data - head > MAX_HEAD) {
            return broken(error, "has a part without an end");
        }
        if (*count == BY__MULTIPART_MAX) {
            return by_error_set(error, BY_EARG, "the multipart body has more than %d parts",
                                BY__MULTIPART_MAX);
        }
        by__http_multipart_part *part = &parts[*count];
        BY_TRY(find_name(part->name, head, data > head ? (size_t)(data - head) : 0, error));
        part->data = next < data + 4 ? next : data + 4;
        part->length = (size_t)(next - part->data);
        ++*count;
        at = next + n;
    }
    return BY_OK;
}
