/* OpenAI's API: checks the messages of a conversation before they are sent to a worker, whose
 * template may accept anything, and render what is misspelt as nothing. */
#include <string.h>

#include "serve/fields.h"
#include "serve/gateway/gateway.h"
#include "serve/messages.h"

typedef struct message {
    const char *role;
    const json_t *content, *calls, *function, *refusal;
} message;

/* The API's fields, those of its answers, which clients send back, and those that published
 * templates read. */
static const by__field fields[] = {
    BY__STRING("role", message, role, 64),
    BY__ANY("content", message, content),
    BY__ANY("tool_calls", message, calls),
    BY__ANY("function_call", message, function),
    BY__ANY("refusal", message, refusal),
    BY__IGNORED("name"),
    BY__IGNORED("tool_call_id"),
    BY__IGNORED("reasoning_content"),
    BY__IGNORED("reasoning"),
    BY__IGNORED("thinking"),
    BY__IGNORED("tool_plan"),
    BY__IGNORED("annotations"),
    BY__IGNORED("audio"),
};

static bool is_role(const char *role)
{
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(roles); i++) {
        if (strcmp(role, roles[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The worker reads the parts: what it takes depends on the model. */
static by_status check_content(const message *m, by_error *error)
{
    size_t i;
    json_t *part;
    bool calls =
        json_array_size(m->calls) > 0 || json_is_object(m->function) || json_is_string(m->refusal);
    if (m->content == NULL) {
        return strcmp(m->role, "assistant") == 0 && calls
                   ? BY_OK
                   : by_error_set(error, BY_EARG,
                                  "'content' must be a text or a list of parts; only an assistant "
                                  "with 'tool_calls' or a 'refusal' has none");
    }
    if (json_is_string(m->content)) {
        return BY_OK;
    }
    if (!json_is_array(m->content)) {
        return by_error_set(error, BY_EARG, "'content' must be a text or a list of parts");
    }
    json_array_foreach(m->content, i, part)
    {
        if (by__get_text(part, "type") == NULL) {
            return by_error_set(error, BY_EARG,
                                "a part of a 'content' must be an object with a 'type'");
        }
    }
    return BY_OK;
}

static by_status check_calls(const message *m, by_error *error)
{
    size_t i;
    json_t *call;
    if (m->calls != NULL && !json_is_array(m->calls)) {
        return by_error_set(error, BY_EARG, "'tool_calls' must be a list");
    }
    json_array_foreach(m->calls, i, call)
    {
        if (by__get_text(json_object_get(call, "function"), "name") == NULL) {
            return by_error_set(error, BY_EARG,
                                "a call in 'tool_calls' must be an object with a 'function' that "
                                "has a 'name'");
        }
    }
    return BY_OK;
}

static by_status check_message(const json_t *value, const char **param, by_error *error)
{
    message m = {0};
    BY_TRY(by__fields_read(&m, fields, BY_ARRAY_LENGTH(fields), value, param, error));
    *param = "role";
    if (m.role == NULL || !is_role(m.role)) {
        return by_error_set(error, BY_EARG,
                            "'role' is %s%s; it must be system, developer, user, assistant, tool "
                            "or function",
                            m.role == NULL ? "missing" : "", m.role == NULL ? "" : m.role);
    }
    *param = "tool_calls";
    BY_TRY(check_calls(&m, error));
    *param = "content";
    return check_content(&m, error);
}

by_status by__openai_messages(const json_t *messages, char place[BY__PLACE_BYTES],
                              const char **param, by_error *error)
{
    size_t i;
    json_t *value;
    json_array_foreach(messages, i, value)
    {
        const char *field = NULL;
        by_status status = check_message(value, &field, error);
        if (status != BY_OK) {
            (void)snprintf(place, BY__PLACE_BYTES, "messages[%zu]%s%s", i, field == NULL ? "" : ".",
                           field == NULL ? "" : field);
            *param = place;
            return by_error_prefix(error, status, "message %zu", i);
        }
    }
    return BY_OK;
}
