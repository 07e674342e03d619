/* The number of workers under simulated loads: each worker serves a fixed number of requests a
 * second, and takes a while to start. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "serve/rollout/autoscale.h"

#define TICK     0.05
#define WINDOW   2.0
#define MOST     32
#define REQUESTS 65536
#define MODELS   3

typedef struct simulation {
    double now;
    double rate;        /* of a worker */
    double start;       /* seconds until one is ready */
    double ready[MOST]; /* when each is; those from `count` on do not exist */
    double free[MOST];  /* when it can begin the next request */
    size_t count;
    double arrived[REQUESTS]; /* times */
    double began[REQUESTS];   /* at a worker; 0: it waits */
    size_t arrivals;
    size_t taken;
    double owed; /* part of the next request */
    uint64_t random;
    size_t changes;
    size_t most;
} simulation;

/* Exponential times between requests (a Poisson process), or even ones. */
static double next_gap(simulation *s, double rate, bool random)
{
    if (!random) {
        return 1.0 / rate;
    }
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    double u = ((double)(s->random >> 11) + 0.5) * 0x1p-53;
    return -log(u) / rate;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The 95th percentile of those that began within the last `seconds`. */
static double p95_of(const simulation *s, double seconds, size_t *count)
{
    static double times[REQUESTS];
    *count = 0;
    for (size_t i = s->taken; i-- > 0 && s->arrived[i] > s->now - seconds - 60.0;) {
        if (s->began[i] <= s->now && s->began[i] > s->now - seconds) {
            times[(*count)++] = s->began[i] - s->arrived[i] + 0.01;
        }
    }
    qsort(times, *count, sizeof *times, ascending);
    return *count == 0 ? 0.0 : times[(size_t)(0.95 * (double)(*count - 1))];
}

static void serve(simulation *s)
{
    while (s->taken < s->arrivals) {
        size_t best = MOST;
        for (size_t w = 0; w < s->count; w++) {
            if (s->ready[w] <= s->now && (best == MOST || s->free[w] < s->free[best])) {
                best = w;
            }
        }
        if (best == MOST || s->free[best] > s->now) {
            return;
        }
        double from = fmax(s->free[best], fmax(s->now - TICK, s->arrived[s->taken]));
        s->began[s->taken++] = from;
        s->free[best] = from + 1.0 / s->rate;
    }
}

static void resize(simulation *s, size_t wanted)
{
    s->changes += wanted != s->count;
    for (; s->count < wanted; s->count++) {
        s->ready[s->count] = s->free[s->count] = s->now + s->start;
    }
    s->count = wanted;
    s->most = wanted > s->most ? wanted : s->most;
}

/* Requests arrive, and workers begin some. */
static void step(simulation *s, double rate, bool random)
{
    s->now += TICK;
    s->owed -= TICK;
    while (rate > 0.0 && s->owed <= 0.0) {
        assert_true(s->arrivals < REQUESTS);
        s->arrived[s->arrivals++] = s->now + s->owed;
        s->owed += next_gap(s, rate, random);
    }
    s->owed = rate > 0.0 ? s->owed : 0.0;
    serve(s);
}

static by__rollout_autoscale_input measure(const simulation *s)
{
    by__rollout_autoscale_input in = {
        .now = s->now, .window = WINDOW, .waiting = s->arrivals - s->taken};
    size_t count;
    in.p95 = p95_of(s, WINDOW, &count);
    in.ended = count;
    for (size_t i = s->arrivals; i-- > 0 && s->arrived[i] > s->now - WINDOW;) {
        in.arrived++;
    }
    for (size_t w = 0; w < s->count; w++) {
        in.ready += s->ready[w] <= s->now;
    }
    in.oldest = in.waiting > 0 ? s->now - s->arrived[s->taken] : 0.0;
    return in;
}

/* Runs models for some seconds, each at its load; a decision every 250 ms, as the broker tells its
 * state. */
static void run_models(simulation *s, by__rollout_autoscale *a, size_t count, size_t total,
                       const double *rates, double seconds, bool random)
{
    double end = s->now + seconds;
    for (size_t tick = 0; s->now < end; tick++) {
        size_t sum = 0;
        for (size_t i = 0; i < count; i++) {
            step(&s[i], rates[i], random);
        }
        if (tick % 5 != 0) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            by__rollout_autoscale_input in = measure(&s[i]);
            by__rollout_autoscale_decide(&a[i], &in);
        }
        by__rollout_autoscale_divide(a, count, total, s->now);
        for (size_t i = 0; i < count; i++) {
            resize(&s[i], a[i].wanted);
            sum += a[i].wanted;
        }
        assert_true(total == 0 || sum <= total);
    }
}

