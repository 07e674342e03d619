/* Records of data sets as messages. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/chat/conversation.h"
#include "text/template/chat_render.h"

#define MAX_MESSAGES ((size_t)1 << 16)
#define SHOWN_FIELDS 6

static const char *const form_names[] = {"auto",   "messages", "sharegpt",  "alpaca",
                                         "prompt", "columns",  "preference"};

const char *by_conversation_form_name(by_conversation_form form)
{
    return (size_t)form < BY_ARRAY_LENGTH(form_names) ? form_names[form] : NULL;
}

/* What a form is read from and written to. */
typedef struct form_reader {
    const json_t *record;
    const by_conversation_options *options;
    json_t *messages;
    json_t *tools; /* NULL: none */
    by_error *error;
} form_reader;

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

static by_status add(form_reader *r, json_t *message)
{
    return json_array_append_new(r->messages, message) == 0 ? BY_OK : no_memory(r->error);
}

static by_status add_text(form_reader *r, const char *role, const json_t *content)
{
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", content);
    return message == NULL ? no_memory(r->error) : add(r, message);
}

static const json_t *member(const form_reader *r, const char *name)
{
    const json_t *value = json_object_get(r->record, name);
    return json_is_null(value) ? NULL : value;
}

/* Finds a text; it must be there if `needed`. */
static by_status find_text(const form_reader *r, const char *name, bool needed, const json_t **out)
{
    *out = member(r, name);
    if (*out == NULL && needed) {
        return by_error_set(r->error, BY_EFORMAT, "the field \"%.60s\" is missing", name);
    }
    return *out == NULL || json_is_string(*out)
               ? BY_OK
               : by_error_set(r->error, BY_EFORMAT, "the field \"%.60s\" is not a text", name);
}

/* A list, or a text that is one in JSON, as columns of tables have them. New reference. */
static by_status open_list(const form_reader *r, const char *name, json_t **out)
{
    const json_t *value = member(r, name);
    *out = NULL;
    if (value == NULL || (json_is_string(value) && json_string_length(value) == 0)) {
        return BY_OK;
    }
    if (json_is_string(value)) {
        json_error_t problem;
        *out = by_json_load(json_string_value(value), json_string_length(value), JSON_ALLOW_NUL,
                            &problem);
    } else {
        *out = json_incref((json_t *)(uintptr_t)value);
    }
    if (json_is_array(*out)) {
        return BY_OK;
    }
    json_decref(*out);
    *out = NULL;
    return by_error_set(r->error, BY_EFORMAT, "the field \"%.60s\" is not a list", name);
}

static by_status read_tools(form_reader *r)
{
    return open_list(r, "tools", &r->tools);
}

/* ---- messages ---- */

/* Whether a message calls functions; their list must be one. */
static by_status read_calls(const form_reader *r, const char *list, size_t i, const json_t *item,
                            bool *calls)
{
    const json_t *tools = json_object_get(item, "tool_calls");
    *calls = json_array_size(tools) > 0 || json_is_object(json_object_get(item, "function_call"));
    for (size_t k = 0; k < json_array_size(tools); k++) {
        if (!json_is_object(json_array_get(tools, k))) {
            return by_error_set(r->error, BY_EFORMAT, "%s[%zu].tool_calls[%zu] is not an object",
                                list, i, k);
        }
    }
    return tools == NULL || json_is_null(tools) || json_is_array(tools)
               ? BY_OK
               : by_error_set(r->error, BY_EFORMAT, "%s[%zu].tool_calls is not a list", list, i);
}

