/* What routes read and answer while memory runs out: each allocation fails once, and then a request
 * is refused, and an answer is none, or it is as ever: never one that lacks something. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/gateway/gateway_routes.h"
#include "serve/gateway/openai/openai_responses.h"
#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/protocol/content_parts.h"
#include "serve/protocol/task_answer.h"

#define NEVER SIZE_MAX

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static size_t left = NEVER; /* allocations before the one that fails */

/* Whether this allocation is the one. */
static bool fails(void)
{
    bool now = left == 0;
    left -= left != NEVER;
    return now; /* `left` then is NEVER */
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

/* A request, and what a worker says of it. */
typedef struct row {
    const char *route;
    const char *body;
    const char *logprobs; /* of each sequence; NULL: none */
    const char *whole;    /* the worker's result; NULL: texts are */
} row;

#define TOKENS                                                                                     \
    "[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"offset\":0,\"top\":["                     \
    "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]},"                                           \
    "{\"token\":\"b\",\"logprob\":-1.5,\"bytes\":[98]}]}]"

#define CALLING(choice)                                                                            \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":1,"            \
    "\"logprobs\":true,"                                                                           \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"     \
    "\"object\","                                                                                  \
    "\"properties\":{\"a\":{\"$ref\":\"#\"}}}}},{\"type\":\"function\",\"function\":{\"name\":"    \
    "\"g\"}}],"                                                                                    \
    "\"tool_choice\":" choice "}"
#define RESPONSE_CALLING(choice)                                                                   \
    "{\"model\":\"m\",\"seed\":1,\"input\":[{\"role\":\"user\",\"content\":\"a\"},"                \
    "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"          \
    "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"5\"}],\"top_logprobs\":1,"  \
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"function\",\"name\":\"g\"}],"   \
    "\"tool_choice\":" choice "}"
#define CALL "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":{}}}</tool_call>"

static const row rows[] = {
    {"/v1/completions",
     "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"],\"seed\":1,\"n\":2,\"stop\":[\"x\"],"
     "\"logit_bias\":{\"1\":2},\"logprobs\":2,\"stream_options\":{\"include_usage\":true},"
     "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{}}}}",
     TOKENS, NULL},
    {"/v1/chat/completions",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":1,"
     "\"logprobs\":true,\"top_logprobs\":2,\"chat_template_kwargs\":{\"a\":1},\"tools\":["
     "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
     "\"response_format\":{\"type\":\"regex\",\"pattern\":\"a\"}}",
     TOKENS, NULL},
    {"/v1/responses",
     "{\"model\":\"m\",\"instructions\":\"i\",\"seed\":1,\"input\":[{\"role\":\"user\","
     "\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]}],\"metadata\":{\"k\":\"v\"},"
     "\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{}}},\"top_logprobs\":2,"
     "\"max_output_tokens\":7}",
     TOKENS, NULL},
    {"/v1/completions",
     "{\"model\":\"m\",\"prompt\":\"a\",\"seed\":1,\"min_tokens\":2,\"priority\":7,\"stop_token_"
     "ids\":[3],"
     "\"echo\":true,\"best_of\":2,\"guided_choice\":[\"a.\",\"b\"]}",
     NULL, NULL},
    {"/v1/chat/completions",
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"seed\":1,"
     "\"guided_json\":\"{}\"}",
     NULL, NULL},
    {"/v1/chat/completions", CALLING("\"required\""), NULL, NULL},
    {"/v1/chat/completions", CALLING("{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"), NULL,
     NULL},
    {"/v1/chat/completions", CALLING("\"auto\""), TOKENS, NULL},
    {"/v1/responses", RESPONSE_CALLING("\"required\""), NULL, NULL},
    {"/v1/responses", RESPONSE_CALLING("{\"type\":\"function\",\"name\":\"f\"}"), NULL, NULL},
    {"/v1/responses",
     RESPONSE_CALLING("{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":"
                      "\"function\",\"name\":\"f\"}]}"),
     TOKENS, NULL},
    {"/v1/responses", RESPONSE_CALLING("\"auto\""), TOKENS, NULL},
    {"/v1/embeddings", "{\"model\":\"m\",\"input\":[\"a\",\"b\"]}", NULL,
     "{\"list\":[\"AACAPwAAAEA=\",\"AAAAAAAAAAA=\"]}"},
    {"/v1/embeddings", "{\"model\":\"m\",\"input\":\"a\",\"encoding_format\":\"base64\"}", NULL,
     "{\"list\":[\"AACAPwAAAEA=\"]}"},
    {"/v1/predict", "{\"model\":\"m\",\"rows\":[[1,2],[3,4]]}", NULL, "{\"list\":[1.5,2.5]}"},
    {"/v1/predict", "{\"model\":\"m\",\"entities\":[{\"id\":1}],\"rows\":[[1]]}", NULL,
     "{\"list\":[1.5]}"},
};

