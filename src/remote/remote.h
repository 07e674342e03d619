/* remote: files that other machines have, read through a cache on disk.
 *
 * What it is for: https://, http:// and s3:// by ranges of bytes (libcurl, with AWS's signature
 * version 4), tried again where a request fails in a way that may pass; a directory that keeps what
 * was fetched, shared by all processes of the host; lists of what is in a bucket.
 *
 * Types: by__remote is what a process knows of remote files, by__remote_file one of them. A file is
 * its size and its tag, which the server gave when it was found; every later answer must have both,
 * so that a run that has begun never mixes two versions.
 *
 * Who owns what: a by__remote owns its files. All functions may be called by many threads at once,
 * except for open and close.
 *
 * On disk (remote_cache.h) a file is a sparse copy of its size, and a hash of each block of
 * BY__REMOTE_BLOCK bytes that is there. A block counts only if its hash is right, which each
 * process checks once: whatever ended a writer, no torn block is read. Locks of ranges of the file
 * of hashes let one process fetch a block and the others wait for it.
 *
 * Determinism: bytes are those of the server. Delays between attempts are random; nothing else is.
 *
 * Never put here: formats of data, anything that prints. Credentials stay in remote_access.h, and
 * in no message. */
#ifndef BY_REMOTE_REMOTE_H
#define BY_REMOTE_REMOTE_H

#include "banyan/remote.h"
#include "base/base.h"

/* Bytes of a block: what a small read fetches. */
#define BY__REMOTE_BLOCK ((size_t)1 << 18)

typedef struct by__remote by__remote;
typedef struct by__remote_file by__remote_file;

/* options: NULL is {0}; its texts are copied. BY_ECONFIG: the program was built without libcurl. */
by_status by__remote_open(by__remote **out, const by_remote_options *options, by_error *error);
void by__remote_close(by__remote **remote);

/* The file of a URL. The server is asked for its size and tag the first time. BY_EIO: there is no
 * such file, or no access to it, or no answer. */
by_status by__remote_find(by__remote_file **out, by__remote *remote, const char *url,
                          by_error *error);
uint64_t by__remote_size(const by__remote_file *file);
/* What tells this file from others: a hash of where it is. */
const char *by__remote_id(const by__remote_file *file);
/* What tells this version of the file from others; "": the server gave nothing. */
const char *by__remote_tag(const by__remote_file *file);
/* Reads n bytes, which must be within the file. */
by_status by__remote_read(by__remote_file *file, uint64_t offset, void *out, size_t n,
                          by_error *error);
/* Fetches what is missing of a file, several parts at a time. */
by_status by__remote_fetch(by__remote_file *file, by_error *error);
/* The same, and maps it. */
by_status by__remote_map(by__map *out, by__remote_file *file, by_error *error);
/* The same, and returns the path of a local file with its bytes, whose name is that of the URL. It
 * stays until the by__remote is closed, which owns the text. */
by_status by__remote_local(const char **out, by__remote_file *file, by_error *error);
/* Fetches files whole, one after the other, in a thread of its own, as far as they fit into the
 * cache together. What fails is left to those who read it. */
by_status by__remote_ahead(by__remote *remote, by__remote_file *const *files, size_t count,
                           by_error *error);

/* How many files of a size the cache holds at once; at least 1. */
size_t by__remote_at_once(const by__remote *remote, uint64_t size);
/* From now on, nobody is told of progress; `stop` is asked as before. */
void by__remote_quiet(by__remote *remote);

/* Of a path that is a URL, the local file of by__remote_local; any other path itself. Opens *remote
 * if it is needed, and is still NULL. */
by_status by__remote_path(const char **out, by__remote **remote, const by_remote_options *options,
                          const char *path, by_error *error);

/* ---- folders (remote_listing.c) ---- */

/* What is below a prefix of a bucket, by names in the order of their bytes. {0} is empty. */
typedef struct by__remote_names {
    char **urls;
    size_t count;
    size_t capacity;
} by__remote_names;

/* Whether a URL names a folder: s3://BUCKET or one that ends in a slash. */
bool by__remote_is_folder(const char *url);
/* Lists s3://BUCKET/PREFIX/ and what is in folders below it; by__remote_find then knows the files.
 * BY_EIO: nothing is there; BY_EARG: not of S3, where nothing can be listed. */
by_status by__remote_list(by__remote_names *out, by__remote *remote, const char *url,
                          by_error *error);
void by__remote_names_free(by__remote_names *names);

/* ---- URLs (remote_url.c) ---- */

/* The last part of the path, without a query, as a name of a file; "data" if it is none. */
void by__remote_file_name(char out[200], const char *url);
/* Bytes of a text for messages. */
#define BY__REMOTE_SHOWN 400
/* Writes a URL as messages have it: without a query, which may hold a signature. */
const char *by__remote_shown(char out[BY__REMOTE_SHOWN], const char *url);

#endif
