/* Tables as heat maps, in the pages of charts. */
#ifndef BY_PLOT_MATRIX_PICTURE_H
#define BY_PLOT_MATRIX_PICTURE_H

#include <cairo.h>

#include "banyan/plot.h"
#include "base/base.h"

/* BY_EARG: a size, data or a name of a table is wrong. */
by_status by__plot_matrix_check(const by_plot_matrix *matrix, by_error *error);
/* Draws options->matrix into width x height; unit: a pixel of a chart of the usual size. */
void by__plot_matrix(cairo_t *cairo, const by_plot_options *options, double width, double height,
                     double unit);

#endif
