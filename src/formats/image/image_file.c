#include <stdlib.h>
#include <string.h>

#include "base/host/file_kind.h"
#include "formats/image/image_parts.h"
#include "formats/image/wide.h"

/* ---- pixels ---- */

by_status by__format_image_begin(by__format_image_decoding *d, int64_t height, int64_t width,
                                 by_error *error)
{
    if (d->fit->height > 0) {
        BY_TRY(by__format_image_fit_check(d->fit, height, width, error));
    }
    int64_t most = d->most == 0 ? BY__IMAGE_PIXELS : d->most;
    if (height < 1 || width < 1) {
        return by_error_set(error, BY_EARG, "an image of %lld x %lld pixels: at least one is read",
                            (long long)width, (long long)height);
    }
    if (height > most / width) {
        return by_error_set(error, BY_EARG,
                            "an image of %lld x %lld pixels is larger than the %.1f million that "
                            "are decoded: scale it down first, as ImageMagick's `magick mogrify "
                            "-resize 4000x4000 FILE` does",
                            (long long)width, (long long)height, (double)most / 1e6);
    }
    d->height = height;
    d->width = width;
    return by__alloc((void **)&d->pixels, (size_t)(height * width), (size_t)d->channels, "an image",
                     error);
}

void by__format_image_put_grey(const by__format_image_decoding *d, const uint8_t *row, int64_t y)
{
    for (int64_t c = 0; c < d->channels; c++) {
        memcpy(d->pixels + (c * d->height + y) * d->width, row, (size_t)d->width);
    }
}

/* Separates the channels of pixels of 3 bytes. */
BY__EITHER void separate(uint8_t *restrict red, uint8_t *restrict green, uint8_t *restrict blue,
                         const uint8_t *restrict row, int64_t width)
{
    for (int64_t x = 0; x < width; x++) {
        red[x] = row[3 * x];
        green[x] = row[3 * x + 1];
        blue[x] = row[3 * x + 2];
    }
}

BY__WIDE static void separate_wide(uint8_t *out, int64_t plane, const uint8_t *row, int64_t width)
{
    separate(out, out + plane, out + 2 * plane, row, width);
}

void by__format_image_put_rgb(const by__format_image_decoding *d, const uint8_t *row, size_t step,
                              int64_t y)
{
    uint8_t *out = d->pixels + y * d->width;
    int64_t plane = d->height * d->width;
    if (d->channels == 3 && step == 3) {
        if (by__format_has_wide()) {
            separate_wide(out, plane, row, d->width);
        } else {
            separate(out, out + plane, out + 2 * plane, row, d->width);
        }
        return;
    }
    for (int64_t x = 0; x < d->width; x++, row += step) {
        for (int64_t c = 0; c < d->channels; c++) {
            /* The weights of ITU-R 601-2, in the integers of Pillow. */
            out[c * plane + x] =
                d->channels == 3
                    ? row[c]
                    : (uint8_t)((row[0] * 19595u + row[1] * 38470u + row[2] * 7471u + 0x8000u) >>
                                16);
        }
    }
}

/* ---- files ---- */

static bool is_jpeg(const uint8_t *data, size_t size)
{
    return size >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff;
}

static bool is_png(const uint8_t *data, size_t size)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return size >= sizeof png && memcmp(data, png, sizeof png) == 0;
}

bool by__format_image_is_file(const uint8_t *data, size_t size)
{
    return is_jpeg(data, size) || is_png(data, size) || by__format_image_is_webp(data, size);
}

static int64_t number_at(const uint8_t *at, size_t bytes)
{
    int64_t out = 0;
    for (size_t i = 0; i < bytes; i++) {
        out = out << 8 | at[i];
    }
    return out;
}

/* The size is in the marker that begins the frame, SOF0 to SOF15 without those of tables. */
static bool jpeg_size(int64_t *height, int64_t *width, const uint8_t *data, size_t size)
{
    for (size_t at = 2; size - at >= 9;) {
        unsigned marker = data[at + 1];
        if (data[at] != 0xff) {
            return false;
        }
        if (marker == 0xff) { /* fill */
            at++;
            continue;
        }
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
            marker != 0xcc) {
            *height = number_at(data + at + 5, 2);
            *width = number_at(data + at + 7, 2);
            return true;
        }
        bool alone = marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
        size_t length = alone ? 0 : (size_t)number_at(data + at + 2, 2);
        if (marker == 0xda || marker == 0xd9 || length > size - at - 2) {
            return false;
        }
        at += 2 + length;
    }
    return false;
}

