#include "data/corpus/token_manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"

#define MANIFEST_FORMAT     "banyan-tokens"
#define MANIFEST_VERSION    1
#define MANIFEST_MAX_BYTES  ((size_t)1 << 30)
#define MANIFEST_MAX_NUMBER ((uint64_t)1 << 53)

/* Context of an object, for messages. */
typedef struct scope {
    const char *name;
    const char *where; /* "", "tokenizer.", "shards[]." */
    by_error *error;
} scope;

void by__data_token_manifest_free(by__data_token_manifest *manifest)
{
    for (size_t i = 0; i < manifest->shard_count; i++) {
        free(manifest->shards[i].file);
    }
    for (size_t i = 0; i < manifest->source_count; i++) {
        free(manifest->sources[i].path);
    }
    free(manifest->shards);
    free(manifest->sources);
    free(manifest->chat.mask_file);
    free(manifest->chat.template_file);
    free(manifest->tokenizer_file);
    free(manifest->offsets_file);
    *manifest = (by__data_token_manifest){0};
}

/* The object must have exactly the `count` keys of `keys`; `other` (may be NULL) may be there. */
static by_status check_keys_or(const scope *s, const json_t *object, const char *const *keys,
                               size_t count, const char *other)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        return by_error_set(s->error, BY_EFORMAT, "%s: %s is not an object", s->name, s->where);
    }
    for (size_t i = 0; i < count; i++) {
        if (json_object_get(object, keys[i]) == NULL) {
            return by_error_set(s->error, BY_EFORMAT, "%s: key %s%s is missing", s->name, s->where,
                                keys[i]);
        }
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (i < count && strcmp(key, keys[i]) != 0) {
            i++;
        }
        if (i == count && (other == NULL || strcmp(key, other) != 0)) {
            return by_error_set(s->error, BY_EFORMAT, "%s: unknown key %s%s", s->name, s->where,
                                key);
        }
    }
    return BY_OK;
}

static by_status check_keys(const scope *s, const json_t *object, const char *const *keys,
                            size_t count)
{
    return check_keys_or(s, object, keys, count, NULL);
}

static by_status get_number(const scope *s, const json_t *object, const char *key, uint64_t max,
                            uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        return by_error_set(s->error, BY_EFORMAT,
                            "%s: %s%s is not a whole number from 0 to %" PRIu64, s->name, s->where,
                            key, max);
    }
    *out = (uint64_t)json_integer_value(value);
    return BY_OK;
}

static by_status get_text(const scope *s, const json_t *object, const char *key, char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        return by_error_set(s->error, BY_EFORMAT, "%s: %s%s is not a string", s->name, s->where,
                            key);
    }
    *out = by__strdup(json_string_value(value));
    return *out != NULL ? BY_OK : by_error_set(s->error, BY_EMEMORY, "out of memory: %s", s->name);
}

static by_status get_file(const scope *s, const json_t *object, const char *key, char **out)
{
    BY_TRY(get_text(s, object, key, out));
    const char *file = *out;
    if (file[0] == '\0' || strchr(file, '/') != NULL || strcmp(file, ".") == 0 ||
        strcmp(file, "..") == 0) {
        return by_error_set(s->error, BY_EFORMAT, "%s: %s%s \"%.80s\" is not a plain file name",
                            s->name, s->where, key, file);
    }
    return BY_OK;
}

static by_status get_hash(const scope *s, const json_t *object, const char *key, char out[33])
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) {
        return by_error_set(s->error, BY_EFORMAT, "%s: %s%s is not 32 lower-case hex digits",
                            s->name, s->where, key);
    }
    memcpy(out, text, 33);
    return BY_OK;
}

static by_status get_list(const scope *s, const json_t *root, const char *key, size_t size,
                          void **out, size_t *count, const json_t **list)
{
    *list = json_object_get(root, key);
    if (!json_is_array(*list)) {
        return by_error_set(s->error, BY_EFORMAT, "%s: %s is not a list", s->name, key);
    }
    BY_TRY(by__alloc(out, json_array_size(*list), size, key, s->error));
    *count = json_array_size(*list);
    return BY_OK;
}

