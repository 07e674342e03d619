/* Image processors of transformers, whose settings preprocessor_config.json holds: what a key means
 * and what holds without it depends on the processor. */
#ifndef BY_FORMATS_IMAGE_IMAGE_PROCESSOR_H
#define BY_FORMATS_IMAGE_IMAGE_PROCESSOR_H

#include "base/base.h"
#include "base/json.h"

/* What holds for the keys that a file lacks. */
typedef struct by__format_image_processor {
    const char *name;    /* "image_processor_type" without its ending; "": the file has none */
    bool resizes;        /* "do_resize" */
    bool crops;          /* "do_center_crop" */
    bool square;         /* a "size" of one number is that of both sides, not of the shortest */
    bool keeps_share;    /* resizes to "size" / "crop_pct", of which the center is kept */
    bool divides_twice;  /* divides by "image_std" again with "include_top" */
    int resample;        /* Pillow's number of the filter */
    int64_t size;        /* of both sides, or of the shortest; 0: there is none */
    int64_t crop;        /* of both sides; 0: there is none */
    double mean[3];      /* "image_mean" */
    double deviation[3]; /* "image_std"; 0: there is none */
} by__format_image_processor;

/* Parses the text of a file at `path`, which is for messages. BY_EFORMAT: it is not JSON, is of
 * another processor, or asks for a step that is none of those that are built. Free *root with
 * json_decref. */
by_status by__format_image_processor_parse(json_t **root, const by__format_image_processor **out,
                                           const char *path, const char *text, size_t length,
                                           by_error *error);
/* Reads a key, where null stands for a key that is not there. BY_EFORMAT: it is of another kind. */
by_status by__format_image_processor_flag(bool *out, const json_t *root, const char *path,
                                          const char *key, bool usual, by_error *error);
by_status by__format_image_processor_number(double *out, const json_t *root, const char *path,
                                            const char *key, double usual, by_error *error);
/* The value of a key that is there; NULL: there is none. */
const json_t *by__format_image_processor_value(const json_t *root, const char *key);
/* BY_EFORMAT that names a key, its value and, in `what`, what is wrong and the way out. */
by_status by__format_image_processor_refuse(const json_t *root, const char *path, const char *key,
                                            const char *what, by_error *error);

#endif
