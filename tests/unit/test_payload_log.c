/* What is kept of requests: texts without addresses and numbers, fields that are dropped or hashed,
 * and files that stay within their bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/gateway/payload_log.h"
#include "serve/gateway/redact.h"
#include "serve/observe/append_log.h"
#include "temporary.h"

static void test_redaction(void **state)
{
    static const struct {
        const char *text;
        const char *kept;
    } cases[] = {
        {"", ""},
        {"nothing of it", "nothing of it"},
        {"mail ann.b+c@example.co.uk now", "mail <email> now"},
        {"<x@y.de>, a@b", "<<email>>, a@b"},
        {"@example.com and x@ and a@.b", "@example.com and x@ and a@.b"},
        {"end x@y.org.", "end <email>."},
        {"1234567@mail.com", "<email>"},
        {"call +49 (030) 123-45.67!", "call +<number>!"},
        {"card 4111 1111 1111 1111", "card <number>"},
        {"in 1914 and 1918, 3.14159", "in 1914 and 1918, 3.14159"},
        {"123456", "123456"},
        {"1234567", "<number>"},
        {"1    2345678", "1    <number>"},
        {"gr\xc3\xbc\xc3\x9f 12345678 \xe2\x82\xac", "gr\xc3\xbc\xc3\x9f <number> \xe2\x82\xac"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by__text out = {0};
        by__redact_text(&out, cases[i].text, strlen(cases[i].text));
        by__text_add(&out, "");
        assert_string_equal(out.data == NULL ? "" : out.data, cases[i].kept);
        by__text_free(&out);
    }
}

typedef struct heard {
    uint64_t upto;
    by_status status;
} heard;

static void on_done(void *user, uint64_t upto, by_status status, const by_error *error)
{
    (void)error;
    *(heard *)user = (heard){upto, status};
}

static size_t count_files(const char *folder, size_t *lines)
{
    char **names;
    size_t count;
    *lines = 0;
    assert_int_equal(by__list_dir(&names, &count, folder, NULL), BY_OK);
    for (size_t i = 0; i < count; i++) {
        char *path = by__path_join(folder, names[i]);
        char *text;
        size_t length;
        assert_int_equal(by__file_read(&text, &length, path, 1 << 20, NULL), BY_OK);
        for (size_t k = 0; k < length; k++) {
            *lines += text[k] == '\n';
        }
        assert_true(length == 0 || text[length - 1] == '\n');
        free(text);
        free(path);
    }
    by__names_free(names, count);
    return count;
}

static void test_rotation(void **state)
{
    char *folder = temporary_make();
    uv_loop_t loop;
    by__append_log *log;
    by_error error = {0};
    heard last = {0};
    const by__append_options options = {.directory = folder,
                                        .name = "x",
                                        .bytes = 1000,
                                        .files = 3,
                                        .sync = true,
                                        .done = on_done,
                                        .user = &last};
    size_t lines;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__append_log_open(&log, &loop, &options, &error), BY_OK);
    for (uint64_t i = 1; i <= 100; i++) {
        char line[101];
        memset(line, 'a', 99);
        line[99] = '\n';
        assert_int_equal(by__append_log_add(log, line, 100), i);
        while (last.upto < i) {
            (void)uv_run(&loop, UV_RUN_ONCE);
        }
        assert_int_equal(last.status, BY_OK);
    }
    assert_int_equal(count_files(folder, &lines), 3);
    assert_true(lines >= 20 && lines <= 30);
    /* What waits is written when it is closed; what no memory holds is refused. */
    char *much = calloc(1, (size_t)5 << 20);
    assert_int_equal(by__append_log_add(log, much, (size_t)5 << 20), 0);
    assert_int_equal(by__append_log_lost(log), 1);
    free(much);
    assert_int_equal(by__append_log_add(log, "last\n", 5), 101);
    by__append_log_close(&log);
    assert_int_equal(last.upto, 101);
    /* A new one goes on behind it, in a file of its own. */
    assert_int_equal(by__append_log_open(&log, &loop, &options, &error), BY_OK);
    by__append_log_close(&log);
    assert_int_equal(count_files(folder, &lines), 3);
    assert_int_equal(uv_loop_close(&loop), 0);
    temporary_remove(folder);
}

/* A file that was removed while it was open: the next line is in another, which can be read. */
static void test_removed_file(void **state)
{
    char *folder = temporary_make();
    char *path = by__path_join(folder, "x-000001.jsonl");
    uv_loop_t loop;
    by__append_log *log;
    const by__append_options options = {.directory = folder, .name = "x", .sync = true};
    size_t lines;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__append_log_open(&log, &loop, &options, NULL), BY_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(by__append_log_add(log, "kept\n", 5), 1);
    by__append_log_close(&log);
    assert_int_equal(count_files(folder, &lines), 1);
    assert_int_equal(lines, 1);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    free(path);
    temporary_remove(folder);
}

