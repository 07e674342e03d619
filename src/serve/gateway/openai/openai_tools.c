/* OpenAI's API: functions that an answer may call, `tools` and `tool_choice`.
 *
 * A call that is required becomes a constraint on the text: of one function the text is the
 * arguments, an object of its `parameters`; of several ones it is {"name": ..., "arguments": ...}.
 * If the choice is the model's, the text has a call where the model writes one as
 * <tool_call>{"name": ..., "arguments": ...}</tool_call>, the format of Hermes and Qwen. Which of
 * these it is, request->own says, which tasks keep:
 *
 *   {"calls": "named", "function": NAME}
 *   {"calls": "chosen"}
 *   {"calls": "marked", "functions": [NAME, ...], "single": at most one is passed on} */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/gateway/openai/openai_tools.h"
#include "serve/protocol/messages.h"

#define MAX_TOOLS 128

#define OPEN  "<tool_call>"
#define CLOSE "</tool_call>"

static by_status lacks_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: a request");
}

/* ---- reading ---- */

static const json_t *find(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        if (strcmp(by__protocol_get_text(function, "name"), name) == 0) {
            return function;
        }
    }
    return NULL;
}

static by_status check_tool(const by__gateway_request *request, const json_t *tool, by_error *error)
{
    const char *type = by__protocol_get_text(tool, "type");
    const json_t *function = json_object_get(tool, "function");
    const char *name = by__protocol_get_text(function, "name");
    const json_t *parameters = json_object_get(function, "parameters");
    const json_t *kind = json_object_get(parameters, "type");
    if (type != NULL && strcmp(type, "function") != 0) {
        return by_error_set(error, BY_EARG,
                            "a tool of type '%.64s' is not supported: the model calls functions "
                            "of the client, tools of type 'function'",
                            type);
    }
    if (type == NULL || name == NULL) {
        return by_error_set(error, BY_EARG, "a tool must be {\"type\": \"function\", %s}",
                            request->form->kind == BY__REQUEST_RESPONSE
                                ? "\"name\": ..., \"parameters\": ..."
                                : "\"function\": {\"name\": ..., \"parameters\": ...}");
    }
    if (!by__serve_id_valid(name)) {
        return by_error_set(error, BY_EARG,
                            "the name of a function has 1 to 64 letters, digits, '-' and '_', not "
                            "'%.64s'",
                            name);
    }
    if (parameters != NULL && !json_is_null(parameters) &&
        (!json_is_object(parameters) ||
         (kind != NULL &&
          (!json_is_string(kind) || strcmp(json_string_value(kind), "object") != 0)))) {
        return by_error_set(error, BY_EARG,
                            "the 'parameters' of the function '%s' must be the schema of an object",
                            name);
    }
    return BY_OK;
}

static by_status check_tools(const by__gateway_request *request, const json_t *tools,
                             by_error *error)
{
    size_t i;
    json_t *tool;
    if (tools != NULL && !json_is_array(tools)) {
        return by_error_set(error, BY_EARG, "'tools' must be a list");
    }
    if (json_array_size(tools) > MAX_TOOLS) {
        return by_error_set(error, BY_EARG, "'tools' has %zu functions, above %d",
                            json_array_size(tools), MAX_TOOLS);
    }
    json_array_foreach(tools, i, tool)
    {
        BY_TRY(check_tool(request, tool, error));
        const json_t *function = json_object_get(tool, "function");
        if (find(tools, by__protocol_get_text(function, "name")) != function) {
            return by_error_set(error, BY_EARG, "'tools' has two functions '%s'",
                                by__protocol_get_text(function, "name"));
        }
    }
    return BY_OK;
}

/* What is chosen: functions, of which one must be called if `forced`. */
typedef struct chosen {
    const json_t *functions[MAX_TOOLS];
    size_t count;
    bool forced;
} chosen;

