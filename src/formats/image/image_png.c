#include <stdlib.h>
#include <string.h>

#include "formats/image/image_parts.h"
#include "formats/image/png_fault.h"

#define HEAD 8 /* bytes before the first chunk */

typedef struct png {
    png_structp reader;
    png_infop info;
    by__format_png_fault fault;
    const uint8_t *at;
    const uint8_t *end;
    uint8_t *rows; /* of the whole image, if it is interlaced, else one */
    size_t row_bytes;
    int kind;  /* PNG_COLOR_TYPE_... */
    int depth; /* bits of a sample in the file */
    int passes;
    bool stored; /* numbers are wanted as they are in the file */
    uint8_t colours[256][3];
} png;

static void read_bytes(png_structp reader, png_bytep out, size_t n)
{
    png *p = png_get_io_ptr(reader);
    if (n > (size_t)(p->end - p->at)) {
        png_error(reader, "it ends early");
    }
    memcpy(out, p->at, n);
    p->at += n;
}

/* Copies a PNG without the chunks that say nothing of samples, those whose first letter is small;
 * returns its size. Of these, Pillow reads neither colours nor gamma when it converts, and libpng
 * would decompress and keep a thousand texts of up to 8 MB each, whatever its settings. */
static size_t copy_chunks(uint8_t *out, const uint8_t *data, size_t size)
{
    size_t at = HEAD;
    size_t used = HEAD;
    memcpy(out, data, HEAD);
    while (size - at >= 12) {
        const uint8_t *c = data + at;
        size_t length = (size_t)c[0] << 24 | (size_t)c[1] << 16 | (size_t)c[2] << 8 | c[3];
        if (length > size - at - 12) {
            break;
        }
        if ((c[4] & 0x20) == 0) {
            memcpy(out + used, c, length + 12);
            used += length + 12;
        }
        at += length + 12;
    }
    memcpy(out + used, data + at, size - at); /* not a chunk: libpng will report it */
    return used + size - at;
}

/* Has libpng give samples of 8 bits without alpha, or indexes of colours; only grey keeps 16. */
static void set_up(png *p)
{
    png_structp r = p->reader;
    if (p->kind == PNG_COLOR_TYPE_PALETTE) {
        png_colorp list = NULL;
        int count = 0;
        (void)png_get_PLTE(r, p->info, &list, &count);
        for (int i = 0; i < count && i < 256; i++) {
            p->colours[i][0] = list[i].red;
            p->colours[i][1] = list[i].green;
            p->colours[i][2] = list[i].blue;
        }
        png_set_packing(r);
    } else if (p->stored && p->depth < 8) {
        png_set_packing(r);
    } else if (p->kind == PNG_COLOR_TYPE_GRAY && p->depth < 8) {
        png_set_expand_gray_1_2_4_to_8(r);
    } else if (p->kind != PNG_COLOR_TYPE_GRAY) {
        png_set_strip_16(r); /* the upper byte */
    }
    png_set_strip_alpha(r);
    p->passes = png_set_interlace_handling(r);
    png_read_update_info(r, p->info);
    p->row_bytes = png_get_rowbytes(r, p->info);
}

/* Puts a row as libpng gives it, which is changed. */
static void put_row(const by__format_image_decoding *d, const png *p, uint8_t *row, int64_t y)
{
    if (p->stored) {
        by__format_image_put_grey(d, row, y);
    } else if (p->kind == PNG_COLOR_TYPE_PALETTE) {
        uint8_t *out = row + d->width; /* behind the indexes */
        for (int64_t x = 0; x < d->width; x++) {
            memcpy(out + 3 * x, p->colours[row[x]], 3);
        }
        by__format_image_put_rgb(d, out, 3, y);
    } else if (p->kind == PNG_COLOR_TYPE_RGB || p->kind == PNG_COLOR_TYPE_RGB_ALPHA) {
        by__format_image_put_rgb(d, row, 3, y);
    } else {
        for (int64_t x = 0; x < d->width && p->depth == 16 && p->kind == PNG_COLOR_TYPE_GRAY; x++) {
            row[x] = row[2 * x] != 0 ? 255 : row[2 * x + 1]; /* Pillow does not scale */
        }
        by__format_image_put_grey(d, row, y);
    }
}

/* The only function that longjmp returns to: state changed after setjmp is in *p. */
static by_status decode(png *p, by__format_image_decoding *d, by_error *error)
{
    if (setjmp(p->fault.back) != 0) {
        return by_error_set(error, BY_EFORMAT, "the PNG is damaged: %s", p->fault.reason);
    }
    png_set_read_fn(p->reader, p, read_bytes);
    png_set_user_limits(p->reader, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* ours says more */
    png_read_info(p->reader, p->info);
    p->kind = png_get_color_type(p->reader, p->info);
    p->depth = png_get_bit_depth(p->reader, p->info);
    p->stored = d->stored;
    if (d->stored &&
        ((p->kind != PNG_COLOR_TYPE_PALETTE && p->kind != PNG_COLOR_TYPE_GRAY) || p->depth > 8)) {
        return by_error_set(error, BY_EFORMAT,
                            p->depth > 8 ? "its numbers have 16 bits: write classes as 8 bits"
                                         : "it has colours, not classes: a PNG of classes has a "
                                           "palette, or is grey");
    }
    BY_TRY(by__format_image_begin(d, png_get_image_height(p->reader, p->info),
                                  png_get_image_width(p->reader, p->info), error));
    set_up(p);
    int64_t kept = p->passes > 1 ? d->height : 1;
    /* Room for the colours of a row of indexes at the end. */
    BY_TRY(by__alloc((void **)&p->rows, (size_t)kept * p->row_bytes + 3 * (size_t)d->width, 1,
                     "an image", error));
    for (int pass = 0; pass < p->passes; pass++) {
        for (int64_t y = 0; y < d->height; y++) {
            uint8_t *row = p->rows + (size_t)(kept > 1 ? y : 0) * p->row_bytes;
            png_read_row(p->reader, row, NULL);
            if (kept == 1) {
                put_row(d, p, row, y);
            }
        }
    }
    /* From the end, because colours are put behind a row. */
    for (int64_t y = kept; y-- > 0 && kept > 1;) {
        put_row(d, p, p->rows + (size_t)y * p->row_bytes, y);
    }
    return BY_OK;
}

by_status by__format_image_decode_png(by__format_image_decoding *d, const uint8_t *data,
                                      size_t size, by_error *error)
{
    png *p = NULL;
    uint8_t *plain = NULL;
    by_status status = by__alloc((void **)&p, 1, sizeof *p, "an image", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&plain, size, 1, "an image", error);
    }
    if (status == BY_OK) {
        p->at = plain;
        p->end = plain + copy_chunks(plain, data, size);
        p->reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p->fault, by__format_png_error,
                                           by__format_png_warning);
        p->info = p->reader == NULL ? NULL : png_create_info_struct(p->reader);
        status = p->info == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: an image")
                                 : decode(p, d, error);
    }
    if (p != NULL && p->reader != NULL) {
        png_destroy_read_struct(&p->reader, &p->info, NULL);
    }
    free(p != NULL ? p->rows : NULL);
    free(p);
    free(plain);
    return status;
}
