/* Writes tokenizer.json as Hugging Face does. A character vocabulary becomes a BPE without merges
 * and pre-tokenizer, which also gives one token per character; its decoder joins them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/model.h"
#include "text/unicode/unicode.h"

static const char byte_level_parts[] =
    "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
    "\"trim_offsets\": true, \"use_regex\": true},\n"
    "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
    "\"trim_offsets\": false, \"use_regex\": true},\n"
    "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
    "\"trim_offsets\": true, \"use_regex\": true},\n";

static const char character_parts[] = "  \"pre_tokenizer\": null,\n  \"post_processor\": null,\n"
                                      "  \"decoder\": {\"type\": \"Fuse\"},\n";

void by__tokenizer_write_name(by_string *text, const by_tokenizer *t, uint32_t id)
{
    const char *data = t->bytes + t->offsets[id];
    size_t length = t->offsets[id + 1] - t->offsets[id];
    if (t->verbatim[id] != 0) {
        by_string_json(text, data, length);
        return;
    }
    by__string_append(text, "\"");
    for (size_t i = 0; i < length; i++) {
        uint8_t utf8[4];
        uint32_t letter = by__text_byte_letter((uint8_t)data[i]);
        if (letter == '"' || letter == '\\') {
            by__string_append(text, "\\");
        }
        by_string_add(text, utf8, by__utf8_put(utf8, letter));
    }
    by__string_append(text, "\"");
}

void by__tokenizer_write_vocabulary(by_string *text, const by_tokenizer *t)
{
    by__string_append(text, "{");
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        by__string_append(text, id == 0 ? "\n      " : ",\n      ");
        by__tokenizer_write_name(text, t, id);
        by_string_format(text, ": %" PRIu32, id);
    }
    by__string_append(text, "\n    }");
}

static void add_added(by_string *text, const by__tokenizer_added_token *a)
{
    by_string_format(text, "{\"id\": %" PRIu32 ", \"content\": ", a->id);
    by_string_json(text, a->content, a->length);
    by_string_format(text,
                     ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, "
                     "\"special\": %s}",
                     a->single_word ? "true" : "false", a->lstrip ? "true" : "false",
                     a->rstrip ? "true" : "false", a->normalized ? "true" : "false",
                     a->special ? "true" : "false");
}

/* Prints the parts other than the model: as they were read, unless it is one of the two kinds
 * above. */
static void add_parts(by_string *text, const by_tokenizer *t)
{
    static const char *const keys[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    const by__tokenizer_pipeline *p = &t->pipeline;
    if (p->source[0] == NULL) {
        by__string_append(text, "  \"normalizer\": null,\n");
        by__string_append(text, t->characters ? character_parts : byte_level_parts);
        return;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        by_string_format(text, "  \"%s\": ", keys[i]);
        by__string_append(text, p->source[i]);
        by__string_append(text, ",\n");
    }
}

by_status by_tokenizer_to_json(const by_tokenizer *t, char **out, size_t *length, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                             "  \"padding\": null,\n  \"added_tokens\": [");
    for (size_t i = 0; i < t->added_count; i++) {
        by__string_append(&text, i == 0 ? "\n    " : ",\n    ");
        add_added(&text, &t->added[i]);
    }
    by__string_append(&text, t->added_count > 0 ? "\n  ],\n" : "],\n");
    add_parts(&text, t);
    by__string_append(&text, "  \"model\": ");
    t->model->write(t, &text);
    by__string_append(&text, "\n}\n");
    size_t total = text.length;
    BY_TRY(by__string_release(&text, out, error));
    *length = total;
    return BY_OK;
}

by_status by_tokenizer_save(const by_tokenizer *tokenizer, const char *path, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by_tokenizer_to_json(tokenizer, &text, &length, error));
    by_status status = by__file_write(path, text, length, error);
    free(text);
    return status;
}
