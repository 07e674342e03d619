/* Chat templates against golden texts made with Jinja (tests/parity/check_chat_templates.py
 * --golden), their files, and what hostile ones end in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/chat.h"
#include "base/base.h"
#include "temporary.h"

static const char hello[] = "[{\"role\":\"user\",\"content\":\"Hi\"}]";

static by_status render(const char *text, size_t text_length, const by_chat_request *request,
                        char **out, by_error *error)
{
    by_chat *chat;
    size_t length;
    by_status status = by_chat_parse(&chat, text, text_length, "t", error);
    if (status == BY_OK) {
        status = by_chat_render(chat, request, out, &length, error);
        by_chat_close(&chat);
    }
    return status;
}

static void check_case(const json_t *c)
{
    by_error error = {0};
    char *out = NULL;
    const json_t *template = json_array_get(c, 0);
    const json_t *expected = json_array_get(c, 5);
    char *messages = json_dumps(json_array_get(c, 1), 0);
    char *tools = json_dumps(json_array_get(c, 2), JSON_ENCODE_ANY);
    char *variables = json_dumps(json_array_get(c, 3), 0);
    by_chat_request request = {.messages = messages,
                               .messages_length = strlen(messages),
                               .tools = json_is_null(json_array_get(c, 2)) ? NULL : tools,
                               .tools_length = strlen(tools),
                               .variables = variables,
                               .variables_length = strlen(variables),
                               .add_generation_prompt = json_is_true(json_array_get(c, 4)),
                               .now = 1700000000};
    by_status status =
        render(json_string_value(template), json_string_length(template), &request, &out, &error);
    if (json_is_null(expected)) {
        if (status == BY_OK) {
            fail_msg("%s is not refused", json_string_value(template));
        }
        assert_true(status == BY_EARG || status == BY_EFORMAT);
        assert_non_null(strstr(error.message, "t:")); /* the line */
    } else if (status != BY_OK || strcmp(out, json_string_value(expected)) != 0) {
        fail_msg("%s\nof %s: %s\n\"%s\" instead of\n\"%s\"", json_string_value(template), messages,
                 error.message, out != NULL ? out : "", json_string_value(expected));
    }
    free(out);
    free(messages);
    free(tools);
    free(variables);
}

static void test_golden(void **state)
{
    BY_UNUSED(state);
    json_error_t problem;
    json_t *cases =
        json_load_file(BY_SOURCE_DIR "/tests/parity/golden/chat_cases.json", 0, &problem);
    assert_non_null(cases);
    assert_true(json_array_size(cases) > 300);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        check_case(json_array_get(cases, i));
    }
    json_decref(cases);
}

static void check_refused(const char *text, by_status wanted, const char *message)
{
    by_error error = {0};
    char *out = NULL;
    by_chat_request request = {.messages = hello, .messages_length = sizeof hello - 1};
    by_status status = render(text, strlen(text), &request, &out, &error);
    if (status != wanted || strstr(error.message, message) == NULL) {
        fail_msg("%.80s: status %d, %s", text, status, error.message);
    }
}

static void test_errors_name_line_and_construct(void **state)
{
    BY_UNUSED(state);
    check_refused("a\n{{ messages | nofilter }}", BY_EARG, "t:2: filter 'nofilter' is not known");
    check_refused("\n\n{% if 1 is notest %}{% endif %}", BY_EARG, "t:3: test 'notest'");
    check_refused("{{ x.y }}", BY_EARG, "'x' is undefined, so it has no 'y'");
    check_refused("{% for m in messages %}\n{{ raise_exception('no ' ~ m.role) }}{% endfor %}",
                  BY_EARG, "t:2: the template refuses the conversation: no user");
    check_refused("{% include 'x' %}", BY_EFORMAT,
                  "t:1: a block of this name is not supported at "
                  "'include'");
    check_refused("a\n{% if true %}", BY_EFORMAT, "expected {% endif %} at the end");
    check_refused("{{ 1", BY_EFORMAT, "t:1: an expression {{ is not ended");
    check_refused("{{ 'abc }}", BY_EFORMAT, "a string is not ended");
    check_refused("{{ $ }}", BY_EFORMAT, "byte 0x24");
    check_refused("{% break %}", BY_EFORMAT, "no loop");
    check_refused("{{ \"\".__class__.x }}", BY_EARG, "'__class__' is undefined");
    check_refused("{{ [].append(1) }}", BY_EARG, "'append' is undefined");
    check_refused("\xff", BY_EFORMAT, "UTF-8");
}

