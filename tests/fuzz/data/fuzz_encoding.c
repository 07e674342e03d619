/* Encodings as JSON: what is taken is printed, and comes back as the same text. */
#include <stdlib.h>
#include <string.h>

#include "banyan/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by_encoding *encoding;
    by_encoding *again;
    char *first;
    char *second;
    if (by_encoding_parse(&encoding, "f", (const char *)data, size, &error) != BY_OK) {
        return 0;
    }
    if (by_encoding_print(encoding, &first, &error) != BY_OK ||
        by_encoding_parse(&again, "f", first, strlen(first), &error) != BY_OK ||
        by_encoding_print(again, &second, &error) != BY_OK || strcmp(first, second) != 0) {
        abort();
    }
    free(first);
    free(second);
    by_encoding_close(&encoding);
    by_encoding_close(&again);
    return 0;
}