bool by__format_image_size(int64_t *height, int64_t *width, const uint8_t *data, size_t size)
{
    if (is_png(data, size) && size >= 24 && memcmp(data + 12, "IHDR", 4) == 0) {
        *width = number_at(data + 16, 4);
        *height = number_at(data + 20, 4);
        return true;
    }
    by__format_webp_head head;
    if (by__format_webp_parse(&head, data, size)) {
        *height = head.height;
        *width = head.width;
        return true;
    }
    return is_jpeg(data, size) && jpeg_size(height, width, data, size);
}

/* Fits the decoded image to the model's input. */
static by_status fit_decoded(by__format_image_decoding *d, by_error *error)
{
    uint8_t *fitted;
    if (d->fit->resize == BY_RESIZE_NONE) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&fitted, (size_t)(d->fit->height * d->fit->width),
                     (size_t)d->channels, "an image", error));
    by_status status =
        by__format_image_fit(fitted, d->fit, d->channels, d->pixels, d->height, d->width, error);
    free(d->pixels);
    d->pixels = fitted;
    d->height = d->fit->height;
    d->width = d->fit->width;
    return status;
}

static bool begins(const uint8_t *data, size_t size, const char *text)
{
    size_t n = strlen(text);
    return size >= n && memcmp(data, text, n) == 0;
}

/* The error for what is none of the formats: says what it is, whatever its name. */
static by_status refuse_format(const uint8_t *data, size_t size, by_error *error)
{
    const char *kind = begins(data, size, "<svg")    ? "an SVG"
                       : begins(data, size, "<?xml") ? "an XML file"
                                                     : by__file_kind(data, size);
    return kind == NULL
               ? by_error_set(error, BY_EFORMAT,
                              size == 0 ? "the image is an empty file"
                                        : "the image is neither a JPEG, a PNG nor a WebP")
               : by_error_set(error, BY_EFORMAT,
                              "the image is %s, and neither a JPEG, a PNG nor a WebP: convert it",
                              kind);
}

static by_status decode(by__format_image_decoding d, uint8_t **out, int64_t *height, int64_t *width,
                        const uint8_t *data, size_t size, by_error *error)
{
    int64_t channels = d.channels;
    if (channels != 1 && channels != 3) {
        return by_error_set(error, BY_EARG,
                            "the model reads %lld channels; a picture gives it 1 or 3",
                            (long long)channels);
    }
    by_status status = is_jpeg(data, size)  ? by__format_image_decode_jpeg(&d, data, size, error)
                       : is_png(data, size) ? by__format_image_decode_png(&d, data, size, error)
                       : by__format_image_is_webp(data, size)
                           ? by__format_image_decode_webp(&d, data, size, error)
                           : refuse_format(data, size, error);
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

by_status by__format_image_decode(uint8_t **out, int64_t *height, int64_t *width, int64_t channels,
                                  const by_image_fit *fit, const uint8_t *data, size_t size,
                                  by_error *error)
{
    const by__format_image_decoding d = {.channels = channels, .fit = fit};
    return decode(d, out, height, width, data, size, error);
}

by_status by__format_image_decode_request(uint8_t **out, int64_t *height, int64_t *width,
                                          int64_t channels, const by_image_fit *fit,
                                          const uint8_t *data, size_t size, by_error *error)
{
    const by__format_image_decoding d = {
        .channels = channels, .most = BY__REQUEST_IMAGE_PIXELS, .fit = fit};
    return decode(d, out, height, width, data, size, error);
}

by_status by__format_image_decode_classes(uint8_t **out, int64_t *height, int64_t *width,
                                          const uint8_t *data, size_t size, by_error *error)
{
    static const by_image_fit own = {.resize = BY_RESIZE_NONE};
    const by__format_image_decoding d = {.channels = 1, .fit = &own, .stored = true};
    return is_jpeg(data, size)
               ? by_error_set(error, BY_EFORMAT,
                              "it is a JPEG, which changes numbers: classes of pixels are a PNG")
               : decode(d, out, height, width, data, size, error);
}

by_status by__format_image_decode_reduced(uint8_t **out, int64_t *height, int64_t *width,
                                          int64_t channels, unsigned reduction, int64_t rows,
                                          const uint8_t *data, size_t size, by_error *error)
{
    static const by_image_fit own = {.resize = BY_RESIZE_NONE};
    const by__format_image_decoding d = {
        .channels = channels, .fit = &own, .reduction = reduction, .rows = rows};
    return decode(d, out, height, width, data, size, error);
}