static by_status read_row(by__gateway_request **out, const row *r, by_error *error)
{
    static by__gateway gateway = {.forms = by__gateway_forms};
    const by__gateway_request_form *form = by__gateway_form_of_route(&gateway, r->route);
    const char *param = NULL;
    by__gateway_request *request = NULL;
    const by__http_request http = {.method = "POST",
                                   .path = r->route,
                                   .query = "",
                                   .headers = {{"content-type", "application/json"}},
                                   .header_count = 1,
                                   .body = r->body,
                                   .body_length = strlen(r->body)};
    by_status status = by__gateway_request_open(&request, &gateway, form, "key", error);
    if (status == BY_OK) {
        status = form->read(request, &http, &param, error);
    }
    if (status != BY_OK && request != NULL) {
        by__gateway_request_free(request);
        request = NULL;
    }
    *out = request;
    return status;
}

/* All that was read, but for ids, as a text. */
static char *print_read(const by__gateway_request *request)
{
    json_t *messages = json_array();
    for (size_t i = 0; i < request->part_count; i++) {
        json_t *message = json_deep_copy(request->parts[i].message);
        (void)json_object_del(message, "id");
        (void)json_array_append_new(messages, message);
    }
    json_t *all =
        json_pack("{so ss si sb sb sI sO?}", "messages", messages, "model", request->model, "n",
                  (int)request->n, "usage", (int)request->usage, "logprobs", (int)request->logprobs,
                  "top", (json_int_t)request->top, "own", request->own);
    assert_non_null(all);
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(all);
    return text;
}

/* A worker's engine orders what waits there by the priority of the request. */
static void test_priority(void **state)
{
    BY_UNUSED(state);
    static const row asked = {"/v1/completions",
                              "{\"model\":\"m\",\"prompt\":\"a\",\"priority\":-7}", NULL, NULL};
    by__gateway_request *request;
    by_error error = {0};
    assert_int_equal(read_row(&request, &asked, &error), BY_OK);
    const json_t *message = request->parts[0].message;
    const json_t *wanted = json_object_get(message, "request");
    assert_int_equal(json_integer_value(json_object_get(message, "priority")), -7);
    assert_int_equal(json_integer_value(json_object_get(wanted, "priority")), -7);
    by__gateway_request_free(request);
}

static void check_read(const row *r)
{
    by__gateway_request *request;
    by_error error = {0};
    assert_int_equal(read_row(&request, r, &error), BY_OK);
    char *whole = print_read(request);
    by__gateway_request_free(request);
    size_t failed = 0;
    for (size_t k = 0;; k++) {
        left = k;
        by_status status = read_row(&request, r, &error);
        bool reached = left == NEVER;
        left = NEVER;
        if (status == BY_OK) {
            char *now = print_read(request);
            assert_string_equal(now, whole);
            free(now);
            by__gateway_request_free(request);
        } else {
            /* Of the parser's errors nothing says which is of memory. */
            if (status != BY_EMEMORY && strstr(error.message, "is not JSON") == NULL) {
                fail_msg("%s: allocation %zu: %s", r->route, k, error.message);
            }
            failed++;
        }
        if (!reached) {
            break;
        }
    }
    assert_true(failed > 10);
    free(whole);
}

static void test_read(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        check_read(&rows[i]);
    }
}

/* Gives a call what the worker has said. */
static void fill(by__gateway_request *request, const row *r)
{
    for (size_t i = 0; i < request->part_count; i++) {
        request->parts[i].prompt_tokens = 3;
        request->parts[i].generated = 2;
    }
    for (size_t i = 0; i < request->part_count * request->n; i++) {
        by__gateway_choice *c = &request->choices[i];
        by__string_append(&c->text, strstr(r->body, "\"auto\"") != NULL ? CALL : "an \"answer\"");
        (void)snprintf(c->reason, sizeof c->reason, "stop");
        c->logprobs = r->logprobs == NULL ? NULL : json_loads(r->logprobs, 0, NULL);
    }
    request->whole = r->whole == NULL ? NULL : json_loads(r->whole, 0, NULL);
}

