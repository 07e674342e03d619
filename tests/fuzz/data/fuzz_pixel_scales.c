/* preprocessor_config.json: what is taken has as many means as deviations, all of them usable, and
 * sizes that images can be resized to. */
#include <math.h>
#include <stdlib.h>

#include "data/loader/pixel_scales.h"
#include "formats/image/image_fit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by__loader_pixel_scales d = {0};
    if (by__loader_pixel_scales_parse(&d, "f", (const char *)data, size, 0, &error) == BY_OK) {
        for (size_t c = 0; c < d.channels; c++) {
            if (isnan(d.mean[c]) || !(d.deviation[c] > 0.0f)) {
                abort();
            }
        }
    }
    by__loader_pixel_scales_free(&d);
    by_image_fit fit;
    if (by__format_image_fit_parse(&fit, "f", (const char *)data, size, &error) == BY_OK &&
        fit.resize != BY_RESIZE_NONE &&
        (fit.height < 1 || fit.height > BY__IMAGE_SIDE || fit.width < 1 ||
         fit.width > BY__IMAGE_SIDE ||
         (fit.edge > 0 && (fit.edge < fit.height || fit.edge < fit.width)))) {
        abort();
    }
    return 0;
}
