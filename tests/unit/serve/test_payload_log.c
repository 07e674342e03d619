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

#include "gateway_run.h"
#include "serve/base/append_log.h"
#include "serve/gateway/core/payload_log.h"
#include "serve/gateway/core/redact.h"
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
        by_string out = {0};
        by__gateway_redact_text(&out, cases[i].text, strlen(cases[i].text));
        by__string_append(&out, "");
        assert_string_equal(out.data == NULL ? "" : out.data, cases[i].kept);
        by_string_free(&out);
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
    by__serve_append_log *log;
    by_error error = {0};
    heard last = {0};
    const by__serve_append_options options = {.directory = folder,
                                              .name = "x",
                                              .bytes = 1000,
                                              .files = 3,
                                              .sync = true,
                                              .done = on_done,
                                              .user = &last};
    size_t lines;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__serve_append_log_open(&log, &loop, &options, &error), BY_OK);
    for (uint64_t i = 1; i <= 100; i++) {
        char line[101];
        memset(line, 'a', 99);
        line[99] = '\n';
        assert_int_equal(by__serve_append_log_add(log, line, 100), i);
        while (last.upto < i) {
            (void)uv_run(&loop, UV_RUN_ONCE);
        }
        assert_int_equal(last.status, BY_OK);
    }
    assert_int_equal(count_files(folder, &lines), 3);
    assert_true(lines >= 20 && lines <= 30);
    /* What waits is written when it is closed; what no memory holds is refused. */
    char *much = calloc(1, (size_t)5 << 20);
    assert_int_equal(by__serve_append_log_add(log, much, (size_t)5 << 20), 0);
    assert_int_equal(by__serve_append_log_lost(log), 1);
    free(much);
    assert_int_equal(by__serve_append_log_add(log, "last\n", 5), 101);
    by__serve_append_log_close(&log);
    assert_int_equal(last.upto, 101);
    /* A new one goes on behind it, in a file of its own. */
    assert_int_equal(by__serve_append_log_open(&log, &loop, &options, &error), BY_OK);
    by__serve_append_log_close(&log);
    assert_int_equal(count_files(folder, &lines), 3);
    /* Starts without a line push no lines out. */
    for (size_t i = 0, kept = lines; i < 5; i++) {
        assert_int_equal(by__serve_append_log_open(&log, &loop, &options, &error), BY_OK);
        by__serve_append_log_close(&log);
        assert_int_equal(count_files(folder, &lines), 3);
        assert_int_equal(lines, kept);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
    temporary_remove(folder);
}

/* A file that was removed while it was open: the next line is in another, which can be read. */
static void test_removed_file(void **state)
{
    char *folder = temporary_make();
    char *path = by__path_join(folder, "x-000001.jsonl");
    uv_loop_t loop;
    by__serve_append_log *log;
    const by__serve_append_options options = {.directory = folder, .name = "x", .sync = true};
    size_t lines;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__serve_append_log_open(&log, &loop, &options, NULL), BY_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(by__serve_append_log_add(log, "kept\n", 5), 1);
    by__serve_append_log_close(&log);
    assert_int_equal(count_files(folder, &lines), 1);
    assert_int_equal(lines, 1);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    free(path);
    temporary_remove(folder);
}

/* A log and what it has said, beside others in the same folder. */
typedef struct sharer {
    by__serve_append_options options;
    by__serve_append_log *log;
    uv_loop_t *loop;
    heard last;
    uint64_t added;
} sharer;

static void share(sharer *s, const char *folder, uv_loop_t *loop)
{
    s->options = (by__serve_append_options){.directory = folder,
                                            .name = "x",
                                            .bytes = 10,
                                            .files = 3,
                                            .sync = true,
                                            .done = on_done,
                                            .user = &s->last};
    s->loop = loop;
    s->last = (heard){0};
    s->added = 0;
    assert_int_equal(by__serve_append_log_open(&s->log, loop, &s->options, NULL), BY_OK);
}

static void share_line(sharer *s, const char *line)
{
    s->added++;
    assert_int_equal(by__serve_append_log_add(s->log, line, strlen(line)), s->added);
    while (s->last.upto < s->added) {
        (void)uv_run(s->loop, UV_RUN_ONCE);
    }
    assert_int_equal(s->last.status, BY_OK);
}

static void assert_file(const char *folder, const char *name, const char *wanted)
{
    char *path = by__path_join(folder, name);
    char *text;
    size_t length;
    assert_int_equal(by__file_read(&text, &length, path, 1 << 20, NULL), BY_OK);
    assert_string_equal(text, wanted);
    free(text);
    free(path);
}

