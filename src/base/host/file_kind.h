/* What a file is by its first bytes, whatever its name: for errors about files of other formats. */
#ifndef BY_BASE_HOST_FILE_KIND_H
#define BY_BASE_HOST_FILE_KIND_H

#include "base/base.h"

/* First bytes that tell most. */
#define BY__FILE_KIND_BYTES ((size_t)65536)

/* A name with its article, such as "a zip archive"; NULL for text and what is not known. */
const char *by__file_kind(const uint8_t *data, size_t size);
/* Refuses the first bytes of a file that is to be a text or a table of text (`wanted`, a noun in
 * the singular) if it is of another known format, in characters of 16 or 32 bits, or of no
 * characters; says how to make text of it. Texts in any encoding of 8 bits pass, and those in which
 * there is a control character here and there. */
by_status by__file_check_text(const char *path, const uint8_t *data, size_t size,
                              const char *wanted, by_error *error);

#endif
