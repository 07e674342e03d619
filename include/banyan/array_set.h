/* In-memory examples: named arrays whose first axis is the example, such as images u8 [N, C, H, W]
 * and labels i32 [N].
 *
 * A set is split into parts for training, validation and test. A source over a part feeds a loader
 * (data.h), with augmentation for training. Image sets are read from the usual file formats; other
 * arrays are copied from the caller.
 */
#ifndef BANYAN_ARRAY_SET_H
#define BANYAN_ARRAY_SET_H

#include "banyan/data.h"
#include "banyan/formats.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sets ---- */

typedef struct by_array_set by_array_set;

/* Copies the arrays into a new set. `name` is used in messages. Returns BY_EARG if there is no
 * array, two have the same name, one has an extent of 0, or their first extents differ. */
BY_API by_status by_array_set_open(by_array_set **out, const char *name, const by_array *arrays,
                                   size_t count, by_error *error);
/* Closes a set. Close all sources over it first. */
BY_API void by_array_set_close(by_array_set **set);
/* Returns the name given when the set was opened; for image sets, the path of the first image
 * file. */
BY_API const char *by_array_set_name(const by_array_set *set);
/* Returns all arrays and sets *count to their number. */
BY_API const by_array *by_array_set_arrays(const by_array_set *set, size_t *count);
/* Returns the array with this name, or NULL. */
BY_API const by_array *by_array_set_find(const by_array_set *set, const char *name);
/* Returns the number of examples. */
BY_API uint64_t by_array_set_examples(const by_array_set *set);
/* Returns 32 hex digits: an XXH3-128 over names, dtypes, shapes and elements. A resumed run
 * compares it to detect changed data. */
BY_API const char *by_array_set_hash(const by_array_set *set);
/* Returns the records that were skipped on reading (by_image_files.skip) and sets *count to their
 * number. `place` and `begin` are both the index of the record in its file; of pictures, the byte
 * where it lies in its file, and its index in by_image_files.images. */
BY_API const by_damage *by_array_set_damage(const by_array_set *set, size_t *count);

/* Where a picture lies in its file. */
typedef struct by_image_range {
    uint64_t begin;      /* bytes before it */
    uint64_t size;       /* 0: all of the file is the picture */
    by_image_page page;  /* what these bytes are decompressed to */
    const char *problem; /* why it cannot be read, known before; NULL: it may be read */
    const char *sample;  /* its name within the file, for messages; NULL: none */
} by_image_range;

/* Image files to read: array files (optionally gzip-compressed), or one JPEG or PNG per image. */
typedef struct by_image_files {
    /* "auto": array files in IDX (MNIST) or npy format, or JPEG or PNG, recognized by their first
     * bytes. "cifar10" or "cifar100": CIFAR binary files, which hold images and (fine) labels.
     * NULL: "auto". */
    const char *format;
    const char *const *images; /* paths; their examples are concatenated */
    size_t image_count;
    const char *const *labels; /* "auto" only: one file per image file; NULL: no labels */
    size_t label_count;
    const int32_t *classes; /* labels of the images, each a JPEG or PNG; NULL: none */
    /* `labels` are classes of pixels: npy or IDX arrays of integers [N, H, W] of images that are
     * arrays, or for each JPEG or PNG a PNG of one channel, whose values are used as they are
     * stored: indexes of colours, or grey. They are resized as the images, with the nearest pixel.
     * The set then has "labels" u8 [N, H, W], the classes + 1, with 0 where the value is `ignore`
     * or negative, and "weight" f32 [N], the number of pixels of each image that have a class. */
    bool maps;
    int64_t ignore;               /* from 0; -1: none but negative ones */
    const by_image_range *ranges; /* [image_count] of JPEG or PNG files that hold several; NULL:
                                     each file is one image */
    bool skip;                    /* leave out CIFAR records that are truncated or have an invalid
                                label, and JPEG or PNG files that cannot be read */
    const by_image_fit *fit;      /* applied to every image; NULL: images keep their size */
    /* Decode pictures that have `classes` and a `fit` that resizes when they are used, by the
     * threads of a loader, from the files, which stay as they are meanwhile: the array "images" has
     * a shape and no data. With `skip` each is decoded once before. */
    bool on_use;
    int64_t channels; /* of a JPEG or PNG: 1 (grayscale) or 3 (RGB); 0: 3 */
    /* Reads paths that are URLs, and outlives the set; NULL: there are none. Of the library's own
     * use. */
    struct by__remote *remote;
} by_image_files;

/* Reads images u8 [N, C, H, W] and, if there are any, labels i32 [N]. Array files of shape
 * [N, H, W] get one channel; npy files whose last extent is 1, 3 or 4 and whose second is not are
 * taken as [N, H, W, C] and transposed. The EXIF orientation of a JPEG is not applied, as in Pillow
 * and torchvision. Returns BY_EIO or BY_EFORMAT with the file's name if it cannot be read, is
 * malformed or does not match the files before it; BY_EARG if the numbers of image and label files
 * differ or an image does not have the size that a `fit` without resizing asks for. */
