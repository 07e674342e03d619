/* preprocessor_config.json: what is taken has as many means as deviations, all of them usable. */
#include <math.h>
#include <stdlib.h>

#include "train/tasks/examples_learned.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__examples d = {0};
    if (by__pixel_scales_parse(&d, "f", (const char *)data, size, &error) == BY_OK) {
        for (size_t c = 0; c < d.channels; c++) {
            if (isnan(d.mean[c]) || !(d.deviation[c] > 0.0f)) {
                abort();
            }
        }
    }
    free(d.mean);
    free(d.deviation);
    return 0;
}
