/* Responses of OpenAI's API: what of a body is refused, the conversation that its items are, calls
 * of functions in the output and in its stream, and the events of a response in the background. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "read_request.h"
#include "serve/gateway/gateway_routes.h"
#include "serve/gateway/openai/openai_responses.h"
#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/protocol/messages.h"

#define ASK(input, more) "{\"model\":\"m\",\"input\":" input more "}"
#define CALL                                                                                       \
    "{\"type\":\"function_call\",\"id\":\"fc_1\",\"call_id\":\"c1\",\"name\":\"f\","               \
    "\"arguments\":\"{}\",\"status\":\"completed\"}"
#define OUTPUT(id) "{\"type\":\"function_call_output\",\"call_id\":\"" id "\",\"output\":\"5\"}"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\","  \
    "\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}},"                        \
    "{\"type\":\"function\",\"name\":\"g\",\"parameters\":null}]"

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    static const struct {
        const char *body, *param, *message;
    } rows[] = {
        {ASK("[]", ""), "input", "'input' must be a text or a list of items"},
        {ASK("5", ""), "input", "'input' must be a text or a list of items"},
        {ASK("[5]", ""), "input[0]", "item 0: a message must have a role"},
        {ASK("[{\"role\":\"tool\",\"content\":\"a\"}]", ""), "input[0]", "a message must have"},
        {ASK("[{\"role\":\"user\",\"content\":5}]", ""), "input[0]", "a 'content' must be"},
        {ASK("[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"image_call\",\"summary\":[]}]",
             ""),
         "input[1]", "item 1: the type 'image_call' is not supported: an item is a message, a"},
        {ASK("[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]", ""), "input[0]",
         "a function_call must have a 'call_id'"},
        {ASK("[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":{}}]",
             ""),
         "input[0]", "a function_call must have"},
        {ASK("[" CALL "," OUTPUT("c2") "]", ""), "input[1]",
         "item 1: the call_id 'c2' is of no function_call before this output"},
        {ASK("[" CALL ",{\"type\":\"function_call_output\",\"call_id\":\"c1\"}]", ""), "input[1]",
         "a function_call_output must have"},
        {ASK("[" CALL ",{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":"
             "[{\"type\":\"input_image\"}]}]",
             ""),
         "input[1]", "'input_image'"},
        {ASK("\"a\"", ",\"tools\":5"), "tools", "'tools' must be a list"},
        {ASK("\"a\"", ",\"tools\":[{\"type\":\"web_search\"}]"), "tools",
         "a tool of type 'web_search' is not supported: the model calls functions of the client"},
        {ASK("\"a\"", ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"),
         "tools", "a tool must be {\"type\": \"function\", \"name\": ..., \"parameters\": ...}"},
        {ASK("\"a\"", ",\"tools\":[5]"), "tools", "a tool must be"},
        {ASK("\"a\"", ",\"tools\":[{\"type\":\"function\",\"name\":\"a b\"}]"), "tools",
         "not 'a b'"},
        {ASK("\"a\"", ",\"tool_choice\":\"required\""), "tool_choice", "needs 'tools'"},
        {ASK("\"a\"", ",\"tools\":" TOOLS ",\"tool_choice\":{\"type\":\"web_search_preview\"}"),
         "tool_choice", "must be none, auto, required, or an object of type function"},
        {ASK("\"a\"",
             ",\"tools\":" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"name\":\"h\"}"),
         "tool_choice", "names the function 'h', which is not in 'tools'"},
        {ASK("\"a\"", ",\"tools\":" TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\"}"),
         "tool_choice", "must have a 'mode', auto or required, and a list of"},
        {ASK("\"a\"", ",\"parallel_tool_calls\":1"), "parallel_tool_calls", "true or false"},
        {ASK("\"a\"", ",\"previous_response_id\":\"resp_1\""), "previous_response_id",
         "send the messages so far"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        const char *param = NULL;
        by_error error;
        by__gateway_request *request =
            read_request(&by__openai_response_form, rows[i].body, &param, &error);
        assert_int_equal(error.status, BY_EARG);
        if (param == NULL || strcmp(param, rows[i].param) != 0 ||
            strstr(error.message, rows[i].message) == NULL) {
            fail_msg("%s: %s: %s", rows[i].body, param, error.message);
        }
        by__gateway_request_free(request);
    }
}

/* ---- the conversation ---- */

