/* The arithmetic of the samplers of diffusion.c, on numbers alone. */
#ifndef BY_INFER_DIFFUSION_STEP_H
#define BY_INFER_DIFFUSION_STEP_H

#include "tasks/noise_levels.h"

/* The time at which step i of `steps` ends when they are counted down: 0, ..., that of noise. */
static inline int64_t by__infer_diffusion_time(const by__task_diffusion *d, int64_t i,
                                               int64_t steps)
{
    return (2 * d->steps * i + steps) / (2 * steps);
}

/* Moves x from one time to an earlier one, `predicted` being what the model says of it: Euler's
 * step of a flow, else that of DDIM (Song et al. 2021, equation 12 with sigma 0). */
void by__infer_diffusion_step(const by__task_diffusion *d, int64_t from, int64_t to, float *x,
                              const float *predicted, size_t count);
/* Replaces a prediction by without + guidance (predicted - without). */
void by__infer_diffusion_guide(float *predicted, const float *without, double guidance,
                               size_t count);

#endif
