/* Texts of a Parquet file, of which a column has one a row, in the form of JSON lines: whatever
 * reads those (text_source.h) reads these. Line N is row N. */
#ifndef BY_DATA_FORMATS_PARQUET_TEXT_H
#define BY_DATA_FORMATS_PARQUET_TEXT_H

#include "base/base.h"

/* Writes the lines {"FIELD": TEXT} of the column `field` to a file without a name in TMPDIR (else
 * /tmp), which is gone when *fd is closed. A null is a line {}, and what is not UTF-8 is none
 * either, so that a reader of JSON lines finds no text there. BY_EFORMAT: the file is damaged, or
 * has no such column, or it holds no text; BY_EIO. */
by_status by__parquet_text_lines(int *fd, const char *path, const char *field, by_error *error);

#endif
