/* Keys of clients. A file has one a line: the SHA-256 of the key in 64 hexadecimal digits, a space,
 * and a name; '#' begins a comment. The keys themselves are nowhere. */
#ifndef BY_SERVE_KEYS_H
#define BY_SERVE_KEYS_H

#include "serve/serve.h"

typedef struct by__keys by__keys;

by_status by__keys_open(by__keys **out, const char *path, by_error *error);
void by__keys_close(by__keys **keys);
/* The name of a key, NULL if it is none. Takes the same time for every key. */
const char *by__keys_name(const by__keys *keys, const char *key);
/* SHA-256 of a text in hexadecimal digits. */
void by__sha256_hex(char out[65], const char *text);

#endif
