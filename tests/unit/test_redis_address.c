/* Addresses of Redis servers: what is read, and what is refused, without a
 * password in the message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/redis_address.h"

static void test_whole(void **state)
{
    by__redis_address a;
    by_error error = {0};
    (void)state;
    assert_int_equal(by__redis_address_read(&a,
                                            "redis://me:p%40:s%2fs@[::1]:7000/3?queue=10&"
                                            "queue_tokens=99&silence=1.5&hang=7&attempts=2",
                                            &error),
                     BY_OK);
    assert_string_equal(a.host, "::1");
    assert_string_equal(a.user, "me");
    assert_string_equal(a.password, "p@:s/s");
    assert_int_equal(a.port, 7000);
    assert_int_equal(a.database, 3);
    assert_int_equal(a.queue, 10);
    assert_int_equal(a.queue_tokens, 99);
    assert_true(a.silence == 1.5 && a.hang == 7.0);
    assert_int_equal(a.attempts, 2);
}

static void test_defaults(void **state)
{
    by__redis_address a;
    by_error error = {0};
    (void)state;
    assert_int_equal(setenv("REDISCLI_AUTH", "of the environment", 1), 0);
    assert_int_equal(by__redis_address_read(&a, "redis://redis.example", &error), BY_OK);
    assert_string_equal(a.host, "redis.example");
    assert_string_equal(a.user, "");
    assert_string_equal(a.password, "of the environment");
    assert_int_equal(a.port, 6379);
    assert_int_equal(a.database, 0);
    assert_int_equal(a.queue, 1024);
    assert_int_equal(by__redis_address_read(&a, "redis://:own@h:1/", &error), BY_OK);
    assert_string_equal(a.password, "own");
    assert_int_equal(unsetenv("REDISCLI_AUTH"), 0);
}

static void test_refused(void **state)
{
    static const char *const urls[] = {
        "redis:/h",          "rediss://h",          "redis://",           "redis://:secret@",
        "redis://h:0",       "redis://h:65536",     "redis://h:1x",       "redis://h/x",
        "redis://h/-1",      "redis://[::1",        "redis://[]:1",       "redis://[::1]1",
        "redis://h?queue=0", "redis://h?queue=",    "redis://h?other=1",  "redis://h?silence=0.1",
        "redis://h?",        "redis://h?queue=1&&", "redis://u%0:s@h",    "redis://u:secret%zz@h",
        "redis://u:%00@h",   "redis://h?silence=x", "redis://h?queue=1e", "redis://h:secret"};
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(urls); i++) {
        by__redis_address a;
        by_error error = {0};
        if (by__redis_address_read(&a, urls[i], &error) != BY_ECONFIG) {
            fail_msg("%s is taken", urls[i]);
        }
        assert_null(strstr(error.message, "secret"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
