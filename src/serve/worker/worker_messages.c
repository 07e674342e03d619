/* Makes the prompt of a conversation by rendering its messages with the model's chat template. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/content_parts.h"
#include "serve/messages.h"
#include "serve/worker/worker.h"

/* Normalizes the contents of messages to strings or, if `parts`, lists of text parts where they
 * were lists. */
static by_status level(json_t **out, const json_t *messages, bool parts, by_error *error)
{
    size_t i;
    json_t *message;
    by_status status = BY_OK;
    *out = json_array();
    json_array_foreach(messages, i, message)
    {
        json_t *content = json_object_get(message, "content");
        json_t *whole = json_incref(message);
        if (json_is_array(content)) {
            json_t *even = NULL;
            json_decref(whole);
            whole = by__copy_object(message);
            status = parts ? by__content_parts(&even, content, error)
                           : by__content_text(&even, content, error);
            if (status == BY_OK && json_object_set_new(whole, "content", even) != 0) {
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

by_status by__served_messages(by_token_buffer *out, const by__served_model *model,
                              const json_t *messages, const json_t *tools, const json_t *variables,
                              by_error *error)
{
    char *text = NULL;
    size_t length;
    json_t *even;
    if (model->chat == NULL) {
        return by_error_set(error, BY_EARG, "the model has no chat template: ask for a completion");
    }
    if (tools != NULL && !json_is_array(tools)) {
        return by_error_set(error, BY_EARG, "'tools' must be a list");
    }
    BY_TRY(level(&even, messages, by_chat_takes_parts(model->chat), error));
    char *said = by__json_dump(even, JSON_COMPACT);
    char *known = tools == NULL ? NULL : by__json_dump(tools, JSON_COMPACT);
    char *more = variables == NULL ? NULL : by__json_dump(variables, JSON_COMPACT);
    json_decref(even);
    by_status status =
        said == NULL || (tools != NULL && known == NULL) || (variables != NULL && more == NULL)
            ? by_error_set(error, BY_EMEMORY, "out of memory: a conversation")
            : BY_OK;
    if (status == BY_OK) {
        by_chat_request chat = {.messages = said,
                                .messages_length = strlen(said),
                                .tools = known,
                                .tools_length = known == NULL ? 0 : strlen(known),
                                .variables = more,
                                .variables_length = more == NULL ? 0 : strlen(more),
                                .add_generation_prompt = true};
        status = by_chat_render(model->chat, &chat, &text, &length, error);
    }
    if (status == BY_OK) {
        status = by__served_encode(out, model, text, length, BY_ENCODE_SPECIAL, error);
    }
    free(said);
    free(known);
    free(more);
    free(text);
    return status;
}
