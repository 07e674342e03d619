/* How a new version comes into use, and what makes it fail. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/protocol/deploy_options.h"
#include "serve/rollout/interface.h"
#include "serve/rollout/rollout.h"

typedef struct play {
    by__rollout r;
    by__rollout_input in;
} play;

/* The defaults, all at once. */
static by__rollout_options usual(void)
{
    by_deploy_options options;
    by__rollout_options out;
    by_deploy_defaults(&options);
    by__rollout_plan(&out, &options);
    return out;
}

static void begin(play *p, const by__rollout_options *options)
{
    const by__rollout_options defaults = usual();
    memset(p, 0, sizeof *p);
    p->in.total = 4;
    by__rollout_begin(&p->r, options == NULL ? &defaults : options, 0.0);
}

/* A second: requests of both versions, of which some fail, and the time to their first text. */
static void pass(play *p, uint64_t before, uint64_t after, uint64_t errors, double time)
{
    p->in.now += 1.0;
    for (uint64_t i = 0; i < before; i++) {
        p->in.before.requests++;
        by__telemetry_histogram_add(&p->in.before.first, 0.04);
    }
    for (uint64_t i = 0; i < after; i++) {
        p->in.after.requests++;
        p->in.after.errors += i < errors;
        by__telemetry_histogram_add(&p->in.after.first, time);
    }
    by__rollout_step(&p->r, &p->in);
}

static void test_at_once(void **state)
{
    play p;
    (void)state;
    begin(&p, NULL);
    assert_int_equal(by__rollout_workers(&p.r, 4), 4);
    p.in.ready = 3;
    pass(&p, 5, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_STARTING);
    p.in.ready = 4;
    pass(&p, 5, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_CHECKING);
    assert_true(p.r.share == 0.0);
    p.in.golden = BY__GOLDEN_GOOD;
    pass(&p, 5, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_DONE);
    assert_true(p.r.share == 1.0);
}

/* Brings a canary to its first share. */
static void begin_canary(play *p)
{
    by_deploy_options options;
    by__rollout_options canary;
    by_deploy_defaults(&options);
    options.canary = 0.05;
    options.hold = 10.0;
    by__rollout_plan(&canary, &options);
    begin(p, &canary);
    assert_int_equal(by__rollout_workers(&p->r, 4), 1);
    p->in.ready = 1;
    p->in.golden = BY__GOLDEN_GOOD;
    pass(p, 10, 0, 0, 0);
    pass(p, 10, 0, 0, 0);
    assert_int_equal(p->r.phase, BY__ROLLOUT_HOLDING);
    assert_true(p->r.share == 0.05);
}

static void test_steps(void **state)
{
    play p;
    (void)state;
    begin_canary(&p);
    for (int i = 0; i < 9; i++) {
        pass(&p, 40, 3, 0, 0.04);
        assert_true(p.r.share == 0.05);
    }
    pass(&p, 40, 3, 0, 0.04);
    assert_true(p.r.share == 0.25);
    for (int i = 0; i < 10; i++) {
        pass(&p, 40, 3, 0, 0.04);
    }
    /* Half of the requests need two workers: the former share stays until they are there. */
    assert_int_equal(p.r.phase, BY__ROLLOUT_STARTING);
    assert_true(p.r.share == 0.25);
    assert_int_equal(by__rollout_workers(&p.r, 4), 2);
    p.in.ready = 2;
    pass(&p, 40, 3, 0, 0.04);
    assert_int_equal(p.r.phase, BY__ROLLOUT_HOLDING);
    assert_true(p.r.share == 0.5);
    p.in.ready = 4;
    for (int i = 0; i < 10; i++) {
        pass(&p, 40, 3, 0, 0.04);
    }
    assert_int_equal(p.r.phase, BY__ROLLOUT_DONE);
}

static void test_too_few_to_judge(void **state)
{
    play p;
    (void)state;
    begin_canary(&p);
    for (int i = 0; i < 29; i++) {
        pass(&p, 1, 0, 0, 0);
        assert_true(p.r.share == 0.05);
    }
    pass(&p, 1, 0, 0, 0);
    assert_true(p.r.share == 0.25);
}