/* Whether a content may be a list of parts is in the template. */
static void test_templates_that_take_parts(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        bool takes;
    } cases[] = {
        {"{% for m in messages %}{{ m.content + ' ' }}{% endfor %}", false},
        {"{% for m in messages %}{% for t in m.tool_calls %}{{ m['content'] }}{% endfor %}"
         "{% endfor %}",
         false},
        {"{% for m in messages %}{% for l in m.content.split('\n') %}{{ l }}{% endfor %}"
         "{% endfor %}",
         false},
        {"{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
         true},
        {"{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}"
         "{% elif m.x %}{% else %}{% for p in m['content'] | selectattr('text') %}{{ p.text }}"
         "{% endfor %}{% endif %}{% endfor %}",
         true},
        {"{% for m in messages %}{% with n = 1, c = m.content %}{% for p in c %}{{ p.text }}"
         "{% endfor %}{% endwith %}{% endfor %}",
         true},
        {"{% for m in messages %}{% set c = m.content[1:] %}{% for p in c %}{{ p.text }}"
         "{% endfor %}{% endfor %}",
         true},
        {"{% macro show(content) %}{% for p in content %}{{ p.text }}{% endfor %}{% endmacro %}"
         "{{ show(messages[0].content) }}",
         true},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_chat *chat;
        by_error error = {0};
        assert_int_equal(by_chat_parse(&chat, cases[i].text, strlen(cases[i].text), "t", &error),
                         BY_OK);
        if (by_chat_accepts_parts(chat) != cases[i].takes) {
            fail_msg("%s", cases[i].text);
        }
        by_chat_close(&chat);
    }
}

/* Each of these would run or grow without end. */
static void test_hostile_templates(void **state)
{
    BY_UNUSED(state);
    static const char *const hostile[] = {
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ ['x'] * 1000000000 }}",
        "{%set n=namespace(s='x')%}{%for i in range(99999)%}{%set n.s=n.s~n.s%}{%endfor%}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{%set n=namespace(l=[])%}{%for i in range(99999)%}{%set n.l=[n.l]%}{%endfor%}{{n.l}}",
        "{%set n=namespace(l=0)%}{%for i in range(99)%}{%set n.l=[n.l,n.l]%}{%endfor%}{{n.l==n.l}}",
        "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
        "{{ ('a,' * 3000000).split(',') | join(',') }}",
        "{{ 2 ** 2 ** 2 ** 2 ** 2 ** 2 ** 2 }}",
        "{{ ('x\\n' * 1000000) | indent(100) }}",
        "{{ range(200000) | list | tojson(indent=100) }}",
        "{{ (range(200000) | list)[::-1] | sort | unique | list }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(hostile); i++) {
        check_refused(hostile[i], BY_EARG, "t:1: ");
    }
    /* Nesting in the text of a template. */
    static const char *const nests[][2] = {{"{{ (", "("},
                                           {"{{ [", "["},
                                           {"{{ not ", "not "},
                                           {"{{ - ", "- "},
                                           {"{{ x", ".a"},
                                           {"{{ x", "|trim"},
                                           {"{{ x", "()"},
                                           {"{{ 1", " + 1"},
                                           {"{{ {1:", "{1:"},
                                           {"{% if 1 %}", "{% if 1 %}"},
                                           {"{{ 1", " if 1 else 2"},
                                           {"{% set ((", "("}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(nests); i++) {
        by_string text = {0};
        by__string_append(&text, nests[i][0]);
        for (unsigned k = 0; k < 20000; k++) {
            by__string_append(&text, nests[i][1]);
        }
        by__string_append(&text, nests[i][0][1] == '{' ? " }}" : "");
        check_refused(text.data, BY_EFORMAT, "nested too deeply");
        by_string_free(&text);
    }
}

