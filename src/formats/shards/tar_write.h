/* Writes members of tar archives (ustar) whose content lies in few pages (tar_write.c). */
#ifndef BY_FORMATS_SHARDS_TAR_WRITE_H
#define BY_FORMATS_SHARDS_TAR_WRITE_H

#include "base/base.h"

/* Bytes of a header; content is filled up to a multiple of it. */
#define BY__TAR_BLOCK ((size_t)512)
/* Bytes of a page. */
#define BY__TAR_PAGE ((size_t)4096)

/* Bytes to pad with at byte `at` of an archive, so that the content of the member that follows, of
 * `size` bytes, lies in as few pages as it can. */
size_t by__format_tar_gap(uint64_t at, uint64_t size);
/* Appends so many bytes that readers skip: a pax header with a comment. */
void by__format_tar_pad(by_string *out, size_t gap);
/* Appends the header of a file. The name has fewer than 100 bytes, the content fewer than 8 GiB. */
void by__format_tar_header(by_string *out, const char *name, uint64_t size);
/* Appends zeros behind a content of `size` bytes. */
void by__format_tar_fill(by_string *out, uint64_t size);
/* Appends a file. */
void by__format_tar_member(by_string *out, const char *name, const void *data, size_t size);

#endif
