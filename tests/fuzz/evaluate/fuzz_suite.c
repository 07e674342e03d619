/* Any text as a suite, with the rows of its data behind the first NUL: it is read and its items are
 * rendered, or it is refused with a reason. */
#include <stdlib.h>
#include <string.h>

#include "banyan/suite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char standard[] =
        "{\"question\":\"1+1?\",\"choices\":[\"1\",\"2\"],\"gold\":1,\"query\":\"q\","
        "\"context_options\":[\"a\",\"b\"],\"continuation\":\"c\",\"context\":\" d \"}\n"
        "{\"question\":\"2+2?\",\"choices\":[\"4\",\"2\"],\"gold\":0,\"query\":\"r\","
        "\"context_options\":[\"e\",\"f\"],\"continuation\":\"g\",\"context\":\"h\"}\n";
    const char *text = (const char *)data;
    const char *end = size > 0 ? memchr(text, '\0', size) : NULL;
    size_t length = end != NULL ? (size_t)(end - text) : size;
    const char *rows = end != NULL ? end + 1 : standard;
    size_t rows_length = end != NULL ? size - length - 1 : sizeof standard - 1;
    by_suite_options options = {.few_shot = -1, .limit = 4, .seed = BY_SUITE_SEED};
    by_suite *suite;
    by_error error = {0};
    if (by_suite_parse(&suite, text, length, rows, rows_length, &options, &error) != BY_OK) {
        if (error.message[0] == '\0') {
            abort();
        }
        return 0;
    }
    for (size_t t = 0; t < by_suite_tasks(suite) && t < 4; t++) {
        for (size_t i = 0; i < by_suite_items(suite, t); i++) {
            char *out;
            if (by_suite_show(suite, t, i, &out, &error) == BY_OK) {
                free(out);
            }
        }
    }
    by_suite_close(&suite);
    return 0;
}
