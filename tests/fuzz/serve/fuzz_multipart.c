/* multipart/form-data: the first line is the Content-Type, the rest the body. Parts are within the
 * body. */
#include <stdlib.h>
#include <string.h>

#include "serve/http/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__http_multipart_part parts[BY__MULTIPART_MAX];
    size_t count;
    by_error error;
    const uint8_t *line = memchr(data, '\n', size);
    if (line == NULL) {
        return 0;
    }
    char *type = strndup((const char *)data, (size_t)(line - data));
    const char *body = (const char *)line + 1;
    size_t length = (size_t)(data + size - line) - 1;
    if (type != NULL &&
        by__http_multipart_split(parts, &count, type, body, length, &error) == BY_OK) {
        for (size_t i = 0; i < count; i++) {
            if (parts[i].data < body || parts[i].length > length ||
                parts[i].data + parts[i].length > body + length ||
                strlen(parts[i].name) >= sizeof parts[i].name) {
                abort();
            }
        }
    }
    free(type);
    return 0;
}
