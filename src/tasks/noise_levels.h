/* The process by which images become noise in task.kind diffuse, for the loss and for the samplers
 * that run it backwards: at time k of T steps an image is signal x + noise eps, eps normal. */
#ifndef BY_TASKS_NOISE_LEVELS_H
#define BY_TASKS_NOISE_LEVELS_H

#include "banyan/config.h"
#include "banyan/data.h"

/* Shares of image and noise. */
typedef struct by__task_noise_level {
    double signal;
    double noise;
} by__task_noise_level;

typedef struct by__task_diffusion {
    bool flow; /* the model predicts eps - x along a line, else eps */
    int64_t steps;
    by__task_noise_level *levels; /* [steps + 1]: of an image, ..., of noise */
} by__task_diffusion;

/* cosine: the levels of Nichol and Dhariwal (2021), otherwise those of Ho et al. (2020); a flow has
 * its own. */
by_status by__task_diffusion_open(by__task_diffusion *out, bool flow, bool cosine, int64_t steps,
                                  by_error *error);
void by__task_diffusion_close(by__task_diffusion *diffusion);
/* The input "timesteps" of a model at time k, 1 to steps: k of a flow, else k - 1. */
static inline int32_t by__task_diffusion_input(const by__task_diffusion *d, int64_t k)
{
    return (int32_t)(d->flow ? k : k - 1);
}

/* Fills `out` with normal values under a key of 64 bits. The bits are the same on every machine. */
by_status by__task_diffusion_normals(float *out, size_t count, const uint32_t key[2],
                                     by_error *error);

/* ---- noised_source.c ---- */

/* Opens a source of noisy images over `inner`, one of images f32 [C, H, W] with labels. A sample
 * has, beside what else there is, and all of it a function of seed, epoch and sample:
 *   "images"     f32 [C, H, W]  signal x + noise eps at a random time
 *   "classes"    i32            the label; `classes` if there is none or it is dropped
 *   "timesteps"  i32            by__task_diffusion_input
 *   "targets"    f32 [C, H, W]  eps, or eps - x
 * drop: probability that a label is, of a source with epochs. Takes ownership of `inner` and of
 * what the diffusion has, also on failure. BY_EARG: `inner` has other arrays. */
by_status by__task_noised_source_open(by_source **out, by_source *inner,
                                      by__task_diffusion *diffusion, int64_t classes, double drop,
                                      by_error *error);

/* ---- diffuse.c ---- */

/* The process of a config. BY_EARG: its task is another one. */
by_status by__task_diffuse_process(by__task_diffusion *out, const by_config *config,
                                   by_error *error);

#endif
