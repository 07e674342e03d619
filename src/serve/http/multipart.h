/* Bodies of multipart/form-data (RFC 7578): fields and files, in place. */
#ifndef BY_SERVE_MULTIPART_H
#define BY_SERVE_MULTIPART_H

#include "base/base.h"

/* Parts of a body, at most. */
#define BY__MULTIPART_MOST 64

typedef struct by__multipart_part {
    char name[64]; /* of the field */
    const char *data;
    size_t length;
} by__multipart_part;

/* Splits a body by the boundary of its Content-Type; the parts view the body. BY_EARG: it is not
 * one, or has more than BY__MULTIPART_MOST parts; a sentence for the client. */
by_status by__multipart_split(by__multipart_part parts[BY__MULTIPART_MOST], size_t *count,
                              const char *type, const char *body, size_t length, by_error *error);

#endif
