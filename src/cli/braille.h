/* Curves on a terminal. */
#ifndef BY_CLI_BRAILLE_H
#define BY_CLI_BRAILLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Points of a curve; y that is not finite is left out. */
typedef struct cli_curve {
    const double *x;
    const double *y;
    size_t count;
} cli_curve;

/* Prints curves together on `columns` x `rows` characters of Braille (2 x 4 dots each, U+2800 and
 * on), with the range of y on the left. On a terminal each
 * line clears what stood behind it. Prints nothing
 * when no point can be drawn. */
void cli_print_curves(const cli_curve *curves, size_t count, int columns, int rows, bool terminal);

#endif
