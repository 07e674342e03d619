/* Plots curves on a terminal. */
#ifndef BY_CLI_BASE_BRAILLE_H
#define BY_CLI_BASE_BRAILLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The points of a curve; those whose y is not finite are skipped. */
typedef struct cli_curve {
    const double *x;
    const double *y;
    size_t count;
} cli_curve;

/* Prints curves in one plot of `columns` x `rows` Braille characters (2 x 4 dots each, from U+2800
 * on), with the range of y on the left. On a terminal, each line clears the rest of the line.
 * Prints nothing if no point can be drawn. */
void cli_print_curves(const cli_curve *curves, size_t count, int columns, int rows, bool terminal);

#endif
