/* plot: drawings of what other rooms know, as PNG or SVG files.
 *
 * What it is for: line charts, tables as heat maps, the timetable of a pipeline, the memory of a
 * step, the times of a profile. All are drawn by cairo's toy text API, which selects a sans-serif
 * font and falls back to one built into cairo. Grids of images (tiles.c) need no cairo, and have
 * letters of their own.
 *
 * Types: by_plot_options describes a chart as plain data; the other drawings take what they show.
 *
 * Who owns what: nothing is kept after a call.
 *
 * Never put here: computing what is drawn. Drawings as text are made where their data is. */
#ifndef BY_PLOT_PLOT_FILE_H
#define BY_PLOT_PLOT_FILE_H

#include <cairo.h>

#include "base/base.h"

/* Writes what `draw` draws on a surface of width x height pixels (points for SVG) to `path`,
 * atomically. BY_EARG if the name ends in neither .svg nor .png. */
by_status by__plot_file(const char *path, double width, double height,
                        void (*draw)(cairo_t *cairo, void *user), void *user, by_error *error);
/* Draws a white page and selects the font with cairo's toy text API, which falls back to a built-in
 * one. */
void by__plot_begin(cairo_t *cairo, double font_size);
void by__plot_color(cairo_t *cairo, const double rgb[3]);
/* Draws text. `align` is the share of the text's width that is left of x: 0, 0.5 or 1. */
void by__plot_text(cairo_t *cairo, double x, double y, double align, const char *text);
/* Draws a square of a colour at the baseline y, and what it stands for. */
void by__plot_key(cairo_t *cairo, double x, double y, const double rgb[3], const char *text);

#endif