static void run(simulation *s, by__rollout_autoscale *a, double rate, double seconds, bool random)
{
    run_models(s, a, 1, 0, &rate, seconds, random);
}

static size_t decide(by__rollout_autoscale *a, const by__rollout_autoscale_input *in)
{
    by__rollout_autoscale_decide(a, in);
    by__rollout_autoscale_divide(a, 1, 0, in->now);
    return a->wanted;
}

static void begin(simulation *s, by__rollout_autoscale *a, size_t least, size_t workers)
{
    by__rollout_autoscale_options options = {.least = least, .most = 8, .target = 0.2};
    memset(s, 0, sizeof *s);
    s->rate = 4.0;
    s->start = 1.5;
    s->random = 7;
    s->count = workers;
    by__rollout_autoscale_begin(a, &options, workers, 0.0);
}

static void test_a_step_of_twenty(void **state)
{
    static simulation s;
    by__rollout_autoscale a;
    size_t count;
    (void)state;
    for (int random = 0; random < 2; random++) {
        begin(&s, &a, 1, 1);
        run(&s, &a, 1.0, 60.0, random);
        /* A load of a quarter of its capacity needs one worker, and at random times not many. */
        assert_in_range(s.count, 1, 2);
        run(&s, &a, 20.0, 30.0, random);
        assert_true(p95_of(&s, WINDOW, &count) < 0.2);
        assert_in_range(s.count, 6, 8);
        s.changes = 0;
        run(&s, &a, 20.0, 120.0, random);
        assert_true(p95_of(&s, 60.0, &count) < 0.25);
        /* No flapping: a steady load has at most one more decision. */
        assert_in_range(s.changes, 0, random ? 3 : 1);
        s.changes = 0;
        run(&s, &a, 1.0, 150.0, random);
        assert_in_range(s.count, 1, 2);
        assert_in_range(s.changes, 2, 7);
        assert_true(p95_of(&s, 60.0, &count) < 0.5);
    }
}

static void test_a_load_that_swings(void **state)
{
    static simulation s;
    by__rollout_autoscale a;
    (void)state;
    begin(&s, &a, 1, 1);
    run(&s, &a, 20.0, 40.0, false);
    s.changes = 0;
    /* Pauses that are shorter than the calm period take no worker away. */
    for (int i = 0; i < 6; i++) {
        run(&s, &a, 2.0, 8.0, false);
        run(&s, &a, 20.0, 8.0, false);
    }
    assert_in_range(s.changes, 0, 2);
    assert_in_range(s.count, 6, 8);
}

static void test_bounds(void **state)
{
    static simulation s;
    by__rollout_autoscale a;
    (void)state;
    begin(&s, &a, 2, 2);
    run(&s, &a, 100.0, 60.0, false);
    assert_int_equal(s.most, 8);
    assert_int_equal(s.count, 8);
    begin(&s, &a, 2, 2);
    run(&s, &a, 0.0, 120.0, false);
    assert_int_equal(s.count, 2);
    /* Those that are refused were not fast: more than a twentieth of them is too slow. */
    by__rollout_autoscale_input in = {
        .now = s.now + 60.0, .window = WINDOW, .ready = 2, .arrived = 100};
    in.refused = 4;
    assert_int_equal(decide(&a, &in), 2);
    in.refused = 6;
    assert_int_equal(decide(&a, &in), 3);
    /* A number below the bounds, behind a change of them, is corrected at once. */
    begin(&s, &a, 2, 1);
    run(&s, &a, 0.0, 1.0, false);
    assert_int_equal(s.count, 2);
}

static void test_to_zero(void **state)
{
    static simulation s;
    by__rollout_autoscale a;
    (void)state;
    begin(&s, &a, 0, 1);
    run(&s, &a, 1.0, 30.0, false);
    assert_int_equal(s.count, 1);
    run(&s, &a, 0.0, 50.0, false);
    assert_int_equal(s.count, 1);
    run(&s, &a, 0.0, 40.0, false);
    assert_int_equal(s.count, 0);
    run(&s, &a, 1.0, 3.0, false);
    assert_in_range(s.count, 1, 8);
    assert_true(s.taken > 0);
}

/* While what was started shows no effect yet, a load that grows adds workers at intervals, of which
 * each is as long as the pause. */
