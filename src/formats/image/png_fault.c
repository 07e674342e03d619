#include "formats/image/png_fault.h"

#include <stdio.h>

#include "base/base.h"

void by__format_png_error(png_structp png, png_const_charp message)
{
    by__format_png_fault *fault = png_get_error_ptr(png);
    (void)snprintf(fault->reason, sizeof fault->reason, "%s", message);
    longjmp(fault->back, 1);
}

void by__format_png_warning(png_structp png, png_const_charp message)
{
    BY_UNUSED(png);
    BY_UNUSED(message);
}