/* Calls as clients send them: templates get objects, whose numbers are as they were spelled. */
static void test_calls_as_text(void **state)
{
    static const char text[] =
        "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }};"
        "{% endfor %}{{ m.function_call.arguments.x is number }}{% endfor %}";
    static const char numbers[] = "{{ messages[0].n + 1 }} {{ messages[0].n | tojson }} "
                                  "{{ messages[0].n is integer }} {{ messages[0].n > 5 }} "
                                  "{{ messages[0].n | int }} {{ messages[0] }}";
    static const char calls[] =
        "[{\"tool_calls\":["
        "{\"function\":{\"arguments\":\"{\\\"a\\\": 1.10, \\\"b\\\":[1E400,7,"
        "18446744073709551616,\\\"\\\\u00e4\\\"]}\"}},"
        "{\"function\":{\"arguments\":\"{\\\"a\\\": \"}},"
        "{\"function\":{\"arguments\":\"[1]\"}},{\"function\":{\"arguments\":\" \"}},"
        "{\"function\":{\"arguments\":{\"a\":0.10}}}],"
        "\"function_call\":{\"arguments\":\"{\\\"x\\\":-0.0}\"}}]";
    static const char big[] = "[{\"n\": 18446744073709551616}]";
    by_error error = {0};
    char *out = NULL;
    by_chat_request request = {
        .messages = calls, .messages_length = sizeof calls - 1, .calls_as_text = true};
    BY_UNUSED(state);
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_OK);
    assert_string_equal(out, "{\"a\": 1.10, \"b\": [1E400, 7, 18446744073709551616, \"\xc3\xa4\"]};"
                             "\"{\\\"a\\\": \";\"[1]\";{};{\"a\": 0.1};True");
    free(out);
    request = (by_chat_request){.messages = big, .messages_length = sizeof big - 1};
    assert_int_equal(render(numbers, sizeof numbers - 1, &request, &out, &error), BY_OK);
    assert_string_equal(out, "1.8446744073709552e+19 18446744073709551616 True True 0 "
                             "{'n': 18446744073709551616}");
    free(out);
    request.variables = "{\"tools\": []}";
    request.variables_length = strlen(request.variables);
    assert_int_equal(render(numbers, sizeof numbers - 1, &request, &out, &error), BY_EARG);
    assert_non_null(strstr(error.message, "cannot be 'tools'"));
}

static void test_limits(void **state)
{
    BY_UNUSED(state);
    char *out = NULL;
    by_error error = {0};
    static const char text[] = "{% for i in range(100) %}abc{% endfor %}";
    by_chat_request request = {.messages = hello, .messages_length = sizeof hello - 1};
    request.limits.output = 300;
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_OK);
    assert_int_equal(strlen(out), 300);
    free(out);
    request.limits.output = 299;
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_EARG);
    assert_non_null(strstr(error.message, "longer than it may be"));
    request.limits = (by_chat_limits){.steps = 200};
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_EARG);
    assert_non_null(strstr(error.message, "more steps"));
    request.limits = (by_chat_limits){.memory = 10000};
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_EARG);
    assert_non_null(strstr(error.message, "more memory"));
    /* What compares and searches counts its bytes, so that none of these takes minutes. */
    static const char *const slow[] = {
        "{% set s = ('a'*1000)*6000 %}{% set p = ('a'*1000)*3000 ~ 'b' %}"
        "{% for i in range(60000) %}{{ s.find(p) }}{% endfor %}",
        "{% set s = ('a'*1000)*4000 %}{% for i in range(60000) %}"
        "{% if s is lower and s is lower %}{% endif %}{% endfor %}",
        "{% set s = ('a'*1000)*4000 ~ 'b' %}{% for i in range(60000) %}"
        "{{ ('b'*63).strip(s) }}{{ s.startswith(s) }}{{ s.removeprefix(s) }}{% endfor %}"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(slow); i++) {
        request.limits = (by_chat_limits){0};
        assert_int_equal(render(slow[i], strlen(slow[i]), &request, &out, &error), BY_EARG);
        assert_non_null(strstr(error.message, "more steps"));
    }
    request = (by_chat_request){.messages = "{", .messages_length = 1};
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_EFORMAT);
    request = (by_chat_request){.messages = "{}", .messages_length = 2};
    assert_int_equal(render(text, sizeof text - 1, &request, &out, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "messages"));
}

