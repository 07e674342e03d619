/* What an assistant writes: configs beside a user's file, and reports in two formats.
 * tests/e2e/test_assistant.sh makes one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "assistant/assistant.h"
#include "runner.h"
#include "temporary.h"

static void write_file(const char *path, const char *text)
{
    by_error error = {0};
    check_ok(by__file_write(path, text, strlen(text), &error), &error);
}

/* ---- configs ---- */

static void settings_are_sections_beside_a_file(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__assistant_settings s;
    by_config *config;
    char *yaml;
    char path[] = "text \"a\"\\b.txt";
    char *paths[] = {path};
    const by_string_list list = {paths, 1};
    write_file("user.yaml", "name: theirs\ntrain: {steps: 7}\nchat: {long: skip}\n");
    check_ok(by__assistant_settings_open(&s, "user.yaml", "chat", &error), &error);
    assert_true(by__assistant_settings_given(&s, "train.steps"));
    assert_false(by__assistant_settings_given(&s, "train.batch"));
    by__assistant_settings_fix(&s, "name", "mine");
    by__assistant_settings_fix(&s, "task.kind", "chat");
    by__assistant_settings_fix_list(&s, "data.text", &list);
    by__assistant_settings_add(&s, "train.steps", "%d", 100);
    by__assistant_settings_add(&s, "train.batch", "%d", 8);
    by__assistant_settings_add(&s, "data.valid_fraction", "0.5");
    by__assistant_settings_fix(&s, "chat.system", "one\ntwo\tthree");
    check_ok(by__assistant_settings_print(&yaml, &s, &error), &error);
    check_ok(by_config_parse(&config, "part", yaml, strlen(yaml), NULL, 0, &error), &error);
    assert_string_equal(config->name, "mine");
    assert_string_equal(config->data.text.items[0], path);
    assert_int_equal(config->train.steps, 7);
    assert_int_equal(config->train.batch, 8);
    assert_true(config->data.valid_fraction == 0.5);
    assert_non_null(
        strstr(yaml, "data: {text: [\"text \\\"a\\\"\\\\b.txt\"], valid_fraction: 0.5}"));
    assert_non_null(strstr(yaml, "system: \"one\\ntwo\\u0009three\""));
    by_config_close(&config);
    by__assistant_settings_free(&s);
    free(yaml);
}

static void a_config_is_checked(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_assistant_config *config;
    write_file("assistant.yaml", "text: a.txt\nconversations: [b.jsonl, c.json]\nminutes: 3\n"
                                 "chat: {minutes: 2}\npreferences: d.json\n");
    check_ok(by_assistant_config_open(&config, "assistant.yaml", &error), &error);
    assert_int_equal(config->text.count, 1);
    assert_int_equal(config->conversations.count, 2);
    assert_int_equal(config->preferences.count, 1);
    assert_true(config->minutes == 3.0 && config->chat.minutes == 2.0);
    assert_true(config->pretrain.minutes == -1.0 && config->watts == 0.0);
    assert_string_equal(config->reward, "auto");
    by_assistant_config_close(&config);
    write_file("assistant.yaml", "text: a.txt\n");
    check_error(by_assistant_config_open(&config, "assistant.yaml", &error), BY_ECONFIG, &error,
                "assistant.yaml: conversations is missing");
    write_file("assistant.yaml", "text: a.txt\nconversations: b\nminutes: 0\n");
    check_error(by_assistant_config_open(&config, "assistant.yaml", &error), BY_ECONFIG, &error,
                "minutes");
    assert_null(config);
}

static void rewards_are_those_of_the_answers(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *record;
        char reward[8];
        const char *line;
    } cases[] = {
        {"{\"question\": \"q\", \"answer\": \"1 + 1 = 2\\n#### 2\"}\n", "auto", "reward: number"},
        {"{\"question\": \"q\", \"answer\": \"2\"}\n", "auto", "reward: exact"},
        {"{\"question\": \"q\", \"answer\": \"#### 2\"}\n", "length", "reward: length"},
        {"a line of text\n", "auto", "reward: exact"}};
    const by__assistant_row *row = &by__assistant_rows[BY__ASSISTANT_PARTS - 1];
    write_file("learn.yaml", "data: {prompt_form: \"{prompt}\"}\ntask: {max_tokens: 9}\n");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        char file[] = "problems.jsonl";
        char *files[] = {file};
        char reward[sizeof cases[i].reward];
        memcpy(reward, cases[i].reward, sizeof reward);
        const by_assistant_config config = {.prompts = {files, 1}, .reward = reward};
        by__assistant_settings s;
        char *yaml;
        write_file(file, cases[i].record);
        check_ok(by__assistant_settings_open(&s, "learn.yaml", row->kind, &error), &error);
        check_ok(row->set(&s, &config, "tuned", &error), &error);
        check_ok(by__assistant_settings_print(&yaml, &s, &error), &error);
        assert_non_null(strstr(yaml, cases[i].line));
        assert_int_equal(strstr(yaml, "prompt_field: question") != NULL,
                         strstr(cases[i].record, "question") != NULL);
        by__assistant_settings_free(&s);
        free(yaml);
    }
}

/* ---- reports ---- */

static void report_with(by_string *out, const by__assistant_format *format)
{
    by__assistant_table table = {.columns = 2};
    by__assistant_table_add(&table, "a|b");
    by__assistant_table_add(&table, "<c>");
    by__assistant_table_add(&table, "%d", 1);
    by__assistant_table_add(&table, "*x*\ny");
    format->begin(out, "T & U");
    format->table(out, &table);
    format->code(out, "one\n<script>``` \xff");
    format->picture(out, ".", "p.svg", "what");
    format->end(out);
    by__assistant_table_free(&table);
}

static void reports_escape_what_models_write(void **state)
{
    BY_UNUSED(state);
    by_string markdown = {0};
    by_string html = {0};
    write_file("p.svg", "<?xml version=\"1.0\"?>\n<svg><g/></svg>\n");
    report_with(&markdown, &by__assistant_markdown);
    report_with(&html, &by__assistant_html);
    assert_string_equal(markdown.data, "# T \\& U\n\n"
                                       "| a\\|b | \\<c\\> |\n|---|---|\n| 1 | \\*x\\* y |\n\n"
                                       "    one\n    <script>``` \xef\xbf\xbd\n\n"
                                       "![what](p.svg)\n");
    assert_non_null(strstr(html.data, "<h1>T &amp; U</h1>"));
    assert_non_null(strstr(html.data, "<th>a|b</th>\n<th>&lt;c&gt;</th>\n</tr>\n<tr>\n<td>1</td>"));
    assert_non_null(strstr(html.data, "<pre>one\n&lt;script&gt;``` \xef\xbf\xbd</pre>"));
    assert_non_null(strstr(html.data, "<figure>\n<svg><g/></svg>\n<figcaption>what</figcaption>"));
    assert_null(strstr(html.data, "<script"));
    by_string_free(&markdown);
    by_string_free(&html);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_sections_beside_a_file),
        cmocka_unit_test(a_config_is_checked),
        cmocka_unit_test(rewards_are_those_of_the_answers),
        cmocka_unit_test(reports_escape_what_models_write),
    };
    char *directory = temporary_make();
    if (directory == NULL || chdir(directory) != 0) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temporary_remove(directory);
    return failed;
}
