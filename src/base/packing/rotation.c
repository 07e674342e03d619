/* Positions without parameters: angles of rotary embeddings, that is the frequencies of RoFormer
 * and how they are scaled for contexts longer than the one used in training, and slopes of
 * ALiBi. */
#include <math.h>

#include "banyan/op.h"
#include "base/base.h"

by_rotation by_rotation_of(const by_attrs *attrs)
{
    return (by_rotation){.theta = attrs->theta,
                         .factor = attrs->factor,
                         .low = attrs->low,
                         .high = attrs->high,
                         .wave = attrs->wave,
                         .amplitude = attrs->amplitude == 0.0f ? 1.0f : attrs->amplitude};
}

static float clamp(float x)
{
    return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x;
}

float by_rotation_frequency(const by_rotation *rotation, int64_t i, int64_t width)
{
    float full = 1.0f / powf(rotation->theta, (float)(2 * i) / (float)width);
    float low = rotation->low;
    float range = rotation->high - low;
    if (rotation->factor == 0.0f) {
        return full;
    }
    float kept = rotation->wave == 0.0f
                     ? 1.0f - clamp(((float)i - low) / range)
                     : clamp((rotation->wave * full * 0.15915494309f - low) / range);
    return full / rotation->factor * (1.0f - kept) + full * kept;
}

double by_attention_slope(int64_t heads, int64_t head)
{
    int64_t power = 1;
    while (2 * power <= heads) {
        power *= 2;
    }
    double step = head < power ? (double)(head + 1) : (double)(head - power) + 0.5;
    return exp2(-8.0 * step / (double)power);
}