static by_status choose_named(chosen *c, const json_t *tools, const json_t *choice, by_error *error)
{
    const char *name = by__protocol_get_text(json_object_get(choice, "function"), "name");
    const json_t *function = name == NULL ? NULL : find(tools, name);
    if (function == NULL) {
        return by_error_set(error, BY_EARG,
                            "'tool_choice' names the function '%.64s', which is not in 'tools'",
                            name == NULL ? "" : name);
    }
    for (size_t i = 0; i < c->count; i++) {
        if (c->functions[i] == function) {
            return BY_OK;
        }
    }
    c->functions[c->count++] = function; /* at most as many as there are tools */
    return BY_OK;
}

static by_status choose_allowed(chosen *c, const json_t *tools, const json_t *choice,
                                by_error *error)
{
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    const json_t *list = json_object_get(allowed, "tools");
    const char *mode = by__protocol_get_text(allowed, "mode");
    size_t i;
    json_t *one;
    if (mode == NULL || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0) ||
        json_array_size(list) == 0) {
        return by_error_set(error, BY_EARG,
                            "'allowed_tools' must have a 'mode', auto or required, and a list of "
                            "'tools'");
    }
    c->forced = strcmp(mode, "required") == 0;
    json_array_foreach(list, i, one)
    {
        BY_TRY(choose_named(c, tools, one, error));
    }
    return BY_OK;
}

static void choose_all(chosen *c, const json_t *tools)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
    {
        c->functions[c->count++] = json_object_get(tool, "function");
    }
}

/* Reads "tool_choice"; *none: no tool is to be called, or shown to the model. */
static by_status choose(chosen *c, const json_t *tools, const json_t *choice, bool *none,
                        by_error *error)
{
    const char *word = by__json_string(choice);
    const char *type = by__protocol_get_text(choice, "type");
    *none = word != NULL && strcmp(word, "none") == 0;
    if (choice == NULL || *none || (word != NULL && strcmp(word, "auto") == 0)) {
        choose_all(c, *none ? NULL : tools);
        return BY_OK;
    }
    bool required = word != NULL && strcmp(word, "required") == 0;
    bool named = type != NULL && strcmp(type, "function") == 0;
    bool allowed = type != NULL && strcmp(type, "allowed_tools") == 0;
    if (!required && !named && !allowed) {
        return by_error_set(error, BY_EARG,
                            "'tool_choice' must be none, auto, required, or an object of type "
                            "function or allowed_tools");
    }
    if (json_array_size(tools) == 0) {
        return by_error_set(error, BY_EARG, "'tool_choice' needs 'tools' to choose from");
    }
    if (allowed) {
        return choose_allowed(c, tools, choice, error);
    }
    c->forced = true;
    if (named) {
        return choose_named(c, tools, choice, error);
    }
    choose_all(c, tools);
    return BY_OK;
}

/* ---- the constraint ---- */

/* Schema of a function's arguments. A new reference. */
static json_t *arguments_of(const json_t *function)
{
    json_t *parameters = json_object_get(function, "parameters");
    return json_object_size(parameters) > 0 ? json_incref(parameters)
                                            : json_pack("{ss s{} sb}", "type", "object",
                                                        "properties", "additionalProperties", 0);
}

/* A copy of a schema that is moved to a place in another one: references to its root lead to that
 * place. NULL: memory is exhausted. Its depth is bounded, as that of any body (json_body.c). */
