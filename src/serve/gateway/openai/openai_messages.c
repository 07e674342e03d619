/* OpenAI's API: checks the messages of a conversation before they are sent to a worker, whose
 * template may accept anything, and render what is misspelt as nothing. */
#include <string.h>

#include "serve/base/fields.h"
#include "serve/gateway/openai/openai.h"
#include "serve/protocol/messages.h"

typedef struct openai_message {
    const char *role;
    const json_t *content, *calls, *function, *refusal;
} openai_message;

/* The API's fields, those of its answers, which clients send back, and those that published
 * templates read. */
static const by__serve_field fields[] = {
    BY__STRING("role", openai_message, role, 64),
    BY__ANY("content", openai_message, content),
    BY__ANY("tool_calls", openai_message, calls),
    BY__ANY("function_call", openai_message, function),
    BY__ANY("refusal", openai_message, refusal),
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

/* A tool may have had nothing to say. */
static bool is_tool(const char *role)
{
    return strcmp(role, "tool") == 0 || strcmp(role, "function") == 0;
}

static bool may_lack_content(const char *role)
{
    return strcmp(role, "assistant") == 0 || is_tool(role);
}

/* The worker reads the parts: what it takes depends on the model. */
static by_status check_content(const openai_message *m, by_error *error)
{
    size_t i;
    json_t *part;
    if (m->content == NULL) {
        return may_lack_content(m->role)
                   ? BY_OK
                   : by_error_set(error, BY_EARG,
                                  "'content' must be a text or a list of parts; only an assistant "
                                  "and a tool may have none");
    }
    if (json_is_string(m->content)) {
        return BY_OK;
    }
    if (!json_is_array(m->content)) {
        return by_error_set(error, BY_EARG, "'content' must be a text or a list of parts");
    }
    json_array_foreach(m->content, i, part)
    {
        if (by__protocol_get_text(part, "type") == NULL) {
            return by_error_set(error, BY_EARG,
                                "a part of a 'content' must be an object with a 'type'");
        }
    }
    return BY_OK;
}

static by_status check_calls(const openai_message *m, by_error *error)
{
    size_t i;
    json_t *call;
    if (m->calls != NULL && !json_is_array(m->calls)) {
        return by_error_set(error, BY_EARG, "'tool_calls' must be a list");
    }
    json_array_foreach(m->calls, i, call)
    {
        if (by__protocol_get_text(json_object_get(call, "function"), "name") == NULL) {
            return by_error_set(error, BY_EARG,
                                "a call in 'tool_calls' must be an object with a 'function' that "
                                "has a 'name'");
        }
    }
    return BY_OK;
}

/* Removes what an answer of another server, or its client, adds to those fields, unless it is the
 * name of one of them misspelt. NULL: memory is exhausted. */
static json_t *without_others(const json_t *value)
{
    const char *names[BY_ARRAY_LENGTH(fields)];
    const char *name;
    json_t *member;
    json_t *out = by__protocol_copy_object(value);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(fields); i++) {
        names[i] = fields[i].name;
    }
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
    {
        const char *near =
            strlen(name) < 64 ? by_nearest_name(name, names, BY_ARRAY_LENGTH(names)) : NULL;
        if (near == NULL) {
            (void)json_object_del(out, name);
        }
    }
    return out;
}

static by_status read_fields(openai_message *m, const json_t *value, const char **param,
                             by_error *error)
{
    const char *role = by__protocol_get_text(value, "role");
    if (role == NULL || strcmp(role, "assistant") != 0) {
        return by__serve_fields_read(m, fields, BY_ARRAY_LENGTH(fields), value, param, error);
    }
    json_t *known = without_others(value);
    if (known == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
    }
    by_status status =
        by__serve_fields_read(m, fields, BY_ARRAY_LENGTH(fields), known, param, error);
    json_decref(known); /* its members live on in the request */
    return status;
}

static by_status check_message(json_t *value, const char **param, by_error *error)
{
    openai_message m = {0};
    BY_TRY(read_fields(&m, value, param, error));
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
    BY_TRY(check_content(&m, error));
    /* Templates join the content of a tool to other text. */
    return m.content != NULL || !is_tool(m.role) ||
                   json_object_set_new(value, "content", json_string("")) == 0
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

by_status by__openai_messages(json_t *messages, char place[BY__PLACE_BYTES], const char **param,
                              by_error *error)
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