static by_status read_shards(by__data_token_manifest *m, const scope *s, const json_t *root)
{
    static const char *const keys[] = {"file", "tokens", "xxh3_128"};
    scope inner = {s->name, "shards[].", s->error};
    const json_t *list;
    uint64_t sum = 0;
    BY_TRY(get_list(s, root, "shards", sizeof *m->shards, (void **)&m->shards, &m->shard_count,
                    &list));
    for (size_t i = 0; i < m->shard_count; i++) {
        const json_t *item = json_array_get(list, i);
        BY_TRY(check_keys(&inner, item, keys, BY_ARRAY_LENGTH(keys)));
        BY_TRY(get_file(&inner, item, "file", &m->shards[i].file));
        BY_TRY(get_number(&inner, item, "tokens", MANIFEST_MAX_NUMBER, &m->shards[i].tokens));
        BY_TRY(get_hash(&inner, item, "xxh3_128", m->shards[i].hash));
        sum += m->shards[i].tokens;
        if (sum > MANIFEST_MAX_NUMBER) {
            break;
        }
    }
    if (sum != m->tokens) {
        return by_error_set(s->error, BY_EFORMAT,
                            "%s: the shards hold %" PRIu64 " tokens but tokens is %" PRIu64,
                            s->name, sum, m->tokens);
    }
    return BY_OK;
}

static by_status read_sources(by__data_token_manifest *m, const scope *s, const json_t *root)
{
    static const char *const keys[] = {"path", "bytes", "xxh3_128"};
    scope inner = {s->name, "sources[].", s->error};
    const json_t *list;
    BY_TRY(get_list(s, root, "sources", sizeof *m->sources, (void **)&m->sources, &m->source_count,
                    &list));
    for (size_t i = 0; i < m->source_count; i++) {
        const json_t *item = json_array_get(list, i);
        BY_TRY(check_keys(&inner, item, keys, BY_ARRAY_LENGTH(keys)));
        BY_TRY(get_text(&inner, item, "path", &m->sources[i].path));
        BY_TRY(get_number(&inner, item, "bytes", MANIFEST_MAX_NUMBER, &m->sources[i].bytes));
        BY_TRY(get_hash(&inner, item, "xxh3_128", m->sources[i].hash));
    }
    return BY_OK;
}

static by_status read_header(by__data_token_manifest *m, const scope *s, const json_t *root)
{
    static const char *const keys[] = {"format",    "version", "dtype",     "vocab",
                                       "eos",       "tokens",  "documents", "text_bytes",
                                       "tokenizer", "offsets", "shards",    "sources"};
    uint64_t number = 0;
    /* Checks format and version first: another version may have other keys. */
    const char *format = json_string_value(json_object_get(root, "format"));
    if (format == NULL || strcmp(format, MANIFEST_FORMAT) != 0) {
        return by_error_set(s->error, BY_EFORMAT, "%s: format is not \"" MANIFEST_FORMAT "\"",
                            s->name);
    }
    BY_TRY(get_number(s, root, "version", MANIFEST_MAX_NUMBER, &number));
    if (number != MANIFEST_VERSION) {
        return by_error_set(s->error, BY_EFORMAT, "%s: version %" PRIu64 " is not %d; pack anew",
                            s->name, number, MANIFEST_VERSION);
    }
    BY_TRY(check_keys_or(s, root, keys, BY_ARRAY_LENGTH(keys), "chat"));
    const char *dtype = json_string_value(json_object_get(root, "dtype"));
    if (dtype == NULL || (strcmp(dtype, "u16") != 0 && strcmp(dtype, "u32") != 0)) {
        return by_error_set(s->error, BY_EFORMAT, "%s: dtype is not \"u16\" or \"u32\"", s->name);
    }
    m->width = strcmp(dtype, "u16") == 0 ? 2 : 4;
    BY_TRY(get_number(s, root, "vocab", m->width == 2 ? 65536 : UINT32_MAX, &number));
    m->vocab = (uint32_t)number;
    const json_t *eos = json_object_get(root, "eos");
    m->eos = json_is_integer(eos) ? json_integer_value(eos) : -2;
    if (m->eos < -1 || m->eos >= (int64_t)m->vocab) {
        return by_error_set(s->error, BY_EFORMAT,
                            "%s: eos is neither -1 nor a token below %" PRIu32, s->name, m->vocab);
    }
    BY_TRY(get_number(s, root, "tokens", MANIFEST_MAX_NUMBER, &m->tokens));
    BY_TRY(get_number(s, root, "documents", MANIFEST_MAX_NUMBER, &m->documents));
    return get_number(s, root, "text_bytes", MANIFEST_MAX_NUMBER, &m->text_bytes);
}

