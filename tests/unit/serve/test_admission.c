/* Which requests are taken under simulated loads: a discrete-event simulation of workers whose
 * sessions run sequences of random lengths, with a queue in front of them, on its own clock. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "serve/protocol/admission.h"

#define MOST     512
#define REQUESTS 400000
#define LOOK     0.25

typedef struct simulation {
    by__protocol_admission admission;
    double now;
    double setting; /* seconds that may be waited; 0: the default */
    double mean;    /* seconds of a sequence while all sessions are at work */
    double spread;  /* 0: all take the same; 1: exponential times */
    double slowing; /* share of that by which an empty machine is faster */
    size_t sessions;
    size_t running;
    double left[MOST]; /* seconds of each that runs, if all sessions were at work */
    double queue[REQUESTS];
    size_t first; /* of the queue */
    size_t last;
    int64_t ended;
    int64_t arrived;
    int64_t turned; /* away */
    double looked;
    double arrival;
    uint64_t random;
    /* of the requests since forget() */
    double waits[REQUESTS];
    size_t taken;
    size_t refused;
} simulation;

static double exponential(simulation *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return -log(((double)(s->random >> 11) + 0.5) * 0x1p-53);
}

static void begin(simulation *s, size_t sessions, double mean, double spread)
{
    memset(s, 0, sizeof *s);
    s->sessions = sessions;
    s->mean = mean;
    s->spread = spread;
    s->random = 11;
    s->now = s->looked = 1000.0;
}

static int64_t limit_of(const by__protocol_admission *a, double seconds)
{
    return by__protocol_admission_rule_of(a, seconds, 0.0, false).limit;
}

static void forget(simulation *s)
{
    s->taken = s->refused = 0;
}

/* How fast sequences run: with few of them each one is faster, as in an engine. */
static double speed(const simulation *s)
{
    double idle = 1.0 - (double)s->running / (double)s->sessions;
    return 1.0 / (1.0 - s->slowing * idle);
}

static void start(simulation *s, double since)
{
    s->left[s->running++] = s->mean * (1.0 - s->spread + s->spread * exponential(s));
    assert_true(s->taken < REQUESTS);
    s->waits[s->taken++] = s->now - since;
}

/* Time goes on to `to`, or to the next end of a sequence if that is earlier. */
static void advance(simulation *s, double to)
{
    double shortest = INFINITY;
    size_t which = 0;
    for (size_t i = 0; i < s->running; i++) {
        which = s->left[i] < shortest ? i : which;
        shortest = fmin(shortest, s->left[i]);
    }
    double v = speed(s);
    double elapsed = fmin(to - s->now, shortest / v);
    for (size_t i = 0; i < s->running; i++) {
        s->left[i] -= elapsed * v;
    }
    s->now += elapsed;
    if (elapsed * v >= shortest) {
        s->left[which] = s->left[--s->running];
        s->ended++;
        if (s->first < s->last) {
            start(s, s->queue[s->first++]);
        }
    }
}

static void arrive(simulation *s)
{
    int64_t ahead = (int64_t)(s->running + s->last - s->first);
    s->arrived++;
    if (ahead >= by__protocol_admission_rule_of(&s->admission, s->setting, 0.0, false).limit) {
        s->refused++;
        s->turned++;
    } else if (s->running < s->sessions) {
        start(s, s->now);
    } else {
        assert_true(s->last < REQUESTS);
        s->queue[s->last++] = s->now;
    }
}

static void look(simulation *s)
{
    by__protocol_admission_sample sample = {.now = s->now,
                                            .sessions = (int64_t)s->sessions,
                                            .at_workers = (int64_t)s->running,
                                            .ended = s->ended,
                                            .arrived = s->arrived,
                                            .refused = s->turned};
    by__protocol_admission_add(&s->admission, &sample);
}

