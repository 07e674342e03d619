/* Shards that are compressed as a whole, which cannot be read in place (image_stream.c). */
#ifndef BY_DATA_IMAGE_IMAGE_STREAM_H
#define BY_DATA_IMAGE_IMAGE_STREAM_H

#include "base/base.h"

/* Sets out[i], freed with free(), to inputs[i], or of a local file by gzip to the path of what it
 * decompresses to, below `directory`. Several processes may ask for the same: one makes it, the
 * others wait. BY_EFORMAT: it is damaged. */
by_status by__image_streams_open(char **out, const char *const *inputs, size_t count,
                                 const char *directory, by_error *error);

#endif
