/* by_chat: reads files, converts JSON to values, and renders. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/chat.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/utf8.h"
#include "text/template/chat_builtin.h"
#include "text/template/chat_render.h"
#include "text/template/template.h"
#include "text/tokenizer/gguf_tokenizer.h"

#define MAX_FILE    ((size_t)16 << 20)
#define MAX_SPECIAL 32u
#define MIB         ((size_t)1 << 20)

struct by_chat {
    by__template tpl;
    struct {
        char *name;
        char *text;
    } special[MAX_SPECIAL];
    size_t special_count;
};

void by_chat_close(by_chat **chat)
{
    by_chat *c = *chat;
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; i < c->special_count; i++) {
        free(c->special[i].name);
        free(c->special[i].text);
    }
    by__template_free(&c->tpl);
    free(c);
    *chat = NULL;
}

const char *by_chat_special(const by_chat *chat, const char *name)
{
    for (size_t i = 0; i < chat->special_count; i++) {
        if (strcmp(chat->special[i].name, name) == 0) {
            return chat->special[i].text;
        }
    }
    return NULL;
}

bool by_chat_accepts_parts(const by_chat *chat)
{
    return by__template_accepts_parts(&chat->tpl);
}

/* ---- files ---- */

/* Integers become real numbers: "model_max_length" of transformers may be int(1e30), which is too
 * large for json_t. */
static by_status read_json(json_t **out, const char *directory, const char *name, by_error *error)
{
    return by__json_file(out, directory, name, MAX_FILE,
                         JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, error);
}

/* Reads the texts of special tokens: "bos_token": "<s>" or {"content": "<s>", ...}. */
static by_status read_special(by_chat *c, const json_t *config, by_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        size_t n = strlen(key);
        const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (n < 7 || strcmp(key + n - 6, "_token") != 0 || !json_is_string(text) ||
            c->special_count == MAX_SPECIAL) {
            continue;
        }
        char *name = by__strdup(key);
        char *copy = by__strdup(json_string_value(text));
        if (name == NULL || copy == NULL) {
            free(name);
            free(copy);
            return by_error_set(error, BY_EMEMORY, "out of memory: special tokens");
        }
        c->special[c->special_count].name = name;
        c->special[c->special_count++].text = copy;
    }
    return BY_OK;
}

/* Finds the template of tokenizer_config.json: a string, or a list of {"name", "template"}. */
static const json_t *find_template(const json_t *config, const char *name)
{
    const json_t *value = json_object_get(config, "chat_template");
    if (json_is_string(value)) {
        return value;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *held = json_string_value(json_object_get(item, "name"));
        if (held != NULL && strcmp(held, name != NULL ? name : "default") == 0) {
            return json_object_get(item, "template");
        }
    }
    return NULL;
}

static by_status parse_file(by_chat *c, const char *path, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(by__file_read_text(&text, &length, path, BY__TEMPLATE_MAX_BYTES, error));
    by_status status = by__template_parse(&c->tpl, text, length, path, error);
    free(text);
    return status;
}

static by_status open_template(by_chat *c, const by_chat_source *s, const json_t *config,
                               by_error *error)
{
    if (s->file != NULL) {
        const char *own = by__path_exists(s->file) ? NULL : by__template_chat_builtin(s->file);
        if (own == NULL && !by__path_exists(s->file)) {
            return by_error_set(error, BY_ECONFIG,
                                "there is no chat template '%s': it is neither a file nor one of "
                                "%s",
                                s->file, by__template_chat_builtin_names);
        }
        return own != NULL ? by__template_parse(&c->tpl, own, strlen(own), s->file, error)
                           : parse_file(c, s->file, error);
    }
    const json_t *text = find_template(config, s->name);
    char *path = s->directory != NULL ? by__path_join(s->directory, "chat_template.jinja") : NULL;
    by_status status;
    if (path != NULL && s->name == NULL && by__path_exists(path)) {
        status = parse_file(c, path, error);
    } else if (json_is_string(text)) {
        status = by__template_parse(&c->tpl, json_string_value(text), json_string_length(text),
                                    "chat_template", error);
    } else {
        status = by_error_set(error, BY_ESTATE,
                              "%s has no chat template%s%.60s: neither chat_template.jinja nor "
                              "chat_template in tokenizer_config.json; give one as a file",
                              s->directory != NULL ? s->directory : "the model",
                              s->name != NULL ? " named " : "", s->name != NULL ? s->name : "");
    }
    free(path);
    return status;
}

/* What a rendering reports goes to the author of the conversation, possibly a client of a server,
 * whom the paths of this machine do not concern. */
static by_status rename_template(by_chat *c, by_error *error)
{
    char *name = by__strdup("chat template");
    if (name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: chat template");
    }
    free(c->tpl.name);
    c->tpl.name = name;
    return BY_OK;
}

