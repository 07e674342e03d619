/* What keys may use, by a clock that the test turns: buckets, debts, days, and the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/gateway/core/limits.h"
#include "temporary.h"

#define DAY 86400.0

static by__gateway_allowance left;

static by_serve_config *config_of(const char *text)
{
    by_serve_config *config = NULL;
    by_error error = {0};
    if (by_serve_config_parse(&config, "serve.yaml", text, strlen(text), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return config;
}

static by__gateway_limits *limits_of(const char *text, const by__gateway_keys *keys,
                                     const char *path)
{
    by_serve_config *config = config_of(text);
    by__gateway_limits *limits = NULL;
    by_error error = {0};
    if (by__gateway_limits_open(&limits, &config->limits, keys, path, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    by_serve_config_close(&config);
    return limits;
}

static void test_requests(void **state)
{
    by__gateway_limits *l = limits_of("limits: {requests_per_minute: 3}", NULL, NULL);
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(by__gateway_limits_charge(l, 0, 1, 0, 100.0, 0.0, &left) == 0.0);
        assert_int_equal((int)left.requests, 2 - i);
    }
    /* A third of a minute brings one. */
    assert_float_equal(by__gateway_limits_charge(l, 0, 1, 0, 100.0, 0.0, &left), 20.0, 1e-6);
    assert_string_equal(left.over, "requests");
    assert_float_equal(by__gateway_limits_charge(l, 0, 1, 0, 115.0, 0.0, &left), 5.0, 1e-6);
    assert_true(by__gateway_limits_charge(l, 0, 1, 0, 120.5, 0.0, &left) == 0.0);
    assert_null(left.over);
    /* No more than a minute's worth gathers. */
    assert_true(by__gateway_limits_charge(l, 0, 3, 0, 1e6, 0.0, &left) == 0.0);
    assert_true(by__gateway_limits_charge(l, 0, 1, 0, 1e6, 0.0, &left) > 0.0);
    /* Tokens have no limit here. */
    assert_true(by__gateway_limits_charge(l, 0, 0, 1e9, 1e6, 0.0, &left) == 0.0);
    by__gateway_limits_close(&l);
}

static void test_tokens(void **state)
{
    by__gateway_limits *l = limits_of("limits: {tokens_per_minute: 600}", NULL, NULL);
    (void)state;
    assert_true(by__gateway_limits_charge(l, 0, 0, 500, 10.0, 0.0, &left) == 0.0);
    assert_float_equal(by__gateway_limits_charge(l, 0, 0, 200, 10.0, 0.0, &left), 10.0, 1e-6);
    assert_string_equal(left.over, "tokens");
    /* What was not needed goes back, but no more than there was. */
    by__gateway_limits_settle(l, 0, 500, 50);
    assert_true(by__gateway_limits_charge(l, 0, 0, 200, 10.0, 0.0, &left) == 0.0);
    by__gateway_limits_settle(l, 0, 1e6, 0);
    assert_true(by__gateway_limits_charge(l, 0, 0, 600, 10.0, 0.0, &left) == 0.0);
    /* What was needed beyond the guess is a debt. */
    by__gateway_limits_settle(l, 0, 100, 700);
    assert_float_equal(by__gateway_limits_charge(l, 0, 0, 600, 10.0, 0.0, &left), 120.0, 1e-6);
    by__gateway_limits_settle(l, 0, 1e6, 0);
    assert_true(by__gateway_limits_charge(l, 0, 0, 600, 10.0, 0.0, &left) == 0.0);
    /* More than the bucket holds: when it is full, and the next one waits for the debt. */
    assert_float_equal(by__gateway_limits_charge(l, 0, 0, 1800, 10.0, 0.0, &left), 60.0, 1e-6);
    assert_true(by__gateway_limits_charge(l, 0, 0, 1800, 70.0, 0.0, &left) == 0.0);
    assert_true(left.tokens == 0.0);
    assert_float_equal(by__gateway_limits_charge(l, 0, 0, 600, 70.0, 0.0, &left), 180.0, 1e-6);
    by__gateway_limits_close(&l);
}