/* ---- files ---- */

static void write_file(const char *directory, const char *name, const char *text)
{
    char *path = by__path_join(directory, name);
    assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
    free(path);
}

static void check_text(const by_chat_source *source, const char *expected)
{
    by_chat *chat;
    char *out;
    size_t length;
    by_error error = {0};
    by_chat_request request = {.messages = hello, .messages_length = sizeof hello - 1};
    if (by_chat_open(&chat, source, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by_chat_render(chat, &request, &out, &length, &error), BY_OK);
    assert_string_equal(out, expected);
    free(out);
    by_chat_close(&chat);
}

static void test_files(void **state)
{
    BY_UNUSED(state);
    by_chat *chat = NULL;
    by_error error = {0};
    char *directory = temporary_make();
    by_chat_source source = {.directory = directory};
    assert_int_equal(by_chat_open(&chat, &source, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "has no chat template"));
    write_file(
        directory, "tokenizer_config.json",
        "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": null,"
        "\"model_max_length\": 1000000000000000019884624838656,"
        "\"chat_template\": \"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}\"}");
    check_text(&source, "<s>Hi</s>");
    assert_int_equal(by_chat_open(&chat, &source, &error), BY_OK);
    assert_string_equal(by_chat_special(chat, "eos_token"), "</s>");
    assert_null(by_chat_special(chat, "pad_token"));
    by_chat_close(&chat);
    write_file(directory, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"},"
               "{\"name\": \"tool_use\", \"template\": \"t\"}]}");
    check_text(&source, "d");
    source.name = "tool_use";
    check_text(&source, "t");
    source.name = "rag";
    assert_int_equal(by_chat_open(&chat, &source, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "named rag"));
    source.name = NULL;
    write_file(directory, "chat_template.jinja", "{{ messages[0].role }}\n");
    check_text(&source, "user");
    write_file(directory, "mine.jinja", "mine");
    source.file = by__path_join(directory, "mine.jinja");
    check_text(&source, "mine");
    free((char *)(uintptr_t)source.file);
    /* What fails in a template is told without the path, which a server's clients would see. */
    write_file(directory, "wrong.jinja", "\n{{ x.y }}");
    source.file = by__path_join(directory, "wrong.jinja");
    const by_chat_request request = {.messages = "[]", .messages_length = 2};
    char *text;
    size_t length;
    assert_int_equal(by_chat_open(&chat, &source, &error), BY_OK);
    assert_int_equal(by_chat_render(chat, &request, &text, &length, &error), BY_EARG);
    assert_int_equal(strncmp(error.message, "chat template:2: ", 17), 0);
    by_chat_close(&chat);
    free((char *)(uintptr_t)source.file);
    temporary_remove(directory);
}

static bool is_end(const char *directory, const by_tokenizer *tokenizer, int64_t id)
{
    int32_t ends[BY_END_TOKENS];
    size_t count;
    by_error error = {0};
    assert_int_equal(by_end_tokens(ends, &count, directory, tokenizer, &error), BY_OK);
    for (size_t i = 0; i < count; i++) {
        if (ends[i] == id) {
            return true;
        }
    }
    return false;
}

/* Ids that are none are refused by the name of their file and key, and what it says stays. */
static void check_bad_ids(const char *directory, const by_tokenizer *tokenizer)
{
    static const char *const bad[] = {
        "\"eos_token_id\": -5",   "\"eos_token_id\": \"5\"",   "\"eos_token_id\": true",
        "\"eos_token_id\": 5.5",  "\"eos_token_id\": [7, -1]", "\"eos_token_id\": [[7]]",
        "\"eos_token_id\": 1e99", "\"bos_token_id\": {}",      "\"bos_token_id\": -1",
    };
    char *path = by__path_join(directory, "generation_config.json");
    char *kept;
    size_t length;
    assert_int_equal(by__file_read(&kept, &length, path, 1 << 20, NULL), BY_OK);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        int32_t ends[BY_END_TOKENS];
        size_t count;
        char text[64];
        by_error error = {0};
        (void)snprintf(text, sizeof text, "{%s}", bad[i]);
        write_file(directory, "generation_config.json", text);
        assert_int_equal(by_end_tokens(ends, &count, directory, tokenizer, &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, "generation_config.json: \""));
        assert_non_null(strstr(error.message, i < 7 ? "eos_token_id\" is" : "bos_token_id\" is"));
    }
    write_file(directory, "generation_config.json", kept);
    free(kept);
    free(path);
}

