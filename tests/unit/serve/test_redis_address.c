/* Addresses of Redis servers: what is read, and what is refused, without a
 * password in the message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/link/core/redis_address.h"
#include "temporary.h"

static void test_whole(void **state)
{
    by__link_redis_address a;
    by_error error = {0};
    (void)state;
    assert_int_equal(
        by__link_redis_address_read(
            &a,
            "redis://me:p%40:s%2fs@[::1]:7000/3?queue=10&"
            "queue_tokens=99&stored=5&stored_bytes=4096&wait=0.25&silence=1.5&hang=7&attempts=2",
            &error),
        BY_OK);
    assert_string_equal(a.host, "::1");
    assert_string_equal(a.user, "me");
    assert_string_equal(a.password, "p@:s/s");
    assert_int_equal(a.port, 7000);
    assert_int_equal(a.database, 3);
    assert_int_equal(a.queue, 10);
    assert_int_equal(a.queue_tokens, 99);
    assert_int_equal(a.stored, 5);
    assert_int_equal(a.stored_bytes, 4096);
    assert_true(a.silence == 1.5 && a.hang == 7.0 && a.wait == 0.25);
    assert_int_equal(a.attempts, 2);
}

static void test_defaults(void **state)
{
    by__link_redis_address a;
    by_error error = {0};
    (void)state;
    assert_int_equal(setenv("REDISCLI_AUTH", "of the environment", 1), 0);
    assert_int_equal(unsetenv("BANYAN_REDIS_PASSWORD"), 0);
    assert_int_equal(by__link_redis_address_read(&a, "redis://redis.example", &error), BY_OK);
    assert_string_equal(a.host, "redis.example");
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "");
    assert_int_equal(by__link_redis_address_login(&a, by__link_redis_broker_login, &error), BY_OK);
    assert_string_equal(a.password, "of the environment");
    assert_int_equal(setenv("BANYAN_REDIS_PASSWORD", "of its own", 1), 0);
    a.password[0] = '\0';
    assert_int_equal(by__link_redis_address_login(&a, by__link_redis_broker_login, &error), BY_OK);
    assert_string_equal(a.password, "of its own");
    assert_int_equal(a.port, 6379);
    assert_int_equal(a.database, 0);
    assert_int_equal(a.queue, 1024);
    assert_int_equal(by__link_redis_address_read(&a, "redis://:own@h:1/", &error), BY_OK);
    assert_int_equal(by__link_redis_address_login(&a, by__link_redis_broker_login, &error), BY_OK);
    assert_string_equal(a.password, "own");
    assert_int_equal(unsetenv("BANYAN_REDIS_PASSWORD"), 0);
    assert_int_equal(unsetenv("REDISCLI_AUTH"), 0);
}

/* Of an address without a password, by the variables that are asked for. */
static void test_environment(void **state)
{
    static const char *const variables[] = {"BANYAN_TEST_LOGIN", "BANYAN_TEST_OTHER", NULL};
    static const struct {
        const char *value; /* NULL: there is no such variable */
        size_t repeated;   /* times that it is repeated */
        const char *password;
    } rows[] = {{"secret", 1, "secret"},
                {"secret\n", 1, "secret"},
                {"", 1, ""},
                {NULL, 0, "of the other"},
                {"s", BY_SERVE_PASSWORD_BYTES, NULL}};
    (void)state;
    assert_int_equal(setenv(variables[1], "of the other", 1), 0);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        char value[BY_SERVE_PASSWORD_BYTES + 1] = "";
        by__link_redis_address a = {0};
        by_error error = {0};
        for (size_t k = 0; k < rows[i].repeated; k++) {
            strcat(value, rows[i].value);
        }
        assert_int_equal(
            rows[i].value == NULL ? unsetenv(variables[0]) : setenv(variables[0], value, 1), 0);
        by_status status = by__link_redis_address_login(&a, variables, &error);
        assert_int_equal(status, rows[i].password == NULL ? BY_ECONFIG : BY_OK);
        assert_string_equal(a.password, rows[i].password == NULL ? "" : rows[i].password);
        assert_true(status == BY_OK || strstr(error.message, variables[0]) != NULL);
        assert_null(strstr(error.message, "sss"));
    }
    assert_int_equal(unsetenv(variables[0]), 0);
    assert_int_equal(unsetenv(variables[1]), 0);
}

