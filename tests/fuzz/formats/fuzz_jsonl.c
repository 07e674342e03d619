/* JSON lines: read to the end or to the first broken line. */
#include <stdlib.h>

#include "formats/json_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__format_json_lines reader = {.data = (const char *)data, .length = size, .field = "text"};
    by_text text;
    bool found = true;
    while (found && by__format_json_lines_next(&reader, &text, &found, &error) == BY_OK) {
        if (found && text.length > 0 && text.data == NULL) {
            abort();
        }
    }
    by__format_json_lines_close(&reader);
    return 0;
}
