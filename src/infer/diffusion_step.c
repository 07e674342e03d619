#include "infer/diffusion_step.h"

/* Both methods are linear in what they are given. */
void by__infer_diffusion_step(const by__task_diffusion *d, int64_t from, int64_t to, float *x,
                              const float *predicted, size_t count)
{
    const by__task_noise_level *a = &d->levels[from];
    const by__task_noise_level *b = &d->levels[to];
    double keep = d->flow ? 1.0 : b->signal / a->signal;
    double take = d->flow ? b->noise - a->noise : b->noise - keep * a->noise;
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(keep * (double)x[i] + take * (double)predicted[i]);
    }
}

void by__infer_diffusion_guide(float *predicted, const float *without, double guidance,
                               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double base = (double)without[i];
        predicted[i] = (float)(base + guidance * ((double)predicted[i] - base));
    }
}
