/* Records of data sets as conversations, and what is learned of them, shown as [answer]. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/conversation.h"
#include "base/base.h"

/* "<" ROLE ">" CONTENT ";" */
static const char plain[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
                            "{% if add_generation_prompt %}<assistant>{% endif %}";
/* The same with marks. */
static const char marked[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
/* As Qwen3's: reasoning is written only behind the last question, and there also if it is empty. */
static const char thinks[] =
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.index0 > ns.last %}"
    "<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not "
    "enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";
/* As Phi-3's: the end of a text is behind the last message only. */
static const char ends[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}<|eot|>{% endif %}";
/* Writes something else before an answer than what asks for one. */
static const char strange[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                              "{% if add_generation_prompt %}<bot>{% endif %}";

static by_tokenizer *characters(void)
{
    by_tokenizer *out;
    by_error error = {0};
    char all[96];
    for (size_t i = 0; i < 95; i++) {
        all[i] = (char)(' ' + i);
    }
    all[95] = '\n';
    const by_text texts[] = {{all, sizeof all}, {"\xc3\xa9", 2}};
    if (by_tokenizer_char(&out, texts, 2, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return out;
}

static void add_token(by_string *text, const by_tokenizer *tokenizer, uint32_t id)
{
    const char *bytes;
    size_t length;
    assert_int_equal(by_tokenizer_token_bytes(tokenizer, id, &bytes, &length, NULL), BY_OK);
    by_string_add(text, bytes, length);
}

/* Encodes a record and writes its samples, separated by "|". */
static by_status encode(const char *template, const by_conversation_options *options,
                        const char *record, char out[512], by_conversation_result *result,
                        by_error *error)
{
    by_tokenizer *tokenizer = characters();
    by_conversation_encoder *e;
    by_chat *chat;
    by_string text = {0};
    assert_int_equal(by_chat_parse(&chat, template, strlen(template), "t", error), BY_OK);
    assert_int_equal(by_conversation_encoder_open(&e, chat, tokenizer, options, error), BY_OK);
    by_status status = by_conversation_encode(e, record, strlen(record), result, error);
    for (size_t i = 0; status == BY_OK && i < result->samples; i++) {
        by_conversation_sample s = by_conversation_encoder_sample(e, i);
        by_string_add(&text, "|", i > 0);
        for (size_t k = 0; k < s.count; k++) {
            by_string_add(&text, "[", s.learned[k] && (k == 0 || !s.learned[k - 1]));
            add_token(&text, tokenizer, s.ids[k]);
            by_string_add(&text, "]", s.learned[k] && (k + 1 == s.count || !s.learned[k + 1]));
        }
    }
    (void)snprintf(out, 512, "%s", text.data == NULL ? "" : text.data);
    by_string_free(&text);
    by_conversation_encoder_close(&e);
    by_chat_close(&chat);
    by_tokenizer_close(&tokenizer);
    return status;
}

static void expect(const char *template, const by_conversation_options *options, const char *record,
                   const char *expected)
{
    by_error error = {0};
    by_conversation_result result;
    char out[512];
    by_status status = encode(template, options, record, out, &result, &error);
    if (status != BY_OK || strcmp(out, expected) != 0) {
        fail_msg("%s\ngives %s%s\ninstead of %s", record, out, error.message, expected);
    }
}

static void refuse(const char *template, const by_conversation_options *options, const char *record,
                   const char *why)
{
    by_error error = {0};
    by_conversation_result result;
    char out[512];
    by_status status = encode(template, options, record, out, &result, &error);
    if (status == BY_OK || strstr(error.message, why) == NULL) {
        fail_msg("%s\ngives \"%s%s\" instead of \"%s\"", record, out, error.message, why);
    }
}

#define USER(text)      "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
/* A record of one, two or four messages. */
#define ONE(a)           "{\"messages\": [" a "]}"
#define TWO(a, b)        "{\"messages\": [" a ", " b "]}"
#define FOUR(a, b, c, d) "{\"messages\": [" a ", " b ", " c ", " d "]}"

static const by_conversation_options usual = {0};

static void test_forms(void **state)
{
    static const char *const records[] = {
        TWO(USER("a"), ASSISTANT("b")),
        "{\"id\": 3, \"conversations\": [{\"from\": \"human\", \"value\": \"a\"},"
        "{\"from\": \"gpt\", \"value\": \"b\"}]}",
        "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}",
        "{\"instruction\": \"a\", \"response\": \"b\"}",
        "{\"prompt\": \"a\", \"completion\": \"b\"}",
        "{\"prompt\": [" USER("a") "], \"completion\": [" ASSISTANT("b") "]}",
        "{\"question\": \"a\", \"answer\": \"b\"}",
        TWO("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}",
            ASSISTANT("b")),
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(records); i++) {
        expect(plain, &usual, records[i], "<user>a;<assistant>[b;]");
    }
    const by_conversation_options columns = {.question = "q", .answer = "a"};
    expect(plain, &columns, "{\"q\": \"1\", \"a\": \"2\"}", "<user>1;<assistant>[2;]");
    const by_conversation_options system = {.system = "s"};
    expect(plain, &system, records[0], "<system>s;<user>a;<assistant>[b;]");
    expect(plain, &usual,
           "{\"instruction\": \"a\", \"input\": \"i\", \"output\": \"b\", \"system\": \"s\", "
           "\"history\": [[\"x\", \"y\"]]}",
           "<system>s;<user>x;<assistant>[y;]<user>a\ni;<assistant>[b;]");
    expect("{% for m in messages %}{{ m.role }}{% for c in m.tool_calls %}({{ c.function.name }} "
           "{{ c.function.arguments | tojson }}){% endfor %}{{ m.content or '' }};{% endfor %}"
           "{{ 'assistant' if add_generation_prompt }}{{ tools | length }}",
           &(by_conversation_options){.learn = BY_LEARN_ALL},
           "{\"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\", \"conversations\": ["
           "{\"from\": \"function_call\", \"value\": "
           "\"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"x\\\": 1.50}}\"},"
           "{\"from\": \"observation\", \"value\": \"o\"}]}",
           "[assistant(f {\"x\": 1.5});tool"
           "o;1]");
}

/* The field "system" in every form. */
static void test_system(void **state)
{
    static const char *const records[] = {
        "{\"system\": \"s\", \"messages\": [" USER("a") ", " ASSISTANT("b") "]}",
        ("{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
         "\"value\": \"b\"}], \"system\": \"s\"}"),
        "{\"instruction\": \"a\", \"output\": \"b\", \"system\": \"s\"}",
        "{\"prompt\": \"a\", \"completion\": \"b\", \"system\": \"s\"}",
        "{\"question\": \"a\", \"answer\": \"b\", \"system\": \"s\"}",
    };
    const by_conversation_options other = {.system = "t"};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(records); i++) {
        expect(plain, &usual, records[i], "<system>s;<user>a;<assistant>[b;]");
        expect(plain, &other, records[i], "<system>s;<user>a;<assistant>[b;]");
    }
    expect(plain, &usual, "{\"prompt\": \"a\", \"completion\": \"b\", \"system\": \"\"}",
           "<user>a;<assistant>[b;]");
    refuse(plain, &usual,
           "{\"system\": \"s\", \"messages\": [{\"role\": \"system\", \"content\": \"t\"}, " USER(
               "a") ", " ASSISTANT("b") "]}",
           "there is a field \"system\", and the messages begin with a system message");
    refuse(plain, &usual, "{\"system\": 3, \"messages\": [" USER("a") ", " ASSISTANT("b") "]}",
           "\"system\" is not a text");
}

#define MUTE(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\", \"train\": false}"

/* Everything but messages that are marked: whoever they are by. */
static void test_excluded(void **state)
{
    /* Writes a system message into the first question, trimmed, and takes none alone. */
    static const char merged[] =
        "{% if messages[0].role == 'system' %}{% if messages | length == 1 %}"
        "{{ raise_exception('alone') }}{% endif %}{% set s = messages[0].content | trim %}"
        "{% set list = messages[1:] %}{% else %}{% set s = '' %}{% set list = messages %}"
        "{% endif %}{% for m in list %}<{{ m.role }}>{% if loop.first %}({{ s }}){% endif %}"
        "{{ m.content | trim }};{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    const by_conversation_options all = {.learn = BY_LEARN_ALL};
    (void)state;
    expect(plain, &all, FOUR(MUTE("user", "a"), ASSISTANT("b"), USER("c"), ASSISTANT("d")),
           "<user>a;[<assistant>b;<user>c;<assistant>d;]");
    expect(plain, &all, FOUR(USER("a"), ASSISTANT("b"), MUTE("user", "c"), ASSISTANT("d")),
           "[<user>a;<assistant>b;]<user>c;[<assistant>d;]");
    expect(marked, &all,
           FOUR("{\"role\": \"user\", \"content\": \"a\", \"weight\": 0}", MUTE("assistant", "b"),
                MUTE("user", ""), ASSISTANT("d")),
           "<user>a;[<assistant>]b;<user>;[<assistant>d;]");
    expect(ends, &all, FOUR(USER("a"), ASSISTANT("b"), MUTE("user", "X"), ASSISTANT("d")),
           "[<|user|>a<|end|><|assistant|>b<|end|><|user|>]X[<|end|><|assistant|>d<|end|><|eot|>]");
    expect(merged, &all, FOUR(MUTE("system", " X Y "), USER("c"), ASSISTANT("b"), USER("X Y")),
           "[<user>(]X Y[)c;<assistant>b;<user>X Y;]");
    expect(merged, &all, FOUR(MUTE("system", "s"), MUTE("user", " c"), ASSISTANT("b"), USER("c")),
           "[<user>(]s[)]c;[<assistant>b;<user>c;]");
    refuse(plain, &all, TWO(MUTE("user", "a"), MUTE("user", "b")), "nothing of the conversation");
}

static void test_roles(void **state)
{
    static const char named[] = "{% for m in messages %}{% if m.role == 'critic' %}!{% endif %}"
                                "<{{ m.role }}>{{ m.content }};{% endfor %}"
                                "{% if add_generation_prompt %}<assistant>{% endif %}";
    static const char critic[] = TWO("{\"role\": \"critic\", \"content\": \"a\"}", ASSISTANT("b"));
    const by_conversation_options all = {.learn = BY_LEARN_ALL};
    (void)state;
    refuse(
        plain, &usual,
        FOUR(USER("a"), "{\"role\": \"asistant\", \"content\": \"b\"}", USER("c"), ASSISTANT("d")),
        "message 1: the role \"asistant\" is none of system, developer, user, assistant, tool");
    refuse(plain, &all, critic, "message 0: the role \"critic\"");
    expect(named, &usual, critic, "!<critic>a;<assistant>[b;]");
    refuse(named, &usual, TWO("{\"role\": \"criti\", \"content\": \"a\"}", ASSISTANT("b")),
           "message 0: the role \"criti\"");
    expect(plain, &usual, TWO("{\"role\": \"developer\", \"content\": \"a\"}", ASSISTANT("b")),
           "<developer>a;<assistant>[b;]");
}

static void test_choice(void **state)
{
    static const char two[] = FOUR(USER("a"), ASSISTANT("b"), USER("c"), ASSISTANT("d"));
    static const char first[] =
        FOUR(USER("a"), "{\"role\": \"assistant\", \"content\": \"b\", \"train\": false}",
             USER("c"), ASSISTANT("d"));
    const by_conversation_options last = {.learn = BY_LEARN_LAST_TURN};
    const by_conversation_options all = {.learn = BY_LEARN_ALL};
    const char *const templates[] = {plain, marked};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        expect(templates[i], &usual, two, "<user>a;<assistant>[b;]<user>c;<assistant>[d;]");
        expect(templates[i], &last, two, "<user>a;<assistant>b;<user>c;<assistant>[d;]");
        expect(templates[i], &usual, first, "<user>a;<assistant>b;<user>c;<assistant>[d;]");
        expect(templates[i], &all, two, "[<user>a;<assistant>b;<user>c;<assistant>d;]");
        expect(templates[i], &all, first, "[<user>a;<assistant>]b;[<user>c;<assistant>d;]");
        expect(templates[i], &usual, TWO(USER("\xc3\xa9"), ASSISTANT("")),
               "<user>\xc3\xa9;<assistant>[;]");
    }
}

static void test_ends(void **state)
{
    (void)state;
    expect(
        ends, &usual, FOUR(USER("a"), ASSISTANT("b <"), USER("c"), ASSISTANT("d")),
        "<|user|>a<|end|><|assistant|>[b <<|end|>]<|user|>c<|end|><|assistant|>[d<|end|><|eot|>]");
}

static void test_thinking(void **state)
{
    const by_conversation_options off = {.variables = "{\"enable_thinking\": false}"};
    (void)state;
    expect(thinks, &usual, FOUR(USER("a"), ASSISTANT("b"), USER("c"), ASSISTANT("<d")),
           "<user>a;<assistant>[b;]<user>c;<assistant><think>\n\n</think>\n\n[<d;]");
    expect(thinks, &off, FOUR(USER("a"), ASSISTANT("<b"), USER("c"), ASSISTANT("d")),
           "<user>a;<assistant>[<b;]<user>c;<assistant><think>\n\n</think>\n\n[d;]");
    /* Reasoning that the template leaves out later is learned where it is last. */
    expect(thinks, &usual,
           FOUR(USER("a"),
                "{\"role\": \"assistant\", \"content\": \"b\", \"reasoning_content\": \"r\"}",
                USER("c"), ASSISTANT("d")),
           "<user>a;<assistant>[<think>\nr\n</think>\n\nb;]|"
           "<user>a;<assistant>b;<user>c;<assistant><think>\n\n</think>\n\n[d;]");
}

static void test_refusals(void **state)
{
    (void)state;
    refuse(plain, &usual, "{\"messages\": [", "column");
    refuse(plain, &usual, "[1]", "not a JSON object");
    refuse(plain, &usual, "{\"text\": \"a\"}", "it has \"text\"");
    refuse(plain, &usual, "{\"messages\": []}", "has no messages");
    refuse(plain, &usual, ONE("{\"content\": \"a\"}"), "messages[0].role is missing");
    refuse(plain, &usual, ONE(USER("a")), "nothing of the conversation is learned");
    refuse(plain, &usual,
           TWO(USER("a"), "{\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}"),
           "marked with \"train\": false");
    refuse(plain, &usual, ONE("{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}"),
           "part 0 of its content is no text");
    refuse(plain, &usual, "{\"conversations\": [{\"from\": \"cat\", \"value\": \"b\"}]}",
           "from \"cat\" is none of human");
    refuse(plain, &usual, "{\"instruction\": \"a\", \"output\": 3}", "\"output\" is not a text");
    refuse(plain, &usual, "{\"instruction\": \"a\"}", "\"output\" (or \"response\") is missing");
    refuse(plain, &usual, "{\"question\": \"a\", \"answer\": null}", "\"answer\" (null)");
    refuse(plain, &usual, TWO(USER("a"), "{\"role\": \"assistant\", \"content\": null}"),
           "messages[1].content is null, and it calls no function");
    refuse(plain, &usual, TWO(USER("a"), "{\"role\": \"assistant\", \"tool_calls\": \"f\"}"),
           "messages[1].tool_calls is not a list");
    refuse(plain, &usual, TWO(USER("a"), "{\"role\": \"assistant\", \"tool_calls\": [1]}"),
           "messages[1].tool_calls[0] is not an object");
    refuse(plain, &usual,
           TWO(USER("a"), "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "
                          "[{\"function\": {\"name\": \"f\"}}]}"),
           "message 1: the chat template does not write its \"tool_calls\"");
    refuse(strange, &usual, TWO(USER("a"), ASSISTANT("b")), "writes other text before");
    refuse("{{ raise_exception('no') }}", &usual, TWO(USER("a"), ASSISTANT("b")), "no");
}

static void test_long(void **state)
{
    static const char two[] = FOUR(USER("a"), ASSISTANT("b"), USER("c"), ASSISTANT("d"));
    by_conversation_options o = {.context = 40}; /* 42 tokens */
    by_conversation_result result;
    by_error error = {0};
    char out[512];
    (void)state;
    assert_int_equal(encode(plain, &o, two, out, &result, &error), BY_OK);
    assert_int_equal(result.samples, 0);
    assert_int_equal(result.long_ones, 1);
    assert_int_equal(result.lost, 4);
    o.longer = BY_LONG_CUT;
    expect(plain, &o, two, "<user>a;<assistant>[b;]");
    o.longer = BY_LONG_ERROR;
    refuse(plain, &o, two, "42 tokens, more than the 41");
    o.context = 41;
    expect(plain, &o, two, "<user>a;<assistant>[b;]<user>c;<assistant>[d;]");
}

#define PAIR(before, chosen, rejected)                                                             \
    "{" before "\"chosen\": " chosen ", \"rejected\": " rejected "}"
#define LIST(...) "[" __VA_ARGS__ "]"

static void test_preferences(void **state)
{
    BY_UNUSED(state);
    by_conversation_options o = {.form = BY_CONVERSATION_PREFERENCE};
    /* The prompt is not learned, whatever it has; nor is what whole conversations begin with. */
    expect(plain, &o, PAIR("\"prompt\": \"a\", ", "\"b\"", "\"c\""),
           "<user>a;<assistant>[b;]|<user>a;<assistant>[c;]");
    expect(marked, &o,
           PAIR("\"prompt\": " LIST(USER("a") "," ASSISTANT("b") "," USER("c")) ", ",
                LIST(ASSISTANT("d")), LIST(ASSISTANT("e"))),
           "<user>a;<assistant>b;<user>c;<assistant>[d;]|"
           "<user>a;<assistant>b;<user>c;<assistant>[e;]");
    expect(plain, &o,
           PAIR("", LIST(USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("d")),
                LIST(USER("a") "," ASSISTANT("b") "," USER("c") "," ASSISTANT("e"))),
           "<user>a;<assistant>b;<user>c;<assistant>[d;]|"
           "<user>a;<assistant>b;<user>c;<assistant>[e;]");
    /* A prompt beside whole conversations is part of them (UltraFeedback); dialogues in one text
     * (HH-RLHF); a text that is a list; a system message and a question. */
    expect(plain, &o,
           PAIR("\"prompt\": \"a\", ", LIST(USER("a") "," ASSISTANT("b")),
                LIST(USER("a") "," ASSISTANT("c"))),
           "<user>a;<assistant>[b;]|<user>a;<assistant>[c;]");
    expect(plain, &o,
           PAIR("", "\"\\n\\nHuman: a\\n\\nAssistant: b \\n\\nHuman: c\\n\\nAssistant: d\"",
                "\"\\n\\nHuman: a\\n\\nAssistant: e\""),
           "<user>a;<assistant>[b;]<user>c;<assistant>[d;]|<user>a;<assistant>[e;]");
    expect(plain, &o,
           PAIR("\"prompt\": \"a\", ",
                "\"[{\\\"role\\\": \\\"assistant\\\", \\\"content\\\": "
                "\\\"b\\\"}]\"",
                "\"c\""),
           "<user>a;<assistant>[b;]|<user>a;<assistant>[c;]");
    expect(plain, &o, PAIR("\"system\": \"s\", \"question\": \"a\", ", "\"b\"", "\"c\""),
           "<system>s;<user>a;<assistant>[b;]|<system>s;<user>a;<assistant>[c;]");
    o.learn = BY_LEARN_LAST_TURN;
    expect(
        plain, &o,
        PAIR("\"prompt\": \"a\", ", LIST(ASSISTANT("b") "," USER("c") "," ASSISTANT("d")), "\"e\""),
        "<user>a;<assistant>b;<user>c;<assistant>[d;]|<user>a;<assistant>[e;]");
    /* What is too long leaves its pair out. */
    o = (by_conversation_options){.form = BY_CONVERSATION_PREFERENCE, .context = 20};
    by_conversation_result result;
    by_error error = {0};
    char out[512];
    assert_int_equal(
        encode(plain, &o, PAIR("\"prompt\": \"a\", ", "\"b\"", "\"ccccc\""), out, &result, &error),
        BY_OK);
    assert_int_equal(result.samples, 0);
    assert_int_equal(result.long_ones, 1);
    o.context = 0;
    refuse(plain, &o, "{\"prompt\": \"a\", \"chosen\": \"b\"}", "\"rejected\" is missing");
    refuse(plain, &o, PAIR("", "\"b\"", "\"c\""), "there is no prompt");
    refuse(plain, &o, PAIR("", LIST(ASSISTANT("b")), LIST(ASSISTANT("c"))), "begin with an answer");
    refuse(plain, &o, PAIR("\"prompt\": \"a\", ", "\"b\"", "\"b\""), "are the same");
    refuse(plain, &o, PAIR("\"prompt\": \"a\", ", "3", "\"b\""), "neither a text nor a list");
    refuse(plain, &o, PAIR("\"prompt\": \"a\", ", LIST(USER("a") "," ASSISTANT("b")), "\"c\""),
           "give both alike");
    refuse(plain, &o, PAIR("\"prompt\": \"a\", ", "[{\"role\": \"assistant\"}]", "\"c\""),
           "chosen: messages[1].content is missing");
    refuse(plain, &o, PAIR("", LIST(USER("a") "," ASSISTANT("b")), LIST(USER("a"))),
           "it has no answer");
}

/* What stands beside whole conversations. */
static void test_whole(void **state)
{
    static const char asked[] =
        "<system>s;<user>a;<assistant>[b;]|<system>s;<user>a;<assistant>[c;]";
    const by_conversation_options o = {.form = BY_CONVERSATION_PREFERENCE};
#define SYSTEM      "{\"role\": \"system\", \"content\": \"s\"}"
#define WHOLE(last) LIST(USER("a") "," ASSISTANT(last))
#define LED(last)   LIST(SYSTEM "," USER("a") "," ASSISTANT(last))
    BY_UNUSED(state);
    expect(plain, &o, PAIR("\"system\": \"s\", ", WHOLE("b"), WHOLE("c")), asked);
    expect(plain, &o, PAIR("\"prompt\": \"Q: a \", ", LED("b"), LED("c")), asked);
    expect(plain, &o, PAIR("\"prompt\": " LIST(USER("a")) ", ", LED("b"), LED("c")), asked);
    expect(plain, &o, PAIR("\"prompt\": " LIST(SYSTEM "," USER("a")) ", ", LED("b"), LED("c")),
           asked);
    refuse(plain, &o, PAIR("\"system\": \"s\", ", LED("b"), LED("c")), "give one of them");
    refuse(plain, &o, PAIR("\"system\": \"s\", ", WHOLE("b"), LED("c")), "give one of them");
    refuse(plain, &o, PAIR("\"system\": 1, ", WHOLE("b"), WHOLE("c")), "\"system\" is not a text");
    refuse(
        plain, &o,
        PAIR("\"system\": \"s\", \"prompt\": " LIST(SYSTEM "," USER("a")) ", ", "\"b\"", "\"c\""),
        "give one of them");
    refuse(plain, &o, PAIR("\"prompt\": \"OTHER\", ", WHOLE("b"), WHOLE("c")),
           "do not have what \"prompt\" asks");
    refuse(plain, &o, PAIR("\"prompt\": " LIST(USER("q")) ", ", WHOLE("b"), WHOLE("c")),
           "do not have what \"prompt\" asks");
    refuse(plain, &o, PAIR("\"prompt\": " LIST(SYSTEM "," USER("a")) ", ", WHOLE("b"), WHOLE("c")),
           "do not have what \"prompt\" asks");
    refuse(plain, &o, PAIR("\"prompt\": 3, ", WHOLE("b"), WHOLE("c")),
           "do not have what \"prompt\" asks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),       cmocka_unit_test(test_choice),
        cmocka_unit_test(test_thinking),    cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_preferences), cmocka_unit_test(test_whole),
        cmocka_unit_test(test_system),      cmocka_unit_test(test_excluded),
        cmocka_unit_test(test_roles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
