#include "data/transform/box.h"

#include <math.h>

#define ATTEMPTS 10

bool by__transform_box_draw(by__transform_box *out, const by__transform_box_range *range,
                            const by__transform_draw *draw, int64_t height, int64_t width)
{
    int64_t spare = range->whole ? 0 : 1;
    for (uint64_t i = 0; i < ATTEMPTS; i++) {
        uint32_t random[4];
        by__transform_random(draw, i, random);
        double area = (double)height * (double)width *
                      by__transform_between(random[0], range->area[0], range->area[1]);
        double ratio =
            exp(by__transform_between(random[1], log(range->ratio[0]), log(range->ratio[1])));
        int64_t wide = (int64_t)rint(sqrt(area * ratio));
        int64_t high = (int64_t)rint(sqrt(area / ratio));
        if (wide > 0 && high > 0 && wide <= width - spare && high <= height - spare) {
            *out = (by__transform_box){
                .top = by__transform_below(random[2], (uint32_t)(height - high + 1)),
                .left = by__transform_below(random[3], (uint32_t)(width - wide + 1)),
                .height = high,
                .width = wide};
            return true;
        }
    }
    return false;
}
