/* Transforms of training images: a chain of rows of a table, each in a file of its own.
 *
 * What a transform draws is a function of the loader's seed and the sample's index over all epochs,
 * so an image looks the same for any number of ranks and threads and after a resume. Transforms
 * keep the size of an image, and apply to training data alone. The classes of an image's pixels are
 * a plane that those rows change in the same way which move pixels. One of a chain may mix the
 * image with that of another sample, drawn in the same way: the sample then has two labels. What
 * held-out data needs as well, its size and the scale of its pixels, is kept with the weights:
 * by_image_fit, by__loader_pixel_scales.
 *
 * Adding one: its file, its line in transforms.c, and its case in
 * tests/unit/data/test_transforms.c.
 *
 * Never put here: files, the order of samples, sizes that a model needs. */
#ifndef BY_DATA_TRANSFORM_TRANSFORM_H
#define BY_DATA_TRANSFORM_TRANSFORM_H

#include "banyan/data.h"
#include "base/base.h"

#define BY__TRANSFORM_PARAMETERS 4
#define BY__TRANSFORM_CHAIN      16

/* Images of a source: planes u8 [channels, height, width]. */
typedef struct by__transform_size {
    size_t channels;
    size_t height;
    size_t width;
    bool labels; /* a plane of classes, 0 for none: pixels are moved and nothing else, and none is a
                    mean of others */
} by__transform_size;

/* Where the random bits of one transform come from, and its part of a thread's memory. */
typedef struct by__transform_draw {
    const by_source_sample *sample;
    uint64_t purpose;
    void *scratch; /* row->scratch bytes, aligned to a cache line */
} by__transform_draw;

/* A part of an image. */
typedef struct by__transform_box {
    int64_t top;
    int64_t left;
    int64_t height;
    int64_t width;
} by__transform_box;

typedef struct by__transform_parameter {
    const char *name; /* for messages */
    double fallback;
    double min;
    double max;
    bool whole;
} by__transform_parameter;

/* A row of the table. */
typedef struct by__transform_row {
    const char *name;
    by__transform_parameter parameters[BY__TRANSFORM_PARAMETERS]; /* those without name: none */
    uint64_t stream; /* of random bits: a number below 2^32 that no other transform has, unless
                        they use different words of a block */
    /* Refuses what the size of the images does not allow. NULL: nothing. */
    by_status (*check)(const double *parameters, const by__transform_size *size, by_error *error);
    /* Writes the transformed image `in` to `out`. Returns false, and leaves `out` as it is, if the
     * draw is not to change the image. NULL: the row has `mix`. */
    bool (*apply)(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out);
    /* `apply` may move pixels, and then does the same to planes of classes. */
    bool moves;
    /* Draws the part of an image of this size that `apply` resizes to the size of the chain: who
     * decodes images decodes no more. NULL: the row changes all of an image. */
    void (*crop)(const double *parameters, const by__transform_draw *draw, int64_t height,
                 int64_t width, by__transform_box *box);
    /* Bytes of a thread's memory that the row works in. NULL: none. */
    size_t (*scratch)(const by__transform_size *size);
    /* Mixes an image with `other` and returns the share of `in` in the sample's label, from 0 to 1;
     * with 1, `out` is left as it is. */
    double (*mix)(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, const uint8_t *other,
                  uint8_t *out);
} by__transform_row;

typedef struct by__transform_step {
    const by__transform_row *row;
    double parameters[BY__TRANSFORM_PARAMETERS];
    uint64_t turn; /* number of steps of the same row before it */
} by__transform_step;

typedef struct by__transform_chain {
    by__transform_size size;
    by__transform_step steps[BY__TRANSFORM_CHAIN];
    size_t count;
} by__transform_chain;

/* Appends NAME or NAME=VALUE:VALUE..., such as "shift=2"; missing values have their defaults.
 * BY_EARG names the text. */
by_status by__transform_add(by__transform_chain *chain, const char *text, by_error *error);
/* Checks all against chain->size. */
by_status by__transform_check(const by__transform_chain *chain, by_error *error);
/* Bytes of a thread's scratch; 0: the chain is empty. */
size_t by__transform_scratch(const by__transform_chain *chain);
/* Returns true if a step mixes images. */
bool by__transform_mixes(const by__transform_chain *chain);
/* The place, below `samples`, of the sample that this one is mixed with. */
uint64_t by__transform_partner(const by_source_sample *sample, uint64_t samples);
/* That sample, with draws of its own for the image of the partner. */
by_source_sample by__transform_partner_sample(const by_source_sample *sample);
/* The draw of a step whose `crop` is asked for alone. */
by__transform_draw by__transform_draw_of(const by__transform_step *step,
                                         const by_source_sample *sample);
/* Returns the transformed image: in the scratch, or `in` if nothing changes it. other: the image of
 * the partner if the chain mixes, which the steps before that change as well, with draws of their
 * own. *share: of the sample's own label, 1 if nothing is mixed. */
const uint8_t *by__transform_apply(const by__transform_chain *chain, const by_source_sample *sample,
                                   const uint8_t *in, const uint8_t *other, void *scratch,
                                   double *share);

/* The same of the plane of the classes of its pixels, for a chain that does not mix; of the scratch
 * two planes are used. */
const uint8_t *by__transform_apply_labels(const by__transform_chain *chain,
                                          const by_source_sample *sample, const uint8_t *in,
                                          void *scratch);

/* Gets block `block` < 2^16 of a transform's random bits. */
static inline void by__transform_random(const by__transform_draw *draw, uint64_t block,
                                        uint32_t out[4])
{
    by_source_random(draw->sample, draw->purpose + (block << 48), out);
}

/* A number from `low` to `high`. */
static inline double by__transform_between(uint32_t bits, double low, double high)
{
    return low + (high - low) * ((double)bits * 0x1p-32);
}

/* A whole number below `count`. */
static inline uint32_t by__transform_below(uint32_t bits, uint32_t count)
{
    return (uint32_t)((uint64_t)bits * count >> 32);
}

#endif