static json_t *moved(const json_t *value, const char *place)
{
    const char *name;
    size_t i;
    json_t *item;
    json_t *out = NULL;
    if (!json_is_object(value) && !json_is_array(value)) {
        return json_incref((json_t *)(uintptr_t)value);
    }
    out = json_is_object(value) ? json_object() : json_array();
    int code = out == NULL ? -1 : 0;
    json_array_foreach(value, i, item)
    {
        code = code == 0 ? json_array_append_new(out, moved(item, place)) : code;
    }
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        const char *to = strcmp(name, "$ref") == 0 ? by__json_string(item) : NULL;
        json_t *copy =
            to != NULL && to[0] == '#' ? json_sprintf("%s%s", place, to + 1) : moved(item, place);
        if (code == 0) {
            code = json_object_set_new(out, name, copy);
        } else {
            json_decref(copy);
        }
    }
    if (code != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* {"name": NAME, "arguments": ...} for any of the functions. */
static json_t *schema_of_any(const chosen *c)
{
    json_t *any = json_array();
    json_t *parts = json_object();
    bool good = true;
    for (size_t i = 0; i < c->count; i++) {
        char name[24];
        char place[40];
        (void)snprintf(name, sizeof name, "f%zu", i);
        (void)snprintf(place, sizeof place, "#/$defs/%s", name);
        json_t *arguments = arguments_of(c->functions[i]);
        json_t *one =
            json_pack("{ss s{s{ss} s{ss}} s[ss] sb}", "type", "object", "properties", "name",
                      "const", by__protocol_get_text(c->functions[i], "name"), "arguments", "$ref",
                      place, "required", "name", "arguments", "additionalProperties", 0);
        good = json_array_append_new(any, one) == 0 && good;
        good = arguments != NULL && good &&
               json_object_set_new(parts, name, moved(arguments, place)) == 0;
        json_decref(arguments);
    }
    if (!good) {
        json_decref(any);
        json_decref(parts);
        return NULL;
    }
    return json_pack("{so so}", "anyOf", any, "$defs", parts);
}

/* {"calls": "marked", ...} */
static json_t *marked_of(const chosen *c, bool parallel)
{
    json_t *names = json_array();
    for (size_t i = 0; i < c->count; i++) {
        if (json_array_append_new(
                names, json_string(by__protocol_get_text(c->functions[i], "name"))) != 0) {
            json_decref(names);
            return NULL;
        }
    }
    return json_pack("{ss so sb}", "calls", "marked", "functions", names, "single", (int)!parallel);
}

by_status by__openai_tools(by__gateway_request *request, const json_t **tools, const json_t *choice,
                           bool parallel, json_t **format, const char **param, by_error *error)
{
    chosen c = {0};
    bool none = false;
    *format = NULL;
    *param = "tools";
    BY_TRY(check_tools(request, *tools, error));
    *param = "tool_choice";
    BY_TRY(choose(&c, *tools, choice, &none, error));
    *param = NULL;
    if (none) {
        *tools = NULL;
    }
    if (c.count == 0) {
        return BY_OK;
    }
    request->gathers = !c.forced || c.count > 1;
    request->own = !c.forced     ? marked_of(&c, parallel)
                   : c.count > 1 ? json_pack("{ss}", "calls", "chosen")
                                 : json_pack("{ss ss}", "calls", "named", "function",
                                             by__protocol_get_text(c.functions[0], "name"));
    if (c.forced && request->own != NULL) {
        json_t *schema = c.count > 1 ? schema_of_any(&c) : arguments_of(c.functions[0]);
        *format = json_pack("{ss so}", "type", "json_schema", "schema", schema);
    }
    return request->own != NULL && (*format != NULL || !c.forced) ? BY_OK : lacks_memory(error);
}

/* ---- answering ---- */

by__openai_calling by__openai_calls_as(const by__gateway_request *request)
{
    const char *kind = by__protocol_get_text(request->own, "calls");
    return kind == NULL                  ? BY__CALLS_NONE
           : strcmp(kind, "named") == 0  ? BY__CALLS_NAMED
           : strcmp(kind, "chosen") == 0 ? BY__CALLS_CHOSEN
                                         : BY__CALLS_MARKED;
}

void by__openai_calls_remove(json_t *own)
{
    static const char *const names[] = {"calls", "function", "functions", "single"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        (void)json_object_del(own, names[i]);
    }
}

void by__openai_add_call(const by__gateway_request *request, const by__openai_called *called,
                         by_string *out)
{
    const char *digits = strpbrk(request->id, "-_");
    by__string_append(out, "{");
    if (called->streams) {
        by_string_format(out, "\"index\":%zu,", called->index);
    }
    by_string_format(out, "\"id\":\"call_%.40s_%zu_%zu\",\"type\":\"function\",",
                     digits == NULL ? request->id : digits + 1, called->choice, called->index);
    by__string_append(out, "\"function\":{\"name\":");
    by_string_json(out, called->name, called->name_length);
    by__string_append(out, ",\"arguments\":");
    by_string_json(out, called->arguments, called->length);
    by__string_append(out, "}}");
}

static size_t trimmed(const char *text, size_t length)
{
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL) {
        length--;
    }
    return length;
}