static by_status add_message(form_reader *r, const char *list, size_t i, const json_t *item)
{
    bool calls;
    const json_t *role = json_object_get(item, "role");
    const json_t *content = json_object_get(item, "content");
    if (!json_is_object(item) || by__json_spelled(item) != NULL) {
        return by_error_set(r->error, BY_EFORMAT, "%s[%zu] is not an object", list, i);
    }
    if (!json_is_string(role) || json_string_length(role) == 0) {
        return by_error_set(r->error, BY_EFORMAT, "%s[%zu].role is %s", list, i,
                            role == NULL ? "missing" : "not a text");
    }
    if (content != NULL && !json_is_string(content) && !json_is_null(content) &&
        !json_is_array(content)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "%s[%zu].content is neither a text nor a list of parts", list, i);
    }
    BY_TRY(read_calls(r, list, i, item, &calls));
    if ((content == NULL || json_is_null(content)) && !calls) {
        return by_error_set(r->error, BY_EFORMAT, "%s[%zu].content is %s", list, i,
                            content == NULL ? "missing" : "null, and it calls no function");
    }
    json_t *message = json_copy((json_t *)(uintptr_t)item);
    return message == NULL ? no_memory(r->error) : add(r, message);
}

static by_status add_messages(form_reader *r, const char *name, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        BY_TRY(add_message(r, name, i, json_array_get(list, i)));
    }
    return BY_OK;
}

static by_status read_messages(form_reader *r)
{
    json_t *list;
    BY_TRY(open_list(r, "messages", &list));
    if (list == NULL) {
        return by_error_set(r->error, BY_EFORMAT, "the field \"messages\" is missing");
    }
    by_status status = add_messages(r, "messages", list);
    json_decref(list);
    return status == BY_OK ? read_tools(r) : status;
}

/* ---- ShareGPT ---- */

