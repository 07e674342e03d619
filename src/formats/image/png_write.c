#include <setjmp.h>
#include <stdio.h>

#include <png.h>

#include "formats/image/png_write.h"

typedef struct png_writing {
    png_structp writer;
    png_infop info;
    jmp_buf back;
    by_string *out;
    char reason[80];
} png_writing;

static void on_error(png_structp writer, png_const_charp message)
{
    png_writing *p = png_get_error_ptr(writer);
    (void)snprintf(p->reason, sizeof p->reason, "%s", message);
    longjmp(p->back, 1);
}

static void on_warning(png_structp writer, png_const_charp message)
{
    BY_UNUSED(writer);
    BY_UNUSED(message);
}

static void write_bytes(png_structp writer, png_bytep data, size_t n)
{
    png_writing *p = png_get_io_ptr(writer);
    by_string_add(p->out, data, n);
}

static void flush(png_structp writer)
{
    BY_UNUSED(writer);
}

/* The only function that longjmp returns to: state changed after setjmp is in *p. */
static by_status encode(png_writing *p, const uint8_t *rgb, int64_t height, int64_t width,
                        by_error *error)
{
    if (setjmp(p->back) != 0) {
        return by_error_set(error, BY_EARG, "a PNG of %lld x %lld pixels: %s", (long long)width,
                            (long long)height, p->reason);
    }
    png_set_write_fn(p->writer, p, write_bytes, flush);
    png_set_IHDR(p->writer, p->info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(p->writer, p->info);
    for (int64_t y = 0; y < height; y++) {
        png_write_row(p->writer, rgb + y * width * 3);
    }
    png_write_end(p->writer, p->info);
    return BY_OK;
}

by_status by__format_image_write_png(by_string *out, const uint8_t *rgb, int64_t height,
                                     int64_t width, by_error *error)
{
    png_writing p = {.out = out};
    p.writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, &p, on_error, on_warning);
    p.info = p.writer == NULL ? NULL : png_create_info_struct(p.writer);
    by_status status = p.info == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a PNG")
                                      : encode(&p, rgb, height, width, error);
    if (p.writer != NULL) {
        png_destroy_write_struct(&p.writer, &p.info);
    }
    return status == BY_OK ? by_string_check(out, error) : status;
}
