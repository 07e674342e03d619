#include "data/formats/image_file.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

/* Limit on scans of a progressive JPEG: each is a pass over the whole image, however small its
 * data. Encoders write about ten; for a large image 16 are read. */
#define MOST_SCANS   100
#define SCANS_PIXELS ((int64_t)16 * BY__IMAGE_PIXELS)

/* An image being decoded. */
typedef struct decoding {
    int64_t channels;
    const by_image_fit *fit;
    uint8_t *pixels; /* [channels, height, width] */
    int64_t height;
    int64_t width;
} decoding;

/* Allocates an image of this size, if it may be decoded. */
static by_status begin(decoding *d, int64_t height, int64_t width, by_error *error)
{
    if (d->fit->height > 0) {
        BY_TRY(by__image_fit_takes(d->fit, height, width, error));
    }
    if (height < 1 || width < 1 || height > BY__IMAGE_PIXELS / width) {
        return by_error_set(error, BY_EARG, "an image of %lld x %lld pixels; up to %lld are read",
                            (long long)width, (long long)height, (long long)BY__IMAGE_PIXELS);
    }
    d->height = height;
    d->width = width;
    return by__alloc((void **)&d->pixels, (size_t)(height * width), (size_t)d->channels, "an image",
                     error);
}

/* Converts a row of interleaved pixels to planes. */
static void put_row(const decoding *d, const uint8_t *row, int64_t y)
{
    for (int64_t c = 0; c < d->channels; c++) {
        for (int64_t x = 0; x < d->width; x++) {
            d->pixels[(c * d->height + y) * d->width + x] = row[x * d->channels + c];
        }
    }
}

/* ---- JPEG ---- */

typedef struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    uint8_t *row;
    char reason[JMSG_LENGTH_MAX];
} jpeg;

static void on_jpeg_error(j_common_ptr info)
{
    jpeg *j = info->client_data;
    info->err->format_message(info, j->reason);
    longjmp(j->back, 1);
}

/* A warning (level -1) indicates damaged data. */
static void on_jpeg_message(j_common_ptr info, int level)
{
    if (level < 0) {
        on_jpeg_error(info);
    }
}

static void on_jpeg_progress(j_common_ptr info)
{
    jpeg *j = info->client_data;
    int64_t scans = j->info.input_scan_number;
    int64_t pixels = (int64_t)j->info.image_height * j->info.image_width;
    if (scans > MOST_SCANS || scans > SCANS_PIXELS / pixels) {
        (void)snprintf(j->reason, sizeof j->reason, "more than %d scans", (int)scans - 1);
        longjmp(j->back, 1);
    }
}

/* The only function that longjmp returns to: state changed after setjmp is in *j. */
static by_status run_jpeg(jpeg *j, decoding *d, const uint8_t *data, size_t size, by_error *error)
{
    if (setjmp(j->back) != 0) {
        return by_error_set(error, BY_EFORMAT, "the JPEG is damaged: %s", j->reason);
    }
    jpeg_create_decompress(&j->info);
    j->info.progress = &j->progress;
    jpeg_mem_src(&j->info, data, size);
    (void)jpeg_read_header(&j->info, TRUE);
    BY_TRY(begin(d, j->info.image_height, j->info.image_width, error));
    BY_TRY(by__alloc((void **)&j->row, (size_t)d->width, (size_t)d->channels, "a row of an image",
                     error));
    j->info.out_color_space = d->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    (void)jpeg_start_decompress(&j->info);
    while (j->info.output_scanline < j->info.output_height) {
        int64_t y = (int64_t)j->info.output_scanline;
        (void)jpeg_read_scanlines(&j->info, &j->row, 1);
        put_row(d, j->row, y);
    }
    (void)jpeg_finish_decompress(&j->info);
    return BY_OK;
}

static by_status decode_jpeg(decoding *d, const uint8_t *data, size_t size, by_error *error)
{
    jpeg *j;
    BY_TRY(by__alloc((void **)&j, 1, sizeof *j, "an image", error));
    j->info.err = jpeg_std_error(&j->errors);
    j->info.client_data = j;
    j->errors.error_exit = on_jpeg_error;
    j->errors.emit_message = on_jpeg_message;
    j->progress.progress_monitor = on_jpeg_progress;
    by_status status = run_jpeg(j, d, data, size, error);
    jpeg_destroy_decompress(&j->info);
    free(j->row);
    free(j);
    return status;
}

/* ---- PNG ---- */

#define PNG_HEAD 8 /* bytes before the first chunk */

/* Returns true if a chunk of this type affects pixels: all critical ones (the first letter is a
 * capital), and those of transparency and colours. */
