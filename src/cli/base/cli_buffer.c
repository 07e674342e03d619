#include <stdlib.h>
#include <string.h>

#include "base/cli.h"

by_status cli_buffer_add(cli_buffer *b, const char *bytes, size_t n, by_error *error)
{
    if (b->capacity - b->length <= n) {
        size_t capacity = 2 * b->capacity + n + 256;
        char *larger = realloc(b->data, capacity);
        if (larger == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a text");
        }
        b->data = larger;
        b->capacity = capacity;
    }
    if (n > 0) {
        memcpy(b->data + b->length, bytes, n);
    }
    b->length += n;
    b->data[b->length] = '\0';
    return BY_OK;
}

by_status cli_buffer_add_json(cli_buffer *b, const char *text, size_t n, by_error *error)
{
    by_status status = cli_buffer_add(b, "\"", 1, error);
    for (size_t i = 0; i < n && status == BY_OK;) {
        char piece[8];
        i += cli_json_character(piece, text + i, n - i);
        status = cli_buffer_add(b, piece, strlen(piece), error);
    }
    return status == BY_OK ? cli_buffer_add(b, "\"", 1, error) : status;
}