by_status by_chat_open(by_chat **out, const by_chat_source *source, by_error *error)
{
    by_chat *c;
    json_t *config = NULL;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "chat template", error));
    by_status status = BY_OK;
    if (source->directory != NULL) {
        status = by__format_gguf_is_file(source->directory)
                     ? by__tokenizer_gguf_settings_open(&config, source->directory, error)
                     : read_json(&config, source->directory, "tokenizer_config.json", error);
        if (status == BY_OK) {
            status = read_special(c, config, error);
        }
    }
    if (status == BY_OK) {
        status = open_template(c, source, config, error);
    }
    json_decref(config);
    if (status == BY_OK) {
        status = rename_template(c, error);
    }
    if (status != BY_OK) {
        by_chat_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

by_status by_chat_parse(by_chat **out, const char *text, size_t length, const char *name,
                        by_error *error)
{
    by_chat *c;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "chat template", error));
    by_status status = by__template_parse(&c->tpl, text, length, name, error);
    if (status != BY_OK) {
        by_chat_close(&c);
        return status;
    }
    *out = c;
    return BY_OK;
}

/* ---- rendering ---- */

static by_status set_global(by__template_render *r, const char *name,
                            const by__template_value *value)
{
    by__template_value key = by__template_value_string(name, strlen(name));
    return by__template_table_put(r, &r->scope->variables, &key, value);
}