static bool changes_pixels(const uint8_t *type)
{
    static const char *const names[] = {"tRNS", "gAMA", "cHRM", "sRGB", "iCCP", "sBIT", "bKGD"};
    bool found = (type[0] & 0x20) == 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names) && !found; i++) {
        found = memcmp(type, names[i], 4) == 0;
    }
    return found;
}

/* Copies a PNG without the chunks that do not affect pixels; returns its size. libpng would
 * decompress and keep a thousand texts of up to 8 MB each, whatever its settings. */
static size_t copy_chunks(uint8_t *out, const uint8_t *data, size_t size)
{
    size_t at = PNG_HEAD;
    size_t used = PNG_HEAD;
    memcpy(out, data, PNG_HEAD);
    while (size - at >= 12) {
        const uint8_t *c = data + at;
        size_t length = (size_t)c[0] << 24 | (size_t)c[1] << 16 | (size_t)c[2] << 8 | c[3];
        if (length > size - at - 12) {
            break;
        }
        if (changes_pixels(c + 4)) {
            memcpy(out + used, c, length + 12);
            used += length + 12;
        }
        at += length + 12;
    }
    memcpy(out + used, data + at, size - at); /* not a chunk: libpng will report it */
    return used + size - at;
}

static by_status read_png(decoding *d, const uint8_t *data, size_t size, by_error *error)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0};
    uint8_t *pixels = NULL;
    if (png_image_begin_read_from_memory(&image, data, size) == 0) {
        return by_error_set(error, BY_EFORMAT, "the PNG is damaged: %s", image.message);
    }
    by_status status = begin(d, image.height, image.width, error);
    size_t row = (size_t)d->width * (size_t)d->channels;
    if (status == BY_OK) {
        status = by__alloc((void **)&pixels, (size_t)d->height, row, "an image", error);
    }
    image.format = d->channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    if (status == BY_OK &&
        (png_image_finish_read(&image, &black, pixels, (png_int_32)row, NULL) == 0 ||
         PNG_IMAGE_FAILED(image))) {
        status = by_error_set(error, BY_EFORMAT, "the PNG is damaged: %s", image.message);
    }
    for (int64_t y = 0; y < d->height && status == BY_OK; y++) {
        put_row(d, pixels + (size_t)y * row, y);
    }
    png_image_free(&image);
    free(pixels);
    return status;
}

static by_status decode_png(decoding *d, const uint8_t *data, size_t size, by_error *error)
{
    uint8_t *plain;
    BY_TRY(by__alloc((void **)&plain, size, 1, "an image", error));
    by_status status = read_png(d, plain, copy_chunks(plain, data, size), error);
    free(plain);
    return status;
}

/* ---- both ---- */

static bool is_jpeg(const uint8_t *data, size_t size)
{
    return size >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff;
}

static bool is_png(const uint8_t *data, size_t size)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return size >= sizeof png && memcmp(data, png, sizeof png) == 0;
}

bool by__image_is_file(const uint8_t *data, size_t size)
{
    return is_jpeg(data, size) || is_png(data, size);
}

/* Fits the decoded image to the model's input. */
static by_status fit_decoded(decoding *d, by_error *error)
{
    uint8_t *fitted;
    if (d->fit->resize == BY_RESIZE_NONE) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&fitted, (size_t)(d->fit->height * d->fit->width),
                     (size_t)d->channels, "an image", error));
    by_status status =
        by__image_fit(fitted, d->fit, d->channels, d->pixels, d->height, d->width, error);
    free(d->pixels);
    d->pixels = fitted;
    d->height = d->fit->height;
    d->width = d->fit->width;
    return status;
}

by_status by__image_decode(uint8_t **out, int64_t *height, int64_t *width, int64_t channels,
                           const by_image_fit *fit, const uint8_t *data, size_t size,
                           by_error *error)
{
    decoding d = {.channels = channels, .fit = fit};
    if (channels != 1 && channels != 3) {
        return by_error_set(error, BY_EARG,
                            "the model reads %lld channels; a JPEG or PNG gives it 1 or 3",
                            (long long)channels);
    }
    by_status status = is_jpeg(data, size)  ? decode_jpeg(&d, data, size, error)
                       : is_png(data, size) ? decode_png(&d, data, size, error)
                                            : by_error_set(error, BY_EFORMAT,
                                                           "the image is neither a JPEG nor a PNG");
    if (status == BY_OK) {
        status = fit_decoded(&d, error);
    }
    if (status != BY_OK) {
        free(d.pixels);
        return status;
    }
    *out = d.pixels;
    *height = d.height;
    *width = d.width;
    return BY_OK;
}
