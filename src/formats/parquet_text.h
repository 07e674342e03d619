/* Converts a text column of a Parquet file, or all of them, to JSON lines, so that every reader of
 * those (text_source.h) can read it. Line N is row N. */
#ifndef BY_FORMATS_PARQUET_TEXT_H
#define BY_FORMATS_PARQUET_TEXT_H

#include "base/base.h"

/* Writes lines {"FIELD": TEXT} of the column `field` to an unlinked file in TMPDIR (else /tmp),
 * which is gone when *fd is closed. A null, or a value that is not UTF-8, becomes a line {}, in
 * which a reader of JSON lines finds no text. NULL for `field`: an object of all columns of texts.
 * BY_EFORMAT: the file is damaged, has no such column, or it is not a text column; BY_EIO. */
by_status by__format_parquet_text_lines(int *fd, const char *path, const char *field,
                                        by_error *error);

#endif
