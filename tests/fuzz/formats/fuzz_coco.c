/* COCO annotations: refused, or every image drawn within its bounds with classes that there are. */
#include <stdlib.h>

#include "formats/coco.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__format_coco *coco;
    by_error error;
    if (by__format_coco_open(&coco, "f", (const char *)data, size, &error) != BY_OK) {
        return 0;
    }
    for (size_t i = 0; i < by__format_coco_images(coco); i++) {
        int64_t height;
        int64_t width;
        by__format_coco_size(coco, i, &height, &width);
        if (height * width > 1 << 14) {
            continue;
        }
        uint8_t *map = malloc((size_t)(height * width));
        if (map != NULL && by__format_coco_draw(map, coco, i, &error) == BY_OK) {
            for (int64_t p = 0; p < height * width; p++) {
                if (map[p] == 255) {
                    abort();
                }
            }
        }
        free(map);
    }
    by__format_coco_close(&coco);
    return 0;
}
