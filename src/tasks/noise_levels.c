/* Times and noise of a diffusion: the levels of DDPM and of a flow along lines. */
#include "tasks/noise_levels.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "device/device.h"

/* Betas from 1e-4 to 0.02 of 1,000 steps (Ho et al. 2020), as much in all for other numbers. */
static double linear_beta(int64_t i, int64_t steps)
{
    double scale = 1000.0 / (double)steps;
    double place = steps == 1 ? 0.0 : (double)i / (double)(steps - 1);
    return fmin(scale * (1e-4 + place * (0.02 - 1e-4)), 0.999);
}

/* Nichol and Dhariwal (2021), equation 17. */
static double cosine_level(double place)
{
    double c = cos((place + 0.008) / 1.008 * 1.57079632679489661923);
    return c * c;
}

static double cosine_beta(int64_t i, int64_t steps)
{
    double from = cosine_level((double)i / (double)steps);
    double to = cosine_level((double)(i + 1) / (double)steps);
    return fmin(1.0 - to / from, 0.999);
}

by_status by__task_diffusion_open(by__task_diffusion *out, bool flow, bool cosine, int64_t steps,
                                  by_error *error)
{
    by__task_diffusion d = {.flow = flow, .steps = steps};
    double kept = 1.0; /* of the variance of the image */
    BY_TRY(by__alloc((void **)&d.levels, (size_t)steps + 1, sizeof *d.levels, "levels of noise",
                     error));
    d.levels[0].signal = 1.0;
    for (int64_t k = 1; k <= steps; k++) {
        double time = (double)k / (double)steps;
        kept *= 1.0 - (cosine ? cosine_beta(k - 1, steps) : linear_beta(k - 1, steps));
        d.levels[k] = flow ? (by__task_noise_level){1.0 - time, time}
                           : (by__task_noise_level){sqrt(kept), sqrt(1.0 - kept)};
    }
    *out = d;
    return BY_OK;
}

void by__task_diffusion_close(by__task_diffusion *diffusion)
{
    free(diffusion->levels);
    diffusion->levels = NULL;
}

/* Block by block, so that the threads of a loader start no threads of their own. */
by_status by__task_diffusion_normals(float *out, size_t count, const uint32_t key[2],
                                     by_error *error)
{
    for (size_t i = 0; i < count; i += BY__NORMAL_BLOCK) {
        size_t part = count - i < BY__NORMAL_BLOCK ? count - i : BY__NORMAL_BLOCK;
        BY_TRY(by__cpu_fill_normal_tensor(out + i, (int64_t)i, (int64_t)part, 1.0f, key, error));
    }
    return BY_OK;
}