/* Finds the call in the text {"name": "...", "arguments": {...}}, whose form is known; its
 * arguments lack their end if it was cut. Returns false if it was cut before them. */
static bool find_chosen(by__openai_called *called, const by__gateway_choice *c)
{
    static const char key[] = "\"arguments\":";
    const char *begin = c->text.data == NULL ? NULL : strstr(c->text.data, "\"name\":");
    const char *name = begin == NULL ? NULL : strchr(begin + strlen("\"name\":"), '"');
    const char *end = name == NULL ? NULL : strchr(name + 1, '"');
    const char *arguments = end == NULL ? NULL : strstr(end, key);
    if (arguments == NULL) {
        return false;
    }
    arguments += strlen(key);
    arguments += strspn(arguments, " \n");
    size_t length = strlen(arguments);
    if (strcmp(c->reason, "length") != 0 && length > 0) {
        length = trimmed(arguments, length - 1); /* without the last '}' */
    }
    called->name = name + 1;
    called->name_length = (size_t)(end - name - 1);
    called->arguments = arguments;
    called->length = length;
    return true;
}

static bool knows(const by__gateway_request *request, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(request->own, "functions"), i, one)
    {
        if (name != NULL && strcmp(json_string_value(one), name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the arguments of a call, as the model spelled them: an object, the text of one, or none,
 * which some templates omit. Returns false if they are anything else. */
static bool add_arguments(by_string *out, const json_t *call, const char *text, size_t length)
{
    const json_t *value = json_object_get(call, "arguments");
    const char *spelled;
    size_t n;
    json_error_t ignored;
    if (value == NULL || json_is_null(value)) {
        by__string_append(out, "{}");
        return true;
    }
    if (json_is_object(value) && by__json_member_text(&spelled, &n, text, length, "arguments")) {
        by__json_compact(out, spelled, n);
        return true;
    }
    json_t *inner = json_is_string(value)
                        ? by_json_load(json_string_value(value), json_string_length(value),
                                       JSON_ALLOW_NUL, &ignored)
                        : NULL;
    bool good = json_is_object(inner);
    if (good) {
        by__json_compact(out, json_string_value(value), json_string_length(value));
    }
    json_decref(inner);
    return good;
}

/* Adds the call of one pair of marks, unless it is one too many. Returns false if what is between
 * them is none. */
static bool add_marked_one(const by__gateway_request *request, by__openai_called *called,
                           const char *text, size_t length, by_string *out)
{
    json_error_t where;
    by_string printed = {0};
    json_t *value = by_json_load(text, length, JSON_ALLOW_NUL, &where);
    const char *name = by__protocol_get_text(value, "name");
    bool good = knows(request, name) && add_arguments(&printed, value, text, length);
    if (value == NULL && json_error_code(&where) == json_error_out_of_memory) {
        out->failed = true;
    }
    if (good && (called->index == 0 || !json_is_true(json_object_get(request->own, "single")))) {
        called->name = name;
        called->name_length = strlen(name);
        called->arguments = printed.failed ? "" : printed.data;
        called->length = printed.failed ? 0 : printed.length;
        by__string_append(out, called->index > 0 ? "," : "");
        by__openai_add_call(request, called, out);
        called->index++;
        out->failed = out->failed || printed.failed;
    }
    by_string_free(&printed);
    json_decref(value);
    return good;
}

/* The end mark of what follows a mark, outside strings of JSON; NULL: there is none. */
static const char *find_close(const char *at, const char *end)
{
    while (at < end) {
        if (*at == '"') {
            at += by__json_string_span(at, (size_t)(end - at));
        } else if ((size_t)(end - at) >= strlen(CLOSE) && memcmp(at, CLOSE, strlen(CLOSE)) == 0) {
            return at;
        } else {
            at++;
        }
    }
    return NULL;
}

/* Adds text that is around calls: without blanks at its end, and at the beginning of all. */
static void append_trimmed(by_string *message_text, const char *text, size_t length)
{
    length = trimmed(text, length);
    while (message_text->length == 0 && length > 0 && strchr(" \t\r\n", *text) != NULL) {
        text++;
        length--;
    }
    by_string_add(message_text, text, length);
}

/* The calls between marks, if each pair of marks has one. */
static void add_marked(const by__gateway_request *request, by__openai_called *called,
                       const by__gateway_choice *c, by_string *out, by_string *message_text)
{
    const char *at = c->text.data == NULL ? "" : c->text.data;
    const char *end = at + c->text.length;
    for (const char *mark = strstr(at, OPEN); mark != NULL; mark = strstr(at, OPEN)) {
        const char *text = mark + strlen(OPEN);
        const char *close = find_close(text, end);
        if (close == NULL || !add_marked_one(request, called, text, (size_t)(close - text), out)) {
            called->index = 0;
            return;
        }
        /* Blanks in front stay even before the first call, as they are when they are streamed. */
        size_t length = trimmed(at, (size_t)(mark - at));
        if (at == c->text.data) {
            by_string_add(message_text, at, length);
        } else {
            append_trimmed(message_text, at, length);
        }
        at = close + strlen(CLOSE);
    }
    if (called->index > 0) {
        append_trimmed(message_text, at, (size_t)(end - at));
    }
}

size_t by__openai_add_calls(const by__gateway_request *request, size_t choice, bool streams,
                            by_string *out, by_string *message_text)
{
    const by__gateway_choice *c = &request->choices[choice];
    by__openai_calling kind = by__openai_calls_as(request);
    by__openai_called called = {.choice = choice, .streams = streams};
    by_string list = {0};
    size_t count = 0;
    if (kind == BY__CALLS_MARKED) {
        add_marked(request, &called, c, &list, message_text);
        count = called.index;
    } else if (kind == BY__CALLS_NAMED) {
        called.name = by__protocol_get_text(request->own, "function");
        called.name_length = strlen(called.name);
        called.arguments = c->text.data == NULL ? "" : c->text.data;
        called.length = c->text.length;
        count = 1;
    } else if (kind == BY__CALLS_CHOSEN) {
        count = find_chosen(&called, c) ? 1 : 0;
    }
    if (count > 0 && kind != BY__CALLS_MARKED) {
        by__openai_add_call(request, &called, &list);
    }
    if (count == 0 && (kind == BY__CALLS_NONE || kind == BY__CALLS_MARKED)) {
        message_text->length = 0;
        by_string_add(message_text, c->text.data == NULL ? "" : c->text.data, c->text.length);
    }
    by__string_append(message_text, "");
    out->failed = out->failed || list.failed || message_text->failed;
    if (count > 0 && !list.failed) {
        by_string_add(out, list.data, list.length);
    }
    by_string_free(&list);
    return count;
}

size_t by__openai_shown(const by_string *text)
{
    if (text->data == NULL) {
        return 0;
    }
    const char *mark = strstr(text->data, OPEN);
    if (mark != NULL) {
        return trimmed(text->data, (size_t)(mark - text->data));
    }
    size_t length = text->length;
    for (size_t n = strlen(OPEN); n > 0; n--) { /* the end may be the beginning of a mark */
        if (n <= length && memcmp(text->data + length - n, OPEN, n) == 0) {
            length -= n;
            break;
        }
    }
    return trimmed(text->data, length);
}
