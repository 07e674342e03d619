#include "serve/http/multipart.h"

#include <string.h>

/* RFC 2046, section 5.1.1. */
#define MOST_BOUNDARY 70
#define MOST_HEAD     4096

static by_status broken(by_error *error, const char *what)
{
    return by_error_set(error, BY_EARG, "the multipart body %s", what);
}

/* Makes "--" and the boundary. */
static by_status find_boundary(char out[MOST_BOUNDARY + 3], const char *type, by_error *error)
{
    const char *at = strcasestr(type, "boundary=");
    at = at == NULL ? "" : at + strlen("boundary=");
    bool quoted = *at == '"';
    at += quoted;
    size_t length = quoted ? strcspn(at, "\"") : strcspn(at, "; \t");
    if (length < 1 || length > MOST_BOUNDARY || (quoted && at[length] != '"')) {
        return broken(error, "has a Content-Type without a boundary of 1 to 70 characters");
    }
    memcpy(out, "--", 2);
    memcpy(out + 2, at, length);
    out[length + 2] = '\0';
    return BY_OK;
}

/* Finds the parameter `name` in the Content-Disposition of a part. */
static by_status find_name(char out[64], const char *head, size_t length, by_error *error)
{
    static const char begin[] = "content-disposition:";
    const char *end = head + length;
    while (head < end) {
        const char *line_end = memmem(head, (size_t)(end - head), "\r\n", 2);
        size_t n = (size_t)((line_end == NULL ? end : line_end) - head);
        if (n > sizeof begin && strncasecmp(head, begin, sizeof begin - 1) == 0) {
            const char *at = memmem(head, n, " name=\"", 7);
            const char *quote =
                at == NULL ? NULL : memchr(at + 7, '"', (size_t)(head + n - at - 7));
            size_t size = quote == NULL ? 0 : (size_t)(quote - at - 7);
            if (quote != NULL && size < 64 && memchr(at + 7, '\0', size) == NULL) {
                memcpy(out, at + 7, size);
                out[size] = '\0';
                return BY_OK;
            }
        }
        head += n + (line_end == NULL ? 0 : 2);
    }
    return broken(error, "has a part without a name of at most 63 characters");
}

by_status by__multipart_split(by__multipart_part parts[BY__MULTIPART_MOST], size_t *count,
                              const char *type, const char *body, size_t length, by_error *error)
{
    char mark[MOST_BOUNDARY + 5] = "\r\n";
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
        if (next == NULL || data - head > MOST_HEAD) {
            return broken(error, "has a part without an end");
        }
        if (*count == BY__MULTIPART_MOST) {
            return broken(error, "has more parts than the 264 that are read");
        }
        by__multipart_part *part = &parts[*count];
        BY_TRY(find_name(part->name, head, data > head ? (size_t)(data - head) : 0, error));
        part->data = next < data + 4 ? next : data + 4;
        part->length = (size_t)(next - part->data);
        ++*count;
        at = next + n;
    }
    return BY_OK;
}