static void test_conversation(void **state)
{
    static const struct {
        const char *body, *messages;
    } rows[] = {
        {ASK("\"a\"", ",\"instructions\":\"i\""),
         "[{\"role\":\"system\",\"content\":\"i\"},{\"role\":\"user\",\"content\":\"a\"}]"},
        {ASK("[{\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]}]",
             ""),
         "[{\"role\":\"system\",\"content\":\"a\"}]"},
        /* The items of one turn of the assistant are one message. */
        {ASK("[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"message\",\"id\":\"msg_1\","
             "\"role\":\"assistant\",\"status\":\"completed\",\"content\":[{\"type\":"
             "\"output_text\",\"text\":\"b\",\"annotations\":[],\"logprobs\":[]}]}," CALL
             ",{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"\"},"
             "{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":"
             "\"input_text\",\"text\":\"6\"}]}," OUTPUT("c1") "]",
             ""),
         "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\","
         "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
         "\"arguments\":\"{}\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":"
         "\"g\",\"arguments\":\"\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":"
         "\"6\"},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"5\"}]"},
        {ASK("[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[],\"encrypted_content\":null},"
             "{\"type\":\"message\",\"role\":\"assistant\",\"content\":null},{\"role\":"
             "\"assistant\","
             "\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]},{\"role\":\"user\","
             "\"content\":[]}]",
             ""),
         "[{\"role\":\"assistant\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"no\"},"
         "{\"role\":\"user\",\"content\":\"\"}]"},
        {ASK("[{\"role\":\"user\",\"content\":\"a\"}," CALL "," OUTPUT("c1") "]", ""),
         "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\","
         "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
         "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":"
         "\"5\"}]"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        const char *param = NULL;
        by_error error;
        by__gateway_request *request =
            read_request(&by__openai_response_form, rows[i].body, &param, &error);
        assert_string_equal(error.message, "");
        json_t *wanted = json_loads(rows[i].messages, 0, NULL);
        const json_t *sent = json_object_get(request->parts[0].message, "request");
        json_t *got = json_object_get(sent, "messages");
        if (!json_equal(got, wanted)) {
            fail_msg("%s: %s", rows[i].body, json_dumps(got, JSON_COMPACT));
        }
        json_decref(wanted);
        by__gateway_request_free(request);
    }
}

/* ---- calls of functions ---- */

#define CALLING(choice) ASK("\"a\"", ",\"tools\":" TOOLS ",\"tool_choice\":" choice)
#define MARKED(name, argument)                                                                     \
    "<tool_call>{\"name\":\"" name "\",\"arguments\":" argument "}</tool_call>"

/* What a model writes, and the output that it is: 'MESSAGE' and NAME(ARGUMENTS). */
static const struct {
    const char *body, *text, *reason, *output;
} calling[] = {
    {ASK("\"a\"", ""), "b", "stop", "'b'"},
    {ASK("\"a\"", ""), "", "stop", "''"},
    {CALLING("{\"type\":\"function\",\"name\":\"f\"}"), "{\"a\": 1}", "stop", "f({\"a\": 1})"},
    {CALLING("{\"type\":\"function\",\"name\":\"f\"}"), "{\"a\"", "length", "f({\"a\")"},
    {CALLING("{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\","
             "\"name\":\"g\"}]}"),
     "{}", "stop", "g({})"},
    {CALLING("\"required\""), "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "stop",
     "f({\"a\": 1})"},
    {CALLING("\"required\""), "{\"name\": \"f\", \"argu", "length", ""},
    {CALLING("\"auto\""), "so: " MARKED("f", "{\"a\":1}") "\n" MARKED("g", "{}"), "stop",
     "'so:'f({\"a\":1})g({})"},
    {CALLING("\"auto\",\"parallel_tool_calls\":false"),
     "so: " MARKED("f", "{\"a\":1}") "\n" MARKED("g", "{}"), "stop", "'so:'f({\"a\":1})"},
    {CALLING("\"auto\""), MARKED("g", "{}"), "stop", "g({})"},
    {CALLING("\"auto\""), "no <tool", "stop", "'no <tool'"},
    {CALLING("\"auto\""), MARKED("h", "{}"), "stop", "'" MARKED("h", "{}") "'"},
    {CALLING("\"auto\""), "", "length", "''"},
    {CALLING("\"none\""), MARKED("g", "{}"), "stop", "'" MARKED("g", "{}") "'"},
};

static void check_output(const json_t *output, size_t row)
{
    by_string all = {0};
    size_t i;
    json_t *item;
    by__string_append(&all, "");
    json_array_foreach(output, i, item)
    {
        const char *id = by__protocol_get_text(item, "id");
        if (strcmp(by__protocol_get_text(item, "type"), "message") == 0) {
            const json_t *part = json_array_get(json_object_get(item, "content"), 0);
            assert_int_equal(strncmp(id, "msg_", 4), 0);
            by_string_format(&all, "'%s'", by__protocol_get_text(part, "text"));
        } else {
            assert_string_equal(by__protocol_get_text(item, "type"), "function_call");
            assert_int_equal(strncmp(id, "fc_", 3), 0);
            assert_int_equal(strncmp(by__protocol_get_text(item, "call_id"), "call_", 5), 0);
            by_string_format(&all, "%s(%s)", by__protocol_get_text(item, "name"),
                             by__protocol_get_text(item, "arguments"));
        }
        assert_string_equal(by__protocol_get_text(item, "status"),
                            strcmp(calling[row].reason, "stop") == 0 ? "completed" : "incomplete");
    }
    assert_string_equal(all.data, calling[row].output);
    by_string_free(&all);
}

/* The output so far of a client that reads a stream. */
typedef struct reader {
    json_t *output;
    int64_t events;
    bool ended;
} reader;

/* Appends "delta" to a member. */
static void append(json_t *object, const char *name, const json_t *event)
{
    json_t *text = json_sprintf("%s%s", by__protocol_get_text(object, name),
                                by__protocol_get_text(event, "delta"));
    assert_int_equal(json_object_set_new(object, name, text), 0);
}

static void take_event(reader *r, const json_t *event)
{
    const char *type = by__protocol_get_text(event, "type");
    size_t index = (size_t)by__protocol_get_integer(event, "output_index");
    json_t *item = json_array_get(r->output, index);
    json_t *part = json_array_get(json_object_get(item, "content"), 0);
    const char *id = by__protocol_get_text(event, "item_id");
    assert_false(r->ended);
    assert_int_equal(by__protocol_get_integer(event, "sequence_number"), r->events++);
    if (id != NULL) {
        assert_string_equal(id, by__protocol_get_text(item, "id"));
    }
    if (strcmp(type, "response.output_item.added") == 0) {
        assert_int_equal(index, json_array_size(r->output));
        json_t *copy = json_deep_copy(json_object_get(event, "item"));
        assert_string_equal(by__protocol_get_text(copy, "status"), "in_progress");
        assert_int_equal(json_array_append_new(r->output, copy), 0);
    } else if (strcmp(type, "response.content_part.added") == 0) {
        json_t *copy = json_deep_copy(json_object_get(event, "part"));
        assert_int_equal(json_array_append_new(json_object_get(item, "content"), copy), 0);
    } else if (strcmp(type, "response.output_text.delta") == 0) {
        append(part, "text", event);
    } else if (strcmp(type, "response.output_text.done") == 0) {
        assert_string_equal(by__protocol_get_text(event, "text"),
                            by__protocol_get_text(part, "text"));
    } else if (strcmp(type, "response.function_call_arguments.delta") == 0) {
        append(item, "arguments", event);
    } else if (strcmp(type, "response.function_call_arguments.done") == 0) {
        assert_string_equal(by__protocol_get_text(event, "arguments"),
                            by__protocol_get_text(item, "arguments"));
        assert_string_equal(by__protocol_get_text(event, "name"),
                            by__protocol_get_text(item, "name"));
    } else if (strcmp(type, "response.output_item.done") == 0) {
        assert_int_equal(json_object_set(item, "status",
                                         json_object_get(json_object_get(event, "item"), "status")),
                         0);
        assert_true(json_equal(item, json_object_get(event, "item")));
    } else if (strcmp(type, "response.completed") == 0 ||
               strcmp(type, "response.incomplete") == 0) {
        const json_t *response = json_object_get(event, "response");
        assert_true(json_equal(r->output, json_object_get(response, "output")));
        r->ended = true;
    }
}

static void take_events(reader *r, const by_string *frames)
{
    for (const char *line = frames->data; line != NULL && *line != '\0';
         line = strstr(line, "\n\n") + 2) {
        const char *data = strstr(line, "\ndata: ") + 7;
        json_t *event = json_loadb(data, (size_t)(strstr(data, "\n\n") - data), 0, NULL);
        if (event == NULL) {
            fail_msg("%s", line);
        }
        take_event(r, event);
        json_decref(event);
    }
}

/* A stream of which each piece has two bytes. */
static void check_stream(by__gateway_request *request, size_t row)
{
    by_string out = {0};
    const char *text = calling[row].text;
    reader r = {.output = json_array()};
    stream_text(request, text, &out);
    request->form->stop(request, 0, calling[row].reason, &out);
    request->form->end(request, &out);
    assert_false(out.failed);
    take_events(&r, &out);
    assert_true(r.ended);
    check_output(r.output, row);
    json_decref(r.output);
    by_string_free(&out);
}

static void test_calls(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(calling); i++) {
        by_error error;
        const char *param = NULL;
        by_string out = {0};
        by__gateway_request *request =
            read_request(&by__openai_response_form, calling[i].body, &param, &error);
        assert_string_equal(error.message, "");
        by__string_append(&request->choices[0].text, calling[i].text);
        (void)snprintf(request->choices[0].reason, sizeof request->choices[0].reason, "%s",
                       calling[i].reason);
        request->form->answer(request, &out);
        json_t *response = json_loadb(out.data, out.length, 0, NULL);
        check_output(json_object_get(response, "output"), i);
        assert_null(json_object_get(response, "calls"));
        json_decref(response);
        by_string_free(&out);
        check_stream(request, i);
        by__gateway_request_free(request);
    }
}