static by_status read_files(by__data_token_manifest *m, const scope *s, const json_t *root)
{
    static const char *const tokenizer_keys[] = {"file", "hash"};
    static const char *const offsets_keys[] = {"file", "xxh3_128"};
    scope tokenizer = {s->name, "tokenizer.", s->error};
    scope offsets = {s->name, "offsets.", s->error};
    const json_t *item = json_object_get(root, "tokenizer");
    BY_TRY(check_keys(&tokenizer, item, tokenizer_keys, BY_ARRAY_LENGTH(tokenizer_keys)));
    BY_TRY(get_file(&tokenizer, item, "file", &m->tokenizer_file));
    BY_TRY(get_hash(&tokenizer, item, "hash", m->tokenizer_hash));
    item = json_object_get(root, "offsets");
    BY_TRY(check_keys(&offsets, item, offsets_keys, BY_ARRAY_LENGTH(offsets_keys)));
    BY_TRY(get_file(&offsets, item, "file", &m->offsets_file));
    return get_hash(&offsets, item, "xxh3_128", m->offsets_hash);
}

/* Of conversations, if the documents are some. */
static by_status read_chat(by__data_token_manifest *m, const scope *s, const json_t *root)
{
    static const char *const keys[] = {"mask",    "xxh3_128", "template", "records", "targets",
                                       "corrupt", "too_long", "cut",      "lost"};
    scope inner = {s->name, "chat.", s->error};
    by__data_chat_manifest *c = &m->chat;
    const json_t *item = json_object_get(root, "chat");
    if (item == NULL) {
        return BY_OK;
    }
    BY_TRY(check_keys_or(&inner, item, keys, BY_ARRAY_LENGTH(keys), "pairs"));
    c->pairs = json_is_true(json_object_get(item, "pairs"));
    if (c->pairs && m->documents % 2 != 0) {
        return by_error_set(s->error, BY_EFORMAT,
                            "%s: %" PRIu64 " documents are no pairs of chosen and rejected ones",
                            s->name, m->documents);
    }
    BY_TRY(get_file(&inner, item, "mask", &c->mask_file));
    BY_TRY(get_file(&inner, item, "template", &c->template_file));
    BY_TRY(get_hash(&inner, item, "xxh3_128", c->mask_hash));
    BY_TRY(get_number(&inner, item, "records", MANIFEST_MAX_NUMBER, &c->records));
    BY_TRY(get_number(&inner, item, "targets", m->tokens, &c->targets));
    BY_TRY(get_number(&inner, item, "corrupt", MANIFEST_MAX_NUMBER, &c->corrupt));
    BY_TRY(get_number(&inner, item, "too_long", MANIFEST_MAX_NUMBER, &c->too_long));
    BY_TRY(get_number(&inner, item, "cut", MANIFEST_MAX_NUMBER, &c->cut));
    return get_number(&inner, item, "lost", MANIFEST_MAX_NUMBER, &c->lost);
}