/* One set of tokens ends what is generated, from all that a directory says of them. */
static void test_ends(void **state)
{
    BY_UNUSED(state);
    by_chat *chat;
    by_tokenizer *tokenizer;
    by_error error = {0};
    char *directory = temporary_make();
    by_chat_source source = {.directory = directory};
    static const char small[] = BY_SOURCE_DIR "/tests/parity/golden/tokenizer_added.json";
    assert_int_equal(by_tokenizer_open(&tokenizer, small, &error), BY_OK);
    const int64_t pad = by_tokenizer_token_id(tokenizer, "<pad>", 5);
    const int64_t mask = by_tokenizer_token_id(tokenizer, "<mask>", 6);
    assert_true(pad > 0 && mask > 0 && pad != mask);
    assert_true(is_end(directory, tokenizer, 0)); /* <|endoftext|> */
    assert_false(is_end(directory, tokenizer, pad));
    write_file(directory, "special_tokens_map.json", "{\"eos_token\": {\"content\": \"<pad>\"}}");
    assert_true(is_end(directory, tokenizer, pad));
    write_file(directory, "tokenizer_config.json", "\xef\xbb\xbf{\"eos_token\": \"<mask>\"}");
    assert_false(is_end(directory, tokenizer, pad));
    assert_true(is_end(directory, tokenizer, mask));
    write_file(directory, "tokenizer_config.json", "{\"eos_token\": {\"content\": \"<pad>\"}}");
    assert_true(is_end(directory, tokenizer, pad));
    write_file(directory, "config.json", "{\"eos_token_id\": 5}");
    assert_true(is_end(directory, tokenizer, 5));
    write_file(directory, "generation_config.json",
               "{\"eos_token_id\": [7, 9], \"max_length\": 1000000000000000019884624838656}");
    assert_true(is_end(directory, tokenizer, 7) && is_end(directory, tokenizer, 9));
    assert_false(is_end(directory, tokenizer, 5));
    assert_false(is_end(directory, tokenizer, 8));
    assert_false(is_end(directory, tokenizer, mask));
    check_bad_ids(directory, tokenizer);
    /* What the model cannot produce is left out, and is no error. */
    write_file(directory, "config.json", "{\"vocab_size\": 9, \"bos_token_id\": 50256}");
    write_file(directory, "generation_config.json", "{\"eos_token_id\": [7, 9, 4294967303]}");
    assert_true(is_end(directory, tokenizer, 7));
    assert_false(is_end(directory, tokenizer, 9));
    write_file(directory, "config.json", "{\"eos_token_id\": 5}");
    write_file(directory, "generation_config.json", "{\"eos_token_id\": [7, 9]}");
    write_file(directory, "chat_template.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }} <mask>\n{% endfor %}");
    assert_true(is_end(directory, tokenizer, mask));
    assert_int_equal(by_chat_open(&chat, &source, &error), BY_OK);
    assert_int_equal(by_chat_end(chat, tokenizer), mask);
    by_chat_close(&chat);
    assert_int_equal(by_chat_parse(&chat, "x", 1, "t", &error), BY_OK);
    assert_int_equal(by_chat_end(chat, tokenizer), -1);
    by_chat_close(&chat);
    write_file(directory, "chat_template.jinja", "{% if"); /* and one that is none says nothing */
    assert_false(is_end(directory, tokenizer, mask));
    assert_true(is_end(directory, tokenizer, pad));
    by_tokenizer_close(&tokenizer);
    temporary_remove(directory);
}

int main(void)
{
    /* strftime_now tells the time of this zone. */
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_errors_name_line_and_construct),
        cmocka_unit_test(test_templates_that_take_parts),
        cmocka_unit_test(test_hostile_templates),
        cmocka_unit_test(test_calls_as_text),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
