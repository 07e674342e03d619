/* The header traceparent, as any client may send it: what is read is printed as it came. */
#include <stdlib.h>
#include <string.h>

#include "serve/telemetry/trace_context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__telemetry_trace_context context = {0};
    char printed[BY__TRACEPARENT_BYTES];
    char *header = malloc(size + 1);
    if (header == NULL) {
        return 0;
    }
    memcpy(header, data, size);
    header[size] = '\0';
    if (by__telemetry_trace_read(&context, header)) {
        memcpy(context.span, context.parent, sizeof context.span);
        by__telemetry_trace_print(printed, &context);
        /* All but the flags, of which only one bit has a meaning. */
        if (size < 55 || memcmp(printed, header, 53) != 0) {
            abort();
        }
    }
    free(header);
    return 0;
}
