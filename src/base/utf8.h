/* Characters of UTF-8 (text.c), and files of text (file.c). */
#ifndef BY_BASE_UTF8_H
#define BY_BASE_UTF8_H

#include "base/base.h"

/* Returns the length of the valid sequence at s, of which n > 0 bytes are left; 0: there is
 * none. */
size_t by__utf8_span(const char *s, size_t n);
/* The bytes of a byte-order mark at the beginning of a text, 3 or 0. */
size_t by__mark_span(const char *s, size_t n);
/* by__file_read without a byte-order mark. */
by_status by__file_read_text(char **out, size_t *length, const char *path, size_t max,
                             by_error *error);

#endif