static void test_day(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "quota.json");
    static const char text[] = "limits: {tokens_per_day: 1000}";
    by__gateway_limits *l = limits_of(text, NULL, path);
    by__gateway_limits *broken = NULL;
    by_serve_config *config = config_of(text);
    by_error error = {0};
    (void)state;
    double noon = 20000.5 * DAY;
    assert_null(by__gateway_limits_print(l, 1.0, noon));
    assert_true(by__gateway_limits_charge(l, 0, 0, 900, 1.0, noon, &left) == 0.0);
    assert_float_equal(by__gateway_limits_charge(l, 0, 0, 200, 1.0, noon, &left), DAY / 2, 1e-3);
    assert_string_equal(left.over, "tokens_per_day");
    by__gateway_limits_settle(l, 0, 100, 0);
    char *printed = by__gateway_limits_print(l, 1.0, noon);
    assert_non_null(printed);
    assert_null(by__gateway_limits_print(l, 1.0, noon));
    assert_int_equal(by__file_write(path, printed, strlen(printed), NULL), BY_OK);
    by__gateway_limits_close(&l);
    /* A restart forgets nothing; a clock that goes back gives nothing. */
    l = limits_of(text, NULL, path);
    assert_true(by__gateway_limits_charge(l, 0, 0, 300, 1.0, noon, &left) > 0.0);
    assert_true(by__gateway_limits_charge(l, 0, 0, 300, 1.0, noon - DAY, &left) > 0.0);
    assert_true(by__gateway_limits_charge(l, 0, 0, 200, 1.0, noon, &left) == 0.0);
    assert_float_equal(left.today, 1000.0, 1e-9);
    assert_true(by__gateway_limits_charge(l, 0, 0, 300, 1.0, noon + DAY, &left) == 0.0);
    assert_float_equal(left.today, 300.0, 1e-9);
    by__gateway_limits_close(&l);
    /* A damaged file is told. */
    for (size_t i = 0; i < 3; i++) {
        static const char *const texts[] = {"", "{\"day\":1}", "{\"day\":1,\"used\":[]}"};
        assert_int_equal(by__file_write(path, texts[i], strlen(texts[i]), NULL), BY_OK);
        assert_int_equal(by__gateway_limits_open(&broken, &config->limits, NULL, path, &error),
                         BY_EFORMAT);
        assert_null(broken);
    }
    by_serve_config_close(&config);
    free(printed);
    free(path);
    temporary_remove(directory);
}

/* A clock that was days ahead for a while: what was used then counts for the day that it is, and
 * that day ends when it ends. */
static void test_future(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "quota.json");
    static const char text[] = "limits: {tokens_per_day: 1000}";
    by__gateway_limits *l = limits_of(text, NULL, path);
    double noon = 20000.5 * DAY;
    (void)state;
    assert_true(by__gateway_limits_charge(l, 0, 0, 100, 1.0, noon, &left) == 0.0);
    assert_true(by__gateway_limits_charge(l, 0, 0, 700, 2.0, noon + 30 * DAY, &left) == 0.0);
    char *printed = by__gateway_limits_print(l, 3.0, noon + 30 * DAY);
    assert_int_equal(by__file_write(path, printed, strlen(printed), NULL), BY_OK);
    free(printed);
    /* It is put right while the server runs, which the file tells at once, or while it does not. */
    for (int restart = 0; restart < 2; restart++) {
        if (restart) {
            by__gateway_limits_close(&l);
            l = limits_of(text, NULL, path);
        }
        printed = by__gateway_limits_print(l, 4.0, noon + 3.0);
        assert_non_null(printed);
        assert_string_equal(printed, "{\"day\":20000,\"used\":{\"\":700.0}}");
        free(printed);
        assert_float_equal(by__gateway_limits_charge(l, 0, 0, 400, 5.0, noon + 4.0, &left),
                           DAY / 2 - 4.0, 1e-3);
        assert_float_equal(left.today, 700.0, 1e-9);
    }
    /* The next day is a new one, by both clocks. */
    assert_true(
        by__gateway_limits_charge(l, 0, 0, 400, 4.0 + DAY / 2, noon + 3.0 + DAY / 2, &left) == 0.0);
    assert_float_equal(left.today, 400.0, 1e-9);
    by__gateway_limits_close(&l);
    free(path);
    temporary_remove(directory);
}

/* A file of key0, key1 and key2, with these names (NULL: without that key). */
static void write_keys(const char *path, const char *first, const char *second, const char *third)
{
    const char *names[] = {first, second, third};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 3; i++) {
        char hash[65];
        char key[16];
        (void)snprintf(key, sizeof key, "key%d", i);
        by__gateway_sha256_hex(hash, key);
        if (names[i] != NULL) {
            fprintf(file, "%s %s\n", hash, names[i]);
        }
    }
    fclose(file);
}

