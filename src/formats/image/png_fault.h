/* How libpng reports faults to the functions that read and write PNGs (png_fault.c). */
#ifndef BY_FORMATS_IMAGE_PNG_FAULT_H
#define BY_FORMATS_IMAGE_PNG_FAULT_H

#include <setjmp.h>

#include <png.h>

/* What libpng calls its error pointer: by__format_png_error fills in `reason` and returns to
 * `back`. */
typedef struct by__format_png_fault {
    jmp_buf back;
    char reason[80];
} by__format_png_fault;

void by__format_png_error(png_structp png, png_const_charp message);
/* Ignores it. */
void by__format_png_warning(png_structp png, png_const_charp message);

#endif
