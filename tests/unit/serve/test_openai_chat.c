/* Chats of OpenAI's API: what of a body is refused, and by which name, and calls of functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/constraint.h"
#include "read_request.h"
#include "serve/gateway/openai/openai.h"

/* ---- what is refused ---- */

#define CHAT(messages, more) "{\"model\":\"m\",\"messages\":" messages more "}"
#define USER                 "{\"role\":\"user\",\"content\":\"a\"}"
#define TOOL(function)       "[{\"type\":\"function\",\"function\":" function "}]"

static void test_refused(void **state)
{
    static const struct {
        const char *body, *param, *message; /* param NULL: it is taken */
    } rows[] = {
        {CHAT("[" USER "]", ""), NULL, NULL},
        {CHAT("[{}]", ""), "messages[0].role", "message 0: 'role' is missing; it must be system"},
        {CHAT("[5]", ""), "messages[0]", "message 0: a JSON object"},
        {CHAT("[" USER ",{\"role\":\"bot\",\"content\":\"a\"}]", ""), "messages[1].role",
         "message 1: 'role' is bot;"},
        {CHAT("[{\"role\":\"user\",\"contnet\":\"a\"}]", ""), "messages[0]",
         "message 0: unknown field 'contnet'; did you mean 'content'?"},
        {CHAT("[{\"role\":\"user\",\"content\":5}]", ""), "messages[0].content",
         "message 0: 'content' must be a text"},
        {CHAT("[{\"role\":\"user\",\"content\":null}]", ""), "messages[0].content", "'content'"},
        {CHAT("[{\"role\":\"user\"}]", ""), "messages[0].content", "'content'"},
        {CHAT("[{\"role\":\"user\",\"content\":[\"a\"]}]", ""), "messages[0].content",
         "a part of a 'content'"},
        {CHAT("[{\"role\":\"assistant\",\"content\":null}]", ""), NULL, NULL},
        {CHAT("[{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":null}]", ""), NULL, NULL},
        {CHAT("[{\"role\":\"function\",\"name\":\"a\"}]", ""), NULL, NULL},
        {CHAT("[{\"role\":\"tool\",\"content\":5}]", ""), "messages[0].content", "'content'"},
        {CHAT("[{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null,\"annotations\":null,"
              "\"audio\":null,\"function_call\":null,\"tool_calls\":null,\"parsed\":null,\"id\":"
              "\"a\","
              "\"reasoning_details\":[{}],\"provider_specific_fields\":{\"x\":1e400}}]",
              ""),
         NULL, NULL},
        {CHAT("[{\"role\":\"assistant\",\"contnet\":\"a\"}]", ""), "messages[0]",
         "did you mean 'content'?"},
        {CHAT("[{\"role\":\"assistant\",\"tool_calls\":[{}]}]", ""), "messages[0].tool_calls",
         "a 'function'"},
        {CHAT("[{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"annotations\":[],"
              "\"tool_calls\":" TOOL(
                  "{\"name\":\"f\",\"arguments\":\"{}\"}") "},"
                                                           "{\"role\":\"tool\",\"tool_call_id\":"
                                                           "\"a\",\"content\":\"b\"}]",
              ""),
         NULL, NULL},
        {CHAT("[" USER "]",
              ",\"reasoning_effort\":\"low\",\"verbosity\":\"low\",\"prediction\":{},"
              "\"prompt_cache_retention\":\"24h\",\"prompt_cache_options\":{},\"functions\":null,"
              "\"audio\":null,\"modalities\":[\"text\"],\"chat_template_kwargs\":{\"a\":1}"),
         NULL, NULL},
        {CHAT("[" USER "]", ",\"modalities\":[\"text\",\"audio\"]"), "modalities", "only text"},
        {CHAT("[" USER "]", ",\"functions\":[]"), "functions", "not supported: send 'tools'"},
        {CHAT("[" USER "]", ",\"function_call\":\"auto\""), "function_call", "not supported"},
        {CHAT("[" USER "]", ",\"audio\":{}"), "audio", "not supported"},
        {CHAT("[" USER "]", ",\"web_search_options\":{}"), "web_search_options", "not supported"},
        {CHAT("[" USER "]", ",\"chat_template_kwargs\":5"), "chat_template_kwargs", "an object"},
        {CHAT("[" USER "]", ",\"tools\":{}"), "tools", "'tools' must be a list"},
        {CHAT("[" USER "]", ",\"tools\":[{}]"), "tools", "a tool must be"},
        {CHAT("[" USER "]", ",\"tools\":" TOOL("{\"name\":\"a b\"}")), "tools", "not 'a b'"},
        {CHAT("[" USER "]", ",\"tools\":" TOOL("{\"name\":\"f\",\"parameters\":{\"type\":5}}")),
         "tools", "the schema of an object"},
        {CHAT("[" USER "]", ",\"tool_choice\":\"required\""), "tool_choice", "needs 'tools'"},
        {CHAT("[" USER "]", ",\"tool_choice\":\"any\""), "tool_choice", "must be none, auto"},
        {CHAT("[" USER "]",
              ",\"tools\":" TOOL(
                  "{\"name\":\"f\"}") ",\"tool_choice\":{\"type\":"
                                      "\"function\",\"function\":{\"name\":\"nope\"}}"),
         "tool_choice", "names the function 'nope', which is not in 'tools'"},
        {CHAT("[" USER "]",
              ",\"tools\":" TOOL("{\"name\":\"f\"}") ",\"tool_choice\":"
                                                     "\"required\",\"guided_regex\":\"a\""),
         "guided_regex", "'guided_regex' and a required call"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        const char *param = NULL;
        by_error error = {0};
        by__gateway_request *request =
            read_request(&by__openai_chat_form, rows[i].body, &param, &error);
        if (rows[i].param == NULL) {
            assert_string_equal(error.message, "");
        } else {
            assert_int_equal(error.status, BY_EARG);
            assert_non_null(param);
            assert_string_equal(param, rows[i].param);
            if (strstr(error.message, rows[i].message) == NULL) {
                fail_msg("%s: %s", rows[i].body, error.message);
            }
        }
        by__gateway_request_free(request);
    }
}

/* A template joins what a tool said to other text: null would be none. */
static void test_silent_tool(void **state)
{
    const char *param = NULL;
    by_error error = {0};
    (void)state;
    by__gateway_request *request = read_request(
        &by__openai_chat_form,
        CHAT("[{\"role\":\"tool\",\"content\":null},{\"role\":\"assistant\",\"content\":null}]",
             ""),
        &param, &error);
    assert_string_equal(error.message, "");
    const json_t *messages =
        json_object_get(json_object_get(request->parts[0].message, "request"), "messages");
    assert_string_equal(json_string_value(json_object_get(json_array_get(messages, 0), "content")),
                        "");
    assert_true(json_is_null(json_object_get(json_array_get(messages, 1), "content")));
    by__gateway_request_free(request);
}

/* ---- calls of functions ---- */

#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","    \
    "\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"a\"],"                        \
    "\"$defs\":{\"n\":{\"type\":\"integer\"}}}}},"                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]"