/* A broker that is started again counts from 0: what is below the former totals is no failure. */
static void test_broker_starts_again(void **state)
{
    play p;
    (void)state;
    begin_canary(&p);
    pass(&p, 100, 60, 1, 0.04);
    for (int i = 0; i < 9; i++) {
        pass(&p, 100, 1, 0, 0.04);
    }
    pass(&p, 100, 1, 0, 0.04);
    assert_true(p.r.share == 0.25);
    p.in.before = p.in.after = (by__rollout_version_load){0};
    for (int i = 0; i < 10; i++) {
        pass(&p, 40, 3, 0, 0.04);
        assert_int_equal(p.r.phase, BY__ROLLOUT_HOLDING);
        assert_true(p.r.share == 0.25);
    }
    p.in.ready = 2;
    pass(&p, 40, 3, 0, 0.04);
    assert_true(p.r.share == 0.5);
}

static void test_failures(void **state)
{
    play p;
    (void)state;
    /* A failure or two of few requests proves nothing, many do. */
    begin_canary(&p);
    pass(&p, 40, 10, 2, 0.04);
    assert_int_equal(p.r.phase, BY__ROLLOUT_HOLDING);
    pass(&p, 40, 10, 2, 0.04);
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    assert_true(p.r.share == 0.0);
    assert_non_null(strstr(p.r.reason, "20.0 % of its requests failed"));
    /* Slower than the former version by more than half. */
    begin_canary(&p);
    for (int i = 0; i < 3 && p.r.phase != BY__ROLLOUT_FAILED; i++) {
        pass(&p, 40, 10, 0, 0.3);
    }
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    assert_non_null(strstr(p.r.reason, "ms"));
    /* What the former version did before the share counts no more. */
    begin_canary(&p);
    p.in.after.requests = 0;
    for (int i = 0; i < 12; i++) {
        pass(&p, 40, 10, 0, 0.05);
    }
    assert_true(p.r.share == 0.25);
}

