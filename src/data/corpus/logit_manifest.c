/* The manifest of stored logits (logit_store.h): parsed strictly. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/corpus/logit_store.h"

#define MAX_BYTES  ((size_t)1 << 26)
#define MAX_NUMBER ((uint64_t)1 << 53)

void by__data_logit_manifest_free(by__data_logit_manifest *manifest)
{
    free(manifest->shards);
    *manifest = (by__data_logit_manifest){0};
}

static by_status get_number(uint64_t *out, const char *name, const json_t *object, const char *key,
                            uint64_t least, uint64_t most, by_error *error)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || (uint64_t)number < least || (uint64_t)number > most) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %s is not a whole number from %" PRIu64 " to %" PRIu64, name, key,
                            least, most);
    }
    *out = (uint64_t)number;
    return BY_OK;
}

static by_status get_hash(char out[33], const char *name, const json_t *object, const char *key,
                          by_error *error)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) {
        return by_error_set(error, BY_EFORMAT, "%s: %s is not 32 lower-case hex digits", name, key);
    }
    memcpy(out, text, 33);
    return BY_OK;
}

static by_status read_shards(by__data_logit_manifest *m, const char *name, const json_t *root,
                             by_error *error)
{
    const json_t *list = json_object_get(root, "shards");
    uint64_t left = m->rows;
    if (!json_is_array(list)) {
        return by_error_set(error, BY_EFORMAT, "%s: shards is not a list", name);
    }
    BY_TRY(by__alloc((void **)&m->shards, json_array_size(list) + 1, sizeof *m->shards, "shards",
                     error));
    m->shard_count = json_array_size(list);
    for (size_t i = 0; i < m->shard_count; i++) {
        const json_t *item = json_array_get(list, i);
        by__data_logit_shard *shard = &m->shards[i];
        BY_TRY(get_number(&shard->rows, name, item, "rows", 1, MAX_NUMBER, error));
        BY_TRY(get_hash(shard->ids, name, item, "ids", error));
        BY_TRY(get_hash(shard->logarithms, name, item, "logarithms", error));
        if (shard->rows > left) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: the shards hold more than the %" PRIu64 " rows", name,
                                m->rows);
        }
        left -= shard->rows;
    }
    return left == 0 ? BY_OK
                     : by_error_set(error, BY_EFORMAT,
                                    "%s: the shards hold %" PRIu64 " of %" PRIu64 " rows", name,
                                    m->rows - left, m->rows);
}

static by_status read_root(by__data_logit_manifest *m, const char *name, const json_t *root,
                           by_error *error)
{
    uint64_t version;
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *temperature = json_object_get(root, "temperature");
    if (format == NULL || strcmp(format, "banyan-logits") != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: format is not \"banyan-logits\"", name);
    }
    BY_TRY(get_number(&version, name, root, "version", 1, 1, error));
    BY_TRY(get_number(&m->rows, name, root, "rows", 1, MAX_NUMBER, error));
    BY_TRY(get_number(&m->context, name, root, "context", 1, 1 << 30, error));
    BY_TRY(get_number(&m->vocab, name, root, "vocab", 1, INT32_MAX, error));
    BY_TRY(get_number(&m->top, name, root, "top", 1, m->vocab, error));
    m->temperature = json_number_value(temperature);
    if (!json_is_number(temperature) || !(m->temperature > 0.0) || !isfinite(m->temperature)) {
        return by_error_set(error, BY_EFORMAT, "%s: temperature is not a number above 0", name);
    }
    BY_TRY(get_hash(m->data, name, root, "data", error));
    BY_TRY(get_hash(m->teacher, name, root, "teacher", error));
    return read_shards(m, name, root, error);
}

by_status by__data_logit_manifest_parse(by__data_logit_manifest *out, const char *name,
                                        const char *text, size_t length, by_error *error)
{
    json_t *root;
    by__data_logit_manifest m = {0};
    BY_TRY(by__json_parse(&root, name, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = read_root(&m, name, root, error);
    json_decref(root);
    if (status != BY_OK) {
        by__data_logit_manifest_free(&m);
        return status;
    }
    *out = m;
    return BY_OK;
}

by_status by__data_logit_manifest_read(by__data_logit_manifest *out, const char *directory,
                                       by_error *error)
{
    char *text;
    size_t length;
    char *path = by__path_join(directory, "manifest.json");
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                    : by__file_read(&text, &length, path, MAX_BYTES, error);
    if (status == BY_OK) {
        status = by__data_logit_manifest_parse(out, path, text, length, error);
        free(text);
    }
    free(path);
    return status;
}