typedef void printer(by__gateway_request *request, by_string *out);

static void print_answer(by__gateway_request *request, by_string *out)
{
    request->form->answer(request, out);
}

static void print_stream(by__gateway_request *request, by_string *out)
{
    const by__gateway_request_form *form = request->form;
    by_string_free(&request->head);
    request->frames = 0;
    if (form->first == NULL) {
        return;
    }
    for (size_t i = 0; i < request->part_count * request->n; i++) {
        request->choices[i].shown = 0;
        form->first(request, i, out);
        form->text(request, i, "piece", 5, request->choices[i].logprobs, out);
        form->stop(request, i, "stop", out);
    }
    form->end(request, out);
    (form->fail)(request, 500, "code", "param", "message", out);
}

/* What a response in the background is followed by. */
static void print_replay(by__gateway_request *request, by_string *out)
{
    request->frames = 0;
    request->choices[0].shown = 0;
    if (request->form == &by__openai_response_form) {
        by__openai_response_replay(request, "completed", json_null(), out);
    }
}

static void check_print(by__gateway_request *request, printer *print)
{
    by_string whole = {0};
    print(request, &whole);
    assert_false(whole.failed);
    size_t failed = 0;
    for (size_t k = 0;; k++) {
        by_string now = {0};
        left = k;
        print(request, &now);
        bool reached = left == NEVER;
        left = NEVER;
        failed += now.failed;
        if (!now.failed) {
            assert_string_equal(now.length == 0 ? "" : now.data,
                                whole.length == 0 ? "" : whole.data);
        }
        by_string_free(&now);
        if (!reached) {
            break;
        }
    }
    assert_true(failed > 0 || whole.length == 0);
    by_string_free(&whole);
}

static void test_answers(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by__gateway_request *request;
        by_error error = {0};
        assert_int_equal(read_row(&request, &rows[i], &error), BY_OK);
        fill(request, &rows[i]);
        check_print(request, print_answer);
        check_print(request, print_stream);
        check_print(request, print_replay);
        /* A text that lacks something is no answer. */
        by_string out = {0};
        request->choices[0].text.failed = true;
        request->form->answer(request, &out);
        assert_true(out.failed || request->whole != NULL);
        by_string_free(&out);
        by__gateway_request_free(request);
    }
}

/* What a task shows. */
static void test_task(void **state)
{
    BY_UNUSED(state);
    const by__gateway gateway = {.forms = by__gateway_forms};
    json_t *task =
        json_pack("{ss ss si si si sn s{ss ss ss si} s{s[{ss ss}] s{si si}} s{ss}}", "id", "task_1",
                  "status", "completed", "created_at", 1, "expires_at", 2, "attempts", 1, "error",
                  "task", "kind", "chat", "call", "chatcmpl-1", "model", "m", "created", 1,
                  "result", "choices", "text", "a", "reason", "stop", "usage", "prompt_tokens", 1,
                  "completion_tokens", 1, "hook", "status", "pending");
    assert_non_null(task);
    json_t *whole = by__task_view(&gateway, task);
    assert_true(json_is_object(json_object_get(whole, "result")));
    size_t failed = 0;
    for (size_t k = 0;; k++) {
        left = k;
        json_t *now = by__task_view(&gateway, task);
        bool reached = left == NEVER;
        left = NEVER;
        failed += now == NULL;
        if (now != NULL && !json_equal(now, whole)) {
            fail_msg("allocation %zu: %s", k, json_dumps(now, JSON_COMPACT));
        }
        json_decref(now);
        if (!reached) {
            break;
        }
    }
    assert_true(failed > 10);
    json_decref(whole);
    json_decref(task);
}

/* A content in parts, as templates know them. */
static json_t *level(const json_t *content)
{
    json_t *out;
    by_error error = {0};
    if (by__protocol_content_parts(&out, content, &error) == BY_OK) {
        return out;
    }
    assert_int_equal(error.status, BY_EMEMORY);
    return NULL;
}

