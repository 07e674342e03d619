/* What files hold: columns of times, and images of any size. */
#ifndef BANYAN_FORMATS_H
#define BANYAN_FORMATS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Unit of a column of times. */
typedef enum by_time_unit {
    BY_UNIT_NONE = 0, /* not a time, or a number of which this is not known */
    BY_UNIT_DAY,
    BY_UNIT_SECOND,
    BY_UNIT_MILLISECOND,
    BY_UNIT_MICROSECOND,
    BY_UNIT_NANOSECOND
} by_time_unit;

/* Where a column of times begins to count: 1970 in UTC or in some local time, or not known which of
 * them; or midnight, for a time of day. */
typedef enum by_time_origin {
    BY_ORIGIN_ANY = 0,
    BY_ORIGIN_UTC,
    BY_ORIGIN_LOCAL,
    BY_ORIGIN_MIDNIGHT
} by_time_origin;

typedef struct by_time {
    by_time_unit unit;
    by_time_origin origin;
} by_time;

/* How an image is brought to the size that a model expects. */
typedef enum by_image_resize {
    BY_RESIZE_NONE = 0, /* not at all: an image of another size is an error */
    BY_RESIZE_STRETCH,  /* scale height and width independently, and crop the center if
                           `whole_height` and `whole_width` are set */
    BY_RESIZE_CROP      /* scale the shorter side to `edge`, keep the aspect ratio, crop the
                           center */
} by_image_resize;

/* Interpolation filter, bit for bit as Pillow's Image.resize. The first two antialias when
 * shrinking. */
typedef enum by_image_resample {
    BY_RESAMPLE_BILINEAR = 0,
    BY_RESAMPLE_BICUBIC,
    BY_RESAMPLE_NEAREST /* the pixel nearest to the center of each */
} by_image_resample;

/* The size of images for a model, and how to reach it. */
typedef struct by_image_fit {
    by_image_resize resize;     /* default BY_RESIZE_NONE */
    by_image_resample resample; /* default BY_RESAMPLE_BILINEAR */
    int64_t height;             /* of the result, in pixels */
    int64_t width;              /* of the result, in pixels */
    int64_t edge;               /* with BY_RESIZE_CROP: shorter side before the crop, >= height
                                   and width; 0: their maximum */
    int64_t whole_height;       /* with BY_RESIZE_STRETCH: before the crop, >= height; 0: height */
    int64_t whole_width;        /* the same of the width */
} by_image_fit;

/* How a picture is kept in a page of a Parquet file, whose bytes are compressed together. */
typedef struct by_image_page {
    uint64_t size;   /* bytes of the page when it is decompressed; 0: the picture is in no page */
    uint64_t begin;  /* of the picture in these */
    uint64_t length; /* of the picture */
    int codec;       /* Parquet's number of it */
} by_image_page;

#ifdef __cplusplus
}
#endif

#endif