static void test_refused(void **state)
{
    static const char *const urls[] = {"redis:/h",
                                       "rediss://:secret@h",
                                       "redis://",
                                       "redis://:secret@",
                                       "redis://h:0",
                                       "redis://h:65536",
                                       "redis://h:1x",
                                       "redis://h/x",
                                       "redis://h/-1",
                                       "redis://[::1",
                                       "redis://[]:1",
                                       "redis://[::1]1",
                                       "redis://h?queue=0",
                                       "redis://h?queue=",
                                       "redis://h?other=1",
                                       "redis://h?silence=0.1",
                                       "redis://h?wait=0",
                                       "redis://h?",
                                       "redis://h?queue=1&&",
                                       "redis://u%0:s@h",
                                       "redis://u:secret%zz@h",
                                       "redis://u:%00@h",
                                       "redis://h?silence=x",
                                       "redis://h?queue=1e",
                                       "redis://h:secret",
                                       "redis://:secret@h?password_file=f",
                                       "redis://h?password_file=",
                                       "redis://h?password_file=%zz"};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(urls); i++) {
        by__link_redis_address a;
        by_error error = {0};
        if (by__link_redis_address_read(&a, urls[i], &error) != BY_ECONFIG) {
            fail_msg("%s is taken", urls[i]);
        }
        assert_null(strstr(error.message, "secret"));
        assert_true(strncmp(urls[i], "rediss:", 7) != 0 || strstr(error.message, "stunnel"));
    }
}

static void test_file(void **state)
{
    static const struct {
        const char *text; /* NULL: there is no file */
        const char *password;
    } rows[] = {{"secret\nelse\n", "secret"},
                {"secret", "secret"},
                {"", NULL},
                {"\nsecret", NULL},
                {NULL, NULL}};
    char *directory = temporary_make();
    char *path = by__path_join(directory, "a&b");
    char url[512];
    (void)state;
    assert_non_null(path);
    (void)snprintf(url, sizeof url, "redis://h?password_file=%s/a%%26b&queue=7", directory);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by__link_redis_address a;
        by_error error = {0};
        (void)remove(path);
        FILE *file = rows[i].text == NULL ? NULL : fopen(path, "w");
        if (file != NULL) {
            fputs(rows[i].text, file);
            fclose(file);
        }
        assert_int_equal(by__link_redis_address_read(&a, url, &error), BY_OK);
        assert_int_equal(a.queue, 7);
        by_status status = by__link_redis_address_login(&a, by__link_redis_broker_login, &error);
        assert_int_equal(status, rows[i].password == NULL ? BY_ECONFIG : BY_OK);
        assert_string_equal(a.password, rows[i].password == NULL ? "" : rows[i].password);
        assert_null(strstr(error.message, "secret"));
    }
    free(path);
    temporary_remove(directory);
}

/* What is behind the shorter text, a list of processes would show. */
static void test_taken(void **state)
{
    static const char *const rows[][3] = {
        {"redis://me:p%40:s@[::1]:7000/3?queue=1", "redis://me@[::1]:7000/3?queue=1", "p@:s"},
        {"redis://:secret@h", "redis://@h", "secret"},
        {"redis://me@h", NULL, NULL},
        {"redis://h:6379", NULL, NULL},
        {"redis://h/0?a=b:c@d", NULL, NULL},
        {"/a:b@c", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        char text[64] = {0};
        char password[BY_SERVE_PASSWORD_BYTES];
        by__link_redis_address a;
        strcpy(text, rows[i][0]);
        assert_int_equal(by_serve_extract_password(text, password), rows[i][1] != NULL);
        assert_string_equal(text, rows[i][1] == NULL ? rows[i][0] : rows[i][1]);
        if (rows[i][1] != NULL) {
            assert_string_equal(password, rows[i][2]);
            for (size_t k = strlen(text); k < sizeof text; k++) {
                assert_int_equal(text[k], 0);
            }
            assert_int_equal(by__link_redis_address_read(&a, text, NULL), BY_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),   cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_file),
        cmocka_unit_test(test_taken),   cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
