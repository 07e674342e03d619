/* Examples in memory: named arrays whose first axis is the example, such as images u8 [N, C, H, W]
 * and labels i32 [N].
 *
 * A set is cut into parts for training, validation and test, and a source over a part feeds a
 * loader (data.h), with augmentation where it trains. Images come from the files that the field has
 * them in; a program's own arrays are copied.
 */
#ifndef BANYAN_ARRAY_SET_H
#define BANYAN_ARRAY_SET_H

#include "banyan/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sets ---- */

typedef struct by_array_set by_array_set;

/* Copies the arrays. `name` is for messages. BY_EARG: there is none, or two of the same name, or
 * their first extents differ or are 0. */
BY_API by_status by_array_set_open(by_array_set **out, const char *name, const by_array *arrays,
                                   size_t count, by_error *error);
/* Sources over it must be closed before. */
BY_API void by_array_set_close(by_array_set **set);
BY_API const char *by_array_set_name(const by_array_set *set);
/* All arrays; they live as long as the set. */
BY_API const by_array *by_array_set_arrays(const by_array_set *set, size_t *count);
/* The array of this name; NULL when there is none. */
BY_API const by_array *by_array_set_find(const by_array_set *set, const char *name);
/* Number of examples. */
BY_API uint64_t by_array_set_examples(const by_array_set *set);
/* XXH3-128 over names, types, shapes and elements, 32 hex digits: what a resumed run compares. */
BY_API const char *by_array_set_hash(const by_array_set *set);
/* Examples that were left out of its files: `place` and `begin` are the record, counted with them.
 * They live as long as the set. */
BY_API const by_damage *by_array_set_damage(const by_array_set *set, size_t *count);

/* How an image of another size becomes one of the size that a model reads. */
typedef enum by_image_resize {
    BY_RESIZE_NONE = 0, /* not at all: it is refused */
    BY_RESIZE_STRETCH,  /* both sides, each by its own factor */
    BY_RESIZE_CROP      /* the shorter side, and the longer one with it, whose middle is taken */
} by_image_resize;

typedef enum by_image_resample { BY_RESAMPLE_BILINEAR = 0, BY_RESAMPLE_BICUBIC } by_image_resample;

typedef struct by_image_fit {
    by_image_resize resize;
    by_image_resample resample; /* as Pillow's, antialiased */
    int64_t height;
    int64_t width;
    int64_t edge; /* of BY_RESIZE_CROP: the shorter side before the middle is taken, at least height
                     and width; 0: the larger of these */
} by_image_fit;

/* Image files: arrays, each of which gzip may have compressed, or a JPEG or PNG each. */
typedef struct by_image_files {
    /* "auto": pairs of files, IDX (MNIST) or npy by their first bytes; "cifar10" or "cifar100":
     * binary files that hold labels (the fine ones) and images. NULL: "auto". */
    const char *format;
    const char *const *images; /* paths; examples of the files one after another */
    size_t image_count;
    const char *const *labels; /* with "auto": one for each file of images; NULL: no labels */
    size_t label_count;
    bool skip; /* CIFAR records that are cut short or have no label of the classes are left out */
    const by_image_fit *fit; /* that images go through; NULL: they keep their size */
    int64_t channels;        /* of a JPEG or PNG: 1, grey, or 3, RGB; 0: 3 */
} by_image_files;

/* Reads images u8 [N, C, H, W] and labels i32 [N] (when there are any). Files of shape [N, H, W]
 * get one channel; npy files whose last extent is 1, 3 or 4 and whose second is not are taken as
 * [N, H, W, C] and transposed. A JPEG or PNG is one image; its orientation in EXIF is not applied,
 * as Pillow and torchvision do not. BY_EIO, BY_EFORMAT name the file; BY_EARG: the numbers of files
 * or examples do not agree, or an image does not have the size of `fit`, which resizes nothing. */
BY_API by_status by_image_set_open(by_array_set **out, const by_image_files *files,
                                   by_error *error);

/* ---- parts ---- */

/* Some examples of a set: `count` places from `first` on, of the set's order or, with `random`, of
 * a pseudo-random order of all of it that depends on the seed and `total` alone. */
typedef struct by_part {
    uint64_t first;
    uint64_t count;
    uint64_t total; /* examples of the set */
    uint64_t seed;
    bool random;
} by_part;

/* What is held out of training: the last `test` examples, and the last `valid` before them, of the
 * set's order or of a random one. */
typedef struct by_split {
    uint64_t valid;
    uint64_t test;
    uint64_t seed;
    bool random;
} by_split;

/* A fraction of the examples, rounded to the nearest number. */
BY_API uint64_t by_split_count(uint64_t examples, double fraction);
/* Any of the parts may be NULL. BY_EARG: nothing is left to train on. */
BY_API by_status by_split_parts(by_part *train, by_part *valid, by_part *test, uint64_t examples,
                                const by_split *split, by_error *error);
/* All examples in order. */
BY_API by_part by_part_whole(uint64_t examples);
/* Which example of the set is the part's example `index` < count. */
BY_API uint64_t by_part_example(const by_part *part, uint64_t index);

/* ---- sources ---- */

typedef struct by_array_source_options {
    bool shuffle;       /* epochs without end in pseudo-random order; false: one pass in order */
    const char *target; /* i32 or f32 array; NULL: none */
    /* Of the array "images", u8 [N, C, H, W]: */
    int shift;         /* training: moved by up to so many pixels along each axis, at random; what
                             comes in is 0 */
    bool flip;         /* training: mirrored left to right, one time in two */
    const float *mean; /* [C] both or none: pixels become f32, (pixel / 255 - mean) / deviation */
    const float *deviation;
} by_array_source_options;

/* A source of the examples of a part: the set's arrays, and "weight", f32 [batch]: 1, or 0 in
 * examples that only fill up the last batch of a pass. In those, a target i32 is -1 and all else is
 * 0. Augmentation is a pure function of the loader's seed and the sample's index. The set must
 * outlive the source. BY_EARG: the part is empty or of another set, an array that the options want
 * is not there, or a shift is not below the image's height and width. */
BY_API by_status by_array_source_open(by_source **out, const by_array_set *set, const by_part *part,
                                      const by_array_source_options *options, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
