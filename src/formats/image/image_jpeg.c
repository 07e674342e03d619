#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

#include "formats/image/image_parts.h"

/* Limit on scans of a progressive JPEG: each is a pass over the whole image, however small its
 * data. Encoders write about ten; for the largest image that is decoded 16 are read. */
#define MAX_SCANS   100
#define LEAST_SCANS 16

#define INK 4 /* bytes of a pixel of CMYK */

typedef struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    uint8_t *row;
    int64_t scans_pixels; /* of all scans together, at most */
    char reason[JMSG_LENGTH_MAX];
} jpeg;

static void on_error(j_common_ptr info)
{
    jpeg *j = info->client_data;
    info->err->format_message(info, j->reason);
    longjmp(j->back, 1);
}

/* A warning (level -1) indicates damaged data. */
static void on_message(j_common_ptr info, int level)
{
    if (level < 0) {
        on_error(info);
    }
}

static void on_progress(j_common_ptr info)
{
    jpeg *j = info->client_data;
    int64_t scans = j->info.input_scan_number;
    int64_t pixels = (int64_t)j->info.image_height * j->info.image_width;
    if (scans > MAX_SCANS || scans > j->scans_pixels / pixels) {
        (void)snprintf(j->reason, sizeof j->reason, "more than %d scans", (int)scans - 1);
        longjmp(j->back, 1);
    }
}

/* a * b / 255, rounded as Pillow does. */
static unsigned scaled(unsigned a, unsigned b)
{
    unsigned product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

/* Converts a row of CMYK, which JPEG files hold inverted, as Adobe's programs do, to RGB in its
 * place. */
static void mix_inks(uint8_t *row, int64_t width)
{
    for (uint8_t *p = row; p < row + width * INK; p += INK) {
        unsigned light = p[3]; /* 255 - K */
        for (int c = 0; c < 3; c++) {
            p[c] = (uint8_t)(light - scaled(255u - p[c], light));
        }
    }
}

static void put_row(const by__format_image_decoding *d, const jpeg *j, int64_t y)
{
    if (j->info.output_components == 1) {
        by__format_image_put_grey(d, j->row, y);
    } else if (j->info.output_components == INK) {
        mix_inks(j->row, d->width);
        by__format_image_put_rgb(d, j->row, INK, y);
    } else {
        by__format_image_put_rgb(d, j->row, 3, y);
    }
}

/* The only function that longjmp returns to: state changed after setjmp is in *j. */
static by_status decode(jpeg *j, by__format_image_decoding *d, const uint8_t *data, size_t size,
                        by_error *error)
{
    if (setjmp(j->back) != 0) {
        return by_error_set(error, BY_EFORMAT, "the JPEG is damaged: %s", j->reason);
    }
    j->scans_pixels = LEAST_SCANS * (d->most == 0 ? BY__IMAGE_PIXELS : d->most);
    jpeg_create_decompress(&j->info);
    j->info.progress = &j->progress;
    jpeg_mem_src(&j->info, data, size);
    (void)jpeg_read_header(&j->info, TRUE);
    int parts = j->info.num_components;
    if (parts != 1 && parts != 3 && parts != INK) {
        return by_error_set(error, BY_EFORMAT, "a JPEG of %d components: 1, 3 and 4 are read",
                            parts);
    }
    j->info.scale_num = 1;
    j->info.scale_denom = d->reduction == 0 ? 1 : d->reduction;
    jpeg_calc_output_dimensions(&j->info);
    BY_TRY(by__format_image_begin(d, j->info.output_height, j->info.output_width, error));
    BY_TRY(by__alloc((void **)&j->row, (size_t)d->width, INK, "a row of an image", error));
    j->info.out_color_space = parts == 1 ? JCS_GRAYSCALE : parts == 3 ? JCS_RGB : JCS_CMYK;
    (void)jpeg_start_decompress(&j->info);
    int64_t rows = d->rows > 0 && d->rows < d->height ? d->rows : d->height;
    while ((int64_t)j->info.output_scanline < rows) {
        int64_t y = (int64_t)j->info.output_scanline;
        (void)jpeg_read_scanlines(&j->info, &j->row, 1);
        put_row(d, j, y);
    }
    if (rows == d->height) {
        (void)jpeg_finish_decompress(&j->info);
    }
    return BY_OK;
}

by_status by__format_image_decode_jpeg(by__format_image_decoding *d, const uint8_t *data,
                                       size_t size, by_error *error)
{
    jpeg *j;
    BY_TRY(by__alloc((void **)&j, 1, sizeof *j, "an image", error));
    j->info.err = jpeg_std_error(&j->errors);
    j->info.client_data = j;
    j->errors.error_exit = on_error;
    j->errors.emit_message = on_message;
    j->progress.progress_monitor = on_progress;
    by_status status = decode(j, d, data, size, error);
    jpeg_destroy_decompress(&j->info);
    free(j->row);
    free(j);
    return status;
}
