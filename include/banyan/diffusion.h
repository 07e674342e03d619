/* New images from a model of task.kind diffuse: noise becomes images in a few steps, by DDIM (Song
 * et al. 2021, without noise of its own) for a model of the noise, by Euler's method for a flow,
 * with classifier-free guidance (Ho and Salimans 2022).
 *
 * Image n of a seed begins with noise that depends on seed and n only, so that equal seeds give
 * equal images, however many are made together.
 */
#ifndef BANYAN_DIFFUSION_H
#define BANYAN_DIFFUSION_H

#include "banyan/checkpoint.h"
#include "banyan/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_diffusion by_diffusion;

typedef struct by_diffusion_options {
    int64_t steps; /* runs of the model for an image, 1 to task.timesteps; 0: 50 */
    /* The prediction is that without a class plus this times the difference that the class makes;
     * 1: that with the class. */
    double guidance;
    uint64_t seed;
    int64_t batch;         /* images made together, 1 to 1024; 0: 16 */
    const char *precision; /* as for by_infer_precision; NULL: config.precision.compute */
    int threads;           /* 0: config.train.threads */
} by_diffusion_options;

/* Compiles a model and loads its weights. `learned` is the directory with what was learned from the
 * training data, the scales of pixels. All arguments may be closed afterwards. Returns BY_EARG if
 * the model is of another task or an option is out of range, BY_EMEMORY, and errors of the
 * files. */
BY_API by_status by_diffusion_open(by_diffusion **out, const by_config *config,
                                   const by_weights *weights, const char *learned,
                                   const by_diffusion_options *options, by_error *error);
BY_API void by_diffusion_close(by_diffusion **diffusion);
/* Returns the number of images that are made together. */
BY_API int64_t by_diffusion_batch(const by_diffusion *diffusion);
/* Returns the number of classes. */
BY_API int64_t by_diffusion_classes(const by_diffusion *diffusion);
/* Returns the name of a class, which the model's data had; NULL: it has none, or there is no such
 * class. Valid until the diffusion is closed. */
BY_API const char *by_diffusion_class_name(const by_diffusion *diffusion, int64_t class_number);
/* Gets channels, height and width of an image. */
BY_API void by_diffusion_image(const by_diffusion *diffusion, int64_t size[3]);

/* Makes images `first` to `first` + count - 1 of the seed, 1 to by_diffusion_batch of them, each of
 * its class: u8 [count, channels, height, width]. -1: of no class. Returns BY_EARG for another
 * class or count, BY_ESTATE if the weights yield values that are not finite. */
BY_API by_status by_diffusion_run(by_diffusion *diffusion, const int32_t *classes, size_t count,
                                  uint64_t first, uint8_t *pixels, by_error *error);

/* Writes an image u8 [channels, height, width] of 1 or 3 channels as a PNG, atomically. Returns
 * BY_EIO; BY_ECONFIG if the program was built without libpng. */
BY_API by_status by_diffusion_write(const char *path, const uint8_t *pixels, const int64_t size[3],
                                    by_error *error);

#ifdef __cplusplus
}
#endif
#endif
