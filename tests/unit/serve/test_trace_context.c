/* The header traceparent: what the standard allows is read, all else begins a new trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/telemetry/trace_context.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static void test_table(void **state)
{
    static const struct {
        const char *header;
        bool good;
        bool sampled;
    } rows[] = {
        {"00-" TRACE "-" SPAN "-01", true, true},
        {"00-" TRACE "-" SPAN "-00", true, false},
        {"00-" TRACE "-" SPAN "-fe", true, false}, /* flags without a meaning yet */
        {"00-" TRACE "-" SPAN "-ff", true, true},
        {"", false, false},
        {"00", false, false},
        {"00-" TRACE "-" SPAN "-0", false, false},
        {"00-" TRACE "-" SPAN "-01-", false, false},
        {"00-" TRACE "-" SPAN "-01 ", false, false},
        {" 00-" TRACE "-" SPAN "-01", false, false},
        {"01-" TRACE "-" SPAN "-01", false, false},
        {"ff-" TRACE "-" SPAN "-01", false, false},
        {"00-" TRACE "-" SPAN "-0g", false, false},
        {"00-" TRACE "-" SPAN "-FF", false, false},
        {"00_" TRACE "-" SPAN "-01", false, false},
        {"00-" TRACE "_" SPAN "-01", false, false},
        {"00-" TRACE "-" SPAN "_01", false, false},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", false, false},
        {"00-00000000000000000000000000000000-" SPAN "-01", false, false},
        {"00-" TRACE "-0000000000000000-01", false, false},
        {"00-4bf92f3577b34da6a3ce929d0e0e473-" SPAN "a-01", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        by__telemetry_trace_context c = {.trace = "kept"};
        print_message("%s\n", rows[i].header);
        assert_int_equal(by__telemetry_trace_read(&c, rows[i].header), rows[i].good);
        assert_string_equal(c.trace, rows[i].good ? TRACE : "kept");
        assert_string_equal(c.parent, rows[i].good ? SPAN : "");
        assert_int_equal(c.sampled, rows[i].sampled);
    }
}

static void test_take(void **state)
{
    static const char longer[] = TRACE "0";
    static const char *const none[] = {"", longer, "4BF92F3577B34DA6A3CE929D0E0E4736",
                                       "4bf92f3577b34da6a3ce929d0e0e473", NULL};
    char out[BY__TRACE_ID_BYTES];
    (void)state;
    by__telemetry_trace_copy(out, TRACE);
    assert_string_equal(out, TRACE);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        memset(out, 'x', sizeof out);
        by__telemetry_trace_copy(out, none[i]);
        assert_string_equal(out, "");
    }
}

static void test_begin(void **state)
{
    by__telemetry_trace_context a;
    by__telemetry_trace_context b;
    char header[BY__TRACEPARENT_BYTES];
    by_error error = {0};
    (void)state;
    /* The caller's flag comes before the fraction. */
    assert_int_equal(by__telemetry_trace_begin(&a, "00-" TRACE "-" SPAN "-00", 1.0, &error), BY_OK);
    assert_false(a.sampled);
    assert_int_equal(by__telemetry_trace_begin(&a, "00-" TRACE "-" SPAN "-01", 0.0, &error), BY_OK);
    assert_true(a.sampled);
    by__telemetry_trace_print(header, &a);
    assert_true(by__telemetry_trace_read(&b, header));
    assert_string_equal(b.trace, TRACE);
    assert_string_equal(b.parent, a.span);
    assert_true(b.sampled);
    /* An invalid header begins a trace, each another one. */
    assert_int_equal(by__telemetry_trace_begin(&a, "00-" TRACE, 1.0, &error), BY_OK);
    assert_int_equal(by__telemetry_trace_begin(&b, NULL, 0.0, &error), BY_OK);
    assert_string_equal(a.parent, "");
    assert_string_not_equal(a.trace, b.trace);
    assert_string_not_equal(a.span, b.span);
    assert_true(a.sampled);
    assert_false(b.sampled);
}

/* 2000 traces at 0.25: 500 with a standard deviation of 19. */
static void test_fraction(void **state)
{
    int count = 0;
    by_error error = {0};
    (void)state;
    for (int i = 0; i < 2000; i++) {
        by__telemetry_trace_context c;
        assert_int_equal(by__telemetry_trace_begin(&c, NULL, 0.25, &error), BY_OK);
        count += c.sampled;
    }
    assert_in_range(count, 350, 650);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_begin),
        cmocka_unit_test(test_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
