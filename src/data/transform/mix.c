#include "data/transform/mix.h"

#include <math.h>

#define LAST_BLOCK 1000 /* alpha is at most 1: a draw fails at most every second time */

/* In (0, 1). */
static double uniform(uint32_t bits)
{
    return ((double)bits + 0.5) * 0x1p-32;
}

/* Jöhnk (1964): u^(1/alpha) / (u^(1/alpha) + v^(1/alpha)) where that sum is at most 1; with
 * logarithms, since a small alpha makes both vanish. */
static double draw_beta(double alpha, const by__transform_draw *draw)
{
    for (uint64_t block = 1; block < LAST_BLOCK; block++) {
        uint32_t random[4];
        by__transform_random(draw, block, random);
        for (int i = 0; i < 4; i += 2) {
            double u = log(uniform(random[i])) / alpha;
            double v = log(uniform(random[i + 1])) / alpha;
            double most = fmax(u, v);
            double sum = most + log(exp(u - most) + exp(v - most));
            if (sum <= 0.0) {
                return exp(u - sum);
            }
        }
    }
    return 1.0;
}

uint32_t by__transform_mix_share(const double *parameters, const by__transform_draw *draw)
{
    uint32_t random[4];
    by__transform_random(draw, 0, random);
    if ((double)random[2] >= 4294967296.0 * parameters[BY__MIX_PROBABILITY]) {
        return BY__MIX_PARTS;
    }
    return (uint32_t)lrint(BY__MIX_PARTS * draw_beta(parameters[BY__MIX_ALPHA], draw));
}