/* The request is repeated as it was sent, and the model is told of functions as in a chat. */
static void test_tools(void **state)
{
    by_error error;
    const char *param = NULL;
    by__gateway_request *request =
        read_request(&by__openai_response_form, CALLING("{\"type\":\"function\",\"name\":\"f\"}"),
                     &param, &error);
    const json_t *wanted = json_object_get(request->parts[0].message, "request");
    const json_t *tool = json_array_get(json_object_get(wanted, "tools"), 0);
    json_t *tools = json_loads(TOOLS, 0, NULL);
    BY_UNUSED(state);
    assert_string_equal(error.message, "");
    assert_true(json_equal(json_object_get(request->own, "tools"), tools));
    assert_string_equal(by__protocol_get_text(json_object_get(request->own, "tool_choice"), "name"),
                        "f");
    assert_string_equal(by__protocol_get_text(tool, "type"), "function");
    assert_int_equal(json_object_size(tool), 2);
    assert_string_equal(by__protocol_get_text(json_object_get(tool, "function"), "name"), "f");
    assert_null(json_object_get(json_object_get(tool, "function"), "type"));
    json_decref(tools);
    by__gateway_request_free(request);
}

/* A message has the log-probabilities of its own text, not of the calls behind it. */
static void test_logprobs(void **state)
{
    by_error error;
    const char *param = NULL;
    by_string out = {0};
    by__gateway_request *request = read_request(
        &by__openai_response_form, CALLING("\"auto\",\"top_logprobs\":1"), &param, &error);
    by__gateway_choice *c = &request->choices[0];
    BY_UNUSED(state);
    assert_string_equal(error.message, "");
    by__string_append(&c->text, "\xc3\xa4 " MARKED("g", "{}"));
    (void)snprintf(c->reason, sizeof c->reason, "stop");
    c->logprobs = json_pack("[{ss sf si}{ss sf si}]", "token", "\xc3\xa4", "logprob", -1.0,
                            "offset", 0, "token", " <", "logprob", -1.0, "offset", 1);
    request->form->answer(request, &out);
    json_t *response = json_loadb(out.data, out.length, 0, NULL);
    const json_t *message = json_array_get(json_object_get(response, "output"), 0);
    const json_t *part = json_array_get(json_object_get(message, "content"), 0);
    assert_string_equal(by__protocol_get_text(part, "text"), "\xc3\xa4");
    assert_int_equal(json_array_size(json_object_get(part, "logprobs")), 1);
    json_decref(response);
    by_string_free(&out);
    by__gateway_request_free(request);
}