static void test_start_and_golden(void **state)
{
    play p;
    (void)state;
    by__rollout_options options = usual();
    options.start = 5.0;
    begin(&p, &options);
    for (int i = 0; i < 6; i++) {
        pass(&p, 1, 0, 0, 0);
    }
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    begin(&p, NULL);
    p.in.exits = 2;
    pass(&p, 1, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    begin(&p, NULL);
    p.in.config_error = true;
    pass(&p, 1, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    begin(&p, NULL);
    p.in.ready = 4;
    pass(&p, 1, 0, 0, 0);
    p.in.golden = BY__GOLDEN_BAD;
    p.in.golden_reason = "another text";
    pass(&p, 1, 0, 0, 0);
    assert_string_equal(p.r.reason, "another text");
    options = usual();
    options.check = 3.0;
    begin(&p, &options);
    p.in.ready = 4;
    for (int i = 0; i < 5; i++) {
        pass(&p, 1, 0, 0, 0);
    }
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
}

static void test_shadow(void **state)
{
    play p;
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        by__rollout_options options = usual();
        options.shadow = true;
        options.hold = 5.0;
        begin(&p, &options);
        p.in.ready = 4;
        p.in.golden = BY__GOLDEN_GOOD;
        pass(&p, 10, 0, 0, 0);
        pass(&p, 10, 0, 0, 0);
        assert_int_equal(p.r.phase, BY__ROLLOUT_SHADOWING);
        assert_true(p.r.mirrors && p.r.share == 0.0);
        for (int i = 0; i < 5; i++) {
            p.in.after.same += 6;
            p.in.after.failed += bad ? 4 : 0;
            pass(&p, 10, 0, 0, 0);
        }
        assert_int_equal(p.r.phase, bad ? BY__ROLLOUT_FAILED : BY__ROLLOUT_DONE);
        assert_false(p.r.mirrors);
    }
}

/* 0 is a value like any other. */
static void test_values(void **state)
{
    play p;
    by_deploy_options options;
    by__rollout_options strict;
    by_error error = {0};
    (void)state;
    json_t *message = json_pack("{ss sf sf}", "t", "deploy", "hold", 0.0, "errors", 0.0);
    assert_int_equal(by__protocol_deploy_read(&options, message, &error), BY_OK);
    json_decref(message);
    assert_true(options.hold == 0.0 && options.errors == 0.0 && options.slower == 1.5);
    by__rollout_plan(&strict, &options);
    strict.shares[0] = 0.5;
    strict.shares[1] = 1.0;
    strict.share_count = 2;
    for (int bad = 0; bad < 2; bad++) {
        begin(&p, &strict);
        p.in.ready = 4;
        p.in.golden = BY__GOLDEN_GOOD;
        pass(&p, 10, 0, 0, 0);
        pass(&p, 10, 0, 0, 0);
        assert_int_equal(p.r.phase, BY__ROLLOUT_HOLDING);
        pass(&p, 1000, 1000, bad ? 1 : 0, 0.04);
        assert_int_equal(p.r.phase, bad ? BY__ROLLOUT_FAILED : BY__ROLLOUT_DONE);
    }
    static const struct {
        const char *name;
        double value;
    } wrong[] = {{"hold", -5.0},   {"hold", NAN},    {"errors", 7.0},
                 {"errors", -0.1}, {"slower", 0.1},  {"slower", NAN},
                 {"canary", 1.0},  {"canary", -0.5}, {"hold", INFINITY}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        by_deploy_defaults(&options);
        double *at = strcmp(wrong[i].name, "hold") == 0     ? &options.hold
                     : strcmp(wrong[i].name, "errors") == 0 ? &options.errors
                     : strcmp(wrong[i].name, "slower") == 0 ? &options.slower
                                                            : &options.canary;
        *at = wrong[i].value;
        assert_int_equal(by__protocol_deploy_check(&options, &error), BY_EARG);
        assert_int_equal(strncmp(error.message, wrong[i].name, strlen(wrong[i].name)), 0);
    }
}

/* Why the second version refuses what the first one answers; "" if it does not. */
static const char *difference(const char *serving, const char *coming)
{
    static char why[BY__INTERFACE_REASON];
    json_t *a = json_loads(serving, 0, NULL);
    json_t *b = json_loads(coming, 0, NULL);
    why[0] = '\0';
    assert_true(by__rollout_interface_differs(why, a, b) == (why[0] != '\0'));
    json_decref(a);
    json_decref(b);
    return why;
}

#define NUMBER(name)   "{\"name\": \"" name "\", \"kind\": \"number\"}"
#define CATEGORY(name) "{\"name\": \"" name "\", \"kind\": \"category\"}"
#define ROWS(columns)  "{\"columns\": [" columns "], \"created\": 1}"
#define E20            "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"

static void test_interface(void **state)
{
    static const char text[] = "{\"context\": 128, \"width\": 64, \"chat\": false}";
    static const char talk[] = "{\"context\": 64, \"width\": 32, \"chat\": true}";
    static const char rows[] = ROWS(NUMBER("a") ", " CATEGORY("b"));
    play p;
    (void)state;
    assert_string_equal(difference(text, text), "");
    assert_string_equal(difference(text, talk), "");
    assert_string_equal(difference(talk, text), "it has no chat template");
    assert_string_equal(difference(text, rows), "it reads rows of a table, not text");
    assert_string_equal(difference("{\"image\": [3, 8, 8]}", text), "it reads text, not images");
    assert_string_equal(difference("null", rows), "");
    assert_string_equal(difference(rows, "null"), "");
    assert_string_equal(difference(rows, rows), "");
    assert_string_equal(difference(rows, ROWS(NUMBER("a"))), "it reads no column 'b'");
    assert_string_equal(difference(ROWS(NUMBER("a")), rows), "it also reads a column 'b'");
    assert_string_equal(difference(rows, ROWS(NUMBER("a") ", " NUMBER("b"))),
                        "its column 'b' is a number, not a category");
    assert_string_equal(difference(rows, ROWS(CATEGORY("b") ", " NUMBER("a"))),
                        "it reads the columns in another order");
    /* A long name is cut between two characters: the reason is sent as JSON. */
    const char *why = difference(ROWS(NUMBER("x" E20 E20 E20)), rows);
    assert_true(by__utf8_valid(why, strlen(why)));
    /* Fails a rollout before any request, unless it is intended. */
    by__rollout_options options = usual();
    for (int force = 0; force < 2; force++) {
        options.force = force != 0;
        begin(&p, &options);
        p.in.ready = 4;
        p.in.golden = BY__GOLDEN_GOOD;
        p.in.differs = "it reads text, not images";
        pass(&p, 10, 0, 0, 0);
        pass(&p, 10, 0, 0, 0);
        assert_int_equal(p.r.phase, force ? BY__ROLLOUT_DONE : BY__ROLLOUT_FAILED);
        assert_true(force || strstr(p.r.reason, p.in.differs) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_too_few_to_judge),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_start_and_golden),
        cmocka_unit_test(test_shadow),
        cmocka_unit_test(test_broker_starts_again),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_interface),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
