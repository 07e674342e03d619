/* Pictures that cairo draws, as PNG or SVG files. */
#ifndef BY_TRACK_PLOT_FILE_H
#define BY_TRACK_PLOT_FILE_H

#include <cairo.h>

#include "base/base.h"

/* Writes what `draw` draws on a surface of width x height pixels, or points for SVG, to `path`,
 * atomically. BY_EARG: the name ends in neither .svg nor .png. */
by_status by__plot_file(const char *path, double width, double height,
                        void (*draw)(cairo_t *cairo, void *user), void *user, by_error *error);

#endif
