/* API keys of clients. A file has one a line: the SHA-256 of the key in 64 hexadecimal digits, a
 * space, a name, and optionally a space and scopes ("inference,tasks"); '#' starts a comment.
 * Without scopes a key has inference and tasks. The keys themselves are not stored. */
#ifndef BY_SERVE_GATEWAY_CORE_KEYS_H
#define BY_SERVE_GATEWAY_CORE_KEYS_H

#include "serve/base/serve.h"

/* What a key grants access to. */
typedef enum by__gateway_scope {
    BY__SCOPE_NONE = 0,      /* routes that need no key */
    BY__SCOPE_INFERENCE = 1, /* models and their answers */
    BY__SCOPE_TASKS = 2,     /* tasks created with this key */
    BY__SCOPE_METRICS = 4,
    BY__SCOPE_ADMIN = 8 /* changes to the server; each use is in the audit log */
} by__gateway_scope;
#define BY__SCOPES_ALL 15u

/* The name of a scope, e.g. "inference"; NULL if the value is not a single scope. */
const char *by__gateway_scope_name(by__gateway_scope scope);

typedef struct by__gateway_client {
    char name[65];
    unsigned scopes; /* of by__gateway_scope */
    size_t account;  /* the same for all keys of one name, from 1 on; 0: clients without a key */
} by__gateway_client;

typedef struct by__gateway_keys by__gateway_keys;

by_status by__gateway_keys_open(by__gateway_keys **out, const char *path, by_error *error);
/* Loads a file that replaces `former`: clients of the same name and scopes are the same objects, a
 * name keeps its account, and the former clients are valid as long as these keys. */
by_status by__gateway_keys_open_again(by__gateway_keys **out, const by__gateway_keys *former,
                                      const char *path, by_error *error);
void by__gateway_keys_close(by__gateway_keys **keys);
/* Number of keys in the file, and key i in its order. */
size_t by__gateway_keys_count(const by__gateway_keys *keys);
const by__gateway_client *by__gateway_keys_at(const by__gateway_keys *keys, size_t index);
/* The client of a key; NULL if the key is unknown. Takes the same time for every key. */
const by__gateway_client *by__gateway_keys_find(const by__gateway_keys *keys, const char *key);
/* SHA-256 of a text in hexadecimal digits. */
void by__gateway_sha256_hex(char out[65], const char *text);

#endif