/* The roles of messages for the names that ShareGPT's descendants give the speakers. */
static const char *role_of(const char *from)
{
    static const char *const roles[][2] = {{"human", "user"},
                                           {"user", "user"},
                                           {"gpt", "assistant"},
                                           {"assistant", "assistant"},
                                           {"chatgpt", "assistant"},
                                           {"bot", "assistant"},
                                           {"model", "assistant"},
                                           {"system", "system"},
                                           {"tool", "tool"},
                                           {"observation", "tool"},
                                           {"function_response", "tool"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(roles); i++) {
        if (strcmp(roles[i][0], from) == 0) {
            return roles[i][1];
        }
    }
    return NULL;
}

/* A call, or several, that the value of "function_call" is as JSON. */
static by_status add_calls(form_reader *r, size_t i, const json_t *value)
{
    json_error_t problem;
    json_t *parsed =
        by_json_load(json_string_value(value), json_string_length(value), JSON_ALLOW_NUL, &problem);
    json_t *calls = json_array();
    json_t *list = json_is_array(parsed) ? json_incref(parsed) : json_pack("[O]", parsed);
    bool good = parsed != NULL && calls != NULL;
    for (size_t k = 0; good && k < json_array_size(list); k++) {
        const json_t *call = json_array_get(list, k);
        good = json_is_string(json_object_get(call, "name")) &&
               json_array_append_new(
                   calls, json_pack("{s:s, s:O}", "type", "function", "function", call)) == 0;
    }
    json_decref(parsed);
    json_decref(list);
    if (!good || json_array_size(calls) == 0) {
        json_decref(calls);
        return by_error_set(r->error, BY_EFORMAT,
                            "conversations[%zu].value is not a call, {\"name\", \"arguments\"}", i);
    }
    json_t *message =
        json_pack("{s:s, s:n, s:o}", "role", "assistant", "content", "tool_calls", calls);
    return message == NULL ? no_memory(r->error) : add(r, message);
}

static by_status add_said(form_reader *r, size_t i, const json_t *item)
{
    const json_t *from = json_object_get(item, "from");
    const json_t *value = json_object_get(item, "value");
    if (from == NULL && value == NULL && json_object_get(item, "role") != NULL) {
        return add_message(r, "conversations", i, item);
    }
    if (!json_is_string(from) || !json_is_string(value)) {
        return by_error_set(r->error, BY_EFORMAT,
                            "conversations[%zu] is not {\"from\": TEXT, \"value\": TEXT}", i);
    }
    if (strcmp(json_string_value(from), "function_call") == 0) {
        return add_calls(r, i, value);
    }
    const char *role = role_of(json_string_value(from));
    if (role == NULL) {
        return by_error_set(
            r->error, BY_EFORMAT,
            "conversations[%zu].from \"%.40s\" is none of human, gpt, system, tool, "
            "observation, function_call",
            i, json_string_value(from));
    }
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", value);
    static const char *const marks[] = {"train", "weight"};
    for (size_t k = 0; message != NULL && k < BY_ARRAY_LENGTH(marks); k++) {
        json_t *mark = json_object_get(item, marks[k]);
        if (mark != NULL && json_object_set(message, marks[k], mark) != 0) {
            json_decref(message);
            message = NULL;
        }
    }
    return message == NULL ? no_memory(r->error) : add(r, message);
}

static by_status read_sharegpt(form_reader *r)
{
    json_t *list;
    BY_TRY(open_list(r, "conversations", &list));
    if (list == NULL) {
        return by_error_set(r->error, BY_EFORMAT, "the field \"conversations\" is missing");
    }
    by_status status = BY_OK;
    for (size_t i = 0; i < json_array_size(list) && status == BY_OK; i++) {
        status = add_said(r, i, json_array_get(list, i));
    }
    json_decref(list);
    return status == BY_OK ? read_tools(r) : status;
}

/* ---- instructions, prompts, columns ---- */

/* Earlier turns: pairs of a question and an answer. */
static by_status add_history(form_reader *r)
{
    json_t *list;
    BY_TRY(open_list(r, "history", &list));
    by_status status = BY_OK;
    for (size_t i = 0; i < json_array_size(list) && status == BY_OK; i++) {
        const json_t *pair = json_array_get(list, i);
        if (json_array_size(pair) != 2 || !json_is_string(json_array_get(pair, 0)) ||
            !json_is_string(json_array_get(pair, 1))) {
            status =
                by_error_set(r->error, BY_EFORMAT, "history[%zu] is not a list of two texts", i);
        }
        for (size_t k = 0; k < 2 && status == BY_OK; k++) {
            status = add_text(r, k == 0 ? "user" : "assistant", json_array_get(pair, k));
        }
    }
    json_decref(list);
    return status;
}

/* The instruction, and the input below it if there is one, as LLaMA-Factory joins them. */
static by_status read_alpaca(form_reader *r)
{
    const json_t *instruction;
    const json_t *input;
    const json_t *output;
    BY_TRY(find_text(r, "instruction", true, &instruction));
    BY_TRY(find_text(r, "input", false, &input));
    if (member(r, "output") == NULL && member(r, "response") == NULL) {
        return by_error_set(r->error, BY_EFORMAT,
                            "the field \"output\" (or \"response\") is missing");
    }
    BY_TRY(find_text(r, member(r, "output") == NULL ? "response" : "output", true, &output));
    BY_TRY(add_history(r));
    if (input == NULL || json_string_length(input) == 0) {
        BY_TRY(add_text(r, "user", instruction));
    } else {
        by_string text = {0};
        by_string_add(&text, json_string_value(instruction), json_string_length(instruction));
        by__string_append(&text, "\n");
        by_string_add(&text, json_string_value(input), json_string_length(input));
        json_t *joined = text.failed ? NULL : json_stringn(text.data, text.length);
        by_string_free(&text);
        by_status status = joined == NULL ? no_memory(r->error) : add_text(r, "user", joined);
        json_decref(joined);
        BY_TRY(status);
    }
    return add_text(r, "assistant", output);
}

/* A text is one message; a list is messages. */
static by_status add_side(form_reader *r, const char *name, const char *role)
{
    const json_t *value = member(r, name);
    if (json_is_array(value)) {
        return add_messages(r, name, value);
    }
    BY_TRY(find_text(r, name, true, &value));
    return add_text(r, role, value);
}

static by_status read_prompt(form_reader *r)
{
    BY_TRY(add_side(r, "prompt", "user"));
    BY_TRY(add_side(r, "completion", "assistant"));
    return read_tools(r);
}

static const char *question_of(const by_conversation_options *o)
{
    return o->question != NULL && o->question[0] != '\0' ? o->question : "question";
}

static const char *answer_of(const by_conversation_options *o)
{
    return o->answer != NULL && o->answer[0] != '\0' ? o->answer : "answer";
}

static by_status read_columns(form_reader *r)
{
    BY_TRY(add_side(r, question_of(r->options), "user"));
    return add_side(r, answer_of(r->options), "assistant");
}

/* ---- the form of a record ---- */

static by_conversation_form form_of(const form_reader *r)
{
    const by_conversation_options *o = r->options;
    bool named = (o->question != NULL && o->question[0] != '\0') ||
                 (o->answer != NULL && o->answer[0] != '\0');
    bool columns = member(r, question_of(o)) != NULL && member(r, answer_of(o)) != NULL;
    return o->form != BY_CONVERSATION_AUTO           ? o->form
           : named                                   ? BY_CONVERSATION_COLUMNS
           : member(r, "messages") != NULL           ? BY_CONVERSATION_MESSAGES
           : member(r, "conversations") != NULL      ? BY_CONVERSATION_SHAREGPT
           : member(r, "instruction") != NULL        ? BY_CONVERSATION_ALPACA
           : member(r, "prompt") != NULL && !columns ? BY_CONVERSATION_PROMPT
           : columns                                 ? BY_CONVERSATION_COLUMNS
                                                     : BY_CONVERSATION_AUTO;
}

static by_status refuse_form(form_reader *r)
{
    const char *key;
    json_t *value;
    size_t shown = 0;
    by_string list = {0};
    json_object_foreach((json_t *)(uintptr_t)r->record, key, value)
    {
        if (shown < SHOWN_FIELDS) {
            by_string_format(&list, "%s\"%.40s\"%s", shown == 0 ? "" : ", ", key,
                             json_is_null(value) ? " (null)" : "");
        }
        shown++;
    }
    (void)by_error_set(r->error, BY_EFORMAT,
                       "the fields are those of no form (messages, conversations, instruction and "
                       "output, prompt and completion, question and answer): it has %.300s%s; "
                       "chat.question and chat.answer name two fields",
                       shown == 0 || list.failed ? "none" : list.data,
                       shown > SHOWN_FIELDS ? ", ..." : "");
    by_string_free(&list);
    return BY_EFORMAT;
}

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

/* The field "system" is the first message, in any form. */
static by_status read_form(form_reader *r)
{
    static by_status (*const readers[])(form_reader *) = {refuse_form, read_messages, read_sharegpt,
                                                          read_alpaca, read_prompt,   read_columns,
                                                          refuse_form};
    const json_t *system;
    BY_TRY(find_text(r, "system", false, &system));
    bool given = json_string_length(system) > 0;
    if (given) {
        BY_TRY(add_text(r, "system", system));
    }
    BY_TRY(readers[form_of(r)](r));
    return given && is_system(json_array_get(r->messages, 1))
               ? by_error_set(r->error, BY_EFORMAT,
                              "there is a field \"system\", and the messages begin with a system "
                              "message: give one of them")
               : BY_OK;
}

/* ---- messages as templates take them ---- */

/* Joins the texts of a content's parts. */
static by_status join_parts(json_t *message, size_t index, by_error *error)
{
    const json_t *parts = json_object_get(message, "content");
    by_string text = {0};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *of = json_is_string(part) ? part : json_object_get(part, "text");
        if (!json_is_string(of)) {
            by_string_free(&text);
            return by_error_set(error, BY_EFORMAT,
                                "message %zu: part %zu of its content is no text, and the chat "
                                "template takes texts only",
                                index, i);
        }
        by_string_add(&text, json_string_value(of), json_string_length(of));
    }
    json_t *joined =
        text.failed ? NULL : json_stringn(text.data == NULL ? "" : text.data, text.length);
    by_string_free(&text);
    return joined != NULL && json_object_set_new(message, "content", joined) == 0
               ? BY_OK
               : no_memory(error);
}

