/* What a file is, by its first bytes: a named kind is never taken for a text, and every refusal
 * names the file. */
#include <stdlib.h>
#include <string.h>

#include "base/host/file_kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    size_t start = size < BY__FILE_KIND_BYTES ? size : BY__FILE_KIND_BYTES;
    const char *kind = by__file_kind(data, start);
    by_status status = by__file_check_text("notes.txt", data, size, "text", &error);
    if ((kind != NULL && status == BY_OK) ||
        (status != BY_OK && (status != BY_EFORMAT || strstr(error.message, "notes.txt") == NULL)) ||
        (kind != NULL && strstr(error.message, kind) == NULL)) {
        abort();
    }
    return 0;
}
