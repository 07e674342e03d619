#include "base/prompt_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

by_status cli_read_prompt_file(char **out, size_t *length, const char *path, size_t most,
                               by_error *error)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    size_t capacity = (size_t)1 << 16;
    char *data = malloc(capacity + 1);
    size_t used = 0;
    by_status status = BY_OK;
    if (file == NULL) {
        status = by_error_set(error, BY_EIO, "cannot open %s: %s", path, strerror(errno));
    }
    while (status == BY_OK && data != NULL) {
        used += fread(data + used, 1, capacity - used, file);
        if (ferror(file) != 0) {
            status = by_error_set(error, BY_EIO, "cannot read %s", path);
        } else if (used > most) {
            status = by_error_set(error, BY_EIO, "%s is larger than %zu MiB", path, most >> 20);
        }
        if (used < capacity) {
            break;
        }
        capacity *= 2;
        char *larger = realloc(data, capacity + 1);
        if (larger == NULL) {
            free(data);
        }
        data = larger;
    }
    if (file != NULL && !standard) {
        (void)fclose(file);
    }
    if (data == NULL && status == BY_OK) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: the prompt");
    }
    if (status != BY_OK) {
        free(data);
        return status;
    }
    if (used >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) { /* a byte-order mark */
        used -= 3;
        memmove(data, data + 3, used);
    }
    data[used] = '\0';
    *out = data;
    *length = used;
    return BY_OK;
}
