#include "serve/gateway/core/keys.h"
#include "base/utf8.h"

#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE ((size_t)4 << 20)

/* All clients that any version of the file had: requests hold pointers to them. */
typedef struct clients {
    by__gateway_client **items;
    size_t count;
    size_t capacity;
    size_t accounts;
    size_t users; /* number of by__gateway_keys that share them */
} clients;

typedef struct key {
    unsigned char hash[SHA256_DIGEST_SIZE];
    const by__gateway_client *client;
} key;

struct by__gateway_keys {
    key *items;
    size_t count;
    size_t capacity;
    clients *clients;
};

static void digest(unsigned char out[SHA256_DIGEST_SIZE], const char *text)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, strlen(text), (const uint8_t *)text);
    sha256_digest(&context, SHA256_DIGEST_SIZE, out);
}

void by__gateway_sha256_hex(char out[65], const char *text)
{
    unsigned char hash[SHA256_DIGEST_SIZE];
    digest(hash, text);
    for (size_t i = 0; i < sizeof hash; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
    }
}

static const struct {
    by__gateway_scope scope;
    const char *name;
} scopes[] = {{BY__SCOPE_INFERENCE, "inference"},
              {BY__SCOPE_TASKS, "tasks"},
              {BY__SCOPE_METRICS, "metrics"},
              {BY__SCOPE_ADMIN, "admin"}};

const char *by__gateway_scope_name(by__gateway_scope scope)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(scopes); i++) {
        if (scopes[i].scope == scope) {
            return scopes[i].name;
        }
    }
    return NULL;
}

/* Parses "inference,tasks"; 0 for any other text. */
static unsigned parse_scopes(const char *text, size_t length)
{
    unsigned out = 0;
    for (size_t at = 0; at <= length;) {
        const char *comma = memchr(text + at, ',', length - at);
        size_t n = comma == NULL ? length - at : (size_t)(comma - text) - at;
        unsigned found = 0;
        for (size_t i = 0; i < BY_ARRAY_LENGTH(scopes); i++) {
            if (strlen(scopes[i].name) == n && memcmp(scopes[i].name, text + at, n) == 0) {
                found = scopes[i].scope;
            }
        }
        if (found == 0) {
            return 0;
        }
        out |= found;
        at += n + 1;
    }
    return out;
}

/* Parses "HASH NAME" or "HASH NAME SCOPES". Returns false if it is malformed. */
static bool parse(key *k, by__gateway_client *c, const char *line, size_t length)
{
    size_t digits = 2 * sizeof k->hash;
    if (length < digits + 2 || line[digits] != ' ') {
        return false;
    }
    for (size_t i = 0; i < sizeof k->hash; i++) {
        char two[3] = {line[2 * i], line[2 * i + 1], '\0'};
        if (strspn(two, "0123456789abcdefABCDEF") != 2) {
            return false;
        }
        k->hash[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    line += digits + 1;
    length -= digits + 1;
    const char *space = memchr(line, ' ', length);
    size_t n = space == NULL ? length : (size_t)(space - line);
    if (n >= sizeof c->name) {
        return false;
    }
    memcpy(c->name, line, n);
    c->name[n] = '\0';
    c->scopes = space == NULL ? BY__SCOPE_INFERENCE | BY__SCOPE_TASKS
                              : parse_scopes(space + 1, length - n - 1);
    return by__serve_id_valid(c->name) && c->scopes != 0;
}

/* Finds or creates the client with this name and scopes. */
static by_status find_client(const by__gateway_client **out, clients *list,
                             const by__gateway_client *wanted, by_error *error)
{
    size_t account = 0;
    by__gateway_client *c = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const by__gateway_client *other = list->items[i];
        bool same = strcmp(other->name, wanted->name) == 0;
        account = same ? other->account : account;
        if (same && other->scopes == wanted->scopes) {
            *out = other;
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items,
                       error));
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "keys", error));
    *c = *wanted;
    c->account = account > 0 ? account : ++list->accounts;
    list->items[list->count++] = c;
    *out = c;
    return BY_OK;
}

