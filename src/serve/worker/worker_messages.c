/* Makes the prompt of a conversation by rendering its messages with the model's chat template. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/protocol/content_parts.h"
#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

/* A copy of a message without what an answer has to say that there is none of it, which templates
 * would take for something: null and empty lists. An answer without calls has a text. NULL: memory
 * is exhausted. */
static json_t *without_empty(const json_t *message)
{
    const char *name;
    json_t *value;
    void *next;
    json_t *out = by__protocol_copy_object(message);
    json_object_foreach_safe(out, next, name, value)
    {
        bool empty = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
        if (empty && strcmp(name, "content") != 0) {
            (void)json_object_del(out, name);
        }
    }
    json_t *refusal = json_object_get(out, "refusal");
    bool calls =
        json_object_get(out, "tool_calls") != NULL || json_object_get(out, "function_call") != NULL;
    bool none =
        json_object_get(out, "content") == NULL || json_is_null(json_object_get(out, "content"));
    if (none && !calls &&
        json_object_set_new(out, "content",
                            json_is_string(refusal) ? json_incref(refusal) : json_string("")) !=
            0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* Normalizes messages: their contents to strings or, if `parts`, lists of text parts where they
 * were lists. */
static by_status normalize(json_t **out, const json_t *messages, bool parts, by_error *error)
{
    size_t i;
    json_t *message;
    by_status status = BY_OK;
    *out = json_array();
    json_array_foreach(messages, i, message)
    {
        json_t *content = json_object_get(message, "content");
        json_t *whole = without_empty(message);
        if (json_is_array(content)) {
            json_t *normalized = NULL;
            status = parts ? by__protocol_content_parts(&normalized, content, error)
                           : by__protocol_content_text(&normalized, content, error);
            if (status == BY_OK && json_object_set_new(whole, "content", normalized) != 0) {
                json_decref(whole);
                whole = NULL;
            }
        }
        if (status == BY_OK && json_array_append(*out, whole) != 0) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
        }
        json_decref(whole);
        if (status != BY_OK) {
            json_decref(*out);
            return by_error_prefix(error, status, "message %zu", i);
        }
    }
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

/* Gives messages without content, those that only call functions, an empty one. Returns whether
 * there are any; *failed: memory is exhausted. */
static bool fill_contents(json_t *messages, bool *failed)
{
    size_t i;
    json_t *message;
    bool any = false;
    json_array_foreach(messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        if (content == NULL || json_is_null(content)) {
            *failed = json_object_set_new(message, "content", json_string("")) != 0 || *failed;
            any = true;
        }
    }
    return any;
}

/* Renders what was leveled. */
static by_status render(char **text, size_t *length, const by__worker_served_model *model,
                        json_t *normalized, by_chat_request *chat, by_error *error)
{
    char *text_of_messages = by__json_dump(normalized, JSON_COMPACT);
    if (text_of_messages == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
    }
    chat->messages = text_of_messages;
    chat->messages_length = strlen(text_of_messages);
    by_status status = by_chat_render(model->chat, chat, text, length, error);
    free(text_of_messages);
    return status;
}

by_status by__worker_served_messages(by_token_buffer *out, const by__worker_served_model *model,
                                     const json_t *messages, const json_t *tools,
                                     const json_t *variables, const char **code, by_error *error)
{
    char *text = NULL;
    size_t length;
    json_t *normalized;
    if (model->chat == NULL) {
        return by_error_set(error, BY_EARG, "the model has no chat template: ask for a completion");
    }
    if (tools != NULL && !json_is_array(tools)) {
        return by_error_set(error, BY_EARG, "'tools' must be a list");
    }
    BY_TRY(normalize(&normalized, messages, by_chat_accepts_parts(model->chat), error));
    char *known = tools == NULL ? NULL : by__json_dump(tools, JSON_COMPACT);
    char *more = variables == NULL ? NULL : by__json_dump(variables, JSON_COMPACT);
    bool failed = (tools != NULL && known == NULL) || (variables != NULL && more == NULL);
    by_chat_request chat = {.tools = known,
                            .tools_length = known == NULL ? 0 : strlen(known),
                            .variables = more,
                            .variables_length = more == NULL ? 0 : strlen(more),
                            .calls_as_text = true,
                            .add_generation_prompt = true};
    by_status status = failed ? by_error_set(error, BY_EMEMORY, "out of memory: a conversation")
                              : render(&text, &length, model, normalized, &chat, error);
    /* A content of null is part of what some templates read, while others add to it. */
    if (status == BY_EARG && fill_contents(normalized, &failed)) {
        by_error again = {0};
        by_status second =
            failed ? BY_EMEMORY : render(&text, &length, model, normalized, &chat, &again);
        status = second == BY_OK ? BY_OK : status;
    }
    json_decref(normalized);
    if (status == BY_OK) {
        status = by__worker_served_encode(out, model, text, length, BY_ENCODE_SPECIAL, code, error);
    }
    free(known);
    free(more);
    free(text);
    return status;
}