/* Keys of one name share an account, others have their own. */
static void test_accounts(void **state)
{
    char *directory = temporary_make();
    char *path = by__path_join(directory, "keys");
    by__gateway_keys *keys = NULL;
    (void)state;
    write_keys(path, "a", "b", "a");
    assert_int_equal(by__gateway_keys_open(&keys, path, NULL), BY_OK);
    by__gateway_limits *l = limits_of("limits:\n  requests_per_minute: 1\n"
                                      "  keys: [{name: b, requests_per_minute: 2}]",
                                      keys, NULL);
    size_t first = by__gateway_keys_find(keys, "key0")->account;
    size_t second = by__gateway_keys_find(keys, "key1")->account;
    assert_int_equal(by__gateway_keys_find(keys, "key2")->account, first);
    assert_int_not_equal(first, second);
    assert_int_not_equal(first, 0);
    assert_true(by__gateway_limits_charge(l, first, 1, 0, 1.0, 0.0, &left) == 0.0);
    assert_true(by__gateway_limits_charge(l, first, 1, 0, 1.0, 0.0, &left) > 0.0);
    assert_true(by__gateway_limits_charge(l, second, 2, 0, 1.0, 0.0, &left) == 0.0);
    assert_true(by__gateway_limits_charge(l, 0, 1, 0, 1.0, 0.0, &left) == 0.0);
    by__gateway_limits_close(&l);
    by__gateway_keys_close(&keys);
    free(path);
    temporary_remove(directory);
}

/* A file that takes the place of another one: who is in both goes on where it was. */
static void test_keys_again(void **state)
{
    static const char limits[] = "limits: {requests_per_minute: 1}";
    char *directory = temporary_make();
    char *path = by__path_join(directory, "keys");
    by__gateway_keys *keys = NULL;
    by__gateway_keys *again = NULL;
    (void)state;
    write_keys(path, "a tasks", "b", NULL);
    assert_int_equal(by__gateway_keys_open(&keys, path, NULL), BY_OK);
    by__gateway_limits *l = limits_of(limits, keys, NULL);
    const by__gateway_client *a = by__gateway_keys_find(keys, "key0");
    const by__gateway_client *b = by__gateway_keys_find(keys, "key1");
    size_t account = a->account;
    assert_true(by__gateway_limits_charge(l, b->account, 1, 0, 1.0, 0.0, &left) == 0.0);
    /* Another key of b, and c. */
    write_keys(path, "c", "c", "b");
    assert_int_equal(by__gateway_keys_open_again(&again, keys, path, NULL), BY_OK);
    by_serve_config *config = config_of(limits);
    assert_int_equal(by__gateway_limits_extend(l, &config->limits, again, NULL), BY_OK);
    by_serve_config_close(&config);
    by__gateway_keys_close(&keys);
    const by__gateway_client *c = by__gateway_keys_find(again, "key0");
    assert_string_equal(c->name, "c");
    assert_int_not_equal(c->account, account);
    assert_ptr_equal(by__gateway_keys_find(again, "key2"), b);
    assert_true(by__gateway_limits_charge(l, b->account, 1, 0, 1.0, 0.0, &left) > 0.0);
    assert_true(by__gateway_limits_charge(l, c->account, 1, 0, 1.0, 0.0, &left) == 0.0);
    assert_true(by__gateway_limits_charge(l, c->account, 1, 0, 1.0, 0.0, &left) > 0.0);
    assert_string_equal(a->name, "a"); /* a request may have it */
    /* A file that is wrong gives none, and takes none. */
    write_keys(path, "c", "no name", "b nothing");
    assert_int_equal(by__gateway_keys_open_again(&keys, again, path, NULL), BY_ECONFIG);
    assert_null(keys);
    assert_ptr_equal(by__gateway_keys_find(again, "key0"), c);
    by__gateway_limits_close(&l);
    by__gateway_keys_close(&again);
    free(path);
    temporary_remove(directory);
}

