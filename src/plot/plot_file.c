#include "plot/plot_file.h"

#include <cairo-svg.h>
#include <string.h>

#include "plot/plot.h"

static by_status is_svg(bool *svg, const char *path, by_error *error)
{
    size_t n = strlen(path);
    *svg = n > 4 && strcmp(path + n - 4, ".svg") == 0;
    if (!*svg && (n <= 4 || strcmp(path + n - 4, ".png") != 0)) {
        return by_error_set(error, BY_EARG, "%s: a chart is written to a name in .png or .svg",
                            path);
    }
    return BY_OK;
}

static cairo_status_t append(void *closure, const unsigned char *data, unsigned int length)
{
    by_string *text = closure;
    by_string_add(text, data, length);
    return text->failed ? CAIRO_STATUS_WRITE_ERROR : CAIRO_STATUS_SUCCESS;
}

by_status by__plot_file(const char *path, double width, double height,
                        void (*draw)(cairo_t *cairo, void *user), void *user, by_error *error)
{
    bool svg;
    by_string file = {0};
    BY_TRY(is_svg(&svg, path, error));
    cairo_surface_t *surface =
        svg ? cairo_svg_surface_create_for_stream(append, &file, width, height)
            : cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)width, (int)height);
    cairo_t *cairo = cairo_create(surface);
    draw(cairo, user);
    cairo_status_t result = cairo_status(cairo);
    cairo_destroy(cairo);
    if (result == CAIRO_STATUS_SUCCESS && !svg) {
        result = cairo_surface_write_to_png_stream(surface, append, &file);
    }
    cairo_surface_finish(surface); /* flushes the text of an SVG */
    if (result == CAIRO_STATUS_SUCCESS) {
        result = cairo_surface_status(surface);
    }
    cairo_surface_destroy(surface);
    by_status status;
    if (file.failed || result == CAIRO_STATUS_NO_MEMORY) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: chart %s", path);
    } else if (result != CAIRO_STATUS_SUCCESS) {
        status =
            by_error_set(error, BY_EIO, "cannot draw %s: %s", path, cairo_status_to_string(result));
    } else {
        status = by__file_write(path, file.data, file.length, error);
    }
    by_string_free(&file);
    return status;
}

void by__plot_begin(cairo_t *cairo, double font_size)
{
    cairo_set_source_rgb(cairo, 1, 1, 1);
    cairo_paint(cairo);
    cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, font_size);
}

void by__plot_color(cairo_t *cairo, const double rgb[3])
{
    cairo_set_source_rgb(cairo, rgb[0], rgb[1], rgb[2]);
}

void by__plot_text(cairo_t *cairo, double x, double y, double align, const char *text)
{
    cairo_text_extents_t extents;
    cairo_text_extents(cairo, text, &extents);
    cairo_move_to(cairo, x - align * extents.x_advance, y);
    cairo_show_text(cairo, text);
}

void by__plot_key(cairo_t *cairo, double x, double y, const double rgb[3], const char *text)
{
    by__plot_color(cairo, rgb);
    cairo_rectangle(cairo, x, y - 11, 14, 14);
    cairo_fill(cairo);
    by__plot_color(cairo, BY__PLOT_INK);
    by__plot_text(cairo, x + 20, y, 0, text);
}
