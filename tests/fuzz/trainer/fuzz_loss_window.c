/* What is read as a window of losses is printed as the same text, and is finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/probes/probes.h"
#include "trainer/state/guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__trainer_guard guard = {0};
    by_string again = {0};
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    if (by__trainer_window_parse(&guard, text, NULL) == BY_OK) {
        for (int64_t i = 0; i < guard.count; i++) {
            if (!isfinite(guard.losses[i])) {
                abort();
            }
        }
        if (by__trainer_window_print(&again, &guard) != BY_OK ||
            (guard.count > 0 && strcmp(again.data, text) != 0)) {
            abort();
        }
    }
    by_string_free(&again);
    free(text);
    return 0;
}