BY_API by_status by_image_set_open(by_array_set **out, const by_image_files *files,
                                   by_error *error);

/* ---- parts ---- */

/* A subset of a set's examples: `count` positions from `first` on, in the set's order or, with
 * `random`, in a pseudo-random permutation of the whole set that depends only on `seed` and
 * `total`; or a list of them. */
typedef struct by_part {
    uint64_t first; /* position in the order */
    uint64_t count;
    uint64_t total; /* number of examples in the set */
    uint64_t seed;  /* of the permutation */
    bool random;    /* permuted; false: the set's order */
    /* [count] examples of the part, each below `total`, in its order; then `first` is 0 and
     * `random` false. Must outlive what uses the part. NULL: as above. */
    const uint64_t *rows;
} by_part;

/* Examples held out of training: the last `test` examples, and before them the last `valid`, of the
 * set's order or of a random permutation of it. */
typedef struct by_split {
    uint64_t valid; /* number of validation examples */
    uint64_t test;  /* number of test examples */
    uint64_t seed;  /* of the permutation */
    bool random;    /* permuted; false: the set's order */
} by_split;

/* Returns `fraction` of the examples, rounded to the nearest integer and clamped to [0,
 * examples]. */
BY_API uint64_t by_split_count(uint64_t examples, double fraction);
/* Computes the three parts of a split; any output may be NULL. Returns BY_EARG if nothing is left
 * for training. */
BY_API by_status by_split_parts(by_part *train, by_part *valid, by_part *test, uint64_t examples,
                                const by_split *split, by_error *error);
/* Returns the part that consists of all examples in order. */
BY_API by_part by_part_whole(uint64_t examples);
/* Returns the example of the set at position `index` of a part; index < part->count. */
BY_API uint64_t by_part_example(const by_part *part, uint64_t index);

/* ---- sources ---- */

typedef struct by_array_source_options {
    bool shuffle; /* endless pseudo-random epochs; false: one pass in order */
    /* With `shuffle`, of images that are read when they are used: draw them for a while from about
     * so many files, which are drawn themselves. 0: always from all. */
    size_t shuffle_files;
    /* Array with the labels, i32 or f32, or u8 [N, H, W]: classes of pixels, one higher, and 0 for
     * none, which samples have as i32 [H, W], from 0, and -1 for none. NULL: none */
    const char *target;
    /* With `shuffle`: an epoch has as many samples of each class of `target`, i32 [N]: their
     * numbers differ by at most one. */
    bool balance;
    bool numbers; /* samples also have "example", i32: the number of their example in the set */
    /* With `shuffle`: how often each example of the set is drawn, in proportion to the others;
     * [examples], finite and at least 0. With `balance`, in proportion to those of its class. Not
     * needed after the call. NULL: all alike, and without `balance` each once in an epoch. Which
     * example is drawn is a function of seed, epoch and sample. */
    const double *draws;
    /* Augmentation of the array "images", u8 [N, C, H, W], with `shuffle` only: translation by up
     * to `shift` pixels along each axis, filled with zeros; 0 to less than the image's height and
     * width. */
    int shift;
    bool flip; /* augmentation with `shuffle`: mirror horizontally with probability 1/2 */
    /* Further augmentation of "images" with `shuffle`, in this order, behind these two: texts NAME
     * or NAME=VALUE:VALUE..., as in data.transforms of a config. Not needed after the call. With
     * one that mixes images, such as "mixup", and i32 targets, samples also have "second_labels",
     * i32, and "first_weight" and "second_weight", f32, the weights of both labels in the loss,
     * which add up to "weight". */
    const char *const *transforms;
    size_t transform_count;
    /* Normalization of "images", [C]: pixels become f32, (pixel / 255 - mean) / deviation. NULL, as
     * then `deviation`: they stay u8. */
    const float *mean;
    const float *deviation; /* [C], each > 0 */
} by_array_source_options;

/* Opens a source over the examples of a part. It yields the set's arrays and "weight", f32 [batch]:
 * the weights of examples if the set has an array "weight", f32 [N], whose sum over the global
 * batch then divides the loss; else 1, and in any case 0 for examples that only pad the last batch
 * of a pass. In padding, an i32 target is -1 and
 * everything else 0. Augmentation is a pure function of the loader's seed and the sample's index.
 * The set must outlive the source. Returns BY_EARG if the part is empty or does not belong to the
 * set, an array that the options need is missing or has the wrong type, or an option is out of
 * range. */
BY_API by_status by_array_source_open(by_source **out, const by_array_set *set, const by_part *part,
                                      const by_array_source_options *options, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