by_status by__data_token_manifest_parse(by__data_token_manifest *out, const char *name,
                                        const char *text, size_t length, by_error *error)
{
    json_t *root;
    by__data_token_manifest m = {0};
    scope s = {name, "", error};
    BY_TRY(by__json_parse(&root, name, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = read_header(&m, &s, root);
    if (status == BY_OK) {
        status = read_files(&m, &s, root);
    }
    if (status == BY_OK) {
        status = read_shards(&m, &s, root);
    }
    if (status == BY_OK) {
        status = read_sources(&m, &s, root);
    }
    if (status == BY_OK) {
        status = read_chat(&m, &s, root);
    }
    json_decref(root);
    if (status != BY_OK) {
        by__data_token_manifest_free(&m);
        return status;
    }
    *out = m;
    return BY_OK;
}

by_status by__data_token_manifest_read(by__data_token_manifest *out, const char *directory,
                                       by_error *error)
{
    char *text;
    size_t length;
    char *path;
    BY_TRY(by__path_make(&path, directory, "manifest.json", error));
    by_status status = by__file_read(&text, &length, path, MANIFEST_MAX_BYTES, error);
    if (status == BY_OK) {
        status = by__data_token_manifest_parse(out, path, text, length, error);
        free(text);
    } else if (status == BY_EIO && !by__path_exists(path)) {
        status = by_error_set(error, status,
                              "%s holds no packed text: it has no manifest.json; `banyan pack` "
                              "makes one of text",
                              directory);
    }
    free(path);
    return status;
}

static void print_chat(by_string *text, const by__data_chat_manifest *c)
{
    by__string_append(text, ",\n  \"chat\": {\"mask\": ");
    by_string_json(text, c->mask_file, strlen(c->mask_file));
    by_string_format(text, ", \"xxh3_128\": \"%s\", \"template\": ", c->mask_hash);
    by_string_json(text, c->template_file, strlen(c->template_file));
    by_string_format(text,
                     ",\n    \"records\": %" PRIu64 ", \"targets\": %" PRIu64
                     ", \"corrupt\": %" PRIu64 ", \"too_long\": %" PRIu64 ", \"cut\": %" PRIu64
                     ", \"lost\": %" PRIu64 "%s}",
                     c->records, c->targets, c->corrupt, c->too_long, c->cut, c->lost,
                     c->pairs ? ", \"pairs\": true" : "");
}

static void print(by_string *text, const by__data_token_manifest *m)
{
    by_string_format(text,
                     "{\n  \"format\": \"" MANIFEST_FORMAT "\",\n  \"version\": %d,\n"
                     "  \"dtype\": \"%s\",\n  \"vocab\": %" PRIu32 ",\n  \"eos\": %" PRId64 ",\n",
                     MANIFEST_VERSION, m->width == 2 ? "u16" : "u32", m->vocab, m->eos);
    by_string_format(text,
                     "  \"tokens\": %" PRIu64 ",\n  \"documents\": %" PRIu64
                     ",\n  \"text_bytes\": %" PRIu64 ",\n",
                     m->tokens, m->documents, m->text_bytes);
    by__string_append(text, "  \"tokenizer\": {\"file\": ");
    by_string_json(text, m->tokenizer_file, strlen(m->tokenizer_file));
    by_string_format(text, ", \"hash\": \"%s\"},\n  \"offsets\": {\"file\": ", m->tokenizer_hash);
    by_string_json(text, m->offsets_file, strlen(m->offsets_file));
    by_string_format(text, ", \"xxh3_128\": \"%s\"},\n  \"shards\": [", m->offsets_hash);
    for (size_t i = 0; i < m->shard_count; i++) {
        by__string_append(text, i == 0 ? "\n    {\"file\": " : ",\n    {\"file\": ");
        by_string_json(text, m->shards[i].file, strlen(m->shards[i].file));
        by_string_format(text, ", \"tokens\": %" PRIu64 ", \"xxh3_128\": \"%s\"}",
                         m->shards[i].tokens, m->shards[i].hash);
    }
    by__string_append(text, "\n  ],\n  \"sources\": [");
    for (size_t i = 0; i < m->source_count; i++) {
        by__string_append(text, i == 0 ? "\n    {\"path\": " : ",\n    {\"path\": ");
        by_string_json(text, m->sources[i].path, strlen(m->sources[i].path));
        by_string_format(text, ", \"bytes\": %" PRIu64 ", \"xxh3_128\": \"%s\"}",
                         m->sources[i].bytes, m->sources[i].hash);
    }
    by__string_append(text, "\n  ]");
    if (m->chat.mask_file != NULL) {
        print_chat(text, &m->chat);
    }
    by__string_append(text, "\n}\n");
}

by_status by__data_token_manifest_write(const by__data_token_manifest *manifest,
                                        const char *directory, by_error *error)
{
    by_string text = {0};
    char *printed;
    print(&text, manifest);
    size_t length = text.length;
    BY_TRY(by__string_release(&text, &printed, error));
    char *path = by__path_join(directory, "manifest.json");
    by_status status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                    : by__file_write(path, printed, length, error);
    free(path);
    free(printed);
    return status;
}
