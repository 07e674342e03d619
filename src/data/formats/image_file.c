#include "data/formats/image_file.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

/* Scans of a progressive JPEG: each is a pass over the whole image, whatever its bytes. */
#define MOST_SCANS 100

static by_status check_size(int64_t have_width, int64_t have_height, int64_t width, int64_t height,
                            by_error *error)
{
    return have_width == width && have_height == height
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "an image of %lld x %lld pixels; the model reads %lld x %lld",
                              (long long)have_width, (long long)have_height, (long long)width,
                              (long long)height);
}

/* Rows of pixels to planes of channels. */
static void put_row(uint8_t *out, const uint8_t *row, int64_t y, int64_t channels, int64_t height,
                    int64_t width)
{
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t x = 0; x < width; x++) {
            out[(c * height + y) * width + x] = row[x * channels + c];
        }
    }
}

/* ---- JPEG ---- */

typedef struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    char reason[JMSG_LENGTH_MAX];
} jpeg;

static void on_jpeg_error(j_common_ptr info)
{
    jpeg *j = info->client_data;
    info->err->format_message(info, j->reason);
    longjmp(j->back, 1);
}

/* A warning (level -1) is one of damaged data. */
static void on_jpeg_message(j_common_ptr info, int level)
{
    if (level < 0) {
        on_jpeg_error(info);
    }
}

static void on_jpeg_progress(j_common_ptr info)
{
    jpeg *j = info->client_data;
    if (j->info.input_scan_number > MOST_SCANS) {
        (void)snprintf(j->reason, sizeof j->reason, "more than %d scans", MOST_SCANS);
        longjmp(j->back, 1);
    }
}

/* The only function that is jumped back to: what it changes behind setjmp is in *j. */
static by_status run_jpeg(jpeg *j, uint8_t *row, uint8_t *out, int64_t channels, int64_t height,
                          int64_t width, const uint8_t *data, size_t size, by_error *error)
{
    if (setjmp(j->back) != 0) {
        return by_error_set(error, BY_EFORMAT, "the JPEG is damaged: %s", j->reason);
    }
    jpeg_create_decompress(&j->info);
    j->info.progress = &j->progress;
    jpeg_mem_src(&j->info, data, size);
    (void)jpeg_read_header(&j->info, TRUE);
    BY_TRY(check_size(j->info.image_width, j->info.image_height, width, height, error));
    j->info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    (void)jpeg_start_decompress(&j->info);
    while (j->info.output_scanline < j->info.output_height) {
        int64_t y = (int64_t)j->info.output_scanline;
        (void)jpeg_read_scanlines(&j->info, &row, 1);
        put_row(out, row, y, channels, height, width);
    }
    (void)jpeg_finish_decompress(&j->info);
    return BY_OK;
}

static by_status decode_jpeg(uint8_t *out, int64_t channels, int64_t height, int64_t width,
                             const uint8_t *data, size_t size, by_error *error)
{
    jpeg *j;
    uint8_t *row = NULL;
    BY_TRY(by__alloc((void **)&j, 1, sizeof *j, "an image", error));
    j->info.err = jpeg_std_error(&j->errors);
    j->info.client_data = j;
    j->errors.error_exit = on_jpeg_error;
    j->errors.emit_message = on_jpeg_message;
    j->progress.progress_monitor = on_jpeg_progress;
    by_status status =
        by__alloc((void **)&row, (size_t)width, (size_t)channels, "a row of an image", error);
    if (status == BY_OK) {
        status = run_jpeg(j, row, out, channels, height, width, data, size, error);
        jpeg_destroy_decompress(&j->info);
    }
    free(row);
    free(j);
    return status;
}

/* ---- PNG ---- */

static by_status decode_png(uint8_t *out, int64_t channels, int64_t height, int64_t width,
                            const uint8_t *data, size_t size, by_error *error)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0};
    uint8_t *pixels = NULL;
    size_t row = (size_t)width * (size_t)channels;
    if (png_image_begin_read_from_memory(&image, data, size) == 0) {
        return by_error_set(error, BY_EFORMAT, "the PNG is damaged: %s", image.message);
    }
    by_status status = check_size(image.width, image.height, width, height, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&pixels, (size_t)height, row, "an image", error);
    }
    image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    if (status == BY_OK &&
        (png_image_finish_read(&image, &black, pixels, (png_int_32)row, NULL) == 0 ||
         PNG_IMAGE_FAILED(image))) {
        status = by_error_set(error, BY_EFORMAT, "the PNG is damaged: %s", image.message);
    }
    for (int64_t y = 0; y < height && status == BY_OK; y++) {
        put_row(out, pixels + (size_t)y * row, y, channels, height, width);
    }
    png_image_free(&image);
    free(pixels);
    return status;
}

by_status by__image_decode(uint8_t *out, int64_t channels, int64_t height, int64_t width,
                           const uint8_t *data, size_t size, by_error *error)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (channels != 1 && channels != 3) {
        return by_error_set(error, BY_EARG,
                            "the model reads %lld channels; a JPEG or PNG gives it 1 or 3",
                            (long long)channels);
    }
    if (size >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff) {
        return decode_jpeg(out, channels, height, width, data, size, error);
    }
    if (size >= sizeof png && memcmp(data, png, sizeof png) == 0) {
        return decode_png(out, channels, height, width, data, size, error);
    }
    return by_error_set(error, BY_EFORMAT, "the image is neither a JPEG nor a PNG");
}