/* Two that share a folder write into no file of the other, and remove none that it writes. */
static void test_shared_folder(void **state)
{
    char *folder = temporary_make();
    char *first = by__path_join(folder, "x-000001.jsonl");
    uv_loop_t loop;
    sharer a;
    sharer b;
    size_t lines;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    share(&a, folder, &loop);
    share(&b, folder, &loop);
    share_line(&a, "a1\n");
    for (int i = 0; i < 5; i++) {
        share_line(&b, "b1 of this one\n");
    }
    share_line(&a, "a2\n");
    assert_file(folder, "x-000001.jsonl", "a1\na2\n");
    assert_file(folder, "x-000006.jsonl", "b1 of this one\n");
    assert_int_equal(count_files(folder, &lines), 4);
    /* Once it is closed it is as old as its number. */
    by__serve_append_log_close(&a.log);
    share_line(&b, "b2 of this one\n");
    assert_false(by__path_exists(first));
    assert_file(folder, "x-000007.jsonl", "b2 of this one\n");
    assert_int_equal(count_files(folder, &lines), 3);
    /* Starts without lines use two files in all, behind the one that has some. */
    share(&a, folder, &loop);
    for (int i = 0; i < 5; i++) {
        by__serve_append_log_close(&b.log);
        share(&b, folder, &loop);
        by__serve_append_log_close(&a.log);
        share(&a, folder, &loop);
    }
    assert_int_equal(count_files(folder, &lines), 3);
    assert_int_equal(lines, 1);
    by__serve_append_log_close(&a.log);
    by__serve_append_log_close(&b.log);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    free(first);
    temporary_remove(folder);
}

static void test_fields(void **state)
{
    char *folder = temporary_make();
    uv_loop_t loop;
    by__gateway_payload_log *log = NULL;
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
    assert_int_equal(by__gateway_payload_log_open(&log, &loop, &config, &error), BY_OK);
    size_t wanted = 0;
    for (int i = 0; i < 4000; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "cmpl-%d", i);
        wanted += by__gateway_payload_wants(log, id);
        assert_int_equal(by__gateway_payload_wants(log, id), by__gateway_payload_wants(log, id));
    }
    assert_true(wanted > 1850 && wanted < 2150);
    assert_false(by__gateway_payload_wants(NULL, "cmpl-1"));
    for (int i = 0; i < 2; i++) {
        by__gateway_payload_log_add(log, json_pack("{ss}", "id", "1234567890"),
                                    json_pack("{s[{ss ss ss si}]}", "rows", "secret", "s", "user",
                                              "ann", "note", "a@b.de", "age", 12345678));
    }
    by__gateway_payload_log_close(&log);
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

/* ---- when memory runs out ---- */

#define NEVER SIZE_MAX

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static _Atomic size_t left = NEVER; /* allocations before the one that fails */

/* Whether this allocation is the one. */
static bool fails(void)
{
    size_t now = left;
    if (now != NEVER) {
        left = now - 1; /* 0 becomes NEVER */
    }
    return now == 0;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return fails() ? NULL : __real_realloc(memory, size);
}

static void *json_malloc(size_t size)
{
    return fails() ? NULL : malloc(size);
}

/* A line that memory runs out for takes none of those that wait with it. */
static void test_waiting_lines(void **state)
{
    char *folder = temporary_make();
    char *much = calloc(1, 100000);
    uv_loop_t loop;
    by__serve_append_log *log;
    heard last = {0};
    size_t lines;
    const by__serve_append_options options = {
        .directory = folder, .name = "x", .done = on_done, .user = &last};
    (void)state;
    assert_non_null(much);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(by__serve_append_log_open(&log, &loop, &options, NULL), BY_OK);
    assert_int_equal(by__serve_append_log_add(log, "written\n", 8), 1);
    assert_int_equal(by__serve_append_log_add(log, "waiting\n", 8), 2);
    left = 0;
    assert_int_equal(by__serve_append_log_add(log, much, 100000), 0);
    assert_int_equal(left, NEVER);
    assert_int_equal(by__serve_append_log_add(log, "after\n", 6), 3);
    assert_int_equal(by__serve_append_log_lost(log), 1);
    by__serve_append_log_close(&log);
    assert_int_equal(last.upto, 3);
    assert_int_equal(last.status, BY_OK);
    assert_int_equal(count_files(folder, &lines), 1);
    assert_int_equal(lines, 3);
    assert_int_equal(uv_loop_close(&loop), 0);
    free(much);
    temporary_remove(folder);
}

