/* Samples of noisy images, as a source over one of images. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tasks/noise_levels.h"

/* Purposes of random numbers: "dift" and "difn" in ASCII. */
#define PURPOSE_TIME  ((uint64_t)0x64696674u << 32)
#define PURPOSE_NOISE ((uint64_t)0x6469666eu << 32)

#define MAX_ARRAYS 8

typedef struct noised_source {
    by_source base;
    by_source *inner;
    by__task_diffusion diffusion;
    int32_t classes;
    uint32_t drop; /* a label is dropped where 32 random bits are below this */
    size_t images; /* indexes of arrays */
    size_t labels;
    size_t times;
    size_t targets;
    size_t pixels; /* numbers of an image */
    by_array arrays[MAX_ARRAYS];
} noised_source;

/* A time from 1 to steps. */
static int64_t draw_time(const noised_source *n, uint32_t random)
{
    return 1 + (int64_t)(((uint64_t)random * (uint64_t)n->diffusion.steps) >> 32);
}

/* From a label to a class of the model. */
static int32_t class_of(const noised_source *n, int32_t label, uint32_t random)
{
    bool kept = label >= 0 && !(n->base.shuffle && random < n->drop);
    return kept ? label : n->classes;
}

/* On entry targets are the noise. */
static void add_noise(const noised_source *n, int64_t time, float *images, float *targets)
{
    const by__task_noise_level level = n->diffusion.levels[time];
    float signal = (float)level.signal;
    float noise = (float)level.noise;
    for (size_t i = 0; i < n->pixels; i++) {
        float x = images[i];
        float eps = targets[i];
        images[i] = signal * x + noise * eps;
        targets[i] = n->diffusion.flow ? eps - x : eps;
    }
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const noised_source *n = (const noised_source *)source;
    uint32_t random[4];
    uint32_t key[4];
    int32_t *class = rows[n->labels];
    by_source_random(sample, PURPOSE_TIME, random);
    by_source_random(sample, PURPOSE_NOISE, key);
    int64_t time = draw_time(n, random[0]);
    BY_TRY(n->inner->fill(n->inner, sample, rows, error));
    BY_TRY(by__task_diffusion_normals(rows[n->targets], n->pixels, key, error));
    add_noise(n, time, rows[n->images], rows[n->targets]);
    *class = class_of(n, *class, random[1]);
    *(int32_t *)rows[n->times] = by__task_diffusion_input(&n->diffusion, time);
    return BY_OK;
}

static by_status weigh(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error)
{
    const by_source *inner = ((const noised_source *)source)->inner;
    return inner->weigh(inner, sample, weight, error);
}

static void close_source(by_source *source)
{
    noised_source *n = (noised_source *)source;
    by_source_close(&n->inner);
    by__task_diffusion_close(&n->diffusion);
    free(n);
}

/* Takes the inner source's arrays, and adds the further ones. */
static by_status plan(noised_source *n, const by_source *inner, by_error *error)
{
    size_t count = inner->array_count;
    n->images = n->labels = count;
    for (size_t i = 0; i < count && count + 2 <= MAX_ARRAYS; i++) {
        const by_array *a = &inner->arrays[i];
        n->arrays[i] = *a;
        if (strcmp(a->name, "images") == 0 && a->dtype == BY_F32 && a->shape.rank == 3) {
            n->images = i;
        }
        if (strcmp(a->name, "labels") == 0 && a->dtype == BY_I32 && a->shape.rank == 0) {
            n->labels = i;
            n->arrays[i].name = "classes";
        }
    }
    if (n->images == count || n->labels == count || inner->count != NULL ||
        inner->replaces != NULL) {
        return by_error_set(error, BY_EARG,
                            "%s: noise is added to images with a label each, and to no others",
                            inner->name);
    }
    n->times = count;
    n->targets = count + 1;
    n->arrays[n->times] = (by_array){.name = "timesteps", .dtype = BY_I32};
    n->arrays[n->targets] = n->arrays[n->images];
    n->arrays[n->targets].name = "targets";
    n->pixels = (size_t)by_shape_count(&n->arrays[n->images].shape);
    n->base = *inner;
    n->base.arrays = n->arrays;
    n->base.array_count = count + 2;
    n->base.fill = fill;
    n->base.weigh = inner->weigh == NULL ? NULL : weigh;
    n->base.close = close_source;
    return BY_OK;
}

by_status by__task_noised_source_open(by_source **out, by_source *inner,
                                      by__task_diffusion *diffusion, int64_t classes, double drop,
                                      by_error *error)
{
    noised_source *n = NULL;
    by_status status = by__alloc((void **)&n, 1, sizeof *n, "noisy images", error);
    if (status == BY_OK) {
        status = plan(n, inner, error);
    }
    if (status != BY_OK) {
        free(n);
        by_source_close(&inner);
        by__task_diffusion_close(diffusion);
        return status;
    }
    n->inner = inner;
    n->diffusion = *diffusion;
    n->classes = (int32_t)classes;
    n->drop = (uint32_t)(drop * 4294967296.0);
    *out = &n->base;
    return BY_OK;
}