#define CALLING(choice)                                                                            \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":1,"            \
    "\"tools\":" TOOLS ",\"tool_choice\":" choice "}"
#define NAMED_G "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"

/* What a model writes, and the calls that it has: NAME(ARGUMENTS), each with a line end. */
static const struct {
    const char *body, *text, *reason, *content, *calls, *finish;
} calling[] = {
    {CALLING("{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"), "{\"a\": 1}", "stop", NULL,
     "f({\"a\": 1})\n", "tool_calls"},
    {CALLING(
         "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\",\"tools\":[" NAMED_G
         "]}}"),
     "{}", "stop", NULL, "g({})\n", "tool_calls"},
    {CALLING("\"required\""), "{ \"name\":\n\"f\", \"arguments\": {\"a\": 1} }", "stop", NULL,
     "f({\"a\": 1})\n", "tool_calls"},
    {CALLING("\"required\""), "{\"name\": \"f\", \"arguments\": {\"a\"", "length", NULL,
     "f({\"a\")\n", "length"},
    {CALLING("\"required\""), "{\"name\": \"f\", \"argu", "length", "", "", "length"},
    {CALLING("\"auto\""),
     "so: <tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>\n"
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
     "stop", "so:", "f({\"a\":1})\ng({})\n", "tool_calls"},
    {CALLING("\"auto\""), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>", "stop",
     NULL, "f({\"a\":1})\n", "tool_calls"},
    {CALLING("\"auto\""), "a <tool_call>{\"name\":\"h\",\"arguments\":{}}</tool_call>", "stop",
     "a <tool_call>{\"name\":\"h\",\"arguments\":{}}</tool_call>", "", "stop"},
    /* A mark within a string is none. */
    {CALLING("\"auto\""),
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x</tool_call>\\\"<tool_call>\\\\\"}}</"
     "tool_call>"
     "\n<tool_call>{\"arguments\":{\"b\":{\"</tool_call>\":[\"\\\\\"]}},\"name\":\"g\"}</"
     "tool_call>",
     "stop", NULL,
     "f({\"a\":\"x</tool_call>\\\"<tool_call>\\\\\"})\ng({\"b\":{\"</tool_call>\":[\"\\\\\"]}})\n",
     "tool_calls"},
    /* Arguments stay as they are spelled, and so does the text around the calls. */
    {CALLING("\"auto\""),
     " so: <tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 0.10, \"b\":[1E400, "
     "18446744073709551616, "
     "\"\\u0000\\ud800\"]}}</tool_call> and "
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>\n\n"
     "done <\n",
     "stop", " so: and\n\ndone <",
     "f({\"a\":0.10,\"b\":[1E400,18446744073709551616,\"\\u0000\\ud800\"]})\ng({})\n",
     "tool_calls"},
    {CALLING("\"auto\""), "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>\nok", "stop",
     "ok", "g({})\n", "tool_calls"},
    {CALLING("\"auto\""),
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call> <tool_call>{\"na", "length",
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call> <tool_call>{\"na", "", "length"},
    {CALLING("\"auto\""), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>",
     "length", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"</tool_call>", "", "length"},
    /* arguments that a template omits, or spells as a text */
    {CALLING("\"auto\""),
     "<tool_call>{\"name\":\"g\"}</tool_call><tool_call>{\"name\":\"g\",\"arguments\":null}"
     "</tool_call><tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
     "stop", NULL, "g({})\ng({})\nf({\"a\":1})\n", "tool_calls"},
    {CALLING("\"auto\""), "<tool_call>{\"name\":\"g\",\"arguments\":\"x\"}</tool_call>", "stop",
     "<tool_call>{\"name\":\"g\",\"arguments\":\"x\"}</tool_call>", "", "stop"},
    {CALLING("\"auto\""), "<tool_call>{\"name\":\"g\",\"arguments\":[1]}</tool_call>", "stop",
     "<tool_call>{\"name\":\"g\",\"arguments\":[1]}</tool_call>", "", "stop"},
    {CALLING("\"auto\""), "", "stop", "", "", "stop"},
    {CALLING("\"auto\""), "a <tool_call>{\"name\":", "length", "a <tool_call>{\"name\":", "",
     "length"},
    {CALLING("\"auto\""), "1 < 2 <tool ", "stop", "1 < 2 <tool ", "", "stop"},
    {CALLING("\"none\""), "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", "stop",
     "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>", "", "stop"},
};

/* Gathers what a message, or a part of one, has. */
static void gather(const json_t *message, by_string *content, by_string calls[4])
{
    size_t i;
    json_t *one;
    const json_t *text = json_object_get(message, "content");
    if (json_is_string(text)) {
        by__string_append(content, json_string_value(text));
    }
    json_array_foreach(json_object_get(message, "tool_calls"), i, one)
    {
        const json_t *function = json_object_get(one, "function");
        const json_t *index = json_object_get(one, "index");
        const json_t *name = json_object_get(function, "name");
        by_string *to = &calls[index == NULL ? i : (size_t)json_integer_value(index)];
        if (name != NULL) {
            assert_int_equal(strncmp(json_string_value(json_object_get(one, "id")), "call_", 5), 0);
            by_string_format(to, "%s(", json_string_value(name));
        }
        by__string_append(to, json_string_value(json_object_get(function, "arguments")));
    }
}

static void check_gathered(size_t i, by_string *content, by_string calls[4])
{
    by_string all = {0};
    by__string_append(content, "");
    by__string_append(&all, "");
    for (size_t k = 0; k < 4; k++) {
        if (calls[k].length > 0) {
            by_string_format(&all, "%s)\n", calls[k].data);
        }
        by_string_free(&calls[k]);
    }
    assert_string_equal(content->data, calling[i].content == NULL ? "" : calling[i].content);
    assert_string_equal(all.data, calling[i].calls);
    by_string_free(&all);
    by_string_free(content);
}

static void check_whole(by__gateway_request *request, size_t i)
{
    by_string out = {0};
    by_string content = {0};
    by_string calls[4] = {{0}};
    request->form->answer(request, &out);
    json_t *value = json_loadb(out.data, out.length, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(value, "choices"), 0);
    const json_t *message = json_object_get(choice, "message");
    gather(message, &content, calls);
    check_gathered(i, &content, calls);
    assert_int_equal(json_is_null(json_object_get(message, "content")), calling[i].content == NULL);
    assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")),
                        calling[i].finish);
    json_decref(value);
    by_string_free(&out);
}

/* The same in a stream, of which each piece has two bytes. */
static void check_stream(by__gateway_request *request, size_t i)
{
    by_string out = {0};
    by_string content = {0};
    by_string calls[4] = {{0}};
    const char *text = calling[i].text;
    const char *finish = NULL;
    json_t *last = NULL;
    stream_text(request, text, &out);
    request->form->stop(request, 0, calling[i].reason, &out);
    for (const char *line = out.data; line != NULL && *line != '\0';
         line = strstr(line, "\n\n") + 2) {
        json_t *value = json_loadb(line + 6, (size_t)(strstr(line, "\n\n") - line - 6), 0, NULL);
        if (value == NULL) {
            fail_msg("%s", line);
        }
        const json_t *choice = json_array_get(json_object_get(value, "choices"), 0);
        assert_null(finish);
        finish = json_string_value(json_object_get(choice, "finish_reason"));
        gather(json_object_get(choice, "delta"), &content, calls);
        json_decref(last);
        last = value;
    }
    check_gathered(i, &content, calls);
    assert_string_equal(finish, calling[i].finish);
    json_decref(last);
    by_string_free(&out);
}

static void test_calls(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(calling); i++) {
        by_error error = {0};
        const char *param = NULL;
        by__gateway_request *request =
            read_request(&by__openai_chat_form, calling[i].body, &param, &error);
        assert_int_equal(error.status, BY_OK);
        by__gateway_choice *c = &request->choices[0];
        by__string_append(&c->text, calling[i].text);
        (void)snprintf(c->reason, sizeof c->reason, "%s", calling[i].reason);
        check_whole(request, i);
        check_stream(request, i);
        bool shown =
            json_object_get(json_object_get(request->parts[0].message, "request"), "tools");
        assert_int_equal(shown, strstr(calling[i].body, "\"none\"") == NULL);
        by__gateway_request_free(request);
    }
}