static void test_parts(void **state)
{
    BY_UNUSED(state);
    static const char *const refused[] = {"[{\"type\":\"image_url\",\"image_url\":{}}]", "[1]",
                                          "[{\"text\":\"a\"}]",
                                          "[{\"type\":\"text\",\"text\":null}]"};
    by_error error = {0};
    json_t *content = json_pack("[{ss ss}{ss ss}]", "type", "input_text", "text", "a", "type",
                                "text", "text", "b");
    json_t *wanted =
        json_pack("[{ss ss}{ss ss}]", "type", "text", "text", "a", "type", "text", "text", "b");
    json_t *text;
    assert_int_equal(by__protocol_content_text(&text, content, &error), BY_OK);
    assert_string_equal(json_string_value(text), "a\nb");
    json_decref(text);
    bool reached = true;
    for (size_t k = 0; reached; k++) {
        left = k;
        json_t *now = level(content);
        reached = left == NEVER;
        left = NEVER;
        assert_true(now == NULL || json_equal(now, wanted));
        json_decref(now);
    }
    json_decref(wanted);
    json_decref(content);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        content = json_loads(refused[i], 0, NULL);
        assert_int_equal(by__protocol_content_text(&text, content, &error), BY_EARG);
        assert_int_equal(by__protocol_content_parts(&text, content, &error), BY_EARG);
        json_decref(content);
    }
}

/* The error of a model that is not served lists those that are, but not without end. */
static void test_no_model(void **state)
{
    BY_UNUSED(state);
    static const struct {
        int models;
        const char *end;
    } cases[] = {
        {0, "here; no model is"},
        {2, "here; served: 'model-000', 'model-001'"},
        {500, "'model-075' and 424 more, which GET /v1/models lists"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        json_t *list = json_array();
        by_string text = {0};
        for (int m = 0; m < cases[i].models; m++) {
            char name[24];
            (void)snprintf(name, sizeof name, "model-%03d", m);
            assert_int_equal(json_array_append_new(list, json_pack("{ss s{}}", "id", name, "info")),
                             0);
        }
        by__gateway g = {.state = json_pack("{so}", "models", list)};
        by__gateway_no_model_text(&g, "m\"", &text);
        size_t length = strlen(cases[i].end);
        if (strncmp(text.data, "the model 'm\"' is not served ", 29) != 0 || text.length < length ||
            strcmp(text.data + text.length - length, cases[i].end) != 0) {
            fail_msg("%s", text.data);
        }
        by_string_free(&text);
        json_decref(g.state);
    }
}

/* The result of a task, from its events. */
static json_t *gather(void)
{
    static const char *const events[] = {
        "{\"e\":\"text\",\"i\":0,\"text\":\"a\"}", "{\"e\":\"text\",\"i\":1,\"text\":\"b\"}",
        "{\"e\":\"text\",\"i\":0,\"text\":\"c\"}", "{\"e\":\"stop\",\"i\":1,\"reason\":\"length\"}",
        "{\"e\":\"end\",\"usage\":{\"prompt_tokens\":1}}"};
    by__protocol_gather *g = NULL;
    json_t *out = NULL;
    by_error error = {0};
    if (by__protocol_gather_open(&g, &error) != BY_OK) {
        return NULL;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(events); i++) {
        json_t *event = json_loadb(events[i], strlen(events[i]), 0, NULL);
        if (i + 1 < BY_ARRAY_LENGTH(events)) {
            by__protocol_gather_add(g, event);
        } else if (event != NULL) {
            out = by__protocol_gather_result(g, event);
        }
        json_decref(event);
    }
    by__protocol_gather_close(&g);
    return out;
}

static void test_gather(void **state)
{
    BY_UNUSED(state);
    json_t *whole = gather();
    size_t failed = 0;
    assert_int_equal(json_array_size(json_object_get(whole, "choices")), 2);
    for (size_t k = 0;; k++) {
        left = k;
        json_t *now = gather();
        bool reached = left == NEVER;
        left = NEVER;
        failed += now == NULL;
        assert_true(now == NULL || json_equal(now, whole));
        json_decref(now);
        if (!reached) {
            break;
        }
    }
    assert_true(failed > 5);
    json_decref(whole);
}

static void *json_malloc(size_t size)
{
    return __wrap_malloc(size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),     cmocka_unit_test(test_priority),
        cmocka_unit_test(test_answers),  cmocka_unit_test(test_task),
        cmocka_unit_test(test_gather),   cmocka_unit_test(test_parts),
        cmocka_unit_test(test_no_model),
    };
    json_set_alloc_funcs(json_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
