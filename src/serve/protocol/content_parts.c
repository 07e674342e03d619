#include "serve/protocol/content_parts.h"

#include <string.h>

#include "serve/protocol/messages.h"

/* The text of a part; NULL, with an error, if it has none. */
static const json_t *text_of(const json_t *part, by_error *error)
{
    static const char *const types[] = {"text", "input_text", "output_text", "refusal"};
    const char *type = by__protocol_get_text(part, "type");
    bool refuses = type != NULL && strcmp(type, "refusal") == 0;
    const json_t *text = json_object_get(part, refuses ? "refusal" : "text");
    if (type == NULL) {
        (void)by_error_set(error, BY_EARG, "a part of a 'content' must be an object with a 'type'");
        return NULL;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(type, types[i]) == 0 && json_is_string(text)) {
            return text;
        }
        if (strcmp(type, types[i]) == 0) {
            (void)by_error_set(error, BY_EARG, "a part of type '%s' must have a string as '%s'",
                               type, refuses ? type : "text");
            return NULL;
        }
    }
    (void)by_error_set(error, BY_EARG,
                       "a part of a 'content' is of type '%.64s': the model reads text, send parts "
                       "of type 'text'",
                       type);
    return NULL;
}

by_status by__protocol_content_text(json_t **out, const json_t *content, by_error *error)
{
    size_t i;
    json_t *part;
    by_string text = {0};
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)(uintptr_t)content);
        return BY_OK;
    }
    if (!json_is_array(content)) {
        return by_error_set(error, BY_EARG, "a 'content' must be a text or a list of parts");
    }
    json_array_foreach(content, i, part)
    {
        const json_t *piece = text_of(part, error);
        if (piece == NULL) {
            by_string_free(&text);
            return BY_EARG;
        }
        by__string_append(&text, i > 0 ? "\n" : "");
        by_string_add(&text, json_string_value(piece), json_string_length(piece));
    }
    if (!text.failed) {
        *out = json_stringn(text.data == NULL ? "" : text.data, text.length);
    }
    by_string_free(&text);
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

by_status by__protocol_content_parts(json_t **out, const json_t *content, by_error *error)
{
    size_t i;
    json_t *part;
    *out = json_array();
    json_array_foreach(content, i, part)
    {
        const json_t *piece = text_of(part, error);
        json_t *one = piece == NULL ? NULL
                                    : json_pack("{ss sO}", "type", "text", "text",
                                                (json_t *)(uintptr_t)piece);
        if (json_array_append_new(*out, one) != 0) {
            json_decref(*out);
            *out = NULL;
            return piece == NULL ? BY_EARG
                                 : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
        }
    }
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}