/* Takes "train" and "weight" out of a message. */
static by_status take_marks(json_t *message, size_t index, bool *learned, by_error *error)
{
    const json_t *train = json_object_get(message, "train");
    const json_t *weight = json_object_get(message, "weight");
    bool bad_train = train != NULL && !json_is_boolean(train) && !json_is_null(train);
    bool is_zero = json_is_number(weight) && json_number_value(weight) == 0.0;
    bool is_one = json_is_number(weight) && json_number_value(weight) == 1.0;
    if (bad_train || (weight != NULL && !json_is_null(weight) && !is_zero && !is_one)) {
        return by_error_set(error, BY_EFORMAT, "message %zu: \"%s\" is not %s", index,
                            bad_train ? "train" : "weight", bad_train ? "true or false" : "0 or 1");
    }
    *learned = !json_is_false(train) && !is_zero;
    (void)json_object_del(message, "train");
    (void)json_object_del(message, "weight");
    return BY_OK;
}

static by_status put_system(json_t *messages, const char *system, by_error *error)
{
    json_t *message = json_pack("{s:s, s:s}", "role", "system", "content", system);
    return message != NULL && json_array_insert_new(messages, 0, message) == 0 ? BY_OK
                                                                               : no_memory(error);
}

static by_status finish(by__chat_conversation *c, const by_conversation_options *o, bool parts,
                        by_error *error)
{
    if (json_array_size(c->messages) == 0) {
        return by_error_set(error, BY_EFORMAT, "the conversation has no messages");
    }
    if (o->system != NULL && o->system[0] != '\0' && !is_system(json_array_get(c->messages, 0))) {
        BY_TRY(put_system(c->messages, o->system, error));
    }
    c->count = json_array_size(c->messages);
    if (c->count > MAX_MESSAGES) {
        return by_error_set(error, BY_EFORMAT, "%zu messages are more than %zu", c->count,
                            MAX_MESSAGES);
    }
    BY_TRY(by__alloc((void **)&c->answers, c->count, sizeof *c->answers, "messages", error));
    BY_TRY(by__alloc((void **)&c->learned, c->count, sizeof *c->learned, "messages", error));
    BY_TRY(by__alloc((void **)&c->excluded, c->count, sizeof *c->excluded, "messages", error));
    for (size_t i = 0; i < c->count; i++) {
        json_t *message = json_array_get(c->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        c->answers[i] = strcmp(role, "assistant") == 0 || strcmp(role, "model") == 0;
        BY_TRY(take_marks(message, i, &c->learned[i], error));
        c->excluded[i] = !c->learned[i];
        c->learned[i] = c->learned[i] && c->answers[i];
        if (!parts && json_is_array(json_object_get(message, "content"))) {
            BY_TRY(join_parts(message, i, error));
        }
    }
    return by__template_chat_calls(c->messages, error);
}

by_status by__chat_conversation_of(by__chat_conversation *out, const json_t *record, size_t bytes,
                                   const by_conversation_options *options, bool parts,
                                   by_error *error)
{
    form_reader r = {
        .record = record, .options = options, .messages = json_array(), .error = error};
    by_status status = r.messages == NULL ? no_memory(error) : read_form(&r);
    by__chat_conversation c = {.messages = r.messages, .tools = r.tools, .bytes = bytes};
    if (status == BY_OK) {
        status = finish(&c, options, parts, error);
    }
    if (status != BY_OK) {
        by__chat_conversation_free(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

by_status by__chat_record_open(json_t **out, const char *text, size_t length, by_error *error)
{
    json_error_t problem;
    json_t *record = by_json_load(text, length, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &problem);
    if (record == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s (column %d)", problem.text, problem.column);
    }
    if (!json_is_object(record) || by__json_spelled(record) != NULL) {
        json_decref(record);
        return by_error_set(error, BY_EFORMAT, "it is not a JSON object");
    }
    *out = record;
    return BY_OK;
}

by_status by__chat_conversation_read(by__chat_conversation *out, const char *text, size_t length,
                                     const by_conversation_options *options, bool parts,
                                     by_error *error)
{
    json_t *record;
    BY_TRY(by__chat_record_open(&record, text, length, error));
    by_status status = by__chat_conversation_of(out, record, length, options, parts, error);
    json_decref(record);
    return status;
}

void by__chat_conversation_free(by__chat_conversation *c)
{
    json_decref(c->messages);
    json_decref(c->tools);
    free(c->answers);
    free(c->learned);
    free(c->excluded);
    *c = (by__chat_conversation){0};
}
