/* Writes pictures drawn by cairo as PNG or SVG files. */
#ifndef BY_TRACK_PLOT_FILE_H
#define BY_TRACK_PLOT_FILE_H

#include <cairo.h>

#include "base/base.h"

/* Writes what `draw` draws on a surface of width x height pixels (points for SVG) to `path`,
 * atomically. BY_EARG if the name ends in neither .svg nor .png. */
by_status by__track_plot_file(const char *path, double width, double height,
                              void (*draw)(cairo_t *cairo, void *user), void *user,
                              by_error *error);
/* Draws a white page and selects the font with cairo's toy text API, which falls back to a built-in
 * one. */
void by__track_plot_begin(cairo_t *cairo, double font_size);
void by__track_plot_color(cairo_t *cairo, const double rgb[3]);
/* Draws text. `align` is the share of the text's width that is left of x: 0, 0.5 or 1. */
void by__track_plot_text(cairo_t *cairo, double x, double y, double align, const char *text);

#endif
