/* Bodies of multipart/form-data (RFC 7578): fields and files, split without copying. */
#ifndef BY_SERVE_HTTP_MULTIPART_H
#define BY_SERVE_HTTP_MULTIPART_H

#include "base/base.h"

/* Most parts of a body. */
#define BY__MULTIPART_MAX 264 /* the images of a prediction, and its other fields */

typedef struct by__http_multipart_part {
    char name[64]; /* name of the field */
    const char *data;
    size_t length;
} by__http_multipart_part;

/* Splits a body by the boundary in its Content-Type; the parts point into the body. BY_EARG, with a
 * sentence for the client: the body is malformed, or has more than BY__MULTIPART_MAX parts. What
 * programs read differently is malformed: a parameter that comes twice, a part that is encoded or
 * no form-data. */
by_status by__http_multipart_split(by__http_multipart_part parts[BY__MULTIPART_MAX], size_t *count,
                                   const char *type, const char *body, size_t length,
                                   by_error *error);

#endif