static void test_config(void **state)
{
    static const struct {
        const char *text;
        const char *message;
    } rows[] = {
        {"gateway:\n  listn: a", "serve.yaml:2: unknown key"},
        {"model:\n  kind: gpt2", "serve.yaml:1: unknown key"},
        {"worker:\n  count: 257", "serve.yaml:2:"},
        {"worker:\n  count: 0", "scaling.most must be at least worker.count"},
        {"worker: {count: 3}\nscaling: {most: 2}", "serve.yaml:2: scaling.most is 2"},
        {"scaling:\n  target_p95: 0", "serve.yaml:2:"},
        {"limits:\n  keys: [{requests_per_minute: 1}]", "serve.yaml:2:"},
        {"limits:\n  keys: [{name: a, requests: 1}]", "serve.yaml:2:"},
        {"\ngateway: {listen: 0.0.0.0:80}", "serve.yaml:2: gateway.listen 0.0.0.0:80 is reachable"},
        {"gateway: {keys: /nonexistent/keys}", "/nonexistent/keys"},
        {"limits:\n  keys: [{name: a}]",
         "serve.yaml:2: limits.keys names a, but gateway.keys, the file of the keys"},
        {"limits:\n  - {name: a}",
         "\"limits\" is a section; its keys follow below it, indented: the "
         "list is that of \"keys:\""},
        {"limits:\n  bob: {tokens_per_day: 5}",
         "serve.yaml:2: unknown key \"bob\" in section limits; is it one of the list \"keys\", as "
         "keys: [{name: bob"},
        {"models:\n  - path: a\n  - path: b\n    nam: x", "serve.yaml:4: unknown key \"nam\""},
        {"cors:\n  origins: [example.com]", "serve.yaml:2: cors.origins has example.com"},
        {"cors:\n  origins: [https://a/]", "serve.yaml:2: cors.origins has https://a/"},
        {"tracing:\n  endpoint: foo", "serve.yaml:2: tracing.endpoint is foo"},
        {"broker:\n  address: http://x", "serve.yaml:2: broker.address http://x: must be redis://"},
        {"broker:\n  address: redis://h:x", "serve.yaml:2: broker.address: "},
        {"worker:\n  precision: f64", "serve.yaml:2: worker.precision"},
        {"worker:\n  device: xpu", "serve.yaml:2: worker.device: there is no device 'xpu' in"},
        {"models:\n- {path: x, device: cpu:7}", "serve.yaml:1: models[0].device: device 'cpu:7'"},
        {"payload:\n  directory: /proc/nope", "serve.yaml:2: payload.directory /proc/nope: cannot"},
        {"feedback:\n  directory: /proc/nope",
         "serve.yaml:2: feedback.directory /proc/nope: cannot"},
        {"features:\n  store: redis://h\n  columns: [{column: a, feature: vx}]",
         "\"vx\" of column a is not VIEW:FEATURE"},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_serve_config *config = NULL;
        by_error error = {0};
        by_status status = by_serve_config_parse(&config, "serve.yaml", rows[i].text,
                                                 strlen(rows[i].text), &error);
        if (status == BY_OK) {
            status = by_serve_config_check(config, &error);
        }
        assert_int_not_equal(status, BY_OK);
        if (strstr(error.message, rows[i].message) == NULL) {
            fail_msg("row %zu: %s", i, error.message);
        }
        by_serve_config_close(&config);
    }
    by_serve_config *config = config_of("gateway: {listen: \"[::1]:80\", body: 1MiB}\n"
                                        "cors: {origins: [\"*\", http://localhost:3000]}\n"
                                        "scaling: {most: 8, total: 12, target_p95: 0.3, calm: 5}");
    assert_int_equal(by_serve_config_check(config, NULL), BY_OK);
    assert_int_equal(config->gateway.body, 1 << 20);
    assert_int_equal(config->cors.origins.count, 2);
    assert_int_equal(config->worker.count, 1);
    assert_int_equal(config->scaling.most, 8);
    assert_int_equal(config->scaling.total, 12);
    assert_true(config->scaling.target_p95 == 0.3 && config->scaling.idle == 60.0);
    /* What looks like a list in YAML is text in a flag. */
    by_error error = {0};
    assert_int_equal(by_serve_config_set(config, "gateway.listen", "[::1]:81", "--listen", &error),
                     BY_OK);
    assert_string_equal(config->gateway.listen, "[::1]:81");
    assert_int_equal(by_serve_config_set(config, "worker.threads", "-1", "--threads", &error),
                     BY_ECONFIG);
    assert_string_equal(error.message,
                        "--threads: worker.threads: \"-1\" is not a whole number from 0 to 4096");
    assert_int_equal(by_serve_config_set(config, "worker.thread", "1", "--threads", &error),
                     BY_EARG);
    by_serve_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_day),      cmocka_unit_test(test_future),
        cmocka_unit_test(test_accounts), cmocka_unit_test(test_keys_again),
        cmocka_unit_test(test_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
