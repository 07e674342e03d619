/* Parts of URLs, and where a URL leads (remote_url.c). */
#ifndef BY_REMOTE_REMOTE_URL_H
#define BY_REMOTE_REMOTE_URL_H

#include "remote/remote.h"
#include "remote/remote_access.h"

/* What a server is asked for. */
typedef struct by__remote_target {
    char *url;  /* without the query of a list */
    char *host; /* as in the header of that name */
    char *path; /* escaped */
    bool is_s3;
} by__remote_target;

/* Adds a text with all but unreserved characters as %XX (RFC 3986, section 2.3); with `slashes`,
 * they are kept. */
void by__remote_escape(by_string *out, const char *text, size_t n, bool slashes);
/* Whether a URL is of S3. */
bool by__remote_is_s3(const char *url);
/* Finds where a URL leads. `access` is that of S3. BY_ECONFIG: it is malformed, or holds a user or
 * password. */
by_status by__remote_target_make(by__remote_target *out, const char *url,
                                 const by__remote_access *access, by_error *error);
void by__remote_target_free(by__remote_target *target);

#endif
