/* Data that is not on this machine: paths that are URLs.
 *
 * Wherever data is read from a path, https://HOST/PATH, http://HOST/PATH and s3://BUCKET/KEY name
 * remote files. Their parts are kept in a directory of the host that all its processes share, up to
 * a number of bytes: what was used longest ago gives way. Whatever the network does, a file has the
 * bytes that it had when it was opened, or there is an error. Credentials of S3 come from the
 * variables and files of AWS's own programs. */
#ifndef BANYAN_REMOTE_H
#define BANYAN_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* {0} is good. */
typedef struct by_remote_options {
    const char *cache; /* directory; NULL or "": banyan/remote in the user's cache */
    uint64_t bytes;    /* the most that it holds; 0: 20 GiB */
    /* May be NULL. Told how much of the files that are fetched is there, by one thread at a time,
     * also while a server lets wait; returning false stops with BY_ESTOPPED within a second or
     * so. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    /* May be NULL. Asked as long as the files are in use, by one thread at a time; returning true
     * ends all requests with BY_ESTOPPED within a second or so. */
    bool (*stop)(void *user);
    void *stop_user;
} by_remote_options;

/* Whether a path is a URL of a remote file. */
BY_API bool by_remote_is(const char *path);

#ifdef __cplusplus
}
#endif
#endif