/* The constraint of a call: only functions of the list, with their own arguments. */
static void test_call_schema(void **state)
{
    static const struct {
        const char *choice, *text;
        bool matches;
    } texts[] = {
        {CALLING("\"required\""), "{\"name\":\"f\",\"arguments\":{\"a\":1}}", true},
        {CALLING("\"required\""), "{\"name\":\"g\",\"arguments\":{}}", true},
        {CALLING("\"required\""), "{\"name\":\"g\",\"arguments\":{\"a\":1}}", false},
        {CALLING("\"required\""), "{\"name\":\"f\",\"arguments\":{\"a\":\"1\"}}", false},
        {CALLING("\"required\""), "{\"name\":\"h\",\"arguments\":{}}", false},
        {CALLING(NAMED_G), "{}", true},
        {CALLING(NAMED_G), "{\"a\":1}", false},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by_error error = {0};
        const char *param = NULL;
        by_constraint *constraint = NULL;
        bool matches = false;
        by__gateway_request *request =
            read_request(&by__openai_chat_form, texts[i].choice, &param, &error);
        assert_int_equal(error.status, BY_OK);
        const json_t *wanted = json_object_get(request->parts[0].message, "request");
        char *schema =
            json_dumps(json_object_get(json_object_get(wanted, "format"), "schema"), JSON_COMPACT);
        assert_non_null(schema);
        assert_int_equal(
            by_constraint_open_schema(&constraint, schema, strlen(schema), NULL, &error), BY_OK);
        assert_int_equal(by_constraint_matches(constraint, texts[i].text, strlen(texts[i].text),
                                               &matches, &error),
                         BY_OK);
        assert_int_equal(matches, texts[i].matches);
        by_constraint_close(&constraint);
        free(schema);
        by__gateway_request_free(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_silent_tool),
                                       cmocka_unit_test(test_call_schema)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