/* Makes the object that the text of a call's arguments is; another text remains one. */
static by_status open_arguments(json_t *call, by_error *error)
{
    const json_t *text = json_object_get(call, "arguments");
    const char *s = json_string_value(text);
    if (s == NULL) {
        return BY_OK;
    }
    json_error_t problem = {.line = 0};
    json_t *object = s[strspn(s, " \t\r\n")] == '\0'
                         ? json_object()
                         : by_json_load(s, json_string_length(text),
                                        JSON_ALLOW_NUL | BY__JSON_SPELLED, &problem);
    if (object == NULL && s[0] != '\0' && json_error_code(&problem) != json_error_out_of_memory) {
        return BY_OK;
    }
    if (json_is_array(object)) {
        json_decref(object);
        return BY_OK;
    }
    return json_object_set_new(call, "arguments", object) == 0
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

/* Does so for the calls of a conversation. */
static by_status open_calls(json_t *messages, by_error *error)
{
    size_t i;
    size_t k;
    json_t *message;
    json_t *call;
    json_array_foreach(messages, i, message)
    {
        BY_TRY(open_arguments(json_object_get(message, "function_call"), error));
        json_array_foreach(json_object_get(message, "tool_calls"), k, call)
        {
            BY_TRY(open_arguments(json_object_get(call, "function"), error));
        }
    }
    return BY_OK;
}

static by_status set_value(by__template_render *r, const char *name, const json_t *json)
{
    by__template_value value;
    if (!json_is_array(json)) {
        return by_error_set(r->error, BY_EFORMAT, "%s: not a JSON list", name);
    }
    BY_TRY(by__template_value_of_json(r, json, &value));
    return set_global(r, name, &value);
}

static by_status set_json(by__template_render *r, const char *name, const char *text, size_t length,
                          bool calls)
{
    json_t *json;
    BY_TRY(by__json_parse(&json, name, text, length, JSON_ALLOW_NUL, r->error));
    by_status status = calls ? open_calls(json, r->error) : BY_OK;
    if (status == BY_OK) {
        status = set_value(r, name, json);
    }
    json_decref(json);
    return status;
}

/* The name, if it is of what a conversation consists of; NULL: it may be given. */
static const char *fixed_name(const by__template_value *name)
{
    static const char *const names[] = {"messages", "tools"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (by__template_value_is(name, names[i])) {
            return names[i];
        }
    }
    return NULL;
}

static by_status set_variables(by__template_render *r, const char *text, size_t length)
{
    json_t *json;
    by__template_value value;
    BY_TRY(by__json_parse(&json, "variables", text, length, JSON_ALLOW_NUL, r->error));
    by_status status = json_is_object(json)
                           ? by__template_value_of_json(r, json, &value)
                           : by_error_set(r->error, BY_EFORMAT, "variables: not a JSON object");
    json_decref(json);
    for (size_t i = 0; status == BY_OK && i < value.as.table->count; i++) {
        const by__template_pair *pair = &value.as.table->pairs[i];
        const char *fixed = fixed_name(&pair->key);
        if (fixed != NULL) {
            return by_error_set(r->error, BY_EARG,
                                "a template's variable cannot be '%s', which the request has",
                                fixed);
        }
        status = by__template_table_put(r, &r->scope->variables, &pair->key, &pair->value);
    }
    return status;
}

static by_status set_settings(by__template_render *r, const by_chat *c, bool prompt)
{
    by__template_value none = by__template_value_none();
    by__template_value asks = by__template_value_bool(prompt);
    for (size_t i = 0; i < c->special_count; i++) {
        by__template_value text =
            by__template_value_string(c->special[i].text, strlen(c->special[i].text));
        BY_TRY(set_global(r, c->special[i].name, &text));
    }
    BY_TRY(set_global(r, "tools", &none));
    BY_TRY(set_global(r, "documents", &none));
    return set_global(r, "add_generation_prompt", &asks);
}

static by_status set_globals(by__template_render *r, const by_chat *c, const by_chat_request *q)
{
    BY_TRY(set_settings(r, c, q->add_generation_prompt));
    BY_TRY(set_json(r, "messages", q->messages, q->messages_length, q->calls_as_text));
    if (q->tools != NULL) {
        BY_TRY(set_json(r, "tools", q->tools, q->tools_length, false));
    }
    return q->variables != NULL ? set_variables(r, q->variables, q->variables_length) : BY_OK;
}

/* Renders with the globals set; ends the render. */
static by_status finish(by__template_render *r, by_status status, char **out, size_t *length)
{
    if (status == BY_OK) {
        status = by__template_render_body(r, r->tpl->body);
    }
    by__template_arena_free(&r->arena);
    if (status != BY_OK) {
        by_string_free(r->out);
        return status;
    }
    *length = r->out->length;
    return by__string_release(r->out, out, r->error);
}

by_status by_chat_render(const by_chat *chat, const by_chat_request *q, char **out, size_t *length,
                         by_error *error)
{
    size_t input = q->messages_length + q->tools_length + q->variables_length;
    input = input < 1024 * MIB ? input : 1024 * MIB;
    by_string text = {0};
    by__template_scope globals = {0};
    by__template_render r = {.tpl = &chat->tpl,
                             .steps = q->limits.steps > 0 ? q->limits.steps : 1000000 + input,
                             .output =
                                 q->limits.output > 0 ? q->limits.output : 8 * MIB + 4 * input,
                             .out = &text,
                             .scope = &globals,
                             .now = q->now != 0 ? q->now : (int64_t)time(NULL),
                             .error = error};
    r.arena.left = q->limits.memory > 0 ? q->limits.memory : 64 * MIB + 16 * input;
    return finish(&r, set_globals(&r, chat, q), out, length);
}

by_status by__template_chat_calls(json_t *messages, by_error *error)
{
    return open_calls(messages, error);
}

by_status by__template_chat_render(const by_chat *chat, const by__template_chat *q, char **out,
                                   size_t *length, by_error *error)
{
    by_string text = {0};
    by__template_scope globals = {0};
    by__template_render r = {.tpl = &chat->tpl,
                             .steps = 1000000 + 16 * q->bytes,
                             .output = 8 * MIB + 4 * q->bytes,
                             .out = &text,
                             .scope = &globals,
                             .now = q->now,
                             .spans = q->spans,
                             .error = error};
    r.arena.left = 64 * MIB + 16 * q->bytes;
    by_status status = set_settings(&r, chat, q->prompt);
    if (status == BY_OK) {
        status = set_value(&r, "messages", q->messages);
    }
    if (status == BY_OK && q->tools != NULL) {
        status = set_value(&r, "tools", q->tools);
    }
    if (status == BY_OK && q->variables != NULL) {
        status = set_variables(&r, q->variables, strlen(q->variables));
    }
    return finish(&r, status, out, length);
}

bool by__template_chat_marks(const by_chat *chat)
{
    return chat->tpl.marks;
}

const char *by_chat_text(const by_chat *chat)
{
    return chat->tpl.source;
}

int64_t by_chat_end(const by_chat *chat, const by_tokenizer *tokenizer)
{
    static const char answer[] = "the answer 7f3a91";
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"a\"},"
                                   "{\"role\":\"assistant\",\"content\":\"the answer 7f3a91\"}]";
    const by_chat_request request = {.messages = messages, .messages_length = sizeof messages - 1};
    by_token_buffer ids = {0};
    by_error ignored = {0};
    char *text = NULL;
    size_t length;
    int64_t end = -1;
    if (by_chat_render(chat, &request, &text, &length, &ignored) != BY_OK) {
        return -1;
    }
    const char *behind = "";
    for (const char *at = strstr(text, answer); at != NULL; at = strstr(at + 1, answer)) {
        behind = at + sizeof answer - 1;
    }
    behind += strspn(behind, " \t\r\n");
    if (by_tokenizer_encode(tokenizer, behind, strlen(behind), &ids, BY_ENCODE_SPECIAL, &ignored) ==
            BY_OK &&
        ids.count > 0 && by_tokenizer_is_special(tokenizer, ids.ids[0])) {
        end = ids.ids[0];
    }
    by_token_buffer_free(&ids);
    free(text);
    return end;
}