/* A log in a folder, which records are read from. */
typedef struct kept {
    char *folder;
    uv_loop_t loop;
    by_serve_payload_config config;
    by__gateway_payload_log *log;
} kept;

static void keep(kept *k, const by_serve_payload_config *config)
{
    k->folder = temporary_make();
    k->config = *config;
    k->config.directory = k->folder;
    k->config.bytes = 1 << 20;
    k->config.files = 1;
    assert_int_equal(uv_loop_init(&k->loop), 0);
    assert_int_equal(by__gateway_payload_log_open(&k->log, &k->loop, &k->config, NULL), BY_OK);
}

/* Closes it; its lines, freed with free(). */
static char *lines_of(kept *k)
{
    char *path = by__path_join(k->folder, "payload-000001.jsonl");
    char *text;
    size_t length;
    by__gateway_payload_log_close(&k->log);
    assert_int_equal(uv_loop_close(&k->loop), 0);
    assert_int_equal(by__file_read(&text, &length, path, 1 << 20, NULL), BY_OK);
    free(path);
    temporary_remove(k->folder);
    return text;
}

/* Adds a call with this request, of which the allocation after `allocations` fails. Returns whether
 * that was reached. */
static bool add_call(by__gateway_payload_log *log, const json_t *request, size_t allocations)
{
    by__gateway_part part = {.message = json_pack("{sO}", "request", request)};
    by__gateway_choice choice = {.reason = "stop", .echo = strlen("a@b.de ")};
    by__gateway_request call = {.id = "cmpl-1",
                                .model = (char[]){"m"},
                                .part_count = 1,
                                .n = 1,
                                .parts = &part,
                                .choices = &choice};
    by__string_append(&choice.text, "a@b.de said");
    left = allocations;
    by__gateway_payload_log_request(log, &call);
    bool reached = left == NEVER && allocations != NEVER;
    left = NEVER;
    by_string_free(&choice.text);
    json_decref(part.message);
    return reached;
}

/* The record of a call with this request, as a log of this config keeps it. */
static json_t *record_of(const by_serve_payload_config *config, json_t *request)
{
    kept k;
    keep(&k, config);
    (void)add_call(k.log, request, NEVER);
    json_decref(request);
    char *text = lines_of(&k);
    json_t *record = json_loads(text, 0, NULL);
    assert_non_null(record);
    free(text);
    return record;
}

/* The fields that a log adds by itself are dropped and hashed like those of the request. */
static void test_head(void **state)
{
    char *drop[] = {"id", "time"};
    char *hash[] = {"model", "prompt"};
    const by_serve_payload_config config = {
        .fraction = 1.0, .drop = {drop, 2}, .hash = {hash, 2}, .redact = 1};
    (void)state;
    json_t *record = record_of(&config, json_pack("{ss}", "prompt", "hello"));
    assert_null(json_object_get(record, "id"));
    assert_null(json_object_get(record, "time"));
    assert_int_equal(json_string_length(json_object_get(record, "model")), 16);
    assert_int_equal(json_string_length(json_object_get(record, "prompt")), 16);
    assert_string_equal(json_string_value(json_object_get(record, "finish_reason")), "stop");
    json_decref(record);
}

/* A record is kept whole or not at all, and what was kept before it stays. */
static void test_no_memory(void **state)
{
    char *drop[] = {"secret"};
    char *hash[] = {"user"};
    const by_serve_payload_config config = {
        .fraction = 1.0, .drop = {drop, 1}, .hash = {hash, 1}, .redact = 1};
    json_t *request = json_pack("{s[{ss ss s[{ss ss}]}]}", "messages", "role", "user", "user",
                                "ann", "content", "type", "text", "text", "a@b.de");
    size_t lost = 0;
    kept k;
    (void)state;
    keep(&k, &config);
    for (size_t i = 0; add_call(k.log, request, i); i++) {
        lost++;
    }
    by_string counters = {0};
    by__gateway_payload_log_print(k.log, &counters);
    assert_non_null(strstr(counters.data, "banyan_payload_records_total 1\n"));
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "banyan_payload_lost_total %zu\n", lost);
    assert_non_null(strstr(counters.data, wanted));
    by_string_free(&counters);
    char *text = lines_of(&k);
    json_t *record = json_loads(text, 0, NULL); /* one line alone */
    assert_true(lost > 30);
    assert_int_equal(json_object_size(record), 9);
    json_decref(record);
    json_decref(request);
    free(text);
}

