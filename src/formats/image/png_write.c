/* Writes images as PNG. */
#include <stdlib.h>
#include <string.h>

#include "formats/image/image_file.h"
#include "formats/image/png_fault.h"
#include "formats/image/png_write.h"

typedef struct png_writer {
    png_structp writer;
    png_infop info;
    by__format_png_fault fault;
    uint8_t *data;
    size_t size;
    size_t capacity;
    uint8_t *row;
} png_writer;

static void add_bytes(png_structp writer, png_bytep bytes, size_t n)
{
    png_writer *w = png_get_io_ptr(writer);
    if (by__reserve((void **)&w->data, &w->capacity, w->size + n, 1, NULL) != BY_OK) {
        png_error(writer, "out of memory");
    }
    memcpy(w->data + w->size, bytes, n);
    w->size += n;
}

static void flush(png_structp writer)
{
    BY_UNUSED(writer);
}

/* The only function that longjmp returns to: state changed after setjmp is in *w. */
static by_status encode(png_writer *w, const by__format_image_pixels *image, by_error *error)
{
    int64_t plane = image->height * image->width;
    int kind = image->palette != NULL ? PNG_COLOR_TYPE_PALETTE
               : image->channels == 3 ? PNG_COLOR_TYPE_RGB
                                      : PNG_COLOR_TYPE_GRAY;
    if (setjmp(w->fault.back) != 0) {
        return by_error_set(error, BY_EMEMORY, "the PNG cannot be written: %s", w->fault.reason);
    }
    png_set_write_fn(w->writer, w, add_bytes, flush);
    png_set_IHDR(w->writer, w->info, (png_uint_32)image->width, (png_uint_32)image->height, 8, kind,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (image->palette != NULL) {
        png_color colours[256];
        for (int i = 0; i < image->colours && i < 256; i++) {
            colours[i] = (png_color){.red = image->palette[i][0],
                                     .green = image->palette[i][1],
                                     .blue = image->palette[i][2]};
        }
        png_set_PLTE(w->writer, w->info, colours, image->colours < 256 ? image->colours : 256);
    }
    png_write_info(w->writer, w->info);
    for (int64_t y = 0; y < image->height; y++) {
        for (int64_t x = 0; x < image->width; x++) {
            for (int64_t c = 0; c < image->channels; c++) {
                int64_t at = image->packed ? (y * image->width + x) * image->channels + c
                                           : c * plane + y * image->width + x;
                w->row[x * image->channels + c] = image->pixels[at];
            }
        }
        png_write_row(w->writer, w->row);
    }
    png_write_end(w->writer, NULL);
    return BY_OK;
}

by_status by__format_png_encode(uint8_t **out, size_t *size, const by__format_image_pixels *image,
                                by_error *error)
{
    png_writer *w;
    bool fits = image->height > 0 && image->width > 0 && image->height <= BY__IMAGE_PIXELS &&
                image->width <= BY__IMAGE_PIXELS;
    if (!fits || (image->channels != 1 && image->channels != 3) ||
        (image->palette != NULL && (image->channels != 1 || image->colours < 1))) {
        return by_error_set(error, BY_EARG,
                            "an image of %lld x %lld pixels, %lld channels: a PNG "
                            "has 1 or 3",
                            (long long)image->width, (long long)image->height,
                            (long long)image->channels);
    }
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "an image", error));
    by_status status = by__alloc((void **)&w->row, (size_t)image->width, (size_t)image->channels,
                                 "an image", error);
    if (status == BY_OK) {
        w->writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, &w->fault, by__format_png_error,
                                            by__format_png_warning);
        w->info = w->writer == NULL ? NULL : png_create_info_struct(w->writer);
        status = w->info == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: an image")
                                 : encode(w, image, error);
    }
    if (w->writer != NULL) {
        png_destroy_write_struct(&w->writer, &w->info);
    }
    if (status == BY_OK) {
        *out = w->data;
        *size = w->size;
    } else {
        free(w->data);
    }
    free(w->row);
    free(w);
    return status;
}

by_status by__format_image_write_png(by_string *out, const uint8_t *rgb, int64_t height,
                                     int64_t width, by_error *error)
{
    uint8_t *png;
    size_t size;
    const by__format_image_pixels image = {
        .pixels = rgb, .channels = 3, .height = height, .width = width, .packed = true};
    BY_TRY(by__format_png_encode(&png, &size, &image, error));
    by_string_add(out, png, size);
    free(png);
    return by_string_check(out, error);
}
