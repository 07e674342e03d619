/* Letters of 5 x 7 pixels, the same on every machine, for pictures whose bits are compared. */
#ifndef BY_PLOT_TILE_LETTERS_H
#define BY_PLOT_TILE_LETTERS_H

#include "base/base.h"

#define BY__LETTER_WIDTH  5
#define BY__LETTER_HEIGHT 7

/* Returns the rows of the character at *text, whose bit 4 is the left column, and moves *text
 * behind it. Characters other than those of ASCII are boxes. */
const uint8_t *by__plot_letter(const char **text);
/* Returns the number of characters of a text. */
size_t by__plot_letters(const char *text);

#endif