/* Some seconds with `rate` requests a second, at random times. */
static void run(simulation *s, double rate, double seconds)
{
    double end = s->now + seconds;
    s->arrival = s->now + exponential(s) / rate;
    while (s->now < end) {
        double next = fmin(fmin(s->arrival, s->looked + LOOK), end);
        while (s->now < next) {
            advance(s, next);
        }
        if (s->now >= s->looked + LOOK) {
            s->looked = s->now;
            look(s);
        }
        if (s->now >= s->arrival) {
            arrive(s);
            s->arrival = s->now + exponential(s) / rate;
        }
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double p95(simulation *s)
{
    qsort(s->waits, s->taken, sizeof *s->waits, ascending);
    return s->taken == 0 ? 0.0 : s->waits[(size_t)(0.95 * (double)(s->taken - 1))];
}

static double share_refused(const simulation *s)
{
    return (double)s->refused / (double)(s->refused + s->taken);
}

/* Three times what can be served: those that are taken wait no longer than those of an ordinary
 * load, all that can be served is, and what follows waits for nothing any more. */
static void test_three_times(void **state)
{
    static const struct {
        size_t sessions;
        double mean;
        double spread;
        double slowing;
        double refused; /* share at 0.8 times the capacity, at most */
    } loads[] = {{16, 0.16, 0.0, 0.0, 0.01}, {16, 1.5, 0.5, 0.0, 0.02}, {16, 1.5, 1.0, 0.5, 0.02},
                 {16, 0.02, 1.0, 0.5, 0.01}, {4, 0.5, 1.0, 0.0, 0.05},  {64, 3.0, 1.0, 0.5, 0.01},
                 {16, 20.0, 0.5, 0.5, 0.1}};
    static simulation s;
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(loads); i++) {
        double mean = loads[i].mean;
        double capacity = (double)loads[i].sessions / mean;
        begin(&s, loads[i].sessions, mean, loads[i].spread);
        s.slowing = loads[i].slowing;
        run(&s, 0.8 * capacity, fmax(100.0 * mean, 5.0));
        forget(&s);
        run(&s, 0.8 * capacity, fmax(1000.0 * mean, 20.0));
        assert_true(share_refused(&s) < loads[i].refused);
        double ordinary = p95(&s);
        forget(&s);
        int64_t before = s.ended;
        double seconds = fmax(200.0 * mean, 20.0);
        run(&s, 3.0 * capacity, seconds);
        assert_true(p95(&s) < fmax(1.1 * ordinary, fmax(5.0 / capacity, 0.05)));
        assert_true((double)(s.ended - before) / seconds > 0.93 * capacity);
        assert_true(fabs(share_refused(&s) - 2.0 / 3.0) < 0.05);
        double rate = by__protocol_admission_rate(&s.admission);
        assert_true(rate > 0.7 * capacity && rate < 1.4 * capacity);
        /* It ends. */
        run(&s, 0.5 * capacity, 2.0 * mean);
        forget(&s);
        run(&s, 0.5 * capacity, 100.0 * mean);
        assert_true(p95(&s) <= ordinary && share_refused(&s) < 0.02);
    }
}

/* A light load says little about the capacity: sequences that run alone are several times as fast
 * as in full steps. What was measured while all sessions were busy bounds the wait of what
 * follows. */
static void test_after_light_load(void **state)
{
    static simulation s;
    (void)state;
    for (int known = 0; known < 2; known++) {
        begin(&s, 16, 0.03, 1.0);
        s.slowing = 0.9;
        if (known) {
            run(&s, 1000.0, 2.0);
        }
        run(&s, 100.0, 30.0);
        forget(&s);
        run(&s, 1600.0, 0.25);
        double bound = known ? BY__ADMISSION_MIN_SECONDS : BY__ADMISSION_COLD * 0.03;
        assert_true(s.refused > 0 && p95(&s) < 1.3 * bound);
    }
    /* Sequences that have become ten times as short since all sessions were busy. */
    begin(&s, 16, 0.3, 1.0);
    s.slowing = 0.9;
    run(&s, 100.0, 20.0);
    s.mean = 0.03;
    run(&s, 100.0, 5.0);
    run(&s, 700.0, 1.0);
    assert_true(fabs(by__protocol_admission_rate(&s.admission) / 533.0 - 1.0) < 0.3);
}

/* From the first request on, with nothing measured: the longer nothing ends, the fewer may wait. */
static void test_cold(void **state)
{
    static simulation s;
    (void)state;
    begin(&s, 16, 1.0, 1.0);
    assert_true(by__protocol_admission_rate(&s.admission) == 0.0);
    assert_int_equal(limit_of(&s.admission, 1.0), 80);
    run(&s, 480.0, 0.4);
    assert_true(s.refused > 0 && s.last - s.first <= 64);
    run(&s, 48.0, 10.0);
    forget(&s);
    run(&s, 48.0, 50.0);
    assert_true(p95(&s) < 0.3);
    /* No worker is left: as many wait as at a start, for the next one. */
    s.now += 1.0;
    s.sessions = 0;
    look(&s);
    assert_int_equal(limit_of(&s.admission, 0.1), 80);
    /* Without any end, all that is known is that what runs takes longer than it has taken. */
    begin(&s, 16, 1e6, 0.0);
    run(&s, 48.0, 30.0);
    assert_true(by__protocol_admission_rate(&s.admission) < 0.6);
    assert_int_equal(limit_of(&s.admission, 1.0), 16);
}

/* Workers that become slower, and faster again: the bound follows within a few answers. */
static void test_change(void **state)
{
    static simulation s;
    (void)state;
    begin(&s, 16, 0.2, 0.5);
    run(&s, 240.0, 20.0);
    assert_true(fabs(by__protocol_admission_rate(&s.admission) / 80.0 - 1.0) < 0.3);
    s.mean = 2.0;
    run(&s, 24.0, 20.0);
    assert_true(fabs(by__protocol_admission_rate(&s.admission) / 8.0 - 1.0) < 0.3);
    forget(&s);
    run(&s, 24.0, 100.0);
    assert_true(p95(&s) < 0.6);
    s.mean = 0.2;
    run(&s, 240.0, 6.0);
    assert_true(fabs(by__protocol_admission_rate(&s.admission) / 80.0 - 1.0) < 0.3);
    /* An hour without a request forgets nothing. */
    run(&s, 1e-9, 3600.0);
    assert_true(fabs(by__protocol_admission_rate(&s.admission) / 80.0 - 1.0) < 0.3);
}

/* A burst behind an ordinary load finds the whole queue, one in an overload does not; a setting is
 * kept whatever the load is. */
static void test_bursts(void **state)
{
    static simulation s;
    (void)state;
    begin(&s, 16, 0.5, 1.0);
    run(&s, 25.0, 60.0);
    assert_true(fabs(by__protocol_admission_bound(&s.admission, 0.0) - 0.25) < 0.1);
    run(&s, 96.0, 20.0);
    assert_true(fabs(by__protocol_admission_bound(&s.admission, 0.0) - 0.03) < 0.02);
    run(&s, 25.0, 5.0);
    assert_true(fabs(by__protocol_admission_bound(&s.admission, 0.0) - 0.25) < 0.1);
    s.setting = 3.0;
    run(&s, 96.0, 20.0);
    forget(&s);
    run(&s, 96.0, 100.0);
    double wait = p95(&s);
    assert_true(wait > 2.0 && wait < 1.4 * 3.0);
    run(&s, 1.0, 20.0);
    forget(&s);
    run(&s, 1e5, 0.0008);
    assert_int_equal(s.refused, 0);
    assert_true(s.last - s.first > 40);
}

/* What a client is told: the wait behind so many, and none while a session is free. */
static void test_estimate(void **state)
{
    by__protocol_admission a = {0};
    by__protocol_admission_sample sample = {.sessions = 8, .at_workers = 12};
    (void)state;
    for (int i = 0; i <= 400; i++) {
        sample.now = 1.0 + 0.25 * i;
        sample.ended = 4 * (int64_t)i;
        by__protocol_admission_add(&a, &sample);
    }
    /* 16 sequences end in a second: half a second each. */
    assert_true(fabs(by__protocol_admission_rate(&a) - 16.0) < 0.01);
    assert_true(by__protocol_admission_wait(&a, 7) == 0.0);
    assert_true(fabs(by__protocol_admission_wait(&a, 23) - 1.0) < 0.01);
    assert_true(fabs(by__protocol_admission_bound(&a, 0.0) - 0.5) < 0.01);
    assert_int_equal(limit_of(&a, 1.001), 24);
    assert_true(by__protocol_admission_wait(&a, 24) > 1.001);
    /* A deadline that is earlier than the bound; tasks have no other bound. */
    by__protocol_admission_rule rule = by__protocol_admission_rule_of(&a, 0.0, 0.251, false);
    assert_int_equal(rule.limit, 12);
    assert_string_equal(rule.why, "late");
    rule = by__protocol_admission_rule_of(&a, 0.0, 600.0, false);
    assert_int_equal(rule.limit, 16);
    assert_string_equal(rule.why, "wait");
    assert_int_equal(by__protocol_admission_rule_of(&a, 0.0, 60.001, true).limit, 968);
    assert_true(by__protocol_admission_rule_of(&a, 0.0, 0.0, true).limit > 1000000);
    /* Twice the workers. */
    sample.now += 0.25;
    sample.ended += 4;
    sample.sessions = 16;
    by__protocol_admission_add(&a, &sample);
    assert_true(fabs(by__protocol_admission_rate(&a) - 32.0) < 0.1);
    /* A count that begins anew, and a clock that stands still, say nothing. */
    sample.now += 0.25;
    sample.ended = 0;
    by__protocol_admission_add(&a, &sample);
    sample.ended = 100;
    by__protocol_admission_add(&a, &sample);
    assert_true(fabs(by__protocol_admission_rate(&a) - 32.0) < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_times), cmocka_unit_test(test_after_light_load),
        cmocka_unit_test(test_cold),        cmocka_unit_test(test_change),
        cmocka_unit_test(test_bursts),      cmocka_unit_test(test_estimate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