/* What a client says of an answer is kept whole too, if it hears so. */
static void test_feedback(void **state)
{
    static const char format[] =
        "POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n%s";
    static const char body[] =
        "{\"id\":\"a\",\"rating\":1,\"label\":\"cat\",\"model\":\"m\",\"comment\":\"c\"}";
    char *folder = temporary_make();
    char yaml[256], request[256], answer[1024];
    by_serve_config *config = NULL;
    by_error error = {0};
    gateway_run run;
    size_t stored = 0, refused = 0, lines = 0;
    (void)state;
    int n = snprintf(yaml, sizeof yaml, "feedback:\n  directory: %s\n", folder);
    assert_int_equal(by_serve_config_parse(&config, "serve.yaml", yaml, (size_t)n, &error), BY_OK);
    gateway_begin(&run, &(by_gateway_options){.config = config});
    /* A page of another site may send this type without being asked about it. */
    size_t length =
        (size_t)snprintf(request, sizeof request, format, "text/plain", sizeof body - 1, body);
    assert_int_equal(gateway_ask(&run, request, length, answer, sizeof answer), 415);
    length = (size_t)snprintf(request, sizeof request, format, "application/json", sizeof body - 1,
                              body);
    for (bool reached = true; reached;) {
        left = stored + refused;
        int status = gateway_ask(&run, request, length, answer, sizeof answer);
        reached = left == NEVER;
        left = NEVER;
        stored += status == 200;
        refused += status != 200;
    }
    gateway_end(&run);
    char *path = by__path_join(folder, "feedback-000001.jsonl");
    char *text;
    assert_int_equal(by__file_read(&text, &length, path, 1 << 20, NULL), BY_OK);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, lines++) {
        json_t *record = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_int_equal(json_object_size(record), 7);
        json_decref(record);
    }
    assert_true(stored > 0 && lines >= stored && refused > 20);
    free(text);
    free(path);
    by_serve_config_close(&config);
    temporary_remove(folder);
}

/* Files of feedback end at their size, and the newest of them stay. */
static void test_feedback_rotation(void **state)
{
    char *folder = temporary_make();
    char yaml[256], body[1024], request[1536], answer[1024];
    by_serve_config *config = NULL;
    by_error error = {0};
    gateway_run run;
    char **names;
    size_t count;
    (void)state;
    int n = snprintf(yaml, sizeof yaml, "feedback:\n  directory: %s\n  bytes: 4096\n  files: 2\n",
                     folder);
    assert_int_equal(by_serve_config_parse(&config, "serve.yaml", yaml, (size_t)n, &error), BY_OK);
    gateway_begin(&run, &(by_gateway_options){.config = config});
    for (int i = 0; i < 40; i++) {
        int length = snprintf(body, sizeof body,
                              "{\"id\":\"a-%d\",\"rating\":1,\"comment\":\"%0800d\"}", i, i);
        length = snprintf(request, sizeof request,
                          "POST /v1/feedback HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                          "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                          length, body);
        assert_int_equal(gateway_ask(&run, request, (size_t)length, answer, sizeof answer), 200);
    }
    gateway_end(&run);
    assert_int_equal(by__list_dir(&names, &count, folder, NULL), BY_OK);
    assert_int_equal(count, 2);
    bool last = false;
    for (size_t i = 0; i < count; i++) {
        char *path = by__path_join(folder, names[i]);
        char *text;
        size_t length;
        assert_int_equal(by__file_read(&text, &length, path, 1 << 20, NULL), BY_OK);
        assert_true(length > 0 && length < 4096 + 1024);
        assert_null(strstr(text, "\"a-1\""));
        last = last || strstr(text, "\"a-39\"") != NULL;
        free(text);
        free(path);
    }
    assert_true(last);
    by__names_free(names, count);
    by_serve_config_close(&config);
    temporary_remove(folder);
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
        cmocka_unit_test(test_redaction),     cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_removed_file),  cmocka_unit_test(test_fields),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_feedback),      cmocka_unit_test(test_feedback_rotation),
        cmocka_unit_test(test_waiting_lines), cmocka_unit_test(test_head),
        cmocka_unit_test(test_shared_folder),
    };
    json_set_alloc_funcs(json_malloc, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
