/* How a new version comes into use, and what makes it fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/deploy/rollout.h"

typedef struct play {
    by__rollout r;
    by__rollout_input in;
} play;

static void begin(play *p, const by__rollout_options *options)
{
    memset(p, 0, sizeof *p);
    p->in.total = 4;
    by__rollout_begin(&p->r, options, 0.0);
}

/* A second: requests of both versions, of which some fail, and the time to their first text. */
static void pass(play *p, uint64_t before, uint64_t after, uint64_t errors, double time)
{
    p->in.now += 1.0;
    for (uint64_t i = 0; i < before; i++) {
        p->in.before.requests++;
        by__histogram_add(&p->in.before.first, 0.04);
    }
    for (uint64_t i = 0; i < after; i++) {
        p->in.after.requests++;
        p->in.after.errors += i < errors;
        by__histogram_add(&p->in.after.first, time);
    }
    by__rollout_step(&p->r, &p->in);
}

static void test_at_once(void **state)
{
    play p;
    (void)state;
    begin(&p, &(by__rollout_options){0});
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

static const by__rollout_options canary = {
    .shares = {0.05, 0.25, 0.5, 1.0}, .share_count = 4, .hold = 10.0};

/* Brings a canary to its first share. */
static void begin_canary(play *p)
{
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
    p.in.before = p.in.after = (by__version_load){0};
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
    begin(&p, &(by__rollout_options){.start = 5.0});
    for (int i = 0; i < 6; i++) {
        pass(&p, 1, 0, 0, 0);
    }
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    begin(&p, &(by__rollout_options){0});
    p.in.exits = 2;
    pass(&p, 1, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    begin(&p, &(by__rollout_options){0});
    p.in.hopeless = true;
    pass(&p, 1, 0, 0, 0);
    assert_int_equal(p.r.phase, BY__ROLLOUT_FAILED);
    begin(&p, &(by__rollout_options){0});
    p.in.ready = 4;
    pass(&p, 1, 0, 0, 0);
    p.in.golden = BY__GOLDEN_BAD;
    p.in.golden_reason = "another text";
    pass(&p, 1, 0, 0, 0);
    assert_string_equal(p.r.reason, "another text");
    begin(&p, &(by__rollout_options){.check = 3.0});
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
        begin(&p, &(by__rollout_options){.shadow = true, .hold = 5.0});
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