static void release_clients(clients *list)
{
    if (list == NULL || --list->users > 0) {
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    free(list);
}

static int compare_keys(const void *a, const void *b)
{
    const key *x = *(const key *const *)a;
    const key *y = *(const key *const *)b;
    return memcmp(x->hash, y->hash, sizeof x->hash);
}

/* One key cannot stand for two clients: whose quota and scopes it has would be chance. */
static by_status check_twice(const by__gateway_keys *keys, const char *path, by_error *error)
{
    const key **sorted;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&sorted, keys->count, sizeof *sorted, "keys", error));
    for (size_t i = 0; i < keys->count; i++) {
        sorted[i] = &keys->items[i];
    }
    qsort(sorted, keys->count, sizeof *sorted, compare_keys);
    for (size_t i = 1; i < keys->count && status == BY_OK; i++) {
        if (compare_keys(&sorted[i - 1], &sorted[i]) == 0 &&
            sorted[i - 1]->client != sorted[i]->client) {
            status = by_error_set(error, BY_ECONFIG,
                                  "%s: two lines have the same key, for %s and for %s, which may "
                                  "have other scopes: give each client a key of its own",
                                  path, sorted[i - 1]->client->name, sorted[i]->client->name);
        }
    }
    free(sorted);
    return status;
}

/* The hash of nothing is what a variable that is not set makes, and a header without a key fits. */
static bool is_empty_key(const key *k)
{
    unsigned char hash[SHA256_DIGEST_SIZE];
    digest(hash, "");
    return memcmp(hash, k->hash, sizeof hash) == 0;
}

static by_status read_lines(by__gateway_keys *keys, const char *text, const char *path,
                            by_error *error)
{
    size_t number = 1;
    for (const char *line = text; *line != '\0'; number++) {
        size_t all = strcspn(line, "\n");
        size_t length = all - (all > 0 && line[all - 1] == '\r');
        if (length > 0 && line[0] != '#') {
            BY_TRY(by__reserve((void **)&keys->items, &keys->capacity, keys->count + 1,
                               sizeof *keys->items, error));
            by__gateway_client client;
            if (!parse(&keys->items[keys->count], &client, line, length)) {
                return by_error_set(
                    error, BY_ECONFIG,
                    "%s:%zu: a key is 64 hexadecimal digits (its SHA-256), a space, "
                    "a name of letters, digits, - and _, and perhaps a space and "
                    "scopes: inference,tasks,metrics,admin",
                    path, number);
            }
            if (is_empty_key(&keys->items[keys->count])) {
                return by_error_set(error, BY_ECONFIG,
                                    "%s:%zu: this is the SHA-256 of an empty key: was a variable "
                                    "not set?",
                                    path, number);
            }
            BY_TRY(find_client(&keys->items[keys->count].client, keys->clients, &client, error));
            keys->count++;
        }
        line += all + (line[all] == '\n');
    }
    if (keys->count == 0) {
        return by_error_set(error, BY_ECONFIG, "%s has no key", path);
    }
    return check_twice(keys, path, error);
}

by_status by__gateway_keys_open(by__gateway_keys **out, const char *path, by_error *error)
{
    return by__gateway_keys_open_again(out, NULL, path, error);
}

by_status by__gateway_keys_open_again(by__gateway_keys **out, const by__gateway_keys *former,
                                      const char *path, by_error *error)
{
    char *text = NULL;
    size_t length;
    *out = NULL;
    /* A restart would not help. */
    if (!by__path_exists(path)) {
        return by_error_set(error, BY_ECONFIG, "%s: there is no such file of keys", path);
    }
    BY_TRY(by__file_read_text(&text, &length, path, MAX_FILE, error));
    clients *list = former == NULL ? NULL : former->clients;
    by_status status =
        list != NULL ? BY_OK : by__alloc((void **)&list, 1, sizeof *list, "keys", error);
    if (status == BY_OK) {
        list->users++;
        status = by__alloc((void **)out, 1, sizeof **out, "keys", error);
    }
    if (status == BY_OK) {
        (*out)->clients = list;
        status = read_lines(*out, text, path, error);
    }
    free(text);
    if (status != BY_OK && *out == NULL) {
        release_clients(list);
    } else if (status != BY_OK) {
        by__gateway_keys_close(out);
    }
    return status;
}

void by__gateway_keys_close(by__gateway_keys **keys)
{
    if (*keys != NULL) {
        release_clients((*keys)->clients);
        free((*keys)->items);
        free(*keys);
        *keys = NULL;
    }
}

size_t by__gateway_keys_count(const by__gateway_keys *keys)
{
    return keys->count;
}

const by__gateway_client *by__gateway_keys_at(const by__gateway_keys *keys, size_t index)
{
    return keys->items[index].client;
}

const by__gateway_client *by__gateway_keys_find(const by__gateway_keys *keys, const char *key_text)
{
    unsigned char hash[SHA256_DIGEST_SIZE];
    const by__gateway_client *client = NULL;
    digest(hash, key_text);
    for (size_t i = 0; i < keys->count; i++) {
        unsigned char differs = 0;
        for (size_t j = 0; j < sizeof hash; j++) {
            differs |= (unsigned char)(hash[j] ^ keys->items[i].hash[j]);
        }
        client = differs == 0 ? keys->items[i].client : client;
    }
    return client;
}
