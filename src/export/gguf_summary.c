/* Summarises a GGUF file as text or JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export/gguf.h"
#include "formats/gguf_file.h"

typedef struct gguf_summary {
    by_string text;
    bool json;
} gguf_summary;

static void begin_line(gguf_summary *s, const char *key)
{
    if (s->json) {
        by__string_append(&s->text, s->text.length == 0 ? "{" : ",");
        by_string_json(&s->text, key, strlen(key));
        by__string_append(&s->text, ":");
    } else {
        by_string_format(&s->text, "%-16s ", key);
    }
}

static void add_text(gguf_summary *s, const char *key, const char *text, size_t length)
{
    begin_line(s, key);
    if (s->json) {
        by_string_json(&s->text, text, length);
    } else {
        by__string_add_valid(&s->text, text, length);
        by__string_append(&s->text, "\n");
    }
}

static void add_number(gguf_summary *s, const char *key, uint64_t value)
{
    begin_line(s, key);
    by_string_format(&s->text, s->json ? "%" PRIu64 : "%" PRIu64 "\n", value);
}

static void add_pair_text(gguf_summary *s, const char *name, const by__format_gguf_file *file,
                          const char *key)
{
    const char *text;
    size_t length;
    if (by__format_gguf_text(file, key, &text, &length)) {
        add_text(s, name, text, length);
    }
}

static void add_pair_number(gguf_summary *s, const char *name, const by__format_gguf_file *file,
                            const char *key)
{
    const char *text;
    size_t length;
    char full[192];
    uint64_t value;
    if (by__format_gguf_text(file, "general.architecture", &text, &length) && length < 64) {
        (void)snprintf(full, sizeof full, "%.*s.%s", (int)length, text, key);
        if (by__format_gguf_whole(file, full, &value)) {
            add_number(s, name, value);
        }
    }
}

/* Appends the number of tensors and the bytes of each type. */
static void add_types(gguf_summary *s, const by__format_gguf_file *file)
{
    uint64_t elements = 0;
    uint64_t bytes = 0;
    char key[32];
    for (size_t i = 0; i < file->tensor_count; i++) {
        const by__format_gguf_description *t = &file->tensors[i];
        elements += (uint64_t)(t->size[0] * t->size[1] * t->size[2] * t->size[3]);
        bytes += t->bytes;
    }
    add_number(s, "parameters", elements);
    add_number(s, "tensors", file->tensor_count);
    add_number(s, "tensor_bytes", bytes);
    for (uint32_t type = 0; type < 64; type++) {
        const by__export_gguf_type *known = by__export_gguf_type_of(type);
        uint64_t count = 0;
        for (size_t i = 0; i < file->tensor_count; i++) {
            count += file->tensors[i].type == type;
        }
        if (count > 0) {
            if (known == NULL) {
                (void)snprintf(key, sizeof key, "in_type_%" PRIu32, type);
            } else {
                (void)snprintf(key, sizeof key, "in_%s", known->name);
            }
            add_number(s, key, count);
        }
    }
}

static void add_all(gguf_summary *s, const by__format_gguf_file *file)
{
    const by__format_gguf_pair *tokens =
        by__format_gguf_array(file, "tokenizer.ggml.tokens", BY__GGUF_KIND_STRING);
    add_pair_text(s, "architecture", file, "general.architecture");
    add_pair_text(s, "name", file, "general.name");
    add_pair_number(s, "layers", file, "block_count");
    add_pair_number(s, "width", file, "embedding_length");
    add_pair_number(s, "heads", file, "attention.head_count");
    add_pair_number(s, "kv_heads", file, "attention.head_count_kv");
    add_pair_number(s, "context", file, "context_length");
    add_types(s, file);
    add_pair_text(s, "tokenizer", file, "tokenizer.ggml.model");
    add_pair_text(s, "pre_tokenizer", file, "tokenizer.ggml.pre");
    if (tokens != NULL) {
        add_number(s, "tokens", tokens->count);
    }
    add_pair_text(s, "run", file, "banyan.run");
    add_pair_text(s, "config_hash", file, "banyan.config_hash");
    add_pair_text(s, "data_hash", file, "banyan.data_hash");
}

by_status by_gguf_summary(char **out, const char *path, bool json, by_error *error)
{
    by__map map;
    by__format_gguf_file file;
    gguf_summary s = {.json = json};
    BY_TRY(by__map_open(&map, path, error));
    by_status status = by__format_gguf_parse(&file, path, map.data, map.size, error);
    if (status == BY_OK) {
        add_all(&s, &file);
        by__string_append(&s.text, json ? "}" : "");
        by__format_gguf_free(&file);
        status = by__string_release(&s.text, out, error);
    }
    by__map_close(&map);
    return status;
}

bool by_gguf_is_file(const char *path)
{
    return by__format_gguf_is_file(path);
}