/* ---- responses in the background ---- */

/* The events of a task in a state, without the first ones. */
static void replay(by_string *out, const json_t *task, const json_t *result, const char *status,
                   uint64_t skipped)
{
    const by__gateway g = {.forms = by__gateway_forms};
    by__task_request t;
    *out = (by_string){0};
    by__string_append(out, "");
    assert_true(by__task_request_open(&t, &g, task, result));
    t.request.skipped = skipped;
    by__openai_response_replay(&t.request, status, json_null(), out);
    assert_false(out->failed);
    by__task_request_close(&t);
}

static size_t count_events(const by_string *frames)
{
    size_t count = 0;
    for (const char *at = frames->data; (at = strstr(at, "\n\n")) != NULL; at += 2) {
        count++;
    }
    return count;
}

/* The events of a later state continue those of an earlier one, and a client may resume behind any
 * of them. */
static void check_replays(const json_t *task, const json_t *result, size_t row)
{
    static const char *const states[] = {"queued", "in_progress", "completed"};
    by_string whole;
    reader r = {.output = json_array()};
    replay(&whole, task, result, "completed", 0);
    take_events(&r, &whole);
    assert_true(r.ended);
    check_output(r.output, row);
    json_decref(r.output);
    for (size_t s = 0; s < BY_ARRAY_LENGTH(states); s++) {
        by_string seen;
        by_string rest;
        replay(&seen, task, s < 2 ? NULL : result, states[s], 0);
        size_t count = count_events(&seen);
        assert_true(s == 2 || count == s + 2);
        assert_memory_equal(seen.data, whole.data, seen.length);
        replay(&rest, task, result, "completed", count);
        assert_string_equal(rest.data, whole.data + seen.length);
        by_string_free(&seen);
        by_string_free(&rest);
    }
    by_string end;
    replay(&end, task, NULL, "cancelled", 3);
    assert_int_equal(strncmp(end.data, "event: response.failed\n", 23), 0);
    assert_non_null(strstr(end.data, "\"status\":\"cancelled\""));
    by_string_free(&end);
    by_string_free(&whole);
}

static void test_replay(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(calling); i++) {
        by_error error;
        const char *param = NULL;
        by__gateway_request *request =
            read_request(&by__openai_response_form, calling[i].body, &param, &error);
        json_t *task = json_pack("{ss ss ss si sO}", "kind", "response", "call", request->id,
                                 "model", "m", "created", 1, "own", request->own);
        json_t *result =
            json_pack("{s[{ss ss}] s{si si}}", "choices", "text", calling[i].text, "reason",
                      calling[i].reason, "usage", "prompt_tokens", 1, "completion_tokens", 2);
        check_replays(task, result, i);
        json_decref(result);
        json_decref(task);
        by__gateway_request_free(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_calls),    cmocka_unit_test(test_tools),
        cmocka_unit_test(test_logprobs), cmocka_unit_test(test_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