static void test_a_pause_between_increases(void **state)
{
    by__rollout_autoscale a;
    double last = -1.0;
    size_t increases = 0;
    BY_UNUSED(state);
    by__rollout_autoscale_begin(
        &a, &(by__rollout_autoscale_options){.least = 1, .most = 30, .target = 0.2, .pause = 3}, 1,
        0.0);
    a.capacity = 10.0;
    for (int tick = 1; tick <= 40; tick++) {
        size_t before = a.wanted;
        by__rollout_autoscale_input in = {.now = tick * 0.25,
                                          .window = 2.0,
                                          .ready = 1,
                                          .arrived = (uint64_t)(20 + 4 * tick),
                                          .ended = 20,
                                          .p95 = 1.0,
                                          .waiting = (size_t)(10 * tick),
                                          .running = 4,
                                          .oldest = 1.0};
        if (decide(&a, &in) > before) {
            assert_true(last < 0.0 || in.now - last >= 3.0);
            last = in.now;
            increases++;
        }
    }
    assert_true(increases >= 2 && a.wanted <= 30);
}

/* Workers that start slowly, or wait until others have ended, have had no effect yet. */
static void test_workers_that_are_not_ready(void **state)
{
    by__rollout_autoscale a;
    by__rollout_autoscale_input in = {
        .window = 2.0, .ready = 1, .arrived = 20, .ended = 20, .p95 = 1.0, .running = 1};
    BY_UNUSED(state);
    by__rollout_autoscale_begin(
        &a, &(by__rollout_autoscale_options){.least = 1, .most = 8, .target = 0.2}, 1, 0.0);
    in.now = 5.0;
    assert_int_equal(decide(&a, &in), 2);
    in.now = 60.0;
    assert_int_equal(decide(&a, &in), 2);
    in.ready = 2;
    assert_int_equal(decide(&a, &in), 3);
}

static void begin_models(simulation *s, by__rollout_autoscale *a, size_t least)
{
    for (size_t i = 0; i < MODELS; i++) {
        begin(&s[i], &a[i], least, 1);
    }
}

static void is_at(const simulation *s, size_t first, size_t second, size_t third)
{
    assert_int_equal(s[0].count, first);
    assert_int_equal(s[1].count, second);
    assert_int_equal(s[2].count, third);
}

static void test_a_load_on_one_of_several_models(void **state)
{
    static simulation s[MODELS];
    by__rollout_autoscale a[MODELS];
    size_t count;
    BY_UNUSED(state);
    begin_models(s, a, 1);
    run_models(s, a, MODELS, 0, (double[]){1.0, 20.0, 0.0}, 60.0, false);
    assert_in_range(s[1].count, 6, 8);
    assert_true(p95_of(&s[1], WINDOW, &count) < 0.2);
    assert_int_equal(s[0].changes + s[2].changes, 0);
    /* The cool-down of one is none of another. */
    run_models(s, a, MODELS, 0, (double[]){20.0, 0.0, 0.0}, 90.0, false);
    assert_in_range(s[0].count, 6, 8);
    assert_int_equal(s[1].count, 1);
    assert_int_equal(s[2].changes, 0);
}

static void test_models_share_a_total(void **state)
{
    static simulation s[MODELS];
    by__rollout_autoscale a[MODELS];
    BY_UNUSED(state);
    begin_models(s, a, 1);
    run_models(s, a, MODELS, 8, (double[]){30.0, 0.0, 0.0}, 30.0, false);
    is_at(s, 6, 1, 1);
    /* Another overloaded model gets as many, and the first gets them back afterwards. */
    s[0].changes = 0;
    run_models(s, a, MODELS, 8, (double[]){30.0, 0.0, 30.0}, 60.0, false);
    is_at(s, 4, 1, 3);
    assert_in_range(s[0].changes, 1, 2);
    run_models(s, a, MODELS, 8, (double[]){30.0, 0.0, 0.0}, 200.0, false);
    is_at(s, 6, 1, 1);
    /* A model that was stopped gets its worker although others would use all of them. */
    begin_models(s, a, 0);
    run_models(s, a, MODELS, 3, (double[]){100.0, 0.0, 0.0}, 90.0, false);
    is_at(s, 3, 0, 0);
    run_models(s, a, MODELS, 3, (double[]){100.0, 1.0, 0.0}, 1.0, false);
    is_at(s, 2, 1, 0);
    /* Nobody gets more than the total leaves beside the minimum of the others. */
    begin_models(s, a, 2);
    run_models(s, a, MODELS, 7, (double[]){100.0, 100.0, 0.0}, 60.0, false);
    is_at(s, 3, 2, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_of_twenty),
        cmocka_unit_test(test_a_load_that_swings),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_a_pause_between_increases),
        cmocka_unit_test(test_to_zero),
        cmocka_unit_test(test_workers_that_are_not_ready),
        cmocka_unit_test(test_a_load_on_one_of_several_models),
        cmocka_unit_test(test_models_share_a_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