static void test_fields(void **state)
{
    char *folder = temporary_make();
    uv_loop_t loop;
    by__payload_log *log = NULL;
    by_error error = {0};
    char *drop[] = {"secret"};
    char *hash[] = {"user"};
    by_serve_payload_config config = {.directory = folder,
                                      .fraction = 0.5,
                                      .bytes = 1 << 20,
                                      .files = 2,
                                      .drop = {drop, 1},
                                      .hash = {hash, 1},
                                      .redact = 1};
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__payload_log_open(&log, &loop, &config, &error), BY_OK);
    size_t wanted = 0;
    for (int i = 0; i < 4000; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "cmpl-%d", i);
        wanted += by__payload_wants(log, id);
        assert_int_equal(by__payload_wants(log, id), by__payload_wants(log, id));
    }
    assert_true(wanted > 1850 && wanted < 2150);
    assert_false(by__payload_wants(NULL, "cmpl-1"));
    for (int i = 0; i < 2; i++) {
        by__payload_log_add(log, json_pack("{ss}", "id", "1234567890"),
                            json_pack("{s[{ss ss ss si}]}", "rows", "secret", "s", "user", "ann",
                                      "note", "a@b.de", "age", 12345678));
    }
    by__payload_log_close(&log);
    char *path = by__path_join(folder, "payload-000001.jsonl");
    char *text;
    size_t length;
    assert_int_equal(by__file_read(&text, &length, path, 1 << 20, &error), BY_OK);
    char *second = strchr(text, '\n') + 1;
    json_t *a = json_loadb(text, (size_t)(second - text), 0, NULL);
    json_t *b = json_loads(second, 0, NULL);
    const json_t *row = json_array_get(json_object_get(a, "rows"), 0);
    const char *user = json_string_value(json_object_get(row, "user"));
    assert_string_equal(json_string_value(json_object_get(a, "id")), "1234567890");
    assert_null(json_object_get(row, "secret"));
    assert_int_equal(strlen(user), 16);
    assert_string_equal(user, json_string_value(json_object_get(
                                  json_array_get(json_object_get(b, "rows"), 0), "user")));
    assert_string_equal(json_string_value(json_object_get(row, "note")), "<email>");
    assert_int_equal(json_integer_value(json_object_get(row, "age")), 12345678);
    json_decref(a);
    json_decref(b);
    free(text);
    free(path);
    assert_int_equal(uv_loop_close(&loop), 0);
    temporary_remove(folder);
}

/* The first record of a call with this request, as a log of this config keeps it. */
static json_t *record_of(const by_serve_payload_config *config, json_t *request)
{
    char *folder = temporary_make();
    char *path = by__path_join(folder, "payload-000001.jsonl");
    by_serve_payload_config own = *config;
    by__part part = {.message = json_pack("{so}", "request", request)};
    by__choice choice = {.reason = "stop"};
    by__call call = {.id = "cmpl-1",
                     .model = (char[]){"m"},
                     .part_count = 1,
                     .n = 1,
                     .parts = &part,
                     .choices = &choice};
    by__payload_log *log = NULL;
    uv_loop_t loop;
    char *text;
    size_t length;
    own.directory = folder;
    own.bytes = 1 << 20;
    own.files = 1;
    by__text_add(&choice.text, "said");
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__payload_log_open(&log, &loop, &own, NULL), BY_OK);
    by__payload_log_call(log, &call);
    by__payload_log_close(&log);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(by__file_read(&text, &length, path, 1 << 20, NULL), BY_OK);
    json_t *record = json_loadb(text, length, 0, NULL);
    assert_non_null(record);
    free(text);
    free(path);
    by__text_free(&choice.text);
    json_decref(part.message);
    temporary_remove(folder);
    return record;
}

/* What a field may not show, `text` does not show either; ids of tokens are text. */
static void test_text(void **state)
{
    static const struct {
        const char *drop;
        const char *hash;
        const char *prompt_text; /* NULL: none is kept */
        const char *chat_text;
    } cases[] = {
        {"none", "none", "<email> said", "hello\n<email>\nsaid"},
        {"prompt", "none", "said", "hello\n<email>\nsaid"},
        {"messages", "none", "<email> said", "said"},
        {"content", "none", "<email> said", "said"},
        {"completion", "none", "<email> ", "hello\n<email>\n"},
        {"none", "prompt", "said", "hello\n<email>\nsaid"},
        {"completion", "prompt", NULL, "hello\n<email>\n"},
        {"text", "none", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char drop[16], hash[16];
        char *drops[] = {strcpy(drop, cases[i].drop)};
        char *hashes[] = {strcpy(hash, cases[i].hash)};
        const by_serve_payload_config config = {
            .fraction = 1.0, .drop = {drops, 1}, .hash = {hashes, 1}, .redact = 1};
        json_t *requests[] = {json_pack("{ss}", "prompt", "a@b.de "),
                              json_pack("{s[{ss ss}{ss s[{ss ss}]}]}", "messages", "role", "system",
                                        "content", "hello", "role", "user", "content", "type",
                                        "text", "text", "a@b.de")};
        const char *texts[] = {cases[i].prompt_text, cases[i].chat_text};
        for (size_t k = 0; k < BY_ARRAY_LENGTH(requests); k++) {
            json_t *record = record_of(&config, requests[k]);
            const char *text = json_string_value(json_object_get(record, "text"));
            assert_int_equal(text == NULL, texts[k] == NULL);
            if (text != NULL) {
                assert_string_equal(text, texts[k]);
            }
            char *whole = json_dumps(record, 0);
            assert_null(strstr(whole, "a@b.de"));
            free(whole);
            json_decref(record);
        }
    }
    by_serve_payload_config config = {.fraction = 1.0, .redact = 1};
    for (int redact = 0; redact < 2; redact++) {
        config.redact = redact;
        json_t *record = record_of(&config, json_pack("{s[ii]}", "prompt", 11, 12));
        const json_t *prompt = json_object_get(record, "prompt");
        assert_int_equal(json_array_size(prompt), redact ? 0 : 2);
        assert_true(!redact || strcmp(json_string_value(prompt), "<tokens>") == 0);
        json_decref(record);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redaction),    cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_removed_file), cmocka_unit_test(test_fields),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
